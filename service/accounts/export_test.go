package accounts

import "github.com/mailstead/mailstead/service/core"

// What tests outside of the package look at.

func (s *Service) FlushTokenUses() error { return s.flushTokenUses() }

// SetFailedRows sets how many rows of failed log-ins a day may have.
func (s *Service) SetFailedRows(most int) { s.failedLogins.most = most }

func (s *Service) TokenUses() *core.Uses { return &s.tokenUses }
