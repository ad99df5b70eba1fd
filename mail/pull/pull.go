// Package pull reads folders of other IMAP servers, mostly INBOX: rows, flags and raw messages,
// newest first or by UID. It can also change flags there, and delete and append messages. It does
// not know accounts, schedules or stores: it returns what it reads to its caller.
//
// The server is not trusted. Each command has limits on time, silence and bytes; lines and literals
// have a maximum length. So a server that stalls, sends slowly or sends endlessly occupies only one
// connection for a limited time.
package pull

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/emersion/go-sasl"
)

var (
	// ErrLogin is wrapped if the server refuses the login. A *LoginError has the details.
	ErrLogin = errors.New("login refused")
	// ErrTLS is wrapped if no trusted TLS connection can be established.
	ErrTLS = errors.New("no trusted TLS connection")
	// ErrStalled is wrapped if the server does not complete its response within the time limits of
	// the command.
	ErrStalled = errors.New("the server did not answer in time")
	// ErrTooMuch is wrapped if the server sends more than the command can have requested.
	ErrTooMuch = errors.New("the server sent more data than was requested")
	// ErrProtocol is wrapped if the server sends data that is not valid IMAP.
	ErrProtocol = errors.New("the server sent invalid IMAP")
	// ErrRefused is wrapped if the server answers NO or BAD to a command. The session stays usable.
	ErrRefused = errors.New("the server refused the command")
	// ErrClosed is wrapped if the server closes the connection.
	ErrClosed = errors.New("connection closed by the server")
	// ErrGreeted is wrapped, together with another error, if Connect fails after the greeting of
	// the server. Then the problem may affect only this login.
	ErrGreeted = errors.New("the connection failed after the greeting of the server")
)

// A LoginError says that the server refused a login.
type LoginError struct {
	Final bool   // a retry is useless: the user name or password is wrong, or the user may not log in
	Text  string // text of the server, "" if it gave none
}

func (e *LoginError) Error() string {
	if e.Text == "" {
		return ErrLogin.Error()
	}
	return ErrLogin.Error() + ": " + e.Text
}

// Unwrap returns ErrLogin.
func (e *LoginError) Unwrap() error { return ErrLogin }

// A Server is the address of an IMAP server, with the login to a mailbox there.
type Server struct {
	Host     string // a name, or an IP address
	Port     int
	Security string // "tls" (from the first byte), "starttls" or "none"
	Username string
	Password string
}

func (s Server) addr() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// A Client connects to servers. Set its fields before the first use; after that it is safe for
// concurrent use.
type Client struct {
	// Dial connects to addr, which is "host:port". It can refuse forbidden addresses.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// RootCAs are the trusted root certificates; nil means those of the system.
	RootCAs *x509.CertPool
	// Timeouts limit each step; fields that are zero have defaults.
	Timeouts Timeouts
}

// Timeouts limit the steps of a session. The comments give the defaults.
type Timeouts struct {
	Connect time.Duration // until the login is complete: 45 s
	Command time.Duration // one command with a short response: 45 s
	Bulk    time.Duration // one command that fetches many messages: 5 min
	Silence time.Duration // between two pieces of a response: 30 s
}

func (t Timeouts) withDefaults() Timeouts {
	or := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	or(&t.Connect, 45*time.Second)
	or(&t.Command, 45*time.Second)
	or(&t.Bulk, 5*time.Minute)
	or(&t.Silence, 30*time.Second)
	return t
}

// Connect opens a connection and logs in, by AUTHENTICATE PLAIN (RFC 4616) if the server offers it,
// otherwise by LOGIN. The caller must call Session.Close.
func (c *Client) Connect(ctx context.Context, server Server) (*Session, error) {
	t := c.Timeouts.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, t.Connect, ErrStalled)
	defer cancel()
	conn, err := c.Dial(ctx, "tcp", server.addr())
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", server.addr(), withCause(ctx, err))
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	w, err := c.secureConn(ctx, conn, server)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect to %s: %w", server.addr(), withCause(ctx, err))
	}
	s := newSession(w, t)
	if err := s.runCommand(ctx, bounds{bytes: smallResponse, time: t.Connect}, func() error { return s.login(server) }); err != nil {
		s.Close()
		if s.greeted {
			err = errorAfterGreeting{err}
		}
		return nil, fmt.Errorf("log in to %s: %w", server.addr(), err)
	}
	return s, nil
}

// An errorAfterGreeting is an error that also wraps ErrGreeted, with an unchanged text.
type errorAfterGreeting struct{ error }

func (g errorAfterGreeting) Unwrap() []error { return []error{g.error, ErrGreeted} }

// withCause adds the cause of the end of ctx to err. It returns err unchanged if ctx has not ended.
func withCause(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// secureConn does the TLS handshake if server.Security requires one, and returns the connection for
// IMAP.
func (c *Client) secureConn(ctx context.Context, conn net.Conn, server Server) (*boundedConn, error) {
	config := &tls.Config{ServerName: server.Host, RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12}
	var greeting string
	switch server.Security {
	case "none":
		return &boundedConn{Conn: conn}, nil
	case "starttls":
		if err := startTLS(conn); err != nil {
			return nil, err
		}
		greeting = "* OK now encrypted\r\n" // the library waits for a greeting, which the server does not send again after STARTTLS
	case "tls":
	default:
		return nil, fmt.Errorf("invalid security %q of the IMAP server: it must be tls, starttls or none", server.Security)
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	return &boundedConn{Conn: secured, greeting: []byte(greeting)}, nil
}

// login waits for the greeting and logs in.
func (s *Session) login(server Server) error {
	if err := s.client.WaitGreeting(); err != nil {
		return err
	}
	s.greeted = true
	if s.client.State() != imap.ConnStateNotAuthenticated {
		return fmt.Errorf("%w: the session is authenticated before the login", ErrProtocol)
	}
	caps := s.client.Caps()
	if caps == nil {
		return fmt.Errorf("%w: no capabilities before the login", ErrProtocol)
	}
	var err error
	switch {
	case caps.Has(imap.AuthCap("PLAIN")):
		err = s.client.Authenticate(sasl.NewPlainClient("", server.Username, server.Password))
	case caps.Has(imap.CapLoginDisabled):
		return &LoginError{Final: true, Text: "the server takes no password over this connection; another security may help"}
	default:
		err = s.client.Login(server.Username, server.Password).Wait()
	}
	if e := new(imap.Error); errors.As(err, &e) {
		return loginError(e)
	}
	if err != nil {
		return err
	}
	s.caps = s.client.Caps()
	if s.caps == nil {
		return fmt.Errorf("%w: no capabilities after the login", ErrProtocol)
	}
	return nil
}

// loginError converts a refused login to an error, by its response code (RFC 5530).
func loginError(e *imap.Error) error {
	switch e.Code {
	case imap.ResponseCodeUnavailable, imap.ResponseCodeInUse, imap.ResponseCodeServerBug, imap.ResponseCodeLimit:
		return refusedError(e)
	case imap.ResponseCodeAuthenticationFailed, imap.ResponseCodeAuthorizationFailed, imap.ResponseCodeExpired,
		imap.ResponseCodePrivacyRequired, imap.ResponseCodeContactAdmin:
		return &LoginError{Final: true, Text: printable(e.Text)}
	}
	return &LoginError{Text: printable(e.Text)}
}

func refusedError(e *imap.Error) error {
	return fmt.Errorf("%w: %s", ErrRefused, printable(string(e.Type)+" "+e.Text))
}

// printable makes the text of a server safe to show: one line of at most 200 characters, without
// control characters.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\ufffd' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, " "))
	if r := []rune(text); len(r) > 200 {
		text = string(r[:200])
	}
	return strings.TrimSpace(text)
}

// clientOptions returns options for the library that make it call notify for unsolicited changes.
func (s *Session) clientOptions() *imapclient.Options {
	return &imapclient.Options{UnilateralDataHandler: &imapclient.UnilateralDataHandler{
		Expunge: func(uint32) { s.notify() },
		Mailbox: func(d *imapclient.UnilateralDataMailbox) {
			if d.NumMessages != nil {
				s.notify()
			}
		},
		Fetch: func(m *imapclient.FetchMessageData) {
			for item := m.Next(); item != nil; item = m.Next() {
				discardItem(item)
			}
			s.notify()
		},
	}}
}
