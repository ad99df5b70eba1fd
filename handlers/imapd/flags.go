package imapd

import (
	"slices"
	"strings"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"

	"github.com/mailstead/mailstead/service/inbox"
)

const maxListedKeywords = 200 // in a FLAGS reply

var systemFlags = [...]struct {
	name imap.Flag
	bit  inbox.Flags
}{
	{imap.FlagAnswered, inbox.FlagAnswered},
	{imap.FlagFlagged, inbox.FlagFlagged},
	{imap.FlagDeleted, inbox.FlagDeleted},
	{imap.FlagSeen, inbox.FlagSeen},
	{imap.FlagDraft, inbox.FlagDraft},
}

// flagLists has the names of every set of system flags, by the bits of the set.
var flagLists = func() (lists [32][]imap.Flag) {
	for set := range lists {
		lists[set] = []imap.Flag{}
		for _, f := range systemFlags {
			if inbox.Flags(set)&f.bit != 0 {
				lists[set] = append(lists[set], f.name)
			}
		}
	}
	return lists
}()

func flagsOf(row *inbox.MessageRow) []imap.Flag {
	list := flagLists[row.Flags&31]
	if len(row.Keywords) == 0 {
		return list
	}
	list = list[:len(list):len(list)]
	for _, k := range row.Keywords {
		list = append(list, imap.Flag(k))
	}
	return list
}

// folderFlags returns the flags for a FLAGS reply: the system flags and the keywords in use.
func folderFlags(keywords []string) []imap.Flag {
	list := flagLists[31]
	list = list[:len(list):len(list)]
	for _, k := range keywords {
		list = append(list, imap.Flag(k))
	}
	return list
}

// parseFlags splits a client's flags into system flags and keywords. It refuses \Recent, which only
// a server may set and which IMAP4rev2 no longer has.
func parseFlags(list []imap.Flag) (flags inbox.Flags, keywords []string, err error) {
	for _, f := range list {
		bit := systemBit(f)
		switch {
		case bit != 0:
			flags |= bit
		case strings.HasPrefix(string(f), `\`):
			return 0, nil, badCommand("A client cannot set the flag %s", plainText(string(f)))
		case plainText(string(f)) != string(f):
			return 0, nil, badCommand("A keyword is ASCII")
		default:
			keywords = append(keywords, string(f))
		}
	}
	return flags, keywords, nil
}

func systemBit(f imap.Flag) inbox.Flags {
	for _, s := range systemFlags {
		if strings.EqualFold(string(s.name), string(f)) {
			return s.bit
		}
	}
	return 0
}

var flagOps = map[imap.StoreFlagsOp]inbox.FlagOp{
	imap.StoreFlagsSet: inbox.ReplaceFlags,
	imap.StoreFlagsAdd: inbox.AddFlags,
	imap.StoreFlagsDel: inbox.RemoveFlags,
}

// Store answers STORE.
func (ss *session) Store(_ *imapserver.FetchWriter, set imap.NumSet, change *imap.StoreFlags, _ *imap.StoreOptions) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	sel := ss.selected
	if sel.readOnly {
		return errReadOnly
	}
	flags, keywords, err := parseFlags(change.Flags)
	if err != nil {
		return err
	}
	uids := sel.view.uidsOf(set, sel.saved)
	rows, err := ss.server.Service.Inbox.ChangeFlags(ss.conn.ctx, ss.user, sel.folder, uids,
		inbox.FlagChange{Op: flagOps[change.Op], Flags: flags, Keywords: keywords, UnchangedSince: ss.extensions.unchangedSince})
	done := slices.DeleteFunc(slices.Clone(rows), func(row inbox.MessageRow) bool { return row.Kept })
	sel.recordOwnChanges(done)
	if err == nil && (!change.Silent || ss.condStore) {
		err = ss.writeFlags(done, change.Silent)
	}
	if err == nil && len(done) < len(rows) {
		if ss.qresync { // earlier changes by others are reported after the next command
			ss.writeHighestModSeq(sel.reportedUpTo)
		}
		return ss.modifiedReply(set, rows)
	}
	if err == nil && len(rows) < len(uids) {
		ss.patchExpungeIssued(set)
	}
	return ss.replyError(err)
}

// patchExpungeIssued adds EXPUNGEISSUED to the tagged OK of a command that named messages by
// sequence number if another session has expunged some of them (RFC 5530 section 3). A client that
// names UIDs must expect that they no longer exist.
func (ss *session) patchExpungeIssued(set imap.NumSet) {
	if _, bySeq := set.(imap.SeqSet); bySeq && !imap.IsSearchRes(set) {
		ss.conn.patchEnd(ss.conn.tag+" OK ", ss.extensions.verb+" completed\r\n", "["+expungedCode+"] ")
	}
}

// expungedCode is the response code for expunged messages.
const expungedCode = "EXPUNGEISSUED"

// modifiedReply returns the tagged reply that lists the messages that a conditional STORE did not
// change (RFC 7162 section 3.1.3).
func (ss *session) modifiedReply(set imap.NumSet, rows []inbox.MessageRow) error {
	var nums []uint32
	for _, row := range rows {
		if !row.Kept {
			continue
		}
		if _, ok := set.(imap.SeqSet); ok {
			nums = append(nums, ss.selected.view.seq(row.UID))
		} else {
			nums = append(nums, row.UID)
		}
	}
	return &imap.Error{
		Type: imap.StatusResponseTypeOK, Code: imap.ResponseCode("MODIFIED " + seqSet(nums).String()),
		Text: "Some messages have changed since",
	}
}

// writeFlags reports the new flags of messages. With silent it reports only their MODSEQ.
func (ss *session) writeFlags(rows []inbox.MessageRow, silent bool) error {
	if !silent {
		ss.writeNewKeywords(keywordsOf(rows))
	}
	var out attributeWriter
	for i := range rows {
		shown := attributes{modSeq: ss.condStore, uid: true, flags: !silent}
		if err := out.answer(ss.selected.view.seq(rows[i].UID), &rows[i], shown); err != nil {
			return err
		}
		if len(out.b) < fetchBuffer && i < len(rows)-1 {
			continue
		}
		if err := ss.conn.writeAnswers(out.b); err != nil {
			return err
		}
		out.b = out.b[:0]
	}
	return nil
}

var errReadOnly = refusal(imap.ResponseCodeNoPerm, "The folder is open for reading only")
