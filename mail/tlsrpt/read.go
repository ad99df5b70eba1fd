package tlsrpt

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/mailstead/mailstead/mail/reportfile"
)

// Limits on a report that others sent.
const (
	MaxUnpacked = 2 << 20 // bytes after decompression
	MaxPolicies = 100
	MaxFailures = 200 // failures of one policy

	maxTexts = 20 // lines of one policy, and as many MX hosts
	maxList  = max(MaxPolicies, MaxFailures, maxTexts)
)

// Read parses a TLS report. packed is the attachment: JSON, which may be in a gzip or zip file.
// Errors wrap reportfile.ErrReport.
func Read(packed []byte) (*Report, error) {
	r, err := reportfile.Unpack(packed, ".json", MaxUnpacked)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", reportfile.ErrReport, err)
	}
	var in wireReport
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("%w: %w", reportfile.ErrReport, err)
	}
	out := &Report{
		Org: string(in.Org), Contact: string(in.Contact), ID: string(in.ID),
		Begin: readTime(in.Range.Start), End: readTime(in.Range.End),
	}
	for _, p := range in.Policies[:min(len(in.Policies), MaxPolicies)] {
		if p.Policy.Domain != "" {
			out.Policies = append(out.Policies, readPolicy(p))
		}
	}
	switch {
	case out.ID == "" || len(out.Policies) == 0:
		return nil, fmt.Errorf("%w: the report id or the policies are missing", reportfile.ErrReport)
	case !out.Begin.Before(out.End) || out.End.Sub(out.Begin) > 60*24*time.Hour:
		return nil, fmt.Errorf("%w: the date range is missing, reversed or longer than 60 days", reportfile.ErrReport)
	}
	return out, nil
}

func readTime(t lenientText) time.Time {
	at, err := time.Parse(time.RFC3339, string(t))
	if err != nil || at.Year() < 2000 || at.Year() > 2099 {
		return time.Time{}
	}
	return at.UTC()
}

func readPolicy(in wirePolicy) Policy {
	p := Policy{
		Type:    reportfile.Keyword(string(in.Policy.Type), PolicyNone, PolicySTS, PolicyTLSA),
		Domain:  reportfile.DomainName(string(in.Policy.Domain)),
		Strings: readTexts(in.Policy.Strings), MXHosts: readTexts(in.Policy.MXHosts),
		Successful: int64(in.Summary.Successful), Failed: int64(in.Summary.Failed),
	}
	for _, f := range in.Failures {
		p.Failures = append(p.Failures, Failure{
			Result: string(f.Result), SendingIP: string(f.SendingIP), MXHost: string(f.MXHost), MXHelo: string(f.MXHelo),
			ReceivingIP: string(f.ReceivingIP), Sessions: int64(f.Sessions), Reason: string(f.Reason), Information: string(f.Information),
		})
	}
	return p
}

func readTexts(in lenientList[lenientText]) (out []string) {
	for _, t := range in[:min(len(in), maxTexts)] {
		if t != "" {
			out = append(out, string(t))
		}
	}
	return out
}
