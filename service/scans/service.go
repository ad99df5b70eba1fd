// Package scans reads the zones that domains have at nameservers of others, before they come here.
// It does not know how a domain is connected or set up.
//
// Where things are:
//   - scan.go: the request for a scan, and the job. What is stored of it is in package zones, which
//     imports it.
//   - findings.go: what would break if a domain were delegated here now, and what to do next.
//   - parent.go: what the parent zone has for a domain: nameservers, and DS records of other keys.
package scans

import (
	"net/http"
	"sync"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/mtasts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/zones"
)

// A Service has the operations on scans of zones.
type Service struct {
	*core.Core
	zones    *zones.Service
	events   *events.Service
	policies *http.Client // for MTA-STS policies

	mu       sync.Mutex
	findings map[string]keptFindings // by the domain's ID
}

// New returns a Service.
func New(c *core.Core, z *zones.Service, e *events.Service) *Service {
	t := c.Guard.Transport(c.Resolver, c.Config.RootCAs)
	t.DisableKeepAlives = true
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout = 10*time.Second, 20*time.Second
	t.MaxResponseHeaderBytes = 16 << 10
	return &Service{Core: c, zones: z, events: e, policies: mtasts.NewHTTP(t), findings: map[string]keptFindings{}}
}

// Kinds returns the kinds of jobs that this room works on.
func (s *Service) Kinds() []jobs.Kind { return []jobs.Kind{s.scanKind()} }
