package store

import (
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/rowform"
)

// A Submission is one message on its way out: somebody here sent it, or it is a forward or a
// report. It is written in one transaction with an Outgoing and a job for each recipient, and has
// what these share: the bytes, unsigned, and the facts by which each attempt decides. Waiting
// counts the recipients that are not done; with the last of them the submission is deleted.
type Submission struct {
	ID         string    `json:",omitzero"` // sub_…
	AccountID  string    `json:",omitzero"`
	MailboxID  string    `json:",omitzero"` // that sent it; "" for what a domain forwards and for reports
	DomainID   string    `json:",omitzero"` // whose keys sign it and whose sending mode counts
	MessageID  string    `json:",omitzero"` // RFC 5322, with brackets
	Sender     string    `json:",omitzero"` // return path; "" for a report
	Subject    string    `json:",omitzero"`
	Blob       BlobRef   `json:",omitzero"` // the message, unsigned, with CRLF line ends
	Forward    bool      `json:",omitzero"` // it arrived here and goes on: not ours to sign, and its sender is rewritten
	TLSReport  bool      `json:",omitzero"` // a report on failures of TLS, which arrives in spite of them (RFC 8460 section 3)
	ReportTo   string    `json:",omitzero"` // who is told of failures where that is not the mailbox
	EightBit   bool      `json:",omitzero"`
	SMTPUTF8   bool      `json:",omitzero"`
	EnvelopeID string    `json:",omitzero"` // RFC 3461 ENVID
	Ret        string    `json:",omitzero"` // RFC 3461 RET
	Starts     bool      `json:",omitzero"` // a conversation, rather than answering in one, and offers no way out of its list itself
	Copied     bool      `json:",omitzero"` // to the folder of sent mail of an external mailbox
	Waiting    int       `json:",omitzero"` // recipients that are not done; the submission goes with the last one
	CreatedAt  time.Time `json:",omitzero"`

	SendAt      time.Time `json:",omitzero"` // zero: at once
	FileSent    bool      `json:",omitzero"` // its copy in the folder of sent mail comes with its first attempt
	Answers     string    `json:",omitzero"` // the Message-ID that it answers, which is marked with that copy
	RequireTLS  bool      `json:",omitzero"` // RFC 8689
	TLSOptional bool      `json:",omitzero"` // TLS-Required: No (RFC 8689 section 5)
	Tags        []Tag     `json:",omitempty"`
	Checked     bool      `json:",omitzero"` // its authors are some whom its sender may send as
	Program     bool      `json:",omitzero"` // it was sent with a domain's credential
	Bcc         string    `json:",omitzero"` // for the copy that comes later: see Meta.Bcc
	AnsweredBy  string    `json:",omitzero"` // of what it answers: see Meta.AnsweredBy
	ListID      string    `json:",omitzero"` // of a forward: the group that it comes from
	ApprovalID  string    `json:",omitzero"` // "": no person had to approve it
	Tainted     bool      `json:",omitzero"` // whoever sent it had read a stranger's words, see Policy.Taint
	Required    bool      `json:",omitzero"` // postmaster's mail to the account's owner, suppressed or not
	OwnWords    bool      `json:",omitzero"` // a person of the account wrote it, or a program that speaks for the account
}

// A Tag is a name and a value that a sender gave a message, for its own lists.
type Tag struct{ Name, Value string }

func (t *Tag) fields(c *rowform.Coder) {
	c.String(&t.Name)
	c.String(&t.Value)
}

func (s *Submission) fields(c *rowform.Coder) {
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
	rowform.List(c, &s.Tags, (*Tag).fields)
	c.Bool(&s.Checked)
	c.String(&s.ListID)
	c.Bool(&s.Program)
	c.String(&s.Bcc)
	c.String(&s.AnsweredBy)
	c.String(&s.ApprovalID)
	c.Bool(&s.Tainted)
	c.Bool(&s.Required)
	c.Bool(&s.OwnWords)
}

// Submissions keeps them; Check counts their blobs among the references.
var Submissions = engine.NewTable("submission", func(s *Submission) string { return s.ID }).Binary((*Submission).fields)

// An Outgoing is the row of one recipient of a submission in the sending log. It begins as queued,
// scheduled or held. Each attempt adds the answer of the next hop to its Log. Once its Status is a
// final one there are no more attempts, and the row stays for as long as the log is kept.
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
	BouncedAt         time.Time `json:",omitzero"`  // when email.bounced told of it
	ComplainedAt      time.Time `json:",omitzero"`  // when email.complained did
	Log               []Attempt `json:",omitempty"` // newest last, bounded
	SendAt            time.Time `json:",omitzero"`  // zero: at once
	TriedFrom         time.Time `json:",omitzero"`  // when the days begin that it is tried for; zero: when it was queued
	HeldAt            time.Time `json:",omitzero"`  // when it was held
	DelayedAt         time.Time `json:",omitzero"`  // when email.delayed told of it last
	Counted           bool      `json:",omitzero"`  // in what its sender has sent
	RequireTLS        bool      `json:",omitzero"`
	Tags              []Tag     `json:",omitempty"`
	Program           bool      `json:",omitzero"` // it was sent with a domain's credential, by no mailbox
	ApprovalID        string    `json:",omitzero"` // of its submission
	Tainted           bool      `json:",omitzero"` // as its submission
	Checked           bool      `json:",omitzero"` // the same: whoever may send as its authors has written its subject
	// Stop is why it is taken back when the attempt that runs has ended, unless a host took it; "":
	// it is not.
	Stop     string `json:",omitzero"`
	OwnWords bool   `json:",omitzero"` // as its submission
}

// What became of a message for one recipient.
const (
	OutgoingQueued     = "queued"
	OutgoingScheduled  = "scheduled"  // waits for the time that its sender gave
	OutgoingHeld       = "held"       // waits for somebody to release it
	OutgoingDeferred   = "deferred"   // tried, and to be tried again
	OutgoingSent       = "sent"       // taken by an MX host
	OutgoingDelivered  = "delivered"  // in a mailbox here
	OutgoingRelayed    = "relayed"    // taken by a relay
	OutgoingCaptured   = "captured"   // kept back, since this server sends nothing out
	OutgoingBounced    = "bounced"    // refused for good
	OutgoingComplained = "complained" // taken, and called spam
	OutgoingSuppressed = "suppressed" // never tried, since the address is known to be bad or unwilling
	OutgoingCancelled  = "cancelled"  // taken back by its sender
	OutgoingRejected   = "rejected"   // held, and not approved in time
)

// How a message goes to a recipient.
const (
	OutgoingTransportDirect  = "direct"  // to the MX hosts of the recipient's domain
	OutgoingTransportRelay   = "relay"   // through a relay
	OutgoingTransportLocal   = "local"   // into a mailbox of this server
	OutgoingTransportCapture = "capture" // nowhere

	OutgoingTransportSimulator = "simulator" // to a recipient that this server plays
)

// Waits tells whether the message is still to be handed on.
func (o *Outgoing) Waits() bool {
	switch o.Status {
	case OutgoingQueued, OutgoingDeferred, OutgoingScheduled, OutgoingHeld:
		return true
	}
	return false
}

// AwaitsApproval tells whether the message is held for approval. What somebody is to release has a
// time when it was held.
func (o *Outgoing) AwaitsApproval() bool {
	return o.Status == OutgoingHeld && o.ApprovalID != "" && o.HeldAt.IsZero()
}

// Began is when the days begin that a message is tried for: later than it was queued for one that
// was scheduled, or that somebody had held back.
func (o *Outgoing) Began() time.Time {
	if o.TriedFrom.After(o.QueuedAt) {
		return o.TriedFrom
	}
	return o.QueuedAt
}

// An Attempt is one try to hand a message on.
type Attempt struct {
	At       time.Time `json:",omitzero"`
	Host     string    `json:",omitzero"`
	IP       string    `json:",omitzero"`
	TLS      string    `json:",omitzero"` // version and cipher; "" is plain
	Auth     string    `json:",omitzero"` // what vouched for the host: dane mta-sts certificate; "" is nothing
	Code     int       `json:",omitzero"`
	Enhanced string    `json:",omitzero"`
	Reply    string    `json:",omitzero"`
}

func (o *Outgoing) fields(c *rowform.Coder) {
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
	rowform.List(c, &o.Log, (*Attempt).fields)
	c.Time(&o.SendAt)
	c.Time(&o.TriedFrom)
	c.Time(&o.HeldAt)
	c.Time(&o.DelayedAt)
	c.Bool(&o.Counted)
	c.Bool(&o.RequireTLS)
	rowform.List(c, &o.Tags, (*Tag).fields)
	c.Bool(&o.Program)
	c.String(&o.ApprovalID)
	c.Bool(&o.Tainted)
	c.Bool(&o.Checked)
	c.String(&o.Stop)
	c.Bool(&o.OwnWords)
}

func (a *Attempt) fields(c *rowform.Coder) {
	c.Time(&a.At)
	c.String(&a.Host)
	c.String(&a.IP)
	c.String(&a.TLS)
	c.String(&a.Auth)
	rowform.Int(c, &a.Code)
	c.String(&a.Enhanced)
	c.String(&a.Reply)
}

// Outgoings keeps the sending log. Ids rise with time, so that pruning takes the first ones.
var (
	Outgoings = engine.NewTable("outgoing", func(o *Outgoing) string { return o.ID }).
			Binary((*Outgoing).fields).Watched(func(_ *engine.Tx, o *Outgoing) Change { return Change{Account: o.AccountID, ID: o.ID} })
	OutgoingsByAccount = Outgoings.Index("account", func(o *Outgoing) string { return o.AccountID })
	// OutgoingsWaiting are those that are queued or deferred, OutgoingsParked those that are
	// scheduled or held.
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
	OutgoingsByMessageID = Outgoings.Index("message_id", func(o *Outgoing) string { return o.AccountID + o.MessageID + "\x00" })
)

// A Mapping pairs the Message-ID that a sender gave with the one that a relay minted for one
// recipient.
type Mapping struct {
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

func (m *Mapping) fields(c *rowform.Coder) {
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

// Mappings keeps them for 90 days.
var (
	Mappings           = engine.NewTable("mapping", func(m *Mapping) string { return m.ID }).Binary((*Mapping).fields)
	MappingsByOriginal = Mappings.Index("original", func(m *Mapping) string { return m.AccountID + m.Original + "\x00" })
	MappingsByProvided = Mappings.Index("provided", func(m *Mapping) string { return m.AccountID + m.Provided + "\x00" })
)

// A Suppression keeps mail from an address that is known to be bad or unwilling.
type Suppression struct {
	AccountID string
	Email     string
	Reason    string // one of the Suppression… constants
	MessageID string
	CreatedAt time.Time
}

// Why an address is suppressed.
const (
	SuppressionBounce    = "bounce"
	SuppressionComplaint = "complaint"
	SuppressionManual    = "manual" // somebody of the account asked for it, or the recipient has unsubscribed
)

// Suppressions keeps one for an account and address.
var (
	Suppressions = engine.NewTable("suppression", func(s *Suppression) string { return s.AccountID + s.Email }).
			Watched(func(_ *engine.Tx, s *Suppression) Change { return Change{Account: s.AccountID, ID: s.Email} })
	SuppressionsByAccount = Suppressions.Index("account", func(s *Suppression) string { return s.AccountID + TimeKey(s.CreatedAt) })
)

// PendingRcpts are the recipients of a submission that have no row and no job yet, since there are
// more than one transaction makes.
type PendingRcpts struct {
	SubmissionID string        `json:",omitzero"`
	Domain       string        `json:",omitzero"` // of the sender
	To           []PendingRcpt `json:",omitempty"`
}

// A PendingRcpt is one of them, with what RFC 3461 lets a client say about it.
type PendingRcpt struct {
	Address string `json:",omitzero"`
	Notify  string `json:",omitzero"`
	ORCPT   string `json:",omitzero"`
}

// PendingRecipients keeps them by their submission.
var PendingRecipients = engine.NewTable("pending_rcpt", func(p *PendingRcpts) string { return p.SubmissionID })

// A TLSPolicy is the MTA-STS policy of a domain elsewhere (RFC 8461), kept for as long as it says.
type TLSPolicy struct {
	Domain    string        // ASCII
	ID        string        // of the TXT record that went with it
	Mode      string        // enforce testing none
	MX        []string      // host names, with "*." for any one label
	MaxAge    time.Duration // as served
	FetchedAt time.Time
	ExpiresAt time.Time
	UsedAt    time.Time // when mail last followed it, to a day
}

// TLSPolicies keeps one for a domain.
var TLSPolicies = engine.NewTable("tls_policy", func(p *TLSPolicy) string { return p.Domain })

// A TLSCount counts the TLS sessions with a domain's hosts in one day, for a report to it (RFC
// 8460).
type TLSCount struct {
	Day      string // YYYY-MM-DD, UTC
	Domain   string // ASCII
	Policies []TLSPolicyCount
}

// A TLSPolicyCount counts those under one policy.
type TLSPolicyCount struct {
	Type       string   // tlsa sts no-policy-found
	Strings    []string `json:",omitempty"` // as published
	MXHosts    []string `json:",omitempty"`
	Successful int64
	Failed     int64
	Failures   []TLSFailureCount `json:",omitempty"` // bounded: Failed may be more than their sum
}

// A TLSFailureCount counts those that failed alike.
type TLSFailureCount struct {
	Result, Host, IP, Reason string
	Sessions                 int64
}

// TLSCountID is the id of a count.
func TLSCountID(day, domain string) string { return day + " " + domain }

// TLSCounts keeps one for a day and domain, in the order of days.
var TLSCounts = engine.NewTable("tls_count", func(c *TLSCount) string { return TLSCountID(c.Day, c.Domain) })
