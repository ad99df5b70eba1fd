package inbox_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// TestSearchSeesMailAtOnce searches while some mail is indexed, some is not indexed yet, and some
// is deleted.
func TestSearchSeesMailAtOnce(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	letter := func(n int) string {
		return letterOf(fmt.Sprintf("letter%d", n), fmt.Sprintf("%d@far", n)) + fmt.Sprintf("common words of number %d\n", n)
	}
	for n := range 6 {
		servicetest.Keep(i, ann, "INBOX", letter(n))
		if n%2 == 1 {
			index(i)
		}
	}
	servicetest.Keep(i, ann, "INBOX", letter(6))
	servicetest.Keep(i, ann, "INBOX", letter(7))
	i.Update(func(tx *store.Tx) error {
		for _, uid := range []uint32{2, 8} {
			if err := tx.DeleteMessage(ann.Num, store.InboxID, uid); err != nil {
				return err
			}
		}
		return nil
	})
	for q, want := range map[string][]string{
		"common":               {"letter6", "letter5", "letter4", "letter3", "letter2", "letter0"},
		`"words of number 4"`:  {"letter4"},
		`"words of number 6"`:  {"letter6"},
		`"number of words"`:    nil,
		"letter1":              nil,
		"letter7":              nil,
		"fred@far.test number": {"letter6", "letter5", "letter4", "letter3", "letter2", "letter0"},
		"@far.test letter3":    {"letter3"},
	} {
		if got, _ := listed(i, inbox.InboxFilter{Q: q}); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", q, got, want)
		}
	}
	if _, err := i.Svc.Inbox.Indexer().Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, _ := listed(i, inbox.InboxFilter{Q: "letter3"}); !slices.Equal(got, []string{"letter3"}) {
		t.Errorf("without an index: %v", got)
	}
	index(i)
	if got, _ := listed(i, inbox.InboxFilter{Q: "common letter"}); len(got) != 6 {
		t.Errorf("with one made anew: %v", got)
	}
}

// TestSearchOfExternalMail indexes messages with UIDs of another server, newest first, and messages
// that are stored again.
func TestSearchOfExternalMail(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	at := func(uid uint32) {
		t.Helper()
		keepAt(i, ann, uid, letterOf(fmt.Sprintf("letter%d", uid), fmt.Sprintf("%d@far", uid)))
	}
	find := func(want ...string) {
		t.Helper()
		if got, _ := listed(i, inbox.InboxFilter{Q: "hello"}); !slices.Equal(got, want) {
			t.Errorf("found %v, want %v", got, want)
		}
	}
	at(9)
	at(8)
	index(i)
	at(5)
	at(12)
	at(3)
	find("letter12", "letter9", "letter8", "letter5", "letter3")
	index(i)
	find("letter12", "letter9", "letter8", "letter5", "letter3")
	i.Update(func(tx *store.Tx) error { return tx.DeleteMessage(ann.Num, store.InboxID, 8) })
	find("letter12", "letter9", "letter5", "letter3")
	at(8)
	find("letter12", "letter9", "letter8", "letter5", "letter3")
	index(i)
	find("letter12", "letter9", "letter8", "letter5", "letter3")
}

// TestAuthorIsFoundBehindManyOthers: a search for an author finds old mail behind any amount of
// newer mail of others.
func TestAuthorIsFoundBehindManyOthers(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	servicetest.Keep(i, ann, "INBOX", "From: Rare Bird <rare@bird.test>\nSubject: found\n\nhello\n")
	body := i.Spool("From: Fred <fred@far.test>\r\nSubject: rare\r\n\r\nhello\r\n")
	defer body.Close()
	d, err := i.Svc.Inbox.Prepare(body, inbox.Envelope{})
	if err != nil {
		t.Fatal(err)
	}
	for left := inbox.InboxScan + 1; left > 0; left -= 500 {
		i.Update(func(tx *store.Tx) error {
			for range min(left, 500) {
				if _, err := i.Svc.Inbox.File(tx, ann, d, inbox.Filing{Folder: store.InboxID, Received: tx.Now()}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	index(i)
	for _, from := range []string{"rare@bird.test", "@bird.test", "Rare b", "rare@"} {
		if got, _ := listed(i, inbox.InboxFilter{From: from}); !slices.Equal(got, []string{"found"}) {
			t.Errorf("%s: %v", from, got)
		}
	}
}

// TestMessagesOfDroppedWritesAreReleased deletes the job of an attempt before its Writes are
// called, so that they never run: the report that they would have filed must not keep its segment
// from compaction.
func TestMessagesOfDroppedWritesAreReleased(t *testing.T) {
	h := &servicetest.Host{}
	var i *servicetest.Installation
	answered := make(chan struct{})
	h.Rcpt = func(string) string {
		defer close(answered)
		err := i.St.Update(func(tx *store.Tx) error {
			for j := range store.Jobs.All(tx) {
				if j.Kind == outbound.KindDirect {
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
	if n := i.St.LeaseCount(); n != 0 {
		t.Errorf("%d messages are held that nobody will file", n)
	}
}

// TestFailedSendReleasesItsMessage: the bytes of a message that is refused after they were written
// are released.
func TestFailedSendReleasesItsMessage(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
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
	in := submit.SendEmailIn{To: submit.Texts{"x@far.test", "y@far.test"}, Subject: "hello"}
	if _, err := i.Send(ann, in); !servicetest.HasCode(err, "daily_send_limit_reached") {
		t.Errorf("got %v", err)
	}
	if n := i.St.LeaseCount(); n != 0 {
		t.Errorf("%d messages are held that nobody will send", n)
	}
}

// TestMovedMessageIsIndexedByItsWords: compaction moves a message and deletes its old segment
// between the reading of its row and of its bytes.
func TestMovedMessageIsIndexedByItsWords(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	servicetest.Keep(i, ann, "INBOX", "From: a@far.test\nSubject: hello\n\nwalrus\n")
	x := i.Svc.Inbox.Indexer()
	work, metas, err := x.Gather(ann.AccountNum)
	if err != nil || len(work.Messages) != 1 {
		t.Fatalf("%d messages, %v", len(work.Messages), err)
	}
	work.Messages[0].Blob.Segment += 7 // where it was when it was gathered; that segment is gone
	if err := x.IndexBatch(t.Context(), ann.AccountNum, work, metas); err != nil {
		t.Fatal(err)
	}
	if got, _ := listed(i, inbox.InboxFilter{Q: "walrus"}); !slices.Equal(got, []string{"hello"}) {
		t.Errorf("the message is indexed without its words: %v", got)
	}
}

// TestListsOfDomains lists the messages of domains with few, many and no mailboxes, which the store
// finds in different ways.
func TestListsOfDomains(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	i.AddDomain(i.Account, "none.test", nil)
	var boxes []*store.Mailbox
	few, many := i.AddDomain(i.Account, "few.test", nil), i.AddDomain(i.Account, "many.test", nil)
	for n := range inbox.InboxMerged + 1 {
		mb := i.AddMailbox(many, fmt.Sprintf("m%d", n), nil)
		if n < 3 {
			boxes = append(boxes, mb, i.AddMailbox(few, fmt.Sprintf("f%d", n), nil))
		}
	}
	of := map[string][]string{}
	for n := range 30 {
		mb := boxes[n*5%len(boxes)]
		name, seen := fmt.Sprintf("letter%d", n), n%3 == 0
		at := inbox.Filing{UID: uint32(1 + n/2), Received: time.Unix(1_800_000_000+int64(n/4), 0)} // several are of the same time
		servicetest.KeepIn(i, mb, "INBOX", at, letterOf(name, name+"@far"))
		i.Update(func(tx *store.Tx) error {
			if !seen {
				return nil
			}
			m, err := tx.Message(mb.Num, store.InboxID, at.UID)
			if err != nil {
				return err
			}
			return tx.SetFlags(m, store.FlagSeen, nil)
		})
		_, domain, _ := strings.Cut(mb.Email, "@")
		of[domain] = append(of[domain], name)
		if !seen {
			of[domain+" unread"] = append(of[domain+" unread"], name)
		}
	}
	index(i)
	no := false
	for _, domain := range []string{"few.test", "many.test", "none.test"} {
		for _, f := range []inbox.InboxFilter{{}, {IsRead: &no}, {Q: "hello"}, {Q: "nothing"}, {From: "fred", IsRead: &no}} {
			want := of[domain]
			if f.IsRead != nil {
				want = of[domain+" unread"]
			}
			if f.Q == "nothing" {
				want = nil
			}
			f.Domain = domain
			got := pages(i, f, 2)
			slices.Sort(got)
			want = slices.Sorted(slices.Values(want))
			if !slices.Equal(got, want) {
				t.Errorf("%+v: %v, want %v", f, got, want)
			}
		}
	}
}

// pages returns the subjects of all pages of a list, and checks their order.
func pages(i *servicetest.Installation, f inbox.InboxFilter, limit int) (subjects []string) {
	i.T.Helper()
	who := core.Actor{AccountID: i.Account.AccountID, AccountNum: 1, Role: "owner", Permissions: []string{"admin"}}
	in := inbox.ListInboxIn{InboxFilter: f, Limit: &limit}
	var last time.Time
	for {
		page, err := i.Svc.Inbox.ListInbox(i.T.Context(), who, in)
		if err != nil {
			i.T.Fatal(err)
		}
		for _, m := range page.Data {
			if !last.IsZero() && m.ReceivedAt.After(last) {
				i.T.Errorf("%s is behind an older one", m.Subject)
			}
			last = m.ReceivedAt.Time
			subjects = append(subjects, m.Subject)
		}
		if !page.Pagination.HasMore {
			return subjects
		}
		in.Cursor = *page.Pagination.Cursor
	}
}
