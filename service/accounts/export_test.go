package accounts

import (
	"context"

	"github.com/mailstead/mailstead/service/core"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

// What tests outside of the package look at.

const (
	ForgotAddress = forgotAddress
	ForgotFor     = forgotFor
	ForgotNetwork = forgotNetwork
	ForgotWindow  = forgotWindow
	ResetFor      = resetFor
	SessionIdle   = sessionIdle
	SessionsMost  = sessionsMost
)

var (
	NewToken       = core.NewToken
	SessionByValue = sessionByValue
	UserKey        = userKey
)

func (s *Service) FlushTokenUses() error { return s.flushTokenUses() }

func (s *Service) PutToken(ctx context.Context, t *store.Token) (*TokenCreated, error) {
	return s.putToken(ctx, t, func(*store.Tx) error { return nil })
}

func (s *Service) SendForgot(p0 context.Context, j *store.Job) (jobs.Writes, error) {
	return s.sendForgot(p0, j)
}

// SetFailedRows sets how many rows of failed log-ins a day may have.
func (s *Service) SetFailedRows(most int) { s.failedLogins.most = most }

func (s *Service) TokenUses() *core.Uses { return &s.tokenUses }

var RoomForToken = roomForToken
