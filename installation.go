package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rdap"
	"github.com/mailstead/mailstead/handlers/listen"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/internal/clock"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/dane"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/settings"
	"github.com/mailstead/mailstead/store"
)

// An installation is an open data directory with the service that uses it.
type installation struct {
	store *store.Store
	queue *jobs.Queue
	svc   *service.Service
	rdap  *rdap.Client // nil if registries are not queried
	file  *settingsFile

	operator *operator.Operator // the commands of the operator
}

// openInstallation opens the data directory dir. l has the open sockets, and is nil if the process
// does not listen. If mayCreate is set, it creates a missing store. now is the clock, with the
// offset of the settings.
func openInstallation(dir string, s *config.Settings, l *listen.Listeners, mayCreate bool, now *clock.Clock, log *slog.Logger) (*installation, error) {
	if err := operator.RequireStore(dir, s, mayCreate); err != nil {
		return nil, err
	}
	c, own, err := serviceConfig(s, l, log)
	if err != nil {
		return nil, err
	}
	opts := storeOptions(log)
	opts.Clock, opts.CheckPages, opts.MayMigrate = now, l != nil && mustCheckPages(dir), operator.MigrationGuard(dir, s, version)
	c.Metrics = core.NewMetrics()
	opts.Committed = c.Metrics.CommitTime.Observe
	if l != nil {
		c.Tracer = newTracer(s, c)
	}
	st, err := store.Open(dir, opts)
	if err != nil {
		return nil, err
	}
	if s.Sandbox() {
		if err := service.ResumeClock(st); err != nil {
			return nil, errors.Join(err, st.Close())
		}
	}
	keys, err := core.OpenKeys(st)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	file := &settingsFile{Settings: s, shops: &shops{client: registrarClient(c), store: st, log: c.Log}}
	stored, err := settings.Read(st, keys)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	joined, err := file.Join(stored)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	c.Settings = joined.Settings
	registries := newRDAP(s, c.Resolver, c.RootCAs, log)
	if registries != nil {
		c.RDAP = registries // a nil *rdap.Client would be a non-nil interface
	}
	q := jobs.NewQueue(st)
	q.Log = log
	q.Ended = func(j *store.Job) { c.Metrics.JobsFinished.Add(j.Kind, j.State) }
	in := &installation{store: st, queue: q, svc: service.New(st, q, keys, c), rdap: registries, file: file}
	in.svc.Settings.Begin(file, stored, joined)
	in.operator = &operator.Operator{Store: st, Service: in.svc, Settings: s, Log: log, Version: version}
	setCompactionPace(q)
	in.operator.Schedule, err = in.operator.NewSchedule()
	if err != nil {
		return nil, errors.Join(err, in.close())
	}
	in.svc.Health.Backups, in.svc.Backups.Schedule = in.operator.Schedule, in.operator.Schedule
	if own != nil {
		own.Hosts = in.svc.Zones.HostsName
	}
	return in, nil
}

// A settingsFile is the settings outside of the store, with the clients of registrars that they
// make. It implements settings.File.
type settingsFile struct {
	*config.Settings // those of the file, flags and environment
	shops            *shops
}

// Join returns the settings that hold with the values in the store.
func (f *settingsFile) Join(stored []settings.Stored) (*settings.Joined, error) {
	s, joined, err := f.Settings.Join(stored)
	if err != nil {
		return nil, err
	}
	joined.Settings.Registrars, err = f.shops.open(s)
	return joined, err
}

// refreshed returns the file after it was read again. Settings that need a restart stay as they
// are.
func (f *settingsFile) refreshed(fresh *config.Settings) *settingsFile {
	return &settingsFile{f.Settings.Refreshed(fresh), f.shops}
}

// close stops the service and closes the store.
func (in *installation) close() error {
	in.svc.Close()
	if in.rdap != nil {
		in.rdap.Close()
	}
	return in.store.Close()
}

// serviceConfig returns the configuration of the service. If the sandbox uses its own DNS server,
// own is the resolver that queries it, and the caller must set own.Hosts. Otherwise own is nil.
func serviceConfig(s *config.Settings, l *listen.Listeners, log *slog.Logger) (c core.Config, own *lookup.SplitClient, err error) {
	c = s.Service()
	c.Version, c.Log = version, log
	c.WaitForRows = s.Backups().Sync
	c.PublicIPs, err = s.PublicIPs()
	if err != nil {
		return c, nil, err
	}
	c.RootCAs, err = config.RootCAs(s.CAFile)
	if err != nil {
		return c, nil, err
	}
	if l != nil {
		addListeners(&c, s, l)
	}
	c.DANE, err = newDANE(s)
	if err != nil {
		return c, nil, err
	}
	switch {
	case s.Resolver.On():
		client := lookup.New(lookup.Options{Servers: []string{s.Resolver.String()}})
		c.Resolver, c.LookupDS = client, dsLookup(client)
	case s.Sandbox() && l != nil && l.DNSTCP != nil:
		// Answers of the own server are not cached, because its zones change.
		server := lookup.New(lookup.Options{Servers: []string{l.DNSTCP.Addr().String()}, MaxBytes: -1})
		own = &lookup.SplitClient{Own: server, Client: lookup.New(lookup.Options{})}
		c.Resolver, c.LookupDS = own, dsLookup(server)
	case !s.Sandbox():
		client := lookup.New(lookup.Options{})
		c.Resolver, c.LookupDS = client, dsLookup(client)
	}
	c.DNS = dnsProviders(s, c)
	c.Scanner, c.ScanNew = newScanner(s, c), own == nil && c.Resolver != nil
	return c, own, nil
}

// newDANE returns the resolver for TLSA records. That needs a resolver that validates DNSSEC and
// can be trusted: one on this machine, or the configured one with trust_resolver. newDANE returns
// nil if there is none. The sandbox without a configured resolver uses its own DNS server, which
// does not validate.
func newDANE(s *config.Settings) (*dane.Resolver, error) {
	if !s.Resolver.On() && s.Sandbox() {
		return nil, nil
	}
	r, err := dane.NewResolver(s.Resolver.String(), s.Zones.TrustResolver)
	if err != nil && !s.Zones.TrustResolver {
		return nil, nil // the resolver of the system is not trusted
	}
	return r, err
}

// dsLookup returns a function that looks up DS records with a client.
func dsLookup(client *lookup.Client) core.LookupDS {
	return func(ctx context.Context, domain string) ([]dnsprov.DS, error) {
		return dnsprov.LookupDS(ctx, client, domain)
	}
}

// addListeners sets the fields of c that depend on the open sockets: ports, their security, and
// URLs.
func addListeners(c *core.Config, s *config.Settings, l *listen.Listeners) {
	startTLS := "none"
	if s.TLS() {
		startTLS = "starttls"
	}
	c.SMTPPort = listen.PortOf(l.SMTP)
	c.SubmissionPort, c.SMTPSecurity = listen.PortOf(l.Submissions, l.Submission), "tls"
	if l.Submissions == nil {
		c.SMTPSecurity = startTLS
	}
	c.IMAPPort, c.IMAPSecurity = listen.PortOf(l.IMAPS, l.IMAP), "tls"
	if l.IMAPS == nil {
		c.IMAPSecurity = startTLS
	}
	if l.Submissions != nil {
		c.SubmissionBeside = listen.PortOf(l.Submission)
	}
	if l.IMAPS != nil {
		c.IMAPBeside = listen.PortOf(l.IMAP)
	}
	if s.Sandbox() && c.SMTPSecurity == "none" && c.IMAPSecurity == "none" {
		c.ClientHost = reachableHost(cmp.Or(listen.AddrOf(l.IMAP), listen.AddrOf(l.Submission)))
	}
	c.HTTPS, c.HTTPSPort = l.HTTPTLS != nil, listen.PortOf(l.HTTPTLS)
	c.BaseURL = "http://" + listen.AddrOf(l.HTTP)
	switch {
	case s.BehindProxy():
		c.BaseURL = s.PlannedURL()
	case l.HTTPTLS != nil && !s.Sandbox():
		c.BaseURL = "https://" + c.Hostname
		if p := listen.PortOf(l.HTTPTLS); p != 443 {
			c.BaseURL += fmt.Sprintf(":%d", p)
		}
	case l.HTTPTLS != nil && l.HTTP == nil:
		c.BaseURL = "https://" + listen.AddrOf(l.HTTPTLS)
	case !s.Sandbox() && l.HTTP != nil:
		c.BaseURL = fmt.Sprintf("http://%s:%d", c.Hostname, listen.PortOf(l.HTTP))
	}
}

// reachableHost returns the host at which programs on this machine reach a listener with the
// address addr, or "" if addr is "".
func reachableHost(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return "127.0.0.1"
	}
	return host
}

// createFirstAccount creates the first account of a sandbox. It returns nil if there is an account.
// In production it returns an error instead: there only `mailstead init` creates the first account,
// so that no secret is written to a log.
func (in *installation) createFirstAccount(ctx context.Context, s *config.Settings) (*accounts.AccountCreated, error) {
	some, orphans := false, false
	err := in.store.View(func(tx *store.Tx) error {
		for range store.Accounts.All(tx) {
			some = true
			return nil
		}
		for range store.Domains.All(tx) {
			orphans = true
			break
		}
		return nil
	})
	if err != nil || some {
		return nil, err
	}
	if orphans {
		return nil, errors.New("the store has domains but no account: a damaged page has lost the row of the account; restore the store from a backup")
	}
	if !s.Sandbox() {
		return nil, config.Mistake(fmt.Errorf("there is no account yet: run `%s` first", operator.FirstCommand(in.store.Dir(), s)))
	}
	return in.svc.Accounts.CreateAccount(ctx, accounts.NewAccount{OwnerEmail: "owner@mailstead.test", First: true})
}

// withInstallation opens the data directory of a stopped server, calls do, and closes it. If
// mayCreate is set, it creates a missing store.
func withInstallation(dir string, s *config.Settings, mayCreate bool, do func(*operator.Operator) error) (err error) {
	if info, statErr := os.Stat(dir); statErr == nil && !info.IsDir() {
		return config.Mistake(fmt.Errorf("the data directory %s is not a directory", dir))
	}
	in, err := openInstallation(dir, s, nil, mayCreate, clock.New(nil, s.ClockOffset()), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.close()) }()
	return do(in.operator)
}

var _ core.Resolver = (*lookup.Client)(nil)
