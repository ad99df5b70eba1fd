package handlers

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestOddNamesInPaths asks every operation for things whose names are no names. None is found, and
// nothing falls over.
func TestOddNamesInPaths(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann")
	place := regexp.MustCompile(`\{\w+\}`)
	for _, odd := range []string{
		"\x00", "\xff\xfe", "..", "/", "//", "a/../b", "%", "%2f", "é", "😀", " ", "\r\n", "{id}", ":id", "*", "-1", "18446744073709551616",
		"eu_" + strings.Repeat("x", 9000), b.domain + "\x00", b.Owner.AccountID, "bulk", "?", "#", `"`, "<b>",
	} {
		for _, o := range b.server.ops {
			if !strings.Contains(o.path, "{") {
				continue
			}
			r := b.do(o.method, place.ReplaceAllLiteralString(o.path, url.PathEscape(odd)), nil)
			if r.status != 400 && r.status != 404 && r.status != 405 {
				t.Errorf("%s of %.20q: %d %.200s", o.name, odd, r.status, r.raw)
			}
		}
	}
	b.get("/v1/account").is(200).has("domains_used", "1", "email_users_used", "1", "team_users_used", "1")
}

// TestMethodsOfHTTP: HEAD and OPTIONS are none of the API's, with the headers of any answer and no
// body for HEAD.
func TestMethodsOfHTTP(t *testing.T) {
	b := newSandbox(t, nil)
	for _, method := range []string{"HEAD", "OPTIONS", "TRACE", "get", "LIST"} {
		r := b.do(method, "/v1/account", nil).is(405)
		if r.header.Get("Allow") != "GET, PATCH" || r.header.Get("X-RateLimit-Limit") == "" || (len(r.raw) == 0) != (method == "HEAD") {
			t.Errorf("%s: %v %s", method, r.header, r.raw)
		}
		b.do(method, "/v1/nothing", nil).is(404)
		b.with("").do(method, "/v1/account", nil).is(401)
	}
}

// TestBodiesOnTheWire sends bodies as careless clients and networks do. What is whole counts; what
// is not changes nothing.
func TestBodiesOnTheWire(t *testing.T) {
	b := newSandbox(t, nil)
	head := func(version string, fields ...string) string {
		return "POST /v1/suppressions HTTP/" + version + "\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + b.token +
			"\r\n" + strings.Join(fields, "\r\n") + "\r\n\r\n"
	}
	const body = `{"email":"a@far.test"}`
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d", n) }
	chunks := fmt.Sprintf("%x;x=y\r\n%s\r\n%x\r\n%s\r\n0\r\nTrailer: x\r\n\r\n", 5, body[:5], len(body)-5, body[5:])
	big := `{"email":"` + strings.Repeat("x", defaultBody) + `"}`
	for name, tc := range map[string]struct {
		status int
		parts  []string
	}{
		"HTTP/1.0":              {201, []string{head("1.0", length(len(body))), body}},
		"in chunks":             {201, []string{head("1.1", "Transfer-Encoding: chunked", "Connection: close"), chunks}},
		"slowly":                {201, []string{head("1.1", length(len(body)), "Connection: close"), body[:3], body[3:9], body[9:]}},
		"Expect":                {201, []string{head("1.1", length(len(body)), "Expect: 100-continue", "Connection: close"), body}},
		"without a body":        {400, []string{head("1.1", "Connection: close")}},
		"cut short":             {400, []string{head("1.1", length(len(body)+9), "Connection: close"), body}},
		"cut between chunks":    {400, []string{head("1.1", "Transfer-Encoding: chunked", "Connection: close"), chunks[:len(chunks)-20]}},
		"no such chunk":         {400, []string{head("1.1", "Transfer-Encoding: chunked", "Connection: close"), "zz\r\n"}},
		"too large":             {413, []string{head("1.1", length(1<<40), "Connection: close")}},
		"too large and whole":   {413, []string{head("1.1", length(8*len(big)), "Connection: close"), strings.Repeat(big, 8)}},
		"too large in parts":    {413, []string{head("1.1", "Transfer-Encoding: chunked", "Connection: close"), strings.Repeat(fmt.Sprintf("%x\r\n%s\r\n", len(big), big), 8) + "0\r\n\r\n"}},
		"too large and awaited": {413, []string{head("1.1", length(1<<21), "Expect: 100-continue", "Connection: close")}},
		"too large in chunks":   {413, []string{head("1.1", "Transfer-Encoding: chunked", "Connection: close"), fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(big), big)}},
		"two lengths":           {400, []string{head("1.1", length(len(body)), length(3), "Connection: close"), body}},
		"length below zero":     {400, []string{head("1.1", length(-1), "Connection: close"), body}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := overTheWire(t, b.url, tc.parts); got != tc.status {
				t.Errorf("status %d, want %d", got, tc.status)
			}
			listed := b.get("/v1/suppressions").is(200)
			if made := listed.text("pagination.count") == "1"; made != (tc.status == 201) {
				t.Errorf("after %d there is %s", tc.status, listed.raw)
			}
			b.remove("/v1/suppressions/a@far.test")
		})
	}
}

// overTheWire writes the parts with pauses between, ends its side of the connection, and gives the
// status of the last answer that is no 100.
func overTheWire(t *testing.T, base string, parts []string) int {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, p := range parts {
		if _, err := conn.Write([]byte(p)); err != nil {
			t.Fatalf("the server closed before the request was whole: %v", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if len(parts) > 1 { // else the client waits for an answer, whatever it has promised to send
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	r := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusContinue {
			return resp.StatusCode
		}
	}
}
