package mail

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// An away is an instance with mailboxes that live on a dovecot.
type away struct {
	*rig.Instance
	remote *rig.Dovecot
	users  []string
	ids    map[string]string // of the mailboxes, by user
}

// newAway makes the users' mailboxes with n messages each, and has them fetched.
func newAway(t *testing.T, count, n int, args ...string) *away {
	t.Helper()
	a := &away{ids: map[string]string{}}
	for k := range count {
		a.users = append(a.users, fmt.Sprint("user", k))
	}
	a.remote = rig.StartDovecot(t, a.users)
	a.remote.Fill(a.users, n)
	a.Instance = rig.Start(t, rig.GenerousLimits, append(args, "--log-level", "debug")...)
	a.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"away.test"}, "external": true}, nil)
	a.Want(200, "POST", "/v1/account/universal-inbox", map[string]any{"enabled": true}, nil)
	for _, u := range a.users {
		a.add(u, "secret")
	}
	return a
}

func (a *away) add(user, password string) { a.addWith(user, password, 0) }

// addWith adds a mailbox that sends through a server at the port; 0: it does not send.
func (a *away) addWith(user, password string, smtp int) {
	a.T.Helper()
	var made struct{ ID string }
	server := func(port int) map[string]any {
		return map[string]any{"host": "127.0.0.1", "port": port, "security": "none", "username": user, "password": password}
	}
	body := map[string]any{"email": user + "@away.test", "type": "external", "imap": server(a.remote.Port)}
	if smtp != 0 {
		body["smtp"] = server(smtp)
	}
	a.Want(201, "POST", "/v1/email-users", body, &made)
	a.ids[user] = made.ID
}

// stored is how many messages are stored in all.
func (a *away) stored() int {
	a.T.Helper()
	var usage struct{ Storage struct{ Messages int } }
	a.Want(200, "GET", "/v1/account/usage", nil, &usage)
	return usage.Storage.Messages
}

// untilStored waits, for as long as it goes on.
func (a *away) untilStored(n int) {
	a.T.Helper()
	last, since := -1, time.Now()
	for have := a.stored(); have != n; have = a.stored() {
		if have != last {
			last, since = have, time.Now()
		}
		if time.Since(since) > 30*time.Second {
			a.T.Fatalf("%d messages are stored and no more come, want %d", have, n)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// told gives the subjects of the account's email.received events.
func (a *away) told() (subjects []string) {
	a.T.Helper()
	var page struct {
		Data []struct{ Data struct{ Subject string } }
	}
	a.Want(200, "GET", "/v1/events?type=email.received&limit=100", nil, &page)
	for _, e := range page.Data {
		subjects = append(subjects, e.Data.Subject)
	}
	return subjects
}

// A remoteRow is what the tests read of a message.
type remoteRow struct {
	UID         string
	UIDValidity int64 `json:"uid_validity"`
	Subject     string
	IsRead      bool `json:"is_read"`
}

// newest gives the newest messages of a user's inbox.
func (a *away) newest(user string) []remoteRow {
	a.T.Helper()
	var page struct{ Data []remoteRow }
	a.Want(200, "GET", "/v1/email-users/"+a.ids[user]+"/inbox?limit=100", nil, &page)
	return page.Data
}

func (a *away) find(user, subject string) *remoteRow {
	a.T.Helper()
	for _, r := range a.newest(user) {
		if r.Subject == subject {
			return &r
		}
	}
	return nil
}

// memory watches how much memory the server has at its peak, in MiB: of its own, and with what it
// reads of its files.
type memory struct{ own, all int }

func (a *away) watchMemory(m *memory) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			m.look(a.Ready.PID)
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() { close(ended); <-done }
}

func (m *memory) look(pid int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.Atoi(f[1])
		switch f[0] {
		case "RssAnon:":
			m.own = max(m.own, kib>>10)
		case "VmHWM:":
			m.all = max(m.all, kib>>10)
		}
	}
}

// perMailbox is how many messages each of the 20 mailboxes has: 10 000 by `make soak NAME=all`.
func perMailbox() int {
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		return 10_000
	}
	return 300
}

// TestExternalMailboxes: twenty mailboxes are fetched newest first within a bound of memory; a
// crash in the middle doubles nothing, and nothing of it is told as new.
func TestExternalMailboxes(t *testing.T) {
	t.Parallel()
	n := perMailbox()
	var m memory
	start := time.Now()
	a := newAway(t, 20, n)
	t.Logf("20 mailboxes of %d messages were made in %s", n, time.Since(start))
	start = time.Now()
	stop := a.watchMemory(&m)
	for a.stored() < 20*n/5 {
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	before := a.stored()
	a.Kill()
	a.Start()
	stop = a.watchMemory(&m)
	a.untilStored(20 * n)
	stop()
	took := time.Since(start)
	t.Logf("%d messages after %s, killed at %d; at most %d MiB of its own, %d MiB with mapped files", 20*n, took, before, m.own, m.all)
	if !rig.Race && m.all >= 200 {
		t.Errorf("it took %d MiB", m.all)
	}
	for _, u := range a.users {
		seen := map[string]int{}
		if u != a.users[0] && u != a.users[19] {
			continue
		}
		for _, r := range a.Inbox(a.ids[u]) {
			seen[r.Subject]++
		}
		for k := range n {
			if c := seen[fmt.Sprint("message ", k)]; c != 1 {
				t.Errorf("%s has message %d %d times", u, k, c)
			}
		}
	}
	if told := a.told(); len(told) != 0 {
		t.Errorf("a first pull was told of: %q", told)
	}
	var jobs struct {
		Data []struct {
			Status   string
			Progress *struct{ Completed, Total int }
		}
	}
	a.Until("every sync is done", func() bool {
		a.Want(200, "GET", "/v1/jobs?type=inbox_sync&limit=100", nil, &jobs)
		return len(jobs.Data) == 20 && !slices.ContainsFunc(jobs.Data, func(j struct {
			Status   string
			Progress *struct{ Completed, Total int }
		}) bool {
			return j.Status != "completed"
		})
	})
	for _, j := range jobs.Data {
		if j.Progress == nil || j.Progress.Completed != n || j.Progress.Total != n {
			t.Errorf("progress in the end: %+v", j.Progress)
		}
	}
	a.Check()
}

// TestExternalChanges: news come within a second, what is read and deleted goes both ways, a new
// UIDVALIDITY is survived, and a server that is down refuses changes.
func TestExternalChanges(t *testing.T) {
	t.Parallel()
	a := newAway(t, 2, 30)
	a.untilStored(60)
	u, path := a.users[0], "/v1/email-users/"+a.ids[a.users[0]]+"/inbox"
	a.Until("sessions wait for both", func() bool { return a.idle() == 2 })
	a.untilWithin(time.Second, "a push", func() { a.remote.Put(u, "news 1", 100, 700) }, func() bool { return a.find(u, "news 1") != nil })
	if told := a.told(); !slices.Equal(told, []string{"news 1"}) {
		t.Errorf("told: %q", told)
	}

	row := a.find(u, "news 1")
	a.Want(200, "PATCH", path+"/"+row.UID, map[string]any{"is_read": true, "is_flagged": true}, nil)
	if _, flags := a.remote.File(u, "news 1"); flags != "FS" {
		t.Errorf("flags on the server: %q", flags)
	}
	a.Want(200, "PATCH", "/v1/inbox/"+row.UID+"?mailbox="+u+"@away.test", map[string]any{"is_read": false, "is_flagged": false}, nil)
	if _, flags := a.remote.File(u, "news 1"); flags != "" || a.find(u, "news 1").IsRead {
		t.Errorf("flags on the server: %q", flags)
	}
	file, _ := a.remote.File(u, "message 29")
	if err := os.Rename(file, file[:strings.LastIndex(file, ":")]+":2,S"); err != nil {
		t.Fatal(err)
	}
	a.Until("the server's flag is here", func() bool { return a.find(u, "message 29").IsRead })

	a.Want(200, "DELETE", path+"/"+row.UID, nil, nil)
	if file, _ := a.remote.File(u, "news 1"); file != "" {
		t.Error("the server still has what was deleted")
	}
	a.Want(404, "DELETE", path+"/"+row.UID, nil, nil)
	file, _ = a.remote.File(u, "message 28")
	if os.Remove(file) != nil {
		t.Fatal("no message 28")
	}
	a.Until("what the server lacks is gone", func() bool { return a.find(u, "message 28") == nil })
	var bulk struct{ Deleted, Marked, Failed int }
	a.Want(200, "POST", "/v1/inbox/bulk-mark", map[string]any{"is_flagged": true, "messages": []map[string]string{
		{"uid": a.find(u, "message 26").UID, "mailbox": u + "@away.test"}, {"uid": a.find("user1", "message 26").UID, "mailbox": "user1@away.test"},
		{"uid": "4000", "mailbox": "user1@away.test"},
	}}, &bulk)
	if _, flags := a.remote.File(u, "message 26"); bulk.Marked != 2 || bulk.Failed != 1 || flags != "F" {
		t.Errorf("bulk: %+v, flags on the server: %q", bulk, flags)
	}
	a.Want(200, "POST", "/v1/inbox/bulk-delete", map[string]any{"messages": []map[string]string{
		{"uid": a.find(u, "message 27").UID, "mailbox": u + "@away.test"}, {"uid": a.find("user1", "message 27").UID, "mailbox": "user1@away.test"},
		{"uid": "4000", "mailbox": "user1@away.test"},
	}}, &bulk)
	if bulk.Deleted != 2 || bulk.Failed != 1 {
		t.Errorf("bulk: %+v", bulk)
	}
	if one, _ := a.remote.File(u, "message 27"); one != "" {
		t.Error("the server still has what was deleted with others")
	}

	a.remote.Stop()
	old := a.newest(u)
	a.Want(502, "PATCH", path+"/"+old[0].UID, map[string]any{"is_read": true}, nil)
	a.Want(502, "DELETE", path+"/"+old[0].UID, nil, nil)
	if now := a.newest(u); !slices.Equal(now, old) {
		t.Error("the cache changed without the server")
	}
	time.Sleep(time.Second) // Dovecot's UIDVALIDITY is a time in seconds, and the new one must differ
	a.remote.Renumber(a.users)
	a.Want(200, "POST", path+"/refresh", nil, nil)
	a.Until("the new UIDVALIDITY is taken over", func() bool {
		rows := a.newest(u)
		return len(rows) == len(old) && rows[0].UIDValidity != old[0].UIDValidity
	})
	if told := a.told(); len(told) != 1 {
		t.Errorf("told after a new UIDVALIDITY: %q", told)
	}
	a.remote.Put(u, "news 2", 101, 700)
	a.Want(200, "POST", path+"/refresh", nil, nil)
	a.Until("news after it are told", func() bool { return slices.Contains(a.told(), "news 2") })
	if told := a.told(); len(told) != 2 {
		t.Errorf("told in the end: %q", told)
	}
	a.Check()
}

// idle is how many sessions wait for news, by the log.
func (a *away) idle() int {
	a.T.Helper()
	text, err := os.ReadFile(a.Log.Name())
	if err != nil {
		a.T.Fatal(err)
	}
	return bytes.Count(text, []byte("a session waits for mail")) - bytes.Count(text, []byte("a session that waited for mail has ended"))
}

// untilWithin demands that something follows from something else within a time.
func (a *away) untilWithin(most time.Duration, what string, do func(), ok func() bool) {
	a.T.Helper()
	do()
	start := time.Now()
	for !ok() {
		if time.Since(start) > 10*time.Second {
			a.T.Fatalf("%s did not come", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(start)
	a.T.Logf("%s took %s", what, took)
	if took > most && !rig.Race {
		a.T.Errorf("%s took %s, may take %s", what, took, most)
	}
}

// TestExternalLogin: a refused password stops the looks and says so; a new one resumes them.
func TestExternalLogin(t *testing.T) {
	t.Parallel()
	a := newAway(t, 1, 3)
	a.untilStored(3)
	a.remote.Box("late")
	a.remote.Put("late", "hello", 1, 700)
	a.add("late", "wrong")
	status := func() (status, text string) {
		var mb struct {
			Status string
			Error  *struct{ Code, Message string }
		}
		a.Want(200, "GET", "/v1/email-users/"+a.ids["late"], nil, &mb)
		if mb.Error != nil {
			text = mb.Error.Code + ": " + mb.Error.Message
		}
		return mb.Status, text
	}
	a.Until("the mailbox has an error", func() bool {
		s, text := status()
		return s == "error" && strings.HasPrefix(text, "upstream_error: ") && strings.Contains(text, "refused the username or password")
	})
	a.remote.Write("users", "user0:secret\nlate:better\n")
	a.Want(200, "PATCH", "/v1/email-users/"+a.ids["late"], map[string]any{"password": "better"}, nil)
	a.Until("it is read", func() bool { s, text := status(); return s == "active" && text == "" && a.find("late", "hello") != nil })
	a.Want(200, "POST", "/v1/account/universal-inbox", map[string]any{"enabled": false}, nil)
	a.Until("nobody idles", func() bool { return a.idle() == 0 })
	a.remote.Put("late", "unseen", 2, 700)
	time.Sleep(500 * time.Millisecond) // it would be fetched in this time
	if a.find("late", "unseen") != nil {
		t.Error("mail was fetched while the universal inbox is off")
	}
	a.Want(200, "POST", "/v1/email-users/"+a.ids["late"]+"/inbox/refresh", nil, nil)
	a.Until("a refresh fetches all the same", func() bool { return a.find("late", "unseen") != nil })
	a.Want(400, "POST", "/v1/inbox/refresh", nil, nil)
	a.Check()
}

// TestExternalSentFolder: what goes out through a mailbox's own server is in the folder of sent
// mail on its IMAP server afterwards, once and as read, and a report on what was refused comes to
// its INBOX.
func TestExternalSentFolder(t *testing.T) {
	t.Parallel()
	refuse := "550 5.7.1 not wanted"
	smtp := rig.NewFakeSMTP(t, true, func(n int) string { return []string{"250 taken", "250 taken", refuse}[min(n, 3)-1] })
	_, port, err := net.SplitHostPort(smtp.Addr)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	a := newAway(t, 1, 1, "--outbound", "direct")
	a.remote.Write("users", "user0:secret\nwriter:secret\n")
	a.remote.Box("writer")
	a.addWith("writer", "secret", number)
	send := func(subject string, to ...string) {
		a.Want(200, "POST", "/v1/email-users/"+a.ids["writer"]+"/inbox/send", map[string]any{"to": to, "subject": subject, "text": "hello"}, nil)
	}
	sent := func() (names []string) {
		for _, sub := range []string{"cur", "new"} {
			entries, _ := os.ReadDir(filepath.Join(a.remote.Dir, "mail", "writer", ".Sent", sub))
			for _, e := range entries {
				names = append(names, e.Name())
			}
		}
		return names
	}
	send("two recipients", "x@far.test", "y@far.test")
	a.Until("the copy is in Sent", func() bool { return len(sent()) == 1 })
	send("refused", "z@far.test")
	a.Until("the report is in INBOX", func() bool {
		return slices.ContainsFunc(a.newest("writer"), func(r remoteRow) bool { return strings.Contains(strings.ToLower(r.Subject), "undeliver") })
	})
	if names := sent(); len(names) != 1 || !strings.HasSuffix(names[0], ":2,S") {
		t.Errorf("in Sent: %q", names)
	}
	if n := len(smtp.Mails()); n != 3 {
		t.Errorf("%d mails were sent", n)
	}
	a.Check()
}
