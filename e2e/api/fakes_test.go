package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/e2e/rig"
)

// newPicky is a relay that refuses gone@ for good and later@ for now, and mints ids as SES does.
func newPicky(t *testing.T) *rig.FakeSMTP {
	t.Helper()
	var relay *rig.FakeSMTP
	relay = rig.NewFakeSMTP(t, true, func(n int) string {
		switch to := relay.Mails()[n-1].To[0]; {
		case strings.HasPrefix(to, "gone@"):
			return "550 5.1.1 no such user"
		case strings.HasPrefix(to, "later@"):
			return "451 4.3.0 not now"
		}
		return fmt.Sprintf("250 Ok 0100018f-%d", n)
	})
	return relay
}
