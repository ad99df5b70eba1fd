package store

import (
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// An Approval is a message that a person is asked to approve or reject. It is kept until 30 days
// after the decision.
type Approval struct {
	ID           string // apr_…
	AccountID    string
	SubmissionID string
	MailboxID    string `json:",omitzero"` // the sending mailbox; "": a domain's credential sends it
	DomainID     string // of the Submission
	Status       string // one of the Approval… constants
	Reason       string // why it was held, as a reason code of the service
	Via          string // one of the ApprovalVia… constants
	TokenID      string `json:",omitzero"` // of the token or credential that sent it; "": neither did
	TokenName    string `json:",omitzero"`

	// What a person approves. Each recipient of the envelope is in exactly one of the lists.
	Sender      string
	To          []string `json:",omitempty"` // named in To
	Cc          []string `json:",omitempty"` // named in Cc
	Bcc         []string `json:",omitempty"` // named in neither
	Subject     string   `json:",omitzero"`
	Preview     string   `json:",omitzero"`
	Size        int64
	ContentHash string // SHA-256 of envelope and message, hex
	MessageID   string // with brackets
	Blob        BlobRef

	// Its rows in the sending log are the rows of its Submission with ids after BeforeRows, up to
	// and including LastRow.
	BeforeRows string
	LastRow    string

	JobID         string `json:",omitzero"` // the job that lets it expire; "": it is decided
	CreatedAt     time.Time
	ExpiresAt     time.Time
	DecidedAt     time.Time `json:",omitzero"`
	DecidedBy     string    `json:",omitzero"` // a user's id; "": the server decided
	DecidedByName string    `json:",omitzero"`
	Note          string    `json:",omitzero"`
}

// States of an approval.
const (
	ApprovalPending  = "pending"
	ApprovalApproved = "approved"
	ApprovalRejected = "rejected"
	ApprovalExpired  = "expired" // nobody decided in time
)

// How a message that is held for approval was submitted.
const (
	ApprovalViaAPI  = "api"
	ApprovalViaMCP  = "mcp"
	ApprovalViaSMTP = "smtp"
	ApprovalViaRule = "rule" // a rule, an automatic reply, or the forwarding address of a mailbox
)

// Approvals keeps the messages held for approval; Check counts their blobs among the references.
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

// ApprovalStatusKey returns the key of an account's approvals with a status.
func ApprovalStatusKey(accountID, status string) string { return accountID + status + "\x00" }
