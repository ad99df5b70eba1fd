package submit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/jsonw"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/service/templates"
	"github.com/mailstead/mailstead/store"
)

const (
	kindSendBatch    = "send_batch"
	maxBatchTries    = 100     // attempts, if sending fails for an internal reason
	maxBatchBytes    = 1 << 30 // bytes of all its messages
	maxTemplateBytes = 8 << 20 // bytes of all its templates, which are stored with it
)

// SendBatchIn is the request of send_email_batch: complete messages, or one message or template for
// many recipients, who each get their own message.
type SendBatchIn struct {
	UserID     string           `path:"user_id"`
	Messages   []SendEmailIn    `json:"messages" min:"1" max:"100" items:"each"`
	TemplateID string           `json:"template_id" example:"mtl_01k9a2b3c4d5e6f7g8h9j0k1m2" log:"true"` // The message template that the messages are made of.
	Message    *BatchMessage    `json:"message"`
	Recipients []BatchRecipient `json:"recipients" min:"1" max:"1000" items:"each"`
	From       string           `json:"from"`
	SendAt     *core.Time       `json:"send_at" log:"true"` // When they are sent; at once unless given.
}

// A BatchMessage is the message that all recipients of a batch get. It may contain variables like a
// template.
type BatchMessage struct {
	Subject     string            `json:"subject" required:"true"`
	Text        string            `json:"text"`
	HTML        string            `json:"html"` // Sanitised for received messages; still do not trust it.
	ReplyTo     Texts             `json:"reply_to"`
	Headers     map[string]string `json:"headers"`
	Attachments []SendAttachment  `json:"attachments" max:"500"`
}

// A BatchRecipient is one recipient of a batch.
type BatchRecipient struct {
	To        string              `json:"to" required:"true"`
	Variables templates.Variables `json:"variables"` // Values by the names of the variables: texts, numbers or booleans.
}

// A BatchResult is the result of the job of a batch.
type BatchResult struct {
	Sent   int               `json:"sent"`
	Failed int               `json:"failed"`
	Items  []json.RawMessage `json:"items"`
}

// A BatchOutcome is the result for one item of a batch.
type BatchOutcome struct {
	Index     int           `json:"index"`
	Status    string        `json:"status"` // queued scheduled suppressed failed
	MessageID *string       `json:"message_id"`
	IDs       []string      `json:"ids"` // of its rows in the sending log
	Error     *BatchFailure `json:"error"`
}

// A BatchFailure says why an item was not sent.
type BatchFailure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// A storedBatch is a batch as it is stored until its job has sent it, with the templates as they
// were when the batch was accepted.
type storedBatch struct {
	SendBatchIn
	Templates map[string]templates.Content `json:"templates"` // by ID
}

// itemCount returns the number of messages in a batch.
func (in *SendBatchIn) itemCount() int { return max(len(in.Messages), len(in.Recipients)) }

// item returns message i of a batch as a request to send it alone.
func (in *SendBatchIn) item(i int, forms batchForms) SendEmailIn {
	if len(in.Messages) > 0 {
		one := in.Messages[i]
		one.UserID = in.UserID
		return one
	}
	r := in.Recipients[i]
	out := SendEmailIn{UserID: in.UserID, To: Texts{r.To}, Variables: r.Variables, TemplateID: in.TemplateID, SendAt: in.SendAt, From: in.From}
	if in.Message != nil {
		out.form = forms[""]
		out.ReplyTo, out.Headers, out.Attachments = in.Message.ReplyTo, in.Message.Headers, in.Message.Attachments
	}
	return out
}

func (m *BatchMessage) content() templates.Content {
	return templates.Content{Subject: m.Subject, Text: m.Text, HTML: m.HTML}
}

// templateIDs returns the IDs of the templates that a batch uses.
func (in *SendBatchIn) templateIDs() []string {
	ids := []string{in.TemplateID}
	for _, one := range in.Messages {
		ids = append(ids, one.TemplateID)
	}
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return id == "" })
}

// batchForms are the parsed templates of a batch, by ID. The key "" has the batch's own message.
type batchForms map[string]*templates.Form

// parseForms parses the templates and the message of a batch.
func (b *storedBatch) parseForms() (batchForms, error) {
	forms := batchForms{}
	for id, c := range b.Templates {
		f, err := c.Form()
		if err != nil {
			return nil, err
		}
		forms[id] = f
	}
	if b.Message != nil {
		f, err := b.Message.content().Form()
		if err != nil {
			return nil, err
		}
		forms[""] = f
	}
	return forms, nil
}

// checkSize returns an error if the messages of a batch are too large in total. The request itself
// may be small: it has a text or file for all recipients, or a value that a template repeats, only
// once. A message with invalid variables is not counted, since it cannot be sent.
func (b *storedBatch) checkSize() error {
	forms, err := b.parseForms()
	if err != nil {
		return err
	}
	total := int64(0)
	for i := range b.itemCount() {
		one := b.item(i, forms)
		if one.TemplateID != "" {
			one.form = forms[one.TemplateID]
		}
		if texts, files, err := one.estimateSizes(); err == nil {
			total += texts + files
		}
		if total > maxBatchBytes {
			return core.Errorf("payload_too_large", "The messages of a batch can have at most %d MiB together. Send a link to large files, use shorter values, or send to fewer recipients at a time.", maxBatchBytes>>20)
		}
	}
	return nil
}

// checkFields returns an error if fields of a batch contradict each other or are missing.
func (in *SendBatchIn) checkFields(now time.Time) error {
	switch forRecipients := len(in.Recipients) > 0; {
	case forRecipients == (len(in.Messages) > 0):
		return core.Invalid("messages", "required", "give messages, or recipients with template_id or message")
	case !forRecipients && (in.TemplateID != "" || in.Message != nil || in.From != "" || in.SendAt != nil):
		return core.Invalid("messages", "conflict", "cannot be combined with template_id, message, from and send_at")
	case forRecipients && (in.TemplateID == "") == (in.Message == nil):
		return core.Invalid("template_id", "required", "give template_id or message, and not both")
	}
	if m := in.Message; m != nil {
		if m.Text == "" && m.HTML == "" {
			return core.Invalid("message.text", "required", "a message must have text, html or both")
		}
		if _, err := m.content().Form(); err != nil {
			return err
		}
	}
	_, err := core.ParseSendAt(now, in.SendAt)
	return err
}

// SendEmailBatch accepts many messages at once, which a job sends. If one cannot be sent, the
// others are; the job's result says which failed and why.
func (s *Service) SendEmailBatch(ctx context.Context, who core.Actor, in SendBatchIn) (*core.JobResponse, error) {
	if err := in.checkFields(s.Now()); err != nil {
		return nil, err
	}
	kept := storedBatch{SendBatchIn: in, Templates: map[string]templates.Content{}}

	// Check first, so that a refused request writes nothing. A missing template is an error only of
	// the messages that use it.
	err := s.Store.View(func(tx *store.Tx) error {
		all := 0
		if _, err := core.ReadMailbox(tx, who, in.UserID); err != nil {
			return err
		}
		mb, _, err := s.activeSender(tx, core.MailboxUser{AccountID: who.AccountID, MailboxID: in.UserID})
		if err != nil {
			return err
		}
		if err := checkUnrestricted(tx, mb, who); err != nil {
			return err
		}
		as, err := core.SendersOf(tx, mb)
		if err != nil {
			return err
		}
		if _, err := as.Author(mb, in.From); err != nil {
			return err
		}
		for _, id := range in.templateIDs() {
			c, err := findTemplate(tx, who.AccountID, id)
			if _, ours := core.AsError(err); ours && id != in.TemplateID {
				continue
			}
			if err != nil {
				return err
			}
			all += len(c.Text) + len(c.HTML)
			if all > maxTemplateBytes {
				return core.Errorf("payload_too_large", "The templates of a batch can have at most %d MiB together. Send several batches.", maxTemplateBytes>>20)
			}
			kept.Templates[id] = c
		}
		return nil
	})
	if err == nil {
		err = kept.checkSize()
	}
	if err != nil {
		return nil, err
	}
	spool := s.Store.NewSpool(maxBatchBytes)
	defer spool.Close()
	if err := jsonw.Write(spool, kept); err != nil {
		return nil, core.StoreErrorOverSMTP(err)
	}
	blob, err := s.Store.Append([]byte("{}"), spool)
	if err != nil {
		return nil, core.StoreErrorOverSMTP(err)
	}
	defer s.Store.Release(blob) // no effect if the batch was stored

	var out core.JobResponse
	err = s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		if _, err := core.ReadMailbox(tx, who, in.UserID); err != nil {
			return err
		}
		mb, _, err := s.activeSender(tx, core.MailboxUser{AccountID: who.AccountID, MailboxID: in.UserID})
		if err != nil {
			return err
		}
		by := sentByActor(who)
		b := &store.Batch{ID: tx.NewID("bat"), AccountID: who.AccountID, MailboxID: mb.ID, Blob: blob, CreatedAt: tx.Now(), ByPerson: by.person, OwnWords: by.ownWords, RequestID: by.requestID}
		if err := store.BatchBlobs.Ref(tx, blob, b.ID); err != nil {
			return err
		}
		if err := store.Batches.Put(tx, b); err != nil {
			return err
		}
		j, err := s.Queue.Add(tx, jobs.New{
			AccountID: who.AccountID, Kind: kindSendBatch, Lane: "batch " + mb.ID, Args: batchArgs{b.ID}, CreatedBy: who.UserID, Total: in.itemCount(),
			Resource: store.JobResource{Type: "batch", ID: b.ID, Name: fmt.Sprintf("%d messages of %s", in.itemCount(), mb.Email)},
		})
		if err != nil {
			return err
		}
		out = core.JobOut(j)
		return once.KeepAnswer(ctx, s.Core, tx, &out)
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// A parentBatch says which batch a message belongs to: when the batch was accepted, and its
// templates at that time. It also says who sent the batch.
type parentBatch struct {
	acceptedAt time.Time
	forms      batchForms
	byPerson   bool
	ownWords   bool
	requestID  string
}

// batchArgs are the arguments of a job that sends a batch.
type batchArgs struct {
	BatchID string `json:"batch_id"`
}

func (s *Service) batchKind() jobs.Kind {
	return jobs.Kind{
		Name: kindSendBatch, Work: s.sendBatch, Timeout: time.Hour, Visible: true, Most: 4, MostEach: 2, Max: maxBatchTries,
		Failed: func(tx *store.Tx, j *store.Job, _ error) error {
			args, err := jobs.Args[batchArgs](j)
			if err != nil {
				return nil // invalid arguments: no batch to delete
			}
			return deleteBatch(tx, args.BatchID)
		},
	}
}

// sendBatch sends the messages of a batch one after the other. The transaction that accepts a
// message also records it, so that none is sent twice.
func (s *Service) sendBatch(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[batchArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var b *store.Batch
	done := map[int]bool{}
	err = s.Store.View(func(tx *store.Tx) (err error) {
		b, err = store.Batches.Get(tx, args.BatchID)
		if err != nil {
			return err
		}
		for _, it := range store.BatchItemsByBatch.Asc(tx, b.ID, "") {
			done[it.Index] = true
		}
		return nil
	})
	if core.IsGone(err) {
		return nil, jobs.Permanent(err)
	}
	if err != nil {
		return nil, err
	}
	for next, items := 0, 1; next < items; {
		next, items, err = s.sendTurn(core.WithUnlimitedWait(ctx), b, next, done)
		if err != nil {
			return nil, err
		}
	}
	return func(tx *store.Tx, j *store.Job) error {
		out := BatchResult{Items: []json.RawMessage{}}
		for _, it := range store.BatchItemsByBatch.Asc(tx, b.ID, "") {
			var o BatchOutcome
			if err := json.Unmarshal(it.Outcome, &o); err != nil {
				return fmt.Errorf("decode outcome %d of batch %s: %w", it.Index, b.ID, err)
			}
			switch o.Status {
			case "failed":
				out.Failed++
			case store.OutgoingQueued, store.OutgoingScheduled:
				out.Sent++
			}
			out.Items = append(out.Items, it.Outcome)
		}
		j.Result, err = json.Marshal(out)
		if err != nil {
			return fmt.Errorf("encode batch result: %w", err)
		}
		return deleteBatch(tx, b.ID)
	}, nil
}

// batchTurnLength is how long a large batch may use memory before other large requests get their
// turn.
const batchTurnLength = 2 * time.Second

// sendTurn sends the remaining messages of a batch from index next on, until all are sent or its
// turn ends. It skips those in done. left is the index of the first message that remains, items the
// number of messages of the batch.
func (s *Service) sendTurn(ctx context.Context, b *store.Batch, next int, done map[int]bool) (left, items int, err error) {
	ctx, leave, err := s.HoldLarge(ctx, int64(b.Blob.Length))
	if err != nil {
		return next, 0, err
	}
	defer leave()
	in, err := s.readBatch(ctx, b)
	if err != nil {
		return next, 0, err
	}
	forms, err := in.parseForms()
	if err != nil {
		return next, 0, jobs.Permanent(err)
	}
	who := core.Actor{AccountID: b.AccountID}
	for began := time.Now(); next < in.itemCount() && time.Since(began) < batchTurnLength; next++ {
		if ctx.Err() != nil {
			return next, 0, ctx.Err()
		}
		if done[next] {
			continue
		}
		one := in.item(next, forms)
		one.batch = &parentBatch{b.CreatedAt, forms, b.ByPerson, b.OwnWords, b.RequestID}
		_, err := s.sendEmail(ctx, who, one, func(tx *store.Tx, out *EmailQueued) error { return recordSent(tx, b, next, out) })
		if refused, ours := core.AsError(err); ours {
			err = s.Store.Update(func(tx *store.Tx) error {
				return recordOutcome(tx, b, BatchOutcome{Index: next, Status: "failed", IDs: []string{}, Error: &BatchFailure{refused.Code, refused.Message}})
			})
		}
		if err != nil {
			return next, 0, err
		}
		jobs.Progress(ctx, next+1, in.itemCount(), "")
	}
	return next, in.itemCount(), nil
}

// readBatch reads the stored request of a batch.
func (s *Service) readBatch(ctx context.Context, b *store.Batch) (*storedBatch, error) {
	_, leave, err := s.WorkOnLarge(ctx, int64(b.Blob.Length))
	if err != nil {
		return nil, err
	}
	defer leave()
	blob, err := s.Store.OpenBlob(b.Blob)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	text := make([]byte, blob.Size())
	if _, err := blob.ReadAt(text, 0); err != nil {
		return nil, fmt.Errorf("read batch %s: %w", b.ID, err)
	}
	in := &storedBatch{}
	if err := json.Unmarshal(text, in); err != nil {
		return nil, jobs.Permanent(fmt.Errorf("read batch %s: %w", b.ID, err))
	}
	in.UserID = b.MailboxID
	return in, nil
}

// recordSent records that a message of a batch was accepted.
func recordSent(tx *store.Tx, b *store.Batch, index int, sent *EmailQueued) error {
	o := BatchOutcome{Index: index, Status: store.OutgoingSuppressed, MessageID: &sent.MessageID, IDs: []string{}}
	for _, r := range sent.Recipients {
		o.IDs = append(o.IDs, r.ID)
		if r.Status != store.OutgoingSuppressed {
			o.Status = r.Status
		}
	}
	return recordOutcome(tx, b, o)
}

func recordOutcome(tx *store.Tx, b *store.Batch, o BatchOutcome) error {
	known, err := store.BatchItems.Find(tx, store.BatchItemID(b.ID, o.Index))
	if err == nil && known != nil {
		err = fmt.Errorf("message %d of batch %s is recorded already", o.Index, b.ID)
	}
	if err != nil {
		return err
	}
	outcome, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode batch outcome: %w", err)
	}
	return store.BatchItems.Put(tx, &store.BatchItem{BatchID: b.ID, AccountID: b.AccountID, Index: o.Index, Outcome: outcome})
}

// deleteBatch deletes a batch and its items.
func deleteBatch(tx *store.Tx, id string) error {
	b, err := store.Batches.Find(tx, id)
	if b == nil || err != nil {
		return err
	}
	var ids []string
	for _, it := range store.BatchItemsByBatch.Asc(tx, id, "") {
		ids = append(ids, store.BatchItemID(id, it.Index))
	}
	if err := core.DeleteAll(tx, store.BatchItems, ids); err != nil {
		return err
	}
	if err := store.BatchBlobs.Unref(tx, b.Blob, id); err != nil {
		return err
	}
	return store.Batches.Delete(tx, id)
}
