package dnsd

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

func secretOf(t *testing.T, text string) (s secret) {
	t.Helper()
	if n, err := hex.Decode(s[:], []byte(text)); err != nil || n != len(s) {
		t.Fatal(n, err)
	}
	return s
}

func withCookie(cookie string) *dns.OPT {
	return &dns.OPT{Option: []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: cookie}}}
}

// The vectors of RFC 9018 appendix A: who sends what at which time, whether that holds, and what he
// gets.
func TestCookieVectors(t *testing.T) {
	const first, second = "e5e973e5a6b2a43f48e7dc849e37bfcf", "445536bcd2513298075a5d379663c962"
	for _, tc := range []struct {
		name, from, sent, secrets string
		at                        int64
		have                      proof
		want                      string
	}{
		{"A.1", "198.51.100.100", "2464c4abcf10c957", first, 1559731985, unproven, "2464c4abcf10c957010000005cf79f111f8130c3eee29480"},
		{"A.2", "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", first, 1559734385, proven, "2464c4abcf10c957010000005cf7a871d4a564a1442aca77"},
		{"A.3", "203.0.113.203", "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5", first, 1559734700, unproven, "fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e"},
		{"A.3 in time", "203.0.113.203", "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5", first, 1559727985, proven, ""},
		{
			"A.4", "2001:db8:220:1:59de:d0f4:8769:82b8", "22681ab97d52c298010000005cf7c57926556bd0934c72f8",
			second + " dd3bdf9344b678b185a6f5cb60fca715", 1559741961, proven, "22681ab97d52c298010000005cf7c609a6bb79d16625507a",
		},
		{"mapped address", "::ffff:198.51.100.100", "2464c4abcf10c957", first, 1559731985, unproven, "2464c4abcf10c957010000005cf79f111f8130c3eee29480"},
		{"another address", "198.51.100.101", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", first, 1559731985, unproven, ""},
		{"another client", "198.51.100.100", "2464c4abcf10c958010000005cf79f111f8130c3eee29480", first, 1559731985, unproven, ""},
		{"another version", "198.51.100.100", "2464c4abcf10c957020000005cf79f111f8130c3eee29480", first, 1559731985, unproven, ""},
		{"a bit of the hash", "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29481", first, 1559731985, unproven, ""},
		{"another secret", "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", second, 1559731985, unproven, ""},
		{"an hour old", "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", first, 1559731985 + 3600, proven, ""},
		{"older", "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", first, 1559731985 + 3601, unproven, ""},
		{"a little ahead", "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", first, 1559731985 - 300, proven, ""},
		{"too far ahead", "198.51.100.100", "2464c4abcf10c957010000005cf79f111f8130c3eee29480", first, 1559731985 - 301, unproven, ""},
		{"too long to be ours", "198.51.100.100", "2464c4abcf10c957" + strings.Repeat("01", 32), first, 1559731985, unproven, ""},
		{"short", "198.51.100.100", "2464c4abcf10c9", first, 1559731985, badCookie, ""},
		{"between", "198.51.100.100", "2464c4abcf10c95701", first, 1559731985, badCookie, ""},
		{"too long", "198.51.100.100", strings.Repeat("01", 41), first, 1559731985, badCookie, ""},
		{"far too long", "198.51.100.100", strings.Repeat("01", 4000), first, 1559731985, badCookie, ""},
		{"empty", "198.51.100.100", "", first, 1559731985, badCookie, ""},
	} {
		now := time.Unix(tc.at, 0)
		c := newCookies(now)
		var accepted []secret
		for _, s := range strings.Fields(tc.secrets) {
			accepted = append(accepted, secretOf(t, s))
		}
		c.current.Store(&secrets{accepted: accepted, made: now})
		have, fresh := c.read(withCookie(tc.sent), netip.MustParseAddr(tc.from), now)
		if have != tc.have || (fresh == nil) != (have == badCookie) {
			t.Errorf("%s: %d with %v, want %d", tc.name, have, fresh, tc.have)
		}
		if tc.want != "" && fresh.Cookie != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, fresh.Cookie, tc.want)
		}
	}
	if have, fresh := newCookies(time.Now()).read(&dns.OPT{}, netip.Addr{}, time.Now()); have != noCookie || fresh != nil {
		t.Errorf("without a cookie: %d, %v", have, fresh)
	}
}

func TestSecretsRoll(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	c, from := newCookies(now), netip.MustParseAddr("192.0.2.1")
	_, first := c.read(withCookie("0102030405060708"), from, now)
	now = now.Add(secretFor - time.Second)
	_, old := c.read(withCookie("0102030405060708"), from, now)
	now = now.Add(2 * time.Second)
	have, renewed := c.read(withCookie(old.Cookie), from, now)
	if have != proven || len(c.secrets(now).accepted) != 2 {
		t.Errorf("a cookie of the secret before: %d", have)
	}
	if have, _ = c.read(withCookie(renewed.Cookie), from, now); have != proven {
		t.Errorf("a cookie of the new secret: %d", have)
	}
	if have, _ = c.read(withCookie(first.Cookie), from, now); have != unproven {
		t.Errorf("a cookie of yesterday: %d", have)
	}
	was := c.secrets(now).accepted[1]
	if next := c.secrets(now.Add(secretFor)).accepted; len(next) != 2 || next[1] == was {
		t.Error("the secret before the one before is taken")
	}
}

func cookieQuery(cookie string) *dns.Msg {
	return change("a.test.", dns.TypeA, func(m *dns.Msg) {
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = withCookie(cookie).Option
	})
}

func TestAnswersCarryACookie(t *testing.T) {
	addr := serve(t, &Server{Zones: stubZone{"a.test"}})
	for _, network := range []string{"udp", "tcp"} {
		m := exchange(t, network, addr, cookieQuery("0102030405060708"))
		got := cookieOf(m.IsEdns0())
		if m.Rcode != dns.RcodeSuccess || got == nil || len(got.Cookie) != 48 || !strings.HasPrefix(got.Cookie, "010203040506070801000000") {
			t.Errorf("over %s: %v", network, m)
		}
		if m = exchange(t, network, addr, cookieQuery("01")); m.Rcode != dns.RcodeFormatError || cookieOf(m.IsEdns0()) != nil {
			t.Errorf("a short cookie over %s: %v", network, m)
		}
	}
}

// Over the rate a good cookie is a way in, up to a rate of its own; a client's half of one is told
// the other half.
func TestCookiesOpenTheRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := (&Server{Zones: stubZone{"a.test"}, Rate: 10}).start()
		from := netip.MustParseAddr("192.0.2.1")
		ask := func(q *dns.Msg) *dns.Msg {
			answer := r.answerUDP(packed(t, q), from, make([]byte, udpIn))
			if answer == nil {
				return nil
			}
			m := new(dns.Msg)
			if err := m.Unpack(answer); err != nil {
				t.Fatal(err)
			}
			return m
		}
		for range 10 { // what the network may have
			if m := ask(question("a.test.", dns.TypeA)); m == nil || len(m.Answer) != 1 {
				t.Fatalf("under the rate: %v", m)
			}
		}
		var cookie string
		for range slipEvery {
			if m := ask(cookieQuery("0102030405060708")); m != nil {
				if m.Rcode != dns.RcodeBadCookie || len(m.Answer) != 0 {
					t.Fatalf("half a cookie: %v", m)
				}
				cookie = cookieOf(m.IsEdns0()).Cookie
			}
		}
		full := 0
		for range 200 {
			if m := ask(cookieQuery(cookie)); m != nil && m.Rcode == dns.RcodeSuccess && len(m.Answer) == 1 && !m.Truncated {
				full++
			}
		}
		if full != 10*trustedShare {
			t.Errorf("%d answers to a good cookie, want %d", full, 10*trustedShare)
		}
		time.Sleep(500 * time.Millisecond)
		from = netip.MustParseAddr("192.0.2.2") // has another cookie, and a neighbour who has used the rate up again
		for range 5 {
			ask(question("a.test.", dns.TypeA))
		}
		for range 2 * slipEvery {
			if m := ask(cookieQuery(cookie)); m != nil && m.Rcode != dns.RcodeBadCookie {
				t.Errorf("somebody else's cookie: %v", m)
			}
			if m := ask(cookieQuery("01")); m != nil && !m.Truncated {
				t.Errorf("over the rate with a broken cookie: %v", m)
			}
		}
	})
}
