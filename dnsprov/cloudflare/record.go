package cloudflare

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
)

const (
	maxString     = 255 // maximum length of a character string in bytes (RFC 1035 section 3.3)
	maxComment    = 100 // maximum length of a comment in characters, without a paid plan
	commentPrefix = "mailstead:"
)

// A record is a DNS record in the form of the API.
type record struct {
	ID       string          `json:"id,omitempty"`
	Type     string          `json:"type"`
	Name     string          `json:"name"`
	Content  string          `json:"content,omitempty"`
	Priority *uint16         `json:"priority,omitempty"` // only for MX
	Data     json.RawMessage `json:"data,omitempty"`     // for SRV and CAA, instead of Content
	TTL      uint32          `json:"ttl"`                // seconds; 1 means automatic, as for all proxied records
	Proxied  *bool           `json:"proxied,omitempty"`
	Comment  string          `json:"comment,omitempty"`
}

// srvData is the Data of an SRV record.
type srvData struct {
	Priority uint16 `json:"priority"`
	Weight   uint16 `json:"weight"`
	Port     uint16 `json:"port"`
	Target   string `json:"target"`
}

// caaData is the Data of a CAA record.
type caaData struct {
	Flags uint8  `json:"flags"`
	Tag   string `json:"tag"`
	Value string `json:"value"`
}

// ownerComment returns the comment that marks a record as ours. It has the owner tag and the
// purpose.
func ownerComment(tag, purpose string) string { return commentPrefix + tag + ":" + purpose }

// toCommon converts the record to a dnsprov.Record. It sets Purpose if the comment has the owner
// tag. If somebody switches proxying on for a record of ours, its TTL becomes 1. That is never
// wanted, so the next plan corrects it.
func (r record) toCommon(tag string) dnsprov.Record {
	out := dnsprov.Record{Name: hostName(r.Name), Type: r.Type, Value: r.Content, TTL: r.TTL, ID: r.ID}
	if purpose, ours := strings.CutPrefix(r.Comment, ownerComment(tag, "")); ours {
		out.Purpose = purpose
	}
	switch r.Type {
	case "TXT":
		out.Value = dnsprov.UnquoteText(r.Content)
		if strings.HasPrefix(out.Value, `"`) {
			out.Value = dnsprov.QuoteText(out.Value) // or the text within would be read
		}
	case "A", "AAAA":
		if ip, err := netip.ParseAddr(r.Content); err == nil {
			out.Value = ip.String()
		}
	case "CNAME", "NS":
		out.Value = hostName(r.Content)
	case "MX":
		out.Value = hostName(r.Content)
		if r.Priority != nil {
			out.Priority = *r.Priority
		}
	case "SRV":
		r.readSRV(&out)
	case "CAA":
		var d caaData
		if json.Unmarshal(r.Data, &d) == nil && d.Tag != "" {
			out.Value = fmt.Sprintf("%d %s %q", d.Flags, d.Tag, d.Value)
		}
	}
	return out
}

// readSRV sets the fields of an SRV record from Data, or else from Content, which is "weight port
// target".
func (r record) readSRV(out *dnsprov.Record) {
	var d srvData
	if json.Unmarshal(r.Data, &d) != nil || d.Target == "" {
		if r.Priority != nil {
			d.Priority = *r.Priority
		}
		if n, err := fmt.Sscanf(r.Content, "%d %d %s", &d.Weight, &d.Port, &d.Target); n != 3 || err != nil {
			return
		}
	}
	out.Priority, out.Weight, out.Port, out.Value = d.Priority, d.Weight, d.Port, hostName(d.Target)
}

// toAPI converts a wanted record to the form of the API. A record without a Purpose is not marked.
// The record is never proxied, because Cloudflare would publish its own addresses, which accept no
// mail.
func toAPI(w dnsprov.Record, tag string) (record, error) {
	out := record{Type: w.Type, Name: w.Name, TTL: w.TTL}
	if w.Purpose != "" {
		out.Comment = ownerComment(tag, w.Purpose)
	}
	if len(out.Comment) > maxComment {
		return record{}, fmt.Errorf("the comment %q has more than %d characters", out.Comment, maxComment)
	}
	switch w.Type {
	case "A", "AAAA", "CNAME":
		proxied := false
		out.Content, out.Proxied = w.Value, &proxied
	case "MX":
		out.Content, out.Priority = w.Value, &w.Priority
	case "TXT":
		out.Content = quoted(dnsprov.UnquoteText(w.Value))
	case "NS":
		out.Content = w.Value
	case "SRV":
		return out.withData(srvData{w.Priority, w.Weight, w.Port, w.Value})
	case "CAA":
		d, err := parseCAA(w.Value)
		if err != nil {
			return record{}, err
		}
		return out.withData(d)
	default:
		return record{}, fmt.Errorf("records of type %.20q are not supported", w.Type)
	}
	return out, nil
}

// withData returns the record with the JSON of data as its Data.
func (r record) withData(data any) (record, error) {
	var err error
	r.Data, err = json.Marshal(data)
	return r, err
}

// parseCAA parses a CAA value such as 0 issue "ca.example" (RFC 8659 section 4.1.1).
func parseCAA(value string) (caaData, error) {
	parts := strings.SplitN(value, " ", 3)
	if len(parts) != 3 {
		return caaData{}, errors.New("a CAA value must have flags, a tag and a value")
	}
	flags, err := strconv.ParseUint(parts[0], 10, 8)
	if err != nil {
		return caaData{}, fmt.Errorf("parse flags of CAA record: %w", err)
	}
	return caaData{Flags: uint8(flags), Tag: parts[1], Value: dnsprov.UnquoteText(parts[2])}, nil
}

// quoted converts a text to quoted character strings (RFC 1035 section 5.1), as the API needs it.
func quoted(text string) string {
	var b strings.Builder
	for first := true; first || text != ""; first = false {
		part := text[:min(len(text), maxString)]
		text = text[len(part):]
		if !first {
			b.WriteByte(' ')
		}
		b.WriteString(`"` + dnsprov.EscapeText(part) + `"`)
	}
	return b.String()
}

// hostName converts a host name to the form of dnsprov.Record.Name. It returns ".", which means no
// host in an MX or SRV, unchanged.
func hostName(s string) string {
	if s == "." {
		return s
	}
	return strings.ToLower(strings.TrimSuffix(s, "."))
}
