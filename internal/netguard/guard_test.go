package netguard

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// verdicts lists for each address whether the strict and the permissive guard allow it.
var verdicts = []struct {
	ip              string
	strict, lenient bool
}{
	// public
	{"1.1.1.1", true, true},
	{"8.8.8.8", true, true},
	{"9.255.255.255", true, true},
	{"11.0.0.0", true, true},
	{"100.63.255.255", true, true},
	{"100.128.0.0", true, true},
	{"126.255.255.255", true, true},
	{"128.0.0.1", true, true},
	{"169.253.255.255", true, true},
	{"169.255.0.0", true, true},
	{"172.15.255.255", true, true},
	{"172.32.0.0", true, true},
	{"192.0.1.0", true, true},
	{"192.167.255.255", true, true},
	{"192.169.0.0", true, true},
	{"198.17.255.255", true, true},
	{"198.20.0.0", true, true},
	{"223.255.255.255", true, true},
	{"2606:4700:4700::1111", true, true},
	{"2001:4860:4860::8888", true, true},
	{"2a00:1450:4001::1", true, true},
	{"2001:200::1", true, true},
	{"2003::1", true, true},
	{"::ffff:8.8.8.8", true, true},
	{"64:ff9b::8.8.8.8", true, true},
	// local: only with AllowPrivate
	{"10.0.0.0", false, true},
	{"10.255.255.255", false, true},
	{"100.64.0.1", false, true},
	{"100.127.255.255", false, true},
	{"127.0.0.1", false, true},
	{"127.255.255.254", false, true},
	{"172.16.0.1", false, true},
	{"172.31.255.255", false, true},
	{"192.168.0.1", false, true},
	{"192.168.255.255", false, true},
	{"192.0.2.1", false, true},
	{"198.18.0.1", false, true},
	{"198.19.255.255", false, true},
	{"198.51.100.7", false, true},
	{"203.0.113.9", false, true},
	{"::1", false, true},
	{"fc00::1", false, true},
	{"fd12:3456:789a::1", false, true},
	{"fdff:ffff::1", false, true},
	{"2001:db8::1", false, true},
	{"2001:2::1", false, true},
	{"3fff::1", false, true},
	{"::ffff:127.0.0.1", false, true},
	{"::ffff:10.1.2.3", false, true},
	{"::ffff:192.168.1.1", false, true},
	{"64:ff9b::127.0.0.1", false, true},
	{"64:ff9b::10.0.0.1", false, true},
	// never
	{"0.0.0.0", false, false},
	{"0.1.2.3", false, false},
	{"169.254.0.1", false, false},
	{"169.254.169.254", false, false},
	{"168.63.129.16", false, false},
	{"100.100.100.200", false, false},
	{"192.0.0.1", false, false},
	{"192.0.0.192", false, false},
	{"192.31.196.1", false, false},
	{"192.52.193.1", false, false},
	{"192.88.99.1", false, false},
	{"192.175.48.1", false, false},
	{"224.0.0.1", false, false},
	{"239.255.255.255", false, false},
	{"240.0.0.1", false, false},
	{"255.255.255.255", false, false},
	{"::", false, false},
	{"::2", false, false},
	{"::127.0.0.1", false, false},
	{"::8.8.8.8", false, false},
	{"::ffff:0.0.0.0", false, false},
	{"::ffff:169.254.169.254", false, false},
	{"64:ff9b::169.254.169.254", false, false},
	{"64:ff9b:1::1", false, false},
	{"100::1", false, false},
	{"fe80::1", false, false},
	{"febf::1", false, false},
	{"fe80::1%eth0", false, false},
	{"2606:4700::1%1", false, false},
	{"fec0::1", false, false},
	{"fd00:ec2::254", false, false},
	{"fd20:ce::254", false, false},
	{"ff02::1", false, false},
	{"ff0e::1", false, false},
	{"2001::1", false, false},
	{"2001:0:4136:e378:8000:63bf:3fff:fdd2", false, false},
	{"2001:10::1", false, false},
	{"2001:20::1", false, false},
	{"2002:7f00:1::1", false, false},
	{"2002:808:808::1", false, false},
	{"2620:4f:8000::1", false, false},
	{"4000::1", false, false},
	{"5f00::1", false, false},
}

// TestOnlyPrivate: only the addresses that AllowPrivate allows get through.
func TestOnlyPrivate(t *testing.T) {
	for ip, want := range map[string]bool{
		"10.1.2.3": true, "127.0.0.1": true, "::1": true, "fd00::1": true, "::ffff:192.168.1.1": true, "64:ff9b::a00:1": true,
		"8.8.8.8": false, "2600::1": false, "::ffff:8.8.8.8": false, "64:ff9b::808:808": false, "169.254.169.254": false, "0.0.0.0": false,
	} {
		addr := netip.MustParseAddr(ip)
		if got := (&Guard{AllowPrivate: true, OnlyPrivate: true}).Allowed(addr); got != want {
			t.Errorf("%s: %v", ip, got)
		}
		if (&Guard{OnlyPrivate: true}).Allowed(addr) {
			t.Errorf("%s, and private ones are not allowed", ip)
		}
	}
}

func TestGuardJudgesEveryAddress(t *testing.T) {
	strict, lenient := &Guard{}, &Guard{AllowPrivate: true}
	for _, v := range verdicts {
		ip := netip.MustParseAddr(v.ip)
		if got := strict.Allowed(ip); got != v.strict {
			t.Errorf("strict guard on %s: allowed %v", v.ip, got)
		}
		if got := lenient.Allowed(ip); got != v.lenient {
			t.Errorf("permissive guard on %s: allowed %v", v.ip, got)
		}
		for _, network := range []string{"tcp", "tcp4", "tcp6"} {
			err := strict.Control(network, netip.AddrPortFrom(ip, 443).String(), nil)
			if (err == nil) != v.strict || (err != nil && !errors.Is(err, ErrBlocked)) {
				t.Errorf("strict control of %s %s: %v", network, v.ip, err)
			}
		}
	}
}

func TestNilAndInvalidAreStrict(t *testing.T) {
	var none *Guard
	if none.Allowed(netip.MustParseAddr("127.0.0.1")) || !none.Allowed(netip.MustParseAddr("8.8.8.8")) {
		t.Error("a nil guard is not the strict guard")
	}
	if (&Guard{AllowPrivate: true}).Allowed(netip.Addr{}) {
		t.Error("the zero address is allowed")
	}
}

func TestControlRefusesWhatIsNoTCPAddress(t *testing.T) {
	g := &Guard{AllowPrivate: true}
	for _, tc := range [][2]string{{"unix", "/run/docker.sock"}, {"udp", "127.0.0.1:53"}, {"tcp", "localhost:80"}, {"tcp", "127.0.0.1"}, {"tcp", ""}} {
		if err := g.Control(tc[0], tc[1], nil); !errors.Is(err, ErrBlocked) {
			t.Errorf("control of %s %q: %v", tc[0], tc[1], err)
		}
	}
}

// TestControlStopsTheConnection dials a real listener with only Control in between.
func TestControlStopsTheConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, tc := range []struct {
		guard *Guard
		ok    bool
	}{{&Guard{}, false}, {&Guard{AllowPrivate: true}, true}} {
		conn, err := (&net.Dialer{Control: tc.guard.Control}).Dial("tcp", listener.Addr().String())
		if tc.ok != (err == nil) || (!tc.ok && !errors.Is(err, ErrBlocked)) {
			t.Errorf("dial with %+v: %v", tc.guard, err)
		}
		if conn != nil {
			conn.Close()
		}
	}
}

const (
	fine    = "fine"    // with every guard
	local   = "local"   // only with AllowPrivate; ErrBlocked without
	blocked = "blocked" // ErrBlocked with every guard
	wrong   = "wrong"   // no URL for an endpoint, whatever the guard
)

var urlVerdicts = []struct{ raw, want string }{
	{"https://example.com", fine},
	{"https://example.com/", fine},
	{"https://hooks.example.com/a/b?c=d&e=%20f", fine},
	{"HTTPS://Example.COM/x", fine},
	{"https://example.com.", fine},
	{"https://example.com:443/", fine},
	{"https://example.com:8443/", fine},
	{"https://example.com:65535/", fine},
	{"https://xn--bcher-kva.example/", fine},
	{"https://bücher.example/", fine},
	{"https://my_host.example/", fine},
	{"https://8.8.8.8/", fine},
	{"https://[2606:4700:4700::1111]/hook", fine},
	{"https://[2606:4700:4700::1111]:8443/hook", fine},
	{"https://1.example/", fine},
	{"https://127.0.0.1.nip.example/", fine},
	{"https://localhost.example/", fine},
	{"https://notlocal.example/", fine},
	{"https://example.com/" + strings.Repeat("a", 2048-len("https://example.com/")), fine},

	{"https://127.0.0.1/", local},
	{"https://127.0.0.1:8443/", local},
	{"https://10.1.2.3/", local},
	{"https://172.16.0.1/", local},
	{"https://192.168.1.1/", local},
	{"https://100.64.0.1/", local},
	{"https://198.18.0.1/", local},
	{"https://192.0.2.1/", local},
	{"https://[::1]/", local},
	{"https://[::1]:8443/", local},
	{"https://[0:0:0:0:0:0:0:1]/", local},
	{"https://[fd12::1]/", local},
	{"https://[2001:db8::1]/", local},
	{"https://127.0.0.1/", local},
	{"https://127。0。0。1/", local},
	{"https://localhost/", local},
	{"https://LOCALHOST/", local},
	{"https://localhost./", local},
	{"https://a.localhost/", local},
	{"https://db/", local},
	{"https://db.internal/", local},
	{"https://metadata.google.internal/", local},
	{"https://printer.local/", local},
	{"https://router.lan/", local},
	{"https://nas.home.arpa/", local},
	{"https://intranet.corp/", local},
	{"https://localhost.localdomain/", local},

	{"https://169.254.169.254/latest/meta-data/", blocked},
	{"https://0.0.0.0/", blocked},
	{"https://0/", blocked},
	{"https://224.0.0.1/", blocked},
	{"https://255.255.255.255/", blocked},
	{"https://[::]/", blocked},
	{"https://[fe80::1]/", blocked},
	{"https://[fe80::1%25eth0]/", blocked},
	{"https://[ff02::1]/", blocked},
	{"https://[::ffff:127.0.0.1]/", blocked},
	{"https://[::ffff:7f00:1]/", blocked},
	{"https://[::ffff:8.8.8.8]/", blocked},
	{"https://[::127.0.0.1]/", blocked},
	{"https://[64:ff9b::7f00:1]/", blocked},
	{"https://[64:ff9b::8.8.8.8]/", blocked},
	{"https://[2002:7f00:1::]/", blocked},
	{"https://2130706433/", blocked},
	{"https://0x7f000001/", blocked},
	{"https://0X7F000001/", blocked},
	{"https://017700000001/", blocked},
	{"https://0177.0.0.1/", blocked},
	{"https://0x7f.0.0.1/", blocked},
	{"https://0x7f.1/", blocked},
	{"https://127.1/", blocked},
	{"https://127.0.1/", blocked},
	{"https://127.0.0.1./", blocked},
	{"https://127.0.0.01/", blocked},
	{"https://127.0.0.0x1/", blocked},
	{"https://1.2.3.4.5/", blocked},
	{"https://256.256.256.256/", blocked},
	{"https://4294967296/", blocked},
	{"https://a.0x/", blocked},

	{"", wrong},
	{"https", wrong},
	{"https:", wrong},
	{"https://", wrong},
	{"https:///path", wrong},
	{"https://:443/", wrong},
	{"https:example.com", wrong},
	{"//example.com/", wrong},
	{"example.com/hook", wrong},
	{"http://example.com/", wrong},
	{"ftp://example.com/", wrong},
	{"file:///etc/passwd", wrong},
	{"javascript:alert(1)", wrong},
	{"httpss://example.com/", wrong},
	{"https://user@example.com/", wrong},
	{"https://user:pass@example.com/", wrong},
	{"https://@example.com/", wrong},
	{"https://example.com/#part", wrong},
	{"https://example.com/#", wrong},
	{"https://example.com:0/", wrong},
	{"https://example.com:/", wrong},
	{"https://example.com:65536/", wrong},
	{"https://example.com:-1/", wrong},
	{"https://example.com:+443/", wrong},
	{"https://example.com:https/", wrong},
	{"https://example.com:44 3/", wrong},
	{"https://exa mple.com/", wrong},
	{" https://example.com/", wrong},
	{"https://example.com/\r\nHost: x", wrong},
	{"https://example.com/\x00", wrong},
	{"https://example..com/", wrong},
	{"https://.example.com/", wrong},
	{"https://./", wrong},
	{"https://-a.example/", wrong},
	{"https://a-.example/", wrong},
	{"https://exa*mple.com/", wrong},
	{"https://example.com\\@127.0.0.1/", wrong},
	{"https://%31%32%37.0.0.1/", wrong},
	{"https://127.0.0.1%2f.example.com/", wrong},
	{"https://::1/", wrong},
	{"https://[::1/", wrong},
	{"https://[127.0.0.1]/", wrong},
	{"https://[example.com]/", wrong},
	{"https://[::1]x/", wrong},
	{"https://" + strings.Repeat("a", 64) + ".example/", wrong},
	{"https://" + strings.Repeat("a.", 127) + "example/", wrong},
	{"https://example.com/" + strings.Repeat("a", 2049-len("https://example.com/")), wrong},
	{"https://\u00ad/", wrong},
}

func TestCheckURL(t *testing.T) {
	for _, tc := range urlVerdicts {
		for _, guard := range []*Guard{{}, {AllowPrivate: true}} {
			err := guard.CheckURL(tc.raw)
			got := wrong
			switch {
			case err == nil:
				got = fine
			case errors.Is(err, ErrBlocked):
				got = blocked
			}
			want := tc.want
			if want == local && guard.AllowPrivate {
				want = fine
			} else if want == local {
				want = blocked
			}
			if got != want {
				t.Errorf("%q with %+v: %v, want %s", tc.raw[:min(len(tc.raw), 80)], *guard, err, want)
			}
		}
	}
}

// goNumber matches number formats that Go's strconv accepts and C does not.
var goNumber = regexp.MustCompile(`(?i)^0[bo]|_`)

// aton parses a host like C's inet_aton, and so like a libc resolver.
func aton(host string) (netip.Addr, bool) {
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var value uint64
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 0, 32)
		last := i == len(parts)-1
		if err != nil || goNumber.MatchString(part) || (!last && n > 255) || (last && n >= 1<<(8*(5-len(parts)))) {
			return netip.Addr{}, false
		}
		if last {
			value += n
		} else {
			value += n << (24 - 8*i)
		}
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), true
}

func FuzzCheckURL(f *testing.F) {
	for _, tc := range urlVerdicts {
		f.Add(tc.raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		guard := &Guard{}
		if err := guard.CheckURL(raw); err != nil {
			if len(err.Error()) > 2*maxURLLength {
				t.Fatalf("error of %d bytes", len(err.Error()))
			}
			return
		}
		if err := (&Guard{AllowPrivate: true}).CheckURL(raw); err != nil {
			t.Fatalf("the strict guard takes %q, the permissive one says %v", raw, err)
		}
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "https" || u.User != nil || u.Fragment != "" || len(raw) > maxURLLength {
			t.Fatalf("accepted %q", raw)
		}
		if _, err := http.NewRequest(http.MethodPost, raw, nil); err != nil {
			t.Fatalf("accepted %q, which cannot be requested: %v", raw, err)
		}
		name, err := asciiName(u.Hostname())
		if err != nil {
			t.Fatalf("accepted %q, whose host has no ASCII form: %v", raw, err)
		}
		ip, isAddr := aton(strings.TrimSuffix(name, "."))
		if std := net.ParseIP(u.Hostname()); std != nil {
			ip, isAddr = netip.MustParseAddr(std.String()), true
		}
		if isAddr && !guard.Allowed(ip) {
			t.Fatalf("accepted %q, which is %s", raw, ip)
		}
	})
}
