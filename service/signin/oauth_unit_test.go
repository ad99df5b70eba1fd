package signin

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzClientMetadata: the name of an accepted client can be shown, and its redirect URIs lead only
// to https or to this machine.
func FuzzClientMetadata(f *testing.F) {
	f.Add([]byte(`{"client_name":"Assistant","redirect_uris":["https://client.test/back?x=y","http://127.0.0.1:4711/back","http://[::1]/"],"token_endpoint_auth_method":"none"}`))
	f.Add([]byte(`{"client_id":"https://client.test/me","client_name":"A\u202eB\u0000\n","redirect_uris":["http://localhost:1"],"grant_types":["authorization_code"],"response_types":["code"]}`))
	f.Add([]byte(`{"redirect_uris":["https://a.test\\@b.test","http://127.0.0.1:@b.test","javascript:x"]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := ParseClientMetadata(body)
		if err != nil {
			if _, ok := err.(*OAuthError); !ok { //nolint:errorlint // it is the very type that clients get
				t.Errorf("the error is %T", err)
			}
			return
		}
		if !utf8.ValidString(m.ClientName) || utf8.RuneCountInString(m.ClientName) > maxClientName || strings.ContainsFunc(m.ClientName, func(r rune) bool { return unicode.Is(unicode.C, r) }) {
			t.Errorf("the name is %q", m.ClientName)
		}
		for _, uri := range m.RedirectURIs {
			to, err := url.Parse(authorizationResponse("https://mail.test", uri, "s&t", "code", "c"))
			if err != nil {
				t.Fatalf("%q: %v", uri, err)
			}
			before, _ := url.Parse(uri) // the answer was parsed
			local := slices.Contains([]string{"127.0.0.1", "::1", "localhost"}, to.Hostname())
			if to.Host != before.Host || to.Path != before.Path || to.User != nil || to.Fragment != "" || to.Scheme != "https" && (to.Scheme != "http" || !local) ||
				!slices.Contains(to.Query()["code"], "c") || !slices.Contains(to.Query()["state"], "s&t") {
				t.Errorf("%q leads to %q", uri, to)
			}
		}
	})
}

// FuzzRedirect: a redirect URI that matches a registered one leads to the same host and path.
func FuzzRedirect(f *testing.F) {
	for _, uri := range []string{"http://127.0.0.1/back", "http://127.0.0.1:80/back", "http://127.0.0.1:8@evil.test/back", "http://127.0.0.1.evil.test/back", "http://localhost/back", "http://127.0.0.1:8000/back?x"} {
		f.Add("http://127.0.0.1/back", uri)
	}
	f.Add("http://[::1]:1?x", "http://[::1]:2?x")
	f.Fuzz(func(t *testing.T, registered, given string) {
		if checkRedirect(registered) != nil || !sameRedirect(registered, given) {
			return
		}
		a, err := url.Parse(registered)
		b, wrong := url.Parse(given)
		if err != nil || wrong != nil {
			if registered != given {
				t.Errorf("%q is like %q: %v %v", given, registered, err, wrong)
			}
			return
		}
		if a.Scheme != b.Scheme || a.Hostname() != b.Hostname() || a.EscapedPath() != b.EscapedPath() || a.RawQuery != b.RawQuery || b.User != nil || b.Fragment != "" {
			t.Errorf("%q is like %q", given, registered)
		}
		if a.Scheme == "https" && a.Port() != b.Port() {
			t.Errorf("%q is like %q but for its port", given, registered)
		}
	})
}

// FuzzAuthorizationQuery: the checks of the parameters hold for any query.
func FuzzAuthorizationQuery(f *testing.F) {
	f.Add("resource=https://mail.test/mcp&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&state=x")
	f.Add("resource=HTTPS://MAIL.test/mcp&resource=https://mail.test/mcp%23x")
	f.Add("resource=https://mail.test/mcp%3f&state=x&state=y")
	f.Add("resource=https://mAil.test/mcp%23")
	f.Add("code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw%0A-cM")
	f.Fuzz(func(t *testing.T, text string) {
		q, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		if isResource(q["resource"], "https://mail.test") && (len(q["resource"]) != 1 || !strings.EqualFold(q.Get("resource"), "https://mail.test/mcp")) {
			t.Errorf("%q is taken for this server's /mcp", q["resource"])
		}
		for name, values := range q {
			if value, ok := singleParam(q, name); ok && (len(values) != 1 || value != values[0]) {
				t.Errorf("%q gives %q", values, value)
			}
		}
		if challenge := q.Get("code_challenge"); isChallenge(challenge) && len(challenge) != 43 {
			t.Errorf("%q is taken for a challenge", challenge)
		}
	})
}

// TestProves uses the example of RFC 7636 appendix B.
func TestProves(t *testing.T) {
	const verifier, challenge = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
	if !verifierMatches(verifier, challenge) {
		t.Error("the example of the RFC does not fit")
	}
	for _, wrong := range []string{"", verifier[1:], verifier + "x", challenge, verifier[:42] + " ", strings.Repeat("x", 129)} {
		if verifierMatches(wrong, challenge) {
			t.Errorf("%q fits", wrong)
		}
	}
}
