// Package reports handles reports on DMARC and TLS: it reads those that arrive about domains hosted
// here, and sends those about other domains. It does not know how mail is received or delivered.
//
// The files:
//   - reports.go: lists of reports. report_mail.go: reading reports from mail that arrives.
//   - dmarc_counts.go: counting messages for DMARC reports; dmarc_reporting.go: sending them.
//   - tlsrpt.go: sending TLS reports.
package reports

import (
	"net/http"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
)

// A Service reads and sends reports.
type Service struct {
	*core.Core
	inbox    *inbox.Service
	outbound *outbound.Service

	reportClient *http.Client // posts TLS reports to hosts that strangers name
}

// New returns a Service over the given rooms.
func New(c *core.Core, i *inbox.Service, o *outbound.Service) *Service {
	s := &Service{Core: c, inbox: i, outbound: o}
	s.reportClient = s.newReportClient()
	return s
}

// Kinds lists the kinds of jobs that this package runs.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{s.tlsReportKind(), s.WhileActive(s.readReportsKind()), s.reportKind(), s.reportSweepKind()}
}
