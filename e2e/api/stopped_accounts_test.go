package api

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"go.etcd.io/bbolt"
)

// A watchedSMTP is a slow and strict relay that notes when it is asked for what.
type watchedSMTP struct {
	t    *testing.T
	addr string

	mu    sync.Mutex
	rand  *rand.Rand
	slow  time.Duration // before each answer, about: half of it less or more
	reply string        // to each message
	asked []askedSMTP
	took  map[string]int // messages by recipient
}

// An askedSMTP is a MAIL or DATA command, in the name of a return path.
type askedSMTP struct {
	verb, from string
	at         time.Time
}

func newWatchedSMTP(t *testing.T, slow time.Duration) *watchedSMTP {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("MAILSTEAD_SEED"), "1"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d", seed)
	f := &watchedSMTP{t: t, rand: rand.New(rand.NewPCG(seed, 0)), slow: slow, reply: "250 2.0.0 ok", took: map[string]int{}}
	conns := 0
	f.addr = rig.Serve(t, func(c net.Conn) {
		f.mu.Lock()
		conns++
		pipelines := conns%2 == 0
		f.mu.Unlock()
		f.serve(c, pipelines)
	})
	return f
}

// relay is the section of mailstead.toml that names it.
func (f *watchedSMTP) relay(name string) string {
	host, port, _ := net.SplitHostPort(f.addr)
	return fmt.Sprintf("[[relay]]\nname=%q\nkind='custom'\nhost=%q\nport=%s\ntls='none'\n", name, host, port)
}

// A timedReader notes when it last got something: commands that came together came at that time,
// however slowly they are answered.
type timedReader struct {
	io.Reader
	at time.Time
}

func (r *timedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.at = time.Now()
	return n, err
}

func (f *watchedSMTP) serve(c net.Conn, pipelines bool) {
	defer c.Close()
	in := &timedReader{Reader: c}
	r := bufio.NewReader(in)
	_ = c.SetDeadline(time.Now().Add(5 * time.Minute))
	var from, to string
	answer := func(text string) {
		f.mu.Lock()
		slow := time.Duration((0.5 + f.rand.Float64()) * float64(f.slow))
		f.mu.Unlock()
		time.Sleep(slow) // a slow server
		fmt.Fprintf(c, "%s\r\n", text)
	}
	fmt.Fprintf(c, "220 fake ESMTP\r\n")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if verb == "MAIL" {
			from = rig.BetweenBrackets(rest)
		}
		if verb == "MAIL" || verb == "DATA" {
			f.mu.Lock()
			f.asked = append(f.asked, askedSMTP{verb, from, in.at})
			f.mu.Unlock()
		}
		switch verb {
		case "EHLO":
			extra := ""
			if pipelines {
				extra = "250-PIPELINING\r\n"
			}
			fmt.Fprintf(c, "250-fake\r\n%s250-8BITMIME\r\n250 SMTPUTF8\r\n", extra)
		case "MAIL", "RSET":
			answer("250 2.0.0 ok")
		case "RCPT":
			to = rig.BetweenBrackets(rest)
			answer("250 2.0.0 ok")
		case "DATA":
			answer("354 go on")
			if _, err := rig.ReadDots(r); err != nil {
				return // it was cut: the message is thrown away
			}
			f.mu.Lock()
			reply := f.reply
			if reply[0] == '2' {
				f.took[to]++
			}
			f.mu.Unlock()
			answer(reply)
		case "QUIT":
			fmt.Fprintf(c, "221 bye\r\n")
			return
		default:
			answer("502 5.5.1 unknown")
		}
	}
}

func (f *watchedSMTP) is(slow time.Duration, reply string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slow, f.reply = slow, reply
}

// since counts the commands in the name of a domain after a time.
func (f *watchedSMTP) since(domain string, at time.Time) (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.asked {
		if a.at.After(at) && strings.HasSuffix(a.from, "@"+domain) {
			out = append(out, fmt.Sprintf("%s of %s %v later", a.verb, a.from, a.at.Sub(at)))
		}
	}
	return out
}

func (f *watchedSMTP) messages() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	for to, n := range f.took {
		out[to] = n
	}
	return out
}

// sendMany has a mailbox send to n addresses that begin with a word.
func sendMany(i *rig.Instance, userID, word string, n int) {
	i.T.Helper()
	for from := 0; from < n; from += 50 {
		var to []string
		for k := from; k < min(from+50, n); k++ {
			to = append(to, fmt.Sprintf("%s%d@far.test", word, k))
		}
		i.Want(200, "POST", "/v1/email-users/"+userID+"/inbox/send", map[string]any{"to": to, "subject": word, "text": "hello"}, nil)
	}
}

// command runs a command on the instance's data directory, which must succeed, and says when it
// had returned.
func command(i *rig.Instance, args ...string) (out string, returned time.Time) {
	i.T.Helper()
	out, code := rig.Run(i.T, append(args, "--data", i.Dir)...)
	if code != 0 {
		i.T.Fatalf("%s: %d %s", args, code, out)
	}
	return out, time.Now()
}

// statusOf is what the operator's list says of an account; "" if it is not there.
func statusOf(i *rig.Instance, account string) string {
	i.T.Helper()
	out, _ := command(i, "account", "list", "--json")
	var list struct {
		Data []struct {
			AccountID string `json:"account_id"`
			Status    string
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		i.T.Fatalf("account list: %v %s", err, out)
	}
	for _, a := range list.Data {
		if a.AccountID == account {
			return a.Status
		}
	}
	return ""
}

// schedulers may take this long to let a fake see what came before.
const seenLate = 700 * time.Millisecond

// TestStoppedAccounts: once an account is suspended or deleted nothing of it leaves any more, also
// over a kill -9. What a suspended account had waiting leaves once after resume; of a deleted one
// nothing is left in the store but what it bought.
func TestStoppedAccounts(t *testing.T) {
	t.Parallel()
	const n = 60
	relay, hook := newWatchedSMTP(t, 600*time.Millisecond), rig.NewWebhookReceiver(t)
	var mu sync.Mutex
	var posts []time.Time
	hook.Server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		posts = append(posts, time.Now())
		mu.Unlock()
		hook.ServeHTTP(w, r)
	})
	i := rig.Start(t, rig.GenerousLimits+"[registrar.sandbox]\n"+relay.relay("r1"), "--outbound", "relay", "--ca-file", hook.CAFile)
	i.AddDomain("example.test")
	other := i.SecondAccount()
	domain := other.AddDomain("other.test")
	bob := other.AddMailbox("bob@other.test", "battery staple")
	endpoint := hook.Subscribe(other, "*")
	var account struct{ ID string }
	other.Want(200, "GET", "/v1/account", nil, &account)
	fill(other, domain, bob)

	quiet := func(after string, since time.Time) {
		t.Helper()
		time.Sleep(time.Until(since.Add(4 * time.Second))) // nothing may come in this time
		if late := relay.since("other.test", since.Add(seenLate)); len(late) > 0 {
			t.Errorf("%s: %d commands, the first: %s", after, len(late), late[0])
		}
		mu.Lock()
		defer mu.Unlock()
		for _, at := range posts {
			if at.After(since.Add(seenLate)) {
				t.Errorf("%s: a webhook was told %v later", after, at.Sub(since))
			}
		}
	}
	some := func(word string) func() bool {
		return func() bool {
			k := 0
			for to := range relay.messages() {
				if strings.HasPrefix(to, word) {
					k++
				}
			}
			return k >= n/4
		}
	}

	// Suspended in the middle of sending, and killed.
	sendMany(other, bob, "first", n)
	i.Until("the relay has taken some", some("first"))
	_, returned := command(i, "account", "suspend", "--account", account.ID)
	quiet("suspended", returned)
	i.Kill()
	i.Start()
	quiet("suspended, killed and begun again", returned)
	nums := numbersOf(i, account.ID)
	command(i, "account", "resume", "--account", account.ID)
	i.Until("all is sent after resume", func() bool {
		for k := range n {
			if relay.messages()[fmt.Sprintf("first%d@far.test", k)] == 0 {
				return false
			}
		}
		return true
	})

	// Deleted in the middle of sending, and killed.
	other = i.As(other.Token)
	sendMany(other, bob, "second", n)
	i.Until("the relay has taken some more", some("second"))
	if out, code := rig.Run(t, "account", "delete", "--data", i.Dir, "--account", account.ID); code != 2 {
		t.Errorf("without --yes: %d %s", code, out)
	}
	if out, code := rig.Run(t, "account", "delete", "--data", i.Dir, "--account", "owner@example.org", "--yes"); code != 1 {
		t.Errorf("the first account: %d %s", code, out)
	}
	out, returned := command(i, "account", "delete", "--account", account.ID, "--yes", "--json")
	var deleted struct {
		AccountID string `json:"account_id"`
		JobID     string `json:"job_id"`
	}
	if err := json.Unmarshal([]byte(out), &deleted); err != nil || deleted.AccountID != account.ID || deleted.JobID == "" {
		t.Errorf("account delete: %s", out)
	}
	if err := rig.Transmit(i.Ready.SMTP, "bob@other.test", rig.Letter("too late")); err == nil || !strings.Contains(err.Error(), "550") {
		t.Errorf("mail to a deleted account: %v", err)
	}
	if status := other.Do("GET", "/v1/account", nil, nil); status != 401 && status != 403 {
		t.Errorf("its token: %d", status)
	}
	for range 3 {
		i.Kill()
		i.Start()
		time.Sleep(100 * time.Millisecond) // the next kill comes during the deletion
	}
	if status := statusOf(i, account.ID); status != "" && status != "deleting" {
		t.Errorf("the account is %s", status)
	}
	i.Until("the account is gone", func() bool { return statusOf(i, account.ID) == "" })
	quiet("deleted", returned)
	for to, k := range relay.messages() {
		if k != 1 {
			t.Errorf("%s got %d messages", to, k)
		}
	}
	if err := rig.Transmit(i.Ready.SMTP, "bob@other.test", rig.Letter("too late")); err == nil || !strings.Contains(err.Error(), "550") {
		t.Errorf("mail to what was a deleted account's: %v", err)
	}
	w := &walk{Instance: i, name: "other.test"}
	w.wantAnswer("other.test", "SOA", "REFUSED")
	i.Check()
	kept := 0
	buckets(i, func(bucket string, k, v []byte) {
		if bytes.Contains(v, []byte("bought.com")) || bytes.Contains(k, []byte("bought.com")) {
			if kept++; bucket != "purchase" && bucket != "purchase.domain" && bucket != "pretend_domain" {
				t.Errorf("what it bought is left in %s: %q = %.200q", bucket, k, v)
			}
		}
	})
	if kept != 3 {
		t.Errorf("what it bought is in %d rows, want 3", kept)
	}
	wantNothingOf(i, nums, account.ID, "other.test", "claimed.test", domain, bob, endpoint, "second@example.org", "owned by other")
	i.Start()
	i.AddDomain("other.test")
}

// fill gives an account some of everything.
func fill(i *rig.Instance, domain, box string) {
	i.T.Helper()
	for _, subject := range []string{"one", "two", "Re: one"} {
		if err := rig.Transmit(i.Ready.SMTP, "bob@other.test", rig.Letter(subject)); err != nil {
			i.T.Fatal(err)
		}
	}
	i.Want(200, "POST", "/v1/domains/"+domain+"/custom-dns-records", map[string]any{"name": "own", "type": "A", "value": "192.0.2.7"}, nil)
	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"claimed.test"}}, nil)
	for _, r := range []struct {
		status int
		path   string
		body   map[string]any
	}{
		{201, "/v1/suppressions", map[string]any{"email": "no@far.test"}},
		{201, "/v1/auth/tokens", map[string]any{"name": "owned by other", "permissions": []string{"read"}}},
		{200, "/v1/email-user-templates", map[string]any{"name": "owned by other", "usernames": []string{"a", "b"}}},
		{200, "/v1/account/users/invite", map[string]any{"email": "third@other.test", "role": "member"}},
		{200, "/v1/export", map[string]any{"all": true}},
	} {
		i.Want(r.status, "POST", r.path, r.body, nil)
	}
	order := order(i, "bought.com", 11)
	i.Until("the domain is bought", func() bool {
		var job setupJob
		i.Want(200, "GET", "/v1/jobs/"+order.ID, nil, &job)
		return job.bought()
	})
	if rows := i.Inbox(box); len(rows) != 3 {
		i.T.Errorf("%d messages came, want 3", len(rows))
	}
}

// numbers are the short numbers of an account and of its mailboxes.
type numbers struct {
	account   uint32
	mailboxes []uint32
}

var numField = regexp.MustCompile(`"Num":(\d+)`)

func numbersOf(i *rig.Instance, account string) (out numbers) {
	i.T.Helper()
	i.Kill()
	defer i.Start()
	buckets(i, func(bucket string, k, v []byte) {
		m := numField.FindSubmatch(v)
		if m == nil || !bytes.Contains(append(slices.Clone(k), v...), []byte(account)) {
			return
		}
		n, _ := strconv.ParseUint(string(m[1]), 10, 32)
		switch bucket {
		case "account":
			out.account = uint32(n)
		case "mailbox":
			out.mailboxes = append(out.mailboxes, uint32(n))
		}
	})
	if out.account == 0 || len(out.mailboxes) == 0 {
		i.T.Fatalf("no numbers are found: %+v", out)
	}
	return out
}

// buckets walks the database of a stopped instance.
func buckets(i *rig.Instance, visit func(bucket string, k, v []byte)) {
	i.T.Helper()
	db, err := bbolt.Open(filepath.Join(i.Dir, "mailstead.db"), 0o600, &bbolt.Options{ReadOnly: true, Timeout: 5 * time.Second})
	if err != nil {
		i.T.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				visit(string(name), k, v)
				return nil
			})
		})
	})
	if err != nil {
		i.T.Fatal(err)
	}
}

// wantNothingOf looks through all of a stopped instance's database for the words and numbers of a
// deleted account. What its operator did stays in the operator's own audit log.
func wantNothingOf(i *rig.Instance, nums numbers, words ...string) {
	i.T.Helper()
	begins := map[string][][]byte{}
	four := func(n uint32) []byte { return []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)} }
	for _, bucket := range []string{"inbox_class", "account_count", "text_todo", "text_run", "text_place", "text_word", "text_gone", "thread", "thread_joined"} {
		begins[bucket] = append(begins[bucket], four(nums.account))
	}
	for _, n := range nums.mailboxes {
		for _, bucket := range []string{"msg", "msg_meta", "inbox_mbx_class", "folder", "folder_name", "subscribed", "mailbox_count"} {
			begins[bucket] = append(begins[bucket], four(n))
		}
	}
	rows := 0
	buckets(i, func(bucket string, k, v []byte) {
		rows++
		if operators := []byte(`"Type":"operator"`); bucket == "audit" && bytes.Contains(v, operators) && !bytes.Contains(v, []byte(`"AccountID":"`+words[0]+`"`)) {
			return
		}
		if bucket == "job" && bytes.Contains(v, []byte("account_delete")) {
			return // the operator's job is kept for 30 days
		}
		for _, word := range words {
			if bytes.Contains(k, []byte(word)) || bytes.Contains(v, []byte(word)) {
				i.T.Errorf("%s is left in %s: %.100q = %.300q", word, bucket, k, v)
				break
			}
		}
		for _, begin := range begins[bucket] {
			if bytes.HasPrefix(k, begin) {
				i.T.Errorf("a row of a number is left in %s: %x", bucket, k)
			}
		}
		if bucket == "thread_subject" && bytes.HasPrefix(k[2:], four(nums.account)) {
			i.T.Errorf("a subject is left: %x", k)
		}
		if bucket == "blob_ref" && slices.Contains([]byte("msrc"), k[8]) {
			i.T.Errorf("the bytes of a message are referred to: %q", k)
		}
	})
	i.T.Logf("%d rows were looked at", rows)
}
