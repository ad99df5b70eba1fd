package imapd

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// extensions are the parts of a command that go-imap's parser does not know (RFC 7162) or does not
// pass on. The session removes them from the command before the parser gets it. The session method
// that the parser then calls finds them here.
type extensions struct {
	verb           string
	modSeq         bool // FETCH MODSEQ
	body           bool // FETCH BODY without a section
	changedSince   uint64
	unchangedSince *uint64
	searchModSeq   bool // SEARCH MODSEQ
	extendedSearch bool // SEARCH RETURN
	highestModSeq  bool // STATUS HIGHESTMODSEQ
	mailboxID      bool // STATUS MAILBOXID
	items          objectItems
	replaced       uint32    // UID of the message that REPLACE removes
	enable         bool      // the command turns CONDSTORE on
	qresync        bool      // ENABLE QRESYNC
	enabled        string    // the extensions that ENABLE names, each after a space
	resync         *resync   // SELECT QRESYNC
	vanished       bool      // UID FETCH VANISHED
	ordering       *ordering // the SEARCH is a SORT or THREAD
}

// extensionWords are the words by which each command is known to have extensions.
var extensionWords = map[string][]string{
	"SELECT": {"CONDSTORE", "QRESYNC"}, "EXAMINE": {"CONDSTORE", "QRESYNC"}, "ENABLE": {"CONDSTORE", "QRESYNC"},
	"FETCH": fetchWords, "UID FETCH": fetchWords,
	"STORE": {"UNCHANGEDSINCE"}, "UID STORE": {"UNCHANGEDSINCE"},
	"SEARCH": searchWords, "UID SEARCH": searchWords,
	"STATUS": {"HIGHESTMODSEQ", "MAILBOXID"}, "LIST": {"HIGHESTMODSEQ", "MAILBOXID"},
}

var (
	fetchWords  = []string{"MODSEQ", "CHANGEDSINCE", "BODYSTRUCTURE", "EMAILID", "THREADID", "PREVIEW", "SAVEDATE"}
	searchWords = []string{"MODSEQ", "SMALLER", "EMAILID", "THREADID", "SAVED"}
)

// modSeqKey replaces MODSEQ in a SEARCH for the parser, as the name of a header field that no
// message can have.
const modSeqKey = "MODSEQ:"

// takeExtensions returns a command without its extensions, and the extensions. A command with a
// malformed extension is returned unchanged, so that the parser refuses it.
func takeExtensions(verb string, text []byte) ([]byte, extensions) {
	plain := extensions{verb: verb}
	if !mentions(text, extensionWords[verb]) {
		return text, plain
	}
	p, a := newCommandEditor(text), plain
	args := 2 // index of the first argument, after tag and verb
	if strings.HasPrefix(verb, "UID ") {
		args = 3
	}
	ok := false
	switch strings.TrimPrefix(verb, "UID ") {
	case "SELECT", "EXAMINE":
		ok = p.selectParams(args, &a)
	case "ENABLE":
		ok = p.enableArgs(args, &a)
	case "FETCH":
		ok = p.fetchArgs(args, &a)
	case "STORE":
		ok = p.storeArgs(args, &a)
	case "SEARCH":
		ok = p.searchArgs(args, &a)
	case "STATUS":
		ok = p.statusItems(args+1, &a)
	case "LIST":
		ok = p.listReturn(args, &a)
	}
	if !ok {
		return text, plain
	}
	return p.result(), a
}

func mentions(text []byte, words []string) bool {
	if len(words) == 0 {
		return false
	}
	upper := bytes.ToUpper(text)
	for _, w := range words {
		if bytes.Contains(upper, []byte(w)) {
			return true
		}
	}
	return false
}

// enableArgs parses ENABLE … CONDSTORE QRESYNC. The words stay in the command: the parser ignores
// unknown ones.
func (p *commandEditor) enableArgs(at int, a *extensions) bool {
	for i := at; i < len(p.tokens); i++ {
		if word := p.word(i); word == "CONDSTORE" || word == "QRESYNC" {
			a.enables(word)
		}
	}
	return a.enable
}

// fetchArgs parses FETCH set items (CHANGEDSINCE n …). MODSEQ is replaced by UID, which is always
// allowed.
func (p *commandEditor) fetchArgs(at int, a *extensions) bool {
	first, last := at+1, at+1
	if p.is(first, '(') {
		end, ok := p.closing(first)
		if !ok {
			return false
		}
		last = end
	}
	for i := first; i <= last && i < len(p.tokens); i++ {
		switch p.word(i) {
		case "MODSEQ":
			p.replace(i, i, "UID")
			a.modSeq = true
		case "BODY":
			a.body = true
		default:
			i = p.objectItem(i, &a.items)
			last = max(last, i)
		}
	}
	if len(p.tokens) > last+1 {
		if !p.fetchModifiers(last+1, a) {
			return false
		}
	}
	a.enable = a.modSeq
	return a.modSeq || a.body || a.items != objectItems{}
}

// storeArgs parses STORE set (UNCHANGEDSINCE n) flags. imapflow sends the modifier after the flags.
func (p *commandEditor) storeArgs(at int, a *extensions) bool {
	first := at + 1
	if p.word(first+1) != "UNCHANGEDSINCE" {
		first = len(p.tokens) - 4
	}
	n, ok := p.modSeqAt(first + 2)
	if !ok || first <= at || !p.is(first, '(') || p.word(first+1) != "UNCHANGEDSINCE" || !p.is(first+3, ')') {
		return false
	}
	p.remove(first, first+3)
	a.unchangedSince, a.enable = &n, true
	return true
}

// modSeqAt parses a mod-sequence (RFC 7162 section 7: 63 bits); false if token i is none.
func (p *commandEditor) modSeqAt(i int) (uint64, bool) {
	if !p.is(i, 'a') {
		return 0, false
	}
	n, err := strconv.ParseUint(p.raw(i), 10, 64)
	return n, err == nil && n <= math.MaxInt64
}

// searchKeys maps each search key with arguments to their number.
var searchKeys = map[string]int{
	"CHARSET": 1, "BCC": 1, "BODY": 1, "CC": 1, "FROM": 1, "KEYWORD": 1, "UNKEYWORD": 1, "SUBJECT": 1, "TEXT": 1, "TO": 1,
	"SINCE": 1, "BEFORE": 1, "ON": 1, "SENTSINCE": 1, "SENTBEFORE": 1, "SENTON": 1, "LARGER": 1, "UID": 1, "HEADER": 2,
}

// searchArgs parses the keys MODSEQ and SMALLER at any position. go-imap loses a SMALLER that is
// followed by another key of size or date, and treats SMALLER 0 as absent; NOT NOT SMALLER n keeps
// it.
func (p *commandEditor) searchArgs(at int, a *extensions) bool {
	if p.word(at) == "RETURN" && p.is(at+1, '(') {
		end, ok := p.closing(at + 1)
		if !ok {
			return false
		}
		at = end + 1
		a.extendedSearch = true
	}
	for i := at; i < len(p.tokens); i++ {
		switch word := p.word(i); word {
		case "MODSEQ":
			last, ok := p.modSeqValue(i + 1)
			if !ok {
				return false
			}
			p.replace(i, last, "HEADER "+modSeqKey+" "+p.raw(last))
			i = last
			a.searchModSeq, a.enable = true, true
		case "EMAILID", "THREADID", "SAVEDBEFORE", "SAVEDON", "SAVEDSINCE", "SAVEDATESUPPORTED":
			last, ok := p.objectKey(i)
			if !ok {
				return false
			}
			i = last
		case "SMALLER":
			if i++; p.word(i) == "0" {
				p.replace(i-1, i, "NOT ALL")
			} else if p.is(i, 'a') {
				p.replace(i-1, i, "NOT NOT SMALLER "+p.raw(i))
			}
		default:
			i += searchKeys[word]
		}
	}
	return len(p.edits) > 0
}

// modSeqValue parses the argument of MODSEQ: a number, optionally after an entry name and an entry
// type. They have no effect, since a message has only one mod-sequence.
func (p *commandEditor) modSeqValue(i int) (last int, ok bool) {
	if p.is(i, 'q') {
		switch p.word(i + 1) {
		case "PRIV", "SHARED", "ALL":
			i += 2
		default:
			return 0, false
		}
	}
	_, ok = p.modSeqAt(i)
	return i, ok
}

// statusItems parses the items of STATUS, which begin at token i.
func (p *commandEditor) statusItems(i int, a *extensions) bool {
	end, ok := p.closing(i)
	if !ok || !p.is(i, '(') {
		return false
	}
	var others []string
	for j := i + 1; j < end; j++ {
		switch word := p.word(j); {
		case word == "HIGHESTMODSEQ" && !a.highestModSeq:
			a.highestModSeq, a.enable = true, true
		case word == "MAILBOXID" && !a.mailboxID:
			a.mailboxID = true
		default:
			others = append(others, p.raw(j))
		}
	}
	if !a.highestModSeq && !a.mailboxID {
		return false
	}
	p.replace(i+1, end-1, strings.Join(others, " "))
	return true
}

// listReturn parses LIST … RETURN (… STATUS (…)).
func (p *commandEditor) listReturn(at int, a *extensions) bool {
	for i := at; i+1 < len(p.tokens); i++ {
		if p.word(i) == "STATUS" && p.is(i+1, '(') {
			return p.statusItems(i+1, a)
		}
	}
	return false
}

// enableCondStore turns CONDSTORE on. From then on every FETCH reply that reports a change has a
// MODSEQ (RFC 7162 section 3.1).
func (ss *session) enableCondStore(a extensions) {
	if !a.enable || ss.user.MailboxID == "" {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if a.verb == "ENABLE" {
		ss.conn.patchEnd("* ENABLED", "\r\n", a.enabled)
		ss.qresync = ss.qresync || a.qresync
	}
	opens := a.verb == "SELECT" || a.verb == "EXAMINE"
	if !ss.condStore && ss.selected != nil && !opens {
		ss.writeHighestModSeq(ss.selected.modSeq)
	}
	ss.condStore = true
}

func (ss *session) writeHighestModSeq(modSeq uint64) {
	ss.conn.writeReply("* OK [HIGHESTMODSEQ %d] Highest", modSeq)
}

// modSeqItem returns a MODSEQ item for the beginning of a FETCH reply.
func modSeqItem(modSeq uint64) string { return fmt.Sprintf("MODSEQ (%d) ", modSeq) }
