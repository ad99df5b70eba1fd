package signin

import (
	"context"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// Internals that tests outside the package use.

const (
	ForgotAddress = maxLinksPerAddress
	ForgotFor     = forgotLinkLife
	ForgotNetwork = maxLinksPerNetwork
	ForgotWindow  = forgotWindow
	SessionsMost  = maxSessions
)

var SessionByCookie = sessionByCookie

func (s *Service) SendForgot(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	return s.sendPasswordLink(ctx, j)
}
