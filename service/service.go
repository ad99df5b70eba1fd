// Package service joins the packages that hold the rules of Mailstead. They are called rooms, and
// each rule stands in one of them. The servers of HTTP, SMTP, IMAP and DNS call this package alone.
// It does not know by which of them it is called, nor how records are laid out on disk.
//
// The rooms; `go doc ./service/ROOM` says where things stand in it, and `go doc -u` has what a room
// keeps to itself:
//   - core: what every room needs: the store, errors, secrets, password hashes, who asks.
//   - agents: what programs that read mail may do: policies, taint.
//   - accounts: accounts, teams, tokens and whom they stand for, the audit log.
//   - signin: how people sign in: sessions, second factors, links, OAuth.
//   - zones: the DNS zones of domains: records, DNSSEC, secondaries, Cloudflare.
//   - domains: domains from adding to deleting: claims, setting up, health, buying.
//   - certs: TLS certificates.
//   - mailboxes: making mailboxes, and the log-ins of mail clients.
//   - inbox: messages, folders, threads, searches, quotas.
//   - external: mailboxes on other servers.
//   - transfer: import and export of messages, restoring.
//   - rules: what mailboxes do with mail by themselves.
//   - spam: the classifier of spam of each account.
//   - recipients: who receives mail to an address here.
//   - inbound: receiving: screening, acceptance, delivery into mailboxes.
//   - submit: who sends what: messages, drafts, batches, approvals.
//   - outbound: the queue: routes, attempts, pacing, signing, delivery reports, the sending log.
//   - feedback: bounces and complaints of others, suppressions.
//   - reputation: how much is sent by whom, and the limits of that.
//   - templates: texts with variables that messages are made of.
//   - reports: DMARC and TLS reports.
//   - events: the log of events, and webhooks.
//   - health: whether the installation is well.
//
// Here are service.go, which makes the rooms; event_types.go, the list of events; feeds.go, live
// changes for the dashboard; jobs.go, the jobs that people see; retention.go, what is deleted after
// its time.
package service

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/certs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/external"
	"github.com/mailstead/mailstead/service/feedback"
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/service/reports"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/service/rules"
	"github.com/mailstead/mailstead/service/signin"
	"github.com/mailstead/mailstead/service/spam"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/service/templates"
	"github.com/mailstead/mailstead/service/transfer"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// A Service holds the rooms. Whoever calls an operation names its room: s.Domains.SetRedirect.
type Service struct {
	Core       *core.Core
	Accounts   *accounts.Service
	Agents     *agents.Service
	Certs      *certs.Service
	Domains    *domains.Service
	Events     *events.Service
	External   *external.Service
	Feedback   *feedback.Service
	Health     *health.Service
	Inbound    *inbound.Service
	Inbox      *inbox.Service
	Mailboxes  *mailboxes.Service
	Outbound   *outbound.Service
	Recipients *recipients.Service
	Reports    *reports.Service
	Reputation *reputation.Service
	Rules      *rules.Service
	Signin     *signin.Service
	Submit     *submit.Service
	Templates  *templates.Service
	Transfer   *transfer.Service
	Zones      *zones.Service

	spam  *spam.Service
	feeds *feeds
}

// New puts a service together, and registers every kind of job with the queue.
func New(st *store.Store, q *jobs.Queue, keys *core.Keys, config core.Config) *Service {
	c := core.New(st, q, keys, config)
	servers := external.NewServers(c) // of external mailboxes
	ev := events.New(c, servers, EventTypes())
	sp := spam.New(c)
	to := recipients.New(c)
	ag := agents.New(c, to)
	in := inbox.New(c, ev, ag, sp, servers)
	tr := transfer.New(c, in, servers)
	rep := reputation.New(c, ev)

	// Mail: what is sent, what others say about it, what is submitted, what is received.
	out := outbound.New(c, ev, ag, in, servers, to, rep)
	fb := feedback.New(c, to, out)
	sub := submit.New(c, submit.Rooms{Events: ev, Inbox: in, Policies: ag, Limits: rep, Recipients: to, Outbound: out})
	reps := reports.New(c, in, out)
	inb := inbound.New(c, inbound.Rooms{Inbox: in, Classifier: sp, Correspondents: rep, Recipients: to, Feedback: fb, Outbound: out, Sender: sub, Reports: reps})

	zon := zones.New(c)
	cert := certs.New(c, zon)
	mb := mailboxes.New(c, ev, servers, tr, sub, rep, cert)
	dom := domains.New(c, zon, ev, mb, sub, rep, reps, cert)
	ext := external.New(servers, in, dom)
	acc := accounts.New(c, in, servers, mb, out, dom)
	s := &Service{
		Core: c, Accounts: acc, Agents: ag, Certs: cert, Domains: dom, Events: ev, External: ext, Feedback: fb, Health: health.New(c, ev), Inbound: inb, Inbox: in,
		Mailboxes: mb, Outbound: out, Recipients: to, Reports: reps, Reputation: rep, Rules: rules.New(c, in), Signin: signin.New(c, acc, mb, out), Submit: sub, Templates: templates.New(c), Transfer: tr, Zones: zon,
		spam: sp, feeds: newFeeds(st),
	}
	for _, k := range s.Kinds() {
		q.Handle(k)
	}
	for name, every := range periods {
		q.Every(name, every)
	}
	if config.ACME != nil {
		q.Every("certificate_sweep", time.Hour)
	}
	return s
}

// Kinds lists every kind of job that there is.
func (s *Service) Kinds() []jobs.Kind {
	out := append([]jobs.Kind{s.retentionKind(), s.threadPruneKind(), s.compactKind()}, s.Outbound.Kinds(s.Inbound)...)
	for _, room := range []interface{ Kinds() []jobs.Kind }{
		s.Accounts, s.Certs, s.Domains, s.Events, s.External, s.Feedback, s.Inbound, s.Inbox, s.Mailboxes, s.Reports, s.Signin, s.Submit, s.Zones, s.spam,
	} {
		out = append(out, room.Kinds()...)
	}
	return out
}

// periods are the kinds of jobs that come again by the clock.
var periods = map[string]time.Duration{
	"retention":          time.Hour,
	"thread_prune":       24 * time.Hour,
	"compact":            time.Hour,
	"zones_resign":       time.Hour,
	"tls_policies":       time.Hour,
	"tls_reports":        time.Hour,
	"dmarc_report_sweep": time.Hour, // where reports are off, for those that are counted already
}

// Run does what the service does by the clock, until ctx ends. The queue has a Run of its own.
func (s *Service) Run(ctx context.Context) error {
	s.Zones.MakeZones() // so that the first query need not wait for it
	for _, room := range []interface{ Start() error }{s.Outbound, s.Feedback, s.Inbound, s.Domains, s.Certs} {
		if err := room.Start(); err != nil {
			s.Core.Log.Error("start a room", "error", err)
		}
	}
	var rooms sync.WaitGroup
	defer rooms.Wait()
	rooms.Go(func() { s.Inbox.Run(ctx) })
	rooms.Go(func() { s.External.Run(ctx) })
	rooms.Go(func() { s.Zones.Run(ctx) })
	rooms.Go(func() { s.Health.Run(ctx) })
	return s.Accounts.Run(ctx)
}

// Close ends the connections that are kept for later. The queue must have stopped.
func (s *Service) Close() {
	s.Events.Close()
	s.Inbox.Close()
	s.Inbound.Close()
	s.Outbound.Close()
}
