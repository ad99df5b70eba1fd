package outbound_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/pull/pulltest"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/external"
	"github.com/mailstead/mailstead/service/feedback"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// TestSentMailIsFiledOnItsServer: a sent message is filed as read, once for all recipients, and not
// if it is there already, because the server or an interrupted attempt has filed it.
func TestSentMailIsFiledOnItsServer(t *testing.T) {
	o := servicetest.NewOutpost(t, &servicetest.Host{})
	lost := false
	o.IMAP.Change(func() {
		o.IMAP.Manners = func(tag, verb string, c net.Conn, w io.Writer) bool {
			if verb == "UID SEARCH" && !lost {
				lost = true
				c.Close() // the first attempt breaks off
				return true
			}
			return false
		}
	})
	o.Run()
	sent := o.MustSend(o.Mailbox, submit.SendEmailIn{To: submit.Texts{"x@far.test", "y@far.test"}, Bcc: submit.Texts{"z@far.test"}, Subject: "s", Text: "hello"})
	for _, to := range []string{"x@far.test", "y@far.test", "z@far.test"} {
		o.Becomes(to, store.OutgoingRelayed)
	}
	o.Until("the copy is there", func() bool { o.Hurry(); return len(o.Filed()) > 0 && o.Copies() == 0 })
	filed := o.Filed()
	if len(filed) != 1 || !strings.Contains(filed[0].Text, sent.MessageID) || strings.Contains(filed[0].Text, "z@far.test") ||
		fmt.Sprint(filed[0].Flags) != `[\Seen]` {
		t.Errorf("filed: %+v", filed)
	}
	if got := len(o.SMTP.Mails()); got != 3 {
		t.Errorf("%d mails were sent", got)
	}
	o.IMAP.Change(func() {
		o.Sent.Messages = []*pulltest.Message{{UID: 1, Text: "Message-ID: <mine@away.test>\r\n\r\n"}}
	})
	o.MustSend(o.Mailbox, submit.SendEmailIn{To: submit.Texts{"w@far.test"}, Subject: "s", Text: "hello", MessageID: "<mine@away.test>"})
	o.Becomes("w@far.test", store.OutgoingRelayed)
	o.Until("it was looked for", func() bool { o.Hurry(); return o.Copies() == 0 })
	if filed := o.Filed(); len(filed) != 1 {
		t.Errorf("filed again: %+v", filed)
	}
}

// TestSuppressedMailIsNoSentMail: a message that was suppressed while it was queued was not sent,
// so no copy is filed.
func TestSuppressedMailIsNoSentMail(t *testing.T) {
	o := servicetest.NewOutpost(t, &servicetest.Host{})
	if _, err := o.Send(o.Mailbox, submit.SendEmailIn{To: submit.Texts{"x@far.test"}, Subject: "s", Text: "t"}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Svc.Feedback.CreateSuppression(context.Background(), servicetest.Actor(o.Account), feedback.CreateSuppressionIn{Email: "x@far.test"}); err != nil {
		t.Fatal(err)
	}
	o.Run()
	o.Becomes("x@far.test", store.OutgoingSuppressed)
	if n := o.Copies(); n != 0 {
		t.Errorf("%d copies wait to be filed", n)
	}
}

// TestSentMailThatCannotBeFiled: it is sent once all the same, and its copy is dropped.
func TestSentMailThatCannotBeFiled(t *testing.T) {
	for name, change := range map[string]func(o *servicetest.Outpost){
		"no such folder": func(o *servicetest.Outpost) { o.IMAP.Folders = nil },
		"Gmail":          func(o *servicetest.Outpost) { o.IMAP.Caps += " X-GM-EXT-1" },
		"refused": func(o *servicetest.Outpost) {
			o.IMAP.Manners = func(tag, verb string, _ net.Conn, w io.Writer) bool {
				if verb == "APPEND" {
					fmt.Fprintf(w, "%s NO full\r\n", tag)
				}
				return verb == "APPEND"
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := servicetest.NewOutpost(t, &servicetest.Host{})
			o.IMAP.Change(func() { change(o) })
			o.Run()
			o.MustSend(o.Mailbox, submit.SendEmailIn{To: submit.Texts{"x@far.test"}, Subject: "s", Text: "hello"})
			o.Becomes("x@far.test", store.OutgoingRelayed)
			o.Until("it is given up", func() bool { o.Hurry(); return o.Copies() == 0 })
			if n, mails := len(o.Filed()), len(o.SMTP.Mails()); n != 0 || mails != 1 {
				t.Errorf("%d filed, %d sent", n, mails)
			}
		})
	}
}

// TestBounceOfExternalMailbox: the report goes to the mailbox's own server. Filed here it would
// have a UID that the server assigns to another message, which would then be invisible or deleted
// instead.
func TestBounceOfExternalMailbox(t *testing.T) {
	o := servicetest.NewOutpost(t, &servicetest.Host{Rcpt: func(string) string { return "550 5.1.1 nobody" }})
	o.IMAP.Change(func() { o.IMAP.Add("Subject: old\r\n\r\n") })
	on := true
	if _, err := o.Svc.External.SetUniversalInbox(t.Context(), servicetest.Actor(o.Account), external.UniversalInboxIn{Enabled: &on}); err != nil {
		t.Fatal(err)
	}
	o.Run()
	inbox := func() string {
		page, err := o.Svc.Inbox.ListEmailUserInbox(t.Context(), servicetest.Actor(o.Account), inbox.ListEmailUserInboxIn{UserID: o.Mailbox.ID})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, m := range page.Data {
			out = append(out, m.UID+" "+m.Subject)
		}
		return strings.Join(out, ", ")
	}
	look := func() {
		if _, err := o.Svc.External.RefreshEmailUserInbox(t.Context(), servicetest.Actor(o.Account), core.EmailUserIn{UserID: o.Mailbox.ID}); err != nil {
			t.Fatal(err)
		}
	}
	o.Until("the first look is done", func() bool { return inbox() == "1 old" })
	o.MustSend(o.Mailbox, submit.SendEmailIn{To: submit.Texts{"x@far.test"}, Subject: "s", Text: "hello"})
	o.Becomes("x@far.test", store.OutgoingBounced)
	o.IMAP.Change(func() { o.IMAP.Add("Subject: new\r\n\r\n") })
	o.Until("the report and the new message are here", func() bool {
		look()
		time.Sleep(50 * time.Millisecond)
		got := inbox()
		return strings.Contains(got, "new") && strings.Contains(strings.ToLower(got), "undeliver") && strings.Count(got, ",") == 2
	})
	o.Until("nothing waits", func() bool { return o.Copies() == 0 })
	for _, uid := range []uint32{2, 3} {
		if m := o.IMAP.Find(uid); m == nil || !strings.Contains(inbox(), fmt.Sprint(uid)) {
			t.Errorf("message %d: %+v, here %s", uid, m, inbox())
		}
	}
}

// TestWrongPortIsOnesOwn: a mailbox with a wrong port does not delay other mailboxes on the same
// host.
func TestWrongPortIsOnesOwn(t *testing.T) {
	o := servicetest.NewOutpost(t, &servicetest.Host{})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	wrong := *o.Mailbox
	wrong.External = &store.External{IMAP: store.Server{Host: "127.0.0.1", Port: closed.Addr().(*net.TCPAddr).Port, Security: "none"}}
	wrong.External.IMAP.PasswordSealed = o.Svc.Core.Keys.Seal(store.ServerBinding(wrong.ID, "imap"), []byte("x"))
	if _, err := o.Svc.External.Connect(t.Context(), &wrong); err == nil {
		t.Fatal("somebody listens")
	}
	if until := o.Svc.External.DownUntil(o.Mailbox.ID); !until.IsZero() {
		t.Errorf("the other is left alone until %s", until)
	}
}
