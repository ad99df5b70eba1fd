package mail

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/smtp"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestFeedback: what others tell of mail that left here is believed if it proves what it speaks of,
// counts once, and keeps further mail from those who do not want it; forged, it does nothing.
func TestFeedback(t *testing.T) {
	t.Parallel()
	mx, world, hook := rig.NewFakeSMTP(t, true, func(int) string { return "250 taken" }), rig.NewFakeResolver(t), rig.NewWebhookReceiver(t)
	i := rig.StartOutgoing(t, world, mx.Addr, rig.GenerousLimits, "--ca-file", hook.CAFile)
	hook.Subscribe(i, "email.bounced", "email.complained")
	ann := i.AddMailbox("ann@example.test", "correct horse")
	i.Want(200, "PATCH", "/v1/domains/"+i.FirstID("/v1/domains"), map[string]any{"list_unsubscribe": true, "catch_all": "ann@example.test"}, nil)
	for _, to := range []string{"bounce@far.test", "spam@far.test", "leave@far.test"} {
		i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": to, "subject": "s", "text": "hello"}, nil)
	}
	rig.WaitUntilSent(i)
	left := map[string]rig.TakenMail{}
	for _, m := range mx.Mails() {
		left[m.To[0]] = m
	}
	path := left["bounce@far.test"].From
	if !strings.HasSuffix(path, "@example.test") || path == left["spam@far.test"].From || path == "ann@example.test" {
		t.Fatalf("return paths %s and %s", path, left["spam@far.test"].From)
	}

	c, err := smtp.Dial(i.Ready.SMTP)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	refuses(t, c, flip(path), strings.Replace(path, "b-", "u-", 1))
	spam := left["spam@far.test"].Data
	rig.Deliver(t, c, "fbl@far.test", "ann@example.test", complaintMail(bytes.Replace(spam, []byte("Message-ID: <"), []byte("Message-ID: <x"), 1)))
	rig.Deliver(t, c, "fbl@far.test", "ann@example.test", complaintMail(bytes.ReplaceAll(spam, []byte("DKIM-Signature"), []byte("X-Signature"))))
	if log := rig.SendingLog(i); log["spam@far.test"].Status != "sent" || log["bounce@far.test"].Status != "sent" {
		t.Errorf("after forgeries: %+v", log)
	}
	for range 2 {
		rig.Deliver(t, c, "", path, bounceMail)
		rig.Deliver(t, c, "fbl@far.test", "abuse@example.test", complaintMail(spam))
	}
	if log := rig.SendingLog(i); log["bounce@far.test"].Status != "bounced" || log["spam@far.test"].Status != "complained" || log["leave@far.test"].Status != "sent" {
		t.Errorf("the log: %+v", log)
	}
	i.Until("both are told of", func() bool {
		return len(hook.EventIDs("email.bounced", "recipient")) == 1 && len(hook.EventIDs("email.complained", "recipient")) == 1
	})

	_, way, _ := strings.Cut(string(left["leave@far.test"].Data), "List-Unsubscribe: <mailto:")
	way, _, _ = strings.Cut(way, "?")
	rig.Deliver(t, c, "leave@far.test", way, "From: leave@far.test\r\nSubject: unsubscribe\r\n\r\n")
	i.WantSuppressed(map[string]string{"bounce@far.test": "bounce", "spam@far.test": "complaint", "leave@far.test": "manual"})
	counts(i, 1, 1)
	if rows := i.Inbox(ann); len(rows) != 6 { // the forged complaints, and twice the bounce and the complaint that was sent to a person
		t.Errorf("the inbox has %+v", rows)
	}
	i.Stop()
	i.Check()
}

// bounceMail is a bounce (RFC 3464) that returns nothing of the message.
const bounceMail = "From: MAILER-DAEMON@mx.far.test\r\nSubject: failure\r\nMIME-Version: 1.0\r\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n" +
	"--b\r\n\r\nIt failed.\r\n--b\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.far.test\r\n\r\n" +
	"Final-Recipient: rfc822; bounce@far.test\r\nAction: failed\r\nStatus: 5.1.1\r\nDiagnostic-Code: smtp; 550 5.1.1 nobody\r\n--b--\r\n"

// complaintMail is a complaint (RFC 5965) with the header of the message.
func complaintMail(original []byte) string {
	head, _, _ := bytes.Cut(original, []byte("\r\n\r\n"))
	return "From: fbl@far.test\r\nSubject: spam\r\nMIME-Version: 1.0\r\nContent-Type: multipart/report; report-type=feedback-report; boundary=b\r\n\r\n" +
		"--b\r\n\r\nSpam.\r\n--b\r\nContent-Type: message/feedback-report\r\n\r\nFeedback-Type: abuse\r\nUser-Agent: FBL/1\r\nVersion: 1\r\n" +
		"--b\r\nContent-Type: message/rfc822\r\n\r\n" + string(head) + "\r\n\r\nbody\r\n--b--\r\n"
}

// refuses demands a 550 for each recipient of a bounce.
func refuses(t *testing.T, c *smtp.Client, recipients ...string) {
	t.Helper()
	if err := c.Mail(""); err != nil {
		t.Fatal(err)
	}
	for _, to := range recipients {
		if err := c.Rcpt(to); err == nil || !strings.HasPrefix(err.Error(), "550") {
			t.Errorf("%s: %v, want 550", to, err)
		}
	}
	if err := c.Reset(); err != nil {
		t.Fatal(err)
	}
}

// flip changes the last character of a local part.
func flip(address string) string {
	local, domain, _ := strings.Cut(address, "@")
	last := "a"
	if strings.HasSuffix(local, last) {
		last = "b"
	}
	return local[:len(local)-1] + last + "@" + domain
}

// counts demands what the account's usage tells of bounces and complaints.
func counts(i *rig.Instance, bounced, complained int) {
	i.T.Helper()
	var usage struct {
		Messages struct {
			Bounced    int `json:"bounced_30d"`
			Complained int `json:"complained_30d"`
		}
	}
	i.Want(200, "GET", "/v1/account/usage", nil, &usage)
	if usage.Messages.Bounced != bounced || usage.Messages.Complained != complained {
		i.T.Errorf("usage: %+v", usage)
	}
}

const snsTopic = "arn:aws:sns:us-east-1:123456789012:feedback"

// A fakeSNS has a signing certificate, which it serves over HTTPS, and takes confirmations.
type fakeSNS struct {
	t         *testing.T
	server    *httptest.Server
	key       *rsa.PrivateKey
	confirmed chan string
}

func newFakeSNS(t *testing.T) *fakeSNS {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSNS{t: t, key: key, confirmed: make(chan string, 10)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sns.amazonaws.com"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	f.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/SimpleNotificationService-1.pem":
			_ = pem.Encode(w, &pem.Block{Type: "CERTIFICATE", Bytes: der})
		case r.URL.Query().Get("Action") == "ConfirmSubscription":
			f.confirmed <- r.URL.Query().Get("Token")
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(f.server.Close)
	return f
}

// post sends a message to an instance, signed as SNS does, and gives the status of the answer.
func (f *fakeSNS) post(i *rig.Instance, m map[string]string) int {
	f.t.Helper()
	m["MessageId"], m["Timestamp"], m["SignatureVersion"] = "1", "2026-11-21T00:00:00.000Z", "2"
	if m["SigningCertURL"] == "" {
		m["SigningCertURL"] = f.server.URL + "/SimpleNotificationService-1.pem"
	}
	var text strings.Builder
	for _, name := range []string{"Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"} {
		if value, ok := m[name]; ok {
			text.WriteString(name + "\n" + value + "\n")
		}
	}
	sum := sha256.Sum256([]byte(text.String()))
	sig, err := rsa.SignPKCS1v15(rand.Reader, f.key, crypto.SHA256, sum[:])
	if err != nil {
		f.t.Fatal(err)
	}
	m["Signature"] = base64.StdEncoding.EncodeToString(sig)
	body, _ := json.Marshal(m)
	resp, err := http.Post("http://"+i.Ready.HTTP+"/hooks/ses/r1", "text/plain; charset=UTF-8", bytes.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func sesNotice(kind, id, rest string) map[string]string {
	return map[string]string{"Type": "Notification", "TopicArn": snsTopic, "Message": fmt.Sprintf(`{"notificationType":%q,"mail":{"messageId":%q},%s}`, kind, id, rest)}
}

func snsConfirmation(url string) map[string]string {
	return map[string]string{
		"Type": "SubscriptionConfirmation", "TopicArn": snsTopic, "Message": "Subscribe?", "Token": "tok", "SubscribeURL": url + "/?Action=ConfirmSubscription&Token=tok",
	}
}

// TestFeedbackOfSES: notices by SNS need the topic's name and a signature by the key that SNS
// serves; the id that SES gave leads to the message.
func TestFeedbackOfSES(t *testing.T) {
	t.Parallel()
	relay, sns, stranger, hook, world := rig.NewFakeSMTP(t, true, func(n int) string { return fmt.Sprintf("250 Ok 0100018f-%d", n) }), newFakeSNS(t), newFakeSNS(t), rig.NewWebhookReceiver(t), rig.NewFakeResolver(t)
	host, port, _ := net.SplitHostPort(relay.Addr)
	config := rig.GenerousLimits + fmt.Sprintf("[[relay]]\nname='r1'\nkind='ses'\nregion='us-east-1'\nhost=%q\nport=%s\ntls='none'\ntopic_arn=%q\nsns_url=%q\n", host, port, snsTopic, sns.server.URL)
	i := rig.Start(t, config, "--resolver", world.Addr, "--ca-file", hook.CAFile, "--outbound", "relay")
	world.Delegate(i.Ready.DNS)
	hook.Subscribe(i, "email.bounced", "email.complained")
	i.AddDomain("example.test")
	ann := i.AddMailbox("ann@example.test", "correct horse")
	i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": []string{"x@far.test", "y@far.test"}, "subject": "s", "text": "hello"}, nil)
	log := rig.WaitUntilSent(i)
	if from := relay.Mails()[0].From; from != "ann@example.test" {
		t.Errorf("the relay saw the return path %s", from)
	}
	id := func(email string) string {
		id, _, _ := strings.Cut(strings.Trim(*log[email].ProviderMessageID, "<>"), "@")
		return id
	}
	bounce := func() map[string]string {
		return sesNotice("Bounce", id("x@far.test"), `"bounce":{"bounceType":"Permanent","bounceSubType":"NoEmail","bouncedRecipients":[{"emailAddress":"x@far.test","status":"5.1.1","diagnosticCode":"smtp; 550 5.1.1 nobody"}]}`)
	}
	spam := sesNotice("Complaint", id("y@far.test"), `"complaint":{"complainedRecipients":[{"emailAddress":"y@far.test"}],"complaintFeedbackType":"abuse"}`)
	if got := sns.post(i, snsConfirmation(stranger.server.URL)); got != 403 {
		t.Errorf("a foreign SubscribeURL: %d", got)
	}
	if got := sns.post(i, snsConfirmation(sns.server.URL)); got != 200 || <-sns.confirmed != "tok" {
		t.Errorf("a confirmation: %d", got)
	}
	forged := bounce()
	forged["SigningCertURL"] = sns.server.URL + "/SimpleNotificationService-1.pem"
	if got := stranger.post(i, forged); got != 403 {
		t.Errorf("another's signature: %d", got)
	}
	if got := stranger.post(i, bounce()); got != 403 {
		t.Errorf("another's certificate: %d", got)
	}
	other := bounce()
	other["TopicArn"] += "2"
	if got := sns.post(i, other); got != 403 {
		t.Errorf("another topic: %d", got)
	}
	if log := rig.SendingLog(i); log["x@far.test"].Status != "relayed" || len(stranger.confirmed) != 0 || len(i.Suppressions()) != 0 {
		t.Errorf("after forgeries: %+v", log)
	}
	for range 3 {
		if got := sns.post(i, bounce()); got != 200 {
			t.Errorf("a bounce: %d", got)
		}
		if got := sns.post(i, spam); got != 200 {
			t.Errorf("a complaint: %d", got)
		}
	}
	if log := rig.SendingLog(i); log["x@far.test"].Status != "bounced" || log["y@far.test"].Status != "complained" {
		t.Errorf("the log: %+v", log)
	}
	i.Until("both are told of", func() bool {
		return len(hook.EventIDs("email.bounced", "recipient")) == 1 && len(hook.EventIDs("email.complained", "recipient")) == 1
	})
	i.WantSuppressed(map[string]string{"x@far.test": "bounce", "y@far.test": "complaint"})
}
