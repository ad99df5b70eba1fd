package inbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"golang.org/x/sync/errgroup"
)

// MessageMarks are the flags to set or clear on messages. A nil field leaves its flag unchanged.
type MessageMarks struct {
	IsRead    *bool `json:"is_read" alias:"read" log:"true"`
	IsFlagged *bool `json:"is_flagged" log:"true"` // Whether it is flagged or starred, here or by IMAP (\Flagged).
}

func (m MessageMarks) check() error {
	if m.IsRead == nil && m.IsFlagged == nil {
		return core.Errorf("nothing_to_update", "Give is_read or is_flagged, true or false.")
	}
	return nil
}

// apply returns the flags of a message after the change.
func (m MessageMarks) apply(flags Flags) Flags {
	for flag, want := range map[Flags]*bool{FlagSeen: m.IsRead, FlagFlagged: m.IsFlagged} {
		switch {
		case want == nil:
		case *want:
			flags |= flag
		default:
			flags &^= flag
		}
	}
	return flags
}

// flagChange returns the change in the form of package pull, for an external server.
func (m MessageMarks) flagChange() pull.FlagChange {
	return pull.FlagChange{Seen: m.IsRead, Flagged: m.IsFlagged}
}

// summary returns a text that describes the change to people.
func (m MessageMarks) summary() string {
	var done []string
	for _, is := range []struct {
		want    *bool
		yes, no string
	}{{m.IsRead, "read", "unread"}, {m.IsFlagged, "flagged", "not flagged"}} {
		switch {
		case is.want == nil:
		case *is.want:
			done = append(done, is.yes)
		default:
			done = append(done, is.no)
		}
	}
	return "The message is marked " + strings.Join(done, " and ") + "."
}

// MarkMessageIn is the request of mark_message.
type MarkMessageIn struct {
	MessageIn
	MessageMarks
}

// MarkInboxMessageIn is the request of mark_inbox_message.
type MarkInboxMessageIn struct {
	InboxMessageIn
	MessageMarks
}

// MessageMarked says how a message is marked after the change. MessageID is the UID.
type MessageMarked struct {
	Message   string `json:"message" words:"ours" example:"The message is marked as read."` // For people; the text may change.
	MessageID string `json:"message_id" words:"ours" example:"17"`                          // The IMAP UID; the same as uid.
	UID       string `json:"uid" words:"ours"`                                              // The IMAP UID.
	Mailbox   string `json:"mailbox" words:"ours"`                                          // The mailbox's address.
	IsRead    bool   `json:"is_read"`
	IsFlagged bool   `json:"is_flagged"` // Whether it is flagged or starred, here or by IMAP (\Flagged).
}

// MarkMessage marks a message as read or unread, or as flagged or not. A message of an external
// mailbox is marked on its server first.
func (s *Service) MarkMessage(ctx context.Context, who core.Actor, in MarkMessageIn) (*MessageMarked, error) {
	return s.markMessage(ctx, in.by(who), in.MessageMarks)
}

// MarkInboxMessage is like MarkMessage, but the request names the mailbox by its address.
func (s *Service) MarkInboxMessage(ctx context.Context, who core.Actor, in MarkInboxMessageIn) (*MessageMarked, error) {
	return s.markMessage(ctx, in.by(who), in.MessageMarks)
}

// markMessage changes the flags of one message.
func (s *Service) markMessage(ctx context.Context, p messagePicker, marks MessageMarks) (*MessageMarked, error) {
	if err := marks.check(); err != nil {
		return nil, err
	}
	mb, _, m, external, err := s.findExternal(p)
	if err != nil {
		return nil, err
	}
	if external {
		var marked map[uint32]Flags
		var failures map[uint32]*core.Error
		marked, failures, err = s.servers.Mark(ctx, mb, []uint32{m.UID}, marks.flagChange())
		if err == nil && failures[m.UID] != nil {
			err = failures[m.UID]
		}
		m.Flags = marked[m.UID]
	} else {
		m, err = s.markStored(p, marks)
	}
	if err != nil {
		return nil, err
	}
	return &MessageMarked{
		Message: marks.summary(), UID: core.UIDText(m.UID), MessageID: core.UIDText(m.UID), Mailbox: mb.Email,
		IsRead: m.Flags&FlagSeen != 0, IsFlagged: m.Flags&FlagFlagged != 0,
	}, nil
}

// markStored changes the flags of a message that is stored here only.
func (s *Service) markStored(p messagePicker, marks MessageMarks) (m *store.Message, err error) {
	err = s.Store.Update(func(tx *store.Tx) error {
		var mb *store.Mailbox
		mb, _, m, err = p.find(tx)
		if err != nil {
			return err
		}
		if flags := marks.apply(m.Flags); flags != m.Flags {
			s.notifyWatchers(tx, mb.Num)
			return tx.SetFlags(m, flags, m.Keywords)
		}
		return nil
	})
	return m, err
}

// MessageDeleted is the answer for a deleted message. If Folder and NewUID are set, the message was
// moved to Trash instead. MessageID is the UID.
type MessageDeleted struct {
	Message   string  `json:"message" words:"ours" example:"The message is deleted."` // For people; the text may change.
	MessageID string  `json:"message_id" words:"ours" example:"17"`                   // The IMAP UID; the same as uid.
	UID       string  `json:"uid" words:"ours"`                                       // The IMAP UID.
	Mailbox   string  `json:"mailbox" words:"ours"`                                   // The mailbox's address.
	Folder    *string `json:"folder,omitempty" words:"theirs" known:"folders"`
	NewUID    *string `json:"new_uid,omitempty" words:"ours"` // Its UID in that folder.
}

// DeleteMessageIn is the request of delete_message.
type DeleteMessageIn struct {
	MessageIn
	To string `query:"to" enum:"trash|"` // `trash` moves the message to Trash. Without it, and in Trash, it is deleted for good.
}

// DeleteInboxMessageIn is the request of delete_inbox_message.
type DeleteInboxMessageIn struct {
	InboxMessageIn
	To string `query:"to" enum:"trash|"` // `trash` moves the message to Trash. Without it, and in Trash, it is deleted for good.
}

// DeleteMessage deletes a message permanently. A message of an external mailbox is deleted on its
// server first. With to=trash, the message is moved to Trash instead, unless it is already there.
func (s *Service) DeleteMessage(ctx context.Context, who core.Actor, in DeleteMessageIn) (*MessageDeleted, error) {
	return s.deleteMessage(ctx, who, in.by(who), in.To == roleTrash)
}

// DeleteInboxMessage is like DeleteMessage, but the request names the mailbox by its address.
func (s *Service) DeleteInboxMessage(ctx context.Context, who core.Actor, in DeleteInboxMessageIn) (*MessageDeleted, error) {
	return s.deleteMessage(ctx, who, in.by(who), in.To == roleTrash)
}

// DeletesForGood reports whether DeleteMessage would delete the message permanently: if to=trash is
// not set, or the message is already in Trash or on an external server.
func (s *Service) DeletesForGood(who core.Actor, in DeleteMessageIn) (bool, error) {
	return s.deletesForGood(in.by(who), in.To == roleTrash)
}

// DeletesInboxMessageForGood is like DeletesForGood, but the request names the mailbox by its
// address.
func (s *Service) DeletesInboxMessageForGood(who core.Actor, in DeleteInboxMessageIn) (bool, error) {
	return s.deletesForGood(in.by(who), in.To == roleTrash)
}

func (s *Service) deletesForGood(p messagePicker, toTrash bool) (bool, error) {
	_, f, _, external, err := s.findExternal(p)
	return err != nil || external || !toTrash || roleOf(f) == roleTrash, err
}

func (s *Service) deleteMessage(ctx context.Context, who core.Actor, p messagePicker, toTrash bool) (*MessageDeleted, error) {
	mb, _, m, external, err := s.findExternal(p)
	switch {
	case err != nil:
	case external:
		if err = s.agents.RequireUntainted(who); err != nil {
			break
		}
		var failures map[uint32]*core.Error
		failures, err = s.servers.Delete(ctx, who, mb, []uint32{m.UID})
		if err == nil && failures[m.UID] != nil {
			err = failures[m.UID]
		}
	case toTrash:
		var out *MessageDeleted
		out, err = s.moveToTrash(who, p)
		if err != nil || out != nil {
			return out, err
		}
		err = s.deleteStored(who, p)
	default:
		err = s.deleteStored(who, p)
	}
	if err != nil {
		return nil, err
	}
	return &MessageDeleted{Message: "The message is deleted.", UID: core.UIDText(m.UID), MessageID: core.UIDText(m.UID), Mailbox: mb.Email}, nil
}

// moveToTrash moves a message to Trash. It returns nil if the message is already there.
func (s *Service) moveToTrash(who core.Actor, p messagePicker) (out *MessageDeleted, err error) {
	err = s.Store.Update(func(tx *store.Tx) error {
		out = nil
		mb, f, m, err := p.find(tx)
		if err != nil || roleOf(f) == roleTrash {
			return err
		}
		trash, err := ensureRoleFolder(tx, mb, roleTrash)
		if err != nil {
			return err
		}
		moved, err := s.moveMessage(tx, who, mb, m, trash)
		if err != nil {
			return err
		}
		uid := core.UIDText(moved.UID)
		out = &MessageDeleted{
			Message: "The message is in Trash.", UID: core.UIDText(m.UID), MessageID: core.UIDText(m.UID), Mailbox: mb.Email, Folder: &trash.Name, NewUID: &uid,
		}
		return AuditDeleted(tx, who, mb, m.UID)
	})
	return out, err
}

// moveMessage moves one message into another folder of its mailbox, as IMAP MOVE does.
func (s *Service) moveMessage(tx *store.Tx, who core.Actor, mb *store.Mailbox, m *store.Message, to *Folder) (*store.Message, error) {
	if m.Folder == to.ID {
		return m, nil
	}
	taint, err := agents.HolderOf(who).Taint(tx)
	if err != nil {
		return nil, err
	}
	from, err := tx.Folder(mb.Num, m.Folder)
	if err != nil {
		return nil, err
	}
	if err := checkTaintedMove(tx, taint, m, from, to); err != nil {
		return nil, err
	}
	s.notifyWatchers(tx, mb.Num)
	copies, err := tx.CopyMessages([]*store.Message{m}, to.ID, movedBits(taint))
	if err != nil {
		return nil, err
	}
	if err := s.completeCopy(tx, mb.AccountID, taint, from, to, m, copies[0]); err != nil {
		return nil, err
	}
	return copies[0], tx.DeleteMessage(m.Mailbox, m.Folder, m.UID)
}

// deleteStored deletes a message that is stored here only.
func (s *Service) deleteStored(who core.Actor, p messagePicker) error {
	return s.Store.Update(func(tx *store.Tx) error {
		mb, _, m, err := p.find(tx)
		if err == nil {
			err = agents.CheckUntainted(tx, agents.HolderOf(who))
		}
		if err != nil {
			return err
		}
		tx.After(func() { s.Hub.Changed(mb.Num) })
		return errors.Join(tx.DeleteMessage(m.Mailbox, m.Folder, m.UID), AuditDeleted(tx, who, mb, m.UID))
	})
}

// AuditDeleted writes an audit log row for messages that a request has deleted from a mailbox.
func AuditDeleted(tx *store.Tx, who core.Actor, mb *store.Mailbox, uids ...uint32) error {
	if len(uids) == 1 {
		return core.Audit(tx, who, store.AuditTarget{Type: "message", ID: core.UIDText(uids[0]), Name: mb.Email})
	}
	return core.AuditMany(tx, who, core.MailboxTarget(mb), len(uids))
}

// A MessageRef names a message by its mailbox's address, its folder and its UID.
type MessageRef struct {
	UID     string `json:"uid" log:"true"`         // The IMAP UID.
	Mailbox string `json:"mailbox" log:"true"`     // The mailbox's address.
	Folder  string `json:"folder" example:"inbox"` // A role or an IMAP name; the inbox unless given.
}

func (r MessageRef) inInbox() bool {
	return r.Folder == "" || r.Folder == roleInbox || strings.EqualFold(r.Folder, InboxName)
}

// A MessageError says why one message of a request was not changed.
type MessageError struct {
	UID     string `json:"uid" words:"ours"`                                // The IMAP UID.
	Mailbox string `json:"mailbox" words:"ours" example:"anna@example.com"` // As given in the request.
	Error   string `json:"error" words:"theirs" example:"There is no such message."`
	Code    string `json:"code" words:"ours" example:"not_found"` // A code of errors, or external_mailbox: its messages cannot be moved here.
}

// BulkDeleteMessagesIn is the body of bulk_delete_messages.
type BulkDeleteMessagesIn struct {
	Messages []MessageRef `json:"messages" required:"true" min:"1" max:"200" items:"judged"`
}

// MessagesDeleted has the number of deleted messages, and an error for each other message.
type MessagesDeleted struct {
	Deleted int            `json:"deleted"`
	Failed  int            `json:"failed"`
	Errors  []MessageError `json:"errors"`
}

// BulkDeleteMessages deletes up to 200 messages permanently. Messages of external mailboxes are
// deleted on their servers first. If a message is missing or a server does not answer, the other
// messages are still deleted.
func (s *Service) BulkDeleteMessages(ctx context.Context, who core.Actor, in BulkDeleteMessagesIn) (*MessagesDeleted, error) {
	done, failed, err := s.changeMany(ctx, who, in.Messages, bulkChange{
		audited: true,
		local: func(tx *store.Tx, _ *store.Mailbox, m *store.Message) error {
			return tx.DeleteMessage(m.Mailbox, m.Folder, m.UID)
		},
		remote: func(ctx context.Context, mb *store.Mailbox, uids []uint32) (map[uint32]*core.Error, error) {
			return s.servers.Delete(ctx, who, mb, uids)
		},
	})
	if err != nil {
		return nil, err
	}
	return &MessagesDeleted{done, len(failed), failed}, nil
}

// BulkMarkMessagesIn is the body of bulk_mark_messages.
type BulkMarkMessagesIn struct {
	Messages []MessageRef `json:"messages" required:"true" min:"1" max:"200" items:"judged"`
	MessageMarks
	Junk *bool `json:"junk" example:"true" log:"true"` // true moves the messages to Junk, false back to the inbox.
}

// MessagesMarked has the number of marked messages and an error for each other message. For
// messages that were marked as junk or not junk, it also says where they are now.
type MessagesMarked struct {
	Marked  int            `json:"marked"`
	Failed  int            `json:"failed"`
	Errors  []MessageError `json:"errors"`
	Results *[]MovedResult `json:"results,omitempty"`
}

// BulkMarkMessages marks up to 200 messages as read or unread, or as flagged or not. Messages of
// external mailboxes are marked on their servers first. If a message is missing or a server does
// not answer, the other messages are still marked. A message that already has the marks counts as
// marked.
func (s *Service) BulkMarkMessages(ctx context.Context, who core.Actor, in BulkMarkMessagesIn) (*MessagesMarked, error) {
	if in.Junk == nil {
		if err := in.check(); err != nil {
			return nil, err
		}
	}
	var results []MovedResult
	done, failed, err := s.changeMany(ctx, who, in.Messages, bulkChange{
		allowsRepeats: true, begin: func() { results = []MovedResult{} }, refusesExternal: in.Junk != nil,
		local: func(tx *store.Tx, mb *store.Mailbox, m *store.Message) error {
			if err := tx.SetFlags(m, in.apply(m.Flags), m.Keywords); err != nil || in.Junk == nil {
				return err
			}
			moved, err := s.moveTo(tx, who, mb, m, map[bool]string{true: roleJunk, false: roleInbox}[*in.Junk])
			if err == nil {
				results = append(results, moved)
			}
			return err
		},
		remote: func(ctx context.Context, mb *store.Mailbox, uids []uint32) (map[uint32]*core.Error, error) {
			_, failures, err := s.servers.Mark(ctx, mb, uids, in.flagChange())
			return failures, err
		},
	})
	if err != nil {
		return nil, err
	}
	out := &MessagesMarked{Marked: done, Failed: len(failed), Errors: failed}
	if in.Junk != nil {
		out.Results = &results
	}
	return out, nil
}

// mailboxesAtOnce is in how many external mailboxes one request changes messages at the same time.
const mailboxesAtOnce = 8

// A bulkChange is the change that a request makes to each of its messages.
type bulkChange struct {
	allowsRepeats   bool // the request may name a message more than once
	audited         bool // write one audit row for all messages that are stored here; remote writes its own, one for each mailbox
	refusesExternal bool // report an error for messages of external mailboxes, because they cannot be moved

	begin func() // called when the transaction starts, again if it is repeated; may be nil
	// local changes a message that is stored here. It returns a *core.Error if the message cannot
	// be changed; other errors stop the request.
	local func(tx *store.Tx, mb *store.Mailbox, m *store.Message) error
	// remote changes messages on the server of their mailbox. failures has an error for each
	// message that was not changed, by UID.
	remote func(ctx context.Context, mb *store.Mailbox, uids []uint32) (failures map[uint32]*core.Error, err error)
}

// changeMany changes the messages of a request: first those stored here, in one transaction, and
// then those of external mailboxes on their servers. It returns the number of changed messages and
// the errors of the others.
func (s *Service) changeMany(ctx context.Context, who core.Actor, refs []MessageRef, c bulkChange) (done int, failed []MessageError, err error) {
	if err := checkRefs(refs); err != nil {
		return 0, nil, err
	}
	var remote []*remoteGroup
	err = s.Store.Update(func(tx *store.Tx) error {
		done, failed, remote = 0, []MessageError{}, nil
		if c.begin != nil {
			c.begin()
		}
		var changed []*store.Mailbox
		for _, group := range groupRefs(refs) {
			elsewhere, err := newRemoteGroup(tx, who, group, c)
			if err != nil {
				return err
			}
			if elsewhere != nil {
				remote = append(remote, elsewhere)
				continue
			}
			mb, n, errs, err := s.changeGroup(tx, who, group, c)
			if err != nil {
				return err
			}
			done, failed = done+n, append(failed, errs...)
			if n > 0 {
				changed = append(changed, mb)
			}
		}
		switch {
		case !c.audited || done == 0:
			return nil
		case len(changed) == 1:
			return core.AuditMany(tx, who, core.MailboxTarget(changed[0]), done)
		}
		return core.AuditMany(tx, who, store.AuditTarget{}, done)
	})
	if err != nil {
		return 0, nil, err
	}
	changeRemote(ctx, remote, c)
	for _, g := range remote {
		done, failed = done+g.done, append(failed, g.failed...)
	}
	return done, failed, nil
}

func checkRefs(refs []MessageRef) error {
	e := core.Errorf("validation_error", "Each of messages needs uid and mailbox.")
	for i, r := range refs {
		if r.UID == "" {
			e = e.With(fmt.Sprintf("messages.%d.uid", i), "required", "is required")
		}
		if r.Mailbox == "" {
			e = e.With(fmt.Sprintf("messages.%d.mailbox", i), "required", "is required")
		}
	}
	if len(e.Details) > 0 {
		return e
	}
	return nil
}

// groupRefs groups the references by mailbox. The groups are in the order in which their mailboxes
// first occur in refs.
func groupRefs(refs []MessageRef) [][]MessageRef {
	var out [][]MessageRef
	at := map[string]int{}
	for _, r := range refs {
		i, ok := at[r.Mailbox]
		if !ok {
			i = len(out)
			at[r.Mailbox] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], r)
	}
	return out
}

// errorFor returns the MessageError for a message that was not changed.
func (r MessageRef) errorFor(why *core.Error) MessageError {
	return MessageError{r.UID, r.Mailbox, why.Message, why.Code}
}

// changeGroup changes messages of one mailbox that is stored here, in the caller's transaction.
func (s *Service) changeGroup(tx *store.Tx, who core.Actor, group []MessageRef, c bulkChange) (mb *store.Mailbox, done int, failed []MessageError, err error) {
	mb, err = byMailboxAddress(who, group[0].Mailbox)(tx)
	if e, ours := core.AsError(err); ours {
		for _, r := range group {
			failed = append(failed, r.errorFor(e))
		}
		return nil, 0, failed, nil
	}
	if err != nil {
		return nil, 0, nil, err
	}
	s.notifyWatchers(tx, mb.Num)
	for _, r := range group {
		_, _, m, err := messagePicker{func(*store.Tx) (*store.Mailbox, error) { return mb, nil }, r.Folder, r.UID}.find(tx)
		if err == nil {
			err = c.local(tx, mb, m)
		}
		if e, ours := core.AsError(err); ours {
			failed = append(failed, r.errorFor(e))
			continue
		}
		if err != nil {
			return nil, 0, nil, err
		}
		done++
	}
	return mb, done, failed, nil
}

// A remoteGroup has the messages of one external mailbox that a request names.
type remoteGroup struct {
	mailbox *store.Mailbox
	refs    []remoteRef    // the messages that exist in the copy of the mailbox here
	uids    []uint32       // the UIDs in refs, without duplicates
	failed  []MessageError // errors of the messages that were not changed
	done    int            // how many messages were changed
}

type remoteRef struct {
	MessageRef
	uid uint32
}

// newRemoteGroup returns a remoteGroup for messages of an external mailbox, with an error for each
// message that does not exist. For a mailbox that is not external it returns nil.
func newRemoteGroup(tx *store.Tx, who core.Actor, group []MessageRef, c bulkChange) (*remoteGroup, error) {
	mb, err := byMailboxAddress(who, group[0].Mailbox)(tx)
	if _, ours := core.AsError(err); ours || err == nil && mb.External == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	g := &remoteGroup{mailbox: mb}
	seen := map[uint32]bool{}
	for _, r := range group {
		if c.refusesExternal || !r.inInbox() {
			g.failed = append(g.failed, r.errorFor(core.Errorf("external_mailbox", "The mail of %s is hosted elsewhere: move its messages there.", mb.Email)))
			continue
		}
		n, err := strconv.ParseUint(r.UID, 10, 32)
		uid := uint32(n)
		if err == nil && (c.allowsRepeats || !seen[uid]) {
			_, err = tx.Message(mb.Num, store.InboxID, uid)
		} else {
			err = store.ErrNotFound
		}
		if errors.Is(err, store.ErrNotFound) {
			g.failed = append(g.failed, r.errorFor(core.NotFound("message")))
			continue
		}
		if err != nil {
			return nil, err
		}
		g.refs = append(g.refs, remoteRef{r, uid})
		if !seen[uid] {
			g.uids = append(g.uids, uid)
		}
		seen[uid] = true
	}
	return g, nil
}

// changeRemote changes messages of external mailboxes on their servers, in up to mailboxesAtOnce
// mailboxes at the same time.
func changeRemote(ctx context.Context, groups []*remoteGroup, c bulkChange) {
	var all errgroup.Group
	all.SetLimit(mailboxesAtOnce)
	for _, g := range groups {
		if len(g.uids) == 0 {
			continue
		}
		all.Go(func() error {
			g.change(ctx, c)
			return nil
		})
	}
	_ = all.Wait() // the errors are in the groups
}

func (g *remoteGroup) change(ctx context.Context, c bulkChange) {
	failures, err := c.remote(ctx, g.mailbox, g.uids)
	for _, r := range g.refs {
		switch {
		case err != nil:
			g.failed = append(g.failed, r.errorFor(core.Explain(err)))
		case failures[r.uid] != nil:
			g.failed = append(g.failed, r.errorFor(failures[r.uid]))
		default:
			g.done++
		}
	}
}

// findExternal finds a message in a snapshot of its own. external reports whether the message is on
// an external server and must be changed there first.
func (s *Service) findExternal(p messagePicker) (mb *store.Mailbox, f *Folder, m *store.Message, external bool, err error) {
	err = s.Store.View(func(tx *store.Tx) (err error) {
		mb, f, m, err = p.find(tx)
		return err
	})
	return mb, f, m, err == nil && mb.External != nil && m.Folder == store.InboxID, err
}
