package accounts

import (
	"context"

	"github.com/mailstead/mailstead/service/core"
)

// Internals that tests outside the package use.

func (s *Service) FlushTokenUses() error { return s.flushTokenUses() }

// NoteUsage is the job that notes what each account has.
func (s *Service) NoteUsage(ctx context.Context) error {
	_, err := s.noteUsage(ctx, nil)
	return err
}

// SetFailedRows sets how many rows of failed log-ins a day may have.
func (s *Service) SetFailedRows(most int) { s.failedLogins.most = most }

func (s *Service) TokenUses() *core.Uses { return &s.tokenUses }
