package handlers

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/handlers/openapi"
)

// raw sends a request without a compression that the client undoes by itself.
func (c *client) raw(method, path, body string, header ...string) (resp *http.Response, content []byte) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	tr := &http.Transport{DisableCompression: true}
	defer tr.CloseIdleConnections()
	resp, err = tr.RoundTrip(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err = io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp, content
}

// unzip decompresses an answer, which must be one gzip member of the announced length.
func unzip(t testing.TB, resp *http.Response, content []byte) []byte {
	t.Helper()
	if resp.Header.Get("Content-Encoding") != "gzip" || resp.Header.Get("Content-Length") != strconv.Itoa(len(content)) {
		t.Fatalf("%v", resp.Header)
	}
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func TestAcceptsGzip(t *testing.T) {
	for accept, want := range map[string]bool{
		"gzip": true, "GZIP": true, "x-gzip": true, "gzip, deflate, br, zstd": true, "br;q=1.0, gzip;q=0.8, *;q=0.1": true, "*": true, "deflate, *;q=0.5": true, "gzip ; q = 1": true,
		"": false, "identity": false, "br": false, "gzip;q=0": false, "gzip;q=0.000": false, "*;q=0": false, "gzip;q=0, *": false, "*, gzip;q=0": false, "gzipped": false, "gzip;q=x": false,
	} {
		if got := acceptsGzip([]string{accept}); got != want {
			t.Errorf("%q: %v", accept, got)
		}
	}
	if acceptsGzip(nil) || !acceptsGzip([]string{"br", "gzip"}) {
		t.Error("no header, or two")
	}
}

// TestLongAnswersAreCompressed: where the client takes it, with the same content and all headers
// right; errors, replayed answers and answers with secrets too, as far as they may be.
func TestLongAnswersAreCompressed(t *testing.T) {
	b := newSandbox(t, nil)
	for i := range 20 {
		b.box(fmt.Sprintf("box%d", i))
	}
	for _, c := range []struct {
		name, method, path, body string
		header                   []string
		zipped                   bool
	}{
		{"a list", "GET", "/v1/email-users", "", nil, true},
		{"a short answer", "GET", "/v1/webhooks", "", nil, false},
		{"a long error", "PATCH", "/v1/domains/x", `{"tags":5,"auto_renew":5,"sending_mode":5,"relay":5,"list_unsubscribe":5,"catch_all":5,"notes":5,"tls_policy":5,"sends_elsewhere":5,"dns_credential_id":5,"apex":5,"mx":5,"replace":5}`, nil, true},
		{"a replay's original", "POST", "/v1/email-users/generate-names", `{"count":50}`, nil, true},
		{"an answer with a secret", "POST", "/v1/email-users/bulk", `{"domain":"boxes.test","users":[{"username":"x1"},{"username":"x2"},{"username":"x3"}]}`, nil, false},
	} {
		resp, plain := b.raw(c.method, c.path, c.body, c.header...)
		if resp.Header.Get("Content-Encoding") != "" || resp.Header.Get("Content-Length") != strconv.Itoa(len(plain)) || c.zipped && !slices.Contains(resp.Header.Values("Vary"), "Accept-Encoding") {
			t.Errorf("%s, plain: %v", c.name, resp.Header)
		}
		zipped, content := b.raw(c.method, c.path, c.body, append(c.header, "Accept-Encoding", "br, gzip")...)
		if !c.zipped {
			if zipped.Header.Get("Content-Encoding") != "" || zipped.Header.Get("Content-Length") != strconv.Itoa(len(content)) {
				t.Errorf("%s: %v", c.name, zipped.Header)
			}
			continue
		}
		got := unzip(t, zipped, content)
		if len(plain) < minCompressed || len(content) >= len(plain) || zipped.StatusCode != resp.StatusCode || zipped.Header.Get("Content-Type") != resp.Header.Get("Content-Type") || !slices.Contains(zipped.Header.Values("Vary"), "Accept-Encoding") {
			t.Errorf("%s: %d and %d bytes, %d, %v", c.name, len(plain), len(content), zipped.StatusCode, zipped.Header)
		}
		if c.method == "GET" && !bytes.Equal(got, plain) {
			t.Errorf("%s: %.300s\nis not\n%.300s", c.name, got, plain)
		}
	}
	for accept, want := range map[string]string{"gzip": "gzip", "gzip;q=0": "", "br": ""} {
		if resp, _ := b.raw("GET", "/v1/openapi.json", "", "Accept-Encoding", accept); resp.Header.Get("Content-Encoding") != want || strings.HasSuffix(resp.Header.Get("ETag"), `-gzip"`) != (want != "") {
			t.Errorf("the description, for %s: %v", accept, resp.Header)
		}
	}
	list := `{"domains":["`
	for i := range 20 {
		list += fmt.Sprintf(`bad name %d","`, i)
	}
	list += `boxes.test"]}`
	_, first := b.raw("POST", "/v1/domains/connect", list, "Idempotency-Key", "k")
	again, content := b.raw("POST", "/v1/domains/connect", list, "Idempotency-Key", "k", "Accept-Encoding", "gzip")
	if got := unzip(t, again, content); !bytes.Equal(got, first) || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("replayed: %.300s", got)
	}
	second, content := b.raw("POST", "/v1/domains/connect", list, "Idempotency-Key", "l", "Accept-Encoding", "gzip")
	if got := unzip(t, second, content); !bytes.Equal(got, first) {
		t.Errorf("compressed at first: %.300s", got)
	}
	if _, plain := b.raw("POST", "/v1/domains/connect", list, "Idempotency-Key", "l"); !bytes.Equal(plain, first) {
		t.Errorf("then replayed plain: %.300s", plain)
	}
}

// TestLengthsOfEqualAnswersDiffer: padding hides small differences between lengths.
func TestLengthsOfEqualAnswersDiffer(t *testing.T) {
	lengths := map[int]bool{}
	for range 200 {
		var buf bytes.Buffer
		gzipInto(&buf, bytes.Repeat([]byte("the same "), 1000), newPadding())
		lengths[buf.Len()] = true
	}
	if len(lengths) < maxPadding/2 {
		t.Errorf("%d lengths", len(lengths))
	}
}

// TestAnswersWithSecretsAreNotCompressed: an operation whose answer has a field that is named as a
// secret says so.
func TestAnswersWithSecretsAreNotCompressed(t *testing.T) {
	b := newSandbox(t, nil)
	var hasSecret func(typ reflect.Type, depth int) bool
	hasSecret = func(typ reflect.Type, depth int) bool {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || depth > 6 {
			return false
		}
		for _, f := range openapi.Fields(typ) {
			name := openapi.JSONName(f.StructField)
			text := f.Type.Kind() == reflect.String || f.Type == reflect.TypeFor[*string]()
			if text && slices.Contains([]string{"password", "secret", "token", "reset_link"}, name) || hasSecret(f.Type, depth+1) {
				return true
			}
		}
		return false
	}
	n := 0
	for _, o := range b.server.ops {
		for _, form := range openapi.FormsOf(o.Call.Out) {
			if !hasSecret(form, 0) {
				continue
			}
			n++
			if !o.ShowsSecret {
				t.Errorf("%s shows a secret, and may be compressed", o.Name)
			}
		}
	}
	if n < 8 {
		t.Errorf("only %d operations show secrets", n)
	}
}

// mixedLetter is a message as people and shops write them.
func mixedLetter(n int) string {
	words := strings.Fields("invoice meeting order shipping confirm account password weekly report garden project update tomorrow friday customer delivery number question answer team review budget holiday ticket booking flight hotel address payment reminder newsletter offer summer winter design contract signature")
	text := func(seed, many int) string {
		var out []string
		for i := range many {
			out = append(out, words[(seed*7+i*i*3+seed*i)%len(words)])
		}
		return strings.Join(out, " ")
	}
	return fmt.Sprintf("From: %[1]s %[2]s <%[1]s.%[2]s@shop%[3]d.example>\nTo: ann@boxes.test\nSubject: %[4]s\nMessage-ID: <%[3]d.%[5]x@shop%[3]d.example>\nDate: Tue, 1 Dec 2026 12:%02[6]d:00 +0000\n\n%[7]s\n",
		words[n%len(words)], words[(n*5+3)%len(words)], n, text(n, 7), n*7919*104729, n%60, text(n+11, 80))
}

// TestInboxPageIsSmallOnTheWire: a page of the universal inbox, as the dashboard asks for it, takes
// at most 15 KiB.
func TestInboxPageIsSmallOnTheWire(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann")
	for i := range 120 {
		b.Put(t, "ann@boxes.test", mixedLetter(i), mail{})
	}
	for _, limit := range []int{50, 100} {
		resp, content := b.raw("GET", fmt.Sprintf("/v1/inbox?limit=%d", limit), "", "Accept-Encoding", "gzip")
		plain := unzip(t, resp, content)
		t.Logf("%d rows: %d bytes, compressed %d", limit, len(plain), len(content))
		if len(content) > 15<<10 {
			t.Errorf("%d rows take %d bytes on the wire", limit, len(content))
		}
	}
}
