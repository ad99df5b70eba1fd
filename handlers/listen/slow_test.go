package listen

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/mailstead/mailstead/service/servicetest"
)

// longest is the size in bytes of a response that a client does not read.
const longest = 8 << 20

// A slowClient is a slow HTTP client.
type slowClient struct {
	secure bool
	begin  string        // sent at once
	drip   string        // sent after each pause, repeatedly
	pause  time.Duration // 0: nothing more is sent
	deaf   bool          // the client does not read
	after  time.Duration // when the connection ends
	said   string        // the beginning of the response
}

const (
	upload = "POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
	chunks = "POST /take HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
)

var slowClients = map[string]slowClient{
	"says nothing":          {after: 10 * time.Second},
	"drips a request line":  {begin: "GET /", drip: "x", pause: time.Second, after: 10 * time.Second},
	"drips header fields":   {begin: "GET / HTTP/1.1\r\nHost: x\r\n", drip: "X: y\r\n", pause: time.Second, after: 10 * time.Second},
	"no body":               {begin: upload, after: 2 * time.Minute, said: "HTTP/1.1 408 "},
	"drips a body":          {begin: upload, drip: "x", pause: time.Second, after: 2 * time.Minute, said: "HTTP/1.1 408 "},
	"drips chunks":          {begin: chunks, drip: "1\r\nx\r\n", pause: time.Second, after: 2 * time.Minute, said: "HTTP/1.1 408 "},
	"a body nobody reads":   {begin: strings.Replace(upload, "/take", "/", 1), drip: "x", pause: time.Second, after: 0, said: "HTTP/1.1 200 "},
	"keeps the connection":  {begin: "GET / HTTP/1.1\r\nHost: x\r\n\r\n", after: 2 * time.Minute, said: "HTTP/1.1 200 "},
	"drips the next":        {begin: "GET / HTTP/1.1\r\nHost: x\r\n\r\nG", drip: "x", pause: time.Second, after: 13 * time.Second, said: "HTTP/1.1 200 "},
	"does not read":         {begin: "GET /long HTTP/1.1\r\nHost: x\r\n\r\n", deaf: true, after: 5 * time.Minute},
	"no handshake":          {secure: true, after: 10 * time.Second},
	"drips a handshake":     {secure: true, drip: "\x16\x03\x01\x02\x00\x01", pause: time.Second, after: 10 * time.Second},
	"drips half a protocol": {begin: "PRI * HTTP/2.0\r\n", drip: "x", pause: time.Second, after: 10 * time.Second},
}

// TestSlowHTTPClientsAreSentAway holds the limits of the HTTP server to the second, in false time.
func TestSlowHTTPClientsAreSentAway(t *testing.T) {
	for name, s := range slowClients {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { s.play(t, dialHTTP(t, s.secure)) })
		})
	}
}

// dialHTTP starts a server and connects to it.
func dialHTTP(t *testing.T, secure bool) net.Conn {
	h := http.NewServeMux()
	h.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	h.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, longest)) })
	h.HandleFunc("/take", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusRequestTimeout)
		}
	})
	log := slog.New(slog.DiscardHandler)
	hs, ln := NewHTTPServer(h, log), servicetest.NewPipes()
	var limited net.Listener = LimitHTTP(ln, "http", !secure, nil, log)
	if secure {
		limited = tls.NewListener(limited, httpsOf(servicetest.Certificate(t, "x")))
	}
	ended := make(chan error, 1)
	go func() { ended <- hs.Serve(limited) }()
	t.Cleanup(func() {
		hs.Close()
		<-ended
	})
	client := ln.Dial()
	t.Cleanup(func() { client.Close() })
	return client
}

// play is the client; it demands that the server ends the connection in time.
func (s slowClient) play(t *testing.T, conn net.Conn) {
	client := servicetest.Sluggard{Begin: s.begin, Drip: s.drip, Pause: s.pause, After: s.after}
	if s.deaf {
		client.Deaf = "x"
	}
	if told := client.Play(t, conn); !strings.HasPrefix(told, s.said) {
		t.Errorf("it was told %.300q", told)
	}
}

// TestSlowHTTP2ClientsAreSentAway has clients whose streams never get far.
func TestSlowHTTP2ClientsAreSentAway(t *testing.T) {
	for name, tc := range map[string]struct {
		begin func(f *http2.Framer) error
		drip  func(f *http2.Framer) error
		after time.Duration // within this time
	}{
		"no stream": {nil, nil, 2 * time.Minute},
		"a header that does not end": {
			func(f *http2.Framer) error { return f.WriteHeaders(streamOf("GET", "/", false)) },
			func(f *http2.Framer) error { return f.WriteContinuation(1, false, []byte{0, 1, 'x', 1, 'y'}) },
			3 * time.Minute,
		},
		"a body that does not end": {
			func(f *http2.Framer) error { return f.WriteHeaders(streamOf("POST", "/take", true)) },
			func(f *http2.Framer) error { return f.WriteData(1, false, []byte("x")) },
			5 * time.Minute,
		},
		"an answer that is not taken": {
			func(f *http2.Framer) error { return f.WriteHeaders(streamOf("GET", "/long", true)) },
			nil, 8 * time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := tls.Client(dialHTTP(t, true), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
				start, heard, said := time.Now(), make(chan struct{}), make(chan struct{})
				if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
					t.Fatal(err)
				}
				f := http2.NewFramer(conn, conn)
				go func() {
					defer close(heard)
					_, _ = io.Copy(io.Discard, conn)
				}()
				go func() {
					defer close(said)
					err := f.WriteSettings()
					if err == nil && tc.begin != nil {
						err = tc.begin(f)
					}
					for err == nil && tc.drip != nil {
						time.Sleep(time.Second)
						err = tc.drip(f)
					}
				}()
				<-heard
				if took := time.Since(start); took > tc.after+10*time.Second {
					t.Errorf("the connection ended after %v", took)
				} else {
					t.Logf("the connection ended after %v", took)
				}
				conn.Close()
				<-said
			})
		})
	}
}

// streamOf is the header of the first stream; unless it is whole, more follows.
func streamOf(method, path string, whole bool) http2.HeadersFrameParam {
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "x"}, {":path", path}} {
		_ = enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}) // into memory
	}
	return http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndHeaders: whole, EndStream: method == "GET"}
}

// httpsOf is what listeners of HTTPS offer beside a certificate.
func httpsOf(c *tls.Config) *tls.Config {
	c.NextProtos = (&Certificates{}).HTTPSConfig().NextProtos
	return c
}
