package edge

import "testing"

func TestGuessProvider(t *testing.T) {
	for _, tc := range []struct {
		want  string
		names []string
	}{
		{"", nil},
		{"", []string{"ns1.example.net", "ns2.example.net"}},
		{"cloudflare", []string{"ada.ns.cloudflare.com", "bob.ns.cloudflare.com"}},
		{"cloudflare", []string{"blue.foundationdns.com", "blue.foundationdns.net", "blue.foundationdns.org"}},
		{"", []string{"ns.cloudflare.com.evil.test", "xns.cloudflare.com"}},
		{"route53", []string{"ns-1.awsdns-00.com", "ns-1536.awsdns-00.co.uk", "ns-512.awsdns-00.net", "ns-1024.awsdns-00.org"}},
		{"", []string{"ns-1.awsdns-00.evil.com"}},
		{"hetzner", []string{"hydrogen.ns.hetzner.com", "oxygen.ns.hetzner.com", "helium.ns.hetzner.de"}},
		{"desec", []string{"ns1.desec.io", "ns2.desec.org"}},
		{"", []string{"ns1.desec.io", "ns.own.test"}}, // one of them copies the zone of the other
		{"", []string{"ns1.desec.io", "hydrogen.ns.hetzner.com"}},
	} {
		if got := GuessProvider(tc.names); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.names, got, tc.want)
		}
	}
}
