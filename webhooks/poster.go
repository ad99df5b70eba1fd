package webhooks

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/netguard"
)

// What can become of an attempt, as the delivery log shows it.
const (
	Success = "success"
	Failed  = "failed"
)

// Why an attempt failed, as the delivery log shows it.
const (
	CodeTimeout        = "timeout"         // no complete answer head in time
	CodeDNS            = "dns"             // the name does not resolve
	CodeConnect        = "connect"         // no connection, or it broke or was not HTTP before an answer
	CodeTLS            = "tls"             // the handshake failed, the certificate included
	CodeHTTPStatus     = "http_status"     // an answer other than 2xx; redirects too
	CodeBlockedAddress = "blocked_address" // the Guard refuses the URL or every address of its host
)

const (
	defaultTimeout   = 10 * time.Second
	defaultUserAgent = "Mailstead"
	excerptLimit     = 1 << 10
	errorLimit       = 512
	windowLimit      = 64 << 10 // HTTP/2 flow control: a receiver may send this much unasked
	idleConns        = 64
	idleConnsPerHost = 2
	idleTimeout      = 30 * time.Second
	pingTimeout      = 5 * time.Second
)

var errTLS = errors.New("TLS handshake failed")

// Delivery is one attempt to bring one event to one endpoint.
type Delivery struct {
	URL        string   // https
	Secrets    []string // current first; two while a rotation is recent
	EventID    string   // the same in every attempt: receivers drop what they have seen
	EventType  string
	DeliveryID string
	Attempt    int    // 1 is the first
	Body       []byte // the JSON envelope, sent and signed as it is
}

// Result is what became of a Delivery.
type Result struct {
	Outcome    string // Success or Failed
	HTTPStatus int    // 0: there was no answer
	Error      string // a sentence for people, at most 512 bytes; empty on success
	ErrorCode  string // one of the Code constants; empty on success and when the caller's context was cancelled
	Duration   time.Duration
	Excerpt    string // the beginning of the answer's body: at most 1 KiB, valid UTF-8
	Gone       bool   // 410: the receiver wants no more deliveries
}

// Poster posts deliveries over connections that it keeps and reuses. The fields are set before the
// first Post; the zero value posts to public addresses with the system's resolver and roots. It is
// safe for concurrent use.
//
// Connections per host are not bounded here, since tenants share hosts and one's slow receiver
// would hold the others' up: the caller bounds deliveries per endpoint.
type Poster struct {
	Guard     *netguard.Guard
	Resolver  netguard.Resolver
	RootCAs   *x509.CertPool
	Timeout   time.Duration // for look-up, connection, handshake, request and answer together; 0 is 10 s
	Now       func() time.Time
	UserAgent string

	once      sync.Once
	transport *http.Transport
}

// Post makes one attempt: a POST signed for this moment. It follows no redirect, uses no proxy,
// reads at most 1 KiB of the answer's body, and returns within Timeout. The answer's status
// decides: a body that breaks or never ends changes nothing.
func (p *Poster) Post(ctx context.Context, d Delivery) Result {
	start := time.Now()
	result := p.exchange(ctx, d, p.now())
	result.Duration = time.Since(start)
	return result
}

// Close closes the connections that no delivery is using.
func (p *Poster) Close() { p.connections().CloseIdleConnections() }

func (p *Poster) exchange(ctx context.Context, d Delivery, now time.Time) Result {
	if err := p.Guard.CheckURL(d.URL); err != nil {
		return failed(CodeBlockedAddress, err.Error())
	}
	limited, cancel := context.WithTimeout(ctx, p.timeout())
	defer cancel()
	req, err := http.NewRequestWithContext(limited, http.MethodPost, d.URL, bytes.NewReader(d.Body))
	if err != nil {
		return failed(CodeBlockedAddress, err.Error())
	}
	req.Header = Headers(d, now)
	req.Header.Set("User-Agent", cmp.Or(p.UserAgent, defaultUserAgent))
	// Present but empty, this key is not sent: it lets the transport repeat the request when a kept
	// connection turns out to be dead, which is no worse than the retry that would follow.
	req.Header["Idempotency-Key"] = []string{}
	// RoundTrip rather than Client.Do: the latter fails on a redirect with a bad Location, though
	// none is followed.
	resp, err := p.connections().RoundTrip(req)
	if err != nil {
		return p.failure(ctx, limited, err)
	}
	defer resp.Body.Close()
	// One byte more than is shown, so that a body of just the limit is seen to end and its
	// connection can be kept.
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, excerptLimit+1)) // the status has decided; see Post
	return answered(resp.StatusCode, clip(string(raw), excerptLimit))
}

func answered(status int, excerpt string) Result {
	result := Result{Outcome: Success, HTTPStatus: status, Excerpt: excerpt}
	if status >= 200 && status <= 299 {
		return result
	}
	result.Outcome, result.ErrorCode = Failed, CodeHTTPStatus
	result.Gone = status == http.StatusGone
	result.Error = fmt.Sprintf("the receiver answered %d", status)
	if status >= 300 && status <= 399 {
		result.Error += "; redirects are not followed"
	}
	return result
}

func (p *Poster) failure(ctx, limited context.Context, err error) Result {
	switch {
	case errors.Is(err, netguard.ErrBlocked):
		return failed(CodeBlockedAddress, err.Error())
	case errors.Is(ctx.Err(), context.Canceled):
		return failed("", "the delivery was interrupted before an answer")
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		return failed(CodeTimeout, fmt.Sprintf("no answer within %s", p.timeout()))
	case errors.Is(err, netguard.ErrResolve):
		return failed(CodeDNS, reason(err))
	case timedOut(err):
		return failed(CodeTimeout, "the connection timed out")
	case errors.Is(err, errTLS):
		return failed(CodeTLS, reason(err))
	default:
		return failed(CodeConnect, reason(err))
	}
}

func failed(code, text string) Result {
	return Result{Outcome: Failed, ErrorCode: code, Error: clip(text, errorLimit)}
}

// timedOut is about limits other than the delivery's: the kernel's, and that of a dial begun for an
// earlier delivery.
func timedOut(err error) bool {
	var limit net.Error
	return errors.As(err, &limit) && limit.Timeout()
}

// reason is err without the addresses of this machine and its resolver, which are not the tenant's
// to know.
func reason(err error) string {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return dns.Name + ": " + dns.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err.Error()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the connection was closed without an answer"
	}
	return err.Error()
}

// clip cuts s to at most limit bytes of valid UTF-8, between characters.
func clip(s string, limit int) string {
	cut := len(s) > limit
	if cut {
		s = s[:limit]
		s = s[:len(s)-partial(s)]
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	for len(s) > limit { // replacements are longer than what they replace
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// partial is how many bytes at the end of s begin a character that is not all there.
func partial(s string) int {
	for n := 1; n < utf8.UTFMax && n <= len(s); n++ {
		tail := s[len(s)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRuneInString(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

func (p *Poster) connections() *http.Transport {
	p.once.Do(func() {
		t := p.Guard.Transport(p.Resolver, p.RootCAs)
		t.DialTLSContext = p.dialTLS(t.DialContext)
		t.ForceAttemptHTTP2 = true
		t.HTTP2 = &http.HTTP2Config{
			MaxReceiveBufferPerConnection: windowLimit, MaxReceiveBufferPerStream: windowLimit,
			SendPingTimeout: pingTimeout, PingTimeout: pingTimeout,
		}
		t.DisableCompression = true // the log shows what the receiver sent
		t.MaxIdleConns, t.MaxIdleConnsPerHost, t.IdleConnTimeout = idleConns, idleConnsPerHost, idleTimeout
		p.transport = t
	})
	return p.transport
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialTLS marks the errors of the handshake, so that they can be told from those of the connection.
// The transport lets a dial outlive its request and serve the next, so it has its own limit, which
// comes after the request's.
func (p *Poster) dialTLS(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*p.timeout())
		defer cancel()
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("dial %s: %w", addr, err)
		}
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(raw, &tls.Config{
			ServerName: host,
			RootCAs:    p.RootCAs,
			MinVersion: tls.VersionTLS12,
			NextProtos: []string{"h2", "http/1.1"},
		})
		if err := conn.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, fmt.Errorf("%w: %w", errTLS, err)
		}
		return conn, nil
	}
}

func (p *Poster) timeout() time.Duration {
	if p.Timeout > 0 {
		return p.Timeout
	}
	return defaultTimeout
}

func (p *Poster) now() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}
