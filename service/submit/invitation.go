package submit

import (
	"context"
	"errors"
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/mail/ical"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// AnswerInvitationIn is the request of answer_invitation.
type AnswerInvitationIn struct {
	UserID    string `path:"user_id"`
	MessageID string `path:"message_id" example:"17"`           // The IMAP UID of the message.
	Folder    string `query:"folder" max:"255" example:"inbox"` // A role (`inbox sent drafts junk trash archive`) or an IMAP name; the inbox unless given.
	Answer    string `json:"answer" required:"true" enum:"accepted|tentative|declined" log:"true"`
}

// AnswerInvitation sends a reply to an invitation to its organizer (RFC 5546 section 3.2.3), from
// the invited address of the mailbox. The error is no_invitation if there is nothing to answer.
func (s *Service) AnswerInvitation(ctx context.Context, who core.Actor, in AnswerInvitationIn) (*EmailQueued, error) {
	message := inbox.MessageIn{UserID: in.UserID, MessageID: in.MessageID, Folder: in.Folder}
	i, id, err := s.rooms.Inbox.ReadInvitation(who, message)
	if err != nil {
		return nil, err
	}
	by := ical.Person{}
	err = s.Store.View(func(tx *store.Tx) error {
		mb, err := core.ReadMailbox(tx, who, in.UserID)
		if err != nil {
			return err
		}
		as, err := core.SendersOf(tx, mb)
		by = ical.Person{Name: mb.Name, Email: mb.Email}
		for _, a := range i.Attendees {
			if as.Allows(a.Email) {
				by.Email = a.Email
				break
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	said := map[string]string{"accepted": "Accepted", "tentative": "Tentative", "declined": "Declined"}[in.Answer]
	out := SendEmailIn{
		UserID: in.UserID, From: by.Email, To: Texts{i.Organizer.Email}, Subject: strings.Join(strings.FieldsFunc(said+": "+i.Summary, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " "),
		Text: said + ": " + i.Summary + "\n", calendar: i.Reply(by, inbox.AnswerStatus(in.Answer), s.Now()),
	}
	if core.IsValidMessageID(id) {
		out.InReplyTo = id
	}
	return s.sendEmail(ctx, who, out, func(tx *store.Tx, sent *EmailQueued) error {
		return errors.Join(s.rooms.Inbox.MarkInvitation(tx, who, message, in.Answer), once.KeepAnswer(ctx, s.Core, tx, sent))
	})
}
