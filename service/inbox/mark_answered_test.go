package inbox_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/pull/pulltest"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// TestAnswersMarkWhatTheyAnswer: a reply marks the messages that it answers once it is sent, only
// in the sending mailbox, and whether they are indexed or not.
func TestAnswersMarkWhatTheyAnswer(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	letter := func(id, subject, more string) string {
		return fmt.Sprintf("Message-ID: <%s@far.test>\r\nFrom: fred@far.test\r\nSubject: %s\r\n%s\r\nhello\r\n", id, subject, more)
	}
	for _, mb := range []*store.Mailbox{ann, bob} {
		i.MustArrive("fred@far.test", mb.Email, letter("one", "One", ""))
	}
	i.MustArrive("fred@far.test", ann.Email, letter("two", "Two", "References: <one@far.test>\r\n"))
	i.MustArrive("fred@far.test", ann.Email, letter("three", "Three", ""))
	i.MustArrive("fred@far.test", ann.Email, letter("copy", "Copy", ""))
	i.MustArrive("fred@far.test", ann.Email, letter("copy", "Copy", ""))
	answer := func(id string) submit.SendEmailIn {
		return submit.SendEmailIn{To: submit.Texts{"fred@far.test"}, Subject: "Re", Text: "t", InReplyTo: id, References: submit.Texts{id}}
	}

	i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"x@far.test"}, Subject: "Fwd: Three", Text: "t", References: submit.Texts{"<three@far.test>"}})
	i.MustSend(ann, answer("<nobody.knows@far.test>"))
	if _, err := i.Send(ann, submit.SendEmailIn{To: submit.Texts{"no address"}, Subject: "s", InReplyTo: "<three@far.test>"}); err == nil {
		t.Error("it is sent")
	}
	if got := i.Answered(ann); len(got) != 0 {
		t.Errorf("answered before any answer: %v", got)
	}
	told, stop := i.Svc.Inbox.Watch(context.Background(), ann.Num)
	defer stop()
	i.MustSend(ann, answer("<two@far.test>"))
	select {
	case <-told:
	case <-time.After(20 * time.Second):
		t.Error("sessions are not told")
	}
	index(i)
	i.MustSend(ann, answer("one@far.test"))
	i.MustSend(ann, answer("<one@far.test>"))
	i.MustSend(ann, answer("<copy@far.test>"))
	if got := i.Answered(ann); !slices.Equal(got, []string{"Copy", "Copy", "One", "Two"}) {
		t.Errorf("answered: %v", got)
	}
	if got := i.Answered(bob); len(got) != 0 {
		t.Errorf("answered in a mailbox that has sent nothing: %v", got)
	}
	if _, err := i.Svc.Inbox.DeleteMessage(context.Background(), servicetest.ActorNum(i.Account, 1), inbox.DeleteMessageIn{MessageIn: inbox.MessageIn{UserID: ann.ID, MessageID: "2"}}); err != nil {
		t.Fatal(err)
	}
	i.MustSend(ann, answer("<two@far.test>")) // what is gone is no reason not to send
}

// TestAnswersAreMarkedElsewhere: an answered message of an external mailbox is marked on its server
// first, by a job that retries while the server is down.
func TestAnswersAreMarkedElsewhere(t *testing.T) {
	o := servicetest.NewOutpost(t, &servicetest.Host{})
	o.IMAP.Change(func() {
		for _, id := range []string{"one", "two"} {
			o.IMAP.Add(strings.ReplaceAll("Message-ID: <NAME@far.test>\r\nFrom: fred@far.test\r\nSubject: NAME\r\n\r\nhello\r\n", "NAME", id), `\Seen`)
		}
	})
	o.Run()
	who := servicetest.ActorNum(o.Account, 1)
	if _, err := o.Svc.External.RefreshEmailUserInbox(context.Background(), who, core.EmailUserIn{UserID: o.Mailbox.ID}); err != nil {
		t.Fatal(err)
	}
	o.Until("the mail is here", func() bool {
		page, err := o.Svc.Inbox.ListEmailUserInbox(context.Background(), who, inbox.ListEmailUserInboxIn{UserID: o.Mailbox.ID})
		return err == nil && len(page.Data) == 2
	})
	lost := false
	o.IMAP.Change(func() {
		o.IMAP.Manners = func(_, verb string, c net.Conn, _ io.Writer) bool {
			if verb != "UID STORE" || lost {
				return false
			}
			lost = true
			c.Close()
			return true
		}
	})
	o.MustSend(o.Mailbox, submit.SendEmailIn{To: submit.Texts{"fred@far.test"}, Subject: "Re", Text: "t", InReplyTo: "<two@far.test>"})
	o.Until("the server breaks off", func() (is bool) { o.IMAP.Change(func() { is = lost }); return is })
	if got := o.Answered(o.Mailbox); len(got) != 0 {
		t.Errorf("marked here before the server has: %v", got)
	}
	o.Until("it is marked on the server", func() bool {
		o.Hurry()
		return slices.Equal(flagsOf(o.IMAP, 2), []string{`\Seen`, `\Answered`})
	})
	o.Until("it is marked here", func() bool { return slices.Equal(o.Answered(o.Mailbox), []string{"two"}) })
	if got := flagsOf(o.IMAP, 1); !slices.Equal(got, []string{`\Seen`}) {
		t.Errorf("the other has %v", got)
	}
}

// flagsOf returns the flags that a message has on its server.
func flagsOf(s *pulltest.Server, uid uint32) (flags []string) {
	m := s.Find(uid)
	s.Change(func() { flags = slices.Clone(m.Flags) })
	return flags
}

// TestAnsweredAmongManyNotIndexed: while an existing store is being indexed, a limited number of
// the newest messages of INBOX is searched.
func TestAnsweredAmongManyNotIndexed(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	servicetest.Keep(i, ann, "INBOX", "Message-ID: <old@far.test>\nFrom: fred@far.test\nSubject: old\n\nhello\n")
	body := i.Spool("From: Fred <fred@far.test>\r\nSubject: other\r\n\r\nhello\r\n")
	defer body.Close()
	d, err := i.Svc.Inbox.Prepare(body, inbox.Envelope{})
	if err != nil {
		t.Fatal(err)
	}
	for left := inbox.InboxScan; left > 0; left -= 500 {
		i.Update(func(tx *store.Tx) error {
			for range min(left, 500) {
				if _, err := i.Svc.Inbox.File(tx, ann, d, inbox.Filing{Folder: store.InboxID, Received: tx.Now()}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for range 2 {
		servicetest.Keep(i, ann, "INBOX", "Message-ID: <new@far.test>\nFrom: fred@far.test\nSubject: new\n\nhello\n")
	}
	find := func(id string, want ...uint32) {
		t.Helper()
		list, err := i.Svc.Inbox.FindAnswered(ann, id)
		var got []uint32
		for _, at := range list {
			got = append(got, at.UID)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", id, list, err, want)
		}
	}
	find("<new@far.test>", inbox.InboxScan+3, inbox.InboxScan+2)
	find("<old@far.test>")
	find("<none@far.test>")
	index(i)
	find("<new@far.test>", inbox.InboxScan+3, inbox.InboxScan+2)
	find("<old@far.test>", 1)
}
