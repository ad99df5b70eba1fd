package servicetest

import (
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mta"
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
			if j.Kind == mta.KindDeliver || j.Kind == mta.KindDirect || j.Kind == mta.KindRelay {
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
