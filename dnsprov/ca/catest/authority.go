// Package catest is a certificate authority for tests: strict about ACME (RFC 8555), and
// ill-mannered where it is told to. It does not know who asks it.
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

// Manners are how an Authority behaves; the zero value behaves well.
type Manners struct {
	Down       int               // answers with this status to everything, if it is not 0
	RetryAfter string            // with Down, and with Limited
	Garbage    bool              // answers 200 with a page of HTML
	Endless    bool              // answers 200 with a body that never ends
	StaleNonce int               // refuses every so manieth nonce
	Limited    bool              // takes no new orders
	Rejects    map[string]string // names that no order may hold, and why
	Refuses    map[string]string // names that no challenge proves, and why
	Stuck      bool              // orders stay in processing
	ForOthers  bool              // certificates are for other names
	Expired    bool              // certificates are valid no more
	OtherKey   bool              // certificates are for another key
	Unchained  bool              // certificates are not signed by what comes behind them
	Life       time.Duration     // of certificates; 90 days if 0
}

// An Authority answers at URL. Look says what the world sees of a challenge: the body of the
// http-01 file of a token, or the text of the dns-01 record of a name.
type Authority struct {
	URL  string
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
	counted  int // nonces
	issued   int
}

type order struct {
	names   []string
	status  string
	account string
	authz   []*authz
	chain   []byte
}

type authz struct {
	name, status string
	tried, why   string            // the kind of challenge, and what was wrong with it
	tokens       map[string]string // by kind
}

// New starts an authority that lives as long as the test.
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

// Roots vouch for the authority's own HTTPS.
func (a *Authority) Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.server.Certificate())
	return pool
}

// Certificate is that of its own HTTPS.
func (a *Authority) Certificate() *x509.Certificate { return a.server.Certificate() }

// Client is an HTTP client's way to the authority.
func (a *Authority) Client() http.RoundTripper { return a.server.Client().Transport }

// Behave changes its manners.
func (a *Authority) Behave(change func(*Manners)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.manners)
}

// Orders lists the names of every order that was taken.
func (a *Authority) Orders() [][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out [][]string
	for _, o := range a.orders {
		out = append(out, o.names)
	}
	return out
}

// Issued is how many certificates were made.
func (a *Authority) Issued() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.issued
}

// Unstick lets the orders that are stuck come to their end.
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

// ForgetAccounts has the authority know nobody any more.
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

// ServeHTTP answers one request.
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
	w.Header().Set("Replay-Nonce", a.nonce())
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/dir" && r.Method == http.MethodGet:
		base := a.server.URL
		a.answer(w, 200, map[string]any{
			"newNonce": base + "/nonce", "newAccount": base + "/account", "newOrder": base + "/order",
			"meta": map[string]any{"termsOfService": base + "/terms", "caaIdentities": []string{"ca.test"}},
		})
	case r.URL.Path == "/nonce" && r.Method == http.MethodHead:
	case r.Method == http.MethodPost:
		a.post(w, r)
	default:
		a.problem(w, 405, "malformed", r.Method+" "+r.URL.Path)
	}
}

func (a *Authority) nonce() string {
	text := make([]byte, 12)
	_, _ = rand.Read(text)
	n := fmt.Sprintf("%x", text)
	a.nonces[n] = true
	return n
}

func (a *Authority) answer(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (a *Authority) problem(w http.ResponseWriter, status int, kind, detail string, names ...string) {
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
	a.answer(w, status, p)
}

// post takes a signed request to where it belongs.
func (a *Authority) post(w http.ResponseWriter, r *http.Request) {
	account, payload, why := a.open(r)
	switch {
	case why == "badNonce":
		a.problem(w, 400, why, "that nonce is not one of ours")
		return
	case why == "accountDoesNotExist":
		a.problem(w, 400, why, "nobody has that account")
		return
	case why != "":
		a.problem(w, 400, "malformed", why)
		return
	}
	var i, j int
	switch path := r.URL.Path; {
	case path == "/account":
		w.Header().Set("Location", account)
		a.answer(w, 201, map[string]string{"status": "valid"})
	case path == "/order":
		a.newOrder(w, account, payload)
	case scan(path, "/order/%d", &i) && a.has(i, account):
		a.showOrder(w, 200, i)
	case scan(path, "/finalize/%d", &i) && a.has(i, account):
		a.finalize(w, i, payload)
	case scan(path, "/cert/%d", &i) && a.has(i, account) && a.orders[i].status == "valid":
		w.Header().Set("Content-Type", "application/pem-certificate-chain")
		_, _ = w.Write(a.orders[i].chain)
	case scan(path, "/authz/%d/%d", &i, &j) && a.has(i, account) && j < len(a.orders[i].authz):
		a.showAuthz(w, i, j)
	case scan(path, "/http-01/%d/%d", &i, &j) && a.has(i, account) && j < len(a.orders[i].authz):
		a.look(w, "http-01", i, j)
	case scan(path, "/dns-01/%d/%d", &i, &j) && a.has(i, account) && j < len(a.orders[i].authz):
		a.look(w, "dns-01", i, j)
	default:
		a.problem(w, 404, "malformed", "there is no "+path)
	}
}

func (a *Authority) has(i int, account string) bool {
	return i >= 0 && i < len(a.orders) && a.orders[i].account == account
}

func scan(path, form string, into ...any) bool {
	n, err := fmt.Sscanf(path, form, into...)
	return err == nil && n == len(into)
}

func (a *Authority) encodeChain(ders ...[]byte) []byte {
	var out []byte
	for _, der := range ders {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return out
}
