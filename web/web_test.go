package web

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
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

// TestAssetsAreImmutable: what the page loads has a hash of its content in its name, and is asked
// for once.
func TestAssetsAreImmutable(t *testing.T) {
	s := loadSite()
	page, err := distFiles.ReadFile("dist/index.html")
	if err != nil {
		t.Fatal(err)
	}
	named := string(page)
	for name, f := range s {
		if path.Ext(name) != ".js" {
			continue
		}
		body := f().body
		if body == nil {
			body, err = unzip(f().zipped)
			if err != nil {
				t.Fatal(err)
			}
		}
		named += string(body)
	}
	for name, f := range s {
		if name == "/index.html" {
			continue
		}
		body := f().body
		if body == nil {
			body, err = unzip(f().zipped)
			if err != nil {
				t.Fatal(err)
			}
		}
		sum := sha256.Sum256(body)
		if want := "-" + hex.EncodeToString(sum[:8]) + path.Ext(name); !strings.HasSuffix(name, want) {
			t.Errorf("%s should end in %s", name, want)
		}
		if !strings.Contains(named, `"`+name+`"`) && !strings.Contains(named, `".`+name+`"`) {
			t.Errorf("%s is named nowhere; it may be of an earlier build", name)
		}
		if got := get(name).Header.Get("Cache-Control"); got != "public, max-age=31536000, immutable" {
			t.Errorf("%s: Cache-Control %q", name, got)
		}
	}
	for _, path := range []string{"/", "/domains", "/index.html"} {
		if got := get(path).Header; got.Get("Cache-Control") != "no-cache" || got.Get("ETag") == "" {
			t.Errorf("%s: %v", path, got)
		}
	}
	if gone := get("/app-0000000000000000.js"); gone.StatusCode != 404 || strings.Contains(gone.Header.Get("Cache-Control"), "immutable") {
		t.Errorf("a file of another build: %d %v", gone.StatusCode, gone.Header)
	}
}

func TestThePageIsAskedForAgain(t *testing.T) {
	first := get("/", "Accept-Encoding", "gzip")
	if first.Header.Get("Content-Encoding") != "gzip" || first.Header.Get("ETag") != `"`+Build()+`-gzip"` {
		t.Fatalf("%v", first.Header)
	}
	again := get("/", "Accept-Encoding", "gzip", "If-None-Match", first.Header.Get("ETag"))
	if again.StatusCode != http.StatusNotModified {
		t.Errorf("again: %d", again.StatusCode)
	}
}

// TestFirstLoadIsSmall: what a browser fetches before it shows something, compressed: what the page
// names, what that imports, and the largest of the parts that a place is in, with what it imports.
func TestFirstLoadIsSmall(t *testing.T) {
	s := loadSite()
	size := func(name string) int {
		f := s[name]()
		if f.zipped != nil {
			return len(f.zipped)
		}
		return len(f.body)
	}
	text := func(name string) string {
		f := s[name]()
		if f.body != nil {
			return string(f.body)
		}
		body, err := unzip(f.zipped)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	static, dynamic := regexp.MustCompile(`(?:from|import)"\.(/[^"]+\.js)"`), regexp.MustCompile(`import\("\.(/[^"]+\.js)"\)`)
	var add func(seen map[string]bool, name string) int
	add = func(seen map[string]bool, name string) int {
		if seen[name] {
			return 0
		}
		seen[name] = true
		total := size(name)
		for _, m := range static.FindAllStringSubmatch(text(name), -1) {
			total += add(seen, m[1])
		}
		return total
	}
	seen := map[string]bool{}
	first, app := 0, ""
	for _, m := range regexp.MustCompile(`"(/[^"]+\.\w+)"`).FindAllStringSubmatch(text("/index.html"), -1) {
		if s[m[1]] == nil {
			continue
		}
		first += add(seen, m[1])
		if strings.HasSuffix(m[1], ".js") {
			app = m[1]
		}
	}
	first += size("/index.html")
	parts, largest := dynamic.FindAllStringSubmatch(text(app), -1), 0
	if len(parts) != 6 {
		t.Errorf("%d parts are fetched later", len(parts))
	}
	for _, m := range parts {
		largest = max(largest, add(maps.Clone(seen), m[1]))
	}
	t.Logf("the first load is %d bytes, and at most %d more with a place", first, largest)
	if first+largest > 170<<10 {
		t.Errorf("the first load is %d bytes, and %d with a place", first, first+largest)
	}
}

// Every pair of a size and a weight is a font that a browser makes when it is first used.
func TestTextHasFewSizes(t *testing.T) {
	sizes := []string{"0.8rem", "0.87rem", "1rem", "1.1rem", "1.3rem", "1.5rem", "0.88em", "16px", "inherit"}
	weights := []string{"400", "560", "620", "inherit"}
	declared := regexp.MustCompile(`font-(size|weight): ([^;}]+)`)
	err := filepath.WalkDir("src", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".css" {
			return err
		}
		sheet, err := os.ReadFile(path)
		for _, found := range declared.FindAllStringSubmatch(string(sheet), -1) {
			known := sizes
			if found[1] == "weight" {
				known = weights
			}
			if !slices.Contains(known, found[2]) {
				t.Errorf("%s: %s, known are %v", path, found[0], known)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
