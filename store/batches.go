package store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// A MessageTemplate is a text with variables that messages are made of.
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

// MessageTemplates keeps them.
var (
	MessageTemplates          = engine.NewTable("message_template", func(t *MessageTemplate) string { return t.ID })
	MessageTemplatesByAccount = MessageTemplates.Index("account", func(t *MessageTemplate) string { return t.AccountID })
)

// A Batch is a request to send many messages, which a job works through.
type Batch struct {
	ID        string // bat_…
	AccountID string
	MailboxID string
	Blob      BlobRef // the request, as JSON
	CreatedAt time.Time
	ByPerson  bool `json:",omitempty"` // an owner or admin, who was signed in, sent it
	OwnWords  bool `json:",omitempty"` // see Submission
}

// Batches keeps them until they are sent; Check counts their blobs among the references.
var Batches = engine.NewTable("batch", func(b *Batch) string { return b.ID })

// A BatchItem is what became of one message of a batch.
type BatchItem struct {
	BatchID   string
	AccountID string
	Index     int
	Outcome   json.RawMessage // as the job's result has it
}

// BatchItemID is the ID of an item.
func BatchItemID(batchID string, index int) string { return fmt.Sprintf("%s %04d", batchID, index) }

// BatchItems keeps them as long as their batch, in its order.
var (
	BatchItems        = engine.NewTable("batch_item", func(i *BatchItem) string { return BatchItemID(i.BatchID, i.Index) })
	BatchItemsByBatch = BatchItems.Index("batch", func(i *BatchItem) string { return i.BatchID })
)
