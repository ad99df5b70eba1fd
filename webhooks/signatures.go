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
	// ErrTimestamp is returned by Verify if the timestamp is not an integer, or differs from now by
	// more than 300 seconds.
	ErrTimestamp = errors.New("the webhook timestamp is missing, malformed or more than 300 seconds from now")
	// ErrSignature is returned by Verify if no signature is valid for the secret, timestamp and
	// body.
	ErrSignature = errors.New("no webhook signature matches the secret and body")
)

const timestampTolerance = 300 // maximum difference in seconds

// Headers returns all headers of a delivery: Content-Type, the X-Service-* headers, and the three
// headers of Standard Webhooks (https://www.standardwebhooks.com). now is the time of the
// signature. There is one signature for each of d.Secrets, in the same order:
//   - X-Service-Signature has `v1=<hex>` values separated by commas. The key is the whole secret,
//     and the signed text is "timestamp.body".
//   - Webhook-Signature has `v1,<base64>` values separated by spaces. The key is the decoded
//     secret, and the signed text is "id.timestamp.body". It omits secrets that are not base64.
func Headers(d Delivery, now time.Time) http.Header {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	service := make([]string, 0, len(d.Secrets))
	standard := make([]string, 0, len(d.Secrets))
	for _, secret := range d.Secrets {
		service = append(service, "v1="+hex.EncodeToString(serviceMAC(secret, timestamp, d.Body)))
		if key, err := standardKey(secret); err == nil {
			mac := macOf(hmac.New(sha256.New, key), d.Body, d.EventID, ".", timestamp, ".")
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

// Verify verifies the headers X-Service-Timestamp and X-Service-Signature, as a receiver does. It
// returns ErrTimestamp if timestamp, in Unix seconds, differs from now by more than 300 seconds. It
// returns ErrSignature if none of the `v1=` values in signature is valid for secret, timestamp and
// body.
func Verify(secret, timestamp, signature string, body []byte, now time.Time) error {
	sent, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return fmt.Errorf("parse timestamp %q: %w", clipText(timestamp, 32), ErrTimestamp)
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

// serviceMAC returns the MAC of X-Service-Signature.
func serviceMAC(secret, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	return macOf(mac, body, timestamp, ".")
}

// macOf returns the MAC of the strings in before, followed by body.
func macOf(mac hash.Hash, body []byte, before ...string) []byte {
	for _, part := range before {
		mac.Write([]byte(part))
	}
	mac.Write(body)
	return mac.Sum(nil)
}
