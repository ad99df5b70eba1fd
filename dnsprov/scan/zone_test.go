package scan_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/scan"
)

// inUse is the zone of a domain in use, with 44 records that can be seen. All its names are usual,
// or records lead to them.
const inUse = `$TTL 3600
@ SOA ns1.dns.test. hostmaster 2026010101 7200 3600 1209600 300
@ 86400 NS ns1.dns.test.
@ 86400 NS ns2
@ 300 A 192.0.2.80
@ 300 AAAA 2001:db8::80
@ MX 10 mx.mail.test.
@ MX 20 Backup.Example.COM.
@ TXT "v=spf1 include:_spf.google.com include:spf-a.example.com a:out.example.com exists:%{i}.example.com -all"
@ TXT "google-site-verification=aBcDeF0123456789"
@ TXT "` + longText + `" "` + longText + `"
@ CAA 0 issue "ca.test"
@ CAA 128 iodef "mailto:Security@example.com"
@ HTTPS 1 . alpn="h2,h3"
www 300 CNAME example.com.
ns2 A 192.0.2.53
Backup A 192.0.2.25
_25._tcp.backup TLSA 3 1 1 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
spf-a TXT "v=spf1 ip4:192.0.2.0/24 redirect=spf-b.example.com"
spf-b TXT "v=spf1 -all"
out A 192.0.2.26
out AAAA 2001:db8::26
google._domainkey TXT "v=DKIM1; k=rsa; p=` + longText + `"
k1._domainkey CNAME dkim.mcsv.test.
selector1._domainkey CNAME keys.example.com.
keys TXT "v=DKIM1; k=rsa; p=MIIB"
_dmarc TXT "v=DMARC1; p=none; rua=mailto:dmarc@example.com"
autodiscover CNAME autodiscover.outlook.test.
_sip._tls SRV 100 1 443 sipdir.online.test.
_minecraft._tcp SRV 0 5 25565 play-host.example.com.
play-host A 192.0.2.99
_caldavs._tcp SRV 0 1 443 dav.example.com.
dav CNAME inner.example.com.
inner A 192.0.2.27
*  A 192.0.2.81
* TXT "wild"
shop A 192.0.2.82
mail A 192.0.2.81
dev NS ns.dev
dev NS ns.elsewhere.test.
dev DS 12345 13 2 0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF
ns.dev A 192.0.2.54
blog A 192.0.2.83
bounces MX 10 feedback.sender.test.
bounces TXT "v=spf1 include:sender.test ~all"
assets HTTPS 0 assets.cdn.test.
`

// unusual are records that only a complete reading finds.
const unusual = `secret-name A 192.0.2.84
blog TYPE65280 \# 4 0a000001
`

const longText = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"

const domain = "example.com"

// servers returns what Find returns of servers with these addresses.
func servers(addrs ...string) *scan.Servers {
	out := &scan.Servers{Names: []string{"ns1.dns.test"}}
	for _, a := range addrs {
		out.Addrs = append(out.Addrs, netip.AddrPortFrom(netip.MustParseAddr(a), 53))
	}
	return out
}

func zoneOf(t *testing.T, w *world, s *scan.Servers) *scan.Result {
	t.Helper()
	r, err := w.client().Zone(t.Context(), s, domain, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTransfer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		f := w.add("ns1.dns.test", "192.0.2.1", domain, inUse+unusual)
		f.transfers = true
		r := zoneOf(t, w, servers("192.0.2.1"))
		if r.Method != scan.MethodAXFR || !r.Complete || r.Partial || !r.Wildcard || r.NSTTL != 24*time.Hour {
			t.Errorf("%+v", r)
		}
		compare(t, r.Records, visible(t, domain+".", inUse+unusual))
		if f.count() > 3 {
			t.Errorf("%d questions", f.count())
		}
	})
}

func TestWalk(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		f := w.add("ns1.dns.test", "192.0.2.1", domain, inUse+unusual)
		f.chain()
		done, total := 0, 0
		r, err := w.client().Zone(t.Context(), servers("192.0.2.1"), domain, func(d, n int) { done, total = max(done, d), n })
		if err != nil {
			t.Fatal(err)
		}
		if r.Method != scan.MethodNSEC || !r.Complete || r.Partial || !r.Wildcard || done == 0 || done != total {
			t.Errorf("%+v, %d of %d", r, done, total)
		}
		compare(t, r.Records, visible(t, domain+".", inUse+unusual))
	})
}

func TestQuestions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		f := w.add("ns1.dns.test", "192.0.2.1", domain, inUse+unusual)
		began := time.Now()
		r := zoneOf(t, w, servers("192.0.2.1"))
		if r.Method != scan.MethodQuestions || r.Complete || r.Partial || !r.Wildcard {
			t.Errorf("%+v", r)
		}
		compare(t, r.Records, visible(t, domain+".", inUse))
		t.Logf("%d questions in %s", f.count(), time.Since(began))
	})
}

// TestNobodyServes needs no server.
func TestNobodyServes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := zoneOf(t, w, &scan.Servers{})
		if r.Method != scan.MethodNone || !r.Complete || len(r.Records) != 0 {
			t.Errorf("%+v", r)
		}
		if _, err := w.client().Zone(t.Context(), servers("192.0.2.1"), domain, nil); !errors.Is(err, scan.ErrNoServer) {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.client().Zone(ctx, servers("192.0.2.1"), domain, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}
