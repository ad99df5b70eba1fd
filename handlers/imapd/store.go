package imapd

import (
	"slices"
	"strings"

	"github.com/emersion/go-imap/v2"
	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/service/inbox"
)

// store answers STORE (RFC 9051 section 6.4.6), also with UNCHANGEDSINCE (RFC 7162 section 3.1.3).
func (ss *session) store(p *wire.Command) error {
	change := inbox.FlagChange{Op: inbox.ReplaceFlags}
	condition := func() {
		p.Expect('(')
		if p.Word() != "UNCHANGEDSINCE" || change.UnchangedSince != nil {
			p.Fail(wire.Bad("STORE does not know that modifier"))
		}
		p.Space()
		since := p.ModSeq()
		p.Expect(')')
		change.UnchangedSince = &since
	}
	p.Space()
	set := p.Set()
	p.Space()
	if p.Next('(') {
		condition()
		p.Space()
	}
	item := p.Word()
	if rest, is := strings.CutPrefix(item, "+"); is {
		item, change.Op = rest, inbox.AddFlags
	} else if rest, is := strings.CutPrefix(item, "-"); is {
		item, change.Op = rest, inbox.RemoveFlags
	}
	item, silent := strings.CutSuffix(item, ".SILENT")
	if item != "FLAGS" {
		p.Fail(wire.Bad("STORE changes FLAGS only"))
	}
	p.Space()
	var flags []imap.Flag
	if p.Next('(') {
		flags = p.Flags()
	} else {
		flags = append(flags, p.Flag())
		for p.More() && !p.NextIs('(') {
			p.Space()
			flags = append(flags, p.Flag())
		}
	}
	if p.More() { // some clients send the condition after the flags
		p.Space()
		condition()
	}
	if err := p.End(); err != nil {
		return err
	}
	if change.UnchangedSince != nil {
		ss.enableCondStore()
	}
	sel := ss.selected
	if sel.readOnly {
		return errReadOnly
	}
	var err error
	change.Flags, change.Keywords, err = parseFlags(flags)
	if err != nil {
		return err
	}
	uids := sel.view.uidsOf(set, sel.saved)
	rows, err := ss.server.Service.Inbox.ChangeFlags(ss.ctx, ss.user, sel.folder, uids, change)
	done := slices.DeleteFunc(slices.Clone(rows), func(row inbox.MessageRow) bool { return row.Skipped })
	sel.recordOwnChanges(done)
	if err != nil {
		return err
	}
	if !silent || ss.condStore {
		if err := ss.reportFlags(done, attributes{modSeq: ss.condStore, uid: true, flags: !silent}); err != nil {
			return err
		}
	}
	switch {
	case len(done) < len(rows):
		if ss.qresync { // earlier changes by others are reported after the next command
			ss.writeHighestModSeq(sel.reportedUpTo)
		}
		return ss.modifiedAnswer(p.UID(), rows)
	case len(rows) < len(uids):
		ss.setExpungeIssued(set)
	}
	return nil
}

// setExpungeIssued puts EXPUNGEISSUED into the tagged OK of a command that named messages by
// sequence number, because another session has expunged some of them (RFC 5530 section 3). It does
// nothing for UIDs: a client that names UIDs must expect that they no longer exist.
func (ss *session) setExpungeIssued(set imap.NumSet) {
	if _, bySeq := set.(imap.SeqSet); bySeq && !imap.IsSearchRes(set) {
		ss.code = expungedCode
	}
}

// modifiedAnswer returns the tagged OK that lists the messages that a STORE with UNCHANGEDSINCE did
// not change (RFC 7162 section 3.1.3).
func (ss *session) modifiedAnswer(byUID bool, rows []inbox.MessageRow) error {
	var nums []uint32
	for _, row := range rows {
		if !row.Skipped {
			continue
		}
		if byUID {
			nums = append(nums, row.UID)
		} else {
			nums = append(nums, ss.selected.view.seq(row.UID))
		}
	}
	return &imap.Error{
		Type: imap.StatusResponseTypeOK, Code: imap.ResponseCode("MODIFIED " + seqSet(nums).String()),
		Text: "Some messages have changed since",
	}
}
