package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/smtp"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/miekg/dns"
)

// plainAuth is AUTH PLAIN without TLS, which the sandbox allows.
type plainAuth struct{ user, password string }

func (a plainAuth) Start(*smtp.ServerInfo) (string, []byte, error) {
	return "PLAIN", []byte("\x00" + a.user + "\x00" + a.password), nil
}

func (a plainAuth) Next([]byte, bool) ([]byte, error) { return nil, nil }

// submit sends a message as a mail client does.
func submit(t *testing.T, i *instance, from, password string, to []string, message string) {
	t.Helper()
	c, err := smtp.Dial(i.ready.Submission)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Auth(plainAuth{from, password}); err != nil {
		t.Fatal(err)
	}
	if err := c.Mail(from); err != nil {
		t.Fatal(err)
	}
	for _, r := range to {
		if err := c.Rcpt(r); err != nil {
			t.Fatal(err)
		}
	}
	w, err := c.Data()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, message)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_ = c.Quit()
}

// A logRow is what the tests read of the sending log.
type logRow struct {
	ID, Recipient, Status, Transport string
	Attempts                         int
	MessageID                        string  `json:"message_id"`
	ProviderMessageID                *string `json:"provider_message_id"`
	Provider                         *string
	LastResponse                     *string `json:"last_response"`
}

// sent waits until no recipient of the account waits any more, and gives the sending log by
// recipient.
func sent(i *instance) map[string]logRow {
	i.t.Helper()
	out := map[string]logRow{}
	i.until("the queue is empty", func() bool {
		clear(out)
		var page struct{ Data []logRow }
		i.want(200, "GET", "/v1/messages?limit=100", nil, &page)
		for _, r := range page.Data {
			if r.Status == "queued" || r.Status == "deferred" {
				return false
			}
			out[r.Recipient] = r
		}
		return true
	})
	return out
}

// TestClientsAreToldTheirPorts: the account names the ports of submission and IMAP that are
// listened on.
func TestClientsAreToldTheirPorts(t *testing.T) {
	t.Parallel()
	i := newInstance(t, generousLimits)
	var account struct {
		Mail struct {
			SMTPPort int `json:"smtp_port"`
			IMAPPort int `json:"imap_port"`
		}
	}
	i.want(200, "GET", "/v1/account", nil, &account)
	if got, want := fmt.Sprintf("127.0.0.1:%d 127.0.0.1:%d", account.Mail.SMTPPort, account.Mail.IMAPPort), i.ready.Submission+" "+i.ready.IMAP; got != want {
		t.Errorf("clients are told %s, the server listens on %s", got, want)
	}
}

// TestSendLocalAndCapture: the sandbox delivers to its own mailboxes and captures everything else,
// from the API and from submission alike.
func TestSendLocalAndCapture(t *testing.T) {
	t.Parallel()
	i := newInstance(t, generousLimits)
	i.addDomain("example.test")
	ann, bob := i.addMailbox("ann@example.test", "correct horse"), i.addMailbox("bob@example.test", "battery staple")
	var answer struct {
		Success   bool
		MessageID string `json:"message_id"`
		Transport string
	}
	i.want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{
		"to": []string{"bob@example.test", "carol@far.test"}, "subject": "from the API", "text": "hello",
		"attachments": []any{map[string]any{"filename": "a.txt", "content": base64.StdEncoding.EncodeToString([]byte("abc"))}},
	}, &answer)
	if !answer.Success || answer.Transport != "mixed" {
		t.Errorf("send answered %+v", answer)
	}
	submit(t, i, "ann@example.test", "correct horse", []string{"bob@example.test", "dave@far.test"},
		"From: Ann <ann@example.test>\r\nTo: bob@example.test\r\nSubject: from submission\r\n\r\nhello\r\n")
	log := sent(i)
	for recipient, want := range map[string]string{"bob@example.test": "delivered", "carol@far.test": "captured", "dave@far.test": "captured"} {
		if log[recipient].Status != want {
			t.Errorf("%s is %q, want %q", recipient, log[recipient].Status, want)
		}
	}
	rows := i.inbox(bob)
	if len(rows) != 2 || rows[0].Subject != "from submission" || rows[1].Subject != "from the API" || !rows[1].HasAttachments || rows[1].MessageID != answer.MessageID {
		t.Errorf("bob's inbox: %+v", rows)
	}
	if status := i.do("POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": "x@far.test", "subject": "s", "text": "t", "from": "other@far.test"}, nil); status != 400 {
		t.Errorf("an unknown field in send: %d, want 400", status)
	}
}

// TestSendThroughRelay: a relay mints an id for each recipient; the mapping is told, can be looked
// up both ways, and leads a reply back to what it answers.
func TestSendThroughRelay(t *testing.T) {
	t.Parallel()
	python := peer(t, "python3")
	relay, hook, world := newSMTP(t, true, func(n int) string { return fmt.Sprintf("250 Ok 0100018f-%d", n) }), newHook(t), newResolver(t)
	host, port, _ := net.SplitHostPort(relay.addr)
	config := generousLimits + fmt.Sprintf("[[relay]]\nname='r1'\nkind='ses'\nregion='us-east-1'\nhost=%q\nport=%s\ntls='none'\n", host, port)
	i := newInstance(t, config, "--resolver", world.addr, "--ca-file", hook.caFile, "--outbound", "relay")
	world.delegate(i.ready.DNS)
	hook.subscribe(i, "message.relayed")
	i.addDomain("example.test")
	ann := i.addMailbox("ann@example.test", "correct horse")
	var answer struct {
		MessageID string `json:"message_id"`
	}
	i.want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": []string{"x@far.test", "y@far.test"}, "subject": "s", "text": "hello"}, &answer)
	submit(t, i, "ann@example.test", "correct horse", []string{"z@far.test"}, "From: ann@example.test\r\nTo: z@far.test\r\nSubject: s\r\n\r\nhello\r\n")
	log := sent(i)
	if len(relay.mails()) != 3 {
		t.Fatalf("the relay took %d messages, want 3", len(relay.mails()))
	}
	i.until("both recipients are told of", func() bool { return len(hook.of("message.relayed", "recipient")) == 3 })

	var found struct {
		Original *string  `json:"original_message_id"`
		Provided []string `json:"provider_message_ids"`
	}
	i.want(200, "GET", "/v1/messages/lookup?original_message_id="+strings.Trim(answer.MessageID, "<>"), nil, &found)
	if len(found.Provided) != 2 {
		t.Fatalf("look-up by the original: %+v", found)
	}
	minted := *log["x@far.test"].ProviderMessageID
	if !strings.HasSuffix(minted, "@email.amazonses.com>") {
		t.Errorf("the relay's id became %s", minted)
	}
	i.want(200, "GET", "/v1/messages/lookup?provider_message_id="+strings.Trim(minted, "<>"), nil, &found)
	if found.Original == nil || *found.Original != answer.MessageID {
		t.Errorf("look-up by the provider's id: %+v, want %s", found, answer.MessageID)
	}
	c, err := smtp.Dial(i.ready.SMTP)
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, c, "x@far.test", "ann@example.test", "From: x@far.test\r\nSubject: Re: s\r\nIn-Reply-To: "+minted+"\r\n\r\nthanks\r\n")
	_ = c.Quit()
	rows := i.inbox(ann)
	if len(rows) != 1 || rows[0].OriginalMessageID == nil || *rows[0].OriginalMessageID != answer.MessageID {
		t.Errorf("the reply: %+v, want original_message_id %s", rows, answer.MessageID)
	}
	for _, m := range relay.mails() {
		verifyDKIM(t, python, i, m.Data)
	}
}

// TestSendDirect: without a relay, mail goes to the MX that the resolver names; a permanent refusal
// comes back as a DSN.
func TestSendDirect(t *testing.T) {
	t.Parallel()
	python := peer(t, "python3")
	mx, world := newSMTP(t, false, func(n int) string {
		if n == 3 {
			return "550 5.1.1 no such user"
		}
		return "250 taken"
	}), newResolver(t)
	host, port, _ := net.SplitHostPort(mx.addr)
	i := newInstance(t, generousLimits, "--resolver", world.addr, "--outbound", "direct", "--mx-port", port)
	world.delegate(i.ready.DNS)
	world.set(t, "far.test", "MX", "10 mx.far.test.")
	world.set(t, "mx.far.test", "A", host)
	world.set(t, "mx.far.test", "AAAA")
	i.addDomain("example.test")
	ann := i.addMailbox("ann@example.test", "correct horse")
	i.want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": "x@far.test", "subject": "s", "html": "<p>hello</p>"}, nil)
	sent(i)
	submit(t, i, "ann@example.test", "correct horse", []string{"y@far.test"}, "From: ann@example.test\r\nTo: y@far.test\r\nSubject: s\r\n\r\nhello\r\n")
	log := sent(i)
	if log["x@far.test"].Status != "sent" || log["y@far.test"].Status != "sent" || log["x@far.test"].Transport != "direct" {
		t.Errorf("the log: %+v", log)
	}
	for _, m := range mx.mails() {
		verifyDKIM(t, python, i, m.Data)
	}
	i.want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": "nobody@far.test", "subject": "s", "text": "hello"}, nil)
	log = sent(i)
	if log["nobody@far.test"].Status != "bounced" {
		t.Errorf("the refused one: %+v", log["nobody@far.test"])
	}
	i.until("the DSN is there", func() bool { return len(i.inbox(ann)) == 1 })
	if rows := i.inbox(ann); !rows[0].IsBounce {
		t.Errorf("the DSN: %+v", rows[0])
	}
	var events struct{ Data []struct{ Type string } }
	i.want(200, "GET", "/v1/events?type=email.bounced", nil, &events)
	if len(events.Data) != 1 {
		t.Errorf("events: %+v", events)
	}
}

// verifyDKIM lets python3-dkim verify every signature of a message, with the keys as our DNS server
// publishes them.
func verifyDKIM(t *testing.T, python string, i *instance, message []byte) {
	t.Helper()
	keys := map[string]string{}
	for _, line := range strings.Split(strings.NewReplacer("\r\n\t", " ", "\r\n ", " ").Replace(string(message)), "\r\n") {
		if !strings.HasPrefix(line, "DKIM-Signature:") {
			continue
		}
		selector := tag(line, "s")
		name := selector + "._domainkey." + tag(line, "d") + "."
		q := new(dns.Msg).SetQuestion(name, dns.TypeTXT)
		a, _, err := (&dns.Client{Net: "tcp"}).Exchange(q, i.ready.DNS)
		if err != nil || len(a.Answer) != 1 {
			t.Fatalf("key of %s: %v, %v", name, err, a)
		}
		keys[name] = strings.Join(a.Answer[0].(*dns.TXT).Txt, "")
	}
	if len(keys) != 2 {
		t.Fatalf("the message has %d signatures, want 2:\n%s", len(keys), message[:min(len(message), 3000)])
	}
	input, err := json.Marshal(map[string]any{"message": base64.StdEncoding.EncodeToString(message), "keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	script := `
import base64, dkim, json, sys
given = json.load(sys.stdin)
message = base64.b64decode(given["message"])
def txt(name, timeout=5):
    name = name.decode() if isinstance(name, bytes) else name
    return given["keys"].get(name, "").encode()
d = dkim.DKIM(message)
for index in range(2):
    if not d.verify(index, dnsfunc=txt):
        sys.exit("signature %d does not verify" % index)
`
	cmd := exec.Command("/usr/bin/python3", "-c", script)
	cmd.Stdin = strings.NewReader(string(input))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s (%s): %v\n%s", "python3-dkim", python, err, out)
	}
}

// tag reads one tag of an unfolded DKIM-Signature.
func tag(line, name string) string {
	_, line, _ = strings.Cut(line, ":")
	for _, part := range strings.Split(line, ";") {
		k, v, _ := strings.Cut(strings.TrimSpace(part), "=")
		if strings.TrimSpace(k) == name {
			return strings.Join(strings.Fields(v), "")
		}
	}
	return ""
}

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
