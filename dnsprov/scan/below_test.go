package scan_test

import (
	"testing"
	"time"

	"github.com/miekg/dns"
)

// small is a zone with 8 records that can be seen.
const small = `$TTL 3600
@ SOA ns1.dns.test. hostmaster 2026010101 7200 3600 1209600 300
@ NS ns1.dns.test.
@ NS ns2.dns.test.
@ A 192.0.2.80
@ MX 10 mail
@ TXT "v=spf1 mx -all"
www A 192.0.2.80
mail A 192.0.2.25
blog CNAME www
`

// TestNothingIsBelowAMissingName: where there is no _domainkey, few names below it are asked for.
// So a small zone takes less than half a minute.
func TestNothingIsBelowAMissingName(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		f := w.add("ns1.dns.test", "192.0.2.1", domain, small)
		began := time.Now()
		r := zoneOf(t, w, servers("192.0.2.1"))
		compare(t, r.Records, visible(t, domain+".", small))
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%d questions in %s", f.count(), took)
		}
		for question, asked := range map[string]bool{
			"_domainkey.example.com. TXT": true, "google._domainkey.example.com. TXT": true, "ses._domainkey.example.com. TXT": false,
			"_tcp.example.com. SRV": true, "_autodiscover._tcp.example.com. SRV": true, "_mumble._tcp.example.com. SRV": false, "_mumble._udp.example.com. SRV": true,
		} {
			if f.asked(question) != asked {
				t.Errorf("asked for %s: %t", question, !asked)
			}
		}
	})
}

// TestNothingIsBelowAWildcard: a name that has what the wildcard has does not exist either.
func TestNothingIsBelowAWildcard(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		f := w.add("ns1.dns.test", "192.0.2.1", domain, small+"* A 192.0.2.9\n")
		compare(t, zoneOf(t, w, servers("192.0.2.1")).Records, visible(t, domain+".", small+"* A 192.0.2.9\n"))
		if f.asked("ses._domainkey.example.com. TXT") {
			t.Error("asked for a name below")
		}
	})
}

// TestServersThatDenyNames: some servers say of a name that it does not exist, although there are
// names below it. A usual name there shows it, and a record that leads there, too.
func TestServersThatDenyNames(t *testing.T) {
	for name, more := range map[string]string{
		"a usual name": "google._domainkey TXT \"v=DKIM1; p=MIIB\"\nses._domainkey TXT \"v=DKIM1; p=MIIC\"\n_mumble._tcp SRV 0 0 1 www\n",
		"an alias":     "shop CNAME hubspot._domainkey\nhubspot._domainkey TXT \"v=DKIM1; p=MIIB\"\nses._domainkey TXT \"v=DKIM1; p=MIIC\"\n",
		"a name above": "www._domainkey A 192.0.2.1\nweb CNAME www._domainkey\n",
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				f := w.add("ns1.dns.test", "192.0.2.1", domain, small+more)
				f.misbehave = func(l *link, q *dns.Msg) bool {
					m := f.answer(q)
					if isQuestion(q) && len(f.at(dns.CanonicalName(q.Question[0].Name))) == 0 {
						m.Rcode = dns.RcodeNameError
					}
					return isQuestion(q) && l.write(m)
				}
				done, total := 0, 0
				r, err := w.client().Zone(t.Context(), servers("192.0.2.1"), domain, func(d, n int) { done, total = d, n })
				if err != nil || done != total {
					t.Fatalf("%d of %d, %v", done, total, err)
				}
				compare(t, r.Records, visible(t, domain+".", small+more))
			})
		})
	}
}

// TestServersShareQuestions: four servers that are far away are asked as often as four near ones.
func TestServersShareQuestions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		all := []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"}
		for _, addr := range all {
			f := w.add("ns1.dns.test", addr, domain, small)
			f.misbehave = func(*link, *dns.Msg) bool {
				time.Sleep(150 * time.Millisecond)
				return false
			}
		}
		began := time.Now()
		r := zoneOf(t, w, servers(all...))
		compare(t, r.Records, visible(t, domain+".", small))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
