package mta

import (
	"fmt"
	"testing"

	"github.com/mailstead/mailstead/service/core"
)

func TestControlHeadersOfTheConfiguration(t *testing.T) {
	for _, bad := range []string{"", "X:", "X A", "fr", "Content-", "Message-ID", "d", "é-"} {
		if err := CheckRelay(core.Relay{Name: "r", Kind: "custom", ControlHeaders: []string{"X-MC-", bad}}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	r, err := newRelay(core.Relay{Name: "r", Kind: "ses", ControlHeaders: []string{"X-MC-", "Feedback-ID"}})
	if err != nil || fmt.Sprint(r.controls()) != "[x-ses- return-path X-MC- Feedback-ID]" {
		t.Errorf("%v, %v", r, err)
	}
}
