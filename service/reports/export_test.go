package reports

import (
	"context"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/dmarcreport"
	"github.com/mailstead/mailstead/store"
)

// What tests outside of the package look at.

const (
	MaxCountsOfDay    = maxCountsOfDay
	MaxCountsOfDomain = maxCountsOfDomain
	ReportsOfDomain   = reportsOfDomain
)

type (
	FoundReport = foundReport
	ReportArgs  = reportArgs
)

var (
	FileReport = fileReport
)

func (s *Service) MakeReport(args reportArgs) (*dmarcreport.Report, []string, error) {
	return s.makeReport(args)
}

func (s *Service) PlanReports(ctx context.Context, p1 *store.Job) (jobs.Writes, error) {
	return s.planReports(ctx, p1)
}
