package scans

import (
	"net/http"

	"github.com/mailstead/mailstead/mail/mtasts"
)

// What tests outside of the package use.

const ScanAgain = scanAgain

// SetPolicies sets the transport by which MTA-STS policies are fetched.
func (s *Service) SetPolicies(t http.RoundTripper) { s.policies = mtasts.NewHTTP(t) }
