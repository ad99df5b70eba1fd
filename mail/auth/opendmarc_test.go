package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/mail/idn"
)

// libopendmarc asks Debian's libopendmarc, which opendmarc itself is built on, for its verdicts. It
// looks records up in the DNS server that it is given, as we do.
const libopendmarc = `
import ctypes, json, socket, struct, sys
lib = ctypes.CDLL("libopendmarc.so.2")
lib.opendmarc_policy_connect_init.restype = ctypes.c_void_p
class Lib(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("file", ctypes.c_char * 4096), ("count", ctypes.c_int), ("servers", (ctypes.c_ubyte * 16) * 3)]
outcomes = {"none": 0, "pass": 1, "fail": 2, "temperror": 3}
verdicts = {14: "none", 15: "pass", 16: "ask for reject", 17: "ask for quarantine", 18: "ask for none"}
out = []
for c in json.load(sys.stdin):
    init = Lib(1, b"/usr/share/publicsuffix/public_suffix_list.dat", 1)
    server = struct.pack("=H", socket.AF_INET) + struct.pack("!H", c["port"]) + socket.inet_aton("127.0.0.1") + bytes(8)
    ctypes.memmove(init.servers[0], server, 16)
    assert lib.opendmarc_policy_library_init(ctypes.byref(init)) == 0
    p = ctypes.c_void_p(lib.opendmarc_policy_connect_init(b"192.0.2.1", 4))
    assert lib.opendmarc_policy_store_from_domain(p, c["from"].encode()) == 0
    if c["spf_domain"]:
        lib.opendmarc_policy_store_spf(p, c["spf_domain"].encode(), outcomes.get(c["spf"], 2), 1, None)
    for d in c["dkim"]:
        lib.opendmarc_policy_store_dkim(p, d["domain"].encode(), b"s", outcomes.get(d["result"], 2), None)
    one = {"verdict": "none", "dkim": False, "spf": False}
    if lib.opendmarc_policy_query_dmarc(p, None) == 0:
        dkim, spf = ctypes.c_int(0), ctypes.c_int(0)
        said = lib.opendmarc_get_policy_to_enforce(p)
        lib.opendmarc_policy_fetch_alignment(p, ctypes.byref(dkim), ctypes.byref(spf))
        one = {"verdict": verdicts.get(said, str(said)), "dkim": dkim.value == 4, "spf": spf.value == 4}
    out.append(one)
    lib.opendmarc_policy_connect_shutdown(p)
    lib.opendmarc_policy_library_shutdown(ctypes.byref(init))
json.dump(out, sys.stdout)
`

// moreDMARCCases are what was added to dmarcCases so that 60 of them are such as opendmarc can be
// asked about.
var moreDMARCCases = []dmarcCase{
	{name: "quarantine, nothing passes", txt: map[string]string{"x.com": "v=DMARC1; p=quarantine"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "quarantine"},
	{name: "quarantine, SPF of another", txt: map[string]string{"x.com": "v=DMARC1; p=quarantine"}, from: "a@x.com", have: spfOf("evil.org", Pass), result: Fail, policy: "quarantine"},
	{name: "quarantine, DKIM passes", txt: map[string]string{"x.com": "v=DMARC1; p=quarantine"}, from: "a@x.com", have: dkimOf(signed("x.com", Pass)), result: Pass},
	{name: "none, SPF of another", txt: map[string]string{"x.com": "v=DMARC1; p=none"}, from: "a@x.com", have: spfOf("evil.org", Pass), result: Fail, policy: "none"},
	{name: "none, SPF passes", txt: map[string]string{"x.com": "v=DMARC1; p=none"}, from: "a@x.com", have: spfOf("x.com", Pass), result: Pass},
	{name: "explicit relaxed", txt: map[string]string{"x.com": rej + "; adkim=r; aspf=r"}, from: "a@m.x.com", have: spfOf("b.x.com", Pass), result: Pass},
	{name: "strict SPF, same domain", txt: map[string]string{"x.com": rej + "; aspf=s"}, from: "a@x.com", have: spfOf("x.com", Pass), result: Pass},
	{name: "strict SPF, parent of From", txt: map[string]string{"m.x.com": rej + "; aspf=s"}, from: "a@m.x.com", have: spfOf("x.com", Pass), result: Fail, policy: "reject"},
	{name: "strict SPF, sibling", txt: map[string]string{"m.x.com": rej + "; aspf=s"}, from: "a@m.x.com", have: spfOf("n.x.com", Pass), result: Fail, policy: "reject"},
	{name: "strict SPF leaves DKIM relaxed", txt: map[string]string{"x.com": rej + "; aspf=s"}, from: "a@x.com", have: dkimOf(signed("m.x.com", Pass)), result: Pass},
	{name: "strict DKIM, same domain", txt: map[string]string{"x.com": rej + "; adkim=s"}, from: "a@x.com", have: dkimOf(signed("x.com", Pass)), result: Pass},
	{name: "strict DKIM, parent of From", txt: map[string]string{"m.x.com": rej + "; adkim=s"}, from: "a@m.x.com", have: dkimOf(signed("x.com", Pass)), result: Fail, policy: "reject"},
	{name: "strict DKIM, sibling", txt: map[string]string{"m.x.com": rej + "; adkim=s"}, from: "a@m.x.com", have: dkimOf(signed("n.x.com", Pass)), result: Fail, policy: "reject"},
	{name: "strict both, SPF same", txt: map[string]string{"x.com": rej + "; adkim=s; aspf=s"}, from: "a@x.com", have: Verdict{SPF: Pass, SPFDomain: "x.com", Signatures: []Signature{signed("list.org", Pass)}}, result: Pass},
	{name: "both pass", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: Verdict{SPF: Pass, SPFDomain: "x.com", Signatures: []Signature{signed("x.com", Pass)}}, result: Pass},
	{name: "both of others", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: Verdict{SPF: Pass, SPFDomain: "esp.net", Signatures: []Signature{signed("esp.net", Pass)}}, result: Fail, policy: "reject"},
	{name: "SPF of the provider, DKIM of the author", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: Verdict{SPF: Pass, SPFDomain: "esp.net", Signatures: []Signature{signed("x.com", Pass)}}, result: Pass},
	{name: "SPF of the author, DKIM of the provider", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: Verdict{SPF: Pass, SPFDomain: "bounce.x.com", Signatures: []Signature{signed("esp.net", Pass)}}, result: Pass},
	{name: "many signatures of others", txt: map[string]string{"x.com": rej}, from: "a@x.com", have: dkimOf(signed("one.org", Pass), signed("two.org", Pass), signed("three.org", Pass)), result: Fail, policy: "reject"},
	{name: "record of the subdomain itself", txt: map[string]string{"m.x.com": rej, "x.com": "v=DMARC1; p=none"}, from: "a@m.x.com", have: spfOf("", None), result: Fail, policy: "reject"},
	{name: "milder record of the subdomain itself", txt: map[string]string{"m.x.com": "v=DMARC1; p=none", "x.com": rej}, from: "a@m.x.com", have: spfOf("", None), result: Fail, policy: "none"},
	{name: "policy of the organisation without sp=", txt: map[string]string{"x.com": "v=DMARC1; p=quarantine"}, from: "a@deep.down.x.com", have: spfOf("", None), result: Fail, policy: "quarantine"},
	{name: "sp=reject above p=none", txt: map[string]string{"x.com": "v=DMARC1; p=none; sp=reject"}, from: "a@m.x.com", have: spfOf("", None), result: Fail, policy: "reject"},
	{name: "sp=reject is not for the domain itself", txt: map[string]string{"x.com": "v=DMARC1; p=none; sp=reject"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "none"},
	{name: "no record anywhere above", txt: map[string]string{"y.com": rej}, from: "a@deep.x.com", have: spfOf("", None), result: None},
	{name: "record with everything in it", txt: map[string]string{"x.com": "v=DMARC1; p=reject; sp=none; adkim=s; aspf=s; pct=100; ri=3600; fo=1:d:s; rua=mailto:d@x.com,mailto:e@y.com!10m; ruf=mailto:f@x.com"}, from: "a@x.com", have: spfOf("x.com", Pass), result: Pass},
	{name: "record without spaces", txt: map[string]string{"x.com": "v=DMARC1;p=reject;"}, from: "a@x.com", have: spfOf("", None), result: Fail, policy: "reject"},
	{name: "org.uk is a public suffix", txt: map[string]string{"a.org.uk": rej}, from: "a@a.org.uk", have: dkimOf(signed("b.org.uk", Pass)), result: Fail, policy: "reject"},
	{name: "subdomain under com.au", txt: map[string]string{"a.com.au": rej + "; sp=quarantine"}, from: "a@m.a.com.au", have: dkimOf(signed("b.com.au", Pass)), result: Fail, policy: "quarantine"},
	{name: "aligned under com.au", txt: map[string]string{"a.com.au": rej}, from: "a@m.a.com.au", have: dkimOf(signed("a.com.au", Pass)), result: Pass},
}

// differently are the cases in which opendmarc 1.4 does not do what RFC 7489 says, or what it
// cannot be told.
var differently = map[string]string{
	"SPF passes for a subdomain, strict":  "it takes an organisational domain in From for aligned with all below it, strict or not",
	"DKIM of a subdomain, strict":         "the same",
	"pct= beyond 100 has no effect":       "it drops the record, though section 6.6.3 knows no such reason",
	"two records":                         "it takes the first, though section 6.6.3 step 5 ends there",
	"two records fall back":               "the same",
	"another text beside the record":      "it looks at the first text only",
	"version not first":                   "it takes the tags in any order, though section 6.3 wants v= first",
	"unknown p= with a report address":    "it drops the record, though section 6.6.3 step 6 makes it p=none",
	"unknown tags and bad report options": "it drops the record for a value that section 6.3 has ignored",
	"From without a domain":               "it cannot be asked",
	"From at an address literal":          "it has no word for a From field that cannot be verified",
	"aligned SPF temperror":               "it holds against a message what could not be looked up",
	"aligned key temperror":               "the same",
	"quoted local part with an @":         "it reads what programs read differently, see msg.ReadAuthors",
	"case and spaces":                     "it wants no space before the equals sign of v=, though section 6.4 allows it",
	"From at a public suffix itself":      "it takes a public suffix for aligned with all below it",
}

// TestOpendmarcAgrees asks Debian's opendmarc about every case that it can be asked about. It
// knows RFC 7489, so that is what it is compared with.
func TestOpendmarcAgrees(t *testing.T) {
	if _, err := os.Stat("/usr/share/publicsuffix/public_suffix_list.dat"); err != nil {
		missing(t, err)
	}
	var cases []dmarcCase
	for _, c := range slices.Concat(dmarcCases, moreDMARCCases) {
		if c.dead == "" && !strings.Contains(c.from, ",") && differently[c.name] == "" {
			cases = append(cases, c)
		}
	}
	if len(cases) < 60 {
		t.Errorf("%d cases", len(cases))
	}
	theirs := askOpendmarc(t, cases)
	for i, c := range cases {
		look, cancel := (&Verifier{Resolver: c.resolver(t)}).newLookups(t.Context())
		from := authorsOf([]string{c.from}, &message{header: []byte("From: " + c.from + "\r\n")})
		ours := c.have
		ours.Signatures = slices.Clone(ours.Signatures)
		theFormer := judge(rfc7489Rules{newTreeWalker(look)}, &ours, from)
		cancel()
		if got, want := opinionOf(theFormer, &ours), theirs[i]; got != want {
			t.Errorf("%s: ours %+v, theirs %+v", c.name, got, want)
		}
	}
}

// An opinion is what both can say of a message.
type opinion struct {
	Verdict   string // pass; none without a record or one that cannot be used; else what the record asks for
	DKIM, SPF bool   // passes, and is aligned
}

func opinionOf(j Judgment, v *Verdict) opinion {
	o := opinion{Verdict: string(j.Result)}
	switch j.Result {
	case PermError:
		o.Verdict = "none"
	case Fail:
		o.Verdict = "ask for " + j.Policy
	}
	if j.found.failed != "" {
		return o
	}
	rec := j.found.record
	o.SPF = v.SPF == Pass && aligned(v.SPFDomain, j.found.domain, rec.StrictSPF)
	for _, s := range v.Signatures {
		o.DKIM = o.DKIM || s.Result == Pass && aligned(s.Domain, j.found.domain, rec.StrictDKIM)
	}
	return o
}

// askOpendmarc gives opendmarc's opinions. It takes domains whose first label is a letter for
// public suffixes, so names are made longer for it.
func askOpendmarc(t *testing.T, cases []dmarcCase) []opinion {
	t.Helper()
	type signature struct {
		Domain string `json:"domain"`
		Result Result `json:"result"`
	}
	type question struct {
		Port      int         `json:"port"`
		From      string      `json:"from"`
		SPF       Result      `json:"spf"`
		SPFDomain string      `json:"spf_domain"`
		DKIM      []signature `json:"dkim"`
	}
	var questions []question
	for _, c := range cases {
		txt := map[string]string{}
		for domain, records := range c.txt {
			txt[longer(domain)] = records
		}
		_, from := splitAddress(c.from)
		from, _ = idn.Host(from)
		q := question{Port: serveTXT(t, txt), From: longer(from), SPF: c.have.SPF, SPFDomain: longer(c.have.SPFDomain), DKIM: []signature{}}
		for _, s := range c.have.Signatures {
			q.DKIM = append(q.DKIM, signature{longer(s.Domain), s.Result})
		}
		questions = append(questions, q)
	}
	text, err := json.Marshal(questions)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/python3", "-c", libopendmarc)
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		if strings.Contains(string(exit.Stderr), "libopendmarc.so.2: cannot open") {
			missing(t, err)
		}
		t.Fatalf("%v\n%s", err, exit.Stderr)
	}
	if err != nil {
		missing(t, err)
	}
	var got []opinion
	if err := json.Unmarshal(out, &got); err != nil || len(got) != len(cases) {
		t.Fatalf("%d opinions of %d: %v\n%s", len(got), len(cases), err, out)
	}
	return got
}

func longer(domain string) string {
	labels := strings.Split(domain, ".")
	for i, l := range labels {
		if len(l) == 1 {
			labels[i] = l + "-shop"
		}
	}
	return strings.Join(labels, ".")
}

// missing skips a test whose peer is not there, but not in CI.
func missing(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// serveTXT runs a DNS server that knows the DMARC records, and gives its port.
func serveTXT(t *testing.T, txt map[string]string) int {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		name := strings.TrimSuffix(strings.ToLower(q.Question[0].Name), ".")
		domain, _ := strings.CutPrefix(name, "_dmarc.")
		records, ok := txt[domain]
		if !ok {
			m.Rcode = dns.RcodeNameError
		}
		for r := range strings.SplitSeq(records, " | ") {
			if ok && q.Question[0].Qtype == dns.TypeTXT {
				m.Answer = append(m.Answer, &dns.TXT{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 1}, Txt: []string{r}})
			}
		}
		_ = w.WriteMsg(m)
	})}
	ended := make(chan struct{})
	started := make(chan struct{})
	srv.NotifyStartedFunc = func() { close(started) }
	go func() {
		defer close(ended)
		_ = srv.ActivateAndServe()
	}()
	<-started
	t.Cleanup(func() {
		_ = srv.Shutdown()
		<-ended
	})
	return conn.LocalAddr().(*net.UDPAddr).Port
}
