// Package web holds the dashboard: its sources in src, what they are built to in dist, which the
// binary carries, the long files compressed. It is a client of /v1 in a browser session and knows
// nothing of the server.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

//go:embed dist
var files embed.FS

// policy lets the page load its own script, style sheet and messages, and nothing else from
// anywhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"frame-src 'self'; manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// A file is one of the dashboard, as it is sent.
type file struct {
	kind   string // media type
	body   []byte // nil where it is zipped
	zipped []byte // nil where it would not be smaller
	tag    string
	fixed  bool // its name has the hash of its content, so that it never changes
}

// A site is the dashboard's files by path. Each is made when it is first asked for.
type site map[string]func() *file

// Handler serves the dashboard. A path that is no file is a place within it, and gets the page.
func Handler() http.Handler { return load() }

// Build names the version of the dashboard, so that a page that stayed open can tell that there is
// a newer one. The page names all its files by their content, and so its own tag changes with any
// of them.
func Build() string { return load()["/index.html"]().tag }

// load finds the files, once.
var load = sync.OnceValue(func() site {
	s := site{}
	err := fs.WalkDir(files, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		s[strings.TrimSuffix(strings.TrimPrefix(name, "dist"), ".gz")] = sync.OnceValue(func() *file { return newFile(name) })
		return nil
	})
	if err != nil {
		panic(err) // the files are part of the binary
	}
	return s
})

func newFile(name string) *file {
	body, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	f := &file{body: body}
	if short, zipped := strings.CutSuffix(name, ".gz"); zipped {
		f.body, f.zipped, name = nil, body, short
		body, err = unzip(f.zipped)
		if err != nil {
			panic(err)
		}
	}
	var kind string
	switch ext := path.Ext(name); ext { // the system's table may say something else
	case ".js":
		kind = "text/javascript; charset=utf-8"
	case ".css":
		kind = "text/css; charset=utf-8"
	case ".html":
		kind = "text/html; charset=utf-8"
	case ".svg":
		kind = "image/svg+xml"
	case ".webmanifest":
		kind = "application/manifest+json"
	default:
		kind = mime.TypeByExtension(ext)
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	f.kind, f.tag, f.fixed = kind, hash[:24], strings.HasSuffix(name, "-"+hash[:16]+path.Ext(name))
	if f.zipped != nil {
		return f
	}
	var zipped bytes.Buffer
	w, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression) // the level is one of the package's own
	_, _ = w.Write(body)                                       // a bytes.Buffer takes all
	_ = w.Close()
	if zipped.Len() < len(body) {
		f.zipped = zipped.Bytes()
	}
	return f
}

func unzip(zipped []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func (s site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	f := s[r.URL.Path]
	if f == nil && path.Ext(r.URL.Path) != "" && !strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.NotFound(w, r)
		return
	}
	if f == nil {
		f = s["/index.html"]
	}
	f().send(w, r)
}

// send answers with the file. Browsers keep those with a hash in their name for good, and ask each
// time whether the page has changed, which costs them an empty 304.
func (f *file) send(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	body, tag := f.zipped, f.tag+"-gzip"
	if f.zipped != nil {
		h.Set("Vary", "Accept-Encoding")
	}
	if f.zipped != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
	} else {
		body = f.body
		if body == nil {
			body, _ = unzip(f.zipped) // newFile has done it once
		}
		tag = f.tag
	}
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "no-cache")
	if f.fixed {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}
