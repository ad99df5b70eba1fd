package store

import "time"

// A Submission is one message that somebody sent, whose bytes are kept while any recipient waits.
type Submission struct {
	ID         string // sub_…
	AccountID  string
	MailboxID  string
	DomainID   string
	MessageID  string // RFC 5322, with brackets
	Sender     string // return path; "" for a DSN
	Subject    string
	Blob       BlobRef // unsigned message; zero once no recipient waits
	EightBit   bool
	SMTPUTF8   bool
	EnvelopeID string // RFC 3461 ENVID
	Ret        string // RFC 3461 RET
	Waiting    int    // recipients that are not done
	CreatedAt  time.Time
}

// Submissions keeps them; Check counts their blobs among the references.
var Submissions = newTable("submission", func(s *Submission) string { return s.ID })

// An Outgoing is the sending log's row for one recipient of a submission.
type Outgoing struct {
	ID                string // msg_…
	SubmissionID      string
	AccountID         string
	MailboxID         string
	MessageID         string
	Sender            string
	Recipient         string
	Subject           string
	Domain            string // sending domain
	Notify            string // RFC 3461 NOTIFY
	ORCPT             string // RFC 3461 ORCPT
	Status            string // queued sent delivered relayed captured deferred bounced complained suppressed cancelled
	Transport         string // direct relay local capture
	Provider          string // the relay's name
	ProviderMessageID string
	Attempts          int
	LastResponse      string
	JobID             string
	NextAt            time.Time
	DelayTold         bool
	QueuedAt          time.Time
	UpdatedAt         time.Time
	Log               []Attempt // newest last, bounded
}

// An Attempt is one try to hand a message on.
type Attempt struct {
	At              time.Time
	Host, TLS       string
	Code            int
	Enhanced, Reply string
}

// Outgoings keeps the sending log.
var (
	Outgoings          = newTable("outgoing", func(o *Outgoing) string { return o.ID })
	OutgoingsByAccount = Outgoings.index("account", func(o *Outgoing) string { return o.AccountID })
	OutgoingsWaiting   = Outgoings.index("waiting", func(o *Outgoing) string {
		if o.Status != "queued" && o.Status != "deferred" {
			return ""
		}
		return o.AccountID
	})
	OutgoingsBySubmission = Outgoings.index("submission", func(o *Outgoing) string { return o.SubmissionID })
	OutgoingsByMessageID  = Outgoings.index("message_id", func(o *Outgoing) string { return o.AccountID + o.MessageID + "\x00" })
)

// A Mapping pairs the Message-ID that a sender gave with the one that a relay minted for one recipient.
type Mapping struct {
	ID            string // map_…
	AccountID     string
	Original      string // with brackets
	Provided      string // with brackets
	Provider      string
	Recipient     string
	Sender        string
	SendingDomain string
	RelayedAt     time.Time
}

// Mappings keeps them for 90 days.
var (
	Mappings           = newTable("mapping", func(m *Mapping) string { return m.ID })
	MappingsByOriginal = Mappings.index("original", func(m *Mapping) string { return m.AccountID + m.Original + "\x00" })
	MappingsByProvided = Mappings.index("provided", func(m *Mapping) string { return m.AccountID + m.Provided + "\x00" })
)

// A Suppression keeps mail from an address that is known to be bad or unwilling.
type Suppression struct {
	AccountID string
	Email     string
	Reason    string // bounce complaint manual
	MessageID string
	CreatedAt time.Time
}

// Suppressions keeps one for an account and address.
var (
	Suppressions          = newTable("suppression", func(s *Suppression) string { return s.AccountID + s.Email })
	SuppressionsByAccount = Suppressions.index("account", func(s *Suppression) string { return s.AccountID + TimeKey(s.CreatedAt) })
)
