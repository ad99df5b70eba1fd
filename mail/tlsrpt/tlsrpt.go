// Package tlsrpt writes and reads reports about TLS in mail (RFC 8460), and parses the DNS records
// that ask for them. It does not know what is counted or how a report is sent.
package tlsrpt

import (
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

// Result types of sessions that failed (RFC 8460 section 4.3).
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

// MediaType is the media type of a report (RFC 8460 section 6.5).
const MediaType = "application/tlsrpt+gzip"

// A Report has the results of the TLS sessions with the hosts of a domain in a period (RFC 8460
// section 4). It is stored as JSON, so the names of its fields must not change.
type Report struct {
	Org, Contact string
	ID           string
	Begin, End   time.Time // UTC, inclusive
	Policies     []Policy
}

// A Policy is a TLS policy that was applied, with the results of its sessions.
type Policy struct {
	Type               string // PolicySTS, PolicyTLSA or PolicyNone
	Domain             string
	Strings            []string // the lines of the policy as published
	MXHosts            []string
	Successful, Failed int64 // number of sessions
	Failures           []Failure
}

// A Failure counts sessions that failed for the same reason.
type Failure struct {
	Result      string
	SendingIP   string
	MXHost      string
	MXHelo      string
	ReceivingIP string
	Sessions    int64
	Reason      string
	Information string
}

const maxTargets = 5 // targets of one record

// ParseRecord returns the targets of reports, which are mailto: and https: URIs, in order (RFC 8460
// section 3). texts are the TXT records of _smtp._tls.DOMAIN. It returns none if these have no
// valid record or more than one.
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
				out = parseTargets(value)
			}
		}
	}
	if found != 1 {
		return nil
	}
	return out
}

func parseTargets(list string) []string {
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

// Mailbox returns the email address of a mailto: target, "" for other targets.
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
