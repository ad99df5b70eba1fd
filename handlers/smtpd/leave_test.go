package smtpd_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/handlers/smtpd"
	"github.com/mailstead/mailstead/service/core"
)

// TestDeafClientsHoldNothing has 24 clients in each mode that send without end, read nothing, and
// then disconnect or stay: a stop ends the server within its grace period, and no goroutine waits
// for them.
func TestDeafClientsHoldNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   smtpd.Mode
		begin  string
		leaves bool
	}{
		"MX, leaves":          {smtpd.MX, "", true},
		"MX, stays":           {smtpd.MX, "", false},
		"STARTTLS, leaves":    {smtpd.Submission, "STARTTLS\r\n", true},
		"STARTTLS, stays":     {smtpd.Submission, "STARTTLS\r\n", false},
		"TLS, leaves":         {smtpd.Submissions, "", true},
		"TLS, stays":          {smtpd.Submissions, "", false},
		"in a message, stays": {smtpd.MX, "EHLO c.test\r\nMAIL FROM:<pat@sender.test>\r\nRCPT TO:<ana@example.test>\r\nDATA\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, func(_ *core.Config, s *smtpd.Server) {
				s.Log, s.TLS, s.Limits.Grace, s.Limits.Commands = slog.New(slog.DiscardHandler), certificate(t), time.Second, 1<<30
			})
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- h.server.Run(ctx, ln, tc.mode) }()
			var conns []net.Conn
			for range 24 {
				raw, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer raw.Close()
				conns = append(conns, raw)
				go deafen(raw, tc.mode, tc.begin)
			}
			time.Sleep(500 * time.Millisecond)
			for _, conn := range conns {
				if tc.leaves {
					conn.Close()
				}
			}
			if tc.leaves {
				endsServing(t, 5*time.Second)
			}
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(h.server.Limits.Grace + 5*time.Second):
				t.Fatal("Run does not end")
			}
			endsServing(t, time.Second)
		})
	}
}

// deafen reads only what it must for a handshake.
func deafen(raw net.Conn, mode smtpd.Mode, begin string) {
	conn := raw
	if mode == smtpd.Submissions {
		conn = tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	}
	_, _ = io.WriteString(conn, begin) // the server may have had enough, here and below
	if strings.HasPrefix(begin, "STARTTLS") {
		seen := make([]byte, 4096)
		for all := ""; !strings.Contains(all, "Ready to start TLS"); {
			n, err := raw.Read(seen)
			if err != nil {
				return
			}
			all += string(seen[:n])
		}
		conn = tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	}
	_, _ = io.WriteString(conn, strings.Repeat("EHLO client.test\r\n", 100_000))
}

// endsServing fails unless all goroutines of sessions end in time.
func endsServing(t *testing.T, within time.Duration) {
	t.Helper()
	for until := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		var all bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, stack := range strings.Split(all.String(), "\n\n") {
			if strings.Contains(stack, "smtpd.(*run).serve") || strings.Contains(stack, "go-smtp.(*Conn)") {
				n++
			}
		}
		if n == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d goroutines still serve clients", n)
		}
	}
}
