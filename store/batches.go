package store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// A MessageTemplate is a text with variables, from which messages are composed.
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
	ByPerson  bool `json:",omitempty"` // a signed-in owner or admin sent it
	OwnWords  bool `json:",omitempty"` // see Submission
}

// Batches keeps the batches until they are sent; Check counts their blobs among the references.
var Batches = engine.NewTable("batch", func(b *Batch) string { return b.ID })

// A BatchItem is the outcome of one message of a batch.
type BatchItem struct {
	BatchID   string
	AccountID string
	Index     int
	Outcome   json.RawMessage // in the form that the job's result has
}

// BatchItemID returns the id of an item.
func BatchItemID(batchID string, index int) string { return fmt.Sprintf("%s %04d", batchID, index) }

// BatchItems keeps the items as long as their batch, in its order.
var (
	BatchItems        = engine.NewTable("batch_item", func(i *BatchItem) string { return BatchItemID(i.BatchID, i.Index) })
	BatchItemsByBatch = BatchItems.Index("batch", func(i *BatchItem) string { return i.BatchID })
)
