package service

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
	"github.com/mailstead/mailstead/store"
)

// answered are the subjects of the INBOX that show as answered.
func (i *installation) answered(mb *store.Mailbox) (out []string) {
	i.t.Helper()
	page, err := i.svc.ListEmailUserInbox(context.Background(), actorNum(i.account, 1), ListEmailUserInboxIn{UserID: mb.ID})
	if err != nil {
		i.t.Fatal(err)
	}
	for _, m := range page.Data {
		if m.IsAnswered {
			out = append(out, m.Subject)
		}
	}
	slices.Sort(out)
	return out
}

func actorNum(a *AccountCreated, num uint32) Actor {
	who := actor(a)
	who.AccountNum = num
	return who
}

// TestAnswersMarkWhatTheyAnswer: in the mailbox that sends alone, with the sending or not at all,
// indexed or not.
func TestAnswersMarkWhatTheyAnswer(t *testing.T) {
	i := install(t, Config{Outbound: "capture"})
	d := i.addDomain(i.account, "example.test", nil)
	ann, bob := i.addMailbox(d, "ann", nil), i.addMailbox(d, "bob", nil)
	letter := func(id, subject, more string) string {
		return fmt.Sprintf("Message-ID: <%s@far.test>\r\nFrom: fred@far.test\r\nSubject: %s\r\n%s\r\nhello\r\n", id, subject, more)
	}
	for _, mb := range []*store.Mailbox{ann, bob} {
		i.mustArrive("fred@far.test", mb.Email, letter("one", "One", ""))
	}
	i.mustArrive("fred@far.test", ann.Email, letter("two", "Two", "References: <one@far.test>\r\n"))
	i.mustArrive("fred@far.test", ann.Email, letter("three", "Three", ""))
	i.mustArrive("fred@far.test", ann.Email, letter("copy", "Copy", ""))
	i.mustArrive("fred@far.test", ann.Email, letter("copy", "Copy", ""))
	answer := func(id string) SendEmailIn {
		return SendEmailIn{To: Texts{"fred@far.test"}, Subject: "Re", Text: "t", InReplyTo: id, References: Texts{id}}
	}

	i.mustSend(ann, SendEmailIn{To: Texts{"x@far.test"}, Subject: "Fwd: Three", Text: "t", References: Texts{"<three@far.test>"}})
	i.mustSend(ann, answer("<nobody.knows@far.test>"))
	if _, err := i.send(ann, SendEmailIn{To: Texts{"no address"}, Subject: "s", InReplyTo: "<three@far.test>"}); err == nil {
		t.Error("it is sent")
	}
	if got := i.answered(ann); len(got) != 0 {
		t.Errorf("answered before any answer: %v", got)
	}
	told, stop := i.svc.Watch(context.Background(), ann.Num)
	defer stop()
	i.mustSend(ann, answer("<two@far.test>"))
	select {
	case <-told:
	case <-time.After(20 * time.Second):
		t.Error("sessions are not told")
	}
	index(i)
	i.mustSend(ann, answer("one@far.test"))
	i.mustSend(ann, answer("<one@far.test>"))
	i.mustSend(ann, answer("<copy@far.test>"))
	if got := i.answered(ann); !slices.Equal(got, []string{"Copy", "Copy", "One", "Two"}) {
		t.Errorf("answered: %v", got)
	}
	if got := i.answered(bob); len(got) != 0 {
		t.Errorf("answered in a mailbox that has sent nothing: %v", got)
	}
	if _, err := i.svc.DeleteMessage(context.Background(), actorNum(i.account, 1), MessageIn{UserID: ann.ID, MessageID: "2"}); err != nil {
		t.Fatal(err)
	}
	i.mustSend(ann, answer("<two@far.test>")) // what is gone is no reason not to send
}

// TestAnswersAreMarkedElsewhere: on the server of an external mailbox first, by a job that outlives
// a server that is away.
func TestAnswersAreMarkedElsewhere(t *testing.T) {
	o := newOutpost(t, &host{})
	o.imap.Change(func() {
		for _, id := range []string{"one", "two"} {
			o.imap.Add(strings.ReplaceAll("Message-ID: <NAME@far.test>\r\nFrom: fred@far.test\r\nSubject: NAME\r\n\r\nhello\r\n", "NAME", id), `\Seen`)
		}
	})
	o.run()
	who := actorNum(o.account, 1)
	if _, err := o.svc.RefreshEmailUserInbox(context.Background(), who, EmailUserIn{UserID: o.mailbox.ID}); err != nil {
		t.Fatal(err)
	}
	o.until("the mail is here", func() bool {
		page, err := o.svc.ListEmailUserInbox(context.Background(), who, ListEmailUserInboxIn{UserID: o.mailbox.ID})
		return err == nil && len(page.Data) == 2
	})
	lost := false
	o.imap.Change(func() {
		o.imap.Manners = func(_, verb string, c net.Conn, _ io.Writer) bool {
			if verb != "UID STORE" || lost {
				return false
			}
			lost = true
			c.Close()
			return true
		}
	})
	o.mustSend(o.mailbox, SendEmailIn{To: Texts{"fred@far.test"}, Subject: "Re", Text: "t", InReplyTo: "<two@far.test>"})
	o.until("the server breaks off", func() (is bool) { o.imap.Change(func() { is = lost }); return is })
	if got := o.answered(o.mailbox); len(got) != 0 {
		t.Errorf("marked here before the server has: %v", got)
	}
	o.until("it is marked on the server", func() bool {
		o.hurry()
		return slices.Equal(flagsOf(o.imap, 2), []string{`\Seen`, `\Answered`})
	})
	o.until("it is marked here", func() bool { return slices.Equal(o.answered(o.mailbox), []string{"two"}) })
	if got := flagsOf(o.imap, 1); !slices.Equal(got, []string{`\Seen`}) {
		t.Errorf("the other has %v", got)
	}
}

// flagsOf are the flags that a message has on its server.
func flagsOf(s *pulltest.Server, uid uint32) (flags []string) {
	m := s.Find(uid)
	s.Change(func() { flags = slices.Clone(m.Flags) })
	return flags
}
