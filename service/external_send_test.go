package service

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store"
)

// TestExternalMailboxSendsThroughItsOwnServer: to strangers and to mailboxes here alike, with its
// own log-in, unsigned.
func TestExternalMailboxSendsThroughItsOwnServer(t *testing.T) {
	own, relay := (&host{}).start(t), (&host{}).start(t)
	i := install(t, Config{Outbound: "relay", Relays: []Relay{relay.relay("ses")}})
	i.addMailbox(i.addDomain(i.account, "here.test", nil), "bob", nil)
	i.addDomain(i.account, "away.test", func(d *store.Domain) { d.DNSProvider = providerExternal })
	server := func(port int) *MailServerLogin {
		return &MailServerLogin{Host: "127.0.0.1", Port: port, Security: "none", Username: "me", Password: "s3cret"}
	}
	made, err := i.svc.CreateEmailUser(context.Background(), actor(i.account), CreateEmailUserIn{
		Email: "me@away.test", Type: "external", IMAP: server(1), SMTP: server(own.port),
	})
	if err != nil {
		t.Fatal(err)
	}
	mute, err := i.svc.CreateEmailUser(context.Background(), actor(i.account), CreateEmailUserIn{Email: "mute@away.test", Type: "external", IMAP: server(1)})
	if err != nil {
		t.Fatal(err)
	}
	i.run()
	i.mustSend(&store.Mailbox{ID: made.ID, AccountID: i.account.AccountID}, SendEmailIn{To: Texts{"x@far.test", "bob@here.test"}, Subject: "s"})
	for _, to := range []string{"x@far.test", "bob@here.test"} {
		if row := i.becomes(to, store.OutgoingRelayed); row.Provider != "127.0.0.1" || row.Transport != viaRelay {
			t.Errorf("%+v", row)
		}
	}
	mails := own.mails()
	if len(mails) != 2 || len(relay.mails()) != 0 || mails[0].from != "me@away.test" || strings.Contains(mails[0].data, "DKIM-Signature") {
		t.Errorf("%d there, %d at the relay: %+v", len(mails), len(relay.mails()), mails)
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	if want := base64.StdEncoding.EncodeToString([]byte("\x00me\x00s3cret")); own.login != want {
		t.Errorf("log-in %q, want %q", own.login, want)
	}
	if _, err := i.send(&store.Mailbox{ID: mute.ID, AccountID: i.account.AccountID}, SendEmailIn{To: Texts{"x@far.test"}, Subject: "s"}); !hasCode(err, "validation_error") {
		t.Errorf("without smtp: %v", err)
	}
}

func TestSeatsGoToThoseWithNewestMail(t *testing.T) {
	i := newIdlers()
	if ctx, _ := i.take("early", "acc", time.Unix(1, 0)); ctx != nil {
		t.Error("a seat before it is open")
	}
	i.open(t.Context())
	var seats []*seat
	contexts := map[string]context.Context{}
	for n := range idleMost {
		name := string(rune('A'+n/26)) + string(rune('a'+n%26))
		ctx, s := i.take(name, "acc", time.Unix(int64(1000+n), 0))
		seats, contexts[name] = append(seats, s), ctx
	}
	if ctx, _ := i.take("old", "acc", time.Unix(999, 0)); ctx != nil {
		t.Error("a seat for one whose mail is older than all")
	}
	ctx, s := i.take("new", "acc", time.Unix(5000, 0))
	if ctx == nil || contexts["Aa"].Err() == nil || i.has("Aa") || !i.has("new") {
		t.Error("no seat for one whose mail is newer")
	}
	i.dropAccount("acc")
	if ctx.Err() == nil {
		t.Error("a session of the account goes on")
	}
	for _, s := range append(seats, s) {
		i.leave(s)
	}
	i.close()
	if i.has("new") {
		t.Error("a seat is left")
	}
}

func TestFailuresAreTriedLessAndLess(t *testing.T) {
	last := time.Duration(0)
	for n := 1; n <= 12; n++ {
		d := failureWait(n, 0.5)
		if d < last || d > failureLatest {
			t.Errorf("after %d failures %s, before that %s", n, d, last)
		}
		last = d
	}
	h := &hosts{down: map[string]outage{}}
	now := time.Unix(0, 0)
	h.note("h", false, now)
	if h.until("h", now).IsZero() || h.until("other", now) != (time.Time{}) {
		t.Error("a server that does not answer is left alone, another is not")
	}
	later := now.Add(time.Minute)
	if !h.until("h", later).IsZero() || h.until("h", later).IsZero() {
		t.Error("after a while one of the mailboxes tries, the others wait")
	}
	h.retry("h")
	if !h.until("h", later).IsZero() {
		t.Error("who asks is let through")
	}
	h.note("h", true, later)
	if !h.until("h", later).IsZero() || len(h.down) != 0 {
		t.Error("an answer ends it")
	}
}

// TestNobodyIdlesUnwanted: a session that waits for mail ends with the universal inbox and with the
// suspension of its account, and one whose look began before does not wait at all.
func TestNobodyIdlesUnwanted(t *testing.T) {
	o := newOutpost(t, &host{})
	ctx := t.Context()
	o.svc.externals.idle.open(ctx)
	inbox := func(on bool) {
		t.Helper()
		if _, err := o.svc.SetUniversalInbox(ctx, actor(o.account), UniversalInboxIn{Enabled: &on}); err != nil {
			t.Fatal(err)
		}
	}
	status := func(to string) {
		t.Helper()
		if _, err := o.svc.SetAccountStatus(ctx, AccountIn{Account: o.account.AccountID, Status: to}); err != nil {
			t.Fatal(err)
		}
	}
	var mb *store.Mailbox
	o.update(func(tx *store.Tx) (err error) { mb, err = store.Mailboxes.Get(tx, o.mailbox.ID); return err })
	idles := func() bool {
		t.Helper()
		session, err := o.svc.connect(ctx, mb)
		if err != nil {
			t.Fatal(err)
		}
		kept := o.svc.idleOn(mb, &store.RemoteBox{MailboxID: mb.ID}, session)
		if !kept {
			session.Close()
		}
		return kept
	}
	for _, end := range []struct{ off, on func() }{
		{func() { inbox(false) }, func() { inbox(true) }},
		{func() { status("suspended") }, func() { status("active") }},
	} {
		end.on()
		if !idles() {
			t.Fatal("the session does not wait for mail")
		}
		end.off()
		o.until("the session has ended", func() bool { return !o.svc.externals.idle.has(mb.ID) })
		if idles() || o.svc.externals.idle.has(mb.ID) {
			t.Error("a session waits for mail that nobody wants")
		}
		end.on()
	}
}
