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

	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/recordid"
)

const (
	noticesAtOnce     = 25              // notices in one transaction
	maxNoticeSearch   = 2000            // newest rows that are searched for a message, if the relay's notice has no ID
	noticeRetryWindow = 2 * time.Minute // for so long after a change of the row, a notice about it may be early and must be sent again
)

// newReaders makes the readers of notices, for relays that are configured for them.
func (s *Service) newReaders() {
	for _, r := range s.outbound.Relays() {
		reader, err := s.newReader(r)
		if err != nil {
			s.Log.Error("a relay's notices are not accepted", "relay", r.Name, "error", err)
			continue
		}
		if reader != nil {
			s.readers.Store(r.Name, reader)
		}
	}
}

// newReader returns the reader of a relay's notices; nil if the relay has no secret to authenticate
// them.
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

// snsTransport returns the transport for requests to SNS, which are rare. The address of SNS
// follows from the topic's name. If the settings file has another address, it may be a
// private one.
func (s *Service) snsTransport(r *outbound.Relay) http.RoundTripper {
	guard := s.Guard
	if r.SNSURL != "" || r.SESURL != "" {
		guard = s.OperatorGuard(r.Guarded)
	}
	t := guard.Transport(s.Resolver, s.Config.RootCAs)
	t.DisableKeepAlives = true
	return t
}

// TakeNotices accepts a relay's notices about mail that was sent through it. Errors are 404 for a
// relay that does not exist or is not configured for notices, 403 for a notice that is not
// authenticated, 400 for one that cannot be parsed, 502 if it could not be verified now, and 503 if
// it must be sent again later.
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

// rowsOfNotices returns the IDs of the rows that notices are about, "" for none. It runs in a view,
// since it may search all accounts, and lists the accounts at most once.
func (s *Service) rowsOfNotices(from *outbound.Relay, list []feedback.Notice) (ids []string, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		allAccounts := sync.OnceValue(func() (out []string) {
			for a := range store.Accounts.All(tx) {
				out = append(out, a.ID)
			}
			return out
		})
		for _, n := range list {
			row, err := s.rowOfNotice(tx, from, n, allAccounts)
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

// applyNotice records what a notice reports. If the relay's own answer to the message is not
// recorded yet, it returns early, and the notice must be sent again. It ignores notices about
// messages that are not ours, because a relay may have other senders.
func (s *Service) applyNotice(tx *store.Tx, rowID string, n feedback.Notice) (early bool, err error) {
	row, err := store.Outgoings.Get(tx, rowID)
	if core.IsGone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if row.Waits() {
		return tx.Now().Sub(row.UpdatedAt) < noticeRetryWindow, nil
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
		Address: n.Suppress || n.Type == feedback.Hard && isAddressFault(status), Reported: true,
	}
}

// rowOfNotice finds the row that a notice is about: by our tag, by the relay's ID, by our
// Message-ID, or, if the notice has none of these, the newest row of that sender and recipient. It
// returns nil if there is no row or more than one.
func (s *Service) rowOfNotice(tx *store.Tx, from *outbound.Relay, n feedback.Notice, allAccounts func() []string) (*store.Outgoing, error) {
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
	for _, account := range s.accountsOfNotice(tx, n, allAccounts) {
		if row := findRowOfNotice(tx, account, from, n, fits); row != nil {
			found = append(found, row)
		}
	}
	if len(found) != 1 { // a Message-ID that two accounts have used is ambiguous
		return nil, nil
	}
	return found[0], nil
}

// accountsOfNotice returns the accounts whose message a notice may be about: that of the sender. If
// the sender is unknown here and the notice has an ID, it returns all accounts, since a forward
// keeps its sender. If the notice has no ID, it returns none, so that notices about other users of
// the relay do not search all accounts.
func (s *Service) accountsOfNotice(tx *store.Tx, n feedback.Notice, allAccounts func() []string) []string {
	if d, err := store.DomainByName.Get(tx, strings.ToLower(core.DomainOfAddress(n.Sender))); err == nil {
		return []string{d.AccountID}
	}
	if n.MessageID == "" && n.ProviderID == "" {
		return nil
	}
	return allAccounts()
}

// findRowOfNotice finds the message of a notice in one account.
func findRowOfNotice(tx *store.Tx, account string, from *outbound.Relay, n feedback.Notice, fits func(*store.Outgoing) bool) *store.Outgoing {
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
		if seen++; seen > maxNoticeSearch {
			break
		}
		if fits(row) && sameAddress(n.Sender, row.Sender) && (n.Subject == "" || n.Subject == cmp.Or(strings.Join(strings.Fields(row.Subject), " "), n.Subject)) {
			return row
		}
	}
	return nil
}

// readTag returns the ID of the row that a tag belongs to; "" for a tag that we did not make.
func (s *Service) readTag(tag string) string {
	id, _, _ := strings.Cut(tag, "-")
	if !recordid.Is("msg", "msg_"+id) || !s.recipients.IsRowLocal(recipients.RelayTag+"-"+tag, recipients.RelayTag, id, "") {
		return ""
	}
	return "msg_" + id
}
