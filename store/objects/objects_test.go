package objects

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// TestPlaces holds a directory and a bucket to the same rules.
func TestPlaces(t *testing.T) {
	t.Run("directory", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "deep", "backups")
		place, err := At(dir, S3{})
		if err != nil {
			t.Fatal(err)
		}
		conform(t, place)
	})
	t.Run("bucket", func(t *testing.T) {
		place, _ := fakeBucket(t, "s3://mail/host/one", nil)
		conform(t, place)
	})
	t.Run("bucket without prefix", func(t *testing.T) {
		place, _ := fakeBucket(t, "s3://mail", nil)
		if err := place.Put(t.Context(), "one", strings.NewReader("x"), 1); err != nil {
			t.Fatal(err)
		}
		if got := names(t, place, ""); !slices.Equal(got, []string{"one"}) {
			t.Errorf("there are %q", got)
		}
	})
}

func conform(t *testing.T, p Place) {
	ctx := t.Context()
	put := func(name string, data []byte) {
		t.Helper()
		if err := p.Put(ctx, name, bytes.NewReader(data), int64(len(data))); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(t, p, ""); len(got) != 0 {
		t.Errorf("in an empty place: %q", got)
	}
	if _, err := p.Open(ctx, "a/one"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open what is not there: %v", err)
	}
	if err := p.Delete(ctx, "a/one"); err != nil {
		t.Errorf("delete what is not there: %v", err)
	}
	large := make([]byte, 24<<20)
	rnd := rand.NewChaCha8([32]byte{1})
	rnd.Read(large)
	put("a/one", []byte("first"))
	put("a/one", []byte("second"))
	put("a/two", []byte("2"))
	put("a-b", []byte("x"))
	put("b/c/large", large)
	for name, want := range map[string][]byte{"a/one": []byte("second"), "a/two": []byte("2"), "b/c/large": large} {
		if got := content(t, p, name); !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes, not %d, or others", name, len(got), len(want))
		}
	}
	for prefix, want := range map[string][]string{
		"": {"a-b", "a/one", "a/two", "b/c/large"}, "a": {"a-b", "a/one", "a/two"}, "a/": {"a/one", "a/two"}, "a/t": {"a/two"}, "b/c/": {"b/c/large"}, "c": nil,
	} {
		if got := names(t, p, prefix); !slices.Equal(got, want) {
			t.Errorf("list %q: %q, not %q", prefix, got, want)
		}
	}
	for o, err := range p.List(ctx, "b/") {
		if err != nil || o.Size != int64(len(large)) {
			t.Errorf("%+v, %v", o, err)
		}
	}
	for range p.List(ctx, "") { // whoever looks may stop
		break
	}
	if err := p.Delete(ctx, "a/one"); err != nil {
		t.Fatal(err)
	}
	if got := names(t, p, "a/"); !slices.Equal(got, []string{"a/two"}) {
		t.Errorf("after a deletion: %q", got)
	}
	for _, name := range []string{"", "/a", "a//b", "../a", "a/../b", ".hidden", "a/.b", "a\x00b", `a\b`, "ä"} {
		if err := p.Put(ctx, name, strings.NewReader("x"), 1); err == nil {
			t.Errorf("%q is taken for a name", name)
		}
		if _, err := p.Open(ctx, name); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("open %q: %v", name, err)
		}
		if err := p.Delete(ctx, name); err == nil {
			t.Errorf("delete %q is done", name)
		}
	}
	// More than one answer of a listing holds.
	var want []string
	for i := range maxListNames + 5 {
		name := "many/" + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		want = append(want, name)
		put(name, []byte{1})
	}
	slices.Sort(want)
	if got := names(t, p, "many/"); !slices.Equal(got, want) {
		t.Errorf("%d objects are listed, not %d", len(got), len(want))
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := p.Put(ended, "late", bytes.NewReader(large), int64(len(large))); !errors.Is(err, context.Canceled) {
		t.Errorf("put after the end: %v", err)
	}
	if err := p.Put(ctx, "short", strings.NewReader("abc"), 3000); err == nil && len(content(t, p, "short")) == 3000 {
		t.Error("3 bytes became 3000")
	}
}

func names(t *testing.T, p Place, prefix string) (list []string) {
	t.Helper()
	for o, err := range p.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, o.Name)
	}
	return list
}

func content(t *testing.T, p Place, name string) []byte {
	t.Helper()
	r, err := p.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return data
}

// fakeBucket gives a place in a server of the test's own. before sees each request first, and tells
// whether it has answered.
func fakeBucket(t *testing.T, address string, before func(http.ResponseWriter, *http.Request) bool) (Place, *httptest.Server) {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("mail"); err != nil {
		t.Fatal(err)
	}
	s3 := gofakes3.New(backend).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before == nil || !before(w, r) {
			s3.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("id\nsecret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	place, err := At(address, S3{Endpoint: server.URL, AccessKeyFile: key})
	if err != nil {
		t.Fatal(err)
	}
	return place, server
}

// TestBucketThatFails: what fails now and then is tried again; what fails for good is an error that
// names the object.
func TestBucketThatFails(t *testing.T) {
	var bad atomic.Int32
	how := func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }
	place, _ := fakeBucket(t, "s3://mail/x", func(w http.ResponseWriter, _ *http.Request) bool {
		if bad.Add(-1) < 0 {
			return false
		}
		how(w)
		return true
	})
	bad.Store(2)
	if err := place.Put(t.Context(), "one", strings.NewReader("abc"), 3); err != nil {
		t.Errorf("busy twice: %v", err)
	}
	how = func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	bad.Store(2)
	if r, err := place.Open(t.Context(), "one"); err != nil {
		t.Errorf("cut twice: %v", err)
	} else {
		r.Close()
	}
	how = func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }
	bad.Store(1000)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := place.Put(ctx, "two", strings.NewReader("abc"), 3); err == nil || !strings.Contains(err.Error(), "two") {
		t.Errorf("forbidden: %v", err)
	}
	bad.Store(0)
	if got := names(t, place, ""); !slices.Equal(got, []string{"one"}) {
		t.Errorf("in the end there are %q", got)
	}
}

func TestAddresses(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	if _, err := At("s3://mail", S3{}); err == nil || !strings.Contains(err.Error(), "access_key_file") {
		t.Errorf("without a key: %v", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	for address, o := range map[string]S3{"s3://": {}, "s3:///x": {}, "gs://mail": {}, "s3://mail/x": {Endpoint: "mail.example.com"}, "s3://mail/y": {Endpoint: "https://h/path"}} {
		if _, err := At(address, o); !errors.Is(err, ErrAddress) {
			t.Errorf("%s, %+v: %v", address, o, err)
		}
	}
	if p, err := At("s3://mail/x/", S3{Region: "eu-central-1"}); err != nil || p.(*s3Bucket).prefix != "x/" {
		t.Errorf("%+v, %v", p, err)
	}
	place, _ := fakeBucket(t, "s3://other", nil)
	if err := place.Put(t.Context(), "a", strings.NewReader("x"), 1); err == nil || !strings.Contains(err.Error(), `no bucket "other"`) {
		t.Errorf("a bucket that is not there: %v", err)
	}
}

// TestFileInThePlaceOfADirectory: the error says that it is a file.
func TestFileInThePlaceOfADirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	place, err := At(file+"/", S3{})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range place.List(t.Context(), "") {
		if err == nil || !strings.Contains(err.Error(), "it is a file; name a directory, or the file itself without the slash at its end") {
			t.Errorf("error %v", err)
		}
	}
}

// TestDirectoryAfterACrash: what was half written is not listed, and goes away unless somebody is
// writing it.
func TestDirectoryAfterACrash(t *testing.T) {
	dir := t.TempDir()
	place, err := At(dir, S3{})
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, tempPrefix+"123")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	written, err := createLocked(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, place, ""); len(got) != 0 {
		t.Errorf("listed: %q", got)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what nobody writes is still there: %v", err)
	}
	if _, err := os.Stat(written.Name()); err != nil {
		t.Error("it is removed while it is written")
	}
	if err := written.Close(); err != nil {
		t.Fatal(err)
	}
	names(t, place, "")
	if _, err := os.Stat(written.Name()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
