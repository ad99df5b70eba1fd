package outbound

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/tlsrpt"
	"github.com/mailstead/mailstead/store"
)

func TestTLSCountsAreBounded(t *testing.T) {
	row := &store.TLSCount{}
	for n := range 1000 {
		AddSession(row, deliver.Session{Policy: tlsrpt.PolicyTLSA, Strings: []string{fmt.Sprint(n % 10)}, Host: fmt.Sprint(n), Result: tlsrpt.Failed, Reason: strings.Repeat("ä", 500)})
	}
	total := int64(0)
	for _, p := range row.Policies {
		total += p.Failed
		if len(p.Failures) > maxTLSFailures || len(p.Failures[0].Reason) > maxTLSReason {
			t.Errorf("%d failures", len(p.Failures))
		}
	}
	if total != 1000 || len(row.Policies) != maxTLSPolicies {
		t.Errorf("%d sessions under %d policies", total, len(row.Policies))
	}
}
