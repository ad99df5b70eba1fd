package alert

import (
	"errors"
	"time"

	"github.com/mailstead/mailstead/service/core"
)

// TimeText returns a time for the text of a HostMail.
func TimeText(at time.Time) string { return at.UTC().Format("2 January 2006, 15:04 UTC") }

// Refused turns the error of a HostMail above its limits into 429 rate_limited, for a request that
// must not succeed without the message. It returns any other error unchanged.
func Refused(err error, now time.Time) error {
	if past := new(core.SMTPError); !errors.As(err, &past) {
		return err
	}
	again := now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	refused := core.Errorf("rate_limited", "The owner of the account must be told, but has been sent too many emails by this server today. Try again after %s.", again.Format(time.RFC3339))
	refused.RetryAfter = again.Sub(now)
	return refused
}
