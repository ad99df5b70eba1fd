package mail

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

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/mail/auth"
)

// TestClientsAreToldTheirPorts: the account names the ports of submission and IMAP that are
// listened on.
func TestClientsAreToldTheirPorts(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits)
	var account struct {
		Mail struct {
			SMTPPort int `json:"smtp_port"`
			IMAPPort int `json:"imap_port"`
		}
	}
	i.Want(200, "GET", "/v1/account", nil, &account)
	if got, want := fmt.Sprintf("127.0.0.1:%d 127.0.0.1:%d", account.Mail.SMTPPort, account.Mail.IMAPPort), i.Ready.Submission+" "+i.Ready.IMAP; got != want {
		t.Errorf("clients are told %s, the server listens on %s", got, want)
	}
}

// TestSendLocalAndCapture: the sandbox delivers to its own mailboxes and captures everything else,
// from the API and from submission alike.
func TestSendLocalAndCapture(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, rig.GenerousLimits)
	i.AddDomain("example.test")
	ann, bob := i.AddMailbox("ann@example.test", "correct horse"), i.AddMailbox("bob@example.test", "battery staple")
	var answer struct {
		Success   bool
		MessageID string `json:"message_id"`
		Transport string
	}
	i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{
		"to": []string{"bob@example.test", "carol@far.test"}, "subject": "from the API", "text": "hello",
		"attachments": []any{map[string]any{"filename": "a.txt", "content": base64.StdEncoding.EncodeToString([]byte("abc"))}},
	}, &answer)
	if !answer.Success || answer.Transport != "mixed" {
		t.Errorf("send answered %+v", answer)
	}
	rig.Submit(t, i, "ann@example.test", "correct horse", []string{"bob@example.test", "dave@far.test"},
		"From: Ann <ann@example.test>\r\nTo: bob@example.test\r\nSubject: from submission\r\n\r\nhello\r\n")
	log := rig.WaitUntilSent(i)
	for recipient, want := range map[string]string{"bob@example.test": "delivered", "carol@far.test": "captured", "dave@far.test": "captured"} {
		if log[recipient].Status != want {
			t.Errorf("%s is %q, want %q", recipient, log[recipient].Status, want)
		}
	}
	rows := i.Inbox(bob)
	if len(rows) != 2 || rows[0].Subject != "from submission" || rows[1].Subject != "from the API" || !rows[1].HasAttachments || rows[1].MessageID != answer.MessageID {
		t.Errorf("bob's inbox: %+v", rows)
	}
	if status := i.Do("POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": "x@far.test", "subject": "s", "text": "t", "from": "other@far.test"}, nil); status != 400 {
		t.Errorf("an unknown field in send: %d, want 400", status)
	}
}

// TestSendThroughRelay: a relay mints an id for each recipient; the mapping is told, can be looked
// up both ways, and leads a reply back to what it answers.
func TestSendThroughRelay(t *testing.T) {
	t.Parallel()
	python := rig.Peer(t, "python3")
	relay, hook, world := rig.NewFakeSMTP(t, true, func(n int) string { return fmt.Sprintf("250 Ok 0100018f-%d", n) }), rig.NewWebhookReceiver(t), rig.NewFakeResolver(t)
	host, port, _ := net.SplitHostPort(relay.Addr)
	config := rig.GenerousLimits + fmt.Sprintf("[[relay]]\nname='r1'\nkind='ses'\nregion='us-east-1'\nhost=%q\nport=%s\ntls='none'\n", host, port)
	i := rig.Start(t, config, "--resolver", world.Addr, "--ca-file", hook.CAFile, "--outbound", "relay")
	world.Delegate(i.Ready.DNS)
	hook.Subscribe(i, "message.relayed")
	i.AddDomain("example.test")
	ann := i.AddMailbox("ann@example.test", "correct horse")
	var answer struct {
		MessageID string `json:"message_id"`
	}
	i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": []string{"x@far.test", "y@far.test"}, "subject": "s", "text": "hello"}, &answer)
	rig.Submit(t, i, "ann@example.test", "correct horse", []string{"z@far.test"}, "From: ann@example.test\r\nTo: z@far.test\r\nSubject: s\r\n\r\nhello\r\n")
	log := rig.WaitUntilSent(i)
	if len(relay.Mails()) != 3 {
		t.Fatalf("the relay took %d messages, want 3", len(relay.Mails()))
	}
	i.Until("both recipients are told of", func() bool { return len(hook.EventIDs("message.relayed", "recipient")) == 3 })

	var found struct {
		Original *string  `json:"original_message_id"`
		Provided []string `json:"provider_message_ids"`
	}
	i.Want(200, "GET", "/v1/messages/lookup?original_message_id="+strings.Trim(answer.MessageID, "<>"), nil, &found)
	if len(found.Provided) != 2 {
		t.Fatalf("look-up by the original: %+v", found)
	}
	minted := *log["x@far.test"].ProviderMessageID
	if !strings.HasSuffix(minted, "@email.amazonses.com>") {
		t.Errorf("the relay's id became %s", minted)
	}
	i.Want(200, "GET", "/v1/messages/lookup?provider_message_id="+strings.Trim(minted, "<>"), nil, &found)
	if found.Original == nil || *found.Original != answer.MessageID {
		t.Errorf("look-up by the provider's id: %+v, want %s", found, answer.MessageID)
	}
	c, err := smtp.Dial(i.Ready.SMTP)
	if err != nil {
		t.Fatal(err)
	}
	rig.Deliver(t, c, "x@far.test", "ann@example.test", "From: x@far.test\r\nSubject: Re: s\r\nIn-Reply-To: "+minted+"\r\n\r\nthanks\r\n")
	_ = c.Quit()
	rows := i.Inbox(ann)
	if len(rows) != 1 || rows[0].OriginalMessageID == nil || *rows[0].OriginalMessageID != answer.MessageID {
		t.Errorf("the reply: %+v, want original_message_id %s", rows, answer.MessageID)
	}
	for _, m := range relay.Mails() {
		rig.VerifyDKIM(t, python, i, m.Data)
	}
}

// TestSendDirect: without a relay, mail goes to the MX that the resolver names; a permanent refusal
// comes back as a DSN.
func TestSendDirect(t *testing.T) {
	t.Parallel()
	python := rig.Peer(t, "python3")
	mx, world := rig.NewFakeSMTP(t, false, func(n int) string {
		if n == 3 {
			return "550 5.1.1 no such user"
		}
		return "250 taken"
	}), rig.NewFakeResolver(t)
	host, port, _ := net.SplitHostPort(mx.Addr)
	i := rig.Start(t, rig.GenerousLimits, "--resolver", world.Addr, "--outbound", "direct", "--mx-port", port)
	world.Delegate(i.Ready.DNS)
	world.Set(t, "far.test", "MX", "10 mx.far.test.")
	world.Set(t, "mx.far.test", "A", host)
	world.Set(t, "mx.far.test", "AAAA")
	i.AddDomain("example.test")
	ann := i.AddMailbox("ann@example.test", "correct horse")
	i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": "x@far.test", "subject": "s", "html": "<p>hello</p>"}, nil)
	rig.WaitUntilSent(i)
	rig.Submit(t, i, "ann@example.test", "correct horse", []string{"y@far.test"}, "From: ann@example.test\r\nTo: y@far.test\r\nSubject: s\r\n\r\nhello\r\n")
	log := rig.WaitUntilSent(i)
	if log["x@far.test"].Status != "sent" || log["y@far.test"].Status != "sent" || log["x@far.test"].Transport != "direct" {
		t.Errorf("the log: %+v", log)
	}
	for _, m := range mx.Mails() {
		rig.VerifyDKIM(t, python, i, m.Data)
	}
	i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": "nobody@far.test", "subject": "s", "text": "hello"}, nil)
	log = rig.WaitUntilSent(i)
	if log["nobody@far.test"].Status != "bounced" {
		t.Errorf("the refused one: %+v", log["nobody@far.test"])
	}
	i.Until("the DSN is there", func() bool { return len(i.Inbox(ann)) == 1 })
	if rows := i.Inbox(ann); !rows[0].IsBounce {
		t.Errorf("the DSN: %+v", rows[0])
	}
	var events struct{ Data []struct{ Type string } }
	i.Want(200, "GET", "/v1/events?type=email.bounced", nil, &events)
	if len(events.Data) != 1 {
		t.Errorf("events: %+v", events)
	}
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
	rig.Peer(t, "dig")
	python := pythonWith(t, "spf", "dkim")
	names := rig.NewFakeResolver(t)
	next := rig.NewFakeSMTP(t, false, func(int) string { return "250 2.0.0 ok" })
	_, port, _ := net.SplitHostPort(next.Addr)
	names.Set(t, "far.test", "MX", "10 mx.far.test.")
	names.Set(t, "mx.far.test", "A", "127.0.0.1")
	text, key, err := auth.GenerateRSA()
	if err != nil || len(text) == 0 {
		t.Fatal(err)
	}
	names.Set(t, "k._domainkey.author.test", "TXT", rig.QuoteStrings(auth.KeyRecord(key)))
	names.Set(t, "_dmarc.author.test", "TXT", `"v=DMARC1; p=reject"`)
	names.Set(t, "author.test", "TXT", `"v=spf1 ip4:127.0.0.1 -all"`)

	i := rig.Start(t, rig.GenerousLimits, "--resolver", names.Addr, "--outbound", "direct", "--mx-port", port)
	names.Delegate(i.Ready.DNS)
	id := i.AddDomain("forward.test")
	i.Want(200, "POST", "/v1/domains/"+id+"/forward", map[string]any{"forward_address": "boss@far.test"}, nil)

	message := "From: Author <ann@author.test>\r\nTo: any@forward.test\r\nSubject: passed on\r\nDate: Fri, 20 Nov 2026 12:00:00 +0000\r\nMessage-ID: <1@author.test>\r\n\r\nHello\r\n"
	signature, err := auth.Sign(strings.NewReader(message), auth.SignOptions{Keys: []auth.Key{{Domain: "author.test", Selector: "k", Signer: key}}})
	if err != nil {
		t.Fatal(err)
	}
	rig.DeliverFrom(t, i.Ready.SMTP, "ann@author.test", "any@forward.test", string(signature)+message)
	i.Until("the message has been forwarded", func() bool { return len(next.Mails()) == 1 })
	m := next.Mails()[0]

	got := map[string]any{}
	given, err := json.Marshal(map[string]any{"resolver": names.Addr, "ip": "127.0.0.1", "from": m.From, "helo": "mail.mailstead.test", "message": string(m.Data)})
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
	rig.DeliverFrom(t, i.Ready.SMTP, "", m.From, "From: MAILER-DAEMON@far.test\r\nSubject: failed\r\n\r\nno such user\r\n")
	i.Until("the bounce is on its way to the author", func() bool {
		var page struct{ Data []rig.LogRow }
		i.Want(200, "GET", "/v1/messages?recipient=ann@author.test", nil, &page)
		return len(page.Data) == 1
	})
	c := rig.TalkTo(t, i.Ready.SMTP)
	c.Say("EHLO far.test")
	c.Envelope(t, "any@forward.test")
	c.Say("DATA")
	if code, text := c.Say(strings.ReplaceAll(string(m.Data), "\r\n.", "\r\n..") + "."); code != 554 || !strings.Contains(text, "5.4.6") {
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
