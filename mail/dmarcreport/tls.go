package dmarcreport

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// TLS is a report about sessions with a domain's hosts (RFC 8460 section 4).
type TLS struct {
	Org, Contact string
	ID           string
	Begin, End   time.Time // UTC
	Policies     []TLSPolicy
}

// A TLSPolicy is one that was applied, with what came of it.
type TLSPolicy struct {
	Type               string // sts tlsa no-policy-found
	Domain             string
	Strings            []string
	MXHosts            []string
	Successful, Failed int64
	Failures           []TLSFailure
}

// A TLSFailure is one way in which sessions failed.
type TLSFailure struct {
	Result      string
	SendingIP   string
	MXHost      string
	MXHelo      string
	ReceivingIP string
	Sessions    int64
	Reason      string
	Information string
}

// list is an array of which one piece after the other is read, as many as are wanted.
type list []json.RawMessage

// UnmarshalJSON takes anything; a text alone stands for an array of it, and what is neither is
// empty.
func (l *list) UnmarshalJSON(text []byte) error {
	var all []json.RawMessage
	switch {
	case json.Unmarshal(text, &all) == nil:
		*l = all
	case text[0] == '"':
		*l = list{json.RawMessage(strings.Clone(string(text)))}
	}
	return nil
}

// number is a count, which some write as a text.
type number int64

// UnmarshalJSON takes anything; what is no number is 0.
func (n *number) UnmarshalJSON(text []byte) error {
	s := strings.Trim(string(text), `"`)
	if f, err := strconv.ParseFloat(s, 64); err == nil && f > 0 {
		*n = number(min(f, maxCount))
	}
	return nil
}

// text is a text; what is none is empty.
type text string

// UnmarshalJSON takes anything.
func (t *text) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		*t = text(plain(s))
	}
	return nil
}

// ReadTLS reads a TLS report as it was attached: JSON, alone or in a gzip or zip file. Errors wrap
// ErrReport.
func ReadTLS(packed []byte) (*TLS, error) {
	r, err := unpack(packed, ".json", MaxJSON)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReport, err)
	}
	var in struct {
		Org   text `json:"organization-name"`
		Range struct {
			Start text `json:"start-datetime"`
			End   text `json:"end-datetime"`
		} `json:"date-range"`
		Contact  text `json:"contact-info"`
		ID       text `json:"report-id"`
		Policies list `json:"policies"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReport, err)
	}
	out := &TLS{
		Org: string(in.Org), Contact: string(in.Contact), ID: string(in.ID),
		Begin: jsonTime(in.Range.Start), End: jsonTime(in.Range.End),
	}
	for _, raw := range in.Policies[:min(len(in.Policies), MaxPolicies)] {
		if p, ok := readPolicy(raw); ok {
			out.Policies = append(out.Policies, p)
		}
	}
	switch {
	case out.ID == "" || len(out.Policies) == 0:
		return nil, fmt.Errorf("%w: it has no id or no policies", ErrReport)
	case !out.Begin.Before(out.End) || out.End.Sub(out.Begin) > 60*24*time.Hour:
		return nil, fmt.Errorf("%w: it is of no span of time", ErrReport)
	}
	return out, nil
}

func jsonTime(t text) time.Time {
	at, err := time.Parse(time.RFC3339, string(t))
	if err != nil || at.Year() < 2000 || at.Year() > 2099 {
		return time.Time{}
	}
	return at.UTC()
}

func readPolicy(raw json.RawMessage) (TLSPolicy, bool) {
	var in struct {
		Policy struct {
			Type    text `json:"policy-type"`
			Strings list `json:"policy-string"`
			Domain  text `json:"policy-domain"`
			MXHosts list `json:"mx-host"`
		} `json:"policy"`
		Summary struct {
			Successful number `json:"total-successful-session-count"`
			Failed     number `json:"total-failure-session-count"`
		} `json:"summary"`
		Failures list `json:"failure-details"`
	}
	if json.Unmarshal(raw, &in) != nil || in.Policy.Domain == "" {
		return TLSPolicy{}, false
	}
	p := TLSPolicy{
		Type: word(string(in.Policy.Type), "no-policy-found", "sts", "tlsa"), Domain: name(string(in.Policy.Domain)),
		Strings: readTexts(in.Policy.Strings), MXHosts: readTexts(in.Policy.MXHosts),
		Successful: int64(in.Summary.Successful), Failed: int64(in.Summary.Failed),
	}
	for _, raw := range in.Failures[:min(len(in.Failures), MaxFailures)] {
		p.Failures = append(p.Failures, readFailure(raw))
	}
	return p, true
}

func readTexts(in list) (out []string) {
	for _, raw := range in[:min(len(in), maxAuth)] {
		var t text
		if json.Unmarshal(raw, &t) == nil && t != "" {
			out = append(out, string(t))
		}
	}
	return out
}

func readFailure(raw json.RawMessage) TLSFailure {
	var in struct {
		Result      text   `json:"result-type"`
		SendingIP   text   `json:"sending-mta-ip"`
		MXHost      text   `json:"receiving-mx-hostname"`
		MXHelo      text   `json:"receiving-mx-helo"`
		ReceivingIP text   `json:"receiving-ip"`
		Sessions    number `json:"failed-session-count"`
		Reason      text   `json:"failure-reason-code"`
		Information text   `json:"additional-information"`
	}
	if json.Unmarshal(raw, &in) != nil {
		return TLSFailure{}
	}
	return TLSFailure{
		Result: string(in.Result), SendingIP: string(in.SendingIP), MXHost: string(in.MXHost), MXHelo: string(in.MXHelo),
		ReceivingIP: string(in.ReceivingIP), Sessions: int64(in.Sessions), Reason: string(in.Reason), Information: string(in.Information),
	}
}
