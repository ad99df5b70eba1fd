package feedback

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/store"
)

const (
	noticesAtOnce = 25   // in one transaction
	noticeSearch  = 2000 // rows that are looked through for a message of which a relay tells no id
	noticeRace    = 2 * time.Minute
)

// newReaders prepares for the notices of the relays that are configured for them.
func (s *Service) newReaders() {
	for _, r := range s.outbound.Relays() {
		reader, err := s.newReader(r)
		if err != nil {
			s.Log.Error("a relay's notices are not taken", "relay", r.Name, "error", err)
			continue
		}
		if reader != nil {
			s.readers.Store(r.Name, reader)
		}
	}
}

// newReader makes the reader of a relay's notices; nil if it has no secret to know them by.
func (s *Service) newReader(r *outbound.Relay) (feedback.Reader, error) {
	switch {
	case r.Kind == "ses" && r.TopicARN != "":
		return feedback.NewSES(r.TopicARN, r.SNSURL, s.snsTransport(r), s.Now)
	case r.WebhookSecret == "":
		return nil, nil
	case r.Kind == "mailgun":
		return feedback.NewMailgun(r.WebhookSecret, s.Now), nil
	case r.Kind == "sendgrid":
		return feedback.NewSendGrid(r.WebhookSecret)
	case r.Kind == "postmark":
		return feedback.NewPostmark(r.WebhookSecret), nil
	}
	return nil, nil
}

// snsTransport asks SNS for certificates, which is seldom. Its address follows from the topic's
// name; one that the operator gave instead may be private.
func (s *Service) snsTransport(r *outbound.Relay) http.RoundTripper {
	guard := s.Guard
	if r.SNSURL != "" || r.SESURL != "" {
		guard = &netguard.Guard{AllowPrivate: true}
	}
	t := guard.Transport(s.Resolver, s.Config.RootCAs)
	t.DisableKeepAlives = true
	return t
}

// TakeNotices takes what a relay tells of mail that went through it. Errors are 404 for a relay
// that there is not, or that is not configured for notices, 403 for what does not prove to come
// from it, 400 for what cannot be read, 502 if its proof could not be had, and 503 for what is to
// be sent again later.
func (s *Service) TakeNotices(ctx context.Context, kind, name string, r feedback.Request) error {
	var from *outbound.Relay
	for _, one := range s.outbound.Relays() {
		if one.Name == name && one.Kind == kind {
			from = one
			break
		}
	}
	if from == nil {
		return core.NotFound("relay")
	}
	known, _ := s.readers.Load(name)
	reader, _ := known.(feedback.Reader)
	if reader == nil && from.KeyID == "" {
		return core.NotFound("relay")
	}
	if reader == nil {
		return core.Errorf("not_configured", "The topic of this relay's notices is not made yet. Send the notice again later.")
	}
	list, err := reader.Read(ctx, r)
	switch {
	case errors.Is(err, feedback.ErrForged):
		return core.Errorf("forbidden", "The notice was refused: it is not authenticated as coming from the relay.").Because(err)
	case errors.Is(err, feedback.ErrMalformed):
		return core.Errorf("validation_error", "The notice cannot be read.").Because(err)
	case err != nil:
		return core.Errorf("upstream_error", "The notice could not be verified now. Send it again later.").Because(err)
	}
	early := false
	for chunk := range slices.Chunk(list, noticesAtOnce) {
		rows, err := s.rowsOfNotices(from, chunk)
		if err != nil {
			return err
		}
		err = s.Store.Update(func(tx *store.Tx) error {
			for i, n := range chunk {
				wait, err := s.applyNotice(tx, rows[i], n)
				if err != nil {
					return err
				}
				early = early || wait
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if early {
		return core.Errorf("not_ready", "The message is still being sent to the relay. Send the notice again later.")
	}
	return nil
}

// rowsOfNotices finds the rows that notices are about, "" for none. All accounts may have to be
// looked through, so that it is done in a snapshot and holds nobody up. They are listed once.
func (s *Service) rowsOfNotices(from *outbound.Relay, list []feedback.Notice) (ids []string, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		everyone := sync.OnceValue(func() (out []string) {
			for a := range store.Accounts.All(tx) {
				out = append(out, a.ID)
			}
			return out
		})
		for _, n := range list {
			row, err := s.rowOfNotice(tx, from, n, everyone)
			if err != nil {
				return err
			}
			id := ""
			if row != nil {
				id = row.ID
			}
			ids = append(ids, id)
		}
		return nil
	})
	return ids, err
}

// applyNotice does what follows from a notice. It reports whether that is still to come, since the
// relay's own answer to the message is not noted yet. A notice about a message that is not ours is
// passed over: relays may have other senders.
func (s *Service) applyNotice(tx *store.Tx, rowID string, n feedback.Notice) (early bool, err error) {
	row, err := store.Outgoings.Get(tx, rowID)
	if core.IsGone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if row.Waits() {
		return tx.Now().Sub(row.UpdatedAt) < noticeRace, nil
	}
	if n.Kind == feedback.Complained {
		return false, s.outbound.RecordComplaint(tx, row, outbound.Complaint{Kind: n.FeedbackType, Agent: n.UserAgent, Arrived: n.ArrivedAt})
	}
	return false, s.outbound.RecordBounce(tx, row, failureOfNotice(n))
}

func failureOfNotice(n feedback.Notice) outbound.Failure {
	status := n.Status
	if status == "" {
		status = msg.StatusIn(n.Diagnostic)
	}
	return outbound.Failure{
		Kind: n.Type, Subtype: n.Subtype, Status: status, Diagnostic: n.Diagnostic, Host: n.RemoteMTA,
		Address: n.Suppress || n.Type == feedback.Hard && addressFault(status), Reported: true,
	}
}

// rowOfNotice finds the row that a notice is about: by the tag that we sent with it, by the id that
// the relay gave it, by our own Message-ID, and where a relay tells none of these the newest to
// that recipient. nil: none, or not which one.
func (s *Service) rowOfNotice(tx *store.Tx, from *outbound.Relay, n feedback.Notice, everyone func() []string) (*store.Outgoing, error) {
	recipient, err := msg.NormalizeEmail(n.Recipient)
	if err != nil {
		return nil, nil
	}
	fits := func(row *store.Outgoing) bool {
		return row.Recipient == recipient && (row.Provider == from.Name || row.Provider == "" && row.Transport == core.ViaRelay && row.Waits())
	}
	if id := s.readTag(n.Tag); id != "" {
		row, err := store.Outgoings.Get(tx, id)
		if err == nil && fits(row) {
			return row, nil
		}
		if err != nil && !core.IsGone(err) {
			return nil, err
		}
	}
	var found []*store.Outgoing
	for _, account := range s.accountsOfNotice(tx, n, everyone) {
		if row := findNoticed(tx, account, from, n, fits); row != nil {
			found = append(found, row)
		}
	}
	if len(found) != 1 { // a Message-ID that two accounts have used says nothing
		return nil, nil
	}
	return found[0], nil
}

// accountsOfNotice are those whose message it may be about: the sender's, or all of them where a
// relay does not tell who that is, or somebody else's message was forwarded. Where there is no more
// than a sender to go by, who is nobody here, all accounts would be looked through for each notice
// about mail of the relay's other users.
func (s *Service) accountsOfNotice(tx *store.Tx, n feedback.Notice, everyone func() []string) []string {
	if d, err := store.DomainByName.Get(tx, strings.ToLower(core.DomainOfAddress(n.Sender))); err == nil {
		return []string{d.AccountID}
	}
	if n.MessageID == "" && n.ProviderID == "" {
		return nil
	}
	return everyone()
}

// findNoticed looks for the message in one account.
func findNoticed(tx *store.Tx, account string, from *outbound.Relay, n feedback.Notice, fits func(*store.Outgoing) bool) *store.Outgoing {
	if n.ProviderID != "" && from.Kind == "ses" {
		provided := "<" + n.ProviderID + "@" + outbound.SESHost(from.Relay) + ">"
		for _, m := range store.MappingsByProvided.Asc(tx, account+provided+"\x00", "") {
			for _, row := range store.OutgoingsByMessageID.Asc(tx, account+m.Original+"\x00", "") {
				if row.ProviderMessageID == provided && fits(row) {
					return row
				}
			}
		}
	}
	if n.MessageID != "" {
		for _, row := range store.OutgoingsByMessageID.Desc(tx, account+n.MessageID+"\x00", "") {
			if fits(row) && (row.ProviderMessageID == "" || n.ProviderID == "") {
				return row
			}
		}
		return nil
	}
	if n.ProviderID != "" || n.Sender == "" {
		return nil
	}
	seen := 0
	for _, row := range store.OutgoingsByAccount.Desc(tx, account, "") {
		if seen++; seen > noticeSearch {
			break
		}
		if fits(row) && sameAddress(n.Sender, row.Sender) && (n.Subject == "" || n.Subject == cmp.Or(strings.Join(strings.Fields(row.Subject), " "), n.Subject)) {
			return row
		}
	}
	return nil
}

// readTag gives the id of the row that a tag is of; "" for one that we did not make.
func (s *Service) readTag(tag string) string {
	id, _, _ := strings.Cut(tag, "-")
	if !store.IsID("msg", "msg_"+id) || !s.recipients.IsRowLocal(recipients.TagAddress+"-"+tag, recipients.TagAddress, id, "") {
		return ""
	}
	return "msg_" + id
}
