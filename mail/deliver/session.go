package deliver

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/tlsrpt"
)

// session is one SMTP connection to one host. Only one goroutine uses it at a time.
type session struct {
	hop      hop
	ip       netip.Addr
	raw      net.Conn // the TCP connection; closing it aborts the session at once
	conn     net.Conn // raw, or the TLS connection over it
	br       *bufio.Reader
	bw       *bufio.Writer // for message content; nil until the first DATA
	timeouts Timeouts
	ext      extensions
	tls      string // TLS version and cipher, "" for plain text
	auth     string // how the host was authenticated, see Attempt.Authenticated
	// unverified says why the host's certificate is not valid. It is nil if the certificate is
	// valid, or if the TLS policy requires a valid one.
	unverified error
	uses       int  // number of transactions so far
	dirty      bool // a transaction was not completed, so RSET must come first
	broken     bool // replies may not match commands any more, so the session must be closed

	unbind func() bool // undoes closeWhenDone; returns false if the end of the context has already closed the connection
	timer  *time.Timer // closes the session when it was idle for too long
}

var errClosed = errors.New("the host closed the connection")

// extensions are the SMTP extensions that the host offers in its reply to EHLO.
type extensions struct {
	startTLS, pipelining, eightBit, utf8, dsn, size, chunking, requireTLS bool

	maxSize int64 // SIZE limit in bytes; 0 means none
	auth    []string
}

// openSession connects to one address of a hop and does everything that precedes MAIL: greeting,
// EHLO, TLS and AUTH.
func (c *Client) openSession(ctx context.Context, h hop, ip netip.Addr, policy tlsPolicy) (_ *session, f *failure) {
	t := c.Timeouts.withDefaults()
	dialCtx, cancel := context.WithTimeout(ctx, t.Connect)
	defer cancel()
	conn, err := c.dial(dialCtx, netip.AddrPortFrom(ip, uint16(h.port)))
	if err != nil {
		return nil, &failure{stage: stageConnect, err: fmt.Errorf("connect to %s: %w", h.host, err), enhanced: "4.4.1"}
	}
	s := &session{hop: h, ip: ip, raw: conn, conn: conn, br: bufio.NewReaderSize(conn, maxReplyLine), timeouts: t}
	s.closeWhenDone(ctx)
	defer func() {
		if f != nil {
			c.closeSession(s)
		}
	}()
	if policy == tlsImplicit {
		if f := s.handshake(ctx, c, policy); f != nil {
			return nil, f
		}
	}
	r, err := s.receive(s.timeouts.Greeting)
	if f := s.checkReply(stageHello, 2, r, err); f != nil {
		return nil, f
	}
	if f := s.hello(cmp.Or(c.Helo, c.Hostname)); f != nil {
		return nil, f
	}
	if f := s.startTLS(ctx, c, policy); f != nil {
		return nil, f
	}
	if h.username != "" {
		if f := s.login(h.username, h.password); f != nil {
			return nil, f
		}
	}
	return s, nil
}

// closeWhenDone makes the end of ctx close the connection, until s.unbind is called.
func (s *session) closeWhenDone(ctx context.Context) {
	s.unbind = context.AfterFunc(ctx, func() { s.raw.Close() })
}

// hello sends EHLO, or HELO if the host refuses EHLO (RFC 5321 §3.2).
func (s *session) hello(name string) *failure {
	if name == "" {
		name = "localhost"
	}
	r, err := s.command("EHLO " + name)
	if err == nil && r.class() == 2 {
		s.ext = parseExtensions(r.lines)
		return nil
	}
	if err == nil && r.class() == 5 {
		s.ext = extensions{}
		r, err = s.command("HELO " + name)
	}
	return s.checkReply(stageHello, 2, r, err)
}

func parseExtensions(lines []string) extensions {
	var x extensions
	for _, line := range lines[1:] {
		words := strings.Fields(strings.ToUpper(strings.Replace(line, "=", " ", 1))) // old servers send "AUTH=LOGIN"
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "STARTTLS":
			x.startTLS = true
		case "PIPELINING":
			x.pipelining = true
		case "8BITMIME":
			x.eightBit = true
		case "SMTPUTF8":
			x.utf8 = true
		case "DSN":
			x.dsn = true
		case "REQUIRETLS":
			x.requireTLS = true
		case "CHUNKING":
			x.chunking = true
		case "AUTH":
			x.auth = append(x.auth, words[1:]...)
		case "SIZE":
			x.size = true
			if len(words) > 1 {
				x.maxSize, _ = strconv.ParseInt(words[1], 10, 64) // an invalid limit counts as no limit
			}
		}
	}
	return x
}

// startTLS does STARTTLS (RFC 3207) if the policy wants TLS and the host offers it.
func (s *session) startTLS(ctx context.Context, c *Client, policy tlsPolicy) *failure {
	switch {
	case policy == tlsNone || policy == tlsImplicit:
		return nil
	case !s.ext.startTLS && policy.requiresTLS():
		return &failure{stage: stageHello, err: fmt.Errorf("%s: %w", s.hop.host, errNoTLS), enhanced: "4.7.4", tls: tlsResult(errNoTLS)}
	case !s.ext.startTLS:
		return nil
	}
	r, err := s.command("STARTTLS")
	if f := s.checkReply(stageHello, 2, r, err); f != nil {
		if policy == tlsOpportunistic && !s.broken {
			return nil // refused: continue in plain text (RFC 3207 §4)
		}
		f.handshake, f.tls = err != nil, tlsrpt.Failed
		if f.err == nil && !s.hop.relay { // keep the reply code out, since it is not about the message
			f.err, f.enhanced, f.reply = fmt.Errorf("%s: %w: %s", s.hop.host, errTLSRefused, r), "4.7.4", reply{}
		}
		return f
	}
	if s.br.Buffered() > 0 { // replies before the handshake can only come from an attacker
		s.broken = true
		return &failure{stage: stageHello, err: fmt.Errorf("%s: after STARTTLS: %w", s.hop.host, errUnsolicited), enhanced: "4.7.0"}
	}
	if f := s.handshake(ctx, c, policy); f != nil {
		return f
	}
	f := s.hello(cmp.Or(c.Helo, c.Hostname))
	if f != nil && f.err != nil {
		f.handshake, f.tls = true, tlsrpt.Failed // with TLS 1.3 the server may refuse the handshake only at this point
	}
	return f
}

// handshake does the TLS handshake and continues the session over TLS.
func (s *session) handshake(ctx context.Context, c *Client, policy tlsPolicy) *failure {
	ctx, cancel := context.WithTimeout(ctx, s.timeouts.TLS)
	defer cancel()
	s.raw.SetDeadline(time.Now().Add(s.timeouts.TLS))
	conn := tls.Client(s.raw, c.tlsConfig(s.hop, policy))
	if err := conn.HandshakeContext(ctx); err != nil {
		s.broken = true
		return &failure{stage: stageHello, err: fmt.Errorf("TLS with %s: %w", s.hop.host, err), enhanced: "4.7.5", handshake: true, tls: tlsResult(err)}
	}
	s.conn, s.br = conn, bufio.NewReaderSize(conn, maxReplyLine)
	s.recordTLS(c, policy, conn.ConnectionState())
	return nil
}

// command sends one line and reads its reply.
func (s *session) command(line string) (reply, error) {
	if err := s.send(line + "\r\n"); err != nil {
		return reply{}, err
	}
	return s.receive(s.timeouts.Command)
}

// send writes complete command lines. It fails if there is unread data from the host, since replies
// would then be matched to the wrong commands.
func (s *session) send(lines string) error {
	if s.br.Buffered() > 0 {
		s.broken = true
		return errUnsolicited
	}
	s.conn.SetDeadline(time.Now().Add(s.timeouts.Command))
	if _, err := s.conn.Write([]byte(lines)); err != nil {
		s.broken = true
		return err
	}
	return nil
}

// receive reads one reply. limit is for the whole reply, so that a host cannot extend it by sending
// slowly.
func (s *session) receive(limit time.Duration) (reply, error) {
	s.conn.SetDeadline(time.Now().Add(limit))
	r, err := readReply(s.br)
	if err == io.EOF {
		err = errClosed
	}
	s.broken = s.broken || err != nil
	return r, err
}

// checkReply returns nil if the reply has the given class (first digit), and a failure for another
// reply or an error.
func (s *session) checkReply(at stage, class int, r reply, err error) *failure {
	switch {
	case err != nil:
		return connectionLostFailure(at, fmt.Errorf("%s: %w", s.hop.host, err))
	case r.class() == class:
		return nil
	case r.class() == 4 || r.class() == 5:
		s.broken = s.broken || r.code == 421
		return &failure{stage: at, reply: r}
	}
	s.broken = true
	return &failure{stage: at, err: fmt.Errorf("%s: unexpected reply: %s", s.hop.host, r), enhanced: "4.5.0"}
}

// closeSession closes a session. If the session is intact, it sends QUIT first, but does not wait
// for the reply.
func (c *Client) closeSession(s *session) {
	if s.unbind() && !s.broken {
		s.quit()
	}
	s.raw.Close()
}

// quit sends QUIT and closes the connection.
func (s *session) quit() {
	s.conn.SetDeadline(time.Now().Add(time.Second))
	s.conn.Write([]byte("QUIT\r\n"))
	s.raw.Close()
}

// withCause adds the cause of the end of ctx to err. It returns err unchanged if ctx has not ended.
func withCause(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
}
