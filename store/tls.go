package store

import "time"

// A TLSPolicy is the MTA-STS policy of a domain elsewhere (RFC 8461), kept for as long as it says.
type TLSPolicy struct {
	Domain    string        // ASCII
	ID        string        // of the TXT record that went with it
	Mode      string        // enforce testing none
	MX        []string      // host names, with "*." for any one label
	MaxAge    time.Duration // as served
	FetchedAt time.Time
	ExpiresAt time.Time
	UsedAt    time.Time // when mail last heeded it, to a day
}

// TLSPolicies keeps one for a domain.
var TLSPolicies = newTable("tls_policy", func(p *TLSPolicy) string { return p.Domain })

// A TLSCount counts the TLS sessions with a domain's hosts in one day, for a report to it (RFC
// 8460).
type TLSCount struct {
	Day      string // YYYY-MM-DD, UTC
	Domain   string // ASCII
	Policies []TLSPolicyCount
}

// A TLSPolicyCount counts those under one policy.
type TLSPolicyCount struct {
	Type       string   // tlsa sts no-policy-found
	Strings    []string `json:",omitempty"` // as published
	MXHosts    []string `json:",omitempty"`
	Successful int64
	Failed     int64
	Failures   []TLSFailureCount `json:",omitempty"` // bounded: Failed may be more than their sum
}

// A TLSFailureCount counts those that failed alike.
type TLSFailureCount struct {
	Result, Host, IP, Reason string
	Sessions                 int64
}

// TLSCountID is the id of a count.
func TLSCountID(day, domain string) string { return day + " " + domain }

// TLSCounts keeps one for a day and domain, in the order of days.
var TLSCounts = newTable("tls_count", func(c *TLSCount) string { return TLSCountID(c.Day, c.Domain) })
