package outbound

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/lazyregexp"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/recordid"
)

// A SentMessage is one row of the sending log: one message for one recipient.
type SentMessage struct {
	ID                string    `json:"id" words:"ours" example:"msg_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	MessageID         string    `json:"message_id" words:"theirs"` // The Message-ID header, with brackets.
	UserID            *string   `json:"user_id" words:"ours"`
	Sender            string    `json:"sender" words:"theirs"`
	Recipient         string    `json:"recipient" words:"theirs"`
	Subject           string    `json:"subject" words:"theirs"`
	Status            string    `json:"status" enum:"queued|scheduled|held|sent|delivered|relayed|captured|deferred|bounced|complained|suppressed|cancelled|rejected"`
	Transport         string    `json:"transport" words:"ours"`             // How it goes to the recipient: direct, relay, local, capture or simulator.
	Provider          *string   `json:"provider" words:"ours"`              // The relay.
	ProviderMessageID *string   `json:"provider_message_id" words:"theirs"` // The Message-ID that the relay gave.
	Attempts          int       `json:"attempts"`
	LastResponse      *string   `json:"last_response" words:"theirs"`
	NextAttemptAt     core.Time `json:"next_attempt_at"`
	SendAt            core.Time `json:"send_at" rare:"true"` // When it is to be sent; null for at once.
	Tags              TagMap    `json:"tags" words:"theirs"`
	// It may go only to hosts that authenticate over TLS and promise to require TLS for the next
	// hop (RFC 8689).
	RequireTLS bool      `json:"require_tls"`
	ApprovalID *string   `json:"approval_id" words:"ours" rare:"true"`                             // The approval that it waits for, or waited for.
	RequestID  *string   `json:"request_id" words:"ours" example:"req_01k9a2b3c4d5e6f7g8h9j0k1m2"` // The request that sent it, see get_request; null if it did not come by the API.
	QueuedAt   core.Time `json:"queued_at"`
	UpdatedAt  core.Time `json:"updated_at"`
}

func sentMessageOut(who core.Actor, o *store.Outgoing, now time.Time) SentMessage {
	out := SentMessage{
		ID: o.ID, MessageID: o.MessageID, UserID: core.OrNull(o.MailboxID), Sender: o.Sender, Recipient: o.Recipient, Subject: o.Subject,
		Status: o.Status, Transport: o.Transport, Provider: core.OrNull(o.Provider), ProviderMessageID: core.OrNull(o.ProviderMessageID),
		Attempts: o.Attempts, LastResponse: core.OrNull(waitReason(o, now)), NextAttemptAt: core.Time{Time: o.NextAt},
		SendAt: core.Time{Time: o.SendAt}, Tags: tagsOut(o.Tags), RequireTLS: o.RequireTLS, ApprovalID: core.OrNull(o.ApprovalID), RequestID: core.OrNull(o.RequestID), QueuedAt: core.Time{Time: o.QueuedAt}, UpdatedAt: core.Time{Time: o.UpdatedAt},
	}
	if !who.Policy.Taint {
		return out
	}

	// Hide texts of outsiders from a reader whom they would taint: replies of other servers, and
	// subject and tags of messages that the account did not write itself. Of forwards, automatic
	// replies and messages from tainted senders, hide the Message-ID too.
	if o.LastResponse != "" {
		out.LastResponse = core.OrNull(codesOf(o.LastResponse))
	}
	passedOn := !o.Checked || o.Tainted
	if passedOn || !o.OwnWords {
		out.Subject, out.Tags = "", TagMap{}
	}
	if passedOn {
		out.MessageID = ""
	}
	return out
}

// recordSubjectsShown records that the reader was shown the subjects of these rows, if reading
// taints it.
func (s *Service) recordSubjectsShown(who core.Actor, rows ...SentMessage) error {
	if !who.Policy.Taint {
		return nil
	}
	var words []agents.Source
	err := s.Store.View(func(tx *store.Tx) error {
		words = nil
		for i := range rows {
			r := &rows[i]
			if r.Subject == "" {
				continue
			}
			thread, err := s.inbox.ThreadOf(tx, who.AccountNum, r.MessageID)
			if err != nil {
				return err
			}
			w := agents.Source{ThreadID: thread, Harmless: true} // the account wrote the subject itself
			if r.UserID != nil {
				w.MailboxID = *r.UserID
			}
			mb, err := core.LiveMailbox(tx, w.MailboxID)
			if err == nil && mb != nil {
				w.People, err = s.inbox.PeopleSent(tx, mb, r.MessageID)
			}
			if err != nil {
				return err
			}
			words = append(words, w)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.agents.Read(who.AccountID, agents.HolderOf(who), &who.Policy, words...)
}

// responseCodes matches the status codes at the start of an SMTP reply (RFC 5321 section 4.2, RFC
// 2034).
var responseCodes = lazyregexp.New(`^[2-5][0-9][0-9](?:[ -][245]\.[0-9]{1,3}\.[0-9]{1,3})?(?:[ -]|$)`)

// codesOf returns the codes of a reply, such as "550 5.1.1", without the text that the server
// chose.
func codesOf(reply string) string {
	return strings.TrimRight(strings.Replace(responseCodes().FindString(reply), "-", " ", 1), " ")
}

// ListMessagesIn is the request of list_messages. The dates are UTC days, inclusive, on which
// messages were queued.
type ListMessagesIn struct {
	page.Query
	Status    string `query:"status" enum:"queued|scheduled|held|sent|delivered|relayed|captured|deferred|bounced|complained|suppressed|cancelled|rejected|"`
	Mailbox   string `query:"mailbox"` // The mailbox's address.
	Domain    string `query:"domain"`
	Recipient string `query:"recipient"`
	Tag       string `query:"tag"`       // A tag, as `name:value`.
	DateFrom  string `query:"date_from"` // The first day, UTC.
	DateTo    string `query:"date_to"`   // The last day, UTC, with all of it.
	// The order: newest first unless given; `queued_at` is oldest first.
	Sort string `query:"sort" enum:"-queued_at|queued_at|"`
}

// clockSetBack is by how much the order of IDs may differ from that of queue times: they follow
// them, unless the clock was set back by more.
const clockSetBack = 10 * time.Minute

// statusIndex returns the smallest index that has every message of an account with a status, and
// the prefix of its keys.
func statusIndex(accountID, status string) (index *store.Index[store.Outgoing], prefix string) {
	o := store.Outgoing{Status: status}
	switch {
	case status == store.OutgoingScheduled || status == store.OutgoingHeld:
		return store.OutgoingsParked, accountID
	case o.Waits():
		return store.OutgoingsWaiting, accountID
	case o.Failed():
		return store.OutgoingsFailed, store.FailedKey(accountID, status)
	}
	return store.OutgoingsByAccount, accountID
}

// ListMessages lists the account's sending log.
func (s *Service) ListMessages(_ context.Context, who core.Actor, in ListMessagesIn) (*page.Page[SentMessage], error) {
	from, to, err := core.ParseDays(in.DateFrom, in.DateTo)
	if err != nil {
		return nil, err
	}
	f := sentFilter{ListMessagesIn: in, from: from, to: to, who: who}
	if in.Tag != "" {
		var ok bool
		f.tag.Name, f.tag.Value, ok = strings.Cut(in.Tag, ":")
		if !ok {
			return nil, core.Invalid("tag", "invalid", "must be of the form name:value")
		}
	}
	index, prefix := statusIndex(who.AccountID, in.Status)
	l := page.Listing[store.Outgoing, SentMessage]{
		Operation: "messages", Index: index, Prefix: prefix,
		Filters:   []string{in.Status, in.Mailbox, in.Domain, in.Recipient, in.Tag, in.DateFrom, in.DateTo},
		Prefilter: f.prefilter(),
		Keep:      f.matches,
		Until:     func(o *store.Outgoing) bool { return o.QueuedAt.Before(from.Add(-clockSetBack)) },
		Out: func(tx *store.Tx, o *store.Outgoing) (SentMessage, error) {
			return sentMessageOut(who, o, tx.Now()), nil
		},
		First: func(tx *store.Tx) error {
			mb, err := store.MailboxByEmail.OfAccount(tx, who.AccountID, strings.ToLower(in.Mailbox))
			if core.IsGone(err) {
				return nil
			}
			if err == nil {
				f.mailboxID = mb.ID
			}
			return err
		},
	}
	l.SortBy(in.Sort)
	if index == store.OutgoingsFailed {
		l.Filters = append(l.Filters, "failed") // cursors of before there was this index do not fit it
	}
	switch {
	case !l.Ascending && !to.IsZero():
		l.Start = prefix + recordid.First("msg", to.Add(clockSetBack))
	case l.Ascending && !from.IsZero():
		l.Start = prefix + recordid.First("msg", from.Add(-clockSetBack))
	}
	if l.Ascending {
		l.Until = func(o *store.Outgoing) bool { return !to.IsZero() && o.QueuedAt.After(to.Add(clockSetBack)) }
	}
	page, err := l.Page(s.Core, who, in.Query)
	if err == nil {
		err = s.recordSubjectsShown(who, page.Data...)
	}
	return page, err
}

type sentFilter struct {
	ListMessagesIn
	mailboxID string // ID of the mailbox with the address Mailbox, if it exists
	tag       store.Tag
	from, to  time.Time
	who       core.Actor
}

// prefilter returns a cheap check of an encoded row. If it returns false, matches is false for the
// row, which then need not be decoded.
func (f *sentFilter) prefilter() func(row []byte) bool {
	status, domain, to, from := page.HasTexts(f.Status, f.tag.Name, f.tag.Value), page.HasFolded(f.Domain), page.HasFolded(f.Recipient), page.HasFolded(f.Mailbox)
	return func(row []byte) bool {
		if !status(row) || !domain(row) || !to(row) || f.who.MailboxID != "" && !bytes.Contains(row, []byte(f.who.MailboxID)) {
			return false
		}
		if f.mailboxID != "" {
			return bytes.Contains(row, []byte(f.mailboxID))
		}
		return from(row)
	}
}

func (f *sentFilter) matches(o *store.Outgoing) bool {
	switch {
	case !f.who.Sees(o.MailboxID),
		f.Status != "" && o.Status != f.Status,
		f.Domain != "" && !strings.EqualFold(o.Domain, f.Domain),
		f.Recipient != "" && !strings.EqualFold(o.Recipient, f.Recipient),
		f.Tag != "" && !slices.Contains(o.Tags, f.tag),
		o.QueuedAt.Before(f.from),
		!f.to.IsZero() && !o.QueuedAt.Before(f.to):
		return false
	case f.Mailbox == "":
		return true
	case f.mailboxID != "":
		return o.MailboxID == f.mailboxID
	}
	return strings.EqualFold(o.Sender, f.Mailbox)
}

// SentMessageIn names one row of the sending log.
type SentMessageIn struct {
	ID string `path:"id" example:"msg_01k9a2b3c4d5e6f7g8h9j0k1m2"`
}

// A SentAttempt is one attempt to deliver a message to one address of a host.
type SentAttempt struct {
	At   core.Time `json:"at"`
	Host *string   `json:"host" words:"theirs" example:"mx.example.net"`
	IP   *string   `json:"ip" words:"ours"`
	TLS  *string   `json:"tls" words:"ours"`
	// How the host was authenticated: by TLSA records (DANE), by its domain's MTA-STS policy, by a
	// certificate for its name, or not at all.
	Authenticated string `json:"authenticated" enum:"dane|mta-sts|certificate|none"`
	Code          *int   `json:"code" example:"250"` // The SMTP code of the answer.
	Enhanced      string `json:"enhanced" words:"ours"`
	Reply         string `json:"reply" words:"theirs"`
}

// A SentMessageDetail is one row of the sending log with its newest attempts, the newest last.
type SentMessageDetail struct {
	SentMessage
	AttemptsLog []SentAttempt `json:"attempts_log"` // The newest 30 attempts, the newest last: one for each address tried.
}

// GetSentMessage shows one row of the sending log, with the result of each attempt.
func (s *Service) GetSentMessage(_ context.Context, who core.Actor, in SentMessageIn) (*SentMessageDetail, error) {
	var row *store.Outgoing
	err := s.Store.View(func(tx *store.Tx) (err error) {
		row, err = store.Outgoings.Get(tx, in.ID)
		return err
	})
	if core.IsGone(err) || err == nil && (row.AccountID != who.AccountID || !who.Sees(row.MailboxID)) {
		return nil, core.NotFound("message in the sending log")
	}
	if err != nil {
		return nil, err
	}
	out := &SentMessageDetail{SentMessage: sentMessageOut(who, row, s.Now()), AttemptsLog: []SentAttempt{}}
	for _, a := range row.Log {
		shown := SentAttempt{
			At: core.Time{Time: a.At}, Host: core.OrNull(a.Host), IP: core.OrNull(a.IP), TLS: core.OrNull(a.TLS), Authenticated: cmp.Or(a.Auth, "none"),
			Enhanced: a.Enhanced, Reply: a.Reply,
		}
		if a.Code != 0 {
			shown.Code = &a.Code
		}
		if who.Policy.Taint {
			shown.Reply = codesOf(a.Reply)
		}
		out.AttemptsLog = append(out.AttemptsLog, shown)
	}
	return out, s.recordSubjectsShown(who, out.SentMessage)
}

// RetryMessage retries a pending message at once.
func (s *Service) RetryMessage(_ context.Context, who core.Actor, in SentMessageIn) (*SentMessage, error) {
	return s.changeRow(who, in.ID, func(tx *store.Tx, row *store.Outgoing) error {
		switch row.Status {
		case store.OutgoingScheduled:
			return core.Errorf("not_queued", "The message is scheduled. To send it sooner, change its send_at.")
		case store.OutgoingHeld:
			if row.AwaitsApproval() {
				return core.Errorf("not_queued", "The message waits until an owner or admin approves it.")
			}
			return core.Errorf("not_queued", "The message is held. Release it first.")
		case store.OutgoingRejected:
			return core.Errorf("not_queued", "The message was rejected. Send it anew.")
		case store.OutgoingCancelled:
			return core.Errorf("not_queued", "The message was cancelled. Send it anew.")
		}
		if err := checkPending(row); err != nil {
			return err
		}
		if row.Stop != "" {
			return core.Errorf("not_queued", "The message is cancelled unless the host takes it at this moment.")
		}
		j, err := store.Jobs.Find(tx, row.JobID)
		if err != nil {
			return err
		}
		if j != nil && j.Parked() {
			return core.Errorf("not_queued", "The message is parked, since the server has ended each time that it was being delivered. It is tried again at %s; the operator of this installation can let it go on before.", j.Due.UTC().Format(time.RFC3339))
		}
		if err := s.Queue.Wake(tx, row.JobID, tx.Now()); err != nil {
			return fmt.Errorf("wake job of message %s: %w", row.ID, err)
		}
		row.NextAt, row.UpdatedAt = tx.Now(), tx.Now()
		return store.Outgoings.Put(tx, row)
	})
}

// ShowRow returns a row of the sending log as it is now.
func (s *Service) ShowRow(who core.Actor, id string) (*SentMessage, error) {
	return s.changeRow(who, id, func(*store.Tx, *store.Outgoing) error { return nil })
}

// CancelRow cancels a pending message for one recipient. If it is being delivered at this moment,
// it is cancelled after the attempt, unless the attempt delivers it.
func (s *Service) CancelRow(who core.Actor, id string) (*SentMessage, error) {
	return s.changeRow(who, id, func(tx *store.Tx, row *store.Outgoing) error {
		if err := checkPending(row); err != nil {
			return err
		}
		why := cmp.Or(row.LastResponse, cancelledText)
		running, err := s.cancelAfterAttempt(tx, row, cancelledText)
		if err == nil && !running {
			err = s.cancelRow(tx, row, why)
		}
		if err != nil {
			return err
		}
		return core.Audit(tx, who, store.AuditTarget{Type: "message", ID: row.ID, Name: row.Recipient})
	})
}

func checkPending(row *store.Outgoing) error {
	if row.Waits() {
		return nil
	}
	return core.Invalid("id", "not_waiting", "the message is %s; only one that is queued or deferred can be changed", row.Status)
}

func (s *Service) changeRow(who core.Actor, id string, change func(*store.Tx, *store.Outgoing) error) (*SentMessage, error) {
	var out SentMessage
	err := s.Store.Update(func(tx *store.Tx) error {
		row, err := store.Outgoings.Get(tx, id)
		if core.IsGone(err) || err == nil && (row.AccountID != who.AccountID || !who.Sees(row.MailboxID)) {
			return core.NotFound("message in the sending log")
		}
		if err != nil {
			return err
		}
		if err := change(tx, row); err != nil {
			return err
		}
		out = sentMessageOut(who, row, tx.Now())
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &out, s.recordSubjectsShown(who, out)
}

// maxMappings is the maximum number of mappings in one answer: the largest number of recipients of
// one send.
const maxMappings = 1000

// RelayedData is the data of message.relayed.
type RelayedData struct {
	OriginalMessageID string    `json:"original_message_id" words:"theirs"` // The Message-ID that the sender gave.
	ProviderMessageID string    `json:"provider_message_id" words:"theirs"` // The Message-ID that the relay gave.
	Provider          string    `json:"provider" words:"ours"`              // The relay.
	Recipient         string    `json:"recipient" words:"theirs"`
	Sender            string    `json:"sender" words:"theirs"`
	SendingDomain     string    `json:"sending_domain" words:"ours"`
	RelayedAt         core.Time `json:"relayed_at"`
	UserID            *string   `json:"user_id" words:"ours"`
	Tags              TagMap    `json:"tags" words:"theirs"`
}

// LookupIn is the request of lookup_message: exactly one of the two IDs, with or without angle
// brackets.
type LookupIn struct {
	Provider string `query:"provider_message_id" max:"998"` // The Message-ID that the relay gave.
	Original string `query:"original_message_id" max:"998"` // The Message-ID that the sender gave.
}

// A Lookup has the mappings of a Message-ID; it is empty if none is known.
type Lookup struct {
	OriginalMessageID  *string   `json:"original_message_id" words:"theirs"` // The Message-ID that the sender gave.
	ProviderMessageIDs []string  `json:"provider_message_ids" words:"theirs"`
	Data               []Mapping `json:"data"`
	Count              int       `json:"count"` // How many rows are in `data`.
}

// A Mapping is a pair of Message-IDs, for one recipient.
type Mapping struct {
	OriginalMessageID string    `json:"original_message_id" words:"theirs"` // The Message-ID that the sender gave.
	ProviderMessageID string    `json:"provider_message_id" words:"theirs"` // The Message-ID that the relay gave.
	Provider          string    `json:"provider" words:"ours"`              // The relay.
	Recipient         string    `json:"recipient" words:"theirs"`
	Sender            string    `json:"sender" words:"theirs"`
	SendingDomain     string    `json:"sending_domain" words:"ours"`
	RelayedAt         core.Time `json:"relayed_at"`
}

// LookupMessage finds the Message-IDs that relays gave to a message, or the original of such an ID.
func (s *Service) LookupMessage(_ context.Context, who core.Actor, in LookupIn) (*Lookup, error) {
	if (in.Provider == "") == (in.Original == "") {
		return nil, core.Errorf("exactly_one_parameter", "Give exactly one of provider_message_id and original_message_id.")
	}
	index, id := store.MappingsByProvided, in.Provider
	if in.Original != "" {
		index, id = store.MappingsByOriginal, in.Original
	}
	out := &Lookup{ProviderMessageIDs: []string{}, Data: []Mapping{}}
	err := s.Store.View(func(tx *store.Tx) error {
		oldest := tx.Now().Add(-core.SendingLogTTL)
		for _, m := range index.Asc(tx, who.AccountID+core.Bracketed(id)+"\x00", "") {
			if m.RelayedAt.Before(oldest) {
				continue
			}
			out.add(m)
			if len(out.Data) == maxMappings {
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (l *Lookup) add(m *store.MessageIDMapping) {
	l.OriginalMessageID = &m.Original
	l.ProviderMessageIDs = append(l.ProviderMessageIDs, m.Provided)
	l.Data = append(l.Data, Mapping{m.Original, m.Provided, m.Provider, m.Recipient, m.Sender, m.SendingDomain, core.Time{Time: m.RelayedAt}})
	l.Count = len(l.Data)
}
