package service

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/mailstead/mailstead/store"
)

// MarkMessageIn is mark_message: whether the message has been read.
type MarkMessageIn struct {
	MessageIn
	IsRead *bool `json:"is_read" alias:"read"`
}

// MarkInboxMessageIn is mark_inbox_message.
type MarkInboxMessageIn struct {
	InboxMessageIn
	IsRead *bool `json:"is_read" alias:"read"`
}

// MessageMarked says how a message is marked now. MessageID is the UID.
type MessageMarked struct {
	Message   string `json:"message"`
	MessageID string `json:"message_id"`
	UID       string `json:"uid"`
	Mailbox   string `json:"mailbox"`
	IsRead    bool   `json:"is_read"`
}

// MarkMessage marks a message of a mailbox read or unread, one of an external mailbox on its server first.
func (s *Service) MarkMessage(ctx context.Context, who Actor, in MarkMessageIn) (*MessageMarked, error) {
	return s.mark(ctx, byUserID(who, in.UserID), in.MessageID, in.IsRead)
}

// MarkInboxMessage is MarkMessage by the mailbox's address.
func (s *Service) MarkInboxMessage(ctx context.Context, who Actor, in MarkInboxMessageIn) (*MessageMarked, error) {
	return s.mark(ctx, byMailbox(who, in.Mailbox), in.MessageID, in.IsRead)
}

func (s *Service) mark(ctx context.Context, pick boxPicker, uid string, read *bool) (*MessageMarked, error) {
	if read == nil {
		return nil, Errorf(400, "nothing_to_update", "Give is_read, true or false.")
	}
	out := &MessageMarked{Message: "The message is marked unread.", IsRead: *read}
	if *read {
		out.Message = "The message is marked read."
	}
	mb, m, external, err := s.findExternal(pick, uid)
	if err != nil {
		return nil, err
	}
	out.UID, out.MessageID, out.Mailbox = uidText(m.UID), uidText(m.UID), mb.Email
	if external {
		err = s.markRemote(ctx, mb, m.UID, *read)
	} else {
		err = s.markHere(pick, uid, *read)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Service) markHere(pick boxPicker, uid string, read bool) error {
	return s.Store.Update(func(tx *store.Tx) error {
		mb, m, err := findMessage(tx, pick, uid)
		if err != nil {
			return err
		}
		flags := m.Flags &^ store.FlagSeen
		if read {
			flags |= store.FlagSeen
		}
		if flags == m.Flags {
			return nil
		}
		tx.After(func() { s.hub.changed(mb.Num) })
		return tx.SetFlags(m, flags, m.Keywords)
	})
}

// MessageDeleted says that a message is gone. MessageID is the UID.
type MessageDeleted struct {
	Message   string `json:"message"`
	MessageID string `json:"message_id"`
	UID       string `json:"uid"`
	Mailbox   string `json:"mailbox"`
}

// DeleteMessage deletes a message of a mailbox for good, one of an external mailbox on its server first.
func (s *Service) DeleteMessage(ctx context.Context, who Actor, in MessageIn) (*MessageDeleted, error) {
	return s.deleteMessage(ctx, byUserID(who, in.UserID), in.MessageID)
}

// DeleteInboxMessage is DeleteMessage by the mailbox's address.
func (s *Service) DeleteInboxMessage(ctx context.Context, who Actor, in InboxMessageIn) (*MessageDeleted, error) {
	return s.deleteMessage(ctx, byMailbox(who, in.Mailbox), in.MessageID)
}

func (s *Service) deleteMessage(ctx context.Context, pick boxPicker, uid string) (*MessageDeleted, error) {
	mb, m, external, err := s.findExternal(pick, uid)
	switch {
	case err != nil:
	case external:
		var left []uint32
		if left, err = s.deleteRemote(ctx, mb, []uint32{m.UID}); err == nil && len(left) > 0 {
			err = notDeleted(mb)
		}
	default:
		err = s.deleteHere(pick, uid)
	}
	if err != nil {
		return nil, err
	}
	return &MessageDeleted{Message: "The message is deleted.", UID: uidText(m.UID), MessageID: uidText(m.UID), Mailbox: mb.Email}, nil
}

func (s *Service) deleteHere(pick boxPicker, uid string) error {
	return s.Store.Update(func(tx *store.Tx) error {
		mb, m, err := findMessage(tx, pick, uid)
		if err != nil {
			return err
		}
		tx.After(func() { s.hub.changed(mb.Num) })
		return tx.DeleteMessage(m.Mailbox, m.Folder, m.UID)
	})
}

// BulkDeleteMessagesIn is the body of bulk_delete_messages.
type BulkDeleteMessagesIn struct {
	Messages []MessageRef `json:"messages" required:"true" min:"1" max:"200"`
}

// A MessageRef names a message by its UID and the mailbox's address.
type MessageRef struct {
	UID     string `json:"uid"`
	Mailbox string `json:"mailbox"`
}

// MessagesDeleted counts what is gone, and says why the rest is not.
type MessagesDeleted struct {
	Deleted int                  `json:"deleted"`
	Failed  int                  `json:"failed"`
	Errors  []MessageDeleteError `json:"errors"`
}

// A MessageDeleteError says why a message was not deleted.
type MessageDeleteError struct {
	UID     string `json:"uid"`
	Mailbox string `json:"mailbox"`
	Error   string `json:"error"`
}

// BulkDeleteMessages deletes up to 200 messages for good, those of external mailboxes on their servers first; what is not
// there, or on a server that does not answer, does not hold up the others.
func (s *Service) BulkDeleteMessages(ctx context.Context, who Actor, in BulkDeleteMessagesIn) (*MessagesDeleted, error) {
	if err := checkRefs(in.Messages); err != nil {
		return nil, err
	}
	var out *MessagesDeleted
	var remote []*remoteGroup
	err := s.Store.Update(func(tx *store.Tx) error {
		out, remote = &MessagesDeleted{Errors: []MessageDeleteError{}}, nil
		for _, group := range groupRefs(in.Messages) {
			elsewhere, err := remotePart(tx, who, group)
			if err != nil {
				return err
			}
			if elsewhere != nil {
				remote = append(remote, elsewhere)
				continue
			}
			if err := s.deleteGroup(tx, who, group, out); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.deleteRemoteGroups(ctx, remote)
	for _, g := range remote {
		out.Deleted += g.deleted
		out.Errors = append(out.Errors, g.failed...)
	}
	out.Failed = len(out.Errors)
	return out, nil
}

// remotePart is a group of messages of an external mailbox, with those that are not there set aside; nil for others.
func remotePart(tx *store.Tx, who Actor, group []MessageRef) (*remoteGroup, error) {
	mb, err := byMailbox(who, group[0].Mailbox)(tx)
	if _, ours := AsError(err); ours || err == nil && mb.External == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	g := &remoteGroup{mailbox: mb}
	seen := map[uint32]bool{}
	for _, r := range group {
		uid, err := strconv.ParseUint(r.UID, 10, 32)
		if err == nil && !seen[uint32(uid)] {
			_, err = tx.Message(mb.Num, store.InboxID, uint32(uid))
		} else {
			err = store.ErrNotFound
		}
		if errors.Is(err, store.ErrNotFound) {
			g.failed = append(g.failed, MessageDeleteError{r.UID, r.Mailbox, NotFound("message").Message})
			continue
		}
		if err != nil {
			return nil, err
		}
		seen[uint32(uid)] = true
		g.refs, g.uids = append(g.refs, r), append(g.uids, uint32(uid))
	}
	return g, nil
}

func checkRefs(refs []MessageRef) error {
	e := Errorf(400, "validation_error", "Each of messages needs uid and mailbox.")
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

// groupRefs puts what is in one mailbox side by side, in the order in which the mailboxes come first.
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

// deleteGroup deletes messages of one mailbox.
func (s *Service) deleteGroup(tx *store.Tx, who Actor, group []MessageRef, out *MessagesDeleted) error {
	mb, err := byMailbox(who, group[0].Mailbox)(tx)
	if e, ours := AsError(err); ours {
		for _, r := range group {
			out.Errors = append(out.Errors, MessageDeleteError{r.UID, r.Mailbox, e.Message})
		}
		return nil
	}
	if err != nil {
		return err
	}
	tx.After(func() { s.hub.changed(mb.Num) })
	for _, r := range group {
		uid, err := strconv.ParseUint(r.UID, 10, 32)
		if err != nil {
			uid = 0 // which is no message's
		}
		err = tx.DeleteMessage(mb.Num, store.InboxID, uint32(uid))
		switch {
		case errors.Is(err, store.ErrNotFound):
			out.Errors = append(out.Errors, MessageDeleteError{r.UID, r.Mailbox, NotFound("message").Message})
		case err != nil:
			return err
		default:
			out.Deleted++
		}
	}
	return nil
}

// InboxRefreshed says that the mail of a mailbox is as new as it can be, or is being fetched.
type InboxRefreshed struct {
	Message string `json:"message"`
	Email   string `json:"email"`
}

// RefreshEmailUserInbox brings a mailbox up to date. Mail of a hosted one is there the moment it arrives; that of an
// external one is fetched by a job of type inbox_sync, whether or not the universal inbox is on.
func (s *Service) RefreshEmailUserInbox(_ context.Context, who Actor, in EmailUserIn) (*InboxRefreshed, error) {
	out := &InboxRefreshed{}
	err := s.Store.Update(func(tx *store.Tx) error {
		mb, err := mailboxOf(tx, who, in.UserID)
		if err != nil {
			return err
		}
		out.Email = mb.Email
		if mb.External != nil {
			out.Message = "New mail is being fetched; a job of type inbox_sync tells how far it is."
			return s.refreshExternal(tx, who, mb)
		}
		out.Message = "The inbox is up to date: mail of this mailbox is here the moment it arrives."
		mb.LastSyncAt = tx.Now()
		return store.Mailboxes.Put(tx, mb)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Told is an answer that only says something.
type Told struct {
	Message string `json:"message"`
}

// RefreshInbox brings every mailbox of the account up to date, while its universal inbox is on.
func (s *Service) RefreshInbox(_ context.Context, who Actor) (*Told, error) {
	out := &Told{"The inbox is up to date: mail of hosted mailboxes is here the moment it arrives."}
	err := s.Store.Update(func(tx *store.Tx) error {
		a, err := store.Accounts.Get(tx, who.AccountID)
		if err != nil {
			return err
		}
		if !a.UniversalInbox {
			return Errorf(400, "universal_inbox_disabled", "The universal inbox is off. Switch it on with POST /v1/account/universal-inbox, or refresh one mailbox.")
		}
		count, err := s.beginExternals(tx, who.AccountID, who.UserID)
		if err != nil || count > 0 {
			out.Message = fmt.Sprintf("New mail of %d external mailboxes is being fetched; mail of hosted ones is here the moment it arrives.", count)
			return err
		}
		a.SyncedAt = tx.Now()
		return store.Accounts.Put(tx, a)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
