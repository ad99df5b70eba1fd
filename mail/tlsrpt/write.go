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
		Org: text(r.Org), Contact: text(r.Contact), ID: text(r.ID),
		Range: wireRange{Start: text(r.Begin.Format(time.RFC3339)), End: text(r.End.Format(time.RFC3339))},
	}
	for _, p := range r.Policies {
		w := wirePolicy{
			Policy:  wirePolicyText{Type: text(p.Type), Strings: writeTexts(p.Strings), Domain: text(p.Domain), MXHosts: writeTexts(p.MXHosts)},
			Summary: wireSummary{Successful: number(p.Successful), Failed: number(p.Failed)},
		}
		for _, f := range p.Failures {
			w.Failures = append(w.Failures, wireFailure{
				Result: text(f.Result), SendingIP: text(f.SendingIP), MXHost: text(f.MXHost), MXHelo: text(f.MXHelo),
				ReceivingIP: text(f.ReceivingIP), Sessions: number(f.Sessions), Reason: text(f.Reason), Information: text(f.Information),
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

func writeTexts(in []string) (out list[text]) {
	for _, s := range in {
		out = append(out, text(s))
	}
	return out
}
