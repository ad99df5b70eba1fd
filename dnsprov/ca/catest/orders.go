package catest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/acme"
)

func (a *Authority) newOrder(w http.ResponseWriter, account string, payload []byte) {
	if a.manners.Limited {
		w.Header().Set("Retry-After", a.manners.RetryAfter)
		a.writeProblem(w, 429, "rateLimited", "too many orders")
		return
	}
	var in struct {
		Identifiers []struct{ Type, Value string }
	}
	if err := json.Unmarshal(payload, &in); err != nil || len(in.Identifiers) == 0 {
		a.writeProblem(w, 400, "malformed", "no identifiers")
		return
	}
	o := &order{status: "pending", account: account}
	var rejected []string
	for _, id := range in.Identifiers {
		if id.Type != "dns" || strings.ToLower(id.Value) != id.Value || slices.Contains(o.names, id.Value) {
			a.writeProblem(w, 400, "malformed", "the identifiers are not a set of names")
			return
		}
		if a.manners.Rejects[id.Value] != "" {
			rejected = append(rejected, id.Value)
		}
		o.names = append(o.names, id.Value)
		o.authz = append(o.authz, &authz{name: id.Value, status: "pending", tokens: map[string]string{"http-01": a.newNonce(), "dns-01": a.newNonce()}})
	}
	if rejected != nil {
		a.writeProblem(w, 400, "rejectedIdentifier", "some names are refused", rejected...)
		return
	}
	a.orders = append(a.orders, o)
	a.showOrder(w, 201, len(a.orders)-1)
}

func (a *Authority) showOrder(w http.ResponseWriter, status, i int) {
	o, base := a.orders[i], a.server.URL
	out := map[string]any{"status": o.status, "finalize": fmt.Sprintf("%s/finalize/%d", base, i)}
	var ids, zs []any
	for j, name := range o.names {
		ids = append(ids, map[string]string{"type": "dns", "value": name})
		zs = append(zs, fmt.Sprintf("%s/authz/%d/%d", base, i, j))
	}
	out["identifiers"], out["authorizations"] = ids, zs
	if o.status == "valid" {
		out["certificate"] = fmt.Sprintf("%s/cert/%d", base, i)
	}
	w.Header().Set("Location", fmt.Sprintf("%s/order/%d", base, i))
	a.writeJSON(w, status, out)
}

func (a *Authority) showAuthz(w http.ResponseWriter, orderIndex, authzIndex int) {
	z := a.orders[orderIndex].authz[authzIndex]
	var chs []any
	for _, kind := range []string{"http-01", "dns-01"} {
		chs = append(chs, a.challenge(kind, orderIndex, authzIndex))
	}
	a.writeJSON(w, 200, map[string]any{"status": z.status, "identifier": map[string]string{"type": "dns", "value": z.name}, "challenges": chs})
}

func (a *Authority) challenge(kind string, orderIndex, authzIndex int) map[string]any {
	z := a.orders[orderIndex].authz[authzIndex]
	ch := map[string]any{"type": kind, "status": z.status, "token": z.tokens[kind], "url": fmt.Sprintf("%s/%s/%d/%d", a.server.URL, kind, orderIndex, authzIndex)}
	if z.why != "" && kind == z.tried {
		ch["error"] = map[string]any{"type": "urn:ietf:params:acme:error:unauthorized", "detail": z.why, "status": 403}
	}
	return ch
}

// validate checks a challenge and changes the status of its authorization and order. A real
// authority would do that later.
func (a *Authority) validate(w http.ResponseWriter, kind string, orderIndex, authzIndex int) {
	o := a.orders[orderIndex]
	z := o.authz[authzIndex]
	thumb, err := acme.JWKThumbprint(a.accounts[o.account])
	if err != nil {
		a.writeProblem(w, 500, "serverInternal", err.Error())
		return
	}
	want := z.tokens[kind] + "." + thumb
	if kind == "dns-01" {
		sum := sha256.Sum256([]byte(want))
		want = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	z.status, z.tried, z.why = "valid", kind, a.manners.Refuses[z.name]
	if got := a.Look(kind, z.name, z.tokens[kind]); got != want && z.why == "" {
		z.why = fmt.Sprintf("found %q", got)
	}
	if z.why != "" {
		z.status, o.status = "invalid", "invalid"
	}
	if !slices.ContainsFunc(o.authz, func(z *authz) bool { return z.status != "valid" }) {
		o.status = "ready"
	}
	a.writeJSON(w, 200, a.challenge(kind, orderIndex, authzIndex))
}

func (a *Authority) finalize(w http.ResponseWriter, i int, payload []byte) {
	var in struct {
		CSR string `json:"csr"`
	}
	_ = json.Unmarshal(payload, &in) // a missing CSR is reported below
	der, _ := base64.RawURLEncoding.DecodeString(in.CSR)
	csr, err := x509.ParseCertificateRequest(der)
	o := a.orders[i]
	switch {
	case o.status != "ready":
		a.writeProblem(w, 403, "orderNotReady", "the order is "+o.status)
		return
	case err != nil || csr.CheckSignature() != nil:
		a.writeProblem(w, 400, "badCSR", "the CSR is invalid")
		return
	case !slices.Equal(slices.Sorted(slices.Values(csr.DNSNames)), slices.Sorted(slices.Values(o.names))):
		a.writeProblem(w, 400, "badCSR", "the CSR is for other names")
		return
	}
	o.chain, err = a.signCertificate(o.names, csr.PublicKey)
	if err != nil {
		a.writeProblem(w, 500, "serverInternal", err.Error())
		return
	}
	a.issued++
	o.status = "valid"
	if a.manners.Stuck {
		o.status = "processing"
	}
	a.showOrder(w, 200, i)
}

// signCertificate makes a certificate and returns it in PEM with its chain. The manners can make it
// faulty.
func (a *Authority) signCertificate(names []string, key any) ([]byte, error) {
	m, now := a.manners, a.Now()
	life := m.Life
	if life == 0 {
		life = 90 * 24 * time.Hour
	}
	if m.Expired {
		now = now.Add(-2 * life)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(a.issued + 2)), DNSNames: names, NotBefore: now, NotAfter: now.Add(life), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if m.ForOthers {
		template.DNSNames = []string{"others.test"}
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if m.OtherKey {
		key = signer.Public()
	}
	parent := a.root
	if m.Unchained {
		parent = &x509.Certificate{PublicKey: signer.Public(), Subject: a.root.Subject}
	} else {
		signer = a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, signer)
	if err != nil {
		return nil, err
	}
	return a.encodeChain(der, a.root.Raw), nil
}
