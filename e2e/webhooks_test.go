package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"net/smtp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
	i               *instance
}

func newEndpoint(i *instance, url string, types ...string) *endpoint {
	i.t.Helper()
	e := &endpoint{i: i}
	i.want(201, "POST", "/v1/webhooks", map[string]any{"url": url, "events": append(types, "email.received")}, e)
	return e
}

// ping has a test event sent, and gives its id.
func (e *endpoint) ping() string {
	e.i.t.Helper()
	var tested struct {
		EventID string `json:"event_id"`
	}
	e.i.want(200, "POST", "/v1/webhooks/"+e.ID+"/test", nil, &tested)
	return tested.EventID
}

// rotate gives the endpoint a new secret.
func (e *endpoint) rotate() {
	e.i.t.Helper()
	e.old = e.Secret
	e.i.want(200, "POST", "/v1/webhooks/"+e.ID+"/rotate-secret", nil, e)
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
	i := newInstance(t, generousLimits, "--ca-file", newHook(t).caFile)
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
	i.addDomain("example.test")
	i.addMailbox("ann@example.test", "correct horse")
	c, err := smtp.Dial(i.ready.SMTP)
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, c, "bob@elsewhere.test", "ann@example.test", "From: Böb <bob@elsewhere.test>\r\nSubject: <Grüße> & \u2028 ☃\r\n\r\nhello\r\n")
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
