package webhooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrTimestamp is returned by Verify when the timestamp is no integer or is more than 300
	// seconds from now.
	ErrTimestamp = errors.New("timestamp is missing, malformed or more than 300 seconds from now")
	// ErrSignature is returned by Verify when no v1= value of the header belongs to the secret,
	// timestamp and body.
	ErrSignature = errors.New("no signature matches")
)

const timestampTolerance = 300 // seconds, either way

// Headers returns every header of a delivery that starts at now: the X-Service- set, the Standard
// Webhooks trio (https://www.standardwebhooks.com) and Content-Type. Both schemes carry one
// signature per secret, in the order of d.Secrets: comma-separated `v1=<hex>`, keyed with the whole
// secret, over "timestamp.body"; and space-separated `v1,<base64>`, keyed with the decoded secret,
// over "id.timestamp.body". A secret that is not base64 signs the first only.
func Headers(d Delivery, now time.Time) http.Header {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	service := make([]string, 0, len(d.Secrets))
	standard := make([]string, 0, len(d.Secrets))
	for _, secret := range d.Secrets {
		service = append(service, "v1="+hex.EncodeToString(serviceMAC(secret, timestamp, d.Body)))
		if key, err := standardKey(secret); err == nil {
			mac := sum(hmac.New(sha256.New, key), d.Body, d.EventID, ".", timestamp, ".")
			standard = append(standard, "v1,"+base64.StdEncoding.EncodeToString(mac))
		}
	}
	h := make(http.Header, 12)
	h.Set("Content-Type", "application/json")
	h.Set("X-Service-Timestamp", timestamp)
	h.Set("X-Service-Signature", strings.Join(service, ","))
	h.Set("X-Service-Event", d.EventType)
	h.Set("X-Service-Event-Id", d.EventID)
	h.Set("X-Service-Delivery", d.DeliveryID)
	h.Set("X-Service-Attempt", strconv.Itoa(d.Attempt))
	h.Set("Webhook-Id", d.EventID)
	h.Set("Webhook-Timestamp", timestamp)
	h.Set("Webhook-Signature", strings.Join(standard, " "))
	return h
}

// Verify is the receiver's side of X-Service-Timestamp and X-Service-Signature: nil when any `v1=`
// value of the comma-separated signature was made with secret over timestamp and the raw body, and
// timestamp (Unix seconds) lies within 300 seconds of now. The error is ErrTimestamp or
// ErrSignature. Signatures are compared in constant time.
func Verify(secret, timestamp, signature string, body []byte, now time.Time) error {
	sent, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return fmt.Errorf("read %q: %w", clip(timestamp, 32), ErrTimestamp)
	}
	if sent < now.Unix()-timestampTolerance || sent > now.Unix()+timestampTolerance {
		return ErrTimestamp
	}
	want := serviceMAC(secret, timestamp, body)
	for value := range strings.SplitSeq(signature, ",") {
		text, ok := strings.CutPrefix(strings.TrimSpace(value), "v1=")
		if !ok || len(text) != hex.EncodedLen(len(want)) {
			continue
		}
		got, err := hex.DecodeString(text)
		if err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return ErrSignature
}

func serviceMAC(secret, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	return sum(mac, body, timestamp, ".")
}

func sum(mac hash.Hash, body []byte, before ...string) []byte {
	for _, part := range before {
		mac.Write([]byte(part))
	}
	mac.Write(body)
	return mac.Sum(nil)
}
