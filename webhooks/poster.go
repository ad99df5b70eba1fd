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

// Outcomes of an attempt, as shown in the delivery log.
const (
	Success = "success"
	Failed  = "failed"
)

// Reasons why an attempt failed, as shown in the delivery log.
const (
	CodeTimeout        = "timeout"         // no complete response header in time
	CodeDNS            = "dns"             // the name does not resolve
	CodeConnect        = "connect"         // no connection, or it broke or was not HTTP before a response
	CodeTLS            = "tls"             // the handshake or the verification of the certificate failed
	CodeHTTPStatus     = "http_status"     // a response other than 2xx, including redirects
	CodeBlockedAddress = "blocked_address" // Guard refuses the URL or every address of its host
)

const (
	defaultTimeout   = 10 * time.Second
	defaultUserAgent = "Mailstead"
	excerptLimit     = 1 << 10
	errorLimit       = 512
	windowLimit      = 64 << 10 // HTTP/2 flow control: maximum bytes that a receiver may send ahead
	idleConns        = 64
	idleConnsPerHost = 2
	idleTimeout      = 30 * time.Second
	pingTimeout      = 5 * time.Second
)

var errTLS = errors.New("TLS handshake failed")

// Delivery is one attempt to deliver one event to one endpoint.
type Delivery struct {
	URL        string   // https
	Secrets    []string // current one first; two for some time after a rotation
	EventID    string   // the same in every attempt, so that receivers can drop duplicates
	EventType  string
	DeliveryID string
	Attempt    int    // 1 is the first
	Body       []byte // the JSON envelope, sent and signed unchanged
}

// Result is the result of a Delivery.
type Result struct {
	Outcome    string // Success or Failed
	HTTPStatus int    // 0 if there was no response
	Error      string // a sentence for people, at most 512 bytes; empty on success
	ErrorCode  string // one of the Code constants; empty on success and when the caller's context was cancelled
	Duration   time.Duration
	Excerpt    string // the beginning of the response body: at most 1 KiB, valid UTF-8
	Gone       bool   // 410: the receiver wants no more deliveries
}

// Poster posts deliveries and reuses its connections. The fields are set before the first Post. The
// zero value posts to public addresses with the system's resolver and root certificates. It is safe
// for concurrent use.
//
// Poster does not limit connections per host: tenants share hosts, and one tenant's slow receiver
// would delay the others. The caller must limit deliveries per endpoint.
type Poster struct {
	Guard     *netguard.Guard
	Resolver  netguard.Resolver
	RootCAs   *x509.CertPool
	Timeout   time.Duration // total for look-up, connection, handshake, request and response; 0 is 10 s
	Now       func() time.Time
	UserAgent string

	once      sync.Once
	transport *http.Transport
}

// Post makes one attempt: a POST signed with the current time. It follows no redirect, uses no
// proxy, reads at most 1 KiB of the response body, and returns within Timeout. Only the response
// status decides the outcome, even if the body breaks off or never ends.
func (p *Poster) Post(ctx context.Context, d Delivery) Result {
	start := time.Now()
	result := p.exchange(ctx, d, p.now())
	result.Duration = time.Since(start)
	return result
}

// Close closes the idle connections.
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
	// With an empty list the header is not sent, but its key allows the transport to repeat the
	// request when a reused connection turns out to be dead. That does no more harm than a later
	// retry.
	req.Header["Idempotency-Key"] = []string{}
	// RoundTrip instead of Client.Do, since Do fails on a redirect with an invalid Location even if
	// redirects are not followed.
	resp, err := p.connections().RoundTrip(req)
	if err != nil {
		return p.failure(ctx, limited, err)
	}
	defer resp.Body.Close()
	// Read one byte more than is shown. So the end of a body of exactly the limit is seen, and its
	// connection can be reused.
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, excerptLimit+1)) // only the status decides; see Post
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

// timedOut reports whether err is a timeout. It finds timeouts other than the delivery's own: the
// kernel's, and that of a dial started for an earlier delivery.
func timedOut(err error) bool {
	var limit net.Error
	return errors.As(err, &limit) && limit.Timeout()
}

// reason returns the text of err without the addresses of this machine and its resolver, which
// tenants must not see.
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

// clip shortens s to at most limit bytes of valid UTF-8, at a character boundary.
func clip(s string, limit int) string {
	cut := len(s) > limit
	if cut {
		s = s[:limit]
		s = s[:len(s)-incompleteTail(s)]
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	for len(s) > limit { // a replacement character is longer than the invalid byte
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// incompleteTail returns the length of an incomplete character at the end of s, 0 if there is none.
func incompleteTail(s string) int {
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
		t.DisableCompression = true // the log shows the body as the receiver sent it
		t.MaxIdleConns, t.MaxIdleConnsPerHost, t.IdleConnTimeout = idleConns, idleConnsPerHost, idleTimeout
		p.transport = t
	})
	return p.transport
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialTLS wraps errors of the handshake in errTLS, to distinguish them from errors of the
// connection. A dial has its own, longer time limit, since the transport may continue it after its
// request has ended and use it for the next one.
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
