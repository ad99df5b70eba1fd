package domains_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
)

func TestConfirmationEndsAfterTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := servicetest.New(t, nil)
		who := core.Actor{AccountID: "acc_a", TokenID: "tok_a"}
		token, until := b.Core.Confirmation(who, "setup_domain", []byte(`{}`))
		if left := time.Until(until.Time); left <= core.ConfirmationTTL-time.Second || left > core.ConfirmationTTL {
			t.Errorf("good for %v", left)
		}
		time.Sleep(core.ConfirmationTTL - time.Second)
		if err := b.Core.UseConfirmation(who, "setup_domain", []byte(`{}`), token); err != nil {
			t.Error(err)
		}
		if b.Core.UseConfirmation(who, "delete_domain", []byte(`{}`), token) == nil {
			t.Error("it confirms another operation")
		}
		e, ok := core.AsError(b.Core.UseConfirmation(who, "setup_domain", []byte(`{}`), token))
		if !ok || e.Details[0].Code != "used" {
			t.Errorf("a second time: %v", e)
		}
		token, _ = b.Core.Confirmation(who, "setup_domain", []byte(`{}`))
		time.Sleep(core.ConfirmationTTL)
		e, ok = core.AsError(b.Core.UseConfirmation(who, "setup_domain", []byte(`{}`), token))
		if !ok || e.Code != "validation_error" || e.Details[0].Code != "expired" {
			t.Errorf("after ten minutes: %v", e)
		}
	})
}
