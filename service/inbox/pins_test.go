package inbox_test

import (
	"slices"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestMessagesOfDroppedWritesAreReleased has the job of an attempt be gone when its end is to be
// kept, so that its Writes are never called: the report that they would have filed keeps no segment
// from compaction.
func TestMessagesOfDroppedWritesAreReleased(t *testing.T) {
	h := &servicetest.Host{}
	var i *servicetest.Installation
	answered := make(chan struct{})
	h.Rcpt = func(string) string {
		defer close(answered)
		err := i.St.Update(func(tx *store.Tx) error {
			for j := range store.Jobs.All(tx) {
				if j.Kind == mta.KindDirect {
					return store.Jobs.Delete(tx, j.ID)
				}
			}
			t.Error("no job delivers")
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return "550 5.1.1 no such user here"
	}
	h.Start(t)
	i = servicetest.Install(t, core.Config{MXPort: h.Port})
	i.DNS.MX["far.test"] = "mx.far.test"
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test")
	<-answered
	i.Stop()
	if n := i.St.Leased(); n != 0 {
		t.Errorf("%d messages are held that nobody will file", n)
	}
}

// TestFailedSendReleasesItsMessage: of what is refused after its bytes were written nothing is
// held.
func TestFailedSendReleasesItsMessage(t *testing.T) {
	i := servicetest.Install(t, core.Config{Outbound: "capture"})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	limit := 1
	i.Update(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Get(tx, ann.ID)
		if err != nil {
			return err
		}
		mb.DailySendLimit = &limit
		return store.Mailboxes.Put(tx, mb)
	})
	in := mta.SendEmailIn{To: mta.Texts{"x@far.test", "y@far.test"}, Subject: "hello"}
	if _, err := i.Send(ann, in); !servicetest.HasCode(err, "daily_send_limit_reached") {
		t.Errorf("got %v", err)
	}
	if n := i.St.Leased(); n != 0 {
		t.Errorf("%d messages are held that nobody will send", n)
	}
}

// TestMovedMessageIsIndexedByItsWords: between the reading of a row and of its bytes, compaction
// has moved the message and removed the segment that it was in.
func TestMovedMessageIsIndexedByItsWords(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	servicetest.Keep(i, ann, "INBOX", "From: a@far.test\nSubject: hello\n\nwalrus\n")
	x := i.Svc.Indexer()
	work, metas, err := x.Gather(ann.AccountNum)
	if err != nil || len(work.Messages) != 1 {
		t.Fatalf("%d messages, %v", len(work.Messages), err)
	}
	work.Messages[0].Blob.Segment += 7 // where it was when it was gathered; that segment is gone
	if err := x.Index(t.Context(), ann.AccountNum, work, metas); err != nil {
		t.Fatal(err)
	}
	if got, _ := listed(i, inbox.InboxFilter{Q: "walrus"}); !slices.Equal(got, []string{"hello"}) {
		t.Errorf("the message is indexed without its words: %v", got)
	}
}
