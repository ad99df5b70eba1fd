// Package service joins the packages that hold the rules of Mailstead. They are called rooms, and
// each rule stands in one of them. The servers of HTTP, SMTP, IMAP and DNS call this package alone.
// It does not know by which of them it is called, nor how records are laid out on disk.
//
// The rooms; `go doc ./service/ROOM` says where things stand in it, and `go doc -u` has what a room
// keeps to itself:
//   - core: what every room needs: the store, errors, secrets, password hashes, who asks.
//   - agents: what programs that read mail may do: policies, taint.
//   - accounts: accounts, teams and how their people sign in.
//   - domains: domains from adding to deleting, DNS, claims, health.
//   - certs: TLS certificates.
//   - mailboxes: making mailboxes, and the log-ins of mail clients.
//   - inbox: messages, folders, threads, searches, quotas, mailboxes on other servers.
//   - rules: what mailboxes do with mail by themselves.
//   - spam: the classifier of spam of each account.
//   - mta: mail on its way: receiving, spam, sending, retries, bounces, suppressions.
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
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/reports"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/service/rules"
	"github.com/mailstead/mailstead/service/spam"
	"github.com/mailstead/mailstead/service/templates"
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
	Health     *health.Service
	Inbox      *inbox.Service
	Mailboxes  *mailboxes.Service
	MTA        *mta.Service
	Reports    *reports.Service
	Reputation *reputation.Service
	Rules      *rules.Service
	Templates  *templates.Service

	spam  *spam.Service
	feeds *feeds
}

// New puts a service together, and registers every kind of job with the queue.
func New(st *store.Store, q *jobs.Queue, keys *core.Keys, config core.Config) *Service {
	c := core.New(st, q, keys, config)
	e := events.New(c)
	sp := spam.New(c)
	g := agents.New(c)
	i := inbox.New(c, e, g, sp)
	m := mailboxes.New(c, e, i)
	d := domains.New(c, e, m)
	h := certs.New(c, d)
	p := reputation.New(c)
	t := mta.New(c, e, g, i, p, sp)
	r := reports.New(c, i, t)
	a := accounts.New(c, i, m, t)
	e.Hooks = events.Hooks{SwitchInbox: i.SwitchInbox, EventTypes: EventTypes()}
	i.Hooks = inbox.Hooks{ProveByLogin: d.ProveByLogin}
	m.Hooks = mailboxes.Hooks{HostCertificate: h.HostCertificate, Hold: t.Hold, CancelMail: t.CancelMailOfMailbox, ResumeSending: p.Resume}
	p.Hooks = reputation.Hooks{
		Emit: func(tx *store.Tx, accountID, kind string, data any) error {
			_, err := e.Emit(tx, accountID, kind, data)
			return err
		},
		Alert: func(tx *store.Tx, accountID, to, subject, text string) error {
			return t.PlanAlert(tx, mta.Letter{About: accountID, To: to, Subject: subject, Text: text})
		},
		Wake: t.WakePaused,
	}
	d.Hooks = domains.Hooks{
		CancelMail: t.CancelMailOf, ResumeSending: p.ResumeDomain, EraseReports: r.EraseReports, PlanCertificate: h.PlanCertificate, DropCertificate: h.DropCertificate, MailKeys: h.MailKeys,
	}
	m.Hooks.PersonOf = a.PersonOf
	a.Hooks = accounts.Hooks{DeleteDomains: d.DeleteDomains, LetEnd: func(j *store.Job) bool { return d.LetEnd(j) || t.LetEnd(j) }}
	g.Hooks = agents.Hooks{SendsOnTo: t.SendsOnTo}
	t.Hooks = mta.Hooks{KeepForReading: r.KeepForReading, DMARCCount: r.DMARCCount, CountDMARC: r.CountDMARC}
	l := health.New(c)
	l.Hooks.Tell = func(tx *store.Tx, owner *store.Account, alert health.Alert) error {
		event, err := e.Emit(tx, owner.ID, events.EventHostAlert, alert)
		if err != nil {
			return err
		}
		if err := e.PlanOperatorPost(tx, event); err != nil {
			return err
		}
		subject, text := alert.Letter(c.Hostname())
		return t.PlanAlert(tx, mta.Letter{About: owner.ID, To: owner.Email, Subject: subject, Text: text})
	}
	s := &Service{
		Core: c, Accounts: a, Agents: g, Certs: h, Domains: d, Events: e, Health: l, Inbox: i, Mailboxes: m, MTA: t, Reports: r,
		Templates:  templates.New(c),
		Reputation: p, Rules: rules.New(c, i), spam: sp, feeds: newFeeds(st),
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
	out := []jobs.Kind{s.retentionKind(), s.threadPruneKind(), s.compactKind()}
	for _, room := range []interface{ Kinds() []jobs.Kind }{
		s.Accounts, s.Certs, s.Domains, s.Events, s.Inbox, s.Mailboxes, s.MTA, s.Reports, s.spam,
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
	s.Domains.MakeZones() // so that the first query need not wait for it
	if err := s.MTA.Start(); err != nil {
		s.Core.Log.Error("count who is known", "error", err)
	}
	s.Certs.Start()
	var rooms sync.WaitGroup
	defer rooms.Wait()
	rooms.Go(func() { s.Inbox.Run(ctx) })
	rooms.Go(func() { s.Domains.Run(ctx) })
	rooms.Go(func() { s.Health.Run(ctx) })
	return s.Accounts.Run(ctx)
}

// Close ends the connections that are kept for later. The queue must have stopped.
func (s *Service) Close() {
	s.Events.Close()
	s.Inbox.Close()
	s.MTA.Close()
}
