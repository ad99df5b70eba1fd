package api

import (
	"regexp"
	"slices"
	"strings"
)

// ofTheMoment are the members of answers whose value differs from run to run, or is prose, which
// may be put better.
var ofTheMoment = []string{
	"cursor", "password", "secret_hint", "token_prefix", "message", "status_detail", "dkim_selector", "diagnostic", "last_response", "smtp_port", "imap_port",
	"duration_ms", "size", "used_bytes", "uid_validity", "reset", "remaining", "requests", "retry_after", "thread_id", "title", "detail", "instance", "version", "dnskey", "digest", "key_tag",
}

// kinds are texts whose kind is lasting while the value is not.
var kinds = []struct {
	form *regexp.Regexp
	kind string
}{
	{regexp.MustCompile(`\b([a-z]{2,4})_[0-9a-hjkmnp-tv-z]{26}(-\d+)*\b`), "<$1 id>"},
	{regexp.MustCompile(`\bem_[0-9a-f]{32}\b`), "<email id>"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`), "<time>"},
	{regexp.MustCompile(`\b[A-Z][a-z]{2}, \d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}`), "<date>"},
	{regexp.MustCompile(`\btoken=[0-9A-Za-z_-]+`), "token=<secret>"},
	{regexp.MustCompile(`/export/[0-9A-Za-z_-]+`), "/export/<secret>"},
	{regexp.MustCompile(`\b\d{8}-\d{6}\b`), "<moment>"},
	{regexp.MustCompile(`\bmst_[0-9A-Za-z]{46}\b`), "<token>"},
	{regexp.MustCompile(`\bwhsec_[0-9A-Za-z+/=]{44}`), "<secret>"},
	{regexp.MustCompile(`^<[^<>@ ]+@[^<>@ ]+>$`), "<message id>"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "<address>"},
	{regexp.MustCompile(`[0-9a-z-]+\._domainkey`), "<selector>._domainkey"},
	{regexp.MustCompile(`p=[0-9A-Za-z+/=]{40,}`), "p=<key>"},
	{regexp.MustCompile(`^\d{1,5} 13 2 [0-9a-f]{64}$`), "<ds>"},
}

// settle replaces what differs from run to run by its kind.
func settle(member string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, value := range v {
			out[name] = settle(name, value)
		}
		return out
	case []any:
		out := []any{}
		for _, item := range v {
			out = append(out, settle(member, item))
		}
		return out
	case string:
		return settleText(member, v)
	case float64:
		if slices.Contains(ofTheMoment, member) {
			return "<number>"
		}
	}
	return v
}

func settleText(member, text string) string {
	if slices.Contains(ofTheMoment, member) || member == "error" && strings.Contains(text, " ") {
		return "<text>"
	}
	for _, k := range kinds {
		text = k.form.ReplaceAllString(text, k.kind)
	}
	if member == "date" {
		return "<day>"
	}
	return text
}
