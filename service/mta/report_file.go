package mta

import (
	"path"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/reportfile"
	"github.com/mailstead/mailstead/store"
)

// mayHoldReport tells whether a message looks like one that brings a report: by the type or name of
// what is attached.
func mayHoldReport(sum *msg.Summary) bool {
	for _, a := range sum.Attachments {
		if ReportFile(&a) != "" {
			return true
		}
	}
	return false
}

// reportFile says what kind of a report an attachment may be; "" for none.
func ReportFile(a *msg.Attachment) string {
	if a.Size > 2*reportfile.MaxPacked {
		return ""
	}
	if a.ContentType == "application/tlsrpt+gzip" || a.ContentType == "application/tlsrpt+json" {
		return store.ReportTLS
	}
	name, packed := strings.CutSuffix(strings.ToLower(a.Filename), ".gz")
	// receiver "!" domain "!" begin "!" end (RFC 7489 section 7.2.1.1, RFC 8460 section 5.1)
	if strings.Count(name, "!") < 3 {
		return ""
	}
	switch ext := path.Ext(name); {
	case ext == ".json":
		return store.ReportTLS
	case ext == ".xml", ext == ".zip", packed:
		return store.ReportDMARC
	}
	return ""
}
