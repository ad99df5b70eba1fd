package submit_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/service/templates"
	"github.com/mailstead/mailstead/store"
)

// outcome waits for the job of a batch and returns its result.
func outcome(i *servicetest.Installation, id string) (out submit.BatchResult, items []submit.BatchOutcome) {
	i.T.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var j *store.Job
		if err := i.St.View(func(tx *store.Tx) (err error) { j, err = store.Jobs.Get(tx, id); return err }); err != nil {
			i.T.Fatal(err)
		}
		if j.State == store.JobCompleted {
			if err := json.Unmarshal(j.Result, &out); err != nil {
				i.T.Fatal(err)
			}
			break
		}
		if time.Now().After(end) {
			i.T.Fatalf("the job is %s", j.State)
		}
	}
	for _, raw := range out.Items {
		var o submit.BatchOutcome
		if err := json.Unmarshal(raw, &o); err != nil {
			i.T.Fatal(err)
		}
		items = append(items, o)
	}
	return out, items
}

// TestBatchIsJudgedWhenTaken: its job starts late, after the scheduled time of its messages, and
// after their template has changed.
func TestBatchIsJudgedWhenTaken(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	i := servicetest.InstallWith(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}}, store.Options{Now: func() time.Time { return now }})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	who, ctx := servicetest.Actor(i.Account), context.Background()
	text := "before {{n}}"
	made, err := i.Svc.Templates.CreateMessageTemplate(ctx, who, templates.CreateMessageTemplateIn{Name: "n", Subject: "s", Text: text})
	if err != nil {
		t.Fatal(err)
	}
	batch := func(in submit.SendBatchIn) string {
		in.UserID = ann.ID
		job, err := i.Svc.Submit.SendEmailBatch(ctx, who, in)
		if err != nil {
			t.Fatal(err)
		}
		return job.JobID
	}
	soon := servicetest.At(now.Add(time.Second))
	one := submit.BatchRecipient{To: "a@far.test", Variables: templates.Variables{"n": templates.Text("1")}}
	first := batch(submit.SendBatchIn{TemplateID: made.ID, Recipients: []submit.BatchRecipient{one}, SendAt: soon})
	second := batch(submit.SendBatchIn{Messages: []submit.SendEmailIn{
		{To: submit.Texts{"b@far.test"}, Subject: "s", SendAt: soon},
		{To: submit.Texts{"c@far.test"}, Subject: "s", SendAt: servicetest.At(now.Add(-time.Second))},
		{To: submit.Texts{"d@far.test"}, TemplateID: made.ID, Variables: templates.Variables{"n": templates.Text("2")}},
		{To: submit.Texts{"e@far.test"}, TemplateID: "mtl_none"},
		{To: submit.Texts{"f@far.test"}, Subject: "s", SendAt: servicetest.At(now.Add(time.Hour))},
	}})
	if _, err := i.Svc.Templates.DeleteMessageTemplate(ctx, who, templates.MessageTemplateIn{ID: made.ID}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	i.Run()
	_, items := outcome(i, first)
	if items[0].Status != "queued" {
		t.Errorf("what was due before the job came is %+v %+v", items[0], items[0].Error)
	}
	out, items := outcome(i, second)
	got := ""
	for _, o := range items {
		got += o.Status + " "
	}
	if got != "queued failed queued failed scheduled " || out.Sent != 3 || out.Failed != 2 {
		t.Errorf("%s, %+v", got, items)
	}
	i.Becomes("a@far.test", store.OutgoingCaptured)
	i.Becomes("b@far.test", store.OutgoingCaptured)
	sent := i.Folder(ann, "Sent")
	if len(sent) != 3 {
		t.Errorf("%d copies", len(sent))
	}
}

// TestBatchInTwoRuns: a batch whose job is interrupted continues where it was.
func TestBatchInTwoRuns(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	const n = 300
	in := submit.SendBatchIn{UserID: ann.ID, Message: &submit.BatchMessage{Subject: "s", Text: "t"}}
	for r := range n {
		in.Recipients = append(in.Recipients, submit.BatchRecipient{To: fmt.Sprintf("r%d@far.test", r)})
	}
	job, err := i.Svc.Submit.SendEmailBatch(context.Background(), servicetest.Actor(i.Account), in)
	if err != nil {
		t.Fatal(err)
	}
	rows := func() (n int) {
		if err := i.St.View(func(tx *store.Tx) error {
			n = 0
			for range store.Outgoings.All(tx) {
				n++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	i.Run()
	for rows() < n/10 {
		time.Sleep(time.Millisecond)
	}
	i.Crash(i.Stall())
	between := rows()
	if between == n {
		t.Fatal("it was over before the crash")
	}
	i.Run()
	out, items := outcome(i, job.JobID)
	if out.Sent != n || len(items) != n || rows() != n {
		t.Errorf("%d sent, %d items, %d rows; %d before the crash", out.Sent, len(items), rows(), between)
	}
}

// TestBatchIsBoundedWhenTaken: a batch whose messages are too large in total is refused at once,
// even if its request is small; one message that is too large fails alone.
func TestBatchIsBoundedWhenTaken(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	who, ctx := servicetest.Actor(i.Account), context.Background()
	made, err := i.Svc.Templates.CreateMessageTemplate(ctx, who, templates.CreateMessageTemplateIn{Name: "n", Subject: "s", Text: strings.Repeat("{{v}}", 100_000)})
	if err != nil {
		t.Fatal(err)
	}
	long := templates.Variables{"v": templates.Text(strings.Repeat("a", 900<<10))}
	file := base64.StdEncoding.EncodeToString(make([]byte, 2<<20))
	attached := &submit.BatchMessage{Subject: "s", Text: "t", Attachments: []submit.SendAttachment{{Filename: "f", Content: &file}}}
	var many []submit.BatchRecipient
	for n := range 1000 {
		many = append(many, submit.BatchRecipient{To: fmt.Sprintf("r%d@far.test", n), Variables: templates.Variables{"v": templates.Text("a long value of one recipient")}})
	}
	for name, in := range map[string]submit.SendBatchIn{
		"a template and a value":     {TemplateID: made.ID, Recipients: []submit.BatchRecipient{{To: "a@far.test", Variables: long}}},
		"a message and a value":      {Message: &submit.BatchMessage{Subject: "s", HTML: strings.Repeat("{{v}}", 100_000)}, Recipients: []submit.BatchRecipient{{To: "a@far.test", Variables: long}}},
		"a template in a message":    {Messages: []submit.SendEmailIn{{To: submit.Texts{"a@far.test"}, TemplateID: made.ID, Variables: long}}},
		"a template and recipients":  {TemplateID: made.ID, Recipients: many},
		"a file for many recipients": {Message: attached, Recipients: many},
	} {
		in.UserID = ann.ID
		began := time.Now()
		if _, err := i.Svc.Submit.SendEmailBatch(ctx, who, in); core.Explain(err).Code != "payload_too_large" {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: refused in %v", name, time.Since(began))
	}
	if _, err := i.Svc.Submit.SendEmail(ctx, who, submit.SendEmailIn{UserID: ann.ID, To: submit.Texts{"a@far.test"}, TemplateID: made.ID, Variables: long}); core.Explain(err).Code != "payload_too_large" {
		t.Errorf("one message: %v", err)
	}
	if _, err := i.Svc.Templates.PreviewMessageTemplate(ctx, who, templates.PreviewMessageTemplateIn{ID: made.ID, Variables: long}); core.Explain(err).Code != "payload_too_large" {
		t.Errorf("a preview: %v", err)
	}

	i.Run()
	job, err := i.Svc.Submit.SendEmailBatch(ctx, who, submit.SendBatchIn{UserID: ann.ID, TemplateID: made.ID, Recipients: []submit.BatchRecipient{
		{To: "a@far.test", Variables: templates.Variables{"v": templates.Text(strings.Repeat("a", 300))}},
		{To: "b@far.test", Variables: templates.Variables{"v": templates.Text("a")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, items := outcome(i, job.JobID)
	if items[0].Status != "failed" || items[0].Error.Code != "payload_too_large" || items[1].Status != "queued" {
		t.Errorf("%+v, %+v", items, items[0].Error)
	}
}
