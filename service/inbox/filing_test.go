package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// keepAt files a message in INBOX with the UID of another server, and a time derived from the UID.
func keepAt(i *servicetest.Installation, mb *store.Mailbox, uid uint32, message string) {
	i.T.Helper()
	servicetest.KeepIn(i, mb, "INBOX", inbox.Filing{UID: uid, Received: time.Unix(1_800_000_000+int64(uid), 0)}, message)
}

// index indexes all mail.
func index(i *servicetest.Installation) {
	i.T.Helper()
	x := i.Svc.Inbox.Indexer()
	for {
		pause, err := x.IndexRound(context.Background())
		if err != nil {
			i.T.Fatal(err)
		}
		if pause == 0 {
			return
		}
	}
}

// list returns the subjects of an inbox list, newest first.
func listed(i *servicetest.Installation, f inbox.InboxFilter) (subjects []string, threads []string) {
	i.T.Helper()
	who := core.Actor{AccountID: i.Account.AccountID, AccountNum: 1, Role: "owner", Permissions: []string{"admin"}}
	page, err := i.Svc.Inbox.ListInbox(context.Background(), who, inbox.ListInboxIn{InboxFilter: f})
	if err != nil {
		i.T.Fatal(err)
	}
	for _, m := range page.Data {
		subjects, threads = append(subjects, m.Subject), append(threads, m.ThreadID)
	}
	return subjects, threads
}

func letterOf(subject, id string, refs ...string) string {
	head := fmt.Sprintf("From: fred@far.test\nTo: ann@example.test\nSubject: %s\nMessage-ID: <%s>\n", subject, id)
	for _, r := range refs {
		head += r + "\n"
	}
	return head + "\nHello.\n"
}

func TestThreads(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	in := func(message string) string { return servicetest.Keep(i, ann, "INBOX", message) }

	one := in(letterOf("one", "1@far"))
	if two := in(letterOf("two", "2@far", "In-Reply-To: <1@far>")); two != one {
		t.Errorf("an answer is in %s, its question in %s", two, one)
	}
	if three := in(letterOf("three", "3@far", "In-Reply-To: <2@far>")); three != one {
		t.Errorf("an answer to an answer, which names no more, is in %s, not %s", three, one)
	}
	if other := in(letterOf("other", "4@far")); other == one || !strings.HasPrefix(other, "thr_") || len(other) != 30 {
		t.Errorf("another letter is in %s", other)
	}
	if nothing := in("From: fred@far.test\nSubject: nothing\n\nx\n"); nothing != "" {
		t.Errorf("a message without any id is in %s", nothing)
	}

	// Replies that arrive before the messages that they answer: first the root is unknown, then the
	// middle message connects two threads.
	late := in(letterOf("late answer", "13@far", "References: <12@far>"))
	if middle := in(letterOf("middle", "12@far", "References: <11@far>")); middle == late {
		t.Errorf("before they are tied together both are %s", late)
	}
	first := in(letterOf("first", "11@far"))
	want := []string{"first", "middle", "late answer"}
	for _, indexed := range []bool{false, true} {
		if indexed {
			index(i)
		}
		for _, name := range []string{first, late} {
			subjects, threads := listed(i, inbox.InboxFilter{ThreadID: name})
			if !slices.Equal(subjects, want) || slices.ContainsFunc(threads, func(s string) bool { return s != first }) {
				t.Errorf("indexed %v: thread %s has %v of %v, want %v of %s", indexed, name, subjects, threads, want, first)
			}
		}
		if subjects, _ := listed(i, inbox.InboxFilter{ThreadID: one, Q: "tw"}); !slices.Equal(subjects, []string{"two"}) {
			t.Errorf("indexed %v: of thread and text there are %v", indexed, subjects)
		}
	}
}

// TestThreadsOverSentMail: a reply to a message whose Message-ID a relay replaced joins its thread.
func TestThreadsOverSentMail(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	sent := servicetest.Keep(i, ann, "Sent", "From: ann@example.test\nTo: fred@far.test\nSubject: Offer\nMessage-ID: <own@example.test>\n\nx\n")
	i.Update(func(tx *store.Tx) error {
		return store.Mappings.Put(tx, &store.MessageIDMapping{
			ID: tx.NewID("map"), AccountID: i.Account.AccountID, Original: "<own@example.test>", Provided: "<minted@relay.test>", RelayedAt: tx.Now(),
		})
	})
	answer := servicetest.Keep(i, ann, "INBOX", letterOf("Re: Offer", "5@far", "In-Reply-To: <minted@relay.test>"))
	if answer != sent {
		t.Errorf("the answer is in %s, the letter in %s", answer, sent)
	}
	again := servicetest.Keep(i, ann, "INBOX", letterOf("Re: Offer", "6@far", "References: <minted@relay.test> <7@far>"))
	if again != sent {
		t.Errorf("the second answer is in %s, the letter in %s", again, sent)
	}
}

// TestThreadsBySubject: replies without references join the thread of the same subject between the
// same people.
func TestThreadsBySubject(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	sent := servicetest.Keep(i, ann, "Sent", "From: Ann <ann@example.test>\nTo: fred@far.test, gina@far.test\nSubject: Offer  for you\nMessage-ID: <own@example.test>\n\nx\n")
	if answer := servicetest.Keep(i, ann, "INBOX", letterOf("AW: offer for you", "5@far")); answer != sent {
		t.Errorf("the answer is in %s, the letter in %s", answer, sent)
	}
	if next := servicetest.Keep(i, ann, "INBOX", letterOf("x", "6@far", "In-Reply-To: <5@far>")); next != sent {
		t.Errorf("the answer to the answer is in %s, the letter in %s", next, sent)
	}
	for name, message := range map[string]string{
		"no answer":     letterOf("Offer for you", "7@far"),
		"a forward":     letterOf("Fwd: Offer for you", "8@far"),
		"a stranger":    strings.Replace(letterOf("Re: Offer for you", "9@far"), "fred", "paul", 1),
		"other subject": letterOf("Re: Offer for them", "10@far"),
	} {
		if got := servicetest.Keep(i, ann, "INBOX", message); got == sent {
			t.Errorf("%s is in the thread", name)
		}
	}
	received := servicetest.Keep(i, ann, "INBOX", letterOf("Question", "20@far"))
	index(i)
	if answer := servicetest.Keep(i, ann, "INBOX", letterOf("Re: Question", "21@far")); answer != received {
		t.Errorf("the reminder is in %s, the question in %s", answer, received)
	}
}
