package scan_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov/scan"
)

func isQuestion(q *dns.Msg) bool { return q.Question[0].Qtype != dns.TypeAXFR }

// TestServersWithBadManners: what a server can still tell is told.
func TestServersWithBadManners(t *testing.T) {
	refuse := func(code int) func(l *link, q *dns.Msg) bool {
		return func(l *link, q *dns.Msg) bool { return l.write(new(dns.Msg).SetRcode(q, code)) }
	}
	for name, spoil := range map[string]func(f *fake){
		"refuses EDNS": func(f *fake) { f.edns = false },
		"does not know EDNS": func(f *fake) {
			f.misbehave = func(l *link, q *dns.Msg) bool { return q.IsEdns0() != nil && refuse(dns.RcodeNotImplemented)(l, q) }
		},
		"drops EDNS":        func(f *fake) { f.misbehave = func(_ *link, q *dns.Msg) bool { return q.IsEdns0() != nil } },
		"truncates answers": func(f *fake) { f.limit = 100 },
		"truncates within":  func(f *fake) { f.misbehave = truncateWithin(f) },
		"no UDP":            func(f *fake) { f.misbehave = func(l *link, q *dns.Msg) bool { return l.network == "udp" } },
		"no TCP":            func(f *fake) { f.noTCP, f.limit = true, 300 },
		"drops an unknown type": func(f *fake) {
			f.misbehave = func(_ *link, q *dns.Msg) bool { return q.Question[0].Qtype == dns.TypeHTTPS }
		},
		"refuses some": func(f *fake) {
			f.misbehave = func(l *link, q *dns.Msg) bool {
				return q.Question[0].Qtype == dns.TypeHTTPS && refuse(dns.RcodeServerFailure)(l, q)
			}
		},
		"sends strays first":       func(f *fake) { f.misbehave = strays(f) },
		"answers in other letters": func(f *fake) { f.misbehave = shout(f) },
		"adds what nobody asked":   func(f *fake) { f.misbehave = extras(f) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				f := w.add("ns1.dns.test", "192.0.2.1", domain, inUse)
				spoil(f)
				r := zoneOf(t, w, servers("192.0.2.1"))
				want := visible(t, domain+".", inUse)
				partial := false
				switch name {
				case "drops an unknown type", "refuses some":
					partial = true
					want = without(want, " HTTPS ")
				case "no TCP": // an answer that is truncated cannot be had, nor what it leads to
					partial = true
					want = without(want, domain+" TXT", "out.", "spf-a.", "spf-b.")
				}
				if r.Method != scan.MethodQuestions || r.Partial != partial {
					t.Errorf("%s, partial %t", r.Method, r.Partial)
				}
				compare(t, r.Records, want)
			})
		})
	}
}

func without(lines []string, parts ...string) []string {
	var out []string
	for _, line := range lines {
		has := false
		for _, part := range parts {
			has = has || strings.Contains(" "+line, " "+strings.TrimPrefix(part, " "))
		}
		if !has {
			out = append(out, line)
		}
	}
	return out
}

// truncateWithin cuts packets within a record.
func truncateWithin(f *fake) func(l *link, q *dns.Msg) bool {
	return func(l *link, q *dns.Msg) bool {
		m := f.answer(q)
		if l.network != "udp" || !isQuestion(q) || len(m.Answer) == 0 {
			return false
		}
		m.Truncated = true
		wire, _ := m.Pack()
		return l.writeRaw(wire[:len(wire)-3])
	}
}

// strays sends packets that are no answers before the answer.
func strays(f *fake) func(l *link, q *dns.Msg) bool {
	return func(l *link, q *dns.Msg) bool {
		if l.network != "udp" || !isQuestion(q) {
			return false
		}
		m := f.answer(q)
		other := m.Copy()
		other.Id++
		other.Answer = []dns.RR{record("lie.example.com. 60 IN A 192.0.2.66")}
		l.write(other)
		other = m.Copy()
		other.Question[0].Name = "lie.example.com."
		l.write(other)
		l.write(q)
		l.writeRaw([]byte("no message"))
		return l.write(m)
	}
}

// shout answers in upper case.
func shout(f *fake) func(l *link, q *dns.Msg) bool {
	return func(l *link, q *dns.Msg) bool {
		if !isQuestion(q) {
			return false
		}
		m := f.answer(q)
		m.Question[0].Name = strings.ToUpper(m.Question[0].Name)
		for _, rrs := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
			for i, rr := range rrs {
				rrs[i] = dns.Copy(rr)
				rrs[i].Header().Name = strings.ToUpper(rr.Header().Name)
				if ns, ok := rrs[i].(*dns.NS); ok {
					ns.Ns = strings.ToUpper(ns.Ns)
				}
				if alias, ok := rrs[i].(*dns.CNAME); ok {
					alias.Target = strings.ToUpper(alias.Target)
				}
			}
		}
		return l.write(m)
	}
}

// extras adds records of other names, types and classes to each answer.
func extras(f *fake) func(l *link, q *dns.Msg) bool {
	return func(l *link, q *dns.Msg) bool {
		if !isQuestion(q) {
			return false
		}
		m := f.answer(q)
		m.Answer = append(m.Answer, record("lie.example.com. 60 IN A 192.0.2.66"), record("www.lie.test. 60 IN A 192.0.2.66"),
			&dns.TXT{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassCHAOS}, Txt: []string{"lie"}},
			&dns.ANY{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET}})
		m.Ns = append(m.Ns, record("lie.example.com. 60 IN NS ns.lie.test."))
		m.Extra = append(m.Extra, record("www.example.com. 60 IN A 192.0.2.66"))
		return l.write(m)
	}
}

// TestServersThatAreNoUse: without another server, nobody answers.
func TestServersThatAreNoUse(t *testing.T) {
	answerWith := func(change func(m *dns.Msg)) func(f *fake) {
		return func(f *fake) {
			f.misbehave = func(l *link, q *dns.Msg) bool {
				m := f.answer(q)
				change(m)
				return l.write(m)
			}
		}
	}
	for name, spoil := range map[string]func(f *fake){
		"dead":              func(f *fake) { f.dead = true },
		"silent":            func(f *fake) { f.misbehave = func(l *link, _ *dns.Msg) bool { l.wait(); return true } },
		"REFUSED":           answerWith(func(m *dns.Msg) { *m = *new(dns.Msg).SetRcode(m, dns.RcodeRefused) }),
		"without question":  answerWith(func(m *dns.Msg) { m.Rcode, m.Question, m.Answer, m.Ns = dns.RcodeRefused, nil, nil, nil }),
		"SERVFAIL":          answerWith(func(m *dns.Msg) { m.Rcode = dns.RcodeServerFailure }),
		"not authoritative": answerWith(func(m *dns.Msg) { m.Authoritative = false }),
		"refers upwards": answerWith(func(m *dns.Msg) {
			m.Authoritative, m.Answer, m.Ns = false, nil, []dns.RR{record(". 60 IN NS a.root-servers.test.")}
		}),
		"garbage": func(f *fake) {
			f.misbehave = func(l *link, q *dns.Msg) bool {
				return l.writeRaw([]byte{byte(q.Id >> 8), byte(q.Id), 0x84, 0, 0, 1, 0, 9, 0, 0, 0, 0, 99})
			}
		},
		"strays alone": func(f *fake) {
			f.misbehave = func(l *link, q *dns.Msg) bool {
				q.Response = true
				q.Id++
				for l.write(q) {
				}
				return true
			}
		},
		"truncates always": answerWith(func(m *dns.Msg) { m.Truncated = true }),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				bad := w.add("ns1.dns.test", "192.0.2.1", domain, inUse)
				spoil(bad)
				began := time.Now()
				_, err := w.client().Zone(t.Context(), servers("192.0.2.1"), domain, nil)
				if err != scan.ErrNoServer || time.Since(began) > 30*time.Second {
					t.Errorf("%v after %s", err, time.Since(began))
				}
				_, err = w.client().Ask(t.Context(), servers("192.0.2.1"), domain, "A")
				if err != scan.ErrNoServer {
					t.Errorf("Ask: %v", err)
				}

				good := w.add("ns2.dns.test", "192.0.2.2", domain, inUse)
				good.chain()
				r := zoneOf(t, w, servers("192.0.2.1", "192.0.2.2"))
				if r.Method != scan.MethodNSEC || !r.Complete {
					t.Errorf("%s, complete %t", r.Method, r.Complete)
				}
				a, err := w.client().Ask(t.Context(), servers("192.0.2.1", "192.0.2.2"), domain, "A")
				if err != nil || len(a) != 1 {
					t.Errorf("Ask: %v, %v", a, err)
				}
			})
		})
	}
}

// TestNewestZone: of servers that disagree, those with the newest zone are asked.
func TestNewestZone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old := w.add("ns1.dns.test", "192.0.2.1", domain, strings.ReplaceAll(inUse, "2026010101", "2026010100")+"old A 192.0.2.66\n")
		w.add("ns2.dns.test", "192.0.2.2", domain, inUse)
		w.add("ns3.dns.test", "192.0.2.3", domain, inUse)
		r := zoneOf(t, w, servers("192.0.2.1", "192.0.2.2", "192.0.2.3"))
		compare(t, r.Records, visible(t, domain+".", inUse))
		a, b, c := old.count(), w.servers["192.0.2.2"].count(), w.servers["192.0.2.3"].count()
		if a > 5 || b < 500 || c < 500 {
			t.Errorf("%d, %d and %d questions", a, b, c)
		}
	})
}

// TestServerDiesWithin: another one goes on, or what was found is told.
func TestServerDiesWithin(t *testing.T) {
	dieAfter := func(f *fake, n int) {
		f.misbehave = func(l *link, q *dns.Msg) bool {
			if f.count() > n {
				l.wait()
			}
			return f.count() > n
		}
	}
	inWorld(t, func(t *testing.T, w *world) {
		dieAfter(w.add("ns1.dns.test", "192.0.2.1", domain, inUse), 100)
		w.add("ns2.dns.test", "192.0.2.2", domain, inUse)
		r := zoneOf(t, w, servers("192.0.2.1", "192.0.2.2"))
		if r.Partial {
			t.Error("partial")
		}
		compare(t, r.Records, visible(t, domain+".", inUse))

		w.servers["192.0.2.1"].dead = true
		dieAfter(w.servers["192.0.2.2"], w.servers["192.0.2.2"].count()+100)
		began := time.Now()
		r = zoneOf(t, w, servers("192.0.2.1", "192.0.2.2"))
		if !r.Partial || r.Complete || len(r.Records) < 5 || time.Since(began) > 2*time.Minute {
			t.Errorf("partial %t, %d records after %s", r.Partial, len(r.Records), time.Since(began))
		}
	})
}

// TestTenMinutes is the longest time of a scan.
func TestTenMinutes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		f := w.add("ns1.dns.test", "192.0.2.1", domain, inUse)
		f.misbehave = func(*link, *dns.Msg) bool { time.Sleep(2900 * time.Millisecond); return false }
		began := time.Now()
		r := zoneOf(t, w, servers("192.0.2.1"))
		if took := time.Since(began); !r.Partial || len(r.Records) < 5 || took < 10*time.Minute || took > 10*time.Minute+time.Second {
			t.Errorf("partial %t, %d records after %s", r.Partial, len(r.Records), took)
		}
	})
}

// TestEndsWithItsContext: at once, whatever it waits for.
func TestEndsWithItsContext(t *testing.T) {
	for _, after := range []time.Duration{time.Millisecond, 40 * time.Millisecond, time.Second, 20 * time.Second} {
		for _, silent := range []bool{false, true} {
			inWorld(t, func(t *testing.T, w *world) {
				f := w.add("ns1.dns.test", "192.0.2.1", domain, inUse)
				f.misbehave = func(l *link, _ *dns.Msg) bool {
					if silent && f.count() > 1 {
						l.wait()
					}
					return silent && f.count() > 1
				}
				ctx, cancel := context.WithTimeout(t.Context(), after)
				defer cancel()
				began := time.Now()
				_, err := w.client().Zone(ctx, servers("192.0.2.1"), domain, nil)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != after {
					t.Errorf("%v after %s", err, time.Since(began))
				}
			})
		}
	}
}

// TestPaceIsShared: two scans at the same time ask a server no more often than one.
func TestPaceIsShared(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.add("ns1.dns.test", "192.0.2.1", domain, inUse)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				r := zoneOf(t, w, servers("192.0.2.1"))
				compare(t, r.Records, visible(t, domain+".", inUse))
			})
		}
		wg.Wait()
		if n := w.servers["192.0.2.1"].count(); n < 3000 {
			t.Errorf("%d questions", n)
		}
	})
}

// TestSetsWithoutEnd: each answer has as many records as fit.
func TestSetsWithoutEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		f := w.add("ns1.dns.test", "192.0.2.1", domain, "@ 60 SOA ns1.dns.test. h. 1 2 3 4 5\n@ 60 NS ns1.dns.test.\n")
		n := 0
		f.misbehave = func(l *link, q *dns.Msg) bool {
			if q.Question[0].Qtype == dns.TypeSOA || !isQuestion(q) {
				return false
			}
			m := new(dns.Msg).SetReply(q)
			m.Authoritative = true
			if l.network == "udp" {
				m.Truncated = true
				return l.write(m)
			}
			for range 900 {
				n++
				m.Answer = append(m.Answer, record("%s 60 IN MX %d m%d.example.com.", q.Question[0].Name, n%60_000, n))
			}
			m.Compress = true
			for i := range m.Answer {
				m.Answer[i].Header().Rrtype = dns.TypeMX
			}
			return l.write(m)
		}
		r := zoneOf(t, w, servers("192.0.2.1"))
		if !r.Partial || len(r.Records) > 10_000 {
			t.Errorf("partial %t, %d records", r.Partial, len(r.Records))
		}
		t.Logf("%d records, %d questions", len(r.Records), f.count())
	})
}

// TestWildcards: names that only the wildcard answers for are not told, unless records lead to
// them.
func TestWildcards(t *testing.T) {
	const begin = "@ 60 SOA ns1.dns.test. h. 1 2 3 4 5\n@ 60 NS ns1.dns.test.\n@ 60 MX 10 in\n"
	for wild, more := range map[string]string{
		"* 60 A 192.0.2.1\n* 60 TXT wild\n":                                             "in 60 A 192.0.2.1\nin 60 TXT wild\n",
		"* 60 CNAME elsewhere.test.\n":                                                  "in 60 CNAME elsewhere.test.\n",
		"* 60 CNAME example.com.\n":                                                     "in 60 CNAME example.com.\n",
		"* 60 MX 10 mx.mail.test.\n* 60 CAA 0 issue \"ca.test\"\n":                      "in 60 MX 10 mx.mail.test.\nin 60 CAA 0 issue \"ca.test\"\n",
		"* 60 A 192.0.2.1\n* 60 A 192.0.2.2\nwww 60 A 192.0.2.2\nshop 60 A 192.0.2.3\n": "in 60 A 192.0.2.1\nin 60 A 192.0.2.2\n",
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.add("ns1.dns.test", "192.0.2.1", domain, begin+wild)
			r := zoneOf(t, w, servers("192.0.2.1"))
			if !r.Wildcard || r.Partial {
				t.Errorf("%q: wildcard %t, partial %t", wild, r.Wildcard, r.Partial)
			}
			compare(t, r.Records, visible(t, domain+".", begin+wild+more))
		})
	}
}

// TestServerThatKnowsEveryName says NOERROR where a name does not exist. Hosts without an address
// are not found there.
func TestServerThatKnowsEveryName(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		text, _, _ := strings.Cut(inUse, "bounces MX")
		text = strings.Replace(strings.Replace(text, "*  A 192.0.2.81\n", "", 1), "* TXT \"wild\"\n", "", 1)
		f := w.add("ns1.dns.test", "192.0.2.1", domain, text)
		f.misbehave = func(l *link, q *dns.Msg) bool {
			m := f.answer(q)
			if isQuestion(q) && m.Rcode == dns.RcodeNameError {
				m.Rcode = dns.RcodeSuccess
				return l.write(m)
			}
			return false
		}
		r := zoneOf(t, w, servers("192.0.2.1"))
		if r.Wildcard || r.Partial {
			t.Errorf("wildcard %t, partial %t", r.Wildcard, r.Partial)
		}
		compare(t, r.Records, visible(t, domain+".", text))
		if n := f.count(); n > 2000 {
			t.Errorf("%d questions", n)
		}
	})
}

// TestMailBelowADomain: a host with mail of its own has keys of its own.
func TestMailBelowADomain(t *testing.T) {
	const text = `@ 60 SOA ns1.dns.test. h. 1 2 3 4 5
@ 60 NS ns1.dns.test.
mg 60 MX 10 mxa.mailgun.test.
mg 60 TXT "v=spf1 include:mailgun.test ~all"
pic._domainkey.mg 60 TXT "k=rsa; p=MIIB"
_dmarc.mg 60 TXT "v=DMARC1; p=none"
email.mg 60 CNAME mailgun.test.
`
	inWorld(t, func(t *testing.T, w *world) {
		w.add("ns1.dns.test", "192.0.2.1", domain, text)
		r := zoneOf(t, w, servers("192.0.2.1"))
		compare(t, r.Records, without(visible(t, domain+".", text), "email.mg."))
	})
}

// TestDelegationWithoutGlue asks for the addresses of its servers.
func TestDelegationWithoutGlue(t *testing.T) {
	const text = `@ 60 SOA ns1.dns.test. h. 1 2 3 4 5
@ 60 NS ns1.dns.test.
dev 60 NS ns.dev
dev 60 NS helper
ns.dev 60 A 192.0.2.54
helper 60 AAAA 2001:db8::55
`
	inWorld(t, func(t *testing.T, w *world) {
		f := w.add("ns1.dns.test", "192.0.2.1", domain, text)
		f.misbehave = func(l *link, q *dns.Msg) bool {
			m := f.answer(q)
			if name := dns.CanonicalName(q.Question[0].Name); !isQuestion(q) || m.Authoritative || name == "ns.dev.example.com." {
				return false
			}
			m.Extra = nil
			return l.write(m)
		}
		r := zoneOf(t, w, servers("192.0.2.1"))
		compare(t, r.Records, visible(t, domain+".", text))
	})
}

// TestTooManyNames: records may lead to any number of names.
func TestTooManyNames(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		f := w.add("ns1.dns.test", "192.0.2.1", domain, "@ 60 SOA ns1.dns.test. h. 1 2 3 4 5\n@ 60 NS ns1.dns.test.\n")
		f.misbehave = func(l *link, q *dns.Msg) bool {
			typ := q.Question[0].Qtype
			if typ == dns.TypeSOA || !isQuestion(q) || q.IsEdns0() != nil && q.IsEdns0().Do() {
				return false
			}
			m := new(dns.Msg).SetReply(q)
			m.Authoritative = true
			first, _, _ := strings.Cut(q.Question[0].Name, ".")
			if typ == dns.TypeA && len(q.Question[0].Name) < 200 && !strings.HasPrefix(first, "_") {
				m.Answer = []dns.RR{record("%s 60 IN CNAME a.%s", q.Question[0].Name, q.Question[0].Name)}
			} else {
				m.Rcode = dns.RcodeNameError
			}
			return l.write(m)
		}
		r := zoneOf(t, w, servers("192.0.2.1"))
		if len(r.Records) > 2001 {
			t.Errorf("%d records", len(r.Records))
		}
		t.Log(fmt.Sprint(len(r.Records)), f.count())
	})
}
