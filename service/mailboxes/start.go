package mailboxes

import (
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/service/transfer"
)

// New returns a Service, which uses the given rooms.
func New(c *core.Core, e *events.Service, servers Servers, t *transfer.Service, m Mail, r *reputation.Service, certs Certificates) *Service {
	return &Service{Core: c, events: e, servers: servers, transfer: t, mail: m, reputation: r, certs: certs}
}

// Kinds lists the kinds of jobs of this package.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{s.eraseKind("email_user_delete"), s.eraseKind("email_users_bulk_delete"), s.expireKind(), s.exportMailKind(), s.importMailKind()}
}
