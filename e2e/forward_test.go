package e2e

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/auth"
)

// verifiers judge a message as its next server would, with Debian's python3-spf and python3-dkim
// and live DNS.
const verifiers = `
import json, subprocess, sys
import dkim, spf
given = json.load(sys.stdin)
def dig(name, kind):
    host, port = given["resolver"].rsplit(":", 1)
    out = subprocess.run(["dig", "+short", "@" + host, "-p", port, name.rstrip(".") + ".", kind], capture_output=True, text=True, check=True).stdout
    return [line for line in out.splitlines() if line]
def text(line):
    return "".join(part for n, part in enumerate(line.split('"')) if n % 2)
def lookup(name, kind, tcpfallback=True, timeout=30):
    if isinstance(name, bytes):
        name = name.decode()
    out = []
    for line in dig(name, kind):
        if kind == "TXT":
            out.append(((name, kind), (text(line).encode(),)))
        elif kind == "MX":
            pref, host = line.split()
            out.append(((name, kind), (int(pref), host.rstrip("."))))
        else:
            out.append(((name, kind), line))
    return out
def key(name, timeout=5):
    for line in dig(name.decode(), "TXT"):
        return text(line).encode()
spf.DNSLookup = lookup
result, code, why = spf.query(i=given["ip"], s=given["from"], h=given["helo"]).check()
message = given["message"].encode()
cv, sets, reason = dkim.arc_verify(message, dnsfunc=key)
json.dump({"spf": result, "why": why, "arc": cv.decode() if cv else "none", "reason": str(reason), "dkim": dkim.verify(message, dnsfunc=key)}, sys.stdout)
`

// TestForwardedMailPassesElsewhere: a message from an author whose domain rejects what is not
// authenticated goes through a domain-wide forward, and verifiers that are not ours pass its SPF,
// its author's signature and our ARC set; a bounce to the rewritten path finds its way back, and a
// message that comes round again is refused.
func TestForwardedMailPassesElsewhere(t *testing.T) {
	t.Parallel()
	peer(t, "dig")
	python := pythonWith(t, "spf", "dkim")
	names := newResolver(t)
	next := newSMTP(t, false, func(int) string { return "250 2.0.0 ok" })
	_, port, _ := net.SplitHostPort(next.addr)
	names.set(t, "far.test", "MX", "10 mx.far.test.")
	names.set(t, "mx.far.test", "A", "127.0.0.1")
	text, key, err := auth.GenerateRSA()
	if err != nil || len(text) == 0 {
		t.Fatal(err)
	}
	names.set(t, "k._domainkey.author.test", "TXT", quoteStrings(auth.KeyRecord(key)))
	names.set(t, "_dmarc.author.test", "TXT", `"v=DMARC1; p=reject"`)
	names.set(t, "author.test", "TXT", `"v=spf1 ip4:127.0.0.1 -all"`)

	i := newInstance(t, generousLimits, "--resolver", names.addr, "--outbound", "direct", "--mx-port", port)
	names.delegate(i.ready.DNS)
	id := i.addDomain("forward.test")
	i.want(200, "POST", "/v1/domains/"+id+"/forward", map[string]any{"forward_address": "boss@far.test"}, nil)

	message := "From: Author <ann@author.test>\r\nTo: any@forward.test\r\nSubject: passed on\r\nDate: Fri, 20 Nov 2026 12:00:00 +0000\r\nMessage-ID: <1@author.test>\r\n\r\nHello\r\n"
	signature, err := auth.Sign(strings.NewReader(message), auth.SignOptions{Keys: []auth.Key{{Domain: "author.test", Selector: "k", Signer: key}}})
	if err != nil {
		t.Fatal(err)
	}
	deliverFrom(t, i.ready.SMTP, "ann@author.test", "any@forward.test", string(signature)+message)
	i.until("the message has been forwarded", func() bool { return len(next.mails()) == 1 })
	m := next.mails()[0]

	got := map[string]any{}
	given, err := json.Marshal(map[string]any{"resolver": names.addr, "ip": "127.0.0.1", "from": m.From, "helo": "mail.mailstead.test", "message": string(m.Data)})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", verifiers)
	cmd.Stdin = bytes.NewReader(given)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, out, err.(*exec.ExitError).Stderr)
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if got["spf"] != "pass" || got["arc"] != "pass" || got["dkim"] != true || !strings.HasSuffix(m.From, "@forward.test") {
		t.Errorf("from %s: %v\n%s", m.From, got, m.Data)
	}
	deliverFrom(t, i.ready.SMTP, "", m.From, "From: MAILER-DAEMON@far.test\r\nSubject: failed\r\n\r\nno such user\r\n")
	i.until("the bounce is on its way to the author", func() bool {
		var page struct{ Data []logRow }
		i.want(200, "GET", "/v1/messages?recipient=ann@author.test", nil, &page)
		return len(page.Data) == 1
	})
	c := talkTo(t, i.ready.SMTP)
	c.say("EHLO far.test")
	c.envelope(t, "any@forward.test")
	c.say("DATA")
	if code, text := c.say(strings.ReplaceAll(string(m.Data), "\r\n.", "\r\n..") + "."); code != 554 || !strings.Contains(text, "5.4.6") {
		t.Errorf("what has been here before is answered %d %s", code, text)
	}
}

// pythonWith finds Debian's Python with these modules.
func pythonWith(t *testing.T, modules ...string) string {
	t.Helper()
	const python = "/usr/bin/python3"
	if out, err := exec.Command(python, "-c", "import "+strings.Join(modules, ", ")).CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%v: %s; run .ci/peers", err, out)
		}
		t.Skipf("%v: %s", err, out)
	}
	return python
}

// quoteStrings writes a long text as the character strings of a zone file.
func quoteStrings(text string) string {
	var out []string
	for len(text) > 200 {
		out = append(out, `"`+text[:200]+`"`)
		text = text[200:]
	}
	return strings.Join(append(out, `"`+text+`"`), " ")
}

// deliverFrom hands a message over as another mail server does.
func deliverFrom(t *testing.T, addr, from, to, message string) {
	t.Helper()
	c := talkTo(t, addr)
	for _, line := range []string{"EHLO author.test", "MAIL FROM:<" + from + ">", "RCPT TO:<" + to + ">"} {
		if code, text := c.say(line); code != 250 {
			t.Fatalf("%s: %d %s", line, code, text)
		}
	}
	if code, text := c.say("DATA"); code != 354 {
		t.Fatalf("DATA: %d %s", code, text)
	}
	if code, text := c.say(strings.ReplaceAll(message, "\r\n.", "\r\n..") + "."); code != 250 {
		t.Fatalf("message: %d %s", code, text)
	}
}
