package handlers

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
)

var update = flag.Bool("update", false, "write the golden file anew")

// pathsAsked are paths of every kind that the server knows, and paths that only look like them.
var pathsAsked = []string{
	"/", "", "*", "/index.html", "/assets/x.js", "//", "//reset", "/domains/dom_1", "/healthz", "/healthz/", "/Healthz", "/readyz", "/reset", "/reset/", "/reset?token=x",
	"/export", "/export/", "/export/x", "/export//x", "/export/x/y", "/export/x%2Fy", "/exports",
	"/hooks", "/hooks/", "/hooks/x", "/hooks/ses/x", "/hooks/ses/x/y", "/hooks//x", "/hooks/ses/../x",
	"/unsubscribe", "/unsubscribe/", "/unsubscribe/x", "/unsubscribe/x/y", "/unsubscribe//x",
	"/docs", "/docs/", "/docs.md", "/docs/sending", "/docs/sending.md", "/docs/search?q=zzzz", "/docs/x", "/llms.txt", "/v1/openapi.json", "/v1/openapi.yaml", "/v1/openapi", "/v1/openapi.json/",
	"/v1", "/v1/", "/v1x", "/v1/account", "/v1//account", "/v1/account/", "/v1/../healthz", "/v1/domains/x", "/v1/domains/x%2Fy", "/v1/domains/search", "/v1%2Faccount", "/V1/account",
	"/mcp", "/mcp/", "/mcp/x",
	"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource/mcp/", "/.well-known/oauth-authorization-server",
	"/.well-known/oauth-authorization-server/mcp", "/oauth", "/oauth/", "/oauth/register", "/oauth/authorize", "/oauth/authorize/", "/oauth/token", "/oauth/revoke", "/oauth/consent", "/oauth/x",
	"/session", "/session/", "/sessions", "/session/here", "/session/list", "/session/list/", "/session/list/x", "/session/list/x/", "/session/list/x/y",
	"/session/stream/x", "/session/profile", "/session/totp", "/session/totp/confirm", "/session/passkey", "/session/passkey/options", "/session/passkeys", "/session/passkeys/x",
	"/session/passkeys/options", "/session/forgot", "/session/welcome", "/session/view", "/session/view/x", "/session/view/x/1", "/session/view//1", "/session/view/x/1/", "/session/files/x/1/0", "/session/files/x/1", "/session/files/x/1/",
	"/session/image", "/session/image/", "/session/image/x", "/session/image/x/y", "/session//here", "/session/../healthz", "/Session",
	"/.well-known/acme-challenge", "/.well-known/acme-challenge/", "/.well-known/acme-challenge/x", "/.well-known/acme-challenge//x", "/.well-known/x",
	"/.well-known/mta-sts.txt", "/.well-known/mta-sts.txt/", "/.well-known/autoconfig/mail/config-v1.1.xml", "/.well-known/autoconfig/mail/",
	"/mail/config-v1.1.xml", "/mail/config-v1.1.xml?emailaddress=ann@boxes.test", "/mail", "/mail/", "/mail/x", "/mail/x.mobileconfig", "/mail/x.mobileconfig?email=ann@boxes.test",
	"/mail/.mobileconfig", "/mail/x/y.mobileconfig", "/mail/x.mobileconfig/", "/mail//x.mobileconfig", "/mail/x.Mobileconfig",
	"/autodiscover", "/autodiscover/", "/autodiscover/autodiscover.xml", "/Autodiscover/Autodiscover.XML", "/AutoDiscover", "/autodiscover/autodiscover.xml/", "/autodiscover/x",
	"/autodiscover/autodiscover.json", "/autodiscover/autodiscover.json?Email=ann@boxes.test&Protocol=AutodiscoverV1", "/Autodiscover/Autodiscover.json/V1.0/ann@boxes.test?Protocol=AutodiscoverV1",
	"/autodiscover/autodiscover.json/v1.0", "/autodiscover/autodiscover.json/v1.0/", "/autodiscover/autodiscover.json/v1.0/a/b", "/autodiscover/autodiscover.json/x", "/autodiscover//autodiscover.xml",
}

// pathsMethods are the methods that each is asked with.
var pathsMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// TestEveryPath asks for every path, by several names of the host and over the local socket, with
// and without a token, and compares the answers with those that were recorded.
func TestEveryPath(t *testing.T) {
	b := newSandbox(t, withTLS)
	b.server.Web = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "dashboard %s", r.URL.Path) })
	sent := b.Domain(t, b.Owner.AccountID, "sent.test", "builtin", "complete").ID
	b.post("/v1/domains/"+sent+"/redirect", `{"redirect_url":"https://else.test/"}`).is(200)
	got := newPathsRecord()
	for _, from := range []struct {
		name, host, token string
		handler           http.Handler
	}{
		{"host", "mail.example.test", "", b.server},
		{"host with token", "mail.example.test:8080", b.Owner.Token, b.server},
		{"address", "127.0.0.1:8080", "", b.server},
		{"domain", "boxes.test", "", b.server},
		{"policy host", "mta-sts.boxes.test", "", b.server},
		{"autoconfig host", "autoconfig.boxes.test", "", b.server},
		{"autodiscover host", "autodiscover.boxes.test", "", b.server},
		{"redirected", "sent.test", "", b.server},
		{"socket", "mailstead", "", b.server.Local()},
	} {
		for _, path := range pathsAsked {
			for _, method := range pathsMethods {
				got.add(from.name, method, path, got.ask(from.handler, method, from.host, path, from.token))
			}
		}
	}
	const golden = "testdata/paths.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	wanted, given := strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")
	for _, w := range wanted {
		if !slices.Contains(given, w) {
			t.Errorf("missing: %s", w)
		}
	}
	for _, g := range given {
		if !slices.Contains(wanted, g) {
			t.Errorf("new: %s", g)
		}
	}
}

// A pathsRecord records requests and responses: a line for the methods of a path that get the same
// response, with the hash of the response, and then every response.
type pathsRecord struct {
	asked   int
	lines   []string
	methods map[string][]string // by the line's place in lines
	answers map[string]string
}

func newPathsRecord() *pathsRecord {
	return &pathsRecord{methods: map[string][]string{}, answers: map[string]string{}}
}

func (r *pathsRecord) add(from, method, path, answer string) {
	sum := sha256.Sum256([]byte(answer))
	name := hex.EncodeToString(sum[:4])
	line := fmt.Sprintf("%s %q %s:", from, path, name)
	if r.methods[line] == nil {
		r.lines = append(r.lines, line)
	}
	r.methods[line] = append(r.methods[line], method)
	r.answers[name] = answer
}

func (r *pathsRecord) String() string {
	var out strings.Builder
	for _, line := range r.lines {
		fmt.Fprintln(&out, line, strings.Join(r.methods[line], " "))
	}
	for _, name := range slices.Sorted(maps.Keys(r.answers)) {
		fmt.Fprintf(&out, "\n%s\n%s", name, r.answers[name])
	}
	return out.String()
}

// ask returns a response as text, without the parts that differ between runs or wordings of a page.
func (r *pathsRecord) ask(h http.Handler, method, host, path, token string) string {
	req := httptest.NewRequest(method, "http://"+host+"/", strings.NewReader(""))
	path, req.URL.RawQuery, _ = strings.Cut(path, "?")
	req.URL.Path = path
	if plain := strings.ReplaceAll(path, "%2F", "/"); plain != path {
		req.URL.Path, req.URL.RawPath = plain, path
	}
	r.asked++ // each from a client of its own, since one that asks too often is refused
	req.RemoteAddr = fmt.Sprintf("198.18.%d.%d:1", r.asked/250, r.asked%250)
	req.Header.Set("X-Request-Id", "golden")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	var out strings.Builder
	fmt.Fprintln(&out, w.Code)
	var names []string
	for name := range w.Header() {
		if name != "Date" && name != "Etag" && !strings.HasPrefix(name, "X-Ratelimit-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	body := w.Body.String()
	long := len(body) > 600 || strings.Contains(w.Header().Get("Content-Type"), "text/html") || w.Header().Get("Etag") != ""
	for _, name := range names {
		value := strings.Join(w.Header()[name], " | ")
		if name == "Content-Length" && (value == strconv.Itoa(len(body)) || w.Header().Get("Etag") != "") {
			value = "that of the body"
		}
		fmt.Fprintln(&out, name+": "+regexp.MustCompile(`'sha256-[^']*'`).ReplaceAllString(value, "'sha256-…'"))
	}
	if long {
		body, _, _ = strings.Cut(body, "\n")
		body = fmt.Sprintf("%.60s…", body)
	}
	body = regexp.MustCompile(`Id="\d+" Time="[^"]*"|Time="[^"]*" Id="\d+"`).ReplaceAllString(body, "…")
	body = regexp.MustCompile(`"(challenge|id|created_at|reset|remaining|token_prefix|last_used_at|as_of)":("[^"]*"|\d+)`).ReplaceAllString(body, `"$1":…`)
	body = regexp.MustCompile(`"(retry_after)":\d+`).ReplaceAllString(body, `"$1":…`)
	body = strings.ReplaceAll(body, method+" ", "METHOD ")
	body = strings.ReplaceAll(body, "dashboard "+req.URL.Path, "dashboard PATH")
	if len(req.URL.Path) > 4 {
		body = strings.ReplaceAll(body, req.URL.Path, "PATH")
	}
	return out.String() + strings.TrimRight(body, "\n") + "\n"
}

// withTLS is an installation in production, with every port.
func withTLS(c *core.Config) {
	c.SubmissionPort, c.SMTPSecurity, c.SubmissionBeside = 465, "tls", 587
	c.IMAPPort, c.IMAPSecurity, c.IMAPBeside = 993, "tls", 143
	c.HTTPS, c.HTTPSPort = true, 443
}

// A visitor asks by the name of a host, without a token.
type visitor struct {
	t *testing.T
	s *Server
}

// status asks, and wants an answer of that status.
func (v visitor) status(want int, method, host, path string) *http.Response {
	v.t.Helper()
	r := httptest.NewRequestWithContext(v.t.Context(), method, "http://"+host+path, strings.NewReader(""))
	r.RemoteAddr = "198.51.100.7:1"
	w := httptest.NewRecorder()
	v.s.ServeHTTP(w, r)
	if w.Code != want {
		v.t.Errorf("%s %s%s: %d, want %d", method, host, path, w.Code, want)
	}
	return w.Result()
}

// A redirect of the domain leaves the documents and the challenges of certificate authorities
// alone.
func TestRedirectLeavesDiscoveryAlone(t *testing.T) {
	b := newSandbox(t, withTLS)
	b.post("/v1/domains/"+b.domain+"/redirect", `{"redirect_url":"https://else.test/"}`).is(200)
	v := visitor{t, b.server}
	v.status(301, "GET", "boxes.test", "/")
	v.status(301, "GET", "www.boxes.test", "/autodiscover/autodiscover.xml")
	v.status(301, "GET", "boxes.test", "/.well-known/mta-sts.txt")
	v.status(200, "GET", "boxes.test", "/.well-known/autoconfig/mail/config-v1.1.xml")
	v.status(200, "POST", "boxes.test", "/autodiscover/autodiscover.xml")
	v.status(200, "GET", "mta-sts.boxes.test", "/.well-known/mta-sts.txt")
}

func TestDiscoveryIsLimited(t *testing.T) {
	b := newSandbox(t, withTLS)
	v := visitor{t, b.server}
	now := time.Date(2030, 1, 1, 0, 0, 15, 0, time.UTC)
	b.server.now = func() time.Time { return now }
	for range autoconfigPerMinute {
		b.server.autoconfigRate.add("198.51.100.7", now)
	}
	if resp := v.status(429, "GET", "mta-sts.boxes.test", "/.well-known/mta-sts.txt"); resp.Header.Get("Retry-After") != "45" {
		t.Errorf("Retry-After %q", resp.Header.Get("Retry-After"))
	}
	now = now.Add(time.Minute)
	v.status(200, "GET", "mta-sts.boxes.test", "/.well-known/mta-sts.txt")
}

// A shelf is a long list with rows that come and go.
type shelf struct {
	path, field string
	add         func(name string)
	remove      func(n int) // the n-th of those that were added
}

// TestWalkOverAThousandRows pages through lists while rows come and go: nothing that stays is
// skipped or seen twice.
func TestWalkOverAThousandRows(t *testing.T) {
	if testing.Short() {
		t.Skip("it does one thing after the other, many times")
	}
	b := newSandbox(t, nil)
	ann := b.box("ann")
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	put := 0
	inbox := shelf{
		path: "/v1/inbox?limit=50", field: "subject",
		add: func(name string) {
			how := mail{Received: start.Add(time.Duration(put/4) * time.Second)} // four share each instant
			b.Put(t, "ann@boxes.test", "Subject: "+name+"\n\nx\n", how)
			put++
		},
		remove: func(n int) { b.remove(fmt.Sprintf("/v1/email-users/%s/inbox/%d", ann, n+1)).is(200) },
	}
	one := inbox
	one.path = "/v1/email-users/" + ann + "/inbox?limit=50"
	suppressions := shelf{
		path: "/v1/suppressions?limit=50", field: "email",
		add:    func(name string) { b.post("/v1/suppressions", map[string]any{"email": name + "@far.test"}).is(201) },
		remove: func(n int) { b.remove(fmt.Sprintf("/v1/suppressions/row%d@far.test", n)).is(200) },
	}
	t.Run("inbox of all", func(t *testing.T) { inbox.walk(t, b.client, 0) })
	t.Run("inbox of one", func(t *testing.T) { one.walk(t, b.client, put) })
	t.Run("suppressions", func(t *testing.T) { suppressions.walk(t, b.client, 0) })
}

// walk fills the shelf, which has offset rows already, and reads it page by page. After
// each page rows come, and the page's last row and some from anywhere go.
func (s shelf) walk(t *testing.T, c *client, offset int) {
	const rows = 1000
	for n := range rows {
		s.add(fmt.Sprintf("row%d", offset+n))
	}
	random := rand.New(rand.NewPCG(1, 2))
	seen, gone := map[string]int{}, map[string]bool{}
	remove := func(name string) {
		var n int
		if _, err := fmt.Sscanf(name, "row%d", &n); err == nil && n >= offset && !gone[name] {
			gone[name] = true
			s.remove(n)
		}
	}
	pages := 0
	for cursor, more := "", true; more; pages++ {
		r := c.get(s.path + "&cursor=" + url.QueryEscape(cursor)).is(200)
		names := r.list("data", s.field)
		for i := range names {
			names[i] = strings.TrimSuffix(names[i], "@far.test")
			seen[names[i]]++
		}
		cursor, more = r.text("pagination.cursor"), r.text("pagination.has_more") == "true"
		remove(names[len(names)-1])
		for i := range 4 {
			s.add(fmt.Sprintf("new%d-%d-%d", offset, pages, i))
			remove(fmt.Sprintf("row%d", offset+random.IntN(rows)))
		}
	}
	if pages < 19 || len(gone) < 80 {
		t.Errorf("the walk had %d pages, while %d rows went", pages, len(gone))
	}
	for n := range rows {
		name := fmt.Sprintf("row%d", offset+n)
		if times := seen[name]; times > 1 || times == 0 && !gone[name] {
			t.Errorf("%s was seen %d times", name, times)
		}
	}
}
