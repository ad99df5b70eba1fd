package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/smtp"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2"
)

// as is the same instance seen with another token.
func (i *instance) as(token string) *instance {
	other := *i
	other.token = token
	return &other
}

// neighbour makes a second account.
func (i *instance) neighbour() *instance {
	i.t.Helper()
	out, code := mailstead(i.t, "account", "create", "--data", i.dir, "--owner-email", "second@example.org", "--json")
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 || made.Token == "" {
		i.t.Fatalf("account create: %d %v %s", code, err, out)
	}
	return i.as(made.Token)
}

// text gets a page of the API as it is.
func (i *instance) text(path string) string {
	i.t.Helper()
	req, err := http.NewRequest("GET", "http://"+i.ready.HTTP+path, nil)
	if err != nil {
		i.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+i.token)
	resp, err := i.http.Do(req)
	if err != nil {
		i.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	return string(text)
}

// first is the id of the first row of a list.
func (i *instance) first(path string) string {
	i.t.Helper()
	var page struct {
		Data []struct {
			ID    string
			JobID string `json:"job_id"`
		}
	}
	i.want(200, "GET", path, nil, &page)
	if len(page.Data) == 0 {
		i.t.Fatalf("%s lists nothing", path)
	}
	if page.Data[0].ID == "" {
		return page.Data[0].JobID
	}
	return page.Data[0].ID
}

// TestTwoAccounts: what belongs to one account is not there for the other, whichever way it asks.
func TestTwoAccounts(t *testing.T) {
	t.Parallel()
	hook := newHook(t)
	a, ann := alone(t, "--ca-file", hook.caFile)
	b := a.neighbour()
	b.addDomain("other.test")
	bob := b.addMailbox("bob@other.test", "battery staple")
	webhook := hook.subscribe(a, "*")
	for to, subject := range map[string]string{"bob@other.test": "to the neighbour", "x@far.test": "to far away"} {
		a.want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": to, "subject": subject, "text": "hello"}, nil)
	}
	if err := transmit(a.ready.SMTP, "ann@example.test", letter("secret of ann")); err != nil {
		t.Fatal(err)
	}
	a.want(201, "POST", "/v1/suppressions", map[string]any{"email": "never@far.test"}, nil)
	sent(a)
	a.until("the event is told", func() bool { return len(deliveries(a, webhook)) > 0 })

	t.Run("mail between accounts is mail", func(t *testing.T) {
		a.until("it arrives", func() bool { return len(b.inbox(bob)) == 1 })
		if r := b.inbox(bob)[0]; r.Subject != "to the neighbour" || r.Mailbox != "bob@other.test" {
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
			text := b.text(path)
			for _, word := range []string{"example.test\"", ann, webhook, "secret of ann", "never@far.test", "x@far.test"} {
				if path == "/v1/inbox" || strings.HasPrefix(path, "/v1/events") {
					text = strings.ReplaceAll(text, "ann@example.test", "") // who wrote to bob
				}
				if strings.Contains(text, word) && !strings.Contains(text, "\"error\"") {
					t.Errorf("%s shows %q: %s", path, word, text)
				}
			}
		}
		if text := b.text("/v1/inbox"); strings.Contains(text, ann) {
			t.Errorf("the account's inbox shows the neighbour's: %s", text)
		}
	})
	t.Run("making what is there", func(t *testing.T) {
		if status := b.do("POST", "/v1/email-users", map[string]any{"email": "ann@example.test"}, nil); status != 400 {
			t.Errorf("a mailbox on the neighbour's domain: %d", status)
		}
		if status := a.do("POST", "/v1/email-users", map[string]any{"email": "Ann@Example.test"}, nil); status != 409 {
			t.Errorf("the same mailbox again: %d", status)
		}
		var out struct{ Domains []struct{ Status string } }
		b.want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"example.test"}}, &out)
		if out.Domains[0].Status != "error" {
			t.Errorf("connecting the neighbour's domain: %+v", out)
		}
	})
	t.Run("IMAP and submission", func(t *testing.T) { foreignMail(t, b) })
	if rows := a.inbox(ann); len(rows) != 1 || rows[0].Subject != "secret of ann" {
		t.Errorf("ann's inbox: %+v", rows)
	}
	for subject := range hook.of("email.received", "subject") {
		if subject != "secret of ann" {
			t.Errorf("the neighbour's message %q was told", subject)
		}
	}
	a.check()
}

// foreignIDs asks for everything of a with b's token.
func foreignIDs(t *testing.T, a, b *instance, ann, webhook string) {
	uid := a.inbox(ann)[0].UID
	domain, event, job := a.first("/v1/domains?x=1"), a.first("/v1/events"), a.first("/v1/jobs")
	message := a.first("/v1/messages")
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
		{"DELETE", "/v1/auth/tokens/" + a.first("/v1/auth/tokens"), nil},
	} {
		if status := b.do(r.method, r.path, r.body, nil); status != 404 {
			t.Errorf("%s %s of another account: %d, want 404", r.method, r.path, status)
		}
	}
	var out struct{ Deleted, Queued, Failed int }
	b.want(200, "POST", "/v1/inbox/bulk-delete", map[string]any{"messages": []any{map[string]any{"uid": uid, "mailbox": "ann@example.test"}}}, &out)
	if out.Deleted != 0 || out.Failed != 1 {
		t.Errorf("bulk-delete of another's message: %+v", out)
	}
	b.want(200, "POST", "/v1/email-users/bulk-delete", map[string]any{"user_ids": []string{ann}}, &out)
	if out.Queued != 0 {
		t.Errorf("bulk-delete of another's mailbox: %+v", out)
	}
	b.want(200, "POST", "/v1/email-users/bulk-delete", map[string]any{"emails": []string{"ann@example.test"}}, &out)
	if out.Queued != 0 {
		t.Errorf("bulk-delete of another's mailbox by its address: %+v", out)
	}
}

// foreignMail logs in as bob and tries to read, and to write as, ann.
func foreignMail(t *testing.T, b *instance) {
	c := b.readMail("bob@other.test", "battery staple")
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
		c, err := smtp.Dial(b.ready.Submission)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Auth(plainAuth{"bob@other.test", "battery staple"}); err != nil {
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
