package store

import (
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// An Approval is a held message that a person is asked to approve or reject. The record is kept
// until 30 days after the decision.
type Approval struct {
	ID           string // apr_…
	AccountID    string
	SubmissionID string
	MailboxID    string `json:",omitzero"` // the sending mailbox; "": a domain's credential sends it
	DomainID     string // the DomainID of its Submission
	Status       string // one of the Approval… constants
	Reason       string // code of the reason for which it was held
	Via          string // one of the ApprovalVia… constants
	TokenID      string `json:",omitzero"` // id of the token or credential that sent it; "": neither was used
	TokenName    string `json:",omitzero"`

	// The fields from Sender to Blob are what the person approves. Each recipient of the envelope
	// is in exactly one of To, Cc and Bcc.
	Sender      string
	To          []string `json:",omitempty"` // recipients that the header field To names
	Cc          []string `json:",omitempty"` // recipients that the header field Cc names
	Bcc         []string `json:",omitempty"` // the other recipients
	Subject     string   `json:",omitzero"`
	Preview     string   `json:",omitzero"`
	Size        int64
	ContentHash string // SHA-256 of envelope and message, hex
	MessageID   string // with brackets
	Blob        BlobRef

	// BeforeRows and LastRow delimit the rows of this approval in the sending log: the rows of its
	// Submission with ids greater than BeforeRows, up to and including LastRow.
	BeforeRows string
	LastRow    string

	JobID         string `json:",omitzero"` // id of the job that expires it; "": it is decided
	CreatedAt     time.Time
	ExpiresAt     time.Time
	DecidedAt     time.Time `json:",omitzero"`
	DecidedBy     string    `json:",omitzero"` // id of the user; "": the server decided
	DecidedByName string    `json:",omitzero"`
	Note          string    `json:",omitzero"`
}

// Values of Approval.Status.
const (
	ApprovalPending  = "pending"
	ApprovalApproved = "approved"
	ApprovalRejected = "rejected"
	ApprovalExpired  = "expired" // nobody decided in time
)

// Values of Approval.Via: how the held message was submitted.
const (
	ApprovalViaAPI  = "api"
	ApprovalViaMCP  = "mcp"
	ApprovalViaSMTP = "smtp"
	ApprovalViaRule = "rule" // a rule, an automatic reply, or the forwarding address of a mailbox
)

// Approvals keeps the messages held for approval. Check verifies that the Blob of each has a
// reference.
var (
	Approvals = engine.NewTable("approval", func(a *Approval) string { return a.ID }).
			Watched(func(_ *engine.Tx, a *Approval) Change { return Change{Account: a.AccountID, ID: a.ID} })
	ApprovalsByAccount = Approvals.Index("account", func(a *Approval) string { return a.AccountID })
	ApprovalsByStatus  = Approvals.Index("status", func(a *Approval) string { return ApprovalStatusKey(a.AccountID, a.Status) })
	// ApprovalsDecided holds the decided approvals, the earliest decision first.
	ApprovalsDecided = Approvals.Index("decided", func(a *Approval) string {
		if a.DecidedAt.IsZero() {
			return ""
		}
		return TimeKey(a.DecidedAt)
	})
)

// ApprovalStatusKey returns the key in ApprovalsByStatus of those approvals of an account that have
// this status.
func ApprovalStatusKey(accountID, status string) string { return accountID + status + "\x00" }
