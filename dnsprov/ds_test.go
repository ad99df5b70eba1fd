package dnsprov

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/internal/lookup/lookuptest"
	"github.com/miekg/dns"
)

// dsServer answers DS queries in different ways, depending on the first label.
func dsServer(t *testing.T) (addr string) {
	t.Helper()
	pc, ln := lookuptest.SamePort(t)
	ds := func(name string, tag uint16) dns.RR {
		return &dns.DS{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeDS, Class: dns.ClassINET}, KeyTag: tag, Algorithm: 13, DigestType: 2, Digest: "ABCD"}
	}
	h := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		name := q.Question[0].Name
		_, tcp := w.RemoteAddr().(*net.TCPAddr)
		switch dns.SplitDomainName(name)[0] {
		case "none":
			m.Rcode = dns.RcodeNameError
		case "fails":
			m.Rcode = dns.RcodeServerFailure
		case "long":
			m.Truncated = !tcp
			if tcp {
				m.Answer = []dns.RR{ds(name, 3)}
			}
		case "other":
			m.Answer = []dns.RR{ds("a.test.", 4)}
		case "silent":
			return
		case "garbage":
			_, _ = w.Write([]byte("no answer at all"))
			return
		default:
			m.Answer = []dns.RR{ds("A.test.", 1), ds(name, 2)}
		}
		_ = w.WriteMsg(m)
	})
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: h}, {Listener: ln, Handler: h}} {
		go func() { _ = s.ActivateAndServe() }()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return pc.LocalAddr().String()
}

func TestLookupDS(t *testing.T) {
	client := lookup.New(lookup.Options{Servers: []string{dsServer(t)}})
	for _, tc := range []struct {
		domain string
		tags   []uint16
		ok     bool
	}{
		{"a.test", []uint16{1, 2}, true},
		{"none.test", nil, true},
		{"long.test", []uint16{3}, true},
		{"other.test", nil, true},
		{"fails.test", nil, false},
		{"silent.test", nil, false},
		{"garbage.test", nil, false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		found, err := LookupDS(ctx, client, tc.domain)
		cancel()
		var tags []uint16
		for _, ds := range found {
			tags = append(tags, ds.KeyTag)
			if ds.Digest != "abcd" || ds.Algorithm != 13 || ds.DigestType != 2 {
				t.Errorf("%s: %+v", tc.domain, ds)
			}
		}
		if (err == nil) != tc.ok || !slices.Equal(tags, tc.tags) {
			t.Errorf("%s: %v, %v", tc.domain, found, err)
		}
	}
	if got := (DS{KeyTag: 1, Algorithm: 13, DigestType: 2, Digest: "ab"}).String(); got != "1 13 2 ab" {
		t.Errorf("as text: %s", got)
	}
}
