package imapd

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"

	"github.com/mailstead/mailstead/handlers/imapd/order"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/inbox"
)

// A SORT or THREAD of at least largeOrder messages waits while maxLargeOrders others run. It takes
// up to 400 bytes of memory per message.
const (
	largeOrder     = 10_000
	maxLargeOrders = 4
)

// An ordering is the argument of a SORT or THREAD before its search keys (RFC 5256 section 5).
type ordering struct {
	keys       []order.Key // of a SORT
	references bool        // THREAD REFERENCES, not ORDEREDSUBJECT
}

func isOrdering(verb string) bool {
	switch verb {
	case "SORT", "UID SORT", "THREAD", "UID THREAD":
		return true
	}
	return false
}

// takeOrdering turns a SORT or THREAD into a SEARCH with the same search keys, which go-imap can
// parse, and returns the ordering. It returns other commands unchanged, with a nil ordering.
func takeOrdering(tag, verb string, text []byte) ([]byte, string, *ordering, error) {
	if !isOrdering(verb) {
		return text, verb, nil, nil
	}
	o := &ordering{}
	args := 2 // index of the first argument, after tag and verb
	if strings.HasPrefix(verb, "UID ") {
		args = 3
	}
	kind := strings.TrimPrefix(verb, "UID ")
	p := newCommandEditor(text)
	charset := args + 1
	switch {
	case len(tag) > maxTag || p.word(args-1) != kind:
		return nil, "", nil, badCommand("The arguments cannot be read")
	case kind == "THREAD":
		name, _ := p.value(args)
		name = strings.ToUpper(name)
		if name != "REFERENCES" && name != "ORDEREDSUBJECT" {
			return nil, "", nil, badCommand("THREAD knows REFERENCES and ORDEREDSUBJECT")
		}
		o.references = name == "REFERENCES"
	default:
		end, ok := p.sortKeys(args, o)
		if !ok {
			return nil, "", nil, badCommand("The keys to sort by cannot be read")
		}
		charset = end + 1
	}
	name, ok := p.value(charset)
	switch {
	case !ok || len(p.tokens) == charset+1:
		return nil, "", nil, badCommand("A charset and what to search for are missing")
	case !strings.EqualFold(name, "US-ASCII") && !strings.EqualFold(name, "UTF-8"):
		return nil, "", nil, refusal("BADCHARSET (US-ASCII UTF-8)", "Only US-ASCII and UTF-8 are supported")
	}
	p.replace(args-1, charset, "SEARCH CHARSET UTF-8")
	return p.result(), searchVerb(verb), o, nil
}

// sortFields are the keys of SORT (RFC 5256 section 3).
var sortFields = map[string]order.Field{
	"ARRIVAL": order.Arrival, "CC": order.CC, "DATE": order.Date, "FROM": order.From, "SIZE": order.Size,
	"SUBJECT": order.Subject, "TO": order.To,
}

// sortKeys parses the list at token i and returns the index of its end. A repeated key is ignored.
func (p *commandEditor) sortKeys(i int, o *ordering) (end int, ok bool) {
	if !p.is(i, '(') {
		return 0, false
	}
	for i++; !p.is(i, ')'); i++ {
		key := order.Key{Reverse: p.word(i) == "REVERSE"}
		if key.Reverse {
			i++
		}
		key.Field, ok = sortFields[p.word(i)]
		if !ok {
			return 0, false
		}
		if !slices.ContainsFunc(o.keys, func(k order.Key) bool { return k.Field == key.Field }) {
			o.keys = append(o.keys, key)
		}
	}
	return i, len(o.keys) > 0
}

// answerOrdering answers a SORT or THREAD, whose search keys the parser has parsed. The parser then
// writes an empty SEARCH reply, which orderingReply removes.
func (ss *session) answerOrdering(kind imapserver.NumKind, criteria *imap.SearchCriteria) (*imap.SearchData, error) {
	answer, err := ss.runOrdering(kind, criteria)
	if err != nil {
		return nil, ss.replyError(err)
	}
	return &imap.SearchData{All: imap.SeqSet{}}, ss.conn.writeAnswers(append(answer, "\r\n"...))
}

func (ss *session) runOrdering(kind imapserver.NumKind, criteria *imap.SearchCriteria) (answer []byte, err error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	until := time.Now().Add(maxSearchTime)
	found, modSeqs, err := ss.search(criteria)
	if err != nil {
		return nil, err
	}
	if len(found) > largeOrder {
		select {
		case ss.server.largeOrders <- struct{}{}:
			defer func() { <-ss.server.largeOrders }()
		case <-ss.conn.ctx.Done():
			return nil, ss.conn.ctx.Err()
		case <-time.After(time.Until(until)):
			return nil, errSearchTime
		}
	}

	o := ss.extensions.ordering
	if o.keys == nil {
		threads := order.NewThreads(o.references, len(found))
		if err := ss.eachOrdered(kind, found, true, until, threads.Add); err != nil {
			return nil, err
		}
		answer = append(answer, "* THREAD"...)
		if len(found) > 0 {
			answer = append(answer, ' ')
		}
		if o.references {
			return threads.AppendReferences(answer), nil
		}
		return threads.AppendOrderedSubject(answer), nil
	}
	sorter := order.NewSorter(o.keys, len(found))
	if err := ss.eachOrdered(kind, found, order.NeedsEnvelope(o.keys), until, sorter.Add); err != nil {
		return nil, err
	}
	answer = append(answer, "* SORT"...)
	for _, n := range sorter.Sorted() {
		answer = strconv.AppendUint(append(answer, ' '), uint64(n), 10)
	}
	if len(found) > 0 && ss.extensions.searchModSeq { // RFC 7162 section 3.1.6
		answer = strconv.AppendUint(append(answer, " (MODSEQ "...), slices.Max(modSeqs), 10)
		answer = append(answer, ')')
	}
	return answer, nil
}

// eachOrdered calls add with each message. The message is valid only during the call.
func (ss *session) eachOrdered(kind imapserver.NumKind, uids []uint32, envelopes bool, until time.Time, add func(*order.Message)) error {
	sel := ss.selected
	var view msg.View
	var failed error
	last := uint32(0)
	for len(uids) > 0 {
		rest, err := ss.server.Service.Inbox.EachRow(ss.conn.ctx, ss.user, sel.folder, uids, inbox.RowQuery{Structure: envelopes}, func(row *inbox.MessageRow) bool {
			m := order.Message{Number: row.UID, Arrival: row.Received.Unix(), Size: row.Size}
			m.Sent = m.Arrival // RFC 5256 section 3, DATE
			if kind == imapserver.NumKindSeq {
				last = sel.view.seqAfter(last, row.UID)
				m.Number = last
			}
			if envelopes {
				var e *msg.EnvelopeView
				e, failed = view.Envelope(row.Structure)
				if failed != nil {
					return false
				}
				if e.Date.Known {
					m.Sent = e.Date.Unix
				}
				m.From, m.To, m.CC = firstMailbox(e.From), firstMailbox(e.To), firstMailbox(e.Cc)
				m.Subject, m.ID, m.References, m.InReplyTo = e.Subject, e.MessageID, e.References, e.InReplyTo
			}
			add(&m)
			return true
		})
		view.Clear()
		switch {
		case err != nil:
			return err
		case failed != nil:
			return failed
		case ss.conn.ctx.Err() != nil:
			return ss.conn.ctx.Err()
		case time.Now().After(until):
			return errSearchTime
		}
		uids = rest
	}
	return nil
}

// firstMailbox returns the addr-mailbox of the first address as in ENVELOPE, which may be the name
// of a group.
func firstMailbox(list []msg.AddressView) []byte {
	if len(list) == 0 {
		return nil
	}
	return list[0].Mailbox
}

// orderingReply corrects the replies to the SEARCH that replaces a SORT or THREAD: it removes the
// search result, and puts the verb of the command into the tagged OK.
func orderingReply(verb string, p []byte) []byte {
	text := string(p[:min(len(p), 2*maxTag)])
	if strings.HasPrefix(text, "* SEARCH") || strings.HasPrefix(text, "* ESEARCH") {
		return nil
	}
	tag, ok := strings.CutSuffix(text, " OK "+searchVerb(verb)+" completed\r\n")
	if !ok || strings.ContainsRune(tag, ' ') {
		return correctServerBug(p)
	}
	return []byte(tag + " OK " + verb + " completed\r\n")
}

func searchVerb(verb string) string {
	if strings.HasPrefix(verb, "UID ") {
		return "UID SEARCH"
	}
	return "SEARCH"
}
