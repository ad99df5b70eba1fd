package handlers

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	markup "golang.org/x/net/html"

	"github.com/mailstead/mailstead/mail/view"
	"github.com/mailstead/mailstead/service/core"
)

// viewOf is where a message is shown.
func viewOf(userID string, uid uint32) string { return fmt.Sprintf("/session/view/%s/%d", userID, uid) }

// look asks for a document as the dashboard's frame does.
func (b *browser) look(path string) *reply { b.t.Helper(); return b.ask("GET", path, nil) }

const png = "\x89PNG\r\n\x1a\n"

// TestViewMessage: the document is sent with a policy that lets nothing run, to users who may read
// the message.
func TestViewMessage(t *testing.T) {
	b := newSandbox(t, nil)
	id := b.box("ann")
	uid := b.Put(t, "ann@boxes.test", letter, mail{})
	path, web := viewOf(id, uid), b.browser().signIn()
	r := web.look(path).is(200)
	if !strings.Contains(string(r.raw), "<p>Hello <b>Ann</b></p>") || strings.Contains(string(r.raw), "script") {
		t.Errorf("document is %s", r.raw)
	}
	policy := r.header.Get("Content-Security-Policy")
	form := `^default-src 'none'; style-src 'sha256-[A-Za-z0-9+/=]{44}'; img-src 'self'; sandbox %sallow-popups allow-popups-to-escape-sandbox; ` +
		`frame-ancestors 'self'; base-uri 'none'; form-action 'none'$`
	if !regexp.MustCompile(fmt.Sprintf(form, "")).MatchString(policy) {
		t.Errorf("policy is %s", policy)
	}
	for dest, origin := range map[string]string{"iframe": "allow-same-origin ", "document": "", "frame": "", "object": "", "empty": ""} {
		policy := web.do("GET", path, nil, "Cookie", web.cookie, "Sec-Fetch-Dest", dest).is(200).header.Get("Content-Security-Policy")
		if !regexp.MustCompile(fmt.Sprintf(form, origin)).MatchString(policy) {
			t.Errorf("the policy for a %s is %s", dest, policy)
		}
	}
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		"X-Images-Remote": "0", "X-Images-Held": "0", "X-Images-Trackers": "0", "Set-Cookie": "",
		"Vary": "Sec-Fetch-Dest",
	} {
		if got := r.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if head := web.ask("HEAD", path, nil).is(200); len(head.raw) > 0 || head.header.Get("X-Images-Held") != "0" {
		t.Errorf("HEAD answered %d bytes, %v", len(head.raw), head.header)
	}
	if dark := web.look(path + "?theme=dark&images=1").is(200); !strings.Contains(string(dark.raw), "color-scheme:dark") {
		t.Errorf("not dark: %s", dark.raw)
	}
	if seen := b.get(fmt.Sprintf("/v1/email-users/%s/inbox/%d", id, uid)); seen.text("is_read") != "false" {
		t.Error("looking at the document marked the message read")
	}
}

func TestViewMessageRefuses(t *testing.T) {
	b := newSandbox(t, nil)
	web := b.browser().signIn()
	path := viewOf(b.box("ann"), b.Put(t, "ann@boxes.test", letter, mail{}))
	web.look(path+"?images=2").fails(400, "validation_error")
	web.look(path+"?theme=%zz").fails(400, "validation_error")
	web.look(path+"9").fails(404, "not_found")
	web.look(path+"/x").fails(404, "not_found")
	web.look("/session/view/none/1").fails(404, "not_found")
	web.look("/session/view/").fails(404, "not_found")
	web.ask("POST", path, "{}").fails(405, "method_not_allowed")
	b.browser().look(path).fails(401, "unauthorized")
	b.get(path).fails(401, "unauthorized") // by a token
	b.Account(t, "else@example.test")
	other := b.browser()
	other.ask("POST", "/session", map[string]string{"email": "else@example.test", "password": "correct horse"}).is(200)
	other.look(path).fails(404, "not_found")
	web.look(path).is(200)
}

// TestViewHostile: every message of the corpus is shown by the same policy, with the images in it
// that are images.
func TestViewHostile(t *testing.T) {
	b := newSandbox(t, nil)
	id, web := b.box("ann"), b.browser().signIn()
	names, err := filepath.Glob("../mail/view/testdata/hostile/*.eml")
	if err != nil || len(names) < 30 {
		t.Fatalf("%d messages, %v", len(names), err)
	}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		uid := b.Put(t, "ann@boxes.test", strings.ReplaceAll(string(raw), "\r\n", "\n"), mail{})
		for _, how := range []string{"?images=0", "?images=1&theme=dark"} {
			r := web.look(viewOf(id, uid) + how).is(200)
			if bad := harmful(r.raw); bad != "" {
				t.Errorf("%s: %s in %s", name, bad, r.raw)
			}
		}
		for i := range 4 {
			r := b.get(fmt.Sprintf("/v1/email-users/%s/inbox/%d/attachments/%d", id, uid, i))
			if r.status == 404 {
				break
			}
			if kind := r.header.Get("Content-Type"); !strings.HasPrefix(r.header.Get("Content-Disposition"), "attachment") ||
				r.header.Get("Content-Security-Policy") != "default-src 'none'; sandbox" || r.header.Get("X-Bad") != "" || strings.ContainsAny(kind, "+") || strings.Contains(kind, "html") {
				t.Errorf("%s: attachment %d: %v", name, i, r.header)
			}
		}
	}
}

// harmful is the first tag of a document that may not be in one.
func harmful(document []byte) string {
	for z := markup.NewTokenizer(bytes.NewReader(document)); ; {
		if z.Next() == markup.ErrorToken {
			return ""
		}
		tag := z.Token()
		if tag.Type != markup.StartTagToken && tag.Type != markup.SelfClosingTagToken {
			continue
		}
		bad := slices.Contains([]string{"script", "svg", "math", "form", "iframe", "input", "link", "base", "object"}, tag.Data)
		for _, a := range tag.Attr {
			bad = bad || strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "src" && !strings.HasPrefix(a.Val, imagePath)
		}
		if bad {
			return tag.String()
		}
	}
}

// imagesOf are the addresses of the images that a document shows.
func imagesOf(r *reply) []string {
	var out []string
	for _, m := range regexp.MustCompile(`<img src="([^"]*)"`).FindAllSubmatch(r.raw, -1) {
		out = append(out, html.UnescapeString(string(m[1])))
	}
	return out
}

func pictured(body string) string {
	return "From: a@far.test\nMIME-Version: 1.0\nContent-Type: multipart/related; boundary=b\n\n--b\nContent-Type: text/html\n\n" + body +
		"\n--b\nContent-Type: image/jpeg\nContent-ID: <one@x>\n\n\x89PNG\x0d\x0a\x1a\x0arest\n--b\nContent-Type: image/svg+xml\nContent-ID: <two>\n\n<svg/>\n" +
		"--b\nContent-Type: image/png\nContent-ID: <three>\n\n<script>alert(1)</script>\n--b--\n"
}

// TestInnerImages: images of the message itself are shown without a cookie, as what their bytes
// are.
func TestInnerImages(t *testing.T) {
	b := newSandbox(t, nil)
	id, web := b.box("ann"), b.browser().signIn()
	// Put makes line ends of mail of all line feeds, so that the image has its own in base64.
	text := strings.Replace(pictured(`<img src="cid:one%40x"><img src="cid:two"><img src="cid:three"><img src="cid:four">`),
		"<one@x>\n\n\x89PNG\x0d\x0a\x1a\x0arest", "<one@x>\nContent-Transfer-Encoding: base64\n\niVBORw0KGgo=", 1)
	uid := b.Put(t, "ann@boxes.test", text, mail{})
	images := imagesOf(web.look(viewOf(id, uid)).is(200))
	if len(images) != 2 {
		t.Fatalf("images are %v", images)
	}
	nobody := b.with("")
	r := nobody.get(images[0]).is(200)
	if string(r.raw) != png {
		t.Errorf("image is %q", r.raw)
	}
	for name, want := range map[string]string{
		"Content-Type": "image/png", "X-Content-Type-Options": "nosniff", "Content-Disposition": "inline", "Content-Security-Policy": "default-src 'none'; sandbox",
	} {
		if got := r.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if c := r.header.Get("Cache-Control"); !regexp.MustCompile(`^private, max-age=3[3-6]\d\d$`).MatchString(c) {
		t.Errorf("Cache-Control is %q", c)
	}
	nobody.get(images[1]).fails(422, "image_unavailable")
	nobody.post(images[0], "").fails(405, "method_not_allowed")
	for _, bad := range []string{"", "x", ".", images[0][len(imagePath) : len(images[0])-1], strings.Replace(images[0][len(imagePath):], ".", "A.", 1)} {
		r := nobody.get(imagePath+bad).fails(404, "not_found")
		if strings.Contains(string(r.raw), bad) && len(bad) > 1 {
			t.Errorf("the answer has the token: %s", r.raw)
		}
	}
	b.remove(fmt.Sprintf("/v1/email-users/%s/inbox/%d", id, uid)).is(200)
	nobody.get(images[0]).fails(404, "not_found")
}

// TestViewAttachment: an attachment is shown as an image, by its bytes, or as plain text, whatever
// it says that it is; nothing of it can run.
func TestViewAttachment(t *testing.T) {
	b := newSandbox(t, nil)
	id, web := b.box("ann"), b.browser().signIn()
	uid := b.Put(t, "ann@boxes.test", "From: a@far.test\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nhello\n"+
		"--b\nContent-Type: text/html\nContent-Disposition: attachment; filename=page.html\nContent-Transfer-Encoding: base64\n\nPHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==\n"+
		"--b\nContent-Type: image/svg+xml\nContent-Disposition: attachment; filename=logo.svg\nContent-Transfer-Encoding: base64\n\nPHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+\n"+
		"--b\nContent-Type: text/html\nContent-Disposition: attachment; filename=photo.html\nContent-Transfer-Encoding: base64\n\niVBORw0KGgo=\n"+
		"--b\nContent-Type: text/plain; charset=iso-8859-1\nContent-Disposition: attachment; filename=old.txt\nContent-Transfer-Encoding: base64\n\n/GJlcg==\n--b--\n", mail{})
	at := func(i int, as string) string { return fmt.Sprintf("/session/files/%s/%d/%d?as=%s", id, uid, i, as) }
	for _, c := range []struct {
		index              int
		as, kind, contents string
	}{
		{0, "text", "text/plain; charset=utf-8", "<script>alert(1)</script>"}, {1, "text", "text/plain; charset=utf-8", `<svg onload="alert(1)"/>`},
		{2, "image", "image/png", png}, {3, "text", "text/plain; charset=utf-8", "über"},
	} {
		r := web.look(at(c.index, c.as)).is(200)
		if string(r.raw) != c.contents {
			t.Errorf("%d as %s is %q, want %q", c.index, c.as, r.raw, c.contents)
		}
		for name, want := range map[string]string{
			"Content-Type": c.kind, "Content-Security-Policy": "default-src 'none'; sandbox", "X-Content-Type-Options": "nosniff", "Content-Disposition": "inline",
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		} {
			if got := r.header.Get(name); got != want {
				t.Errorf("%d as %s: %s is %q, want %q", c.index, c.as, name, got, want)
			}
		}
	}
	web.look(at(0, "image")).fails(422, "image_unavailable")
	web.look(at(1, "image")).fails(422, "image_unavailable")
	web.look(at(4, "text")).fails(404, "not_found")
	web.look(at(0, "html")).fails(400, "validation_error")
	b.browser().look(at(0, "text")).fails(401, "unauthorized")
	b.get(at(0, "text")).fails(401, "unauthorized") // by a token
	b.Account(t, "else@example.test")
	other := b.browser()
	other.ask("POST", "/session", map[string]string{"email": "else@example.test", "password": "correct horse"}).is(200)
	other.look(at(0, "text")).fails(404, "not_found")
}

// A gallery is a host elsewhere that has images, and notes what it is asked.
type gallery struct {
	*httptest.Server
	mu    sync.Mutex
	asked []http.Header
}

func newGallery(t *testing.T) *gallery {
	g := &gallery{}
	far := func(w http.ResponseWriter, r *http.Request, body string) {
		g.mu.Lock()
		g.asked = append(g.asked, r.Header.Clone())
		g.mu.Unlock()
		http.SetCookie(w, &http.Cookie{Name: "id", Value: "1"})
		_, _ = io.WriteString(w, body)
	}
	mux := http.NewServeMux()
	for path, body := range map[string]string{
		"/ok.png": png, "/page": "<html><script>", "/svg": "<svg xmlns='http://www.w3.org/2000/svg'/>", "/empty": "", "/avif": "\x00\x00\x00\x20ftypavif....",
		"/exact": png + strings.Repeat("x", 5<<20-len(png)),
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			far(w, r, body)
		})
	}
	mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(5<<20+1))
		far(w, r, png+strings.Repeat("x", 5<<20+1-len(png)))
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		far(w, r, png)
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	for from, to := range map[string]string{"/r1": "/r2", "/r2": "/r3", "/r3": "/ok.png", "/r0": "/r1", "/clear": "http://127.0.0.1/", "/meta": "https://169.254.169.254/"} {
		mux.Handle(from, http.RedirectHandler(to, http.StatusFound))
	}
	g.Server = httptest.NewTLSServer(mux)
	t.Cleanup(g.Close)
	return g
}

// TestRemoteImages: images elsewhere are fetched when they are asked for, by us, with nothing that
// tells of the reader.
func TestRemoteImages(t *testing.T) {
	g := newGallery(t)
	b := newSandbox(t, func(c *core.Config) {
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AddCert(g.Certificate())
	})
	id, web := b.box("ann"), b.browser().signIn()
	want := map[string]int{
		"/ok.png": 200, "/avif": 200, "/exact": 200, "/r1": 200, "/r0": 422, "/clear": 422, "/meta": 422,
		"/page": 422, "/svg": 422, "/empty": 422, "/none": 422, "/large": 422,
	}
	paths := slices.Sorted(maps.Keys(want))
	var body strings.Builder
	for _, path := range paths {
		fmt.Fprintf(&body, "<img src=%q>", g.URL+path+"#x")
	}
	uid := b.Put(t, "ann@boxes.test", pictured(body.String()+`<img width=1 height=1 src="https://far.test/t">`), mail{})
	view := viewOf(id, uid)

	held := web.look(view).is(200)
	if n := fmt.Sprint(len(want)); held.header.Get("X-Images-Held") != n || held.header.Get("X-Images-Remote") != n || held.header.Get("X-Images-Trackers") != "1" || len(imagesOf(held)) > 0 {
		t.Errorf("held: %v", held.header)
	}
	shown := web.look(view + "?images=1").is(200)
	images := imagesOf(shown)
	if shown.header.Get("X-Images-Held") != "0" || len(images) != len(want) || len(g.asked) > 0 || bytes.Contains(shown.raw, []byte(g.URL)) {
		t.Fatalf("shown: %v, %d images, %d asked", shown.header, len(images), len(g.asked))
	}
	nobody := b.with("")
	for i, path := range paths {
		r := nobody.do("GET", images[i], nil, "Cookie", "mailstead=x", "User-Agent", "Reader", "Referer", "https://mail.test/", "Accept-Language", "de")
		if r.status != want[path] {
			t.Errorf("%s: %d %.200s", path, r.status, r.raw)
		}
		if kind := r.header.Get("Content-Type"); r.status == 200 && (!strings.HasPrefix(kind, "image/") || r.header.Get("Set-Cookie") != "") {
			t.Errorf("%s is %s, %v", path, kind, r.header)
		}
	}
	for _, asked := range g.asked {
		if got := slices.Sorted(maps.Keys(asked)); !slices.Equal(got, []string{"Accept", "User-Agent"}) || strings.Contains(asked.Get("User-Agent"), "Reader") {
			t.Errorf("was asked with %v", asked)
		}
	}
}

// TestEndlessImage: an image that goes on past the limit is none.
func TestEndlessImage(t *testing.T) {
	g := newGallery(t)
	b := newSandbox(t, func(c *core.Config) {
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AddCert(g.Certificate())
	})
	id, web := b.box("ann"), b.browser().signIn()
	uid := b.Put(t, "ann@boxes.test", pictured(fmt.Sprintf("<img src=%q>", g.URL+"/endless")), mail{})
	images := imagesOf(web.look(viewOf(id, uid) + "?images=1").is(200))
	b.with("").get(images[0]).fails(422, "image_unavailable")
}

// TestPrivateImages: without leave for private addresses no image at one is linked.
func TestPrivateImages(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.AllowPrivate = false })
	id, web := b.box("ann"), b.browser().signIn()
	uid := b.Put(t, "ann@boxes.test", pictured(`<img src="https://127.0.0.1/a.png"><img src="https://router.lan/b.png"><img src="https://u:p@far.test/c.png">`), mail{})
	r := web.look(viewOf(id, uid) + "?images=1").is(200)
	if images := imagesOf(r); len(images) > 0 || r.header.Get("X-Images-Held") != "3" {
		t.Errorf("images %v, %v", images, r.header)
	}
}

// TestDisposition: names of files come through as RFC 6266 has them, and end no field.
func TestDisposition(t *testing.T) {
	for in, want := range map[string]string{
		"a.pdf":     "attachment; filename=a.pdf",
		"a b.pdf":   `attachment; filename="a b.pdf"`,
		"a'b.pdf":   `attachment; filename="a'b.pdf"`,
		"In*1.pdf":  `attachment; filename="In*1.pdf"`,
		"ü 1.pdf":   `attachment; filename="_ 1.pdf"; filename*=UTF-8''%C3%BC%201.pdf`,
		"a\"\r\n.b": `attachment; filename=a___.b; filename*=UTF-8''a%22%0D%0A.b`,
		"100%.txt":  `attachment; filename=100_.txt; filename*=UTF-8''100%25.txt`,
		"\xff":      `attachment; filename=_; filename*=UTF-8''_`,
		"":          "attachment",
	} {
		if got := contentDisposition(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// TestViewPolicy: the policy names the very style sheet of the document.
func TestViewPolicy(t *testing.T) {
	d := view.Text("x", view.Options{})
	if p := viewPolicy(d.StyleHash, true); strings.Contains(p, "unsafe") || !strings.Contains(p, "'"+styleHash(string(d.HTML))+"'") {
		t.Errorf("policy is %s", p)
	}
}
