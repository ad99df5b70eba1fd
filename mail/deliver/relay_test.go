package deliver

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// challenge lets a host ask for n answers after AUTH, and then say end.
func challenge(n int, end string) func(p *peer, verb string) bool {
	return func(p *peer, verb string) bool {
		if verb != "AUTH" {
			return false
		}
		for range n {
			p.say("334 ")
			line, err := p.br.ReadString('\n')
			if err != nil {
				return true
			}
			secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
			if err != nil {
				p.h.t.Errorf("answer %q: %v", line, err)
			}
			p.h.mu.Lock()
			p.h.log = append(p.h.log, string(secret))
			p.h.mu.Unlock()
		}
		p.say(end)
		return true
	}
}

func TestRelayLogsIn(t *testing.T) {
	config, pool := certificate(t, "relay.example")
	for _, tc := range []struct {
		name, tls string
		offer     string
		answers   int
		auth      []string
	}{
		{"PLAIN by STARTTLS", "starttls", "AUTH LOGIN PLAIN", 1, []string{"AUTH PLAIN", "\x00user\x00secret"}},
		{"LOGIN by STARTTLS", "starttls", "AUTH CRAM-MD5 LOGIN", 2, []string{"AUTH LOGIN", "user", "secret"}},
		{"LOGIN of an old server", "starttls", "AUTH=LOGIN", 2, []string{"AUTH LOGIN", "user", "secret"}},
		{"TLS from the first byte", "tls", "AUTH PLAIN", 1, []string{"AUTH PLAIN", "\x00user\x00secret"}},
		{"plain where it was asked for", "none", "AUTH PLAIN", 1, []string{"AUTH PLAIN", "\x00user\x00secret"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &host{tls: config, implicit: tc.tls == "tls", offers: []string{tc.offer, "PIPELINING"}}
			h.hook, h.answers = challenge(tc.answers, "235 2.7.0 welcome"), map[string]string{".": "250 Ok 0102018f-abc"}
			n := newInternet(t)
			n.host("relay.example", h)
			c := n.client()
			c.RootCAs = pool
			r := c.Relay(t.Context(), Relay{Host: "relay.example", TLS: tc.tls, Username: "user", Password: "secret"}, envelope(), hello)
			want(t, r, Delivered, 250, "2.0.0")
			if r.Reply != "250 Ok 0102018f-abc" || (r.Attempts[0].Authenticated == ByCertificate) == (tc.tls == "none") {
				t.Errorf("result %+v", r)
			}
			got := h.heard()
			at := slices.Index(got, tc.auth[0])
			if at < 0 || len(got) < at+len(tc.auth) || !slices.Equal(got[at:at+len(tc.auth)], tc.auth) {
				t.Errorf("host heard %q", got)
			}
		})
	}
}

func TestRelayPorts(t *testing.T) {
	for _, tc := range []struct {
		relay Relay
		port  int
	}{
		{Relay{Host: "r.example", TLS: "starttls"}, 587},
		{Relay{Host: "r.example", TLS: "none"}, 587},
		{Relay{Host: "r.example", TLS: "tls"}, 465},
		{Relay{Host: "192.0.2.1", TLS: "tls", Port: 2465}, 2465},
	} {
		if got, err := tc.relay.target(); err != nil || got.hop.port != tc.port {
			t.Errorf("%+v goes to port %d (%v), want %d", tc.relay, got.hop.port, err, tc.port)
		}
	}
}

// TestOperatorsMistakesBounceNothing: whatever is wrong with relay or login is temporary, and said
// clearly.
func TestOperatorsMistakesBounceNothing(t *testing.T) {
	config, pool := certificate(t, "relay.example")
	login := Relay{Host: "relay.example", TLS: "starttls", Username: "user", Password: "secret"}
	with := func(f func(*Relay)) Relay { r := login; f(&r); return r }
	auth := []string{"AUTH PLAIN"}
	for _, tc := range []struct {
		name  string
		host  *host
		relay Relay
		code  int
		says  string
	}{
		{"wrong password", &host{tls: config, offers: auth, hook: challenge(1, "535 5.7.8 no")}, login, 535, "refused the login of user: 535 5.7.8 no"},
		{"password repeated", &host{tls: config, offers: auth, hook: challenge(1, "535 5.7.8 user:secret is AHVzZXIAc2VjcmV0")}, login, 535, "refused the login of user: 535 5.7.8 user:… is …"},
		{"login refused at once", &host{tls: config, offers: auth, hook: challenge(0, "504 5.5.4 no")}, login, 504, "refused the login of user: 504"},
		{"challenges without end", &host{tls: config, offers: auth, hook: challenge(1, "334 more")}, login, 0, "unexpected reply: 334 more"},
		{"no mechanism", &host{tls: config, offers: []string{"AUTH GSSAPI"}}, login, 0, "neither AUTH PLAIN nor AUTH LOGIN"},
		{"no STARTTLS", &host{offers: auth}, login, 0, "does not offer STARTTLS"},
		{"STARTTLS refused", &host{tls: config, offers: auth, answers: map[string]string{"STARTTLS": "554 5.7.0 no"}}, login, 554, "554 5.7.0 no"},
		{"greeting refuses", &host{greeting: "554 5.7.1 who are you"}, login, 554, "554 5.7.1 who are you"},
		{"login wanted at MAIL", &host{answers: map[string]string{"MAIL": "530 5.7.0 log in first"}}, with(func(r *Relay) { r.TLS, r.Username = "none", "" }), 530, "530 5.7.0 log in first"},
		{"unknown host", nil, with(func(r *Relay) { r.Host = "nowhere.example" }), 0, "look up nowhere.example"},
		{"unknown tls", nil, with(func(r *Relay) { r.TLS = "maybe" }), 0, `tls is "maybe"`},
		{"no host", nil, with(func(r *Relay) { r.Host = "" }), 0, "without a host"},
		{"no such port", nil, with(func(r *Relay) { r.Port = 65561 }), 0, "no port 65561"},
		{"NUL in password", nil, with(func(r *Relay) { r.Password = "a\x00b" }), 0, "NUL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newInternet(t)
			if tc.host != nil {
				n.host("relay.example", tc.host)
			}
			c := n.client()
			c.RootCAs = pool
			r := c.Relay(t.Context(), tc.relay, envelope(), hello)
			if r.Status != Temporary || r.Code != tc.code || !strings.HasPrefix(r.Enhanced, "4.") || !strings.Contains(r.Reply, tc.says) {
				t.Errorf("result %+v", r)
			}
			if strings.Contains(fmt.Sprint(r), "secret") {
				t.Errorf("the password shows in %+v", r)
			}
			if tc.name == "no STARTTLS" && strings.Contains(strings.Join(tc.host.heard(), "\n"), "AUTH") {
				t.Errorf("host without TLS heard %q", tc.host.heard())
			}
		})
	}
}

func TestRelayCertificateMustVerify(t *testing.T) {
	config, pool := certificate(t, "other.example")
	for _, tls := range []string{"starttls", "tls"} {
		h := &host{tls: config, implicit: tls == "tls", offers: []string{"AUTH PLAIN"}}
		n := newInternet(t)
		n.host("relay.example", h)
		c := n.client()
		c.RootCAs = pool
		r := c.Relay(t.Context(), Relay{Host: "relay.example", TLS: tls, Username: "u", Password: "p"}, envelope(), hello)
		want(t, r, Temporary, 0, "4.7.5")
		if !strings.Contains(r.Reply, "not relay.example") || len(r.Attempts) != 1 {
			t.Errorf("result %+v", r)
		}
	}
}

func TestRelayRefusesForGood(t *testing.T) {
	h := &host{answers: map[string]string{"RCPT": "550 5.1.1 unknown"}}
	n := newInternet(t)
	n.host("relay.example", h)
	relay := Relay{Host: "relay.example", TLS: "none"}
	r := n.client().Relay(t.Context(), relay, envelope(), hello)
	want(t, r, Permanent, 550, "5.1.1")
	if !r.RecipientFault {
		t.Error("an unknown user is the recipient's fault")
	}
	h.answers = map[string]string{".": "554 Message rejected: Email address is not verified"}
	r = n.client().Relay(t.Context(), relay, envelope(), hello)
	want(t, r, Permanent, 554, "5.0.0")
	if r.RecipientFault || errors.Is(r.Attempts[0].Err, ErrOutcomeUnknown) {
		t.Errorf("result %+v", r)
	}
}
