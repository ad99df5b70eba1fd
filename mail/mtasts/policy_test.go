package mtasts

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseRecord(t *testing.T) {
	for _, tc := range []struct {
		texts []string
		id    string
	}{
		{[]string{"v=STSv1; id=20160831085700Z;"}, "20160831085700Z"},
		{[]string{"v=STSv1;id=1"}, "1"},
		{[]string{"v=spf1 -all", "v=STSv1 ; x=y; id=a9 ;"}, "a9"},
		{[]string{"v=STSv1; id=1", "v=STSv1; id=1"}, ""},
		{[]string{"v=STSv1; id="}, ""},
		{[]string{"v=STSv1"}, ""},
		{[]string{"v=STSv1; id=a-b"}, ""},
		{[]string{"v=STSv1; id=" + strings.Repeat("a", 33)}, ""},
		{[]string{" v=STSv1; id=1"}, ""},
		{[]string{"v=STSv10; id=1"}, ""},
		{nil, ""},
	} {
		if id, ok := ParseRecord(tc.texts); id != tc.id || ok != (tc.id != "") {
			t.Errorf("%q: %q, %v, want %q", tc.texts, id, ok, tc.id)
		}
	}
}

func TestParsePolicy(t *testing.T) {
	p, err := ParsePolicy([]byte("version: STSv1\r\nmode: enforce\r\nmx: mail.Example.com\r\nmx: *.example.net\r\nsomething: else\r\nmax_age: 604800\r\n"))
	if err != nil || p.Mode != Enforce || p.MaxAge != 7*24*time.Hour || !slices.Equal(p.MX, []string{"mail.example.com", "*.example.net"}) {
		t.Fatalf("%+v, %v", p, err)
	}
	for host, want := range map[string]bool{
		"mail.example.com": true, "MAIL.example.com": true, "example.com": false, "a.mail.example.com": false,
		"a.example.net": true, "example.net": false, "a.b.example.net": false, "": false, "xexample.net": false,
	} {
		if p.Matches(host) != want {
			t.Errorf("%q matches: %v", host, !want)
		}
	}
	again, err := ParsePolicy([]byte(strings.Join(p.Lines(), "\n")))
	if err != nil || !slices.Equal(again.Lines(), p.Lines()) {
		t.Errorf("%v, %v", again, err)
	}
	if p, err := ParsePolicy([]byte("version:STSv1\nmode:none\nmax_age:9999999")); err != nil || p.Mode != None {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := ParsePolicy([]byte("version: STSv1\nmode: testing\nmx: a.b\nmax_age: 4294967295")); err != nil || p.MaxAge != MaxAge {
		t.Errorf("max_age without a bound: %+v, %v", p, err)
	}
}

func TestBadPoliciesAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "<html></html>", "version: STSv2\nmode: none\nmax_age: 1", "version: STSv1\nmode: strict\nmx: a.b\nmax_age: 1",
		"version: STSv1\nmode: enforce\nmax_age: 1", "version: STSv1\nmode: enforce\nmx: a.b", "version: STSv1\nmode: enforce\nmx: a.b\nmax_age: -1",
		"version: STSv1\nmode: enforce\nmx: a..b\nmax_age: 1", "version: STSv1\nmode: enforce\nmx: *\nmax_age: 1",
		"version: STSv1\nmode: enforce\nmax_age: 1\n" + strings.Repeat("mx: a.b\n", maxHosts+1),
		"version: STSv1\nmode: none\nmax_age: 1\n" + strings.Repeat("x", maxPolicy),
	} {
		if p, err := ParsePolicy([]byte(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.40q: %+v, %v", text, p, err)
		}
	}
}

// answers is a transport with one answer.
type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

func answer(status int, kind, body, location string) answers {
	return func(r *http.Request) (*http.Response, error) {
		h := http.Header{"Content-Type": {kind}}
		if location != "" {
			h.Set("Location", location)
		}
		return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
}

func TestFetch(t *testing.T) {
	const good = "version: STSv1\nmode: enforce\nmx: a.b\nmax_age: 86400\n"
	asked := ""
	p, err := Fetch(t.Context(), NewHTTP(answers(func(r *http.Request) (*http.Response, error) {
		asked = r.URL.String()
		return answer(200, "text/plain; charset=utf-8", good, "")(r)
	})), "them.example")
	if err != nil || p.Mode != Enforce || asked != "https://mta-sts.them.example/.well-known/mta-sts.txt" {
		t.Errorf("%+v, %v from %s", p, err, asked)
	}
	for name, tc := range map[string]struct {
		answer answers
		want   error
	}{
		"redirect": {answer(302, "text/plain", good, "https://elsewhere.example/"), ErrFetch},
		"missing":  {answer(404, "text/plain", good, ""), ErrFetch},
		"html":     {answer(200, "text/html", good, ""), ErrInvalid},
		"endless":  {answer(200, "text/plain", good+strings.Repeat("x: y\n", maxPolicy), ""), ErrInvalid},
		"no host":  {func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, ErrFetch},
	} {
		if p, err := Fetch(t.Context(), NewHTTP(tc.answer), "them.example"); !errors.Is(err, tc.want) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add("version: STSv1\nmode: enforce\nmx: *.a.b\nmax_age: 86400\n", "mx.a.b")
	f.Add("version: STSv1\r\nmode: none\r\nmax_age: 1", "")
	f.Fuzz(func(t *testing.T, text, host string) {
		ParseRecord([]string{text, host})
		p, err := ParsePolicy([]byte(text))
		if err != nil {
			return
		}
		again, err := ParsePolicy([]byte(strings.Join(p.Lines(), "\r\n")))
		if err != nil || again.Matches(host) != p.Matches(host) {
			t.Errorf("%q is not read again as it is written: %v", p.Lines(), err)
		}
	})
}
