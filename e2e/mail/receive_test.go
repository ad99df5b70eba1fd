package mail

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/mailstead/mailstead/e2e/rig"
)

// TestReceive walks the main road with the real program: a domain is connected, its delegation
// checked against a resolver that lies first, its zone asked by dig, and 200 messages are received,
// listed, fetched, mirrored and told of.
func TestReceive(t *testing.T) {
	t.Parallel()
	dig, swaks, mbsync := rig.Peer(t, "dig"), rig.Peer(t, "swaks"), rig.Peer(t, "mbsync")
	world, hook := rig.NewFakeResolver(t), rig.NewWebhookReceiver(t)
	i := rig.Start(t, rig.GenerousLimits, "--resolver", world.Addr, "--ca-file", hook.CAFile)
	world.Delegate(i.Ready.DNS)
	hook.Subscribe(i, "email.received", "domain.ready")

	connectAgainstLies(i, world)
	askDig(t, dig, i)
	box := i.AddMailbox("ann@example.test", "correct horse")
	sendAll(t, swaks, i)

	rows := i.Inbox(box)
	if len(rows) != 200 {
		t.Fatalf("the inbox has %d messages, want 200", len(rows))
	}
	sameUIDs(t, i, rows)
	mirror(t, mbsync, i)
	i.Until("every message was told of", func() bool { return len(hook.EventIDs("email.received", "uid")) == 200 })
	for uid, events := range hook.EventIDs("email.received", "uid") {
		if len(events) != 1 {
			t.Errorf("message %s has %d events", uid, len(events))
		}
	}
	i.Stop()
	if out, code := rig.Run(t, "check", "--data", i.Dir); code != 0 || out != "ok\n" {
		t.Errorf("check: %d %s", code, out)
	}
}

func connectAgainstLies(i *rig.Instance, world *rig.FakeResolver) {
	t := i.T
	world.Set(t, "example.test", "NS", "ns1.liar.test.", "ns2.liar.test.")
	// The liars do not answer, so Mailstead cannot know where the bare name leads.
	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"Example.test", "not a name"}, "apex": "here"}, nil)
	var checked struct {
		AllVerified bool `json:"all_verified"`
		Domains     []struct {
			DomainID  string `json:"domain_id"`
			Status    string
			CurrentNS []string `json:"current_ns"`
		}
	}
	body := map[string]any{"domains": []string{"example.test"}}
	i.Want(200, "POST", "/v1/domains/check-ns", body, &checked)
	if checked.AllVerified || checked.Domains[0].Status != "failed" || !slices.Equal(checked.Domains[0].CurrentNS, []string{"ns1.liar.test", "ns2.liar.test"}) {
		t.Fatalf("a lying delegation: %+v", checked)
	}
	world.Set(t, "example.test", "NS", "ns1.mailstead.test.", "ns2.mailstead.test.")
	i.Want(200, "POST", "/v1/domains/check-ns", body, &checked)
	if !checked.AllVerified || checked.Domains[0].Status != "verified" {
		t.Fatalf("an honest delegation: %+v", checked)
	}
	i.Until("the domain is complete", func() bool {
		var d struct{ Status string }
		i.Want(200, "GET", "/v1/domains/"+checked.Domains[0].DomainID, nil, &d)
		return d.Status == "complete"
	})
	var jobs struct {
		Data []struct{ Type, Status string }
	}
	i.Want(200, "GET", "/v1/jobs?domain=example.test", nil, &jobs)
	if len(jobs.Data) == 0 || jobs.Data[0].Type != "domain_provision" || jobs.Data[0].Status != "completed" {
		t.Fatalf("jobs: %+v", jobs)
	}
}

func askDig(t *testing.T, dig string, i *rig.Instance) {
	host, port, _ := net.SplitHostPort(i.Ready.DNS)
	ask := func(args ...string) string {
		out, err := exec.Command(dig, append([]string{"@" + host, "-p", port, "+short", "+norecurse"}, args...)...).Output()
		if err != nil {
			t.Fatalf("dig %v: %v", args, err)
		}
		return string(out)
	}
	for _, q := range []struct{ name, kind, want string }{
		{"example.test", "MX", "mail.mailstead.test."},
		{"example.test", "NS", "ns1.mailstead.test."},
		{"example.test", "SOA", "ns1.mailstead.test."},
		{"example.test", "A", "127.0.0.1"},
		{"example.test", "TXT", "v=spf1"},
		{"_dmarc.example.test", "TXT", "v=DMARC1; p=reject"},
	} {
		if got := ask(q.name, q.kind); !strings.Contains(got, q.want) {
			t.Errorf("dig %s %s: %q, want %q", q.name, q.kind, got, q.want)
		}
		if got := ask("+tcp", q.name, q.kind); !strings.Contains(got, q.want) {
			t.Errorf("dig +tcp %s %s: %q, want %q", q.name, q.kind, got, q.want)
		}
	}
	var d struct {
		Data []struct {
			Selector string `json:"dkim_selector"`
		}
	}
	i.Want(200, "GET", "/v1/domains", nil, &d)
	if got := ask(d.Data[0].Selector+"._domainkey.example.test", "TXT"); !strings.Contains(got, "v=DKIM1; k=rsa; p=") {
		t.Errorf("dig for the DKIM key: %q", got)
	}
	if got := ask("+noshort", "+noall", "+comments", "no-such-name.example.test", "A"); !strings.Contains(got, "NXDOMAIN") {
		t.Errorf("dig for a name that is not there: %q", got)
	}
}

// sendAll sends 200 messages of many shapes, some by swaks and most from Go.
func sendAll(t *testing.T, swaks string, i *rig.Instance) {
	file := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(file, []byte("attached\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		args := []string{"--silent", "2", "--server", i.Ready.SMTP, "--from", "bob@elsewhere.test", "--to", "ann@example.test",
			"--header", fmt.Sprintf("Subject: swaks %d", n), "--body", "Grüße\n"}
		if n%2 == 1 {
			args = append(args, "--attach", "@"+file)
		}
		if out, err := exec.Command(swaks, args...).CombinedOutput(); err != nil {
			t.Fatalf("swaks: %v\n%s", err, out)
		}
	}
	big := strings.Repeat(strings.Repeat("A", 76)+"\r\n", 10<<20/77+1)
	kinds := []func(n int) (from, message string){
		func(n int) (string, string) {
			return "bob@elsewhere.test", fmt.Sprintf("Subject: plain %d\r\nFrom: bob@elsewhere.test\r\n\r\n.hello\r\n..\r\n", n)
		},
		func(n int) (string, string) {
			return "bob@elsewhere.test", fmt.Sprintf("Subject: =?UTF-8?B?%s?=\r\nFrom: Böb <bob@elsewhere.test>\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nžluťoučký\r\n",
				base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "kůň %d", n)))
		},
		func(n int) (string, string) {
			return "bøb@elsewhere.test", fmt.Sprintf("Subject: smtputf8 ☃ %d\r\nFrom: <bøb@elsewhere.test>\r\n\r\nhello\r\n", n)
		},
		func(n int) (string, string) {
			return "bob@elsewhere.test", fmt.Sprintf("Subject: parts %d\r\nFrom: bob@elsewhere.test\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\ntext\r\n--b\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename=a.pdf\r\nContent-Transfer-Encoding: base64\r\n\r\nQUJD\r\n--b--\r\n", n)
		},
		func(n int) (string, string) {
			return "bob@elsewhere.test", fmt.Sprintf("Subject: broken %d\r\nno colon here\r\nContent-Type: multipart/mixed; boundary=\r\n\r\n--b\r\nContent-Type: multipart/x; boundary=c\r\n\r\n--c", n)
		},
	}
	c, err := smtp.Dial(i.Ready.SMTP)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 190 {
		from, message := kinds[n%len(kinds)](n)
		if n == 100 {
			message = "Subject: ten MiB\r\nFrom: bob@elsewhere.test\r\n\r\n" + big
		}
		if n%50 == 49 {
			_ = c.Quit()
			c, err = smtp.Dial(i.Ready.SMTP)
			if err != nil {
				t.Fatal(err)
			}
		}
		rig.Deliver(t, c, from, "ann@example.test", message)
	}
	_ = c.Quit()
}

// sameUIDs demands that IMAP shows the very messages that the API lists, under the same UIDs.
func sameUIDs(t *testing.T, i *rig.Instance, rows []rig.InboxRow) {
	c, err := imapclient.DialInsecure(i.Ready.IMAP, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Login("ann@example.test", "correct horse").Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		t.Fatal(err)
	}
	got, err := c.Fetch(imap.SeqSet{{Start: 1, Stop: 0}}, &imap.FetchOptions{UID: true, Envelope: true, RFC822Size: true}).Collect()
	if err != nil {
		t.Fatal(err)
	}
	byUID := map[string]*imapclient.FetchMessageBuffer{}
	for _, m := range got {
		byUID[fmt.Sprint(m.UID)] = m
	}
	if len(byUID) != len(rows) {
		t.Fatalf("IMAP shows %d messages, the API %d", len(byUID), len(rows))
	}
	for _, r := range rows {
		m := byUID[r.UID]
		if m == nil {
			t.Errorf("IMAP has no UID %s", r.UID)
			continue
		}
		if m.RFC822Size != r.Size || m.Envelope.Subject != r.Subject {
			t.Errorf("UID %s: IMAP says %q, %d bytes; the API %q, %d", r.UID, m.Envelope.Subject, m.RFC822Size, r.Subject, r.Size)
		}
	}
}

// mirror lets mbsync copy the mailbox and counts what it wrote.
func mirror(t *testing.T, mbsync string, i *rig.Instance) {
	dir := t.TempDir()
	host, port, _ := net.SplitHostPort(i.Ready.IMAP)
	config := fmt.Sprintf(`IMAPAccount far
Host %s
Port %s
User ann@example.test
Pass "correct horse"
SSLType None
AuthMechs LOGIN

IMAPStore far
Account far

MaildirStore near
Path %[3]s/
Inbox %[3]s/INBOX
SubFolders Verbatim

Channel all
Far :far:
Near :near:
Patterns *
Create Near
SyncState *
`, host, port, dir)
	file := filepath.Join(dir, "mbsyncrc")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(mbsync, "-c", file, "all").CombinedOutput(); err != nil {
		t.Fatalf("mbsync: %v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "INBOX", "*", "*"))
	if err != nil || len(files) < 200 {
		t.Fatalf("mbsync wrote %d messages, want 200: %v", len(files), err)
	}
	biggest := int64(0)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		biggest = max(biggest, int64(len(text)))
		if bytes.Contains(text, []byte{0}) {
			t.Errorf("%s has a NUL", f)
		}
	}
	if biggest < 10<<20 {
		t.Errorf("the biggest message that mbsync wrote has %d bytes", biggest)
	}
}

// TestManyRecipients sends messages to all mailboxes at once, six at a time, beside somebody else's
// mail, and kills the program while it files them. It runs with 1000 mailboxes by `make
// soak-recipients`.
func TestManyRecipients(t *testing.T) {
	t.Parallel()
	mailboxes, kills := 60, 1
	full := os.Getenv("MAILSTEAD_SOAK") != ""
	if full {
		mailboxes, kills = 1000, 6
	}
	if testing.Short() {
		t.Skip("takes a while")
	}
	world := rig.NewFakeResolver(t)
	i := rig.Start(t, rig.GenerousLimits, "--resolver", world.Addr)
	world.Delegate(i.Ready.DNS)
	i.AddDomain("other.test")
	i.AddMailbox("ann@other.test", "correct horse")
	addresses := addMany(i, mailboxes)
	header := manyHeader(1000)
	t.Logf("each of six messages has %d bytes", len(header))

	stop, longest, others := make(chan struct{}), atomic.Int64{}, sync.WaitGroup{}
	count := atomic.Int64{}
	others.Go(func() { // somebody else's mail
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			took, err := send(i.Ready.SMTP, "beside", "ann@other.test")
			if err != nil {
				t.Error(err)
				return
			}
			longest.Store(max(longest.Load(), int64(took)))
			count.Add(1)
		}
	})
	time.Sleep(5 * time.Second) // measures how long they wait on this machine anyway
	alone, aloneCount := time.Duration(longest.Swap(0)), count.Swap(0)
	memory := 0
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				memory = max(memory, i.Memory("RssAnon"))
			}
		}
	})
	want := map[string]bool{}
	began := time.Now()
	var senders sync.WaitGroup
	for n := range 6 {
		subject := fmt.Sprint("to many ", n)
		want[subject] = true
		senders.Go(func() {
			if _, err := send(i.Ready.SMTP, subject+"\r\n"+header, addresses...); err != nil {
				t.Error(err)
			}
		})
	}
	senders.Wait()
	taken := time.Since(began)
	i.Until("all is filed", func() bool { return i.HasAll("subject=to+many", len(want)*mailboxes) })
	filed := time.Since(began)
	close(stop)
	others.Wait()
	t.Logf("before, %d messages of others, of which the longest took %v", aloneCount, alone)
	t.Logf("six messages to %d mailboxes: taken after %v, filed after %v; beside them %d messages, of which the longest took %v; %d MiB of Go memory at most",
		mailboxes, taken, filed, count.Load(), time.Duration(longest.Load()), memory)
	if bound := 100 * time.Millisecond; full && time.Duration(longest.Load()) > bound {
		t.Errorf("others' mail waited %v, want at most %v", time.Duration(longest.Load()), bound)
	}
	if memory > 200 {
		t.Errorf("%d MiB of Go memory, want at most 200", memory)
	}

	for n := range kills {
		subject := fmt.Sprint("to many and killed ", n)
		if _, err := send(i.Ready.SMTP, subject+"\r\n"+header, addresses...); err != nil {
			t.Fatal(err)
		}
		want[subject] = true
		time.Sleep(time.Duration(n) * 7 * time.Millisecond) // each kill comes a little later
		i.Kill()
		i.Start()
		world.Delegate(i.Ready.DNS)
	}
	i.Until("all is filed", func() bool { return i.HasAll("subject=to+many", len(want)*mailboxes) })
	eachOnce(i, want, addresses)
	i.Check()
}

// manyHeader is the rest of a message with n addresses in To.
func manyHeader(n int) string {
	var to []string
	for k := range n {
		to = append(to, fmt.Sprintf("Somebody Number %04d <somebody%04d@many.test>", k, k))
	}
	return "To: " + strings.Join(to, ",\r\n ") + "\r\n"
}

// send hands a message over, and gives how long the answer to its end took. The subject may be
// followed by other fields.
func send(addr, subject string, to ...string) (time.Duration, error) {
	c, err := smtp.Dial(addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.Mail("bob@elsewhere.test"); err != nil {
		return 0, err
	}
	for _, address := range to {
		if err := c.Rcpt(address); err != nil {
			return 0, err
		}
	}
	w, err := c.Data()
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(w, "From: bob@elsewhere.test\r\nSubject: %s\r\n\r\nhello\r\n", strings.TrimSuffix(subject, "\r\n"))
	began := time.Now()
	err = w.Close()
	return time.Since(began), err
}

// addMany makes n mailboxes, a hundred in each domain.
func addMany(i *rig.Instance, n int) (addresses []string) {
	i.T.Helper()
	for from := 0; from < n; from += 100 {
		domain := fmt.Sprintf("many%d.test", from/100)
		i.AddDomain(domain)
		var users []map[string]string
		for k := from; k < min(n, from+100); k++ {
			users = append(users, map[string]string{"username": fmt.Sprintf("box%04d", k), "password": "correct horse"})
			addresses = append(addresses, fmt.Sprintf("box%04d@%s", k, domain))
		}
		var made struct {
			Created int
			Errors  []struct{ Code, Message string }
		}
		i.Want(200, "POST", "/v1/email-users/bulk", map[string]any{"domain": domain, "users": users}, &made)
		if made.Created != len(users) {
			i.T.Fatalf("%d mailboxes were made: %v", made.Created, made.Errors[0])
		}
	}
	return addresses
}

// eachOnce fails unless each mailbox has one copy of each subject, and one event tells of it.
func eachOnce(i *rig.Instance, subjects map[string]bool, addresses []string) {
	i.T.Helper()
	for what, path := range map[string]string{"copies": "/v1/inbox?limit=100", "events": "/v1/events?limit=100&type=email.received"} {
		seen := map[[2]string]int{}
		i.Pages(path, func(mailbox, subject string) { seen[[2]string{mailbox, subject}]++ })
		wrong := 0
		for subject := range subjects {
			for _, address := range addresses {
				if n := seen[[2]string{address, subject}]; n != 1 {
					if wrong++; wrong < 5 {
						i.T.Errorf("%s: %d %s of %q", address, n, what, subject)
					}
				}
			}
		}
	}
}
