package once_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/servicetest"
)

// TestAnswerIsKeptWithWhatItAnswersFor: a crash right after the transaction of an operation does
// not lose its answer.
func TestAnswerIsKeptWithWhatItAnswersFor(t *testing.T) {
	i, answers := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}}), 0
	s := i.Svc
	who := core.Actor{AccountID: i.Account.AccountID, TokenID: "tok_x"}
	req := once.New(once.ID(who, "POST", "/v1/webhooks", "key"), []byte("body"), func(out any) (once.Answer, error) {
		answers++
		body, err := json.Marshal(out)
		return once.Answer{Status: 201, ContentType: "application/json", Body: body}, err
	})
	out, err := s.Events.CreateWebhook(req.Context(context.Background()), who, events.CreateWebhookIn{URL: "https://hook.test", Events: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := once.Replay(s.Core, req)
	if err != nil || kept == nil || kept.Status != 201 || string(kept.Body) != string(want) || answers == 0 {
		t.Errorf("kept %+v, %v; want %s", kept, err, want)
	}
	if err := once.KeepIfUnstored(s.Core, req, once.Answer{Status: 500}); err != nil {
		t.Fatal(err)
	}
	kept, err = once.Replay(s.Core, req)
	if err != nil || kept.Status != 201 {
		t.Errorf("kept again: %+v, %v", kept, err)
	}
	if _, err := once.Replay(s.Core, once.New(req.ID, []byte("other"), nil)); err == nil {
		t.Error("another body under the same key is no error")
	}
}
