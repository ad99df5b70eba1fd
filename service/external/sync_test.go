package external_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/pull/pulltest"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/external"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
)

// An elsewhere is a running sandbox with a mailbox on another server.
type elsewhere struct {
	*servicetest.Sandbox
	t      *testing.T
	remote *pulltest.Server
	who    core.Actor
	id     string
}

// polling is a server without support for change tracking.
const polling = "IMAP4rev1 AUTH=PLAIN SASL-IR UIDPLUS"

func newElsewhere(t *testing.T, caps string, n int) *elsewhere {
	t.Helper()
	e := &elsewhere{t: t, remote: pulltest.Serve(t, nil)}
	e.remote.Change(func() {
		e.remote.Caps = caps
		for k := range n {
			e.remote.Add(mail(fmt.Sprint("old ", k)))
		}
	})
	e.Sandbox = servicetest.New(t, nil)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	e.Domain(t, e.Owner.AccountID, "away.test", "external", "complete")
	e.who = core.Actor{AccountID: e.Owner.AccountID, AccountNum: 1, Role: "owner", Permissions: []string{"admin"}}
	on := true
	if _, err := e.External.SetUniversalInbox(t.Context(), e.who, external.UniversalInboxIn{Enabled: &on}); err != nil {
		t.Fatal(err)
	}
	e.id = e.add("me", "127.0.0.1", e.remote.Port, nil)
	return e
}

func (e *elsewhere) add(name, host string, port int, smtp *mailboxes.MailServerLogin) string {
	e.t.Helper()
	made, err := e.Mailboxes.CreateEmailUser(e.t.Context(), e.who, mailboxes.CreateEmailUserIn{
		Email: name + "@away.test", Type: "external", SMTP: smtp,
		IMAP: &mailboxes.MailServerLogin{Host: host, Port: port, Security: "none", Username: name, Password: "secret"},
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return made.ID
}

func mail(subject string) string {
	return "From: a@far.test\r\nMessage-ID: <" + strings.ReplaceAll(subject, " ", ".") + "@far.test>\r\nSubject: " + subject + "\r\n\r\nhello\r\n"
}

// subjects returns the subjects of the mailbox's inbox, newest first.
func (e *elsewhere) subjects(id string) (out []string) {
	e.t.Helper()
	page, err := e.Inbox.ListEmailUserInbox(e.t.Context(), e.who, inbox.ListEmailUserInboxIn{UserID: id})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, m := range page.Data {
		out = append(out, m.Subject)
	}
	return out
}

// told returns the subjects of email.received events, in order.
func (e *elsewhere) told() (out []string) {
	e.t.Helper()
	found, err := e.Events.ListEvents(e.t.Context(), e.who, events.ListEventsIn{Type: "email.received"})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, event := range slices.Backward(found.Data) {
		_, rest, _ := strings.Cut(string(event.Data), `"subject":"`)
		subject, _, _ := strings.Cut(rest, `"`)
		out = append(out, subject)
	}
	return out
}

func (e *elsewhere) refresh(id string) {
	e.t.Helper()
	if _, err := e.External.RefreshEmailUserInbox(e.t.Context(), e.who, core.EmailUserIn{UserID: id}); err != nil {
		e.t.Fatal(err)
	}
}

func (e *elsewhere) until(what string, ok func() bool) {
	e.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			e.t.Fatalf("waited too long until %s", what)
		}
	}
}

func (e *elsewhere) mailbox(id string) *mailboxes.EmailUser {
	e.t.Helper()
	mb, err := e.Mailboxes.GetEmailUser(e.t.Context(), e.who, core.EmailUserIn{UserID: id})
	if err != nil {
		e.t.Fatal(err)
	}
	return mb
}

// TestRemoteNewsAreToldOnce: a server that disconnects repeatedly in the middle of new mail causes
// neither duplicate nor missing events.
func TestRemoteNewsAreToldOnce(t *testing.T) {
	e := newElsewhere(t, polling, 3)
	e.until("the first pull is done", func() bool { return len(e.subjects(e.id)) == 3 && e.mailbox(e.id).LastSyncAt.Unix() > 0 })
	var fetches atomic.Int32
	hundred := 100
	var want []string
	e.remote.Change(func() {
		for k := range 120 {
			want = append(want, fmt.Sprint("new ", k))
			e.remote.Add(mail(want[k]))
		}
		e.remote.Manners = func(_, verb string, c net.Conn, _ io.Writer) bool {
			if verb == "UID FETCH" && fetches.Add(1)%2 == 0 {
				c.Close()
				return true
			}
			return false
		}
	})
	e.until("all are told", func() bool {
		e.refresh(e.id)
		time.Sleep(50 * time.Millisecond)
		found, err := e.Inbox.ListEmailUserInbox(t.Context(), e.who, inbox.ListEmailUserInboxIn{UserID: e.id, Query: page.Query{Limit: &hundred}})
		if err != nil {
			t.Fatal(err)
		}
		return len(found.Data) == 100 && found.Data[0].Subject == "new 119"
	})
	seen := map[string]int{}
	found, err := e.Events.ListEvents(t.Context(), e.who, events.ListEventsIn{Type: "email.received", Query: page.Query{Limit: &hundred}})
	for err == nil {
		for _, event := range found.Data {
			_, rest, _ := strings.Cut(string(event.Data), `"subject":"`)
			subject, _, _ := strings.Cut(rest, `"`)
			seen[subject]++
		}
		if found.Pagination.Cursor == nil {
			break
		}
		found, err = e.Events.ListEvents(t.Context(), e.who, events.ListEventsIn{Type: "email.received", Query: page.Query{Limit: &hundred, Cursor: *found.Pagination.Cursor}})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range want {
		if seen[subject] != 1 {
			t.Errorf("%s was told %d times", subject, seen[subject])
		}
	}
	if len(seen) != len(want) {
		t.Errorf("%d were told of %d", len(seen), len(want))
	}
}

// TestRemoteChangesAreSeen: flags, deletions and renumbering on the server are synced, whatever
// extensions it has.
func TestRemoteChangesAreSeen(t *testing.T) {
	for _, caps := range []string{polling, polling + " CONDSTORE", pulltest.Caps} {
		e := newElsewhere(t, caps, 5)
		e.until("the first pull is done", func() bool { return len(e.subjects(e.id)) == 5 && e.mailbox(e.id).LastSyncAt.Unix() > 0 })
		e.remote.Change(func() {
			e.remote.SetFlags(e.remote.Messages[1], `\Seen`, "$Work")
			e.remote.Remove(1)
			e.remote.Remove(5)
			e.remote.Add(mail("new"))
		})
		e.refresh(e.id)
		e.until("the changes are here", func() bool { return slices.Equal(e.subjects(e.id), []string{"new", "old 3", "old 2", "old 1"}) })
		e.until("the flag is here", func() bool { return e.mailbox(e.id).UnreadCount == 3 })
		e.remote.Change(func() {
			e.remote.Validity++
			e.remote.UIDNext = 1
			old := e.remote.Messages
			e.remote.Messages = nil
			for _, m := range old {
				e.remote.Add(m.Text)
			}
		})
		e.refresh(e.id)
		e.until("the new numbers are here", func() bool {
			m, err := e.Inbox.GetMessage(t.Context(), e.who, inbox.MessageIn{UserID: e.id, MessageID: "1"})
			return err == nil && m.UIDValidity == 8 && len(e.subjects(e.id)) == 4
		})
		if told := e.told(); !slices.Equal(told, []string{"new"}) {
			t.Errorf("%s: told: %q", caps, told)
		}
	}
}

// TestRemoteMessageTooLong: for a message above the limit, the header is kept with a text that says
// where to read it.
func TestRemoteMessageTooLong(t *testing.T) {
	e := newElsewhere(t, polling, 0)
	e.remote.Change(func() {
		e.remote.Add("Subject: huge\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n" + strings.Repeat("x\r\n", core.MaxMessage/3+1))
		e.remote.Add("Subject: long\r\n\r\n" + strings.Repeat("0123456789abcdef\r\n", 30_000))
	})
	e.refresh(e.id)
	e.until("both are here", func() bool { return len(e.subjects(e.id)) == 2 })
	huge, err := e.Inbox.GetMessage(t.Context(), e.who, inbox.MessageIn{UserID: e.id, MessageID: "1"})
	if err != nil || huge.Subject != "huge" || huge.Text == nil || !strings.Contains(*huge.Text, "Read it on 127.0.0.1") || huge.Size > 1000 {
		t.Errorf("%+v, %v", huge, err)
	}
	long, err := e.Inbox.GetMessage(t.Context(), e.who, inbox.MessageIn{UserID: e.id, MessageID: "2"})
	if err != nil || long.Size != 540_017 {
		t.Errorf("%+v, %v", long, err)
	}
}

// TestBrokenServerSlowsNobody: many mailboxes are on a server that never answers, and one on a good
// one.
func TestBrokenServerSlowsNobody(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.2:0") // the kernel takes the connections
	if err != nil {
		t.Skip("there is no 127.0.0.2")
	}
	defer silent.Close()
	e := newElsewhere(t, pulltest.Caps, 0)
	for k := range 30 {
		e.add(fmt.Sprint("stuck", k), "127.0.0.2", silent.Addr().(*net.TCPAddr).Port, nil)
	}
	time.Sleep(200 * time.Millisecond)
	good := pulltest.Serve(t, nil)
	good.Change(func() { good.Add(mail("hello")) })
	start := time.Now()
	id := e.add("good", "127.0.0.1", good.Port, nil)
	e.until("the good one is read", func() bool { return len(e.subjects(id)) == 1 })
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestRemoteRefusesChanges: a change that the server does not make is not made here.
func TestRemoteRefusesChanges(t *testing.T) {
	e := newElsewhere(t, polling, 2)
	e.until("the first pull is done", func() bool { return len(e.subjects(e.id)) == 2 })
	e.remote.Change(func() {
		e.remote.Manners = func(tag, verb string, _ net.Conn, w io.Writer) bool {
			if verb == "UID STORE" || verb == "UID EXPUNGE" {
				fmt.Fprintf(w, "%s OK it is not done\r\n", tag)
			}
			return verb == "UID STORE" || verb == "UID EXPUNGE"
		}
	})
	yes := true
	in := inbox.MessageIn{UserID: e.id, MessageID: "1"}
	_, err := e.Inbox.MarkMessage(t.Context(), e.who, inbox.MarkMessageIn{MessageIn: in, MessageMarks: inbox.MessageMarks{IsRead: &yes}})
	if s, ok := core.AsError(err); !ok || s.Code != "upstream_error" {
		t.Errorf("mark: %v", err)
	}
	_, err = e.Inbox.DeleteMessage(t.Context(), e.who, inbox.DeleteMessageIn{MessageIn: in})
	if s, ok := core.AsError(err); !ok || s.Code != "upstream_error" {
		t.Errorf("delete: %v", err)
	}
	if len(e.subjects(e.id)) != 2 || e.mailbox(e.id).UnreadCount != 2 {
		t.Error("something was changed here")
	}
	var looks atomic.Int64
	e.remote.Change(func() {
		e.remote.Validity = 9
		e.remote.Manners = func(_, verb string, _ net.Conn, _ io.Writer) bool {
			if verb == "SELECT" || verb == "EXAMINE" {
				looks.Add(1)
			}
			return false
		}
	})
	_, err = e.Inbox.DeleteMessage(t.Context(), e.who, inbox.DeleteMessageIn{MessageIn: in})
	if err == nil && looks.Load() > 1 {
		t.Skip("a pull came first, so that message 1 is the one of today")
	}
	if s, ok := core.AsError(err); !ok || s.Code != "not_found" {
		t.Errorf("delete under another UIDVALIDITY: %v", err)
	}
	if e.remote.Find(1) == nil {
		t.Error("a message of another UIDVALIDITY was deleted")
	}
}

// TestRemoteQuota: a mailbox fetches no more than its quota, and its error says so.
func TestRemoteQuota(t *testing.T) {
	e := newElsewhere(t, polling, 2)
	e.until("the first pull is done", func() bool { return len(e.subjects(e.id)) == 2 })
	in := mailboxes.UpdateEmailUserIn{UserID: e.id}
	in.QuotaBytes.Set, in.QuotaBytes.Value = true, 10
	if _, err := e.Mailboxes.UpdateEmailUser(t.Context(), e.who, in); err != nil {
		t.Fatal(err)
	}
	e.remote.Change(func() { e.remote.Add(mail("too much")) })
	e.refresh(e.id)
	e.until("it says so", func() bool {
		mb := e.mailbox(e.id)
		return mb.Error != nil && mb.Status == "error" && strings.Contains(mb.Error.Message, "quota_bytes") && mb.Error.Code == "quota_exceeded"
	})
	if got := e.subjects(e.id); len(got) != 2 {
		t.Errorf("stored: %q", got)
	}
}

// TestRemoteStorage: an external mailbox fetches no more than the storage of its account allows.
func TestRemoteStorage(t *testing.T) {
	e := newElsewhere(t, polling, 2)
	e.until("the first pull is done", func() bool { return len(e.subjects(e.id)) == 2 })
	limit := int64(10)
	e.ChangeAccount(t, e.who.AccountID, func(a *servicetest.Account) { a.Limits.StorageBytes = &limit })
	e.remote.Change(func() { e.remote.Add(mail("too much")) })
	e.refresh(e.id)
	e.until("it says so", func() bool {
		mb := e.mailbox(e.id)
		return mb.Error != nil && mb.Status == "error" && strings.Contains(mb.Error.Message, "storage of this account") && mb.Error.Code == "quota_exceeded"
	})
	if got := e.subjects(e.id); len(got) != 2 {
		t.Errorf("stored: %q", got)
	}
}

// TestIdleSessionsEnd: switching the universal inbox off, suspending and deleting end the IDLE
// sessions.
func TestIdleSessionsEnd(t *testing.T) {
	e := newElsewhere(t, pulltest.Caps, 1)
	waits := func() bool { return e.remote.Sessions() == 1 && e.remote.Count("IDLE") > 0 }
	e.until("a session waits", waits)
	suspended, active := "suspended", "active"
	if _, err := e.Mailboxes.UpdateEmailUser(t.Context(), e.who, mailboxes.UpdateEmailUserIn{UserID: e.id, Status: &suspended}); err != nil {
		t.Fatal(err)
	}
	e.until("it has ended", func() bool { return e.remote.Sessions() == 0 })
	if _, err := e.Mailboxes.UpdateEmailUser(t.Context(), e.who, mailboxes.UpdateEmailUserIn{UserID: e.id, Status: &active}); err != nil {
		t.Fatal(err)
	}
	e.until("another waits", waits)
	off := false
	if _, err := e.External.SetUniversalInbox(t.Context(), e.who, external.UniversalInboxIn{Enabled: &off}); err != nil {
		t.Fatal(err)
	}
	e.until("none waits", func() bool { return e.remote.Sessions() == 0 })
	e.remote.Change(func() { e.remote.Add(mail("later")) })
	if _, err := e.External.SetUniversalInbox(t.Context(), e.who, external.UniversalInboxIn{}); err != nil {
		t.Fatal(err)
	}
	e.until("it is read again", func() bool { return slices.Equal(e.told(), []string{"later"}) })
	if _, err := e.Mailboxes.DeleteEmailUser(t.Context(), e.who, mailboxes.DeleteEmailUserIn{UserID: e.id}); err != nil {
		t.Fatal(err)
	}
	e.until("it is gone", func() bool { return e.remote.Sessions() == 0 })
	_, err := e.Mailboxes.GetEmailUser(t.Context(), e.who, core.EmailUserIn{UserID: e.id})
	if s, ok := core.AsError(err); err != nil && (!ok || s.Code != "not_found") {
		t.Error(errors.Join(err))
	}
}
