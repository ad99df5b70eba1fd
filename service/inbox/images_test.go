package inbox_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/images"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
)

// TestImageToken: a token is valid for one image of one message of one account, for an hour.
func TestImageToken(t *testing.T) {
	i := servicetest.Install(t, core.Config{}).Svc
	ref := inbox.ImageRef{Account: "acc_1", Mailbox: "eu_1", UID: "7", Expires: i.Inbox.ImageExpiry(), Source: "https://a.example/b\nc"}
	got, err := i.Inbox.ReadImageToken(i.Inbox.ImageToken(ref))
	if err != nil || got != ref {
		t.Fatalf("read %+v, %v", got, err)
	}
	if left := time.Unix(ref.Expires, 0).Sub(i.Core.Now()); left > time.Hour || left < 54*time.Minute {
		t.Errorf("holds for %v", left)
	}
	text, sum, _ := strings.Cut(i.Inbox.ImageToken(ref), ".")
	for _, change := range []func(*inbox.ImageRef){
		func(r *inbox.ImageRef) { r.Account = "acc_2" }, func(r *inbox.ImageRef) { r.Mailbox = "eu_2" }, func(r *inbox.ImageRef) { r.UID = "8" },
		func(r *inbox.ImageRef) { r.Expires++ }, func(r *inbox.ImageRef) { r.Source += "d" },
	} {
		other := ref
		change(&other)
		forged, _, _ := strings.Cut(i.Inbox.ImageToken(other), ".")
		if _, err := i.Inbox.ReadImageToken(forged + "." + sum); servicetest.ErrorCode(err) != "not_found" {
			t.Errorf("%+v with another's sum: %v", other, err)
		}
	}
	for _, bad := range []string{"", ".", text, text + ".", text + "." + sum[1:], text + "." + sum + "A"} {
		if _, err := i.Inbox.ReadImageToken(bad); servicetest.ErrorCode(err) != "not_found" {
			t.Errorf("%q: %v", bad, err)
		}
	}
	ref.Expires = i.Core.Now().Unix()
	if _, err := i.Inbox.ReadImageToken(i.Inbox.ImageToken(ref)); servicetest.ErrorCode(err) != "expired" {
		t.Errorf("after its hour: %v", err)
	}
}

// TestImagesAtOnce: an account fetches eight images at a time, makes the others wait, and does not
// delay other accounts.
func TestImagesAtOnce(t *testing.T) {
	i := servicetest.Install(t, core.Config{}).Svc
	synctest.Test(t, func(t *testing.T) {
		m := images.New(i.Core)
		var ends []func()
		for range images.PerAccount {
			done, err := m.Acquire(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, done)
		}
		short, cancel := context.WithTimeout(t.Context(), images.Timeout)
		defer cancel()
		if _, err := m.Acquire(short, "a"); servicetest.ErrorCode(err) != "image_unavailable" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one too many: %v", err)
		}
		other, err := m.Acquire(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		other()
		next := make(chan error)
		go func() {
			done, err := m.Acquire(t.Context(), "a")
			if err == nil {
				done()
			}
			next <- err
		}()
		synctest.Wait()
		for _, done := range ends {
			done()
		}
		if err := <-next; err != nil {
			t.Errorf("the next: %v", err)
		}
		if users, held := m.Slots.Users("a")+m.Slots.Users("b"), m.Slots.Held(); users != 0 || held != 0 {
			t.Errorf("%d users and %d slots are left", users, held)
		}
	})
}

// A stillHost answers each request with an image of zero bytes, readable until the request's
// context ends.
type stillHost struct{ bytes int64 }

func (h stillHost) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, ContentLength: -1, Body: io.NopCloser(io.LimitReader(readerOf(func(p []byte) (int, error) {
		return len(p), r.Context().Err()
	}), h.bytes))}, nil
}

type readerOf func([]byte) (int, error)

func (f readerOf) Read(p []byte) (int, error) { return f(p) }

// TestSlowReadersHaveTheImage: the timeout for the host does not apply to a slow reader.
func TestSlowReadersHaveTheImage(t *testing.T) {
	i := servicetest.Install(t, core.Config{}).Svc
	synctest.Test(t, func(t *testing.T) {
		m := images.New(i.Core)
		m.HTTP.Transport = stillHost{images.MaxBytes}
		body, err := m.Fetch(t.Context(), "a", "https://far.test/")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * images.Timeout)
		if n, err := io.Copy(io.Discard, body); n != images.MaxBytes || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		if n := m.Slots.Held(); n != 1 {
			t.Errorf("%d slots are held", n)
		}
		body.Close()
		m.HTTP.Transport = stillHost{images.MaxBytes + 1}
		if _, err := m.Fetch(t.Context(), "a", "https://far.test/"); servicetest.ErrorCode(err) != "image_unavailable" {
			t.Errorf("past the limit: %v", err)
		}
		if n := m.Slots.Held(); n != 0 {
			t.Errorf("%d slots are held still", n)
		}
	})
}

// TestImagesWaiting: a request above the limit of waiting ones gets an error.
func TestImagesWaiting(t *testing.T) {
	i := servicetest.Install(t, core.Config{}).Svc
	m := images.New(i.Core)
	gone, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	for range images.PerAccount + images.MaxWaiting {
		go func() {
			_, err := m.Acquire(gone, "a")
			ended <- err
		}()
	}
	for wanted := 0; wanted < images.PerAccount+images.MaxWaiting; time.Sleep(time.Millisecond) {
		wanted = m.Slots.Users("a")
	}
	if _, err := m.Acquire(t.Context(), "a"); servicetest.ErrorCode(err) != "rate_limited" {
		t.Errorf("one more: %v", err)
	}
	cancel()
	for range images.PerAccount + images.MaxWaiting {
		<-ended
	}
}

// FuzzImageToken: every text that is not one of our tokens is refused.
func FuzzImageToken(f *testing.F) {
	i := servicetest.Install(f, core.Config{}).Svc
	whole := i.Inbox.ImageToken(inbox.ImageRef{Account: "acc_1", Mailbox: "eu_1", UID: "7", Expires: i.Inbox.ImageExpiry(), Source: "cid:1"})
	f.Add(whole + "x")
	f.Add(".")
	f.Add("YQo.YQ")
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := i.Inbox.ReadImageToken(token); err == nil && token != whole {
			t.Errorf("%q is taken", token)
		}
	})
}
