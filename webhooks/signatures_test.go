package webhooks

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// verifies is a receiver written from the interface and the Standard Webhooks text alone: which
// schemes accept secret.
func verifies(h http.Header, body []byte, secret string) (service, standard bool) {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s.%s", h.Get("X-Service-Timestamp"), body)
	service = slices.Contains(strings.Split(h.Get("X-Service-Signature"), ","), fmt.Sprintf("v1=%x", mac.Sum(nil)))
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	mac = hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", h.Get("webhook-id"), h.Get("webhook-timestamp"), body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return service, err == nil && slices.Contains(strings.Split(h.Get("webhook-signature"), " "), want)
}

func TestSecretsHaveTheContractForm(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		secret := NewSecret()
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) != 32 || !strings.HasPrefix(secret, "whsec_") || seen[secret] {
			t.Fatalf("secret %q: %d bytes, %v, seen before: %v", secret, len(key), err, seen[secret])
		}
		seen[secret] = true
		if hint := SecretHint(secret); hint != secret[46:] {
			t.Fatalf("hint of %q is %q", secret, hint)
		}
	}
	if SecretHint("abc") != "abc" || SecretHint("") != "" {
		t.Error("the hint of a short secret is not the secret")
	}
}

// TestStandardWebhooksVector checks the published vector of the Standard Webhooks libraries.
func TestStandardWebhooksVector(t *testing.T) {
	h := Headers(Delivery{
		Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		EventID: "msg_p5jXN8AQM9LWM0D4loKWxJek",
		Body:    []byte(`{"test": 2432232314}`),
	}, time.Unix(1614265330, 0))
	if got := h.Get("webhook-signature"); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("webhook-signature %q", got)
	}
}

func TestHeadersCarryTheWholeContract(t *testing.T) {
	old, current := NewSecret(), NewSecret()
	now := time.Unix(1763600000, 999_000_000)
	d := Delivery{Secrets: []string{current, old}, EventID: "evt_1", EventType: "email.received", DeliveryID: "dlv_1", Attempt: 3, Body: []byte(`{"id":"evt_1"}`)}
	h := Headers(d, now)
	for name, want := range map[string]string{
		"Content-Type": "application/json", "X-Service-Timestamp": "1763600000", "X-Service-Event": "email.received",
		"X-Service-Event-Id": "evt_1", "X-Service-Delivery": "dlv_1", "X-Service-Attempt": "3",
		"webhook-id": "evt_1", "webhook-timestamp": "1763600000",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, secret := range d.Secrets {
		service, standard := verifies(h, d.Body, secret)
		if !service || !standard {
			t.Errorf("secret …%s: service %v, standard %v", SecretHint(secret), service, standard)
		}
		if err := Verify(secret, h.Get("X-Service-Timestamp"), h.Get("X-Service-Signature"), d.Body, now); err != nil {
			t.Errorf("verify with …%s: %v", SecretHint(secret), err)
		}
	}
	service, standard := verifies(h, d.Body, NewSecret())
	if service || standard {
		t.Error("a stranger's secret verifies")
	}
	if sigs := strings.Split(h.Get("X-Service-Signature"), ","); len(sigs) != 2 || !strings.HasPrefix(sigs[0], "v1=") {
		t.Errorf("signature header %q", h.Get("X-Service-Signature"))
	}
}

func TestVerifyRefusesWhatWasNotSigned(t *testing.T) {
	secret, body, now := NewSecret(), []byte("{}"), time.Unix(1763600000, 0)
	h := Headers(Delivery{Secrets: []string{secret}, Body: body}, now)
	stamp, sig := h.Get("X-Service-Timestamp"), h.Get("X-Service-Signature")
	for _, tc := range []struct {
		name, secret, stamp, sig string
		body                     []byte
		now                      time.Time
		want                     error
	}{
		{"as sent", secret, stamp, sig, body, now, nil},
		{"300 s late", secret, stamp, sig, body, now.Add(300 * time.Second), nil},
		{"300 s early", secret, stamp, sig, body, now.Add(-300 * time.Second), nil},
		{"spaces and others before", secret, stamp, "v0=00, v1=zz, " + sig, body, now, nil},
		{"301 s late", secret, stamp, sig, body, now.Add(301 * time.Second), ErrTimestamp},
		{"301 s early", secret, stamp, sig, body, now.Add(-301 * time.Second), ErrTimestamp},
		{"other secret", NewSecret(), stamp, sig, body, now, ErrSignature},
		{"other body", secret, stamp, sig, []byte("{ }"), now, ErrSignature},
		{"other timestamp", secret, "1763600001", sig, body, now, ErrSignature},
		{"same instant, other text", secret, "+" + stamp, sig, body, now, ErrSignature},
		{"no signature", secret, stamp, "", body, now, ErrSignature},
		{"no version", secret, stamp, sig[3:], body, now, ErrSignature},
		{"cut", secret, stamp, sig[:len(sig)-2], body, now, ErrSignature},
		{"longer", secret, stamp, sig + "00", body, now, ErrSignature},
		{"no timestamp", secret, "", sig, body, now, ErrTimestamp},
		{"text timestamp", secret, "now", sig, body, now, ErrTimestamp},
		{"smallest timestamp", secret, strconv.Itoa(math.MinInt64), sig, body, now, ErrTimestamp},
		{"largest timestamp", secret, strconv.Itoa(math.MaxInt64), sig, body, now, ErrTimestamp},
	} {
		if err := Verify(tc.secret, tc.stamp, tc.sig, tc.body, tc.now); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

func TestSecretThatIsNotBase64SignsTheServiceSchemeOnly(t *testing.T) {
	h := Headers(Delivery{Secrets: []string{"whsec_not base64"}, Body: []byte("{}")}, time.Now())
	if !strings.HasPrefix(h.Get("X-Service-Signature"), "v1=") || h.Get("Webhook-Signature") != "" {
		t.Errorf("signatures %q and %q", h.Get("X-Service-Signature"), h.Get("Webhook-Signature"))
	}
}

func FuzzVerify(f *testing.F) {
	h := Headers(Delivery{Secrets: []string{"whsec_AAAA"}, Body: []byte("{}")}, time.Unix(1763600000, 0))
	f.Add("whsec_AAAA", "1763600000", h.Get("X-Service-Signature"), []byte("{}"), int64(1763600000))
	f.Add("", "", "v1=,v1=00,,", []byte(nil), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, secret, stamp, sig string, body []byte, now int64) {
		err := Verify(secret, stamp, sig, body, time.Unix(now, 0))
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(stamp + "." + string(body)))
		want := "v1=" + hex.EncodeToString(mac.Sum(nil))
		if err == nil && !strings.Contains(strings.ToLower(sig), want) {
			t.Fatalf("accepted %q, want %q", sig, want)
		}
		sent, parseErr := strconv.ParseInt(stamp, 10, 64)
		if err == nil && (parseErr != nil || math.Abs(float64(sent)-float64(now)) > 1000) {
			t.Fatalf("accepted timestamp %q at %d", stamp, now)
		}
		fresh := strconv.FormatInt(now, 10)
		signed := Headers(Delivery{Secrets: []string{secret}, Body: body}, time.Unix(now, 0)).Get("X-Service-Signature")
		if now > 0 && now < 1<<40 && Verify(secret, fresh, sig+","+signed, body, time.Unix(now, 0)) != nil {
			t.Fatal("a true signature after others is refused")
		}
	})
}

func BenchmarkHeaders(b *testing.B) {
	for _, secrets := range []int{1, 2} {
		b.Run(fmt.Sprintf("2KiB/secrets=%d", secrets), func(b *testing.B) {
			d := Delivery{EventID: "evt_1", EventType: "email.received", DeliveryID: "dlv_1", Attempt: 1, Body: bytes.Repeat([]byte("x"), 2<<10)}
			for range secrets {
				d.Secrets = append(d.Secrets, NewSecret())
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(d.Body)))
			for b.Loop() {
				Headers(d, time.Unix(1763600000, 0))
			}
		})
	}
}
