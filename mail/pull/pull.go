// Package pull reads folders of somebody else's IMAP server, mostly INBOX: rows, flags and raw
// messages, newest first or by UID, and marks and deletes there. It does not know accounts,
// schedules or stores: what it reads it hands to its caller.
//
// The server may be anybody's. Every command has a bound on time, on silence and on bytes, and no
// line and no literal is longer than it may be, so that a server that stalls, trickles or talks
// without end costs one connection for a while.
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
	// ErrLogin is wrapped when the server does not take the user name and password; a *LoginError
	// says more.
	ErrLogin = errors.New("log-in refused")
	// ErrTLS is wrapped when no trusted TLS connection comes about.
	ErrTLS = errors.New("no trusted TLS connection")
	// ErrStalled is wrapped when the server does not answer, or not to the end, in the time that a
	// command has.
	ErrStalled = errors.New("no answer in time")
	// ErrTooMuch is wrapped when the server sends more than the command can ask for.
	ErrTooMuch = errors.New("more data than was asked for")
	// ErrProtocol is wrapped for answers that cannot be.
	ErrProtocol = errors.New("not an answer of IMAP")
	// ErrRefused is wrapped when the server answers NO or BAD; the session goes on.
	ErrRefused = errors.New("refused")
	// ErrClosed is wrapped when the server ends the connection.
	ErrClosed = errors.New("connection closed by the server")
	// ErrGreeted is wrapped, beside another, when Connect fails after the server has greeted us:
	// what is wrong may be with one log-in alone.
	ErrGreeted = errors.New("after its greeting")
)

// A LoginError is an answer to a log-in that is not OK.
type LoginError struct {
	Final bool   // the server says that user name or password are wrong, or that the user may not log in
	Text  string // the server's own
}

func (e *LoginError) Error() string {
	if e.Text == "" {
		return ErrLogin.Error()
	}
	return ErrLogin.Error() + ": " + e.Text
}

// Unwrap gives ErrLogin.
func (e *LoginError) Unwrap() error { return ErrLogin }

// A Server is where a mailbox is, and the log-in to it.
type Server struct {
	Host     string // a name, or an IP address
	Port     int
	Security string // tls, starttls, none
	Username string
	Password string
}

func (s Server) addr() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// A Client connects to servers. Its fields are set before the first use; it is safe for concurrent
// use after that.
type Client struct {
	// Dial connects to addr, "host:port". A guard against forbidden addresses belongs here.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// RootCAs verify certificates; nil is the system's set.
	RootCAs *x509.CertPool
	// Timeouts bound every step; zero fields have defaults.
	Timeouts Timeouts
}

// Timeouts bound the steps of a session.
type Timeouts struct {
	Connect time.Duration // until logged in: 45 s
	Command time.Duration // a command with a short answer: 45 s
	Bulk    time.Duration // a command that fetches many messages: 5 min
	Silence time.Duration // between two pieces of an answer: 30 s
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

// Connect opens a connection and logs in, with AUTHENTICATE PLAIN where that is offered (RFC 4616),
// else with LOGIN. It is ended by Session.Close.
func (c *Client) Connect(ctx context.Context, server Server) (*Session, error) {
	t := c.Timeouts.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, t.Connect, ErrStalled)
	defer cancel()
	conn, err := c.Dial(ctx, "tcp", server.addr())
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", server.addr(), deadline(ctx, err))
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	w, err := c.secure(ctx, conn, server)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect to %s: %w", server.addr(), deadline(ctx, err))
	}
	s := newSession(w, t)
	if err := s.do(ctx, bounds{bytes: smallAnswer, time: t.Connect}, func() error { return s.login(server) }); err != nil {
		s.Close()
		if s.greeted {
			err = afterGreeting{err}
		}
		return nil, fmt.Errorf("log in to %s: %w", server.addr(), err)
	}
	return s, nil
}

// afterGreeting is ErrGreeted beside the error that it says nothing about.
type afterGreeting struct{ error }

func (g afterGreeting) Unwrap() []error { return []error{g.error, ErrGreeted} }

// deadline names what ctx ended for, where that is why err came.
func deadline(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// secure gives the connection that IMAP is spoken over.
func (c *Client) secure(ctx context.Context, conn net.Conn, server Server) (*wire, error) {
	config := &tls.Config{ServerName: server.Host, RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12}
	var greeting string
	switch server.Security {
	case "none":
		return &wire{Conn: conn}, nil
	case "starttls":
		if err := startTLS(conn); err != nil {
			return nil, err
		}
		greeting = "* OK now encrypted\r\n" // there is none after STARTTLS, and the library waits for one
	case "tls":
	default:
		return nil, fmt.Errorf("security is %q, not tls, starttls or none", server.Security)
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	return &wire{Conn: secured, greeting: []byte(greeting)}, nil
}

// login proves who we are, over a connection that is as secure as was asked for.
func (s *Session) login(server Server) error {
	if err := s.client.WaitGreeting(); err != nil {
		return err
	}
	s.greeted = true
	if s.client.State() != imap.ConnStateNotAuthenticated {
		return fmt.Errorf("%w: it takes us for somebody before we have logged in", ErrProtocol)
	}
	caps := s.client.Caps()
	if caps == nil {
		return fmt.Errorf("%w: it does not tell its capabilities", ErrProtocol)
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
		return fmt.Errorf("%w: it does not tell its capabilities", ErrProtocol)
	}
	return nil
}

// loginError reads a refusal by its RFC 5530 code.
func loginError(e *imap.Error) error {
	switch e.Code {
	case imap.ResponseCodeUnavailable, imap.ResponseCodeInUse, imap.ResponseCodeServerBug, imap.ResponseCodeLimit:
		return refused(e)
	case imap.ResponseCodeAuthenticationFailed, imap.ResponseCodeAuthorizationFailed, imap.ResponseCodeExpired,
		imap.ResponseCodePrivacyRequired, imap.ResponseCodeContactAdmin:
		return &LoginError{Final: true, Text: clean(e.Text)}
	}
	return &LoginError{Text: clean(e.Text)}
}

func refused(e *imap.Error) error {
	return fmt.Errorf("%w: %s", ErrRefused, clean(string(e.Type)+" "+e.Text))
}

// clean is a server's text as others may see it.
func clean(text string) string {
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

// options has the library tell us what changes by itself.
func (s *Session) options() *imapclient.Options {
	return &imapclient.Options{UnilateralDataHandler: &imapclient.UnilateralDataHandler{
		Expunge: func(uint32) { s.notify() },
		Mailbox: func(d *imapclient.UnilateralDataMailbox) {
			if d.NumMessages != nil {
				s.notify()
			}
		},
		Fetch: func(m *imapclient.FetchMessageData) {
			for item := m.Next(); item != nil; item = m.Next() {
				skip(item)
			}
			s.notify()
		},
	}}
}
