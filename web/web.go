// Package web serves the dashboard. The folder has its sources in src and the built files in dist,
// which are embedded in the binary; long ones are compressed. The dashboard is a client of the API
// /v1 in a browser session. The package does not know the rest of the server.
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
var distFiles embed.FS

// Theme is the style sheet with the colours and sizes of the dashboard, for other pages of this
// server.
//
//go:embed src/ui/theme.css
var Theme []byte

// Icon is the dashboard's icon in SVG, for other pages of this server.
//
//go:embed public/icon.svg
var Icon []byte

// contentSecurityPolicy is the Content-Security-Policy of the dashboard. It allows scripts, styles,
// frames and data only from this server. Images may also be files that the page itself holds.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; " +
	"frame-src 'self'; manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// A file is one file of the dashboard, ready to be sent.
type file struct {
	kind   string // media type
	body   []byte // content; nil if the file is embedded compressed
	zipped []byte // gzipped content; nil if that would not be smaller
	tag    string // ETag without quotes: part of the content's hash
	fixed  bool   // whether the name has the content's hash, so that the file never changes
}

// A site maps URL paths to functions that return the dashboard's files. A file is prepared when it
// is first requested.
type site map[string]func() *file

// Handler returns a handler that serves the dashboard. It answers with index.html if there is no
// file at the path, because the script in that page handles such paths.
func Handler() http.Handler { return loadSite() }

// Build returns the version of the dashboard, with which an open page finds out that it is
// outdated. It is the tag of index.html, which changes with every other file because it has the
// hashes of all.
func Build() string { return loadSite()["/index.html"]().tag }

// loadSite returns the site of the embedded files. It makes the site once.
var loadSite = sync.OnceValue(func() site {
	s := site{}
	err := fs.WalkDir(distFiles, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		s[strings.TrimSuffix(strings.TrimPrefix(name, "dist"), ".gz")] = sync.OnceValue(func() *file { return newFile(name) })
		return nil
	})
	if err != nil {
		panic(err) // impossible: the files are part of the binary
	}
	return s
})

// newFile prepares an embedded file.
func newFile(name string) *file {
	body, err := distFiles.ReadFile(name)
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
	switch ext := path.Ext(name); ext { // do not rely on the system's table of types
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
	w, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression) // BestCompression is a valid level
	_, _ = w.Write(body)                                       // writing to a bytes.Buffer cannot fail
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
	h.Set("Content-Security-Policy", contentSecurityPolicy)
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

// send sends the file. Browsers may cache files with a hash in their name forever. They must check
// other files each time, and get an empty 304 response if these have not changed.
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
			body, _ = unzip(f.zipped) // cannot fail, because newFile has unzipped it before
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
