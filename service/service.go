// Package service joins the packages that have the rules of Mailstead. They are called rooms, and
// each rule is in one of them. The HTTP, SMTP, IMAP and DNS servers call only this package. It does
// not know which of them calls it, nor how records are stored on disk.
//
// The rooms are listed here. `go doc ./service/ROOM` says where things are in a room, and `go doc
// -u` shows its unexported parts:
//   - core: what every room needs: the store, errors, secrets, password hashes, the actor.
//   - agents: what programs that read mail may do: policies, taint.
//   - accounts: accounts, teams, tokens and their users, the audit log.
//   - signin: how people sign in: sessions, second factors, links, OAuth.
//   - zonedata: what the zone of a domain has: the records that mail needs, and those of its owner.
//   - edge: the records of domains at the DNS providers of others.
//   - zones: the DNS zones that are served here: records, DNSSEC, secondaries, imports.
//   - scans: the zones that domains have at nameservers of others.
//   - domains: domains from adding to deleting: claims, setup, health, buying.
//   - certs: TLS certificates.
//   - mailboxes: creating mailboxes, and the logins of mail clients.
//   - inbox: messages, folders, threads, searches, quotas.
//   - attachments: the files in messages.
//   - external: mailboxes on other servers.
//   - transfer: import and export of messages, restoring.
//   - rules: what mailboxes do with mail automatically.
//   - spam: the spam classifier of each account.
//   - recipients: who receives mail to an address here.
//   - inbound: receiving: screening, acceptance, delivery into mailboxes.
//   - submit: who sends what: messages, drafts, batches, approvals.
//   - outbound: the queue: routes, attempts, pacing, signing, delivery reports, the sending log.
//   - feedback: bounces and complaints of others, suppressions.
//   - reputation: how much each mailbox, domain and account sends, and the limits of that.
//   - templates: message templates with variables.
//   - reports: DMARC and TLS reports.
//   - events: the log of events, and webhooks.
//   - health: whether the installation works.
//   - settings: settings that change while the server runs.
//   - backups: the list of backups, backups and drills at the operator's request.
//   - requests: the log of requests to the API.
//
// This package itself has service.go, which makes the rooms; event_types.go, the list of events;
// feeds.go, live changes for the dashboard; jobs.go, the jobs that people see; retention.go, the
// deletion of old records; clock.go, the clock of a sandbox.
package service

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/attachments"
	"github.com/mailstead/mailstead/service/backups"
	"github.com/mailstead/mailstead/service/certs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/edge"
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
	"github.com/mailstead/mailstead/service/requests"
	"github.com/mailstead/mailstead/service/rules"
	"github.com/mailstead/mailstead/service/scans"
	"github.com/mailstead/mailstead/service/settings"
	"github.com/mailstead/mailstead/service/signin"
	"github.com/mailstead/mailstead/service/spam"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/service/templates"
	"github.com/mailstead/mailstead/service/transfer"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// A Service holds the rooms. A caller names the room of an operation: s.Domains.SetRedirect.
type Service struct {
	Core        *core.Core
	Accounts    *accounts.Service
	Agents      *agents.Service
	Attachments *attachments.Service
	Backups     *backups.Service
	Certs       *certs.Service
	Domains     *domains.Service
	Edge        *edge.Service
	Events      *events.Service
	External    *external.Service
	Feedback    *feedback.Service
	Health      *health.Service
	Inbound     *inbound.Service
	Inbox       *inbox.Service
	Mailboxes   *mailboxes.Service
	Outbound    *outbound.Service
	Recipients  *recipients.Service
	Reports     *reports.Service
	Reputation  *reputation.Service
	Requests    *requests.Service
	Rules       *rules.Service
	Scans       *scans.Service
	Settings    *settings.Service
	Signin      *signin.Service
	Submit      *submit.Service
	Templates   *templates.Service
	Transfer    *transfer.Service
	Zones       *zones.Service

	spam  *spam.Service
	feeds *feeds
}

// New makes all rooms, and registers every job kind with the queue.
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

	// Mail: sending, feedback about sent mail, submission, receiving.
	out := outbound.New(c, ev, ag, in, servers, to, rep)
	fb := feedback.New(c, to, out)
	sub := submit.New(c, submit.Rooms{Events: ev, Inbox: in, Policies: ag, Limits: rep, Recipients: to, Outbound: out})
	reps := reports.New(c, in, out)
	inb := inbound.New(c, inbound.Rooms{Inbox: in, Classifier: sp, Correspondents: rep, Recipients: to, Feedback: fb, Outbound: out, Sender: sub, Reports: reps})

	ed := edge.New(c)
	zon := zones.New(c, ed)
	cert := certs.New(c, zon)
	mb := mailboxes.New(c, ev, servers, tr, sub, rep, cert)
	sc := scans.New(c, zon, ev)
	dom := domains.New(c, zon, ed, sc, ev, mb, sub, rep, reps, cert)
	ext := external.New(servers, in, dom)
	req := requests.New(c)
	acc := accounts.New(c, in, servers, mb, out, dom, req)
	s := &Service{
		Core: c, Accounts: acc, Agents: ag, Attachments: attachments.New(in), Backups: backups.New(c), Certs: cert, Domains: dom, Edge: ed, Events: ev, External: ext, Feedback: fb, Health: health.New(c, ev), Inbound: inb, Inbox: in,
		Mailboxes: mb, Outbound: out, Recipients: to, Reports: reps, Reputation: rep, Requests: req, Rules: rules.New(c, in), Scans: sc, Settings: settings.New(c, ev), Signin: signin.New(c, acc, mb, out), Submit: sub, Templates: templates.New(c), Transfer: tr, Zones: zon,
		spam: sp, feeds: newFeeds(st),
	}
	for _, k := range s.Kinds() {
		q.Handle(k)
	}
	for name, every := range jobIntervals {
		q.Every(name, every)
	}
	if config.ACME != nil {
		q.Every("certificate_sweep", time.Hour)
	}
	return s
}

// Kinds lists all job kinds.
func (s *Service) Kinds() []jobs.Kind {
	out := append([]jobs.Kind{s.retentionKind(), s.threadPruneKind(), s.compactKind()}, s.Outbound.Kinds(s.Inbound)...)
	for _, room := range []interface{ Kinds() []jobs.Kind }{
		s.Accounts, s.Backups, s.Certs, s.Domains, s.Edge, s.Events, s.External, s.Feedback, s.Inbound, s.Inbox, s.Mailboxes, s.Reports, s.Scans, s.Signin, s.Submit, s.Zones, s.spam,
	} {
		out = append(out, room.Kinds()...)
	}
	return out
}

// jobIntervals are the intervals of the job kinds that run regularly.
var jobIntervals = map[string]time.Duration{
	"retention":          time.Hour,
	accounts.KindUsage:   time.Hour,
	"thread_prune":       24 * time.Hour,
	"compact":            time.Hour,
	"zones_resign":       time.Hour,
	"tls_policies":       time.Hour,
	"tls_reports":        time.Hour,
	"dmarc_report_sweep": time.Hour, // also runs when reports are off, for messages that were counted before
}

// Run starts the rooms and runs their regular work until ctx ends. The queue is run separately.
func (s *Service) Run(ctx context.Context) error {
	s.Zones.MakeZones() // so that the first query need not wait for it
	for _, room := range []interface{ Start() error }{s.Outbound, s.Feedback, s.Inbound, s.Domains, s.Certs} {
		if err := room.Start(); err != nil {
			s.Core.Log.Error("could not start a room", "error", err)
		}
	}
	var rooms sync.WaitGroup
	defer rooms.Wait()
	rooms.Go(func() { s.Inbox.Run(ctx) })
	rooms.Go(func() { s.External.Run(ctx) })
	rooms.Go(func() { s.Zones.Run(ctx) })
	rooms.Go(func() { s.Health.Run(ctx) })
	rooms.Go(func() { s.Backups.Run(ctx) })
	rooms.Go(func() { s.Requests.Run(ctx) })
	return s.Accounts.Run(ctx)
}

// Close closes cached connections. The queue must have stopped.
func (s *Service) Close() {
	s.Events.Close()
	s.Inbox.Close()
	s.Inbound.Close()
	s.Outbound.Close()
}
