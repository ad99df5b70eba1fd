package domains

import "github.com/mailstead/mailstead/service/core"

// DNSHealth has the results of the last checks of a complete domain.
type DNSHealth struct {
	Status       string     `json:"status" enum:"healthy|degraded|failing|unknown"`
	Issues       []DNSIssue `json:"issues"`
	CheckedAt    core.Time  `json:"checked_at"`
	FailingSince core.Time  `json:"failing_since"`
}

// A DNSIssue is one problem of a domain's DNS.
type DNSIssue struct {
	Code    string `json:"code" words:"ours" example:"missing"`
	Purpose string `json:"purpose" words:"ours"`
	Host    string `json:"host" words:"ours" example:"@"`
	// For people; the text may change.
	Message string `json:"message" words:"theirs" example:"The MX record of example.com is missing. Enter it at your DNS provider."`
}
