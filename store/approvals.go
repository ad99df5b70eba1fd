package store

import (
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// An Approval is a message that a person is to approve or reject, kept until 30 days after that was
// decided.
type Approval struct {
	ID           string // apr_…
	AccountID    string
	SubmissionID string
	MailboxID    string `json:",omitzero"` // that sends it; "": a domain's credential does
	DomainID     string // of the Submission
	Status       string // one of the Approval… constants
	Reason       string // why it was held, as the service names it
	Via          string // one of the ApprovalVia… constants
	TokenID      string `json:",omitzero"` // of the token or credential that sent it; "": none did
	TokenName    string `json:",omitzero"`

	// What a person approves. The recipients are those of the envelope, each in one of the lists.
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

	// Its rows of the sending log are those of its Submission behind the id BeforeRows, up to
	// LastRow.
	BeforeRows string
	LastRow    string

	JobID         string `json:",omitzero"` // has it expire; "": it is decided
	CreatedAt     time.Time
	ExpiresAt     time.Time
	DecidedAt     time.Time `json:",omitzero"`
	DecidedBy     string    `json:",omitzero"` // a user's id; "": the server did
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

// How a message came that was held for approval.
const (
	ApprovalViaAPI  = "api"
	ApprovalViaMCP  = "mcp"
	ApprovalViaSMTP = "smtp"
	ApprovalViaRule = "rule" // or an automatic answer, or the address that a mailbox forwards to
)

// Approvals keeps them; Check counts their blobs among the references.
var (
	Approvals = engine.NewTable("approval", func(a *Approval) string { return a.ID }).
			Watched(func(_ *engine.Tx, a *Approval) Change { return Change{Account: a.AccountID, ID: a.ID} })
	ApprovalsByAccount = Approvals.Index("account", func(a *Approval) string { return a.AccountID })
	ApprovalsByStatus  = Approvals.Index("status", func(a *Approval) string { return ApprovalStatusKey(a.AccountID, a.Status) })
	// ApprovalsDecided has those that are decided, the first one first.
	ApprovalsDecided = Approvals.Index("decided", func(a *Approval) string {
		if a.DecidedAt.IsZero() {
			return ""
		}
		return TimeKey(a.DecidedAt)
	})
)

// ApprovalStatusKey is the key of an account's approvals of a status.
func ApprovalStatusKey(accountID, status string) string { return accountID + status + "\x00" }
