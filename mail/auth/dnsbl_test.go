package auth

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestCheckDNSBL(t *testing.T) {
	dns := &fakeDNS{t: t, servers: map[string]bool{"2.0.0.127.down.test": true},
		ip: map[string][]string{
			"2.0.0.127.bl.test": {"127.0.0.2", "127.0.0.4"}, "2.0.0.127.plain.test": {"127.0.0.3"}, "2.0.0.127.error.test": {"127.255.255.254"},
			"2.0.0.127.sold.test": {"192.0.2.80"}, "2.0.0.127.six.test": {"2001:db8::1"},
			"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.bl.test": {"127.0.0.2"},
		},
		txt: map[string][]string{"2.0.0.127.bl.test": {"See \"https://bl.test/\"\r\nand go"}},
	}
	for _, tc := range []struct {
		ip    string
		zones []string
		want  Listing
	}{
		{"127.0.0.2", []string{"bl.test"}, Listing{"bl.test", "See https://bl.test/and go"}},
		{"::ffff:127.0.0.2", []string{"bl.test"}, Listing{"bl.test", "See https://bl.test/and go"}},
		{"127.0.0.1", []string{"bl.test", "plain.test"}, Listing{}},
		{"127.0.0.2", []string{"down.test", "error.test", "sold.test", "six.test"}, Listing{}},
		{"127.0.0.2", []string{"down.test", "plain.test", "bl.test"}, Listing{"plain.test", ""}},
		{"2001:db8::1", []string{"bl.test"}, Listing{"bl.test", ""}},
		{"2001:db8::2", []string{"bl.test"}, Listing{}},
		{"", []string{"bl.test"}, Listing{}},
		{"127.0.0.2", nil, Listing{}},
	} {
		ip, _ := netip.ParseAddr(tc.ip)
		if got, ok := CheckDNSBL(t.Context(), dns, tc.zones, ip); got != tc.want || ok != (tc.want.Zone != "") {
			t.Errorf("%s in %q: %+v, %v", tc.ip, tc.zones, got, ok)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if got, ok := CheckDNSBL(t.Context(), deadDNS{}, []string{"a.test", "b.test", "c.test"}, netip.MustParseAddr("127.0.0.2")); ok {
			t.Errorf("%+v", got)
		}
		if took := time.Since(began); took != dnsblTimeout {
			t.Errorf("dead lists took %v", took)
		}
	})
}
