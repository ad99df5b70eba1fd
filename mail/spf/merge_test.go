package spf_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/spf"
)

const (
	domain   = "example.com"
	ourTerms = "mx ip4:192.0.2.1 ip6:2001:db8::1"
)

var (
	mxHosts = []string{"mx1.old.test", "MX2.old.test."} // where the domain's mail went before

	ourAddresses = []string{"192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"} // the second ones are those of our MX host

	// addresses has those that some record permits, their neighbours, and strangers.
	addresses = []string{
		"192.0.2.10", "2001:db8::10", "192.0.2.11", "198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.9", "198.51.100.100", "2001:db8:1::1", "2001:db8:1::2", "2001:db8:1::3",
		"203.0.113.1", "203.0.113.5", "203.0.113.17", "203.0.113.33", "203.0.113.49", "203.0.113.65", "203.0.113.66", "203.0.113.80", "203.0.113.99", "203.0.113.100",
		"203.0.113.129", "203.0.113.145", "203.0.113.150", "203.0.113.160", "203.0.113.200", "203.0.113.201", "203.0.113.202", "2001:db8:5::1", "2001:db8:6::1",
	}
)

// A world is the DNS of a test: records by name and type.
type world map[string]map[uint16][]dns.RR

// newWorld has what records refer to, the MX hosts of the domain, and its TXT records.
func newWorld(t testing.TB, mx []string, texts ...string) world {
	t.Helper()
	w := world{}
	for line := range strings.Lines(`
example.com. A 192.0.2.10
example.com. AAAA 2001:db8::10
mx1.old.test. A 198.51.100.1
mx1.old.test. AAAA 2001:db8:1::1
mx2.old.test. A 198.51.100.2
mx2.old.test. AAAA 2001:db8:1::2
mail.ours.test. A 192.0.2.2
mail.ours.test. AAAA 2001:db8::2
other.test. MX 10 mx.other.test.
mx.other.test. A 198.51.100.100
mx.other.test. AAAA 2001:db8:1::3
_spf.large.test. TXT "v=spf1 include:_n1.large.test include:_n2.large.test include:_n3.large.test ~all"
_n1.large.test. TXT "v=spf1 ip4:203.0.113.0/28 ~all"
_n2.large.test. TXT "v=spf1 ip4:203.0.113.16/28 ip6:2001:db8:6::/48 ~all"
_n3.large.test. TXT "v=spf1 ip4:203.0.113.32/28 ~all"
spf.offices.test. TXT "v=spf1 ip4:203.0.113.64/28 -all"
out.sender.test. A 203.0.113.80
out.sender.test. AAAA 2001:db8:6::1
_spf.hoster.test. TXT "v=spf1 ip4:203.0.113.128/28 a:relay.hoster.test -all"
relay.hoster.test. A 203.0.113.145
relay.hoster.test. AAAA 2001:db8:1::3
203.0.113.99._spf.macro.test. A 127.0.0.2
example.com._spf.macro.test. TXT "v=spf1 ip4:203.0.113.160 include:%{i}._in.macro.test -all"
203.0.113.100._in.macro.test. TXT "v=spf1 +all"
200.113.0.203.in-addr.arpa. PTR mail.ptr.test.
mail.ptr.test. A 203.0.113.200
201.113.0.203.in-addr.arpa. PTR host.example.com.
host.example.com. A 203.0.113.201
loop.test. TXT "v=spf1 include:loop.test -all"
round.test. TXT "v=spf1 include:about.test -all"
about.test. TXT "v=spf1 redirect=round.test"
none.test. TXT "no policy"
two.test. TXT "v=spf1 -all"
two.test. TXT "v=spf1 +all"
`) {
		if line != "\n" {
			w.add(t, strings.Replace(strings.TrimSpace(line), " ", " 60 IN ", 1))
		}
	}
	for _, host := range mx {
		w.add(t, domain+". 60 IN MX 10 "+dns.Fqdn(host))
	}
	for _, text := range texts {
		w.add(t, domain+`. 60 IN TXT "`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)+`"`)
	}
	return w
}

func (w world) add(t testing.TB, text string) {
	t.Helper()
	rr, err := dns.NewRR(text)
	if err != nil {
		t.Fatal(err)
	}
	name := dns.CanonicalName(rr.Header().Name)
	if w[name] == nil {
		w[name] = map[uint16][]dns.RR{}
	}
	w[name][rr.Header().Rrtype] = append(w[name][rr.Header().Rrtype], rr)
}

func find[T dns.RR](w world, name string, typ uint16) ([]T, error) {
	var out []T
	for _, rr := range w[dns.CanonicalName(name)][typ] {
		out = append(out, rr.(T))
	}
	if out == nil {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return out, nil
}

func (w world) LookupTXT(_ context.Context, name string) ([]string, error) {
	found, err := find[*dns.TXT](w, name, dns.TypeTXT)
	var out []string
	for _, rr := range found {
		out = append(out, strings.Join(rr.Txt, ""))
	}
	return out, err
}

func (w world) LookupMX(_ context.Context, name string) ([]*net.MX, error) {
	found, err := find[*dns.MX](w, name, dns.TypeMX)
	var out []*net.MX
	for _, rr := range found {
		out = append(out, &net.MX{Host: rr.Mx, Pref: rr.Preference})
	}
	return out, err
}

func (w world) LookupIPAddr(_ context.Context, name string) ([]net.IPAddr, error) {
	var out []net.IPAddr
	four, err := find[*dns.A](w, name, dns.TypeA)
	for _, rr := range four {
		out = append(out, net.IPAddr{IP: rr.A})
	}
	six, err6 := find[*dns.AAAA](w, name, dns.TypeAAAA)
	for _, rr := range six {
		out = append(out, net.IPAddr{IP: rr.AAAA})
	}
	if err6 == nil {
		err = nil
	}
	return out, err
}

func (w world) LookupAddr(_ context.Context, address string) ([]string, error) {
	reverse, err := dns.ReverseAddr(address)
	if err != nil {
		return nil, err
	}
	found, err := find[*dns.PTR](w, reverse, dns.TypePTR)
	var out []string
	for _, rr := range found {
		out = append(out, rr.Ptr)
	}
	return out, err
}

// evaluate returns the SPF result of a message from an address, by our own evaluation.
func (w world) evaluate(t *testing.T, address string) string {
	t.Helper()
	const message = "From: <a@example.com>\r\n\r\nx\r\n"
	verdict, err := (&auth.Verifier{Resolver: w}).Verify(t.Context(), auth.Request{
		IP: netip.MustParseAddr(address), Helo: "client.test", MailFrom: "a@" + domain, AuthservID: "mx.test",
		Message: strings.NewReader(message), Size: int64(len(message)), HeaderFrom: []string{"a@" + domain},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(verdict.SPF)
}

// judge evaluates messages with pyspf. It reads {"zone": {name: {type: [data]}}, "addresses": []}
// from each line, and writes the results as a list.
const judge = `
import json, sys, spf
zone = {}
def look(name, qtype, *more):
    name = name.rstrip(".").lower()
    return [((name, qtype), tuple(d) if isinstance(d, list) else d) for d in zone.get(name, {}).get(qtype, [])]
spf.DNSLookup = look
for line in sys.stdin:
    q = json.loads(line)
    zone = q["zone"]
    print(json.dumps([spf.check2(i=a, s="a@example.com", h="client.test")[0] for a in q["addresses"]]), flush=True)
`

// pyspf evaluates messages with Debian's python3-spf, which is not our code.
type pyspf struct {
	in  *json.Encoder
	out *json.Decoder
}

func startPyspf(t *testing.T) pyspf {
	t.Helper()
	const python = "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import spf").Run(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("python3-spf is missing; make peers installs it")
		}
		t.Skip("python3-spf is not installed")
	}
	cmd := exec.Command(python, "-c", judge)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("pyspf: %v", err)
		}
	})
	return pyspf{json.NewEncoder(in), json.NewDecoder(out)}
}

// evaluate returns the SPF results of messages from addresses.
func (p pyspf) evaluate(t *testing.T, w world, addresses []string) (results []string) {
	t.Helper()
	zone := map[string]map[string][]any{}
	for name, types := range w {
		out := map[string][]any{}
		for typ, rrs := range types {
			for _, rr := range rrs {
				var data any
				switch rr := rr.(type) {
				case *dns.A:
					data = rr.A.String()
				case *dns.AAAA:
					data = rr.AAAA.String()
				case *dns.MX:
					data = []any{rr.Preference, strings.TrimSuffix(rr.Mx, ".")}
				case *dns.PTR:
					data = strings.TrimSuffix(rr.Ptr, ".")
				case *dns.TXT:
					data = rr.Txt
				}
				out[dns.TypeToString[typ]] = append(out[dns.TypeToString[typ]], data)
			}
		}
		zone[strings.TrimSuffix(name, ".")] = out
	}
	if err := errors.Join(p.in.Encode(map[string]any{"zone": zone, "addresses": addresses}), p.out.Decode(&results)); err != nil {
		t.Fatal(err)
	}
	return results
}

// mergeCases are present TXT records of a domain, and what stands after our terms in the merged
// record.
var mergeCases = []struct {
	old     []string
	want    string
	lookups int // that of our mx is one of them
}{
	{nil, "~all", 1},
	{[]string{"no policy", "v=spf10 x"}, "~all", 1},
	{[]string{"v=spf1 -all"}, "-all", 1},
	{[]string{"v=spf1"}, "~all", 1},
	{[]string{"v=spf1 a"}, "a ~all", 2},
	{[]string{"v=spf1 mx -all"}, "a:mx1.old.test a:mx2.old.test -all", 3},
	{[]string{"v=spf1 a mx ~all"}, "a a:mx1.old.test a:mx2.old.test ~all", 4},
	{[]string{"v=spf1 ?mx ~all"}, "?a:mx1.old.test ?a:mx2.old.test ~all", 3},
	{[]string{"v=spf1 mx/28 -all"}, "a:mx1.old.test/28 a:mx2.old.test/28 -all", 3},
	{[]string{"v=spf1 mx:Example.com. -all"}, "a:mx1.old.test a:mx2.old.test -all", 3},
	{[]string{"v=spf1 mx:%{d} -all"}, "a:mx1.old.test a:mx2.old.test -all", 3},
	{[]string{"v=spf1 mx:other.test -all"}, "mx:other.test -all", 2},
	{[]string{"v=spf1 include:_spf.large.test ~all"}, "include:_spf.large.test ~all", 5},
	{[]string{"v=spf1 include:spf.offices.test -all"}, "include:spf.offices.test -all", 2},
	{[]string{"v=spf1 include:_spf.large.test include:spf.offices.test mx ?all"}, "include:_spf.large.test include:spf.offices.test a:mx1.old.test a:mx2.old.test ?all", 8},
	{[]string{"v=spf1 ip4:203.0.113.5 ip6:2001:db8:5::/64 -all"}, "ip4:203.0.113.5 ip6:2001:db8:5::/64 -all", 1},
	{[]string{"v=spf1 ip4:192.0.2.1 ip4:192.0.2.1/32 ip6:2001:DB8::1 ~all"}, "~all", 1},
	{[]string{"v=spf1 a a include:spf.offices.test include:SPF.offices.test -all"}, "a include:spf.offices.test -all", 3},
	{[]string{"v=spf1 -ip4:203.0.113.66 include:spf.offices.test ~all"}, "-ip4:203.0.113.66 include:spf.offices.test ~all", 2},
	{[]string{"V=SPF1  MX A:Out.Sender.test -ALL"}, "a:mx1.old.test a:mx2.old.test a:Out.Sender.test -all", 4},
	{[]string{"v=spf1 +all"}, "all", 1},
	{[]string{"v=spf1 a -all ip4:203.0.113.5"}, "a -all", 2},
	{[]string{"v=spf1 redirect=_spf.hoster.test"}, "redirect=_spf.hoster.test", 3},
	{[]string{"v=spf1 redirect=_spf.hoster.test mx"}, "a:mx1.old.test a:mx2.old.test redirect=_spf.hoster.test", 5},
	{[]string{"v=spf1 redirect=_spf.hoster.test a -all"}, "a -all", 2},
	{[]string{"v=spf1 exists:%{i}._spf.macro.test -all"}, "exists:%{i}._spf.macro.test -all", 2},
	{[]string{"v=spf1 include:%{d}._spf.macro.test -all"}, "include:%{d}._spf.macro.test -all", 3},
	{[]string{"v=spf1 include:%{o}._spf.macro.test ~all"}, "include:%{o}._spf.macro.test ~all", 3},
	{[]string{"v=spf1 ptr -all"}, "ptr -all", 2},
	{[]string{"v=spf1 ptr:ptr.test ?all"}, "ptr:ptr.test ?all", 2},
	{[]string{"v=spf1 a -all exp=why.example.com"}, "a exp=why.example.com -all", 2},
	{[]string{"v=spf1 moo=x a moo=y -all"}, "moo=x a -all", 2},
	{[]string{"v=spf1 ip4:203.0.113 a bogus -all"}, "a -all", 2},
	{[]string{"v=spf1 include:none.test a -all"}, "include:none.test a -all", 3},
	{[]string{"v=spf1 include:two.test -all"}, "include:two.test -all", 2},
	{[]string{"owner=1", "v=spf1 a -all"}, "a -all", 2},
	{[]string{"v=spf1 include:spf.offices.test -all", "v=spf1 ip4:203.0.113.5 ~all"}, "include:spf.offices.test ip4:203.0.113.5 ~all", 2},
	{[]string{"v=spf1 ip4:203.0.113.5 ?all", "v=spf1 a -all"}, "ip4:203.0.113.5 a ?all", 2},
	{[]string{"v=spf1 redirect=_spf.hoster.test", "v=spf1 mx -all"}, "include:_spf.hoster.test a:mx1.old.test a:mx2.old.test -all", 5},
	{[]string{"v=spf1 redirect=_spf.hoster.test", "v=spf1 redirect=_spf.large.test"}, "include:_spf.hoster.test include:_spf.large.test ~all", 7},
	{ // as many look-ups as receivers make
		[]string{"v=spf1 include:_spf.large.test include:spf.offices.test a exists:%{i}._spf.macro.test a:out.sender.test a:mx1.old.test -all"},
		"include:_spf.large.test include:spf.offices.test a exists:%{i}._spf.macro.test a:out.sender.test a:mx1.old.test -all", 10,
	},
}

func TestMerge(t *testing.T) {
	if len(mergeCases) < 30 {
		t.Fatalf("%d cases", len(mergeCases))
	}
	for _, tc := range mergeCases {
		got, err := spf.Merge(t.Context(), newWorld(t, mxHosts), domain, strings.Fields(ourTerms), tc.old, mxHosts)
		lookups := 0
		for _, n := range got.Lookups {
			lookups += n
		}
		if want := "v=spf1 " + ourTerms + " " + tc.want; err != nil || got.Text != want || lookups != tc.lookups {
			t.Errorf("%q: %q with %d look-ups, %v\nwant %q with %d", tc.old, got.Text, lookups, err, want, tc.lookups)
		}
	}
}

// TestWithoutMX: only an mx of the domain itself is replaced, and a record without one stays as it
// is.
func TestWithoutMX(t *testing.T) {
	hosts := []string{"MX1.else.test.", "mx2.else.test", "."}
	for _, tc := range []struct {
		text  string
		hosts []string
		want  string
	}{
		{"v=spf1 mx -all", hosts, "v=spf1 a:mx1.else.test a:mx2.else.test -all"},
		{"v=spf1 ?mx:a.test/24//64 ~mx:%{d} -all", hosts, "v=spf1 ?a:mx1.else.test/24//64 ?a:mx2.else.test/24//64 ~a:mx1.else.test ~a:mx2.else.test -all"},
		{"V=SPF1  +a mx:other.test  redirect=x.test", hosts, "V=SPF1  +a mx:other.test  redirect=x.test"},
		{"v=spf1 mx -all", nil, "v=spf1 mx -all"},
		{"v=spf1 mx -all", []string{"."}, "v=spf1 -all"},
		{"v=spf1 mx mx=x -all", []string{"mx1.else.test"}, "v=spf1 a:mx1.else.test mx=x -all"},
	} {
		if got := spf.WithoutMX(tc.text, "a.test", tc.hosts); got != tc.want {
			t.Errorf("%q with %q:\n got %q\nwant %q", tc.text, tc.hosts, got, tc.want)
		}
	}
}

// TestMergedRecordsPermitBothSides evaluates each record before and after the merge, by our own
// evaluation and by another implementation: our addresses pass, and every other address has the
// result that it had. Of several records, those addresses pass that passed by one of them.
func TestMergedRecordsPermitBothSides(t *testing.T) {
	other := startPyspf(t)
	for _, tc := range mergeCases {
		merged, err := spf.Merge(t.Context(), newWorld(t, mxHosts), domain, strings.Fields(ourTerms), tc.old, mxHosts)
		if err != nil {
			t.Error(err)
			continue
		}
		after := newWorld(t, []string{"mail.ours.test"}, merged.Text)
		for i, theirs := range other.evaluate(t, after, ourAddresses) {
			if ours := after.evaluate(t, ourAddresses[i]); ours != "pass" || theirs != "pass" {
				t.Errorf("%q: our address %s has %s, and by pyspf %s", merged.Text, ourAddresses[i], ours, theirs)
			}
		}
		records := slices.DeleteFunc(slices.Clone(tc.old), func(text string) bool { return !spf.IsRecord(text) })
		for i, theirs := range other.evaluate(t, after, addresses) {
			address, ours := addresses[i], after.evaluate(t, addresses[i])
			if ours != theirs {
				t.Errorf("%q: %s has %s, and by pyspf %s", merged.Text, address, ours, theirs)
			}
			var had []string
			for _, text := range records {
				had = append(had, newWorld(t, mxHosts, text).evaluate(t, address))
			}
			passed := slices.Contains(had, "pass")
			hasEnd := len(records) == 1 && (strings.Contains(strings.ToLower(records[0]), "all") || strings.Contains(records[0], "redirect="))
			switch {
			case passed != (ours == "pass") && !slices.Contains(had, "permerror"): // a malformed term is left out, and the others count
				t.Errorf("%q became %q: %s had %q and has %s", tc.old, merged.Text, address, had, ours)
			case hasEnd && had[0] != ours && had[0] != "permerror":
				t.Errorf("%q became %q: %s had %s and has %s", tc.old, merged.Text, address, had[0], ours)
			}
		}
	}
}

func TestMergeRefusesTooManyLookups(t *testing.T) {
	for _, tc := range []struct {
		old  string
		want map[string]int
	}{
		{
			"v=spf1 include:_spf.large.test include:spf.offices.test a exists:%{i}._spf.macro.test a:out.sender.test mx -all",
			map[string]int{"mx": 1, "include:_spf.large.test": 4, "include:spf.offices.test": 1, "a": 1, "exists:%{i}._spf.macro.test": 1, "a:out.sender.test": 1, "a:mx1.old.test": 1, "a:mx2.old.test": 1},
		},
		{"v=spf1 redirect=loop.test", nil},
		{"v=spf1 include:round.test ~all", nil},
	} {
		merged, err := spf.Merge(t.Context(), newWorld(t, mxHosts), domain, strings.Fields(ourTerms), []string{tc.old}, mxHosts)
		var many *spf.TooManyLookups
		if !errors.As(err, &many) || merged.Text != "" || tc.want != nil && !maps.Equal(many.Lookups, tc.want) {
			t.Errorf("%q: %+v, %v", tc.old, merged, err)
		}
		if tc.want != nil && (!strings.Contains(err.Error(), "11 DNS look-ups") || !strings.Contains(err.Error(), "include:_spf.large.test needs 4")) {
			t.Error(err)
		}
	}
}

// slowWorld counts questions, and answers them after a while, or never if none is set.
type slowWorld struct {
	delay time.Duration
	asked int
	text  func(name string) string
}

func (s *slowWorld) LookupTXT(ctx context.Context, name string) ([]string, error) {
	s.asked++
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(s.delay):
		return []string{s.text(name)}, nil
	}
}

// TestMergeIsBounded: neither many names nor slow servers keep it busy.
func TestMergeIsBounded(t *testing.T) {
	merge := func(t *testing.T, s *slowWorld) error {
		_, err := spf.Merge(t.Context(), s, domain, strings.Fields(ourTerms), []string{"v=spf1 include:0.test -all"}, nil)
		return err
	}
	synctest.Test(t, func(t *testing.T) {
		wide := &slowWorld{text: func(name string) string {
			text := "v=spf1"
			for i := range 30 {
				text += fmt.Sprintf(" include:%d.%s", i, name)
			}
			return text + " -all"
		}}
		var many *spf.TooManyLookups
		if err := merge(t, wide); !errors.As(err, &many) || wide.asked > 60 {
			t.Errorf("%v after %d questions", err, wide.asked)
		}
		start := time.Now()
		slow := &slowWorld{delay: time.Hour}
		if err := merge(t, slow); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 21*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// FuzzMerge: whatever was there before, the result is one well-formed record that begins with our
// terms, has what was there, and stays as it is when it is merged again.
func FuzzMerge(f *testing.F) {
	for _, tc := range mergeCases {
		f.Add(strings.Join(tc.old, "\n"))
	}
	const ours = "ip4:192.0.2.1 ip6:2001:db8::1" // no mx, which would be replaced in the second merge
	f.Fuzz(func(t *testing.T, texts string) {
		old := strings.Split(texts, "\n")
		w := newWorld(t, mxHosts)
		merged, err := spf.Merge(t.Context(), w, domain, strings.Fields(ours), old, mxHosts)
		if err != nil {
			return
		}
		record := spf.Parse(merged.Text)
		if !strings.HasPrefix(merged.Text, "v=spf1 "+ours+" ") || !record.WellFormed || len(merged.Lookups) > spf.MaxLookups {
			t.Fatalf("%q became %q, %v", old, merged.Text, merged.Lookups)
		}
		terms, end := record.Split()
		if len(terms)+1 != len(record.Terms) || end.Name != "all" && end.Name != "redirect" || end != record.Terms[len(terms)] {
			t.Fatalf("%q became %q, which does not end in its ending", old, merged.Text)
		}
		has := map[string]bool{}
		for _, term := range terms {
			if has[term.Key()] {
				t.Fatalf("%q became %q, which has a term twice", old, merged.Text)
			}
			has[term.Key()] = true
		}
		for _, text := range old {
			if !spf.IsRecord(text) {
				continue
			}
			had, _ := spf.Parse(text).Split()
			for _, term := range had {
				if term.Name != "mx" && !has[term.Key()] {
					t.Fatalf("%q became %q, without %s", old, merged.Text, term)
				}
			}
		}
		again, err := spf.Merge(t.Context(), w, domain, strings.Fields(ours), []string{merged.Text}, mxHosts)
		if err != nil || again.Text != merged.Text {
			t.Fatalf("%q became %q, then %q, %v", old, merged.Text, again.Text, err)
		}
	})
}
