package api

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"net/smtp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// A taker is an HTTPS receiver that keeps deliveries as they come.
type taker struct {
	*httptest.Server
	t    *testing.T
	took chan delivery
}

type delivery struct {
	header http.Header
	body   []byte
}

func newTaker(t *testing.T) *taker {
	t.Helper()
	k := &taker{t: t, took: make(chan delivery, 100)}
	k.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		k.took <- delivery{r.Header, body}
		w.WriteHeader(http.StatusNoContent)
	}))
	k.Config.ErrorLog = log.New(io.Discard, "", 0)
	k.StartTLS()
	t.Cleanup(k.Close)
	return k
}

// next waits for a delivery.
func (k *taker) next() delivery {
	k.t.Helper()
	select {
	case d := <-k.took:
		return d
	case <-time.After(20 * time.Second):
		k.t.Fatal("nothing was delivered")
		return delivery{}
	}
}

// An endpoint is one that a test made, with its secret and the one before.
type endpoint struct {
	ID, Secret, old string
	i               *rig.Instance
}

func newEndpoint(i *rig.Instance, url string, types ...string) *endpoint {
	i.T.Helper()
	e := &endpoint{i: i}
	i.Want(201, "POST", "/v1/webhooks", map[string]any{"url": url, "events": append(types, "email.received")}, e)
	return e
}

// ping has a test event sent, and gives its id.
func (e *endpoint) ping() string {
	e.i.T.Helper()
	var tested struct {
		EventID string `json:"event_id"`
	}
	e.i.Want(200, "POST", "/v1/webhooks/"+e.ID+"/test", nil, &tested)
	return tested.EventID
}

// rotate gives the endpoint a new secret.
func (e *endpoint) rotate() {
	e.i.T.Helper()
	e.old = e.Secret
	e.i.Want(200, "POST", "/v1/webhooks/"+e.ID+"/rotate-secret", nil, e)
}

// sign makes an X-Service-Signature of one value.
func sign(secret, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(append([]byte(timestamp+"."), body...))
	return "v1=" + hex.EncodeToString(mac.Sum(nil))
}

// tenLines is all that a receiver needs to know that a delivery is genuine.
func tenLines(secret string, d delivery) bool {
	timestamp := d.header.Get("X-Service-Timestamp")
	sent, err := strconv.ParseFloat(timestamp, 64)
	if err != nil || math.Abs(float64(time.Now().Unix())-sent) > 300 {
		return false
	}
	return slices.Contains(strings.Split(d.header.Get("X-Service-Signature"), ","), sign(secret, timestamp, d.body))
}

// stock is what the library of Standard Webhooks says.
func stock(t *testing.T, secret string, d delivery) bool {
	t.Helper()
	w, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	return w.Verify(d.body, d.header) == nil
}

// TestStockVerifiers: the Standard Webhooks library and ten lines of HMAC take real deliveries,
// during a rotation with either secret, and nothing else.
func TestStockVerifiers(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits, "--ca-file", rig.NewWebhookReceiver(t).CAFile)
	front := newTaker(t)
	e, other := newEndpoint(i, front.URL), newEndpoint(i, "https://127.0.0.1:1/")
	judge := func(name, secret string, d delivery, want bool) {
		t.Helper()
		if got := stock(t, secret, d); got != want {
			t.Errorf("%s: the library takes it: %v, want %v\n%v %s", name, got, want, d.header, d.body)
		}
		if got := tenLines(secret, d); got != want {
			t.Errorf("%s: ten lines take it: %v, want %v\n%v %s", name, got, want, d.header, d.body)
		}
	}
	e.ping()
	d := front.next()
	judge("one secret", e.Secret, d, true)
	judge("another's secret", other.Secret, d, false)
	judge("changed bytes", e.Secret, delivery{d.header, append(d.body, ' ')}, false)

	e.rotate()
	i.AddDomain("example.test")
	i.AddMailbox("ann@example.test", "correct horse")
	c, err := smtp.Dial(i.Ready.SMTP)
	if err != nil {
		t.Fatal(err)
	}
	rig.Deliver(t, c, "bob@elsewhere.test", "ann@example.test", "From: Böb <bob@elsewhere.test>\r\nSubject: <Grüße> & \u2028 ☃\r\n\r\nhello\r\n")
	_ = c.Quit()
	d = front.next()
	judge("the new secret", e.Secret, d, true)
	judge("the old secret", e.old, d, true)
	judge("another's secret after rotation", other.Secret, d, false)
	for _, name := range []string{"X-Service-Timestamp", "webhook-timestamp"} {
		d.header.Set(name, strconv.FormatInt(time.Now().Add(-301*time.Second).Unix(), 10))
	}
	judge("an old timestamp", e.Secret, d, false)
}

// A stream is what the program tells a page that listens.
type stream struct {
	mu    sync.Mutex
	heard []streamChange
	ended chan struct{}
}

type streamChange struct{ Kind, ID string }

// listen opens a stream, and keeps what it tells after its hello.
func listen(i *rig.Instance) *stream {
	i.T.Helper()
	req, err := http.NewRequest("GET", "http://"+i.Ready.HTTP+"/session/stream", nil)
	if err != nil {
		i.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+i.Token)
	resp, err := new(http.Client).Do(req)
	if err != nil {
		i.T.Fatal(err)
	}
	i.T.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || resp.StatusCode != 200 || lines.Text() != "event: hello" {
		i.T.Fatalf("the stream begins with %d %q", resp.StatusCode, lines.Text())
	}
	s := &stream{ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for lines.Scan() {
			s.hear(lines.Text())
		}
	}()
	return s
}

func (s *stream) hear(line string) {
	data, _ := strings.CutPrefix(line, "data: ")
	var changes []streamChange
	if json.Unmarshal([]byte(data), &changes) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, changes...)
}

func (s *stream) has(kind, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.heard, streamChange{kind, id})
}

func (s *stream) knows(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.heard, func(c streamChange) bool { return c.ID == id })
}

func (s *stream) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = nil
}

// TestStream has pages of two accounts listen to the real program while mail comes, jobs run and
// mail goes out; then it stops, and waits for none of them.
func TestStream(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits)
	other := i.SecondAccount()
	page, theirs := listen(i), listen(other)
	domain := i.AddDomain("example.test")
	ann := i.AddMailbox("ann@example.test", "correct horse")
	i.Until("the domain and the mailbox are told of", func() bool { return page.has("domain", domain) && page.has("mailbox", ann) })

	if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("news")); err != nil {
		t.Fatal(err)
	}
	i.Until("new mail is told of", func() bool { return page.has("inbox", ann) })
	if rows := i.Inbox(ann); len(rows) != 1 {
		t.Errorf("the inbox has %d messages when it is told of, want 1", len(rows))
	}
	page.forget()
	i.Want(200, "PATCH", "/v1/email-users/"+ann+"/inbox/1", map[string]any{"is_read": true}, nil)
	i.Until("a flag is told of", func() bool { return page.has("inbox", ann) })

	i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": "x@far.test", "subject": "s", "text": "t"}, nil)
	sent := i.FirstID("/v1/messages")
	i.Until("what is sent is told of", func() bool { return page.has("message", sent) })
	var gone struct {
		JobID string `json:"job_id"`
	}
	i.Want(200, "DELETE", "/v1/email-users/"+ann, nil, &gone)
	i.Until("the end of the job is told of", func() bool {
		if !page.has("job", gone.JobID) {
			return false
		}
		page.forget()
		var job struct{ Status string }
		i.Want(200, "GET", "/v1/jobs/"+gone.JobID, nil, &job)
		return job.Status == "completed"
	})

	for _, id := range []string{domain, ann, sent, gone.JobID} {
		if theirs.knows(id) {
			t.Errorf("the other account was told of %s", id)
		}
	}
	began := time.Now()
	i.Stop()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the server stopped after %v, with streams open", took)
	}
	<-page.ended
	<-theirs.ended
}
