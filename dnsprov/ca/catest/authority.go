// Package catest is a certificate authority for tests. It follows ACME (RFC 8555) strictly, and can
// fail in ways that the test chooses. It does not know its clients.
package catest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Manners says how an Authority fails. The zero value does not fail.
type Manners struct {
	Down       int               // status of every answer; 0 for normal answers
	RetryAfter string            // the Retry-After header if Down or Limited is set
	Garbage    bool              // every answer is 200 with a page of HTML
	Endless    bool              // every answer is 200 with a body that never ends
	StaleNonce int               // refuse every StaleNonce-th nonce; 0 refuses none
	Limited    bool              // refuse new orders because of a rate limit
	Rejects    map[string]string // refuse orders with these names; the values are the reasons
	Refuses    map[string]string // fail the challenges of these names; the values are the reasons
	Stuck      bool              // orders stay in the status processing
	ForOthers  bool              // issue certificates for other names
	Expired    bool              // issue certificates that have expired
	OtherKey   bool              // issue certificates for another key
	Unchained  bool              // issue certificates that the next one in the chain has not signed
	Life       time.Duration     // validity of certificates; 0 means 90 days
}

// An Authority is a certificate authority that serves ACME.
type Authority struct {
	URL string // the directory URL
	// Look returns what is published for a challenge: the body of the http-01 file of a token, or
	// the text of the dns-01 record of a name.
	Look func(kind, name, token string) string
	Now  func() time.Time

	mu       sync.Mutex
	manners  Manners
	server   *httptest.Server
	key      *ecdsa.PrivateKey
	root     *x509.Certificate
	nonces   map[string]bool
	accounts map[string]*ecdsa.PublicKey // by URL
	orders   []*order
	counted  int // number of nonces that were used
	issued   int // number of certificates that were issued
}

// An order is an ACME order.
type order struct {
	names   []string
	status  string
	account string
	authz   []*authz
	chain   []byte
}

// An authz is an ACME authorization of one name.
type authz struct {
	name, status string
	tried, why   string            // the kind of the last challenge, and why it failed
	tokens       map[string]string // tokens by kind of challenge
}

// New starts an authority that runs until the test ends.
func New(t testing.TB) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &Authority{Now: time.Now, key: key, nonces: map[string]bool{}, accounts: map[string]*ecdsa.PublicKey{}}
	a.root, err = a.makeRoot()
	if err != nil {
		t.Fatal(err)
	}
	a.server = httptest.NewTLSServer(a)
	t.Cleanup(a.server.Close)
	a.URL = a.server.URL + "/dir"
	return a
}

// Roots returns a pool with the certificate of the authority's HTTPS server.
func (a *Authority) Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.server.Certificate())
	return pool
}

// Certificate returns the certificate of the authority's HTTPS server.
func (a *Authority) Certificate() *x509.Certificate { return a.server.Certificate() }

// Client returns an HTTP transport that trusts the authority's HTTPS server.
func (a *Authority) Client() http.RoundTripper { return a.server.Client().Transport }

// Behave calls change with the present manners, so that it can change them.
func (a *Authority) Behave(change func(*Manners)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.manners)
}

// Orders returns the names of every accepted order.
func (a *Authority) Orders() [][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out [][]string
	for _, o := range a.orders {
		out = append(out, o.names)
	}
	return out
}

// Issued returns how many certificates were issued.
func (a *Authority) Issued() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.issued
}

// Unstick completes the orders that are in the status processing because of Stuck.
func (a *Authority) Unstick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.manners.Stuck = false
	for _, o := range a.orders {
		if o.status == "processing" {
			o.status = "valid"
		}
	}
}

// ForgetAccounts deletes all accounts.
func (a *Authority) ForgetAccounts() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.accounts)
}

func (a *Authority) makeRoot() (*x509.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "catest"}, NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(100, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// ServeHTTP answers one ACME request.
func (a *Authority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.manners
	switch {
	case m.Down != 0:
		w.Header().Set("Retry-After", m.RetryAfter)
		http.Error(w, "<html>down</html>", m.Down)
		return
	case m.Garbage:
		_, _ = w.Write([]byte("<html>" + strings.Repeat("garbage ", 1000)))
		return
	case m.Endless:
		for r.Context().Err() == nil {
			if _, err := w.Write([]byte(strings.Repeat(" ", 1<<16))); err != nil {
				return
			}
		}
		return
	}
	w.Header().Set("Replay-Nonce", a.newNonce())
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/dir" && r.Method == http.MethodGet:
		base := a.server.URL
		a.writeJSON(w, 200, map[string]any{
			"newNonce": base + "/nonce", "newAccount": base + "/account", "newOrder": base + "/order",
			"meta": map[string]any{"termsOfService": base + "/terms", "caaIdentities": []string{"ca.test"}},
		})
	case r.URL.Path == "/nonce" && r.Method == http.MethodHead:
	case r.Method == http.MethodPost:
		a.servePost(w, r)
	default:
		a.writeProblem(w, 405, "malformed", r.Method+" "+r.URL.Path)
	}
}

// newNonce returns a new nonce.
func (a *Authority) newNonce() string {
	text := make([]byte, 12)
	_, _ = rand.Read(text)
	n := fmt.Sprintf("%x", text)
	a.nonces[n] = true
	return n
}

func (a *Authority) writeJSON(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// writeProblem answers with a problem document, with a subproblem for each of the names.
func (a *Authority) writeProblem(w http.ResponseWriter, status int, kind, detail string, names ...string) {
	p := map[string]any{"type": "urn:ietf:params:acme:error:" + kind, "detail": detail, "status": status}
	var subs []any
	for _, name := range names {
		subs = append(subs, map[string]any{
			"type": p["type"], "detail": a.manners.Rejects[name], "identifier": map[string]string{"type": "dns", "value": name},
		})
	}
	if subs != nil {
		p["subproblems"] = subs
	}
	w.Header().Set("Content-Type", "application/problem+json")
	a.writeJSON(w, status, p)
}

// servePost verifies the signature of a request and performs the request.
func (a *Authority) servePost(w http.ResponseWriter, r *http.Request) {
	account, payload, why := a.verify(r)
	switch {
	case why == "badNonce":
		a.writeProblem(w, 400, why, "the nonce is unknown or was used before")
		return
	case why == "accountDoesNotExist":
		a.writeProblem(w, 400, why, "the account does not exist")
		return
	case why != "":
		a.writeProblem(w, 400, "malformed", why)
		return
	}
	var i, j int
	switch path := r.URL.Path; {
	case path == "/account":
		w.Header().Set("Location", account)
		a.writeJSON(w, 201, map[string]string{"status": "valid"})
	case path == "/order":
		a.newOrder(w, account, payload)
	case scanPath(path, "/order/%d", &i) && a.hasOrder(i, account):
		a.showOrder(w, 200, i)
	case scanPath(path, "/finalize/%d", &i) && a.hasOrder(i, account):
		a.finalize(w, i, payload)
	case scanPath(path, "/cert/%d", &i) && a.hasOrder(i, account) && a.orders[i].status == "valid":
		w.Header().Set("Content-Type", "application/pem-certificate-chain")
		_, _ = w.Write(a.orders[i].chain)
	case scanPath(path, "/authz/%d/%d", &i, &j) && a.hasOrder(i, account) && j < len(a.orders[i].authz):
		a.showAuthz(w, i, j)
	case scanPath(path, "/http-01/%d/%d", &i, &j) && a.hasOrder(i, account) && j < len(a.orders[i].authz):
		a.validate(w, "http-01", i, j)
	case scanPath(path, "/dns-01/%d/%d", &i, &j) && a.hasOrder(i, account) && j < len(a.orders[i].authz):
		a.validate(w, "dns-01", i, j)
	default:
		a.writeProblem(w, 404, "malformed", "there is no "+path)
	}
}

// hasOrder reports whether order i exists and belongs to an account.
func (a *Authority) hasOrder(i int, account string) bool {
	return i >= 0 && i < len(a.orders) && a.orders[i].account == account
}

// scanPath parses a path by a format of fmt.Sscanf, and reports whether it matches.
func scanPath(path, format string, into ...any) bool {
	n, err := fmt.Sscanf(path, format, into...)
	return err == nil && n == len(into)
}

func (a *Authority) encodeChain(ders ...[]byte) []byte {
	var out []byte
	for _, der := range ders {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return out
}
