package webhooks

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/netguard"
)

// authority is a certificate authority of the tests' own.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{cert, key, pool}
}

// issue makes a certificate for name that ends at notAfter.
func (a *authority) issue(t testing.TB, name string, notAfter time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: notAfter.Add(-2 * time.Hour), NotAfter: notAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// host is the name that every receiver goes by; the tests' resolver answers it with loopback.
const host = "hooks.example"

// zone is a resolver that answers from a table and counts the questions.
type zone struct {
	mu    sync.Mutex
	asked int
	hosts map[string][]string
}

func (z *zone) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked++
	texts, ok := z.hosts[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, Server: "10.9.8.7:53", IsNotFound: true}
	}
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, netip.MustParseAddr(text))
	}
	return out, nil
}

// resolverFunc is a resolver that misbehaves in a way of its own.
type resolverFunc func(ctx context.Context, network, host string) ([]netip.Addr, error)

func (f resolverFunc) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return f(ctx, network, host)
}

// world is what is outside in one test: an authority, a resolver and a poster that trusts them.
type world struct {
	ca     *authority
	zone   *zone
	poster *Poster
}

func newWorld(t testing.TB) *world {
	out := &world{ca: newAuthority(t), zone: &zone{hosts: map[string][]string{host: {"127.0.0.1"}}}}
	out.poster = &Poster{Guard: &netguard.Guard{AllowPrivate: true}, Resolver: out.zone, RootCAs: out.ca.pool, Timeout: 5 * time.Second}
	t.Cleanup(out.poster.Close)
	return out
}

func (out *world) tls(t testing.TB) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{out.ca.issue(t, host, time.Now().Add(time.Hour))}}
}

// serve starts an HTTPS receiver and returns its URL; with http2 it speaks nothing else.
func (out *world) serve(t testing.TB, http2 bool, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.TLS = out.tls(t)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that the posting side gave up
	server.EnableHTTP2 = http2
	server.StartTLS()
	t.Cleanup(server.Close)
	return at(server.Listener)
}

// raw starts a TLS listener that hands each connection to peer once the request's head is read.
func (out *world) raw(t testing.TB, peer func(conn net.Conn)) string {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", out.tls(t))
	if err != nil {
		t.Fatal(err)
	}
	accept(t, listener, func(conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			peer(conn)
		}
	})
	return at(listener)
}

// accept serves every connection of listener until the test ends, and waits for the last.
func accept(t testing.TB, listener net.Listener, peer func(net.Conn)) {
	var peers sync.WaitGroup
	peers.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			peers.Go(func() {
				defer conn.Close()
				peer(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		peers.Wait()
	})
}

func at(listener net.Listener) string {
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return "https://" + net.JoinHostPort(host, port) + "/hook?x=1"
}

func delivery(url string, secrets ...string) Delivery {
	if len(secrets) == 0 {
		secrets = []string{NewSecret()}
	}
	return Delivery{
		URL: url, Secrets: secrets, EventID: "evt_01", EventType: "email.received", DeliveryID: "dlv_01", Attempt: 2,
		Body: []byte(`{"id":"evt_01","object":"event","data":{"subject":"Grüße"}}`),
	}
}

// strict is a receiver that answers 400 with its reason unless the request is to the letter of the
// contract.
func strict(secret string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if complaint := complain(r, body, secret); complaint != "" {
			http.Error(w, complaint, http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, "ok over ", r.Proto)
	}
}

func complain(r *http.Request, body []byte, secret string) string {
	service, standard := verifies(r.Header, body, secret)
	stamp, err := strconv.ParseInt(r.Header.Get("X-Service-Timestamp"), 10, 64)
	age := time.Since(time.Unix(stamp, 0))
	envelope := struct{ ID string }{}
	switch {
	case r.Method != http.MethodPost || r.URL.RequestURI() != "/hook?x=1":
		return r.Method + " " + r.URL.RequestURI()
	case !service || !standard:
		return fmt.Sprintf("signatures: service %v, standard %v", service, standard)
	case err != nil || age < -5*time.Second || age > 5*time.Second:
		return fmt.Sprintf("timestamp %d: %v", stamp, err)
	case r.ContentLength != int64(len(body)) || json.Unmarshal(body, &envelope) != nil || envelope.ID != r.Header.Get("webhook-id"):
		return fmt.Sprintf("body %q of length %d", body, r.ContentLength)
	case r.Header.Get("X-Service-Event") != "email.received" || r.Header.Get("X-Service-Event-Id") != envelope.ID:
		return "event headers"
	case r.Header.Get("X-Service-Delivery") != "dlv_01" || r.Header.Get("X-Service-Attempt") != "2":
		return "delivery headers"
	case r.Header.Get("Content-Type") != "application/json" || r.UserAgent() != defaultUserAgent:
		return "content type or user agent " + r.UserAgent()
	case len(r.Header["Idempotency-Key"])+len(r.Header["Accept-Encoding"])+len(r.Header["Cookie"]) > 0:
		return "headers of no use"
	case !strings.HasPrefix(r.Host, host+":"):
		return "host " + r.Host
	}
	return ""
}
