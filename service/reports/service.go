// Package reports has the reports on DMARC and TLS: those that come in about domains here, and
// those that are sent about the domains of others. It does not know how mail is received or
// delivered.
//
// Where things stand:
//   - reports.go: lists of reports. report_mail.go: reading them from mail that came in.
//   - dmarc_counts.go: what is counted for DMARC reports; dmarc_reporting.go: sending them.
//   - tlsrpt.go: sending TLS reports.
package reports

import (
	"net/http"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
)

// A Service holds what reports need.
type Service struct {
	*core.Core
	inbox    *inbox.Service
	outbound *outbound.Service

	reports *http.Client // posts reports on TLS to hosts that strangers name
}

// New puts the room together.
func New(c *core.Core, i *inbox.Service, o *outbound.Service) *Service {
	s := &Service{Core: c, inbox: i, outbound: o}
	s.reports = s.newReportHTTP()
	return s
}

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{s.tlsReportKind(), s.WhileActive(s.readKind()), s.reportKind(), s.reportSweepKind()}
}
