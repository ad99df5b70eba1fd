package store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// A MessageTemplate is a text with variables, from which messages are made.
type MessageTemplate struct {
	ID        string // mtl_…
	AccountID string
	Name      string
	Subject   string
	Text      string `json:",omitempty"`
	HTML      string `json:",omitempty"`
	CreatedAt time.Time
	UpdatedAt time.Time
}

// MessageTemplates keeps the templates of every account.
var (
	MessageTemplates          = engine.NewTable("message_template", func(t *MessageTemplate) string { return t.ID })
	MessageTemplatesByAccount = MessageTemplates.Index("account", func(t *MessageTemplate) string { return t.AccountID })
)

// A Batch is a request to send many messages, which a job processes.
type Batch struct {
	ID        string // bat_…
	AccountID string
	MailboxID string
	Blob      BlobRef // the request as JSON
	CreatedAt time.Time
	ByPerson  bool   `json:",omitempty"` // a signed-in owner or admin sent it
	OwnWords  bool   `json:",omitempty"` // see Submission.OwnWords
	RequestID string `json:",omitempty"` // see Submission.RequestID
}

// Batches keeps each batch until its messages are sent. Check verifies that the Blob of each batch
// has a reference.
var Batches = engine.NewTable("batch", func(b *Batch) string { return b.ID })

// A BatchItem is the outcome of one message of a batch.
type BatchItem struct {
	BatchID   string
	AccountID string
	Index     int
	Outcome   json.RawMessage // JSON, as in the result of the job
}

// BatchItemID returns the id of the item with this index in a batch.
func BatchItemID(batchID string, index int) string { return fmt.Sprintf("%s %04d", batchID, index) }

// BatchItems keeps the items as long as their batch, sorted by batch and index.
var (
	BatchItems        = engine.NewTable("batch_item", func(i *BatchItem) string { return BatchItemID(i.BatchID, i.Index) })
	BatchItemsByBatch = BatchItems.Index("batch", func(i *BatchItem) string { return i.BatchID })
)
