package servicetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/store"
)

const PlainMessage = "From: Ann <ann@example.test>\r\nTo: somebody\r\nSubject: hello\r\nMessage-ID: <own@example.test>\r\nDate: Fri, 20 Nov 2026 10:00:00 +0000\r\n\r\nhello\r\n"

func HasCode(err error, code string) bool {
	e, ok := core.AsError(err)
	return ok && e.Code == code
}

func (i *Installation) DeliveryJob() *store.Job {
	i.T.Helper()
	var found *store.Job
	err := i.St.View(func(tx *store.Tx) error {
		for j := range store.Jobs.All(tx) {
			if j.Kind == outbound.KindDeliver || j.Kind == outbound.KindDirect || j.Kind == outbound.KindRelay {
				found = j
			}
		}
		return nil
	})
	if err != nil || found == nil {
		i.T.Fatalf("no delivery job: %v", err)
	}
	return found
}

// Statuses counts the rows of the sending log by status.
func Statuses(i *Installation) map[string]int {
	i.T.Helper()
	out := map[string]int{}
	if err := i.St.View(func(tx *store.Tx) error {
		for o := range store.Outgoings.All(tx) {
			out[o.Status]++
		}
		return nil
	}); err != nil {
		i.T.Fatal(err)
	}
	return out
}

// Eventually waits until ok returns true, for up to a minute, since the machine may be busy.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// ErrorCode returns the code of a core.Error; for any other error it returns the text.
func ErrorCode(err error) string {
	var e *core.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fmt.Sprint(err)
}

// At returns a time as requests have it.
func At(t time.Time) *core.Time { return &core.Time{Time: t} }
