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
	// ErrTimestamp is returned by Verify if the timestamp is not an integer, or is more than 300
	// seconds from now.
	ErrTimestamp = errors.New("timestamp is missing, malformed or more than 300 seconds from now")
	// ErrSignature is returned by Verify if no v1= value of the header is valid for the secret,
	// timestamp and body.
	ErrSignature = errors.New("no signature matches")
)

const timestampTolerance = 300 // seconds, either way

// Headers returns all headers of a delivery at the time now: the X-Service-* headers, the three
// headers of Standard Webhooks (https://www.standardwebhooks.com), and Content-Type. Both schemes
// have one signature per secret, in the order of d.Secrets. X-Service-Signature has comma-separated
// `v1=<hex>`, keyed with the whole secret, over "timestamp.body". Webhook-Signature has
// space-separated `v1,<base64>`, keyed with the decoded secret, over "id.timestamp.body"; it omits
// a secret that is not base64.
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

// Verify verifies X-Service-Timestamp and X-Service-Signature, as a receiver does. It returns nil
// if any `v1=` value of the comma-separated signature is valid for secret, timestamp and raw body,
// and timestamp (Unix seconds) is within 300 seconds of now. Otherwise it returns ErrTimestamp or
// ErrSignature. It compares signatures in constant time.
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
