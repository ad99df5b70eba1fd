package handlers

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/signin"
)

// An oauthWorld is a sandbox with the dashboard, a person who is signed in, and one client.
type oauthWorld struct {
	*sandbox
	web    *browser
	client string // its id
	asked  int    // verifiers so far
}

const oauthRedirect = "https://client.test/back?kept=1"

func newOAuthWorld(t *testing.T, change func(*core.Config)) *oauthWorld {
	b := newSandbox(t, change)
	b.server.Web = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the dashboard") })
	w := &oauthWorld{sandbox: b, web: b.browser().signIn()}
	w.client = w.register(`{"client_name":"Testing","redirect_uris":["` + oauthRedirect + `","http://127.0.0.1/back"]}`).is(201).text("client_id")
	return w
}

func (w *oauthWorld) register(metadata string) *reply {
	w.t.Helper()
	return w.with("").post("/oauth/register", metadata)
}

// query is a client's request to act for a person, with pairs that are other than usual; "-" leaves
// a parameter out.
func (w *oauthWorld) query(pairs ...string) url.Values {
	w.asked++
	q := url.Values{
		"response_type": {"code"}, "client_id": {w.client}, "redirect_uri": {oauthRedirect}, "state": {"a b&c"}, "resource": {w.url + "/mcp"},
		"code_challenge": {challengeOf(w.verifier())}, "code_challenge_method": {"S256"},
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if q.Set(pairs[i], pairs[i+1]); pairs[i+1] == "-" {
			q.Del(pairs[i])
		}
	}
	return q
}

// verifier is that of the last query.
func (w *oauthWorld) verifier() string { return fmt.Sprintf("%048d", w.asked) }

func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// visit opens a page in a browser, and follows no redirect.
func (b *browser) visit(to string) *http.Response {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), "GET", b.url+to, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	if b.cookie != "" {
		r.Header.Set("Cookie", b.cookie)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	resp.Body.Close()
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp
}

// consent requests the consent page, sends a decision, and returns the URL that the browser goes
// to.
func (b *browser) consent(q url.Values, decision string) (to *url.URL) {
	b.t.Helper()
	body := map[string]any{}
	if err := json.Unmarshal([]byte(decision), &body); err != nil {
		b.t.Fatal(err)
	}
	body["request"] = b.ask("GET", "/oauth/consent?"+q.Encode(), nil).is(200).text("request")
	to, err := url.Parse(b.ask("POST", "/oauth/consent", body).is(200).text("redirect_to"))
	if err != nil {
		b.t.Fatal(err)
	}
	return to
}

// code has the person allow the client to act, as the preset says.
func (w *oauthWorld) code(pairs ...string) string {
	w.t.Helper()
	code := w.web.consent(w.query(pairs...), `{"decision":"allow"}`).Query().Get("code")
	if code == "" {
		w.t.Fatal("no code came")
	}
	return code
}

// post sends a form, as a client's program does.
func (w *oauthWorld) form(path string, pairs ...string) *reply {
	w.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return w.with("").do("POST", path, form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
}

// exchange sends a code to the token endpoint. The pairs override parameters of the form.
func (w *oauthWorld) exchange(code string, pairs ...string) *reply {
	w.t.Helper()
	given := map[string]string{
		"grant_type": "authorization_code", "code": code, "client_id": w.client, "redirect_uri": oauthRedirect, "code_verifier": w.verifier(), "resource": w.url + "/mcp",
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		given[pairs[i]] = pairs[i+1]
	}
	var form []string
	for name, value := range given {
		if value != "-" {
			form = append(form, name, value)
		}
	}
	return w.form("/oauth/token", form...)
}

func (w *oauthWorld) refresh(token string, pairs ...string) *reply {
	w.t.Helper()
	return w.form("/oauth/token", append([]string{"grant_type", "refresh_token", "refresh_token", token, "client_id", w.client}, pairs...)...)
}

// refuses checks an error of RFC 6749.
func (r *reply) refuses(status int, code string) {
	r.t.Helper()
	if r.is(status); r.text("error") != code || r.text("error_description") == "" {
		r.t.Errorf("the error is %s, want %s", r.raw, code)
	}
}

// reaches returns the status of /mcp for a token.
func (w *oauthWorld) reaches(token string) int {
	w.t.Helper()
	return w.with(token).do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Accept", "application/json, text/event-stream").status
}

func (w *oauthWorld) advance(by time.Duration) {
	w.t.Helper()
	if _, err := w.AdvanceClock(w.t.Context(), service.AdvanceIn{Seconds: int64(by / time.Second)}); err != nil {
		w.t.Fatal(err)
	}
}

// TestOAuthWithTheProtocolsClient: an assistant that knows the address of /mcp alone finds out how
// to sign in, registers, asks the person, uses its grant, and renews it.
func TestOAuthWithTheProtocolsClient(t *testing.T) {
	w := newOAuthWorld(t, nil)
	var refreshed atomic.Int32
	ended := false
	transport := roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/oauth/token" {
			refreshed.Add(1)
		}
		return http.DefaultTransport.RoundTrip(r)
	})
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName: "Own client", RedirectURIs: []string{"http://127.0.0.1:4711/back"}, GrantTypes: []string{"authorization_code", "refresh_token"},
		}},
		Client: &http.Client{Transport: transport},
		AuthorizationCodeFetcher: func(_ context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			if ended {
				return nil, errAskedAgain
			}
			to, found := strings.CutPrefix(args.URL, w.url)
			if !found {
				t.Errorf("the client goes to %s", args.URL)
			}
			if page := w.web.visit(to); page.StatusCode != 200 {
				t.Errorf("the page of consent: %s", page.Status)
			}
			u, err := url.Parse(to)
			if err != nil {
				return nil, err
			}
			back := w.web.consent(u.Query(), `{"decision":"allow"}`)
			if back.Host != "127.0.0.1:4711" {
				t.Errorf("the answer goes to %s", back)
			}
			q := back.Query()
			return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}, nil
		},
		NewTokenSource: func(ctx context.Context, c *oauth2.Config, t *oauth2.Token) (oauth2.TokenSource, error) {
			late := *t
			late.Expiry = time.Now().Add(-time.Minute)
			return c.TokenSource(ctx, &late), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: w.url + "/mcp", OAuthHandler: handler, MaxRetries: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if n := refreshed.Load(); n != 2 {
		t.Errorf("the token endpoint was asked %d times, want once for the code and once to refresh", n)
	}
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
	}
	if !slices.Contains(names, "send_email") || slices.Contains(names, "create_token") {
		t.Errorf("the tools of a grant are %v", names)
	}
	if r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "get_me"}); err != nil || r.IsError {
		t.Errorf("get_me: %v %v", r, err)
	}
	row := w.get("/v1/auth/tokens").is(200)
	row.has("data.0.kind", "oauth", "data.0.client_name", "Own client", "data.0.name", "Own client", "data.0.permissions", "[read write]",
		"data.0.policy.send", "approval", "data.0.policy.taint", "true", "data.0.mailboxes", "<nil>", "data.1.client_name", "<nil>")
	w.remove("/v1/auth/tokens/" + row.text("data.0.id")).is(200)
	ended = true
	if _, err := session.ListTools(t.Context(), nil); !errors.Is(err, errAskedAgain) {
		t.Errorf("after the row of the grant was deleted, the client gets %v", err)
	}
}

var errAskedAgain = errors.New("the person is asked again")

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestOAuthMetadata(t *testing.T) {
	w := newOAuthWorld(t, nil)
	anyone := w.with("")
	r := anyone.do("POST", "/mcp", `{}`).fails(401, "unauthorized")
	if got, want := r.header.Get("WWW-Authenticate"), `Bearer resource_metadata="`+w.url+`/.well-known/oauth-protected-resource/mcp"`; got != want {
		t.Errorf("WWW-Authenticate: %s, want %s", got, want)
	}
	r = w.with("mst_x").do("POST", "/mcp", `{}`).fails(401, "unauthorized")
	if got := r.header.Get("WWW-Authenticate"); !strings.Contains(got, `resource_metadata="`) || !strings.Contains(got, `error="invalid_token"`) {
		t.Errorf("WWW-Authenticate of a bad token: %s", got)
	}
	anyone.get("/.well-known/oauth-protected-resource/mcp").is(200).has("resource", w.url+"/mcp", "authorization_servers", "["+w.url+"]", "scopes_supported", "[read write]",
		"bearer_methods_supported", "[header]")
	anyone.get("/.well-known/oauth-authorization-server").is(200).has("issuer", w.url, "authorization_endpoint", w.url+"/oauth/authorize",
		"token_endpoint", w.url+"/oauth/token", "registration_endpoint", w.url+"/oauth/register", "revocation_endpoint", w.url+"/oauth/revoke",
		"response_types_supported", "[code]", "code_challenge_methods_supported", "[S256]", "token_endpoint_auth_methods_supported", "[none]",
		"grant_types_supported", "[authorization_code refresh_token]", "client_id_metadata_document_supported", "true", "authorization_response_iss_parameter_supported", "true")
	anyone.post("/.well-known/oauth-authorization-server", `{}`).fails(405, "method_not_allowed")
	if got := anyone.do("GET", "/.well-known/oauth-protected-resource/mcp", nil, "Host", "x").text("resource"); got != w.url+"/mcp" {
		t.Errorf("the resource is %s", got)
	}
}

// TestOAuthMetadataOfAnotherHost: no name that a request makes up gets into the documents.
func TestOAuthMetadataOfAnotherHost(t *testing.T) {
	for _, sandbox := range []bool{true, false} {
		w := newOAuthWorld(t, nil)
		w.Core.Config.Sandbox, w.Core.Config.BaseURL = sandbox, "https://mail.example.test"
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://evil.test/.well-known/oauth-authorization-server", nil)
		resp := Do(w.server, r)
		var document struct{ Issuer string }
		if err := json.NewDecoder(resp.Body).Decode(&document); err != nil || document.Issuer != "https://mail.example.test" {
			t.Errorf("sandbox %v: the issuer is %q, %v", sandbox, document.Issuer, err)
		}
	}
}

func TestOAuthRegistration(t *testing.T) {
	w := newOAuthWorld(t, nil)
	w.register(`{"client_name":"A\u202eB\n C ","redirect_uris":["http://[::1]:1/x","http://localhost","https://a.test:8443/x?y=z"],"token_endpoint_auth_method":"none"}`).is(201).
		has("client_name", "AB C", "token_endpoint_auth_method", "none", "redirect_uris.1", "http://localhost", "response_types", "[code]")
	for metadata, code := range map[string]string{
		`{}`:                                    "invalid_redirect_uri",
		`{"redirect_uris":[]}`:                  "invalid_redirect_uri",
		`{"redirect_uris":["http://a.test/x"]}`: "invalid_redirect_uri",
		`{"redirect_uris":["javascript:alert(1)"]}`:        "invalid_redirect_uri",
		`{"redirect_uris":["app:/back"]}`:                  "invalid_redirect_uri",
		`{"redirect_uris":["https://a.test/x#y"]}`:         "invalid_redirect_uri",
		`{"redirect_uris":["https://u@a.test/x"]}`:         "invalid_redirect_uri",
		`{"redirect_uris":["https:///x"]}`:                 "invalid_redirect_uri",
		`{"redirect_uris":["https://a.test\\@b.test"]}`:    "invalid_redirect_uri",
		`{"redirect_uris":["http://localhost.evil.test"]}`: "invalid_redirect_uri",
		`{"redirect_uris":["http://127.0.0.1@evil.test"]}`: "invalid_redirect_uri",
		`{"redirect_uris":["http://localhost:1@a.test"]}`:  "invalid_redirect_uri",
		`{"redirect_uris":["http://127.0.0.1:/x"]}`:        "invalid_redirect_uri",
		`{"redirect_uris":["https://a.test/ x"]}`:          "invalid_redirect_uri",
		`{"redirect_uris":["https://a.test:0/x"]}`:         "invalid_redirect_uri",
		`{"redirect_uris":["https://a.test:/x"]}`:          "invalid_redirect_uri",
		`{"redirect_uris":["http://localhost:65536/x"]}`:   "invalid_redirect_uri",
		`[]`:                  "invalid_client_metadata",
		`{"redirect_uris":1}`: "invalid_client_metadata",
		`{"redirect_uris":["https://a.test"],"token_endpoint_auth_method":"client_secret_basic"}`: "invalid_client_metadata",
		`{"redirect_uris":["https://a.test"],"grant_types":["implicit"]}`:                         "invalid_client_metadata",
		`{"redirect_uris":["https://a.test"],"response_types":["token"]}`:                         "invalid_client_metadata",
	} {
		w.register(metadata).refuses(400, code)
	}
	w.with("").do("POST", "/oauth/register", `{"redirect_uris":["https://a.test"]}`, "Content-Type", "text/plain").refuses(400, "invalid_client_metadata")
	w.register(`{"redirect_uris":["https://a.test"],"x":"`+strings.Repeat("x", maxRegistrationBytes)+`"}`).refuses(400, "invalid_client_metadata")
	w.with("").get("/oauth/register").fails(405, "method_not_allowed")

	for n := 0; ; n++ {
		r := w.register(`{"redirect_uris":["https://a.test"]}`)
		if r.status == 429 && r.header.Get("Retry-After") != "" {
			break
		}
		if n > registerPerHour {
			t.Fatalf("%d clients have registered from one address", n)
		}
	}
	w.advance(time.Hour)
	w.register(`{"redirect_uris":["https://a.test"]}`).is(201)
}

// TestOAuthClientsEnd: a client that nobody uses is gone after 30 days, one in use is not.
func TestOAuthClientsEnd(t *testing.T) {
	w := newOAuthWorld(t, nil)
	unused := w.register(`{"redirect_uris":["` + oauthRedirect + `"]}`).is(201).text("client_id")
	w.exchange(w.code()).is(200)
	w.advance(20 * 24 * time.Hour)
	w.web.signIn()
	kept := w.exchange(w.code()).is(200).text("refresh_token")
	w.advance(11 * 24 * time.Hour)
	w.web.signIn()
	if _, err := w.Prune(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	w.web.ask("GET", "/oauth/consent?"+w.query("client_id", unused).Encode(), nil).fails(400, "validation_error")
	w.web.ask("GET", "/oauth/consent?"+w.query().Encode(), nil).is(200)
	w.refresh(kept, "client_id", unused).refuses(400, "invalid_request")
	w.refresh(kept).is(200)
	w.form("/oauth/token", "grant_type", "refresh_token", "refresh_token", kept, "client_id", unused).refuses(401, "invalid_client")
}

func TestOAuthAuthorize(t *testing.T) {
	w := newOAuthWorld(t, nil)
	ask := func(b *browser, q url.Values) *http.Response { return b.visit("/oauth/authorize?" + q.Encode()) }
	q := w.query()
	page := ask(w.web, q)
	if page.StatusCode != 200 || !strings.Contains(page.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'") || page.Header.Get("X-Frame-Options") != "DENY" {
		t.Errorf("the page of consent: %s %v", page.Status, page.Header)
	}
	nobody := w.browser()
	page = ask(nobody, q)
	to, err := url.Parse(page.Header.Get("Location"))
	if err != nil || page.StatusCode != 302 || to.Path != "/sign-in" || to.Host != "" || to.Query().Get("next") != "/oauth/authorize?"+q.Encode() {
		t.Errorf("without a session: %s %s", page.Status, page.Header.Get("Location"))
	}
	w.post("/v1/email-users", `{"email":"ann@boxes.test","password":"correct horse"}`).is(201)
	ann := w.browser().signInTo("ann@boxes.test", "correct horse")
	page = ask(ann, q)
	if page.StatusCode != 403 || page.Header.Get("Location") != "" {
		t.Errorf("with the session of a mailbox: %s", page.Status)
	}
	ann.ask("GET", "/oauth/consent?"+q.Encode(), nil).fails(403, "forbidden_role")
	ann.ask("POST", "/oauth/consent", map[string]any{"request": "x", "decision": "allow"}).fails(403, "forbidden_role")

	// A bad client or redirect is a page, and leads nowhere, whoever asks.
	for _, pairs := range [][]string{
		{"client_id", "oac_none"}, {"client_id", "-"}, {"redirect_uri", "-"}, {"redirect_uri", "https://evil.test/back"}, {"redirect_uri", oauthRedirect + "&more=1"},
		{"redirect_uri", "https://client.test/back"}, {"redirect_uri", "https://client.test:443/back?kept=1"}, {"redirect_uri", "HTTPS://client.test/back?kept=1"},
		{"redirect_uri", "https://client.test/back?kept=1#x"}, {"redirect_uri", "https://client.test@evil.test/back?kept=1"}, {"redirect_uri", "http://127.0.0.1:8000/other"},
		{"redirect_uri", "http://localhost:8000/back"}, {"redirect_uri", "http://127.0.0.1:8000@evil.test/back"}, {"redirect_uri", "http://127.0.0.1.evil.test/back"},
		{"redirect_uri", "https://127.0.0.1/back"}, {"redirect_uri", "//evil.test"}, {"redirect_uri", "/oauth/authorize"},
	} {
		q := w.query(pairs...)
		for _, b := range []*browser{w.web, nobody} {
			page := ask(b, q)
			body, err := io.ReadAll(page.Body)
			if err != nil || page.StatusCode != 400 || page.Header.Get("Location") != "" || strings.Contains(string(body), "<script") ||
				!strings.Contains(page.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
				t.Errorf("%v: %s %v", pairs, page.Status, page.Header)
			}
		}
		w.web.ask("GET", "/oauth/consent?"+q.Encode(), nil).fails(400, "validation_error")
	}
	twice := w.query()
	twice.Add("redirect_uri", "https://evil.test/")
	if page := ask(w.web, twice); page.StatusCode != 400 {
		t.Errorf("two redirects: %s", page.Status)
	}

	// Everything else goes to the client.
	for _, c := range []struct {
		code  string
		pairs []string
	}{
		{"invalid_request", []string{"response_type", "-"}}, {"unsupported_response_type", []string{"response_type", "token"}},
		{"invalid_request", []string{"code_challenge", "-"}}, {"invalid_request", []string{"code_challenge_method", "-"}},
		{"invalid_request", []string{"code_challenge_method", "plain"}}, {"invalid_request", []string{"code_challenge", "short"}},
		{"invalid_target", []string{"resource", "-"}}, {"invalid_target", []string{"resource", "https://other.test/mcp"}}, {"invalid_target", []string{"resource", w.url}},
		{"invalid_target", []string{"resource", w.url + "/mcp/"}}, {"invalid_target", []string{"resource", w.url + "/mcp#x"}}, {"invalid_scope", []string{"scope", "admin purchase"}},
		{"invalid_request", []string{"response_mode", "fragment"}}, {"invalid_request", []string{"scope", strings.Repeat("x", 3000)}},
	} {
		q := w.query(c.pairs...)
		page := ask(w.web, q)
		to, err := url.Parse(page.Header.Get("Location"))
		if err != nil || page.StatusCode != 302 || to.Host != "client.test" || to.Query().Get("kept") != "1" || to.Query().Get("error") != c.code ||
			to.Query().Get("state") != "a b&c" || to.Query().Get("iss") != w.url || to.Query().Has("code") {
			t.Errorf("%v: %s %s", c.pairs, page.Status, page.Header.Get("Location"))
		}
		if page := ask(nobody, q); !strings.HasPrefix(page.Header.Get("Location"), "/sign-in?") {
			t.Errorf("%v, without a session: %s %s", c.pairs, page.Status, page.Header.Get("Location"))
		}
		w.web.ask("GET", "/oauth/consent?"+q.Encode(), nil).fails(400, "validation_error")
	}
	twice = w.query()
	twice.Add("resource", "https://other.test/mcp")
	if to := ask(w.web, twice).Header.Get("Location"); !strings.Contains(to, "error=invalid_target") {
		t.Errorf("two resources lead to %s", to)
	}
}

func TestOAuthConsent(t *testing.T) {
	w := newOAuthWorld(t, nil)
	ann, ben := w.box("ann"), w.box("ben")
	q := w.query()
	shown := w.web.ask("GET", "/oauth/consent?"+q.Encode(), nil).is(200)
	shown.has("client.client_id", w.client, "client.name", "Testing", "client.host", "client.test", "resource", w.url+"/mcp", "redirect_uri", oauthRedirect,
		"permissions", "[read write]", "mailboxes", "<nil>", "policy.send", "approval", "policy.taint", "true", "policy.taint_seconds", "<nil>")
	w.web.ask("GET", "/oauth/consent?"+w.query("scope", "read admin").Encode(), nil).is(200).has("permissions", "[read]")

	// Who may not answer.
	body := func(more string) string { return `{"request":"` + shown.text("request") + `"` + more + `}` }
	allow := body(`,"decision":"allow"`)
	w.browser().ask("POST", "/oauth/consent", allow).fails(401, "unauthorized")
	w.browser().signIn().ask("POST", "/oauth/consent", allow).fails(400, "validation_error") // another session of the same person
	w.with(w.Owner.Token).post("/oauth/consent", allow).fails(401, "unauthorized")
	for _, header := range [][]string{{"Origin", "https://evil.test"}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}} {
		w.web.ask("POST", "/oauth/consent", allow, header...).fails(403, "cross_origin")
	}
	w.web.ask("GET", "/oauth/consent?"+q.Encode(), nil, "Origin", "https://evil.test").fails(403, "cross_origin")
	w.web.ask("POST", "/oauth/consent", strings.ReplaceAll(url.Values{"request": {shown.text("request")}, "decision": {"allow"}}.Encode(), "+", "%20"),
		"Content-Type", "application/x-www-form-urlencoded").fails(415, "unsupported_media_type")
	w.web.ask("POST", "/oauth/consent", allow, "Content-Type", "text/plain").fails(415, "unsupported_media_type")

	// What cannot be granted.
	for _, more := range []string{
		``, `,"decision":"maybe"`, `,"decision":"allow","permissions":[]`, `,"decision":"allow","permissions":["read","admin"]`, `,"decision":"allow","mailboxes":[]`,
		`,"decision":"allow","mailboxes":["eu_none"]`, `,"decision":"allow","policy":{"send":"all"}`, `,"decision":"allow","policy":{"send":"allow","trusted_senders":["x"]}`,
		`,"decision":"allow","policy":{"send":"allow","taint":true,"taint_seconds":0}`,
	} {
		if r := w.web.ask("POST", "/oauth/consent", body(more)); r.status != 400 {
			t.Fatalf("%s: %d %s", more, r.status, r.raw)
		}
	}

	// It works once, from the right page.
	to := w.web.ask("POST", "/oauth/consent", body(`,"decision":"allow","permissions":["read"],"mailboxes":["`+ann+`"],"policy":{"send":"reply_only","taint":true,"taint_seconds":3600}`),
		"Origin", w.url).is(200).text("redirect_to")
	if !strings.HasPrefix(to, oauthRedirect+"&code=") {
		t.Errorf("the browser goes to %s", to)
	}
	w.web.ask("POST", "/oauth/consent", allow).fails(400, "validation_error")
	back, err := url.Parse(to)
	if err != nil || back.Query().Get("iss") != w.url || back.Query().Get("state") != "a b&c" {
		t.Errorf("the answer is %s, %v", to, err)
	}
	w.asked--
	w.exchange(back.Query().Get("code")).is(200).has("scope", "read", "token_type", "Bearer", "expires_in", "3600")
	w.get("/v1/auth/tokens").has("data.0.kind", "oauth", "data.0.permissions", "[read]", "data.0.mailboxes", "["+ann+"]", "data.0.policy.send", "reply_only", "data.0.policy.taint_seconds", "3600")
	w.get("/v1/audit").has("data.0.action", "allow_client", "data.0.via", "dashboard", "data.0.target.type", "token", "data.0.target.name", "Testing")

	deny := w.web.consent(w.query(), `{"decision":"deny","mailboxes":["`+ben+`"]}`)
	if deny.Query().Get("error") != "access_denied" || deny.Query().Has("code") || deny.Query().Get("state") != "a b&c" || deny.Query().Get("iss") != w.url {
		t.Errorf("a no leads to %s", deny)
	}

	// A member who sees some mailboxes alone can give no others.
	member := core.Actor{
		AccountID: w.Owner.AccountID, UserID: w.Owner.UserID, Role: "member", Limited: true, Mailboxes: []string{ann},
		TokenID: "tok_session", TokenKind: core.SessionKind, Permissions: []string{"read", "write"},
	}
	asked, err := w.Signin.AskConsent(t.Context(), member, w.url, w.query())
	if err != nil {
		t.Fatal(err)
	}
	in := signin.ConsentIn{Request: asked.Request, Decision: "allow", Mailboxes: core.Opt[[]string]{Set: true, Value: []string{ann, ben}}}
	if _, err := w.Signin.DecideConsent(t.Context(), member, w.url, in); !servicetest.HasCode(err, "validation_error") {
		t.Errorf("a mailbox that the person does not see: %v", err)
	}
	in.Mailboxes.Value = []string{ann, ann}
	if _, err := w.Signin.DecideConsent(t.Context(), member, w.url, in); err != nil {
		t.Error(err)
	}

	// It lives ten minutes.
	late := w.web.ask("GET", "/oauth/consent?"+w.query().Encode(), nil).is(200).text("request")
	w.advance(10 * time.Minute)
	w.web.ask("POST", "/oauth/consent", `{"request":"`+late+`","decision":"allow"}`).fails(400, "validation_error")
	if _, err := w.Prune(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

func TestOAuthCodes(t *testing.T) {
	w := newOAuthWorld(t, nil)
	other := w.register(`{"redirect_uris":["` + oauthRedirect + `"]}`).is(201).text("client_id")
	code := w.code()
	w.exchange(code, "client_id", other).refuses(400, "invalid_grant")
	w.exchange(code, "client_id", "oac_none").refuses(401, "invalid_client")
	w.exchange(code, "client_id", "https://client.test/document").refuses(400, "invalid_grant")
	w.exchange(code, "client_id", "-").refuses(400, "invalid_request")
	w.exchange(code, "redirect_uri", "http://127.0.0.1/back").refuses(400, "invalid_grant")
	w.exchange(code, "redirect_uri", "-").refuses(400, "invalid_request")
	w.exchange(code, "code_verifier", strings.Repeat("x", 43)).refuses(400, "invalid_grant")
	w.exchange(code, "code_verifier", challengeOf(w.verifier())).refuses(400, "invalid_grant")
	w.exchange(code, "code_verifier", "-").refuses(400, "invalid_request")
	w.exchange(code, "resource", "https://other.test/mcp").refuses(400, "invalid_target")
	w.exchange(code, "resource", "-").refuses(400, "invalid_target")
	w.exchange(code, "grant_type", "password").refuses(400, "unsupported_grant_type")
	w.exchange(code, "grant_type", "-").refuses(400, "invalid_request")
	w.exchange("wrong").refuses(400, "invalid_grant")
	w.form("/oauth/token", "grant_type", "authorization_code", "code", code, "code", code).refuses(400, "invalid_request")
	w.with("").post("/oauth/token", `{"code":"`+code+`"}`).refuses(400, "invalid_request")
	w.with("").get("/oauth/token?code=x").fails(405, "method_not_allowed")

	// Used once, it gives tokens that work at /mcp alone.
	r := w.exchange(code).is(200)
	if r.header.Get("Cache-Control") != "no-store" {
		t.Errorf("the tokens may be kept: %v", r.header)
	}
	access, refresh := r.text("access_token"), r.text("refresh_token")
	if got := w.reaches(access); got != 200 {
		t.Errorf("/mcp answers an access token %d", got)
	}
	for _, path := range []string{"/v1/account", "/v1/me", "/session/stream", "/mcp/"} {
		if r := w.with(access).get(path); r.status == 200 && path != "/mcp/" {
			t.Errorf("%s answers an access token %d", path, r.status)
		}
	}
	w.with(access).get("/v1/account").fails(401, "unauthorized")
	w.box("ann")
	for _, protocol := range []string{core.ProtocolIMAP, core.ProtocolSMTP} {
		if _, err := w.Mailboxes.LoginMailbox(t.Context(), core.MailLogin{Protocol: protocol, Username: "ann@boxes.test", Password: access, Bearer: true, IP: "127.0.0.1"}); err == nil {
			t.Errorf("%s takes an access token", protocol)
		}
	}
	w.with(access).post("/v1/auth/tokens", `{}`).fails(401, "unauthorized")
	w.post("/v1/auth/tokens", `{"kind":"oauth"}`).fails(400, "validation_error")

	// Used twice, it ends them.
	w.exchange(code).refuses(400, "invalid_grant")
	if got := w.reaches(access); got != 401 {
		t.Errorf("/mcp answers %d after the code was used twice", got)
	}
	w.refresh(refresh).refuses(400, "invalid_grant")
	w.get("/v1/audit").has("data.0.action", "revoke_grant", "data.0.actor.type", "system", "data.0.target.name", "Testing")
	w.get("/v1/auth/tokens").has("count", "1")

	late := w.code()
	w.advance(time.Minute)
	w.exchange(late).refuses(400, "invalid_grant")
}

func TestOAuthRefresh(t *testing.T) {
	w := newOAuthWorld(t, nil)
	other := w.register(`{"redirect_uris":["` + oauthRedirect + `"]}`).is(201).text("client_id")
	first := w.exchange(w.code()).is(200)
	w.advance(time.Hour)
	if got := w.reaches(first.text("access_token")); got != 401 {
		t.Errorf("/mcp answers %d an hour later", got)
	}
	refuse := func(code string, pairs ...string) {
		t.Helper()
		form := map[string]string{"grant_type": "refresh_token", "refresh_token": first.text("refresh_token"), "client_id": w.client}
		for i := 0; i+1 < len(pairs); i += 2 {
			form[pairs[i]] = pairs[i+1]
		}
		var list []string
		for name, value := range form {
			list = append(list, name, value)
		}
		w.form("/oauth/token", list...).refuses(400, code)
	}
	refuse("invalid_grant", "client_id", other)
	refuse("invalid_target", "resource", "https://other.test/mcp")
	refuse("invalid_scope", "scope", "read admin")
	refuse("invalid_grant", "refresh_token", first.text("access_token"))
	refuse("invalid_grant", "refresh_token", "msr_"+strings.Repeat("x", 64))
	second := w.refresh(first.text("refresh_token"), "resource", w.url+"/mcp", "scope", "read").is(200).has("scope", "read write")
	third := w.refresh(second.text("refresh_token")).is(200)
	if got := w.reaches(second.text("access_token")); got != 401 {
		t.Errorf("/mcp answers an access token that was replaced %d", got)
	}
	if got := w.reaches(third.text("access_token")); got != 200 {
		t.Errorf("/mcp answers the newest access token %d", got)
	}
	w.get("/v1/auth/tokens").has("count", "2", "data.0.token_prefix", third.text("access_token")[:12])

	// An old one ends all of them.
	w.refresh(first.text("refresh_token")).refuses(400, "invalid_grant")
	if got := w.reaches(third.text("access_token")); got != 401 {
		t.Errorf("/mcp answers %d after an old refresh token was used", got)
	}
	w.refresh(third.text("refresh_token")).refuses(400, "invalid_grant")

	// They rest while their account is suspended.
	r := w.exchange(w.code()).is(200)
	code := w.code()
	for _, c := range []struct {
		status           string
		reaches, refresh int
	}{{"suspended", 403, 400}, {"active", 200, 200}} {
		if _, err := w.Accounts.SetAccountStatus(t.Context(), accounts.AccountIn{Account: w.Owner.AccountID, Status: c.status}); err != nil {
			t.Fatal(err)
		}
		if got := w.reaches(r.text("access_token")); got != c.reaches {
			t.Errorf("/mcp answers %d while the account is %s", got, c.status)
		}
		w.exchange(code).is(400) // it was used up by the first try
		if got := w.refresh(r.text("refresh_token")).is(c.refresh); c.refresh == 200 {
			r = got
		}
	}

	// They end after 30 days without use.
	r = w.exchange(w.code()).is(200)
	w.advance(29 * 24 * time.Hour)
	r = w.refresh(r.text("refresh_token")).is(200)
	w.advance(29 * 24 * time.Hour)
	r = w.refresh(r.text("refresh_token")).is(200)
	w.advance(30 * 24 * time.Hour)
	w.refresh(r.text("refresh_token")).refuses(400, "invalid_grant")
	w.advance(24*time.Hour + time.Second)
	w.refresh(r.text("refresh_token")).refuses(401, "invalid_client")
}

func TestOAuthRevocation(t *testing.T) {
	w := newOAuthWorld(t, nil)
	for _, kind := range []string{"access_token", "refresh_token"} {
		r := w.exchange(w.code()).is(200)
		w.form("/oauth/revoke", "token", r.text(kind), "client_id", "oac_other").refuses(400, "invalid_grant")
		if got := w.reaches(r.text("access_token")); got != 200 {
			t.Errorf("/mcp answers %d", got)
		}
		w.form("/oauth/revoke", "token", r.text(kind), "client_id", w.client, "token_type_hint", kind).is(200)
		if got := w.reaches(r.text("access_token")); got != 401 {
			t.Errorf("/mcp answers %d after the %s was revoked", got, kind)
		}
		w.refresh(r.text("refresh_token")).refuses(400, "invalid_grant")
		w.form("/oauth/revoke", "token", r.text(kind), "client_id", w.client).is(200) // RFC 7009 section 2.2
	}
	w.get("/v1/auth/tokens").has("count", "1")
	w.form("/oauth/revoke", "token", w.Owner.Token).is(200) // which is no token of a client
	w.get("/v1/account").is(200)
	w.form("/oauth/revoke").refuses(400, "invalid_request")
	w.form("/oauth/revoke", "token", "unknown").is(200)
}

// TestOAuthEndsWhatWaits: a request that waits for mail ends when its grant does.
func TestOAuthEndsWhatWaits(t *testing.T) {
	w := newOAuthWorld(t, nil)
	w.box("ann")
	r := w.exchange(w.code()).is(200)
	a := w.assistant(r.text("access_token"))
	ended := make(chan *mcp.CallToolResult, 1)
	began := time.Now()
	go func() {
		out, err := a.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "wait_for_any_message", Arguments: map[string]any{"timeout": 60}})
		if err != nil {
			t.Errorf("wait: %v", err)
		}
		ended <- out
	}()
	time.Sleep(200 * time.Millisecond)
	w.form("/oauth/revoke", "token", r.text("refresh_token")).is(200)
	if out := <-ended; out == nil || !out.IsError || time.Since(began) > 20*time.Second {
		t.Errorf("it ended after %s: %v", time.Since(began), out)
	}
}

// A loopbackResolver knows one name, which is this machine's.
type loopbackResolver struct{ core.Resolver }

func (loopbackResolver) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host != "example.com" {
		return nil, errors.New("no such name")
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// TestOAuthDocuments: clients that are named by the address of a document.
func TestOAuthDocuments(t *testing.T) {
	var fetched atomic.Int32
	documents := http.NewServeMux()
	srv := httptest.NewTLSServer(documents)
	defer srv.Close()
	at := strings.Replace(srv.URL, "127.0.0.1", "example.com", 1) // the name in the certificate
	serve := func(path, kind, body string) {
		documents.HandleFunc(path, func(rw http.ResponseWriter, _ *http.Request) {
			fetched.Add(1)
			rw.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(rw, strings.ReplaceAll(body, "SELF", at+path))
		})
	}
	const good = `{"client_id":"SELF","client_name":"By document","redirect_uris":["` + oauthRedirect + `"]}`
	serve("/good", "application/json", good)
	serve("/other", "application/json", strings.Replace(good, "SELF", "https://x.test/good", 1))
	serve("/text", "text/html", good)
	serve("/large", "application/json", good+strings.Repeat(" ", 1<<20))
	serve("/secret", "application/json", strings.Replace(good, "{", `{"client_secret":"x",`, 1))
	serve("/broken", "application/json", good[:20])
	serve("/", "application/json", good)
	documents.HandleFunc("/moved", func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, "/good", http.StatusFound) })
	w := newOAuthWorld(t, func(c *core.Config) {
		c.RootCAs = srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		c.Resolver = loopbackResolver{}
	})
	ask := func(b *browser, id string) *reply {
		return b.ask("GET", "/oauth/consent?"+w.query("client_id", id).Encode(), nil)
	}
	ask(w.web, at+"/good").is(200).has("client.client_id", at+"/good", "client.name", "By document", "client.host", strings.TrimPrefix(at, "https://"))
	before := fetched.Load()
	if page := w.browser().visit("/oauth/authorize?" + w.query("client_id", at+"/good").Encode()); page.StatusCode != 302 || !strings.HasPrefix(page.Header.Get("Location"), "/sign-in?") {
		t.Errorf("without a session: %s", page.Status)
	}
	w.browser().ask("GET", "/oauth/consent?"+w.query("client_id", at+"/good").Encode(), nil).fails(401, "unauthorized")
	if fetched.Load() != before {
		t.Error("somebody who is not signed in had a document fetched")
	}
	for _, id := range []string{
		at + "/other", at + "/text", at + "/large", at + "/secret", at + "/broken", at + "/moved", at + "/none", at, at + "/", at + "/a/../good", at + "/good#x",
		"https://user@example.com/good", "https://169.254.169.254/latest", "https://example.com:0/good", "https://missing.test/good",
	} {
		ask(w.web, id).fails(400, "validation_error")
		if page := w.web.visit("/oauth/authorize?" + w.query("client_id", id).Encode()); page.StatusCode != 400 {
			t.Errorf("%s: %s", id, page.Status)
		}
	}
	code := w.web.consent(w.query("client_id", at+"/good"), `{"decision":"allow"}`).Query().Get("code")
	r := w.exchange(code, "client_id", at+"/good").is(200)
	w.get("/v1/auth/tokens").has("data.0.client_name", "By document")
	w.form("/oauth/token", "grant_type", "refresh_token", "refresh_token", r.text("refresh_token"), "client_id", at+"/good").is(200)
}
