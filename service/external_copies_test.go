package service

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/pull/pulltest"
	"github.com/mailstead/mailstead/store"
)

// An outpost is an installation with a mailbox that lives on servers elsewhere.
type outpost struct {
	*installation
	mailbox *store.Mailbox
	imap    *pulltest.Server
	smtp    *host
	sent    *pulltest.Folder
}

func newOutpost(t *testing.T, smtp *host) *outpost {
	t.Helper()
	o := &outpost{installation: install(t, Config{}), imap: pulltest.Serve(t, nil), smtp: smtp.start(t), sent: &pulltest.Folder{Name: "Sent", Attr: `\Sent`}}
	o.imap.Change(func() { o.imap.Folders = []*pulltest.Folder{o.sent} })
	o.addDomain(o.account, "away.test", func(d *store.Domain) { d.DNSProvider = providerExternal })
	server := func(port int) *MailServerLogin {
		return &MailServerLogin{Host: "127.0.0.1", Port: port, Security: "none", Username: "me", Password: "s3cret"}
	}
	made, err := o.svc.CreateEmailUser(context.Background(), actor(o.account), CreateEmailUserIn{
		Email: "me@away.test", Type: "external", IMAP: server(o.imap.Port), SMTP: server(o.smtp.port),
	})
	if err != nil {
		t.Fatal(err)
	}
	o.mailbox = &store.Mailbox{ID: made.ID, AccountID: o.account.AccountID}
	return o
}

// copies is how many messages wait to be put elsewhere.
func (o *outpost) copies() (n int) {
	o.t.Helper()
	err := o.st.View(func(tx *store.Tx) error {
		for range store.RemoteCopies.All(tx) {
			n++
		}
		return nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return n
}

func (o *outpost) until(what string, ok func() bool) {
	o.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			o.t.Fatalf("waited too long until %s", what)
		}
	}
}

// hurry has everything that waits for another try at the mailbox's server tried now.
func (o *outpost) hurry() {
	o.update(func(tx *store.Tx) error {
		for j := range store.Jobs.All(tx) {
			if j.Kind == kindRemoteCopy || j.Kind == kindRemoteAnswer {
				if err := o.q.Wake(tx, j.ID, tx.Now()); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// filed are the messages in the folder of sent mail.
func (o *outpost) filed() (out []pulltest.Message) {
	o.imap.Change(func() {
		for _, m := range o.sent.Messages {
			out = append(out, *m)
		}
	})
	return out
}

// TestSentMailIsFiledOnItsServer: once, whatever the number of recipients, as one that was read;
// and not again where it is there already, since the server or an attempt that nobody saw the end
// of has put it there.
func TestSentMailIsFiledOnItsServer(t *testing.T) {
	o := newOutpost(t, &host{})
	lost := false
	o.imap.Change(func() {
		o.imap.Manners = func(tag, verb string, c net.Conn, w io.Writer) bool {
			if verb == "UID SEARCH" && !lost {
				lost = true
				c.Close() // the first attempt breaks off
				return true
			}
			return false
		}
	})
	o.run()
	sent := o.mustSend(o.mailbox, SendEmailIn{To: Texts{"x@far.test", "y@far.test"}, Bcc: Texts{"z@far.test"}, Subject: "s", Text: "hello"})
	for _, to := range []string{"x@far.test", "y@far.test", "z@far.test"} {
		o.becomes(to, store.OutgoingRelayed)
	}
	o.until("the copy is there", func() bool { o.hurry(); return len(o.filed()) > 0 && o.copies() == 0 })
	filed := o.filed()
	if len(filed) != 1 || !strings.Contains(filed[0].Text, sent.MessageID) || strings.Contains(filed[0].Text, "z@far.test") ||
		fmt.Sprint(filed[0].Flags) != `[\Seen]` {
		t.Errorf("filed: %+v", filed)
	}
	if got := len(o.smtp.mails()); got != 3 {
		t.Errorf("%d mails were sent", got)
	}
	o.imap.Change(func() {
		o.sent.Messages = []*pulltest.Message{{UID: 1, Text: "Message-ID: <mine@away.test>\r\n\r\n"}}
	})
	o.mustSend(o.mailbox, SendEmailIn{To: Texts{"w@far.test"}, Subject: "s", Text: "hello", MessageID: "<mine@away.test>"})
	o.becomes("w@far.test", store.OutgoingRelayed)
	o.until("it was looked for", func() bool { o.hurry(); return o.copies() == 0 })
	if filed := o.filed(); len(filed) != 1 {
		t.Errorf("filed again: %+v", filed)
	}
}

// TestSentMailThatCannotBeFiled is sent all the same, once, and nothing of it is kept.
// TestSuppressedMailIsNoSentMail: what was suppressed while it waited did not go out, so no copy of
// it is filed.
func TestSuppressedMailIsNoSentMail(t *testing.T) {
	o := newOutpost(t, &host{})
	if _, err := o.send(o.mailbox, SendEmailIn{To: Texts{"x@far.test"}, Subject: "s", Text: "t"}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.svc.CreateSuppression(context.Background(), actor(o.account), CreateSuppressionIn{Email: "x@far.test"}); err != nil {
		t.Fatal(err)
	}
	o.run()
	o.becomes("x@far.test", store.OutgoingSuppressed)
	if n := o.copies(); n != 0 {
		t.Errorf("%d copies wait to be filed", n)
	}
}

func TestSentMailThatCannotBeFiled(t *testing.T) {
	for name, change := range map[string]func(o *outpost){
		"no such folder": func(o *outpost) { o.imap.Folders = nil },
		"Gmail":          func(o *outpost) { o.imap.Caps += " X-GM-EXT-1" },
		"refused": func(o *outpost) {
			o.imap.Manners = func(tag, verb string, _ net.Conn, w io.Writer) bool {
				if verb == "APPEND" {
					fmt.Fprintf(w, "%s NO full\r\n", tag)
				}
				return verb == "APPEND"
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutpost(t, &host{})
			o.imap.Change(func() { change(o) })
			o.run()
			o.mustSend(o.mailbox, SendEmailIn{To: Texts{"x@far.test"}, Subject: "s", Text: "hello"})
			o.becomes("x@far.test", store.OutgoingRelayed)
			o.until("it is given up", func() bool { o.hurry(); return o.copies() == 0 })
			if n, mails := len(o.filed()), len(o.smtp.mails()); n != 0 || mails != 1 {
				t.Errorf("%d filed, %d sent", n, mails)
			}
		})
	}
}

// TestBounceOfExternalMailbox: the report goes to the mailbox's own server. Filed here it would
// have a UID that the server gives to another message, which then nobody would see, or delete in
// its place.
func TestBounceOfExternalMailbox(t *testing.T) {
	o := newOutpost(t, &host{rcpt: func(string) string { return "550 5.1.1 nobody" }})
	o.imap.Change(func() { o.imap.Add("Subject: old\r\n\r\n") })
	on := true
	if _, err := o.svc.SetUniversalInbox(t.Context(), actor(o.account), UniversalInboxIn{Enabled: &on}); err != nil {
		t.Fatal(err)
	}
	o.run()
	inbox := func() string {
		page, err := o.svc.ListEmailUserInbox(t.Context(), actor(o.account), ListEmailUserInboxIn{UserID: o.mailbox.ID})
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
		if _, err := o.svc.RefreshEmailUserInbox(t.Context(), actor(o.account), EmailUserIn{UserID: o.mailbox.ID}); err != nil {
			t.Fatal(err)
		}
	}
	o.until("the first look is done", func() bool { return inbox() == "1 old" })
	o.mustSend(o.mailbox, SendEmailIn{To: Texts{"x@far.test"}, Subject: "s", Text: "hello"})
	o.becomes("x@far.test", store.OutgoingBounced)
	o.imap.Change(func() { o.imap.Add("Subject: new\r\n\r\n") })
	o.until("the report and the new message are here", func() bool {
		look()
		time.Sleep(50 * time.Millisecond)
		got := inbox()
		return strings.Contains(got, "new") && strings.Contains(strings.ToLower(got), "undeliver") && strings.Count(got, ",") == 2
	})
	o.until("nothing waits", func() bool { return o.copies() == 0 })
	for _, uid := range []uint32{2, 3} {
		if m := o.imap.Find(uid); m == nil || !strings.Contains(inbox(), fmt.Sprint(uid)) {
			t.Errorf("message %d: %+v, here %s", uid, m, inbox())
		}
	}
}

// TestPlacesAreShared: whoever holds all that one account may have keeps another from nothing.
func TestPlacesAreShared(t *testing.T) {
	p := newPlaces(4, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var held []func()
	for _, account := range []string{"a", "a", "a", "b", "b", "c"} {
		done, err := p.take(ctx, account)
		if want := len(held) < 2 || account == "b"; (err == nil) != want {
			t.Fatalf("%s: %v, with %d held", account, err, len(held))
		}
		if err == nil {
			held = append(held, done)
		} else {
			ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
		}
	}
	for _, done := range held {
		done()
	}
	if len(p.all) != 0 || len(p.of("a")) != 0 || len(p.of("c")) != 0 {
		t.Error("places are lost")
	}
}

// TestLogInThatIsHungUpOnIsOnesOwn: a server that ends the connection instead of refusing a
// password answers others.
func TestLogInThatIsHungUpOnIsOnesOwn(t *testing.T) {
	o := newOutpost(t, &host{})
	o.imap.Change(func() {
		o.imap.Manners = func(_, verb string, c net.Conn, _ io.Writer) bool {
			if verb == "AUTHENTICATE" {
				c.Close()
			}
			return verb == "AUTHENTICATE"
		}
	})
	var mb *store.Mailbox
	o.update(func(tx *store.Tx) (err error) { mb, err = store.Mailboxes.Get(tx, o.mailbox.ID); return err })
	if _, err := o.svc.connect(t.Context(), mb); err == nil {
		t.Fatal("it is logged in")
	}
	if until := o.svc.downUntil(mb.ID); !until.IsZero() {
		t.Errorf("the server is left alone until %s", until)
	}
}

// TestWrongPortIsOnesOwn: a mailbox that names a port where nobody listens keeps no other one at
// the host waiting.
func TestWrongPortIsOnesOwn(t *testing.T) {
	o := newOutpost(t, &host{})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	wrong := *o.mailbox
	wrong.External = &store.External{IMAP: store.Server{Host: "127.0.0.1", Port: closed.Addr().(*net.TCPAddr).Port, Security: "none"}}
	wrong.External.IMAP.PasswordSealed = o.svc.keys.Seal(serverPlace(wrong.ID, "imap"), []byte("x"))
	if _, err := o.svc.connect(t.Context(), &wrong); err == nil {
		t.Fatal("somebody listens")
	}
	if until := o.svc.downUntil(o.mailbox.ID); !until.IsZero() {
		t.Errorf("the other is left alone until %s", until)
	}
}
