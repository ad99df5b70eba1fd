package reports

import (
	"context"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/dmarcreport"
	"github.com/mailstead/mailstead/store"
)

// Internals that tests outside the package use.

const (
	MaxCountsOfDay    = maxCountsOfDay
	MaxCountsOfDomain = maxCountsOfDomain
	ReportsOfDomain   = maxDomainReports
)

type (
	FoundReport = foundReport
	ReportArgs  = reportArgs
)

var (
	FileReport = storeReport
)

func (s *Service) MakeReport(args reportArgs) (*dmarcreport.Report, []string, error) {
	return s.makeReport(args)
}

func (s *Service) PlanReports(ctx context.Context, p1 *store.Job) (jobs.Writes, error) {
	return s.planReports(ctx, p1)
}
