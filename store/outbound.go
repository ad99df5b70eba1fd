package store

import (
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/rowform"
)

// A Submission is one outgoing message: a user's message, a forward or a report. It is written in
// one transaction with an Outgoing and a job for each recipient. It holds what they share: the
// unsigned bytes, and the facts that each attempt needs. Waiting counts the recipients without an
// outcome; when it reaches 0, the submission is deleted.
type Submission struct {
	ID         string    `json:",omitzero"` // sub_…
	AccountID  string    `json:",omitzero"`
	MailboxID  string    `json:",omitzero"` // the sending mailbox; "" for forwards of a domain and for reports
	DomainID   string    `json:",omitzero"` // the domain whose keys sign it and whose sending mode is used
	MessageID  string    `json:",omitzero"` // RFC 5322, with brackets
	Sender     string    `json:",omitzero"` // return path; "" for a report
	Subject    string    `json:",omitzero"`
	Blob       BlobRef   `json:",omitzero"` // the message, unsigned, with CRLF line ends
	Forward    bool      `json:",omitzero"` // a forwarded message: we do not sign it as ours, and its sender is rewritten
	TLSReport  bool      `json:",omitzero"` // it is a report on TLS failures, which is delivered in spite of such failures (RFC 8460 section 3)
	ReportTo   string    `json:",omitzero"` // address that is notified of failures, if not the mailbox
	EightBit   bool      `json:",omitzero"`
	SMTPUTF8   bool      `json:",omitzero"`
	EnvelopeID string    `json:",omitzero"` // RFC 3461 ENVID
	Ret        string    `json:",omitzero"` // RFC 3461 RET
	Starts     bool      `json:",omitzero"` // it answers no message, and has no List-Unsubscribe field of its own
	Copied     bool      `json:",omitzero"` // a copy goes to the folder of sent mail on the server of its external mailbox
	Waiting    int       `json:",omitzero"` // number of recipients without an outcome
	CreatedAt  time.Time `json:",omitzero"`

	SendAt      time.Time `json:",omitzero"` // zero: at once
	FileSent    bool      `json:",omitzero"` // its first attempt also puts the copy into the folder of sent mail
	Answers     string    `json:",omitzero"` // Message-ID of the message that it answers, which is marked as answered when the copy is filed
	RequireTLS  bool      `json:",omitzero"` // RFC 8689
	TLSOptional bool      `json:",omitzero"` // TLS-Required: No (RFC 8689 section 5)
	Tags        []Tag     `json:",omitempty"`
	Checked     bool      `json:",omitzero"` // its sender may send as each of its authors
	Program     bool      `json:",omitzero"` // it was sent with a domain's credential
	Bcc         string    `json:",omitzero"` // for the copy that is filed later: see Meta.Bcc
	AnsweredBy  string    `json:",omitzero"` // value of Meta.AnsweredBy for the answered message
	ListID      string    `json:",omitzero"` // only for a forward: the group that it came through
	ApprovalID  string    `json:",omitzero"` // "": no person had to approve it
	Tainted     bool      `json:",omitzero"` // its sender was tainted (see Policy), or it may contain text of somebody else
	Required    bool      `json:",omitzero"` // postmaster's mail to the account's owner, sent even if the address is suppressed
	OwnWords    bool      `json:",omitzero"` // a person of the account wrote it, or a program whose messages count as such, see Token.OwnWords
	RequestID   string    `json:",omitzero"` // the request to the API that sent it; "": there was none
}

// A Tag is a name with a value that a sender gave a message, to find it in lists.
type Tag struct{ Name, Value string }

func (t *Tag) codeFields(c *rowform.Coder) {
	c.String(&t.Name)
	c.String(&t.Value)
}

func (s *Submission) codeFields(c *rowform.Coder) {
	c.Version(1)
	c.String(&s.ID)
	c.String(&s.AccountID)
	c.String(&s.MailboxID)
	c.String(&s.DomainID)
	c.String(&s.MessageID)
	c.String(&s.Sender)
	c.String(&s.Subject)
	rowform.Int(c, &s.Blob.Segment)
	rowform.Int(c, &s.Blob.Offset)
	rowform.Int(c, &s.Blob.Head)
	rowform.Int(c, &s.Blob.Length)
	c.Bool(&s.Forward)
	c.Bool(&s.TLSReport)
	c.String(&s.ReportTo)
	c.Bool(&s.EightBit)
	c.Bool(&s.SMTPUTF8)
	c.String(&s.EnvelopeID)
	c.String(&s.Ret)
	c.Bool(&s.Starts)
	c.Bool(&s.Copied)
	rowform.Int(c, &s.Waiting)
	c.Time(&s.CreatedAt)
	c.Time(&s.SendAt)
	c.Bool(&s.FileSent)
	c.String(&s.Answers)
	c.Bool(&s.RequireTLS)
	c.Bool(&s.TLSOptional)
	rowform.List(c, &s.Tags, (*Tag).codeFields)
	c.Bool(&s.Checked)
	c.String(&s.ListID)
	c.Bool(&s.Program)
	c.String(&s.Bcc)
	c.String(&s.AnsweredBy)
	c.String(&s.ApprovalID)
	c.Bool(&s.Tainted)
	c.Bool(&s.Required)
	c.Bool(&s.OwnWords)
	c.String(&s.RequestID)
}

// Submissions keeps each submission until every recipient has an outcome. Check verifies that the
// Blob of each has a reference.
var Submissions = engine.NewTable("submission", func(s *Submission) string { return s.ID }).Binary((*Submission).codeFields)

// An Outgoing is a row of the sending log: one recipient of a submission. It begins as queued,
// scheduled or held. Each attempt adds the reply of the next hop to its Log. Once its Status is
// final there are no more attempts. The row stays as long as the log is kept.
type Outgoing struct {
	ID                string    `json:",omitzero"` // msg_…
	SubmissionID      string    `json:",omitzero"`
	AccountID         string    `json:",omitzero"`
	MailboxID         string    `json:",omitzero"`
	MessageID         string    `json:",omitzero"`
	Sender            string    `json:",omitzero"`
	Recipient         string    `json:",omitzero"`
	Subject           string    `json:",omitzero"`
	Domain            string    `json:",omitzero"` // sending domain
	Notify            string    `json:",omitzero"` // RFC 3461 NOTIFY
	ORCPT             string    `json:",omitzero"` // RFC 3461 ORCPT
	Status            string    `json:",omitzero"` // one of the Outgoing… constants
	Transport         string    `json:",omitzero"` // one of the OutgoingTransport… constants
	Provider          string    `json:",omitzero"` // the relay's name
	ProviderMessageID string    `json:",omitzero"`
	Attempts          int       `json:",omitzero"`
	LastResponse      string    `json:",omitzero"`
	JobID             string    `json:",omitzero"`
	NextAt            time.Time `json:",omitzero"`
	DelayTold         bool      `json:",omitzero"`
	QueuedAt          time.Time `json:",omitzero"`
	UpdatedAt         time.Time `json:",omitzero"`
	BouncedAt         time.Time `json:",omitzero"`  // when the event email.bounced was sent
	ComplainedAt      time.Time `json:",omitzero"`  // when the event email.complained was sent
	Log               []Attempt `json:",omitempty"` // newest last, bounded
	SendAt            time.Time `json:",omitzero"`  // zero: at once
	TriedFrom         time.Time `json:",omitzero"`  // when the period of attempts began; zero: at QueuedAt
	HeldAt            time.Time `json:",omitzero"`  // when it was held
	DelayedAt         time.Time `json:",omitzero"`  // when the event email.delayed was last sent
	Counted           bool      `json:",omitzero"`  // it was added to the sender's SendCounts
	RequireTLS        bool      `json:",omitzero"`
	Tags              []Tag     `json:",omitempty"`
	Program           bool      `json:",omitzero"` // it was sent with a domain's credential, not by a mailbox
	ApprovalID        string    `json:",omitzero"` // see Submission.ApprovalID
	Tainted           bool      `json:",omitzero"` // see Submission.Tainted
	Checked           bool      `json:",omitzero"` // see Submission.Checked
	// Stop is the reason for which the message is cancelled after the running attempt, unless a
	// host accepts it in that attempt. "": it is not cancelled.
	Stop      string `json:",omitzero"`
	OwnWords  bool   `json:",omitzero"` // see Submission.OwnWords
	RequestID string `json:",omitzero"` // see Submission.RequestID
}

// Values of Outgoing.Status.
const (
	OutgoingQueued     = "queued"
	OutgoingScheduled  = "scheduled"  // waits for the time that its sender set
	OutgoingHeld       = "held"       // waits until somebody releases it
	OutgoingDeferred   = "deferred"   // an attempt has failed; another one follows
	OutgoingSent       = "sent"       // accepted by an MX host
	OutgoingDelivered  = "delivered"  // delivered to a mailbox here
	OutgoingRelayed    = "relayed"    // accepted by a relay
	OutgoingCaptured   = "captured"   // not sent, since this server captures outgoing mail
	OutgoingBounced    = "bounced"    // refused permanently
	OutgoingComplained = "complained" // accepted, and then reported as spam
	OutgoingSuppressed = "suppressed" // never tried, since the address is on the suppression list
	OutgoingCancelled  = "cancelled"  // cancelled by its sender
	OutgoingRejected   = "rejected"   // held, and not approved in time
)

// Values of Outgoing.Transport: how the message goes to the recipient.
const (
	OutgoingTransportDirect  = "direct"  // to the MX hosts of the recipient's domain
	OutgoingTransportRelay   = "relay"   // through a relay
	OutgoingTransportLocal   = "local"   // into a mailbox of this server
	OutgoingTransportCapture = "capture" // it is not sent, since this server captures outgoing mail

	OutgoingTransportSimulator = "simulator" // to a recipient that this server simulates
)

// Waits reports whether the message still has to be sent.
func (o *Outgoing) Waits() bool {
	switch o.Status {
	case OutgoingQueued, OutgoingDeferred, OutgoingScheduled, OutgoingHeld:
		return true
	}
	return false
}

// Failed reports whether the message was not delivered or not wanted, and nothing more comes of it.
func (o *Outgoing) Failed() bool {
	switch o.Status {
	case OutgoingBounced, OutgoingComplained, OutgoingSuppressed, OutgoingCancelled, OutgoingRejected:
		return true
	}
	return false
}

// FailedKey returns the prefix of the keys in OutgoingsFailed of an account's messages with a
// status.
func FailedKey(accountID, status string) string { return accountID + status + "\x00" }

// AwaitsApproval reports whether the message is held until a person approves it. A message that is
// held for another reason has HeldAt set.
func (o *Outgoing) AwaitsApproval() bool {
	return o.Status == OutgoingHeld && o.ApprovalID != "" && o.HeldAt.IsZero()
}

// Began returns when the period of attempts for a message began. It is later than QueuedAt for a
// message that was scheduled or held.
func (o *Outgoing) Began() time.Time {
	if o.TriedFrom.After(o.QueuedAt) {
		return o.TriedFrom
	}
	return o.QueuedAt
}

// An Attempt is one attempt to deliver a message to a host, with the reply of the host.
type Attempt struct {
	At       time.Time `json:",omitzero"`
	Host     string    `json:",omitzero"`
	IP       string    `json:",omitzero"`
	TLS      string    `json:",omitzero"` // version and cipher; "": no TLS
	Auth     string    `json:",omitzero"` // how the host was authenticated: dane, mta-sts or certificate; "": it was not
	Code     int       `json:",omitzero"`
	Enhanced string    `json:",omitzero"`
	Reply    string    `json:",omitzero"`
}

func (o *Outgoing) codeFields(c *rowform.Coder) {
	c.Version(1)
	c.String(&o.ID)
	c.String(&o.SubmissionID)
	c.String(&o.AccountID)
	c.String(&o.MailboxID)
	c.String(&o.MessageID)
	c.String(&o.Sender)
	c.String(&o.Recipient)
	c.String(&o.Subject)
	c.String(&o.Domain)
	c.String(&o.Notify)
	c.String(&o.ORCPT)
	c.String(&o.Status)
	c.String(&o.Transport)
	c.String(&o.Provider)
	c.String(&o.ProviderMessageID)
	rowform.Int(c, &o.Attempts)
	c.String(&o.LastResponse)
	c.String(&o.JobID)
	c.Time(&o.NextAt)
	c.Bool(&o.DelayTold)
	c.Time(&o.QueuedAt)
	c.Time(&o.UpdatedAt)
	c.Time(&o.BouncedAt)
	c.Time(&o.ComplainedAt)
	rowform.List(c, &o.Log, (*Attempt).codeFields)
	c.Time(&o.SendAt)
	c.Time(&o.TriedFrom)
	c.Time(&o.HeldAt)
	c.Time(&o.DelayedAt)
	c.Bool(&o.Counted)
	c.Bool(&o.RequireTLS)
	rowform.List(c, &o.Tags, (*Tag).codeFields)
	c.Bool(&o.Program)
	c.String(&o.ApprovalID)
	c.Bool(&o.Tainted)
	c.Bool(&o.Checked)
	c.String(&o.Stop)
	c.Bool(&o.OwnWords)
	c.String(&o.RequestID)
}

func (a *Attempt) codeFields(c *rowform.Coder) {
	c.Time(&a.At)
	c.String(&a.Host)
	c.String(&a.IP)
	c.String(&a.TLS)
	c.String(&a.Auth)
	rowform.Int(c, &a.Code)
	c.String(&a.Enhanced)
	c.String(&a.Reply)
}

// Outgoings keeps the sending log. Ids increase with time, so that pruning deletes the first rows.
var (
	Outgoings = engine.NewTable("outgoing", func(o *Outgoing) string { return o.ID }).
			Binary((*Outgoing).codeFields).Watched(func(_ *engine.Tx, o *Outgoing) Change { return Change{Account: o.AccountID, ID: o.ID} })
	OutgoingsByAccount = Outgoings.Index("account", func(o *Outgoing) string { return o.AccountID })
	// OutgoingsWaiting holds the queued and deferred messages. OutgoingsParked holds the scheduled
	// and held ones.
	OutgoingsWaiting = Outgoings.Index("waiting", func(o *Outgoing) string {
		if o.Status != OutgoingQueued && o.Status != OutgoingDeferred {
			return ""
		}
		return o.AccountID
	})
	OutgoingsParked = Outgoings.Index("parked", func(o *Outgoing) string {
		if o.Status != OutgoingScheduled && o.Status != OutgoingHeld {
			return ""
		}
		return o.AccountID
	})
	// OutgoingsFailed holds the messages that were not delivered, which are few, by account and
	// status. FailedKey returns the prefix of their keys.
	OutgoingsFailed = Outgoings.Index("failed", func(o *Outgoing) string {
		if !o.Failed() {
			return ""
		}
		return FailedKey(o.AccountID, o.Status)
	})
	OutgoingsByMessageID = Outgoings.Index("message_id", func(o *Outgoing) string { return o.AccountID + o.MessageID + "\x00" })
)

// A MessageIDMapping pairs the Message-ID that a sender set with the one that a relay assigned for
// one recipient.
type MessageIDMapping struct {
	ID            string    `json:",omitzero"` // map_…
	AccountID     string    `json:",omitzero"`
	Original      string    `json:",omitzero"` // with brackets
	Provided      string    `json:",omitzero"` // with brackets
	Provider      string    `json:",omitzero"`
	Recipient     string    `json:",omitzero"`
	Sender        string    `json:",omitzero"`
	SendingDomain string    `json:",omitzero"`
	RelayedAt     time.Time `json:",omitzero"`
}

func (m *MessageIDMapping) codeFields(c *rowform.Coder) {
	c.Version(1)
	c.String(&m.ID)
	c.String(&m.AccountID)
	c.String(&m.Original)
	c.String(&m.Provided)
	c.String(&m.Provider)
	c.String(&m.Recipient)
	c.String(&m.Sender)
	c.String(&m.SendingDomain)
	c.Time(&m.RelayedAt)
}

// Mappings keeps the mappings for 90 days.
var (
	Mappings           = engine.NewTable("mapping", func(m *MessageIDMapping) string { return m.ID }).Binary((*MessageIDMapping).codeFields)
	MappingsByOriginal = Mappings.Index("original", func(m *MessageIDMapping) string { return m.AccountID + m.Original + "\x00" })
	MappingsByProvided = Mappings.Index("provided", func(m *MessageIDMapping) string { return m.AccountID + m.Provided + "\x00" })
)

// A Suppression stops mail from an account to an address that has bounced or does not want mail.
type Suppression struct {
	AccountID string
	Email     string
	Reason    string // one of the Suppression… constants
	MessageID string
	CreatedAt time.Time
}

// Values of Suppression.Reason: why the address is suppressed.
const (
	SuppressionBounce    = "bounce"
	SuppressionComplaint = "complaint"
	SuppressionManual    = "manual" // somebody of the account added it, or the recipient has unsubscribed
)

// Suppressions keeps one record for each account and suppressed address.
var (
	Suppressions = engine.NewTable("suppression", func(s *Suppression) string { return s.AccountID + s.Email }).
			Watched(func(_ *engine.Tx, s *Suppression) Change { return Change{Account: s.AccountID, ID: s.Email} })
	SuppressionsByAccount = Suppressions.Index("account", func(s *Suppression) string { return s.AccountID + TimeKey(s.CreatedAt) })
)

// PendingRcpts holds the recipients of a submission that have no Outgoing and no job yet, because
// there were too many for one transaction.
type PendingRcpts struct {
	SubmissionID string        `json:",omitzero"`
	Domain       string        `json:",omitzero"` // domain of the sender
	To           []PendingRcpt `json:",omitempty"`
}

// A PendingRcpt is one pending recipient, with its parameters from RFC 3461.
type PendingRcpt struct {
	Address string `json:",omitzero"`
	Notify  string `json:",omitzero"`
	ORCPT   string `json:",omitzero"`
}

// PendingRecipients keeps the pending recipients of submissions, by submission id.
var PendingRecipients = engine.NewTable("pending_rcpt", func(p *PendingRcpts) string { return p.SubmissionID })

// A TLSPolicy is the MTA-STS policy of another domain (RFC 8461). It is kept as long as its max_age
// says.
type TLSPolicy struct {
	Domain    string        // ASCII
	ID        string        // id in the domain's TXT record
	Mode      string        // enforce, testing or none
	MX        []string      // host names; "*." at the start stands for any one label
	MaxAge    time.Duration // max_age of the policy
	FetchedAt time.Time
	ExpiresAt time.Time
	UsedAt    time.Time // when mail was last sent under it, accurate to a day
}

// TLSPolicies keeps one record for each domain with a policy.
var TLSPolicies = engine.NewTable("tls_policy", func(p *TLSPolicy) string { return p.Domain })

// A TLSCount counts the TLS sessions with a domain's hosts in one day, for a report to it (RFC
// 8460).
type TLSCount struct {
	Day      string // YYYY-MM-DD, UTC
	Domain   string // ASCII
	Policies []TLSPolicyCount
}

// A TLSPolicyCount counts the sessions under one policy.
type TLSPolicyCount struct {
	Type       string   // tlsa, sts or no-policy-found (RFC 8460)
	Strings    []string `json:",omitempty"` // lines of the policy, as published
	MXHosts    []string `json:",omitempty"`
	Successful int64
	Failed     int64
	Failures   []TLSFailureCount `json:",omitempty"` // limited in number, so Failed may be more than their sum
}

// A TLSFailureCount counts the sessions that failed in the same way.
type TLSFailureCount struct {
	Result, Host, IP, Reason string
	Sessions                 int64
}

// TLSCountID returns the id of the TLSCount for a day and domain.
func TLSCountID(day, domain string) string { return day + " " + domain }

// TLSCounts keeps one record for each day and domain, in the order of days.
var TLSCounts = engine.NewTable("tls_count", func(c *TLSCount) string { return TLSCountID(c.Day, c.Domain) })
