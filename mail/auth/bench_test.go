package auth

import (
	"io"
	"strings"
	"testing"
)

func benchMessage() string {
	return testMessage + strings.Repeat("A line of text as it stands in a usual letter, some seventy bytes.\r\n", 30)
}

func BenchmarkVerify(b *testing.B) {
	_, key, err := GenerateRSA()
	if err != nil {
		b.Fatal(err)
	}
	dns := &fakeDNS{t: b, txt: map[string][]string{"rsa._domainkey.x.com": {KeyRecord(key)},
		"x.com": {"v=spf1 ip4:192.0.2.1 -all"}, "_dmarc.x.com": {"v=DMARC1; p=reject"}}}
	v := &Verifier{Resolver: dns}
	fields, err := Sign(strings.NewReader(benchMessage()), SignOptions{Keys: []Key{{"x.com", "rsa", key}}})
	if err != nil {
		b.Fatal(err)
	}
	msg := string(fields) + benchMessage()
	b.SetBytes(int64(len(msg)))
	b.ReportAllocs()
	for b.Loop() {
		got, err := v.Verify(b.Context(), request(msg, "user@x.com"))
		if err != nil || got.DMARC != Pass || got.DKIM != Pass {
			b.Fatal(got, err)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	_, long, err := GenerateRSA()
	if err != nil {
		b.Fatal(err)
	}
	_, ed, err := GenerateEd25519()
	if err != nil {
		b.Fatal(err)
	}
	msg := benchMessage()
	for name, keys := range map[string][]Key{
		"rsa":     {{"x.com", "rsa", long}},
		"ed25519": {{"x.com", "ed", ed}},
		"both":    {{"x.com", "rsa", long}, {"x.com", "ed", ed}},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(msg)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Sign(strings.NewReader(msg), SignOptions{Keys: keys}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStripResults(b *testing.B) {
	msg := "Authentication-Results: mx.here.example; spf=pass\r\n" + benchMessage()
	b.SetBytes(int64(len(msg)))
	b.ReportAllocs()
	for b.Loop() {
		if err := StripResults(io.Discard, strings.NewReader(msg), ourID); err != nil {
			b.Fatal(err)
		}
	}
}
