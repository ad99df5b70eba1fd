package feedback

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func mailgunPost(secret, token string, at time.Time, event string) Request {
	stamp := fmt.Sprint(at.Unix())
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(stamp + token))
	return Request{Body: fmt.Appendf(nil, `{"signature":{"timestamp":%q,"token":%q,"signature":%q},"event-data":%s}`, stamp, token, hex.EncodeToString(mac.Sum(nil)), event)}
}

const mailgunFailed = `{"event":"failed","severity":"permanent","reason":"bounce","recipient":"x@far.test","id":"1",
 "message":{"headers":{"message-id":"own@example.test","from":"Ann <ann@example.test>","subject":"hello","to":"x@far.test"}},
 "delivery-status":{"code":550,"enhanced-code":"5.1.1","message":"550 5.1.1 no such user","mx-host":"mx.far.test","attempt-no":1}}`

func TestMailgun(t *testing.T) {
	m := NewMailgun("key", time.Now)
	list, err := m.Read(t.Context(), mailgunPost("key", "t1", time.Now(), mailgunFailed))
	want := Notice{
		Kind: Bounced, Recipient: "x@far.test", MessageID: "<own@example.test>", Sender: "ann@example.test", Subject: "hello",
		Type: Hard, Status: "5.1.1", Diagnostic: "550 5.1.1 no such user", RemoteMTA: "mx.far.test",
	}
	if err != nil || len(list) != 1 || list[0] != want {
		t.Fatalf("%+v, %v", list, err)
	}
	for event, want := range map[string]string{
		`{"event":"complained","recipient":"x@far.test"}`:                                                                    "complained  false",
		`{"event":"failed","severity":"temporary","recipient":"x@far.test"}`:                                                 "",
		`{"event":"delivered","recipient":"x@far.test"}`:                                                                     "",
		`{"event":"failed","severity":"permanent","reason":"old","delivery-status":{"code":602}}`:                            "bounced soft false",
		`{"event":"failed","severity":"permanent","reason":"suppress-bounce","delivery-status":{"code":605}}`:                "bounced hard true",
		`{"event":"failed","severity":"permanent","reason":"bounce","delivery-status":{"code":550,"message":"no"}}`:          "bounced hard true",
		`{"event":"failed","severity":"permanent","reason":"generic","delivery-status":{"code":452.0,"description":"full"}}`: "bounced soft false",
		`{"event":"failed","severity":"permanent","reason":"generic"}`:                                                       "bounced undetermined false",
	} {
		list, err := m.Read(t.Context(), mailgunPost("key", fmt.Sprintf("%x", sha256.Sum256([]byte(event))), time.Now(), event))
		got := ""
		if len(list) == 1 {
			got = fmt.Sprint(list[0].Kind, " ", list[0].Type, " ", list[0].Suppress)
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v", event, got, err)
		}
	}
}

// TestMailgunTokenHoldsForOneBody: Mailgun's signature says nothing of what it says; so a notice
// can be repeated, and its signature not be used for another.
func TestMailgunTokenHoldsForOneBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMailgun("key", time.Now)
		first := mailgunPost("key", "t1", time.Now(), mailgunFailed)
		for range 2 {
			if list, err := m.Read(t.Context(), first); err != nil || len(list) != 1 {
				t.Fatalf("%+v, %v", list, err)
			}
		}
		for name, r := range map[string]Request{
			"another body":   {Body: []byte(strings.Replace(string(first.Body), "x@far.test", "y@far.test", 1))},
			"another key":    mailgunPost("other", "t2", time.Now(), mailgunFailed),
			"too old":        mailgunPost("key", "t3", time.Now().Add(-25*time.Hour), mailgunFailed),
			"in the future":  mailgunPost("key", "t4", time.Now().Add(25*time.Hour), mailgunFailed),
			"no token":       mailgunPost("key", "", time.Now(), mailgunFailed),
			"no signature":   {Body: []byte(`{"event-data":` + mailgunFailed + `}`)},
			"a longer stamp": {Body: []byte(strings.Replace(string(first.Body), `"timestamp":"`, `"timestamp":"0`, 1))},
		} {
			if list, err := m.Read(t.Context(), r); !errors.Is(err, ErrForged) {
				t.Errorf("%s: %+v, %v", name, list, err)
			}
		}
		for n := range maxTokens + 5 {
			if _, err := m.Read(t.Context(), mailgunPost("key", fmt.Sprint("n", n), time.Now(), `{"event":"opened"}`)); err != nil {
				t.Fatal(err)
			}
		}
		if len(m.bodies) != maxTokens || len(m.tokenOrder) != maxTokens {
			t.Errorf("%d tokens are kept", len(m.bodies))
		}
	})
}

type sendGridKey struct {
	t   *testing.T
	key *ecdsa.PrivateKey
}

func newSendGridKey(t *testing.T) sendGridKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return sendGridKey{t, key}
}

func (k sendGridKey) public() string {
	der, err := x509.MarshalPKIXPublicKey(&k.key.PublicKey)
	if err != nil {
		k.t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}

func (k sendGridKey) post(body string) Request {
	sum := sha256.Sum256([]byte("1795190400" + body))
	sig, err := ecdsa.SignASN1(rand.Reader, k.key, sum[:])
	if err != nil {
		k.t.Fatal(err)
	}
	h := http.Header{}
	h.Set(sendGridSignature, base64.StdEncoding.EncodeToString(sig))
	h.Set(sendGridTimestamp, "1795190400")
	return Request{Header: h, Body: []byte(body)}
}

// TestSendGridPublicVector verifies the signature that SendGrid's own libraries are tested with.
func TestSendGridPublicVector(t *testing.T) {
	s, err := NewSendGrid("MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEDr2LjtURuePQzplybdC+u4CwrqDqBaWjcMMsTbhdbcwHBcepxo7yAQGhHPTnlvFYPAZFceEu/1FwCM/QmGUhA==")
	if err != nil {
		t.Fatal(err)
	}
	r := Request{Header: http.Header{}, Body: []byte(`{"category":"example_payload","event":"test_event","message_id":"message_id"}`)}
	r.Header.Set(sendGridTimestamp, "1588788367")
	r.Header.Set(sendGridSignature, "MEUCIQCtIHJeH93Y+qpYeWrySphQgpNGNr/U+UyUlBkU6n7RAwIgJTz2C+8a8xonZGi6BpSzoQsbVRamr2nlxFDWYNH2j/0=")
	if err := s.verify(r); err != nil {
		t.Error(err)
	}
}

func TestSendGrid(t *testing.T) {
	k := newSendGridKey(t)
	for _, form := range []string{k.public(), "-----BEGIN PUBLIC KEY-----\n" + k.public() + "\n-----END PUBLIC KEY-----\n"} {
		s, err := NewSendGrid(form)
		if err != nil {
			t.Fatal(err)
		}
		list, err := s.Read(t.Context(), k.post(`[
			{"email":"x@far.test","event":"bounce","type":"bounce","status":"5.1.1","reason":"550 5.1.1 no such user","smtp-id":"<own@example.test>","sg_event_id":"e"},
			{"email":"x@far.test","event":"bounce","type":"blocked","status":"5.7.1","reason":"blocked","smtp-id":"<own@example.test>"},
			{"email":"x@far.test","event":"bounce","type":"bounce","reason":"gone"},
			{"email":"x@far.test","event":"dropped","reason":"Bounced Address"},
			{"email":"x@far.test","event":"spamreport","smtp-id":"<own@example.test>"},
			{"email":"x@far.test","event":"delivered","status":250},{"email":"x@far.test","event":"deferred"},{"event":"open"}]`))
		if err != nil || len(list) != 5 {
			t.Fatalf("%+v, %v", list, err)
		}
		want := Notice{Kind: Bounced, Recipient: "x@far.test", MessageID: "<own@example.test>", Type: Hard, Status: "5.1.1", Diagnostic: "550 5.1.1 no such user"}
		if list[0] != want || list[1].Type != Soft || !list[2].Suppress || list[2].Type != Hard || !list[3].Suppress || list[4].Kind != Complained {
			t.Errorf("%+v", list)
		}
	}
	s, _ := NewSendGrid(k.public())
	whole := k.post(`[{"email":"x@far.test","event":"spamreport"}]`)
	changed := k.post(`[{"email":"x@far.test","event":"spamreport"}]`)
	changed.Body = []byte(`[{"email":"y@far.test","event":"spamreport"}]`)
	late := k.post(`[{"email":"x@far.test","event":"spamreport"}]`)
	late.Header.Set(sendGridTimestamp, "1795190401")
	for name, r := range map[string]Request{"another body": changed, "another time": late, "another key": newSendGridKey(t).post(string(whole.Body)), "no header": {Header: http.Header{}, Body: whole.Body}} {
		if list, err := s.Read(t.Context(), r); !errors.Is(err, ErrForged) {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
	if _, err := s.Read(t.Context(), k.post(`{"not":"a list"}`)); !errors.Is(err, ErrMalformed) {
		t.Errorf("malformed: %v", err)
	}
	for _, key := range []string{"", "secret", base64.StdEncoding.EncodeToString([]byte("x"))} {
		if _, err := NewSendGrid(key); err == nil {
			t.Errorf("the key %q was taken", key)
		}
	}
}

const postmarkBounce = `{"RecordType":"Bounce","ID":42,"Type":"HardBounce","TypeCode":1,"MessageID":"883953f4-6105-42a2-a16a-77a8eac79483",
 "Description":"The server was unable to deliver your message","Details":"smtp;550 5.1.1 no such user","Email":"x@far.test","From":"ann@example.test",
 "BouncedAt":"2026-11-21T00:00:00Z","Inactive":true,"Subject":"hello","Metadata":{"Mailstead-Id":"tag","n":5}}`

func TestPostmark(t *testing.T) {
	p := NewPostmark("s3cret")
	basic := func(pair string) Request {
		h := http.Header{}
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
		return Request{Header: h, Body: []byte(postmarkBounce)}
	}
	header := Request{Header: http.Header{"X-Webhook-Secret": {"s3cret"}}, Body: []byte(postmarkBounce)}
	query := Request{Header: http.Header{}, Query: url.Values{"secret": {"s3cret"}}, Body: []byte(postmarkBounce)}
	want := Notice{
		Kind: Bounced, Recipient: "x@far.test", Sender: "ann@example.test", Subject: "hello", Tag: "tag",
		Type: Hard, Diagnostic: "smtp;550 5.1.1 no such user", Suppress: true,
	}
	for name, r := range map[string]Request{"password": basic("postmark:s3cret"), "header": header, "query": query} {
		if list, err := p.Read(t.Context(), r); err != nil || len(list) != 1 || list[0] != want {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
	if _, err := NewPostmark("u:p").Read(t.Context(), basic("u:p")); err != nil {
		t.Errorf("user and password: %v", err)
	}
	for name, r := range map[string]Request{"wrong": basic("x:y"), "none": {Header: http.Header{}, Body: []byte(postmarkBounce)}} {
		if list, err := p.Read(t.Context(), r); !errors.Is(err, ErrForged) {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
	if _, err := NewPostmark("").Read(t.Context(), Request{Header: http.Header{}, Body: []byte(postmarkBounce)}); !errors.Is(err, ErrForged) {
		t.Errorf("without a secret: %v", err)
	}
	for kind, want := range map[string]string{
		"SoftBounce": "bounced soft", "Transient": "", "AutoResponder": "", "DnsError": "bounced soft", "Unknown": "bounced undetermined",
		"BadEmailAddress": "bounced hard", "SpamComplaint": "complained ", "SpamNotification": "bounced soft",
	} {
		list, err := p.Read(t.Context(), Request{Header: header.Header, Body: fmt.Appendf(nil, `{"Type":%q,"Email":"x@far.test"}`, kind)})
		got := ""
		if len(list) == 1 {
			got = list[0].Kind + " " + list[0].Type
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v", kind, got, err)
		}
	}
	if list, err := p.Read(t.Context(), Request{Header: header.Header, Body: []byte(`{"RecordType":"Delivery","Email":"x@far.test"}`)}); err != nil || len(list) != 0 {
		t.Errorf("a delivery: %+v, %v", list, err)
	}
}

// FuzzProviders reads any body that bears a right proof.
func FuzzProviders(f *testing.F) {
	f.Add(mailgunFailed)
	f.Add(postmarkBounce)
	f.Add(`[{"email":"x@far.test","event":"bounce","status":5.1}]`)
	postmark := NewPostmark("s")
	f.Fuzz(func(t *testing.T, text string) {
		if list, err := postmark.Read(context.Background(), Request{Header: http.Header{"X-Webhook-Secret": {"s"}}, Body: []byte(text)}); err == nil {
			checkNotices(t, list)
		} else if !errors.Is(err, ErrMalformed) {
			t.Error(err)
		}
		if json.Valid([]byte(text)) {
			list, err := NewMailgun("s", time.Now).Read(context.Background(), mailgunPost("s", "t", time.Now(), text))
			if err != nil && !errors.Is(err, ErrMalformed) {
				t.Error(err)
			}
			checkNotices(t, list)
		}
		var events []sendGridEvent
		if decodeJSON([]byte(text), &events) != nil {
			return
		}
		for _, e := range events {
			if n, ok := e.notice(); ok {
				checkNotices(t, []Notice{n})
			}
		}
	})
}
