package inbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// MessageMarks are what messages are marked: nil leaves a mark as it is.
type MessageMarks struct {
	IsRead    *bool `json:"is_read" alias:"read"`
	IsFlagged *bool `json:"is_flagged"`
}

func (m MessageMarks) check() error {
	if m.IsRead == nil && m.IsFlagged == nil {
		return core.Errorf("nothing_to_update", "Give is_read or is_flagged, true or false.")
	}
	return nil
}

// apply gives the flags that a message has then.
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

// remote is the same for a server elsewhere.
func (m MessageMarks) remote() pull.FlagChange {
	return pull.FlagChange{Seen: m.IsRead, Flagged: m.IsFlagged}
}

// summary says what was done.
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

// MarkMessageIn is mark_message.
type MarkMessageIn struct {
	MessageIn
	MessageMarks
}

// MarkInboxMessageIn is mark_inbox_message.
type MarkInboxMessageIn struct {
	InboxMessageIn
	MessageMarks
}

// MessageMarked says how a message is marked now. MessageID is the UID.
type MessageMarked struct {
	Message   string `json:"message" words:"ours"`
	MessageID string `json:"message_id" words:"ours"`
	UID       string `json:"uid" words:"ours"`
	Mailbox   string `json:"mailbox" words:"ours"`
	IsRead    bool   `json:"is_read"`
	IsFlagged bool   `json:"is_flagged"`
}

// MarkMessage marks a message of a mailbox read or unread, flagged or not, one of an external
// mailbox on its server first.
func (s *Service) MarkMessage(ctx context.Context, who core.Actor, in MarkMessageIn) (*MessageMarked, error) {
	return s.mark(ctx, byUserID(who, in.UserID), in.MessageID, in.MessageMarks)
}

// MarkInboxMessage is MarkMessage by the mailbox's address.
func (s *Service) MarkInboxMessage(ctx context.Context, who core.Actor, in MarkInboxMessageIn) (*MessageMarked, error) {
	return s.mark(ctx, byMailbox(who, in.Mailbox), in.MessageID, in.MessageMarks)
}

func (s *Service) mark(ctx context.Context, pick boxPicker, uid string, marks MessageMarks) (*MessageMarked, error) {
	if err := marks.check(); err != nil {
		return nil, err
	}
	mb, m, external, err := s.findExternal(pick, uid)
	if err != nil {
		return nil, err
	}
	if external {
		m.Flags, err = s.markRemoteOne(ctx, mb, m.UID, marks)
	} else {
		m, err = s.markHere(pick, uid, marks)
	}
	if err != nil {
		return nil, err
	}
	return &MessageMarked{
		Message: marks.summary(), UID: core.UIDText(m.UID), MessageID: core.UIDText(m.UID), Mailbox: mb.Email,
		IsRead: m.Flags&FlagSeen != 0, IsFlagged: m.Flags&FlagFlagged != 0,
	}, nil
}

func (s *Service) markHere(pick boxPicker, uid string, marks MessageMarks) (m *store.Message, err error) {
	err = s.Store.Update(func(tx *store.Tx) error {
		var mb *store.Mailbox
		if mb, m, err = findMessage(tx, pick, uid); err != nil {
			return err
		}
		if flags := marks.apply(m.Flags); flags != m.Flags {
			s.changed(tx, mb.Num)
			return tx.SetFlags(m, flags, m.Keywords)
		}
		return nil
	})
	return m, err
}

// MessageDeleted says that a message is gone. MessageID is the UID.
type MessageDeleted struct {
	Message   string `json:"message" words:"ours"`
	MessageID string `json:"message_id" words:"ours"`
	UID       string `json:"uid" words:"ours"`
	Mailbox   string `json:"mailbox" words:"ours"`
}

// DeleteMessage deletes a message of a mailbox for good, one of an external mailbox on its server
// first.
func (s *Service) DeleteMessage(ctx context.Context, who core.Actor, in MessageIn) (*MessageDeleted, error) {
	return s.deleteMessage(ctx, byUserID(who, in.UserID), in.MessageID)
}

// DeleteInboxMessage is DeleteMessage by the mailbox's address.
func (s *Service) DeleteInboxMessage(ctx context.Context, who core.Actor, in InboxMessageIn) (*MessageDeleted, error) {
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
	return &MessageDeleted{Message: "The message is deleted.", UID: core.UIDText(m.UID), MessageID: core.UIDText(m.UID), Mailbox: mb.Email}, nil
}

func (s *Service) deleteHere(pick boxPicker, uid string) error {
	return s.Store.Update(func(tx *store.Tx) error {
		mb, m, err := findMessage(tx, pick, uid)
		if err != nil {
			return err
		}
		tx.After(func() { s.Hub.Changed(mb.Num) })
		return tx.DeleteMessage(m.Mailbox, m.Folder, m.UID)
	})
}

// InboxRefreshed says that the mail of a mailbox is as new as it can be, or is being fetched.
type InboxRefreshed struct {
	Message string `json:"message" words:"ours"`
	Email   string `json:"email" words:"ours"`
}

// RefreshEmailUserInbox brings a mailbox up to date. Mail of a hosted one is there the moment it
// arrives; that of an external one is fetched by a job of type inbox_sync, whether or not the
// universal inbox is on.
func (s *Service) RefreshEmailUserInbox(_ context.Context, who core.Actor, in core.EmailUserIn) (*InboxRefreshed, error) {
	out := &InboxRefreshed{}
	err := s.Store.Update(func(tx *store.Tx) error {
		mb, err := core.MailboxOf(tx, who, in.UserID)
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
	Message string `json:"message" words:"ours"`
}

// RefreshInbox brings every mailbox of the account up to date, while its universal inbox is on.
func (s *Service) RefreshInbox(_ context.Context, who core.Actor) (*Told, error) {
	out := &Told{"The inbox is up to date: mail of hosted mailboxes is here the moment it arrives."}
	count := 0
	err := s.Store.View(func(tx *store.Tx) (err error) {
		count, err = countExternals(tx, who.AccountID)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		a, err := store.Accounts.Get(tx, who.AccountID)
		if err != nil {
			return err
		}
		if !a.UniversalInbox {
			return core.Errorf("universal_inbox_disabled", "The universal inbox is off. Switch it on with POST /v1/account/universal-inbox, or refresh one mailbox.")
		}
		if count > 0 {
			return s.BeginExternals(tx, who.AccountID, who.UserID)
		}
		a.SyncedAt = tx.Now()
		return store.Accounts.Put(tx, a)
	})
	if err != nil {
		return nil, err
	}
	if count > 0 {
		out.Message = fmt.Sprintf("New mail of %d external mailboxes is being fetched; mail of hosted ones is here the moment it arrives.", count)
	}
	return out, nil
}
