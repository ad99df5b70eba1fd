package dane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"
)

// issue makes a certificate for a name, signed by an authority or, if that is nil, by itself.
func issue(t *testing.T, name string, by *x509.Certificate, byKey *ecdsa.PrivateKey, valid time.Duration) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid), BasicConstraintsValid: true, IsCA: by == nil,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if by == nil {
		by, byKey = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, by, &key.PublicKey, byKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// record makes a record for a certificate.
func record(usage, selector, match uint8, cert *x509.Certificate) Record {
	data := cert.Raw
	if selector == 1 {
		data = cert.RawSubjectPublicKeyInfo
	}
	switch match {
	case 1:
		sum := sha256.Sum256(data)
		data = sum[:]
	case 2:
		sum := sha512.Sum512(data)
		data = sum[:]
	}
	return Record{usage, selector, match, data}
}

func TestVerify(t *testing.T) {
	ca, caKey := issue(t, "authority", nil, nil, time.Hour)
	leaf, _ := issue(t, "mx.example", ca, caKey, time.Hour)
	old, _ := issue(t, "mx.example", ca, caKey, -time.Minute)
	other, _ := issue(t, "other.example", nil, nil, time.Hour)
	mx := []string{"mx.example"}
	for selector := range uint8(2) {
		for match := range uint8(3) {
			ee, ta := record(3, selector, match, leaf), record(2, selector, match, ca)
			for name, tc := range map[string]struct {
				records []Record
				chain   []*x509.Certificate
				names   []string
				good    bool
			}{
				"EE":                 {[]Record{ee}, []*x509.Certificate{leaf}, nil, true},
				"EE under any name":  {[]Record{ee}, []*x509.Certificate{leaf}, []string{"x.example"}, true},
				"EE of another":      {[]Record{ee}, []*x509.Certificate{other}, mx, false},
				"EE in the chain":    {[]Record{ee}, []*x509.Certificate{other, leaf}, mx, false},
				"EE expired":         {[]Record{record(3, selector, match, old)}, []*x509.Certificate{old}, mx, true},
				"one of two":         {[]Record{record(3, selector, match, other), ee}, []*x509.Certificate{leaf}, mx, true},
				"TA":                 {[]Record{ta}, []*x509.Certificate{leaf, ca}, mx, true},
				"TA, second name":    {[]Record{ta}, []*x509.Certificate{leaf, ca}, []string{"x.example", "mx.example"}, true},
				"TA, other name":     {[]Record{ta}, []*x509.Certificate{leaf, ca}, []string{"x.example"}, false},
				"TA, expired":        {[]Record{ta}, []*x509.Certificate{old, ca}, mx, false},
				"TA did not sign":    {[]Record{ta}, []*x509.Certificate{other, ca}, []string{"other.example"}, false},
				"TA not shown":       {[]Record{ta}, []*x509.Certificate{leaf}, mx, selector == 0 && match == 0},
				"PKIX usages":        {[]Record{record(1, selector, match, leaf), record(0, selector, match, ca)}, []*x509.Certificate{leaf, ca}, mx, false},
				"no record":          {nil, []*x509.Certificate{leaf, ca}, mx, false},
				"no certificate":     {[]Record{ee}, nil, mx, false},
				"a digest cut short": {[]Record{{3, selector, match, ee.Data[:20]}}, []*x509.Certificate{leaf}, mx, false},
			} {
				if err := Verify(tc.records, tc.chain, tc.names, time.Now()); (err == nil) != tc.good {
					t.Errorf("%s, selector %d, matching %d: %v", name, selector, match, err)
				}
			}
		}
	}
}

func TestUsable(t *testing.T) {
	sum := make([]byte, 32)
	for r, want := range map[*Record]bool{
		{3, 1, 1, sum}: true, {2, 0, 0, sum}: true, {1, 1, 1, sum}: false, {0, 1, 1, sum}: false, {3, 2, 1, sum}: false, {3, 1, 3, sum}: false,
		{3, 1, 2, sum}: false, {3, 1, 1, nil}: false, {255, 1, 1, sum}: false,
	} {
		if r.Usable() != want {
			t.Errorf("%s is usable: %v", r, !want)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add("3 1 1 00ff")
	f.Add("2 0 0 ")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRecord(text)
		if err != nil {
			return
		}
		if again, err := ParseRecord(r.String()); err != nil || again.String() != r.String() {
			t.Errorf("%q is read as %s and then %s, %v", text, r, again, err)
		}
		if err := Verify([]Record{r}, nil, nil, time.Time{}); err == nil {
			t.Error("no certificate matches")
		}
	})
}
