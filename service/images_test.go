package service

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestImageToken: a link is for one image of one message of one account, for an hour.
func TestImageToken(t *testing.T) {
	i := install(t, Config{}).svc
	ref := imageRef{account: "acc_1", mailbox: "eu_1", uid: "7", expires: i.imageExpiry(), source: "https://a.example/b\nc"}
	got, err := i.readImageToken(i.imageToken(ref))
	if err != nil || got != ref {
		t.Fatalf("read %+v, %v", got, err)
	}
	if left := time.Unix(ref.expires, 0).Sub(i.now()); left > time.Hour || left < 54*time.Minute {
		t.Errorf("holds for %v", left)
	}
	text, sum, _ := strings.Cut(i.imageToken(ref), ".")
	for _, change := range []func(*imageRef){
		func(r *imageRef) { r.account = "acc_2" }, func(r *imageRef) { r.mailbox = "eu_2" }, func(r *imageRef) { r.uid = "8" },
		func(r *imageRef) { r.expires++ }, func(r *imageRef) { r.source += "d" },
	} {
		other := ref
		change(&other)
		forged, _, _ := strings.Cut(i.imageToken(other), ".")
		if _, err := i.readImageToken(forged + "." + sum); statusOf(err) != 404 {
			t.Errorf("%+v with another's sum: %v", other, err)
		}
	}
	for _, bad := range []string{"", ".", text, text + ".", text + "." + sum[1:], text + "." + sum + "A"} {
		if _, err := i.readImageToken(bad); statusOf(err) != 404 {
			t.Errorf("%q: %v", bad, err)
		}
	}
	ref.expires = i.now().Unix()
	if _, err := i.readImageToken(i.imageToken(ref)); statusOf(err) != 410 {
		t.Errorf("after its hour: %v", err)
	}
}

func statusOf(err error) int {
	if e, ok := AsError(err); ok {
		return e.Status
	}
	return 0
}

// TestImageType: what a browser is told an image is comes from its first bytes, and is never more
// than points.
func TestImageType(t *testing.T) {
	for head, want := range map[string]string{
		"\x89PNG\r\n\x1a\n": "image/png", "\xff\xd8\xff\xe0": "image/jpeg", "GIF89a...": "image/gif", "RIFF\x00\x00\x00\x00WEBPVP8 ": "image/webp",
		"\x00\x00\x00\x1cftypavif": "image/avif", "\x00\x00\x00\x1cftypavis": "image/avif", "\x00\x00\x00\x1cftypmp42": "",
		"<svg xmlns=": "", "<?xml version": "", "<html>": "", "\x00\x00\x01\x00": "", "BM": "", "": "", "GIF": "", "%PDF-": "",
	} {
		if got := imageType([]byte(head)); got != want {
			t.Errorf("%q is %q, want %q", head, got, want)
		}
	}
}

// TestImagesAtOnce: an account fetches eight images at a time, waits for the others, and holds
// nobody else up.
func TestImagesAtOnce(t *testing.T) {
	i := install(t, Config{}).svc
	synctest.Test(t, func(t *testing.T) {
		m := i.newImages()
		var ends []func()
		for range imagesEach {
			done, err := m.take(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, done)
		}
		short, cancel := context.WithTimeout(t.Context(), imageTimeout)
		defer cancel()
		if _, err := m.take(short, "a"); statusOf(err) != 422 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one too many: %v", err)
		}
		other, err := m.take(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		other()
		next := make(chan error)
		go func() {
			done, err := m.take(t.Context(), "a")
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
		if len(m.lanes) != 0 || len(m.all) != 0 {
			t.Errorf("%d lanes and %d places are left", len(m.lanes), len(m.all))
		}
	})
}

// A stillHost answers each request with an image, whose bytes come as long as the request holds.
type stillHost struct{ bytes int64 }

func (h stillHost) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, ContentLength: -1, Body: io.NopCloser(io.LimitReader(readerOf(func(p []byte) (int, error) {
		return len(p), r.Context().Err()
	}), h.bytes))}, nil
}

type readerOf func([]byte) (int, error)

func (f readerOf) Read(p []byte) (int, error) { return f(p) }

// TestSlowReadersHaveTheImage: how long a host elsewhere may take is not how long a phone may take.
func TestSlowReadersHaveTheImage(t *testing.T) {
	i := install(t, Config{}).svc
	synctest.Test(t, func(t *testing.T) {
		m := i.newImages()
		m.http.Transport = stillHost{imageLimit}
		body, err := m.fetch(t.Context(), "a", "https://far.test/")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * imageTimeout)
		if n, err := io.Copy(io.Discard, body); n != imageLimit || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		if len(m.all) != 1 {
			t.Errorf("%d places are taken", len(m.all))
		}
		body.Close()
		m.http.Transport = stillHost{imageLimit + 1}
		if _, err := m.fetch(t.Context(), "a", "https://far.test/"); statusOf(err) != 422 {
			t.Errorf("past the limit: %v", err)
		}
		if len(m.all) != 0 {
			t.Errorf("%d places are left", len(m.all))
		}
	})
}

// TestImagesWaiting: who wants too many at once is told so.
func TestImagesWaiting(t *testing.T) {
	i := install(t, Config{}).svc
	m := i.newImages()
	gone, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	for range imagesEach + imagesWaiting {
		go func() {
			_, err := m.take(gone, "a")
			ended <- err
		}()
	}
	for wanted := 0; wanted < imagesEach+imagesWaiting; time.Sleep(time.Millisecond) {
		m.mu.Lock()
		if lane := m.lanes["a"]; lane != nil {
			wanted = lane.wanted
		}
		m.mu.Unlock()
	}
	if _, err := m.take(t.Context(), "a"); statusOf(err) != 429 {
		t.Errorf("one more: %v", err)
	}
	cancel()
	for range imagesEach + imagesWaiting {
		<-ended
	}
}

// FuzzImageToken wants every text that we did not make to be refused.
func FuzzImageToken(f *testing.F) {
	i := install(f, Config{}).svc
	whole := i.imageToken(imageRef{account: "acc_1", mailbox: "eu_1", uid: "7", expires: i.imageExpiry(), source: "cid:1"})
	f.Add(whole + "x")
	f.Add(".")
	f.Add("YQo.YQ")
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := i.readImageToken(token); err == nil && token != whole {
			t.Errorf("%q is taken", token)
		}
	})
}
