package tlsrpt

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"time"
)

// Gzip returns the report as gzip-compressed JSON, as it is sent.
func (r *Report) Gzip() ([]byte, error) {
	out := wireReport{
		Org: lenientText(r.Org), Contact: lenientText(r.Contact), ID: lenientText(r.ID),
		Range: wireRange{Start: lenientText(r.Begin.Format(time.RFC3339)), End: lenientText(r.End.Format(time.RFC3339))},
	}
	for _, p := range r.Policies {
		w := wirePolicy{
			Policy:  wirePolicyText{Type: lenientText(p.Type), Strings: writeTexts(p.Strings), Domain: lenientText(p.Domain), MXHosts: writeTexts(p.MXHosts)},
			Summary: wireSummary{Successful: lenientNumber(p.Successful), Failed: lenientNumber(p.Failed)},
		}
		for _, f := range p.Failures {
			w.Failures = append(w.Failures, wireFailure{
				Result: lenientText(f.Result), SendingIP: lenientText(f.SendingIP), MXHost: lenientText(f.MXHost), MXHelo: lenientText(f.MXHelo),
				ReceivingIP: lenientText(f.ReceivingIP), Sessions: lenientNumber(f.Sessions), Reason: lenientText(f.Reason), Information: lenientText(f.Information),
			})
		}
		out.Policies = append(out.Policies, w)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if err := json.NewEncoder(z).Encode(out); err != nil {
		return nil, fmt.Errorf("write TLS report: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress TLS report: %w", err)
	}
	return packed.Bytes(), nil
}

func writeTexts(in []string) (out lenientList[lenientText]) {
	for _, s := range in {
		out = append(out, lenientText(s))
	}
	return out
}
