// Package tlsrpt writes and reads reports about TLS in mail (RFC 8460), and the records that ask
// for them. It does not know what is counted, nor how a report travels.
package tlsrpt

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Kinds of policy (RFC 8460 section 4.4).
const (
	PolicyTLSA = "tlsa"
	PolicySTS  = "sts"
	PolicyNone = "no-policy-found"
)

// Results of sessions that failed (RFC 8460 section 4.3).
const (
	NoSTARTTLS    = "starttls-not-supported"
	HostMismatch  = "certificate-host-mismatch"
	Expired       = "certificate-expired"
	NotTrusted    = "certificate-not-trusted"
	Failed        = "validation-failure"
	TLSAInvalid   = "tlsa-invalid"
	DNSSECInvalid = "dnssec-invalid"
	STSFetch      = "sts-policy-fetch-error"
	STSInvalid    = "sts-policy-invalid"
	STSWebPKI     = "sts-webpki-invalid"
)

// MediaType is that of a report (RFC 8460 section 6.5).
const MediaType = "application/tlsrpt+gzip"

// A Report tells a domain how TLS fared with its hosts in a span of time.
type Report struct {
	Organization string   `json:"organization-name"`
	Range        Range    `json:"date-range"`
	Contact      string   `json:"contact-info"`
	ID           string   `json:"report-id"`
	Policies     []Policy `json:"policies"`
}

// A Range is a span of time, inclusive.
type Range struct {
	Start time.Time `json:"start-datetime"`
	End   time.Time `json:"end-datetime"`
}

// A Policy is one that was applied, with what came of it.
type Policy struct {
	Policy   PolicyText `json:"policy"`
	Summary  Summary    `json:"summary"`
	Failures []Failure  `json:"failure-details,omitempty"`
}

// A PolicyText is the policy as it was published.
type PolicyText struct {
	Type    string   `json:"policy-type"`
	Strings []string `json:"policy-string,omitempty"`
	Domain  string   `json:"policy-domain"`
	MXHost  []string `json:"mx-host,omitempty"`
}

// A Summary counts sessions.
type Summary struct {
	Successful int64 `json:"total-successful-session-count"`
	Failed     int64 `json:"total-failure-session-count"`
}

// A Failure is one way in which sessions failed.
type Failure struct {
	Result      string `json:"result-type"`
	SendingIP   string `json:"sending-mta-ip,omitempty"`
	MXHost      string `json:"receiving-mx-hostname,omitempty"`
	ReceivingIP string `json:"receiving-ip,omitempty"`
	Sessions    int64  `json:"failed-session-count"`
	Reason      string `json:"failure-reason-code,omitempty"`
}

// Gzip is the report as it is sent.
func (r *Report) Gzip() ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if err := json.NewEncoder(w).Encode(r); err != nil {
		return nil, fmt.Errorf("write TLS report: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress TLS report: %w", err)
	}
	return out.Bytes(), nil
}

const maxTargets = 5 // of one record

// ParseRecord gives where the TXT records of _smtp._tls.DOMAIN want reports, mailto: and https:
// addresses in their order (RFC 8460 section 3); none where there is no record, or more than one.
func ParseRecord(texts []string) []string {
	var out []string
	found := 0
	for _, text := range texts {
		fields := strings.Split(text, ";")
		if strings.TrimSpace(fields[0]) != "v=TLSRPTv1" {
			continue
		}
		found++
		for _, f := range fields[1:] {
			if key, value, _ := strings.Cut(f, "="); strings.TrimSpace(key) == "rua" && out == nil {
				out = targets(value)
			}
		}
	}
	if found != 1 {
		return nil
	}
	return out
}

func targets(list string) []string {
	var out []string
	for text := range strings.SplitSeq(list, ",") {
		text = strings.TrimSpace(text)
		u, err := url.Parse(text)
		good := err == nil && (u.Scheme == "mailto" && strings.Contains(u.Opaque, "@") || u.Scheme == "https" && u.Hostname() != "" && u.User == nil)
		if good && len(out) < maxTargets {
			out = append(out, text)
		}
	}
	return out
}

// Mailbox is the address of a mailto: target; "" for another.
func Mailbox(target string) string {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "mailto" {
		return ""
	}
	address, err := url.PathUnescape(u.Opaque)
	if err != nil {
		return ""
	}
	return address
}
