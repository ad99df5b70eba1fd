package signin

import (
	"context"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// What tests outside of the package look at.

const (
	ForgotAddress = forgotAddress
	ForgotFor     = forgotFor
	ForgotNetwork = forgotNetwork
	ForgotWindow  = forgotWindow
	SessionsMost  = sessionsMost
)

var SessionByValue = sessionByValue

func (s *Service) SendForgot(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	return s.sendForgot(ctx, j)
}
