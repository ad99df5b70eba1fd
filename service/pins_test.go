package service

import (
	"slices"
	"testing"

	"github.com/mailstead/mailstead/store"
)

// TestDraftsOfDroppedWritesAreReleased has the job of an attempt be gone when its end is to be
// kept, so that its Writes are never called: the report that they would have filed keeps no segment
// from compaction.
func TestDraftsOfDroppedWritesAreReleased(t *testing.T) {
	h := &host{}
	var i *installation
	answered := make(chan struct{})
	h.rcpt = func(string) string {
		defer close(answered)
		err := i.st.Update(func(tx *store.Tx) error {
			for j := range store.Jobs.All(tx) {
				if j.Kind == kindDirect {
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
	h.start(t)
	i = install(t, Config{MXPort: h.port})
	i.dns.mx["far.test"] = "mx.far.test"
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.run()
	i.mustSubmit(ann, plainMessage, "x@far.test")
	<-answered
	i.stop()
	if n := i.st.Leased(); n != 0 {
		t.Errorf("%d messages are held that nobody will file", n)
	}
}

// TestFailedSendReleasesItsMessage: of what is refused after its bytes were written nothing is
// held.
func TestFailedSendReleasesItsMessage(t *testing.T) {
	i := install(t, Config{Outbound: "capture"})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	limit := 1
	i.update(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Get(tx, ann.ID)
		if err != nil {
			return err
		}
		mb.DailySendLimit = &limit
		return store.Mailboxes.Put(tx, mb)
	})
	in := SendEmailIn{To: Texts{"x@far.test", "y@far.test"}, Subject: "hello"}
	if _, err := i.send(ann, in); !hasCode(err, "daily_send_limit_reached") {
		t.Errorf("got %v", err)
	}
	if n := i.st.Leased(); n != 0 {
		t.Errorf("%d messages are held that nobody will send", n)
	}
}

// TestMovedMessageIsIndexedByItsWords: between the reading of a row and of its bytes, compaction
// has moved the message and removed the segment that it was in.
func TestMovedMessageIsIndexedByItsWords(t *testing.T) {
	i := install(t, Config{})
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.keep(ann, "INBOX", "From: a@far.test\nSubject: hello\n\nwalrus\n")
	x := &indexer{s: i.svc}
	work, metas, err := x.gather(ann.AccountNum)
	if err != nil || len(work.Messages) != 1 {
		t.Fatalf("%d messages, %v", len(work.Messages), err)
	}
	work.Messages[0].Blob.Segment += 7 // where it was when it was gathered; that segment is gone
	if err := x.index(t.Context(), ann.AccountNum, work, metas); err != nil {
		t.Fatal(err)
	}
	if got, _ := i.list(InboxFilter{Q: "walrus"}); !slices.Equal(got, []string{"hello"}) {
		t.Errorf("the message is indexed without its words: %v", got)
	}
}
