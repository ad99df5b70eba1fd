package feedback

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

const topic = "arn:aws:sns:us-east-1:123456789012:bounces"

// A fakeSNS serves its certificate over HTTPS and takes confirmations.
type fakeSNS struct {
	t       *testing.T
	server  *httptest.Server
	key     *rsa.PrivateKey
	expires time.Time

	mu    sync.Mutex
	asked []string
}

func newSNS(t *testing.T) *fakeSNS {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSNS{t: t, key: key, expires: time.Now().Add(48 * time.Hour)}
	f.server = httptest.NewTLSServer(f)
	t.Cleanup(f.server.Close)
	return f
}

func (f *fakeSNS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r.URL.RequestURI())
	switch {
	case r.URL.Path == "/SimpleNotificationService-1.pem":
		cert := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sns.amazonaws.com"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: f.expires,
		}
		der, err := x509.CreateCertificate(rand.Reader, cert, cert, &f.key.PublicKey, f.key)
		if err != nil {
			f.t.Error(err)
		}
		_ = pem.Encode(w, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	case r.URL.Path == "/no.pem":
		fmt.Fprint(w, "no certificate")
	case r.URL.Path == "/away.pem":
		http.Redirect(w, r, "/SimpleNotificationService-1.pem", http.StatusFound)
	case r.URL.Query().Get("Action") == "ConfirmSubscription":
		fmt.Fprint(w, "<ConfirmSubscriptionResponse/>")
	default:
		http.NotFound(w, r)
	}
}

func (f *fakeSNS) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.asked...)
}

func (f *fakeSNS) reader(t *testing.T) *SES {
	t.Helper()
	s, err := NewSES(topic, f.server.URL, f.server.Client().Transport, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// post is a message as SNS signs it, after change has had its way with what is signed.
func (f *fakeSNS) post(version, message string, change func(m map[string]string)) Request {
	m := map[string]string{
		"Type": "Notification", "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324", "TopicArn": topic, "Message": message,
		"Timestamp": "2026-11-21T00:00:00.000Z", "SignatureVersion": version, "SigningCertURL": f.server.URL + "/SimpleNotificationService-1.pem",
	}
	if change != nil {
		change(m)
	}
	m["Signature"] = f.sign(m)
	return asRequest(m)
}

func asRequest(m map[string]string) Request {
	body, _ := json.Marshal(m)
	return Request{Header: http.Header{}, Body: body}
}

func (f *fakeSNS) sign(m map[string]string) string {
	names := []string{"Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"}
	if m["Type"] != "Notification" {
		names = []string{"Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"}
	}
	var text strings.Builder
	for _, n := range names {
		if v, ok := m[n]; ok {
			text.WriteString(n + "\n" + v + "\n")
		}
	}
	hash, sum := crypto.SHA256, sha256.Sum256([]byte(text.String()))
	digest := sum[:]
	if m["SignatureVersion"] == "1" {
		old := sha1.Sum([]byte(text.String()))
		hash, digest = crypto.SHA1, old[:]
	}
	sig, err := rsa.SignPKCS1v15(rand.Reader, f.key, hash, digest)
	if err != nil {
		f.t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(sig)
}

const sesBounce = `{"notificationType":"Bounce","mail":{"messageId":"0100018f-1","source":"ann@example.test","destination":["x@far.test"],
 "commonHeaders":{"messageId":"<own@example.test>","subject":"hello"}},
 "bounce":{"bounceType":"Permanent","bounceSubType":"General","reportingMTA":"dns; a8-70.smtp-out.amazonses.com","feedbackId":"f",
 "bouncedRecipients":[{"emailAddress":"X <x@far.test>","action":"failed","status":"5.1.1","diagnosticCode":"smtp; 550 5.1.1 user unknown"},{"emailAddress":"y@far.test"}]}}`

func TestSNSNotification(t *testing.T) {
	f := newSNS(t)
	s := f.reader(t)
	for _, version := range []string{"1", "2"} {
		for _, subject := range []bool{false, true} {
			list, err := s.Read(t.Context(), f.post(version, sesBounce, func(m map[string]string) {
				if subject {
					m["Subject"] = "Amazon SES Email Event Notification"
				}
			}))
			if err != nil || len(list) != 2 {
				t.Fatalf("version %s: %+v, %v", version, list, err)
			}
			want := Notice{
				Kind: Bounced, Recipient: "x@far.test", ProviderID: "0100018f-1", MessageID: "<own@example.test>", Sender: "ann@example.test", Subject: "hello",
				Type: Hard, Status: "5.1.1", Diagnostic: "550 5.1.1 user unknown", RemoteMTA: "a8-70.smtp-out.amazonses.com",
			}
			if list[0] != want {
				t.Errorf("got %+v, want %+v", list[0], want)
			}
			if !list[1].Suppress || list[1].Recipient != "y@far.test" {
				t.Errorf("without a status: %+v", list[1])
			}
		}
	}
	if got := f.requests(); len(got) != 1 {
		t.Errorf("the certificate was fetched %d times", len(got))
	}
}

func TestSNSForgeries(t *testing.T) {
	f, other := newSNS(t), newSNS(t)
	for name, r := range map[string]Request{
		"another topic":           f.post("2", sesBounce, func(m map[string]string) { m["TopicArn"] = topic + "2" }),
		"another host's key":      other.post("2", sesBounce, nil),
		"another's key, our host": other.post("2", sesBounce, func(m map[string]string) { m["SigningCertURL"] = f.server.URL + "/SimpleNotificationService-1.pem" }),
		"plain HTTP": f.post("2", sesBounce, func(m map[string]string) {
			m["SigningCertURL"] = "http" + strings.TrimPrefix(m["SigningCertURL"], "https")
		}),
		"a user in the URL": f.post("2", sesBounce, func(m map[string]string) {
			m["SigningCertURL"] = strings.Replace(m["SigningCertURL"], "https://", "https://x@", 1)
		}),
		"a host behind ours": f.post("2", sesBounce, func(m map[string]string) {
			m["SigningCertURL"] = f.server.URL + ".evil.test/SimpleNotificationService-1.pem"
		}),
		"no certificate": f.post("2", sesBounce, func(m map[string]string) { m["SigningCertURL"] = f.server.URL + "/no.pem" }),
		"not a .pem":     f.post("2", sesBounce, func(m map[string]string) { m["SigningCertURL"] = f.server.URL + "/?Action=ConfirmSubscription" }),
		"version 3":      f.post("3", sesBounce, nil),
		"a foreign SubscribeURL": f.post("2", "x", func(m map[string]string) {
			m["Type"], m["Token"], m["SubscribeURL"] = "SubscriptionConfirmation", "t", other.server.URL+"/?Action=ConfirmSubscription"
		}),
	} {
		t.Run(name, func(t *testing.T) {
			if list, err := f.reader(t).Read(t.Context(), r); !errors.Is(err, ErrForged) || list != nil {
				t.Errorf("%+v, %v", list, err)
			}
		})
	}
	for _, field := range []string{"Message", "MessageId", "Timestamp", "Type", "Signature"} {
		r := f.post("2", sesBounce, nil)
		var m map[string]string
		if err := json.Unmarshal(r.Body, &m); err != nil {
			t.Fatal(err)
		}
		with := "Z"
		if m[field][1:2] == with {
			with = "Y"
		}
		m[field] = m[field][:1] + with + m[field][2:]
		if list, err := f.reader(t).Read(t.Context(), asRequest(m)); !errors.Is(err, ErrForged) {
			t.Errorf("with another %s: %+v, %v", field, list, err)
		}
	}
	if got := other.requests(); len(got) != 0 {
		t.Errorf("a foreign host was asked: %v", got)
	}
	f.expires = time.Now().Add(-time.Minute)
	if _, err := f.reader(t).Read(t.Context(), f.post("2", sesBounce, nil)); !errors.Is(err, ErrForged) {
		t.Errorf("an expired certificate: %v", err)
	}
	if _, err := f.reader(t).Read(t.Context(), f.post("2", sesBounce, func(m map[string]string) { m["SigningCertURL"] = f.server.URL + "/away.pem" })); err == nil {
		t.Error("a redirect was followed")
	}
}

func TestSNSConfirmation(t *testing.T) {
	f := newSNS(t)
	list, err := f.reader(t).Read(t.Context(), f.post("1", "You have chosen to subscribe", func(m map[string]string) {
		m["Type"], m["Token"], m["SubscribeURL"] = "SubscriptionConfirmation", "token", f.server.URL+"/?Action=ConfirmSubscription&Token=token"
	}))
	if err != nil || list != nil {
		t.Fatalf("%+v, %v", list, err)
	}
	if got := f.requests(); len(got) != 2 || got[1] != "/?Action=ConfirmSubscription&Token=token" {
		t.Errorf("asked for %v", got)
	}
}

// TestSNSFetchesAreBounded: whoever makes names of certificates up makes us ask for a few of them
// only.
func TestSNSFetchesAreBounded(t *testing.T) {
	f := newSNS(t)
	s := f.reader(t)
	for n := range 3 * maxFailedFetches {
		r := f.post("2", sesBounce, func(m map[string]string) { m["SigningCertURL"] = fmt.Sprintf("%s/%d.pem", f.server.URL, n) })
		if _, err := s.Read(t.Context(), r); err == nil {
			t.Fatal("accepted")
		}
	}
	if got := len(f.requests()); got != maxFailedFetches {
		t.Errorf("%d requests, want %d", got, maxFailedFetches)
	}
}

func TestSNSOrigins(t *testing.T) {
	for arn, want := range map[string]string{
		topic: "https://sns.us-east-1.amazonaws.com",
		"arn:aws-cn:sns:cn-north-1:123456789012:x":  "https://sns.cn-north-1.amazonaws.com.cn",
		"arn:aws:sns:evil.test/:123456789012:x":     "",
		"arn:aws:sqs:us-east-1:123456789012:x":      "",
		"arn:aws:sns:us-east-1:123456789012":        "",
		"":                                          "",
		"arn:aws:sns:us-east-1@evil:123456789012:x": "",
	} {
		s, err := NewSES(arn, "", http.DefaultTransport, time.Now)
		if (err == nil) != (want != "") || err == nil && s.origin != want {
			t.Errorf("%s: %+v, %v", arn, s, err)
		}
	}
	for _, origin := range []string{"http://x.test", "https://", "https://x.test/path", "https://u@x.test", "https://x.test?q", "x"} {
		if _, err := NewSES(topic, origin, http.DefaultTransport, time.Now); err == nil {
			t.Errorf("%s was taken", origin)
		}
	}
}

func TestSESNotices(t *testing.T) {
	complaint := `{"eventType":"Complaint","mail":{"messageId":"m1"},"complaint":{"complainedRecipients":[{"emailAddress":"x@far.test"}],
		"complaintFeedbackType":"abuse","userAgent":"Yahoo!-Mail-Feedback/2.0","arrivalDate":"2026-11-20T10:00:00.000Z"}}`
	list, err := sesNotices([]byte(complaint))
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	want := Notice{Kind: Complained, Recipient: "x@far.test", ProviderID: "m1", FeedbackType: "abuse", UserAgent: "Yahoo!-Mail-Feedback/2.0",
		ArrivedAt: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)}
	if list[0] != want {
		t.Errorf("%+v", list[0])
	}
	for bounce, want := range map[string]Notice{
		`"bounceType":"Transient","bounceSubType":"MailboxFull"`:                      {Type: Soft, Subtype: "mailbox_full"},
		`"bounceType":"Undetermined","bounceSubType":"Undetermined"`:                  {Type: Undetermined},
		`"bounceType":"Permanent","bounceSubType":"OnAccountSuppressionList"`:         {Type: Hard, Subtype: "suppressed", Suppress: true},
		`"bounceType":"Permanent","bounceSubType":"NoEmail"`:                          {Type: Hard, Subtype: "no_such_mailbox", Suppress: true},
		`"bounceType":"Transient","bounceSubType":"ContentRejected"`:                  {Type: Soft, Subtype: "content"},
		`"bounceType":"Permanent","bounceSubType":"General","reportingMTA":"no type"`: {Type: Hard, Suppress: true, RemoteMTA: "no type"},
	} {
		list, err := sesNotices([]byte(`{"eventType":"Bounce","bounce":{` + bounce + `,"bouncedRecipients":[{"emailAddress":"x@far.test"}]}}`))
		want.Kind, want.Recipient = Bounced, "x@far.test"
		if err != nil || len(list) != 1 || list[0] != want {
			t.Errorf("%s: %+v, %v", bounce, list, err)
		}
	}
	for _, text := range []string{`{"notificationType":"Delivery","mail":{}}`, `{"eventType":"Open"}`, `{"notificationType":"AmazonSnsSubscriptionSucceeded"}`, "Successfully validated SNS topic."} {
		if list, err := sesNotices([]byte(text)); err != nil || len(list) != 0 {
			t.Errorf("%s: %+v, %v", text, list, err)
		}
	}
	if _, err := sesNotices([]byte(`{"mail":5}`)); !errors.Is(err, ErrMalformed) {
		t.Errorf("malformed: %v", err)
	}
}

// FuzzSES reads any notice; none has more recipients than it may, or text that breaks a line.
func FuzzSES(f *testing.F) {
	f.Add([]byte(sesBounce))
	f.Add([]byte(`{"eventType":"Complaint","complaint":{"complainedRecipients":[{"emailAddress":"a@b\n"}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := sesNotices(body)
		if err != nil && !errors.Is(err, ErrMalformed) {
			t.Error(err)
		}
		checkNotices(t, list)
		s := &SES{topic: topic, origin: "https://sns.test", now: time.Now, keys: map[string]signingKey{}, http: &http.Client{Transport: noTransport{}}}
		if list, err := s.Read(context.Background(), Request{Body: body}); err == nil {
			t.Errorf("accepted: %+v", list)
		}
	})
}

type noTransport struct{}

func (noTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("nobody is there")
}

func checkNotices(t *testing.T, list []Notice) {
	t.Helper()
	if len(list) > maxNotices {
		t.Fatalf("%d notices", len(list))
	}
	for _, n := range list {
		if strings.ContainsAny(n.Recipient+n.MessageID+n.ProviderID+n.Diagnostic+n.Status+n.Subtype+n.FeedbackType+n.UserAgent, "\r\n") || len(n.Diagnostic) > maxText {
			t.Fatalf("%+v", n)
		}
		if n.Kind != Bounced && n.Kind != Complained || n.Kind == Bounced && n.Type == "" {
			t.Fatalf("%+v", n)
		}
	}
}
