package faults

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/smtp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/mailstead/mailstead/e2e/rig"
)

// TestDeadResolver: without DNS mail is taken all the same, within a bound, and says that it could
// not be judged; what needs DNS says so.
func TestDeadResolver(t *testing.T) {
	t.Parallel()
	hook, world := rig.NewWebhookReceiver(t), rig.NewFakeResolver(t)
	i := rig.Start(t, rig.GenerousLimits, "--resolver", world.Addr, "--ca-file", hook.CAFile)
	world.Delegate(i.Ready.DNS)
	i.AddDomain("example.test")
	box := i.AddMailbox("ann@example.test", "correct horse")
	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"later.test"}}, nil)
	_, port, _ := net.SplitHostPort(hook.Server.Listener.Addr().String())
	var made struct{ ID string }
	i.Want(201, "POST", "/v1/webhooks", map[string]any{"url": "https://hook.far.test:" + port, "events": []string{"email.received"}}, &made)
	world.SetSilent(true)

	checked := make(chan string, 1)
	go func() {
		start := time.Now()
		var out struct {
			Domains []struct{ Status, Message string }
		}
		i.Want(200, "POST", "/v1/domains/check-ns", map[string]any{"domains": []string{"later.test"}}, &out)
		t.Logf("check-ns answered after %s: %+v", time.Since(start), out)
		checked <- out.Domains[0].Status
	}()
	start := time.Now()
	signed := "DKIM-Signature: v=1; a=rsa-sha256; d=elsewhere.test; s=s1; h=from; bh=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=; b=AAAA\r\n" + rig.Letter("undecided")
	if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", signed); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 25*time.Second {
		t.Errorf("a message took %s", took)
	} else {
		t.Logf("a message took %s", took)
	}
	start = time.Now()
	var page struct {
		Data []struct {
			Auth struct{ SPF, DKIM, DMARC string }
		}
	}
	i.Want(200, "GET", "/v1/email-users/"+box+"/inbox", nil, &page)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the API took %s", took)
	}
	if a := page.Data[0].Auth; a.SPF != "temperror" || a.DKIM != "temperror" || a.DMARC != "temperror" {
		t.Errorf("auth: %+v, want temperror thrice", a)
	}
	var log struct {
		Data []struct {
			Outcome   string
			ErrorCode *string `json:"error_code"`
		}
	}
	i.Until("the webhook was tried", func() bool {
		i.Want(200, "GET", "/v1/webhooks/"+made.ID+"/deliveries", nil, &log)
		return len(log.Data) > 0
	})
	if d := log.Data[len(log.Data)-1]; d.Outcome != "failed" || d.ErrorCode == nil || *d.ErrorCode != "dns" {
		t.Errorf("first delivery: %+v", d)
	}
	if status := <-checked; status != "error" {
		t.Errorf("check-ns says %q of a domain that cannot be looked up", status)
	}
}

// A moodyRelay treats each connection in its own way, until the moods are used up; then it takes
// everything.
type moodyRelay struct {
	good  *rig.FakeSMTP
	moods []func(*rig.Talk)
	addr  string
	next  atomic.Int32
}

func newMoodyRelay(t *testing.T, moods ...func(*rig.Talk)) *moodyRelay {
	t.Helper()
	r := &moodyRelay{good: rig.NewFakeSMTP(t, false, func(n int) string { return fmt.Sprintf("250 Ok id-%d", n) }), moods: moods}
	r.addr = rig.Serve(t, r.serve)
	return r
}

func (r *moodyRelay) serve(c net.Conn) {
	n := int(r.next.Add(1)) - 1
	if n >= len(r.moods) {
		r.good.Serve(c)
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	tc := rig.NewTalk(c)
	_, _ = io.WriteString(c, "220 moody\r\n")
	r.moods[n](tc)
}

// until answers every command until the one that begins with verb has come.
func until(c *rig.Talk, verb string) {
	for {
		line, err := c.Reader.ReadString('\n')
		if err != nil || strings.HasPrefix(line, verb) {
			return
		}
		_, _ = io.WriteString(c, "250 ok\r\n")
	}
}

// TestRelayThatStallsAndDrops: a relay that goes silent or away in the middle of a message, or is
// busy, gets the message once in the end, and holds nobody else up.
func TestRelayThatStallsAndDrops(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	stall := func(c *rig.Talk) { // takes nothing of the message, and leaves when it is told to
		until(c, "DATA")
		_, _ = io.WriteString(c, "354 go on\r\n")
		<-release
	}
	drop := func(c *rig.Talk) {
		until(c, "DATA")
		_, _ = io.WriteString(c, "354 go on\r\n")
		_, _ = io.CopyN(io.Discard, c.Reader, 64<<10)
	}
	busy := func(c *rig.Talk) {
		until(c, "MAIL")
		_, _ = io.WriteString(c, "421 4.3.2 busy, come again\r\n")
	}
	relay, world := newMoodyRelay(t, stall, drop, busy), rig.NewFakeResolver(t)
	mx := rig.NewFakeSMTP(t, false, func(int) string { return "250 taken" })
	host, port, _ := net.SplitHostPort(relay.addr)
	_, mxPort, _ := net.SplitHostPort(mx.Addr)
	config := rig.GenerousLimits + fmt.Sprintf("[[relay]]\nname='r1'\nkind='custom'\nhost=%q\nport=%s\ntls='none'\n", host, port)
	i := rig.Start(t, config, "--resolver", world.Addr, "--outbound", "relay", "--mx-port", mxPort)
	world.Delegate(i.Ready.DNS)
	world.Set(t, "far.test", "MX", "10 mx.far.test.")
	world.Set(t, "mx.far.test", "A", "127.0.0.1")
	world.Set(t, "mx.far.test", "AAAA")
	i.AddDomain("example.test")
	direct := i.AddDomain("direct.test")
	i.Want(200, "PATCH", "/v1/domains/"+direct, map[string]any{"sending_mode": "direct"}, nil)
	ann, dan := i.AddMailbox("ann@example.test", "correct horse"), i.AddMailbox("dan@direct.test", "battery staple")
	send := func(user, to, text string) {
		i.Want(200, "POST", "/v1/email-users/"+user+"/inbox/send", map[string]any{"to": to, "subject": "s", "text": text}, nil)
	}
	send(ann, "slow@far.test", strings.Repeat("a long message\n", 500_000))
	i.Until("the relay stalls", func() bool { return relay.next.Load() == 1 })

	start := time.Now()
	send(dan, "quick@far.test", "hello")
	send(ann, "dan@direct.test", "hello")
	i.Until("others are served", func() bool {
		log := rig.SendingLog(i)
		return log["quick@far.test"].Status == "sent" && log["dan@direct.test"].Status == "delivered"
	})
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("others waited %s for a relay that stalls", took)
	}
	close(release)
	for attempt := 1; attempt <= 2; attempt++ {
		i.Until("the attempt has failed", func() bool {
			r := rig.SendingLog(i)["slow@far.test"]
			return r.Status == "deferred" && r.Attempts == attempt
		})
		r := rig.SendingLog(i)["slow@far.test"]
		t.Logf("attempt %d: %s", r.Attempts, *r.LastResponse)
		i.Want(200, "POST", "/v1/messages/"+r.ID+"/retry", nil, nil)
	}
	// A relay that is busy is asked again after some seconds, which is no failed attempt.
	i.Until("the message is relayed", func() bool { return rig.SendingLog(i)["slow@far.test"].Status == "relayed" })
	if r := rig.SendingLog(i)["slow@far.test"]; r.Attempts != 3 || r.LastResponse == nil || !strings.Contains(*r.LastResponse, "Ok id-1") {
		t.Errorf("the log: %+v", r)
	}
	if n := len(relay.good.Mails()); n != 1 {
		t.Errorf("the relay took the message %d times", n)
	}
	i.Check()
}

// TestManyHostsThatStall: hosts that take a connection and say nothing, more of them than there are
// workers, hold up neither local mail nor what is told.
func TestManyHostsThatStall(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes the connections
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	hook, world := rig.NewWebhookReceiver(t), rig.NewFakeResolver(t)
	_, port, _ := net.SplitHostPort(silent.Addr().String())
	i := rig.Start(t, rig.GenerousLimits, "--resolver", world.Addr, "--outbound", "direct", "--mx-port", port, "--ca-file", hook.CAFile)
	world.Delegate(i.Ready.DNS)
	world.Set(t, "silent.test", "A", "127.0.0.1")
	world.Set(t, "silent.test", "AAAA")
	i.AddDomain("example.test")
	ann, bob := i.AddMailbox("ann@example.test", "correct horse"), i.AddMailbox("bob@example.test", "battery staple")
	hook.Subscribe(i, "email.received")
	for d := range 40 {
		name := fmt.Sprintf("far%d.test", d)
		world.Set(t, name, "MX", "10 silent.test.")
		var to []string
		for n := range 6 {
			to = append(to, fmt.Sprintf("user%d@%s", n, name))
		}
		i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": to, "subject": "s", "text": "hello"}, nil)
	}
	time.Sleep(500 * time.Millisecond) // so that every worker waits for one of them
	start := time.Now()
	i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": "bob@example.test", "subject": "near", "text": "hello"}, nil)
	i.Until("local mail has arrived and was told of", func() bool {
		return len(i.Inbox(bob)) == 1 && len(hook.EventIDs("email.received", "subject")["near"]) == 1
	})
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("local mail and its webhook waited %s for hosts that stall", took)
	}
}

// TestReceiversThatMisbehave: what each receiver does shows in its own log, and none holds another
// up.
func TestReceiversThatMisbehave(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	var flaky, good atomic.Int32
	hanging, ca := rig.ServeHTTPS(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})
	release := sync.OnceFunc(func() { close(over) })
	t.Cleanup(release) // before the receiver closes, which waits for its requests
	resetting, _ := rig.ServeHTTPS(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(http.ErrAbortHandler) // HTTP/2: the stream is reset
		}
		_ = c.(*tls.Conn).NetConn().(*net.TCPConn).SetLinger(0)
		c.Close()
	})
	stumbling, _ := rig.ServeHTTPS(t, func(w http.ResponseWriter, _ *http.Request) {
		if flaky.Add(1) == 1 {
			w.WriteHeader(500)
		}
	})
	gone, _ := rig.ServeHTTPS(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(410) })
	healthy, _ := rig.ServeHTTPS(t, func(http.ResponseWriter, *http.Request) { good.Add(1) })
	i, _ := rig.StartWithMailbox(t, "--ca-file", ca)
	ids := map[string]string{}
	for _, url := range []string{hanging, resetting, stumbling, gone, healthy} {
		var made struct{ ID string }
		i.Want(201, "POST", "/v1/webhooks", map[string]any{"url": url, "events": []string{"email.received"}}, &made)
		ids[url] = made.ID
	}
	start := time.Now()
	const messages = 20
	for n := range messages {
		if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter(fmt.Sprint(n))); err != nil {
			t.Fatal(err)
		}
	}
	i.Until("the healthy receiver has everything", func() bool { return good.Load() >= messages })
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("a healthy receiver waited %s for others", took)
	}
	first := func(url string) (d deliveryRow) {
		i.Until("an attempt is in the log", func() bool {
			log := deliveries(i, ids[url])
			for _, d = range log {
				if d.Attempt == 1 && d.Outcome == "failed" {
					return true
				}
			}
			return false
		})
		return d
	}
	for url, want := range map[string]string{hanging: "timeout", resetting: "connect", stumbling: "http_status", gone: "http_status"} {
		d := first(url)
		if d.ErrorCode == nil || *d.ErrorCode != want {
			t.Errorf("a receiver that should show %s: %+v", want, d)
		}
		if d.NextAttemptAt == nil && url != gone {
			t.Errorf("%s: no next attempt: %+v", want, d)
		}
	}
	i.Until("the second attempt succeeds", func() bool {
		for _, d := range deliveries(i, ids[stumbling]) {
			if d.Attempt == 2 {
				return d.Outcome == "success" && d.Trigger == "retry"
			}
		}
		return false
	})
	var w struct {
		Status string
		Reason *string `json:"disabled_reason"`
	}
	i.Want(200, "GET", "/v1/webhooks/"+ids[gone], nil, &w)
	if w.Status != "disabled" || w.Reason == nil || *w.Reason != "gone" {
		t.Errorf("after 410 the endpoint is %+v", w)
	}
	release()
	i.Check()
}

// A deliveryRow is what the tests read of an endpoint's log.
type deliveryRow struct {
	Attempt       int
	Outcome       string
	Trigger       string
	ErrorCode     *string `json:"error_code"`
	NextAttemptAt *string `json:"next_attempt_at"`
}

func deliveries(i *rig.Instance, id string) []deliveryRow {
	i.T.Helper()
	var page struct{ Data []deliveryRow }
	i.Want(200, "GET", "/v1/webhooks/"+id+"/deliveries?limit=100", nil, &page)
	return page.Data
}

// TestTwoAccounts: what belongs to one account is not there for the other, whichever way it asks.
func TestTwoAccounts(t *testing.T) {
	t.Parallel()
	hook := rig.NewWebhookReceiver(t)
	a, ann := rig.StartWithMailbox(t, "--ca-file", hook.CAFile)
	b := a.SecondAccount()
	b.AddDomain("other.test")
	bob := b.AddMailbox("bob@other.test", "battery staple")
	webhook := hook.Subscribe(a, "*")
	for to, subject := range map[string]string{"bob@other.test": "to the neighbour", "x@far.test": "to far away"} {
		a.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": to, "subject": subject, "text": "hello"}, nil)
	}
	if err := rig.Transmit(a.Ready.SMTP, "ann@example.test", rig.Letter("secret of ann")); err != nil {
		t.Fatal(err)
	}
	a.Want(201, "POST", "/v1/suppressions", map[string]any{"email": "never@far.test"}, nil)
	rig.WaitUntilSent(a)
	a.Until("the event is told", func() bool { return len(deliveries(a, webhook)) > 0 })

	t.Run("mail between accounts is mail", func(t *testing.T) {
		a.Until("it arrives", func() bool { return len(b.Inbox(bob)) == 1 })
		if r := b.Inbox(bob)[0]; r.Subject != "to the neighbour" || r.Mailbox != "bob@other.test" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("ids", func(t *testing.T) { foreignIDs(t, a, b, ann, webhook) })
	t.Run("lists", func(t *testing.T) {
		for _, path := range []string{
			"/v1/domains", "/v1/email-users", "/v1/inbox", "/v1/webhooks", "/v1/events", "/v1/messages", "/v1/jobs", "/v1/suppressions",
			"/v1/auth/tokens", "/v1/email-users?domain=example.test", "/v1/messages?mailbox=ann@example.test", "/v1/inbox?mailbox=ann@example.test",
			"/v1/events?type=email.received", "/v1/jobs?domain=example.test",
		} {
			text := b.GetText(path)
			for _, word := range []string{"example.test\"", ann, webhook, "secret of ann", "never@far.test", "x@far.test"} {
				if path == "/v1/inbox" || strings.HasPrefix(path, "/v1/events") {
					text = strings.ReplaceAll(text, "ann@example.test", "") // who wrote to bob
				}
				if strings.Contains(text, word) && !strings.Contains(text, "\"error\"") {
					t.Errorf("%s shows %q: %s", path, word, text)
				}
			}
		}
		if text := b.GetText("/v1/inbox"); strings.Contains(text, ann) {
			t.Errorf("the account's inbox shows the neighbour's: %s", text)
		}
	})
	t.Run("making what is there", func(t *testing.T) {
		if status := b.Do("POST", "/v1/email-users", map[string]any{"email": "ann@example.test"}, nil); status != 400 {
			t.Errorf("a mailbox on the neighbour's domain: %d", status)
		}
		if status := a.Do("POST", "/v1/email-users", map[string]any{"email": "Ann@Example.test"}, nil); status != 409 {
			t.Errorf("the same mailbox again: %d", status)
		}
		var out struct{ Domains []struct{ Status string } }
		b.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"example.test"}}, &out)
		if out.Domains[0].Status != "error" {
			t.Errorf("connecting the neighbour's domain: %+v", out)
		}
	})
	t.Run("IMAP and submission", func(t *testing.T) { foreignMail(t, b) })
	if rows := a.Inbox(ann); len(rows) != 1 || rows[0].Subject != "secret of ann" {
		t.Errorf("ann's inbox: %+v", rows)
	}
	for subject := range hook.EventIDs("email.received", "subject") {
		if subject != "secret of ann" {
			t.Errorf("the neighbour's message %q was told", subject)
		}
	}
	a.Check()
}

// foreignIDs asks for everything of a with b's token.
func foreignIDs(t *testing.T, a, b *rig.Instance, ann, webhook string) {
	uid := a.Inbox(ann)[0].UID
	domain, event, job := a.FirstID("/v1/domains?x=1"), a.FirstID("/v1/events"), a.FirstID("/v1/jobs")
	message := a.FirstID("/v1/messages")
	eu, wh, dom := "/v1/email-users/"+ann, "/v1/webhooks/"+webhook, "/v1/domains/"+domain
	for _, r := range []struct {
		method, path string
		body         any
	}{
		{"GET", dom, nil},
		{"PATCH", dom, map[string]any{"notes": "mine"}},
		{"DELETE", dom, nil},
		{"GET", dom + "/dns-status", nil},
		{"GET", dom + "/dns-records", nil},
		{"POST", dom + "/verify-dns", nil},
		{"GET", dom + "/email-users", nil},
		{"GET", eu, nil},
		{"PATCH", eu, map[string]any{"name": "mine"}},
		{"DELETE", eu, nil},
		{"GET", eu + "/inbox", nil},
		{"POST", eu + "/inbox/send", map[string]any{"to": "x@far.test", "subject": "s", "text": "t"}},
		{"POST", eu + "/inbox/refresh", nil},
		{"GET", eu + "/inbox/" + uid, nil},
		{"GET", eu + "/inbox/" + uid + "/raw", nil},
		{"GET", eu + "/inbox/" + uid + "/attachments/0", nil},
		{"PATCH", eu + "/inbox/" + uid, map[string]any{"is_read": true}},
		{"DELETE", eu + "/inbox/" + uid, nil},
		{"GET", "/v1/inbox/" + uid + "?mailbox=ann@example.test", nil},
		{"PATCH", "/v1/inbox/" + uid + "?mailbox=ann@example.test", map[string]any{"is_read": true}},
		{"DELETE", "/v1/inbox/" + uid + "?mailbox=ann@example.test", nil},
		{"GET", wh, nil},
		{"PATCH", wh, map[string]any{"description": "mine"}},
		{"DELETE", wh, nil},
		{"GET", wh + "/secret", nil},
		{"POST", wh + "/rotate-secret", nil},
		{"POST", wh + "/test", nil},
		{"GET", wh + "/deliveries", nil},
		{"POST", wh + "/deliveries/" + event + "/redeliver", nil},
		{"GET", "/v1/jobs/" + job, nil},
		{"GET", "/v1/jobs?job_id=" + job, nil},
		{"POST", "/v1/messages/" + message + "/retry", nil},
		{"POST", "/v1/messages/" + message + "/cancel", nil},
		{"DELETE", "/v1/suppressions/never@far.test", nil},
		{"DELETE", "/v1/auth/tokens/" + a.FirstID("/v1/auth/tokens"), nil},
	} {
		if status := b.Do(r.method, r.path, r.body, nil); status != 404 {
			t.Errorf("%s %s of another account: %d, want 404", r.method, r.path, status)
		}
	}
	var out struct{ Deleted, Queued, Failed int }
	b.Want(200, "POST", "/v1/inbox/bulk-delete", map[string]any{"messages": []any{map[string]any{"uid": uid, "mailbox": "ann@example.test"}}}, &out)
	if out.Deleted != 0 || out.Failed != 1 {
		t.Errorf("bulk-delete of another's message: %+v", out)
	}
	b.Want(200, "POST", "/v1/email-users/bulk-delete", map[string]any{"user_ids": []string{ann}}, &out)
	if out.Queued != 0 {
		t.Errorf("bulk-delete of another's mailbox: %+v", out)
	}
	b.Want(200, "POST", "/v1/email-users/bulk-delete", map[string]any{"emails": []string{"ann@example.test"}}, &out)
	if out.Queued != 0 {
		t.Errorf("bulk-delete of another's mailbox by its address: %+v", out)
	}
}

// foreignMail logs in as bob and tries to read, and to write as, ann.
func foreignMail(t *testing.T, b *rig.Instance) {
	c := b.ReadMail("bob@other.test", "battery staple")
	s, err := c.Select("INBOX", nil).Wait()
	if err != nil || s.NumMessages != 1 {
		t.Fatalf("bob's INBOX: %+v, %v", s, err)
	}
	found, err := c.UIDSearch(&imap.SearchCriteria{Text: []string{"secret of ann"}}, nil).Wait()
	if err != nil || len(found.AllUIDs()) != 0 {
		t.Errorf("bob finds %+v, %v", found, err)
	}
	if err := c.Login("ann@example.test", "battery staple").Wait(); err == nil {
		t.Error("bob became ann")
	}
	send := func(envelope, from string) error {
		c, err := smtp.Dial(b.Ready.Submission)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Auth(rig.PlainAuth{User: "bob@other.test", Password: "battery staple"}); err != nil {
			t.Fatal(err)
		}
		if err := c.Mail(envelope); err != nil {
			return err
		}
		if err := c.Rcpt("ann@example.test"); err != nil {
			return err
		}
		w, err := c.Data()
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "From: %s\r\nSubject: forged\r\n\r\nhello\r\n", from)
		return w.Close()
	}
	for _, r := range [][2]string{
		{"ann@example.test", "ann@example.test"}, {"bob@other.test", "ann@example.test"}, {"ann@example.test", "bob@other.test"},
		{"bob@other.test", "ann@example.test, bob@other.test"}, {"bob@other.test", "bob@other.test\r\nFrom: ann@example.test"},
		{"bob@other.test", "bob@other.test\r\nSender: ann@example.test"},
	} {
		if send(r[0], r[1]) == nil {
			t.Errorf("bob sent as %q from %q", r[1], r[0])
		}
	}
}
