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

// Values of Result.Outcome, as the delivery log shows them.
const (
	Success = "success"
	Failed  = "failed"
)

// Values of Result.ErrorCode, as the delivery log shows them.
const (
	CodeTimeout        = "timeout"         // there was no complete response header in time
	CodeDNS            = "dns"             // the host name could not be resolved
	CodeConnect        = "connect"         // there was no connection, or no HTTP response on it
	CodeTLS            = "tls"             // the TLS handshake failed, or the certificate is not valid
	CodeHTTPStatus     = "http_status"     // the status of the response was not 2xx
	CodeBlockedAddress = "blocked_address" // Poster.Guard refuses the URL or all addresses of its host
)

const (
	defaultTimeout   = 10 * time.Second
	defaultUserAgent = "Mailstead"
	excerptLimit     = 1 << 10          // maximum length of Result.Excerpt in bytes
	errorLimit       = 512              // maximum length of Result.Error in bytes
	windowLimit      = 64 << 10         // size in bytes of HTTP/2 flow control windows
	idleConns        = 64               // maximum number of idle connections
	idleConnsPerHost = 2                // maximum number of idle connections to one host
	idleTimeout      = 30 * time.Second // after which idle connections are closed
	pingTimeout      = 5 * time.Second  // for HTTP/2 pings, which find dead connections
)

// errTLS wraps errors of TLS handshakes.
var errTLS = errors.New("TLS handshake failed")

// Delivery is one attempt to deliver an event to an endpoint.
type Delivery struct {
	URL        string   // an https URL
	Secrets    []string // secrets of the endpoint, the current one first; two after a rotation
	EventID    string   // the same in every attempt, so that receivers can ignore duplicates
	EventType  string
	DeliveryID string
	Attempt    int    // number of the attempt, from 1
	Body       []byte // JSON, which is sent and signed unchanged
	// Header fields of the endpoint, which are sent unchanged. Their names and values have passed
	// CheckHeaderName and CheckHeaderValue.
	Headers map[string]string
}

// Result is the result of a Delivery.
type Result struct {
	Outcome    string // Success or Failed
	HTTPStatus int    // 0 if there was no response
	Error      string // a text for people of at most 512 bytes; "" on success
	ErrorCode  string // such as CodeDNS; "" on success, and if the caller canceled the context
	Duration   time.Duration
	Excerpt    string // up to 1 KiB of the response body, in valid UTF-8, without values of Delivery.Headers
	Gone       bool   // whether the status was 410: the receiver wants no more deliveries
}

// Poster posts deliveries over HTTPS and reuses connections. Set the fields before the first Post.
// The zero value posts only to public addresses. Poster is safe for concurrent use.
//
// Poster does not limit the number of connections to a host. Otherwise one slow endpoint would
// delay other endpoints on the same host. The caller must limit deliveries per endpoint.
type Poster struct {
	Guard     *netguard.Guard   // decides which addresses are allowed; nil allows public addresses
	Resolver  netguard.Resolver // nil means the system's resolver
	RootCAs   *x509.CertPool    // nil means the system's
	Timeout   time.Duration     // for one attempt, from lookup to response; 0 means 10 seconds
	Now       func() time.Time  // nil means time.Now
	UserAgent string            // "" means "Mailstead"

	once      sync.Once
	transport *http.Transport
}

// Post makes one attempt: it sends a signed POST request. It follows no redirects, uses no proxy,
// reads up to 1 KiB of the response body, and returns within Timeout. Only the status of the
// response decides the outcome, even if reading the body fails.
func (p *Poster) Post(ctx context.Context, d Delivery) Result {
	start := time.Now()
	result := p.exchange(ctx, d, p.now())
	result.Duration = time.Since(start)
	return result
}

// Close closes the idle connections.
func (p *Poster) Close() { p.sharedTransport().CloseIdleConnections() }

// exchange sends the request of a delivery and returns the result without its duration.
func (p *Poster) exchange(ctx context.Context, d Delivery, now time.Time) Result {
	if err := p.Guard.CheckURL(d.URL); err != nil {
		return failedResult(CodeBlockedAddress, err.Error())
	}
	limited, cancel := context.WithTimeout(ctx, p.timeout())
	defer cancel()
	req, err := http.NewRequestWithContext(limited, http.MethodPost, d.URL, bytes.NewReader(d.Body))
	if err != nil {
		return failedResult(CodeBlockedAddress, err.Error())
	}
	req.Header = Headers(d, now)
	req.Header.Set("User-Agent", cmp.Or(p.UserAgent, defaultUserAgent))
	// This key without values is not sent. It allows the transport to send the request again if a
	// reused connection is dead. Receivers must ignore duplicates anyway.
	req.Header["Idempotency-Key"] = []string{}
	for name, value := range d.Headers {
		req.Header.Set(name, value)
	}
	// Client.Do would return an error for a redirect with an invalid Location, even if it does not
	// follow redirects.
	resp, err := p.sharedTransport().RoundTrip(req)
	if err != nil {
		return p.errorResult(ctx, limited, err)
	}
	defer resp.Body.Close()
	// Read one byte more than the limit, so that the connection can be reused if the body has
	// exactly the length of the limit.
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, excerptLimit+1)) // only the status decides the outcome
	excerpt := hideHeaders(string(raw), d.Headers, len(raw) > excerptLimit)
	return responseResult(resp.StatusCode, clipText(excerpt, excerptLimit))
}

// responseResult returns the result for a response.
func responseResult(status int, excerpt string) Result {
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

// errorResult returns the result for an error of the transport. ctx is the context of the caller,
// and limited is ctx with the timeout.
func (p *Poster) errorResult(ctx, limited context.Context, err error) Result {
	switch {
	case errors.Is(err, netguard.ErrBlocked):
		return failedResult(CodeBlockedAddress, err.Error())
	case errors.Is(ctx.Err(), context.Canceled):
		return failedResult("", "the delivery was interrupted before an answer")
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		return failedResult(CodeTimeout, fmt.Sprintf("no answer within %s", p.timeout()))
	case errors.Is(err, netguard.ErrResolve):
		return failedResult(CodeDNS, tenantText(err))
	case isTimeout(err):
		return failedResult(CodeTimeout, "the connection timed out")
	case errors.Is(err, errTLS):
		return failedResult(CodeTLS, tenantText(err))
	default:
		return failedResult(CodeConnect, tenantText(err))
	}
}

func failedResult(code, text string) Result {
	return Result{Outcome: Failed, ErrorCode: code, Error: clipText(text, errorLimit)}
}

// isTimeout reports whether err is a timeout of the network, such as that of the kernel or of a
// dial that an earlier delivery started.
func isTimeout(err error) bool {
	var limit net.Error
	return errors.As(err, &limit) && limit.Timeout()
}

// tenantText returns the text of err for tenants. It leaves out addresses of this machine and of
// its resolver.
func tenantText(err error) string {
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

// clipText shortens s to at most limit bytes at a character boundary, and makes it valid UTF-8.
func clipText(s string, limit int) string {
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

// incompleteTail returns the length in bytes of an incomplete character at the end of s, or 0 if
// there is none.
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

// sharedTransport returns the transport of all deliveries, and makes it at the first call.
func (p *Poster) sharedTransport() *http.Transport {
	p.once.Do(func() {
		t := p.Guard.Transport(p.Resolver, p.RootCAs)
		t.DialTLSContext = p.dialTLS(t.DialContext)
		t.ForceAttemptHTTP2 = true
		t.HTTP2 = &http.HTTP2Config{
			MaxReceiveBufferPerConnection: windowLimit, MaxReceiveBufferPerStream: windowLimit,
			SendPingTimeout: pingTimeout, PingTimeout: pingTimeout,
		}
		t.DisableCompression = true // the delivery log shows the body as it was sent
		t.MaxIdleConns, t.MaxIdleConnsPerHost, t.IdleConnTimeout = idleConns, idleConnsPerHost, idleTimeout
		p.transport = t
	})
	return p.transport
}

// A dialFunc opens a network connection, as http.Transport.DialContext does.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialTLS returns a function that opens a TLS connection over dial. Errors of the handshake wrap
// errTLS. A dial may take 2*Timeout, because the transport continues it after its request has
// ended, for the next request.
func (p *Poster) dialTLS(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*p.timeout())
		defer cancel()
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("parse address %s: %w", addr, err)
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
