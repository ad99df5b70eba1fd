package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func get(path string, header ...string) *http.Response {
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

func TestPlacesGetThePage(t *testing.T) {
	for _, path := range []string{"/", "/domains", "/mailboxes/eu_1", "/inbox"} {
		resp := get(path)
		if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
		csp := resp.Header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "script-src 'self';") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", path, csp)
		}
	}
	if resp := get("/missing.js"); resp.StatusCode != 404 {
		t.Errorf("a script that is not there: %d", resp.StatusCode)
	}
}

func TestFilesAreAskedForOnce(t *testing.T) {
	first := get("/app.js", "Accept-Encoding", "gzip")
	if first.Header.Get("Content-Encoding") != "gzip" || first.Header.Get("ETag") != `"`+Build()+`-gzip"` {
		t.Fatalf("%v", first.Header)
	}
	again := get("/app.js", "Accept-Encoding", "gzip", "If-None-Match", first.Header.Get("ETag"))
	if again.StatusCode != http.StatusNotModified {
		t.Errorf("again: %d", again.StatusCode)
	}
}

// TestFirstLoadIsSmall: what a browser fetches before it shows something, compressed.
func TestFirstLoadIsSmall(t *testing.T) {
	s, err := load()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, name := range []string{"/index.html", "/app.js", "/app.css", "/icon.svg"} {
		f := s[name]
		if f == nil {
			t.Fatalf("there is no %s", name)
		}
		if f.zipped != nil {
			total += len(f.zipped)
		} else {
			total += len(f.body)
		}
	}
	if total > 150<<10 {
		t.Errorf("the first load is %d bytes", total)
	}
}
