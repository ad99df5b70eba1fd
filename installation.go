package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rdap"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/dane"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/store"
)

// An installation is one data directory with the service over it.
type installation struct {
	store *store.Store
	queue *jobs.Queue
	svc   *service.Service
	rdap  *rdap.Client // nil: registries are not asked
}

// openInstallation opens the data directory. l may be nil, when nothing listens.
func openInstallation(dir string, s *settings, l *listeners, log *slog.Logger) (*installation, error) {
	config, own, err := serviceConfig(s, l, log)
	if err != nil {
		return nil, err
	}
	st, err := store.Open(dir, store.Options{Log: log})
	if err != nil {
		return nil, err
	}
	keys, err := service.OpenKeys(st)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	if config.Registrars, err = registrars(s.Registrar, config, st); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	asks := newRDAP(s, config.Resolver, config.RootCAs, log)
	if asks != nil {
		config.RDAP = asks // a nil client would not be a nil interface
	}
	q := jobs.NewQueue(st)
	q.Log = log
	in := &installation{store: st, queue: q, svc: service.New(st, q, keys, config), rdap: asks}
	if own != nil {
		own.hosts = in.svc.HostsName
	}
	return in, nil
}

func (in *installation) close() error {
	in.svc.Close()
	if in.rdap != nil {
		in.rdap.Close()
	}
	return in.store.Close()
}

// serviceConfig turns settings into what the service needs. own is the resolver that must still
// learn which names are answered here, if there is one.
func serviceConfig(s *settings, l *listeners, log *slog.Logger) (c service.Config, own *ownResolver, err error) {
	c = service.Config{
		Hostname: s.Hostname.text, Sandbox: s.Sandbox(), Outbound: s.Outbound.text, MXPort: int(s.MXPort), Version: version,
		AllowPrivate: bool(s.Private), DNSCheckInterval: s.Zones.CheckInterval.d, Log: log, Limits: serviceLimits(s.Limits), Spam: s.Spam.service(),
	}
	if c.Hostname == "" {
		c.Hostname = "mail.mailstead.test"
	}
	c.Nameservers = nameservers(c.Hostname)
	withSecondaries(&c, &s.Zones)
	for i := range s.Relay {
		c.Relays = append(c.Relays, s.Relay[i].service())
	}
	if c.PublicIPs, err = publicIPs(s); err != nil {
		return c, nil, err
	}
	if c.RootCAs, err = rootCAs(s.CAFile); err != nil {
		return c, nil, err
	}
	c.ACME = serviceACME(s)
	c.BaseURL = plannedURL(s)
	if l != nil {
		describe(&c, s, l)
	}
	if c.DANE, err = newDANE(s); err != nil {
		return c, nil, err
	}
	switch {
	case s.Resolver.on():
		c.Resolver, c.LookupDS = dnsprov.NewAnyNames(s.Resolver.text), lookupDS(s.Resolver.text)
	case s.Sandbox() && l != nil && l.dnsTCP != nil:
		own = &ownResolver{own: dnsprov.NewResolver(l.dnsTCP.Addr().String())}
		c.Resolver, c.LookupDS = own, lookupDS(l.dnsTCP.Addr().String())
	case !s.Sandbox():
		c.Resolver, c.LookupDS = dnsprov.NewAnyNames(""), lookupDS("")
	}
	c.Edge = edgeProvider(s.Edge, c)
	return c, own, nil
}

// newDANE gives what looks up TLSA records, or nil where no resolver can be believed to have
// validated them: one on this machine, or one that the operator vouches for. A sandbox asks its own
// server, which validates nothing, unless it is given a resolver.
func newDANE(s *settings) (*dane.Resolver, error) {
	if !s.Resolver.on() && s.Sandbox() {
		return nil, nil
	}
	r, err := dane.NewResolver(s.Resolver.text, s.Zones.TrustResolver)
	if err != nil && !s.Zones.TrustResolver {
		return nil, nil // without a resolver there is no DANE, as where none is trusted
	}
	return r, err
}

// lookupDS asks one resolver; "" is the system's.
func lookupDS(addr string) service.LookupDS {
	return func(ctx context.Context, domain string) ([]dnsprov.DS, error) {
		return dnsprov.LookupDS(ctx, addr, domain)
	}
}

// describe notes what mail clients and API clients are told.
func describe(c *service.Config, s *settings, l *listeners) {
	c.SMTPPort = portOf(l.smtp)
	c.SubmissionPort, c.SMTPSecurity = portOf(l.submissions, l.submission), "tls"
	if l.submissions == nil {
		c.SMTPSecurity = startTLS(s)
	}
	c.IMAPPort, c.IMAPSecurity = portOf(l.imaps, l.imap), "tls"
	if l.imaps == nil {
		c.IMAPSecurity = startTLS(s)
	}
	if l.submissions != nil {
		c.SubmissionBeside = portOf(l.submission)
	}
	if l.imaps != nil {
		c.IMAPBeside = portOf(l.imap)
	}
	if s.Sandbox() && c.SMTPSecurity == "none" && c.IMAPSecurity == "none" {
		c.ClientHost = reachable(cmp.Or(addrOf(l.imap), addrOf(l.submission)))
	}
	c.HTTPS, c.HTTPSPort = l.httpTLS != nil, portOf(l.httpTLS)
	c.BaseURL = "http://" + addrOf(l.http)
	switch {
	case s.behindProxy():
		c.BaseURL = plannedURL(s)
	case l.httpTLS != nil && !s.Sandbox():
		c.BaseURL = "https://" + s.Hostname.text
		if p := portOf(l.httpTLS); p != 443 {
			c.BaseURL += fmt.Sprintf(":%d", p)
		}
	case l.httpTLS != nil && l.http == nil:
		c.BaseURL = "https://" + addrOf(l.httpTLS)
	case !s.Sandbox() && l.http != nil:
		c.BaseURL = fmt.Sprintf("http://%s:%d", s.Hostname.text, portOf(l.http))
	}
}

// reachable is the host by which programs on this machine reach a listener; "" if nothing listens.
func reachable(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return "127.0.0.1"
	}
	return host
}

// behindProxy tells whether people reach this host's own name through a proxy, which speaks HTTPS
// to them.
func (s *settings) behindProxy() bool { return len(s.Proxies) > 0 && !s.Sandbox() }

// plannedURL is where the server will be reached that does not run yet, by its settings; "" if it
// is not known whether it will have a public name.
func plannedURL(s *settings) string {
	https, host := s.HTTPTLS.on(), s.Hostname.text
	if host == "" {
		return ""
	}
	if s.behindProxy() {
		return "https://" + host
	}
	at, usual := s.HTTP.text, "80"
	if https {
		at, usual = s.HTTPTLS.text, "443"
	} else {
		https = false
	}
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		return ""
	}
	if port != usual {
		host = net.JoinHostPort(host, port)
	}
	if https {
		return "https://" + host
	}
	return "http://" + host
}

// serviceACME says where certificates come from that are in no file.
func serviceACME(s *settings) *service.ACME {
	if !s.Directory.on() {
		return nil
	}
	return &service.ACME{
		Directory: s.Directory.text, Email: s.ACMEEmail.text, EABKeyID: s.EABKeyID, EABKey: s.EABKey.key, Host: s.TLSCert == "",
	}
}

func startTLS(s *settings) string {
	if s.TLSCert == "" && !s.Directory.on() {
		return "none"
	}
	return "starttls"
}

func serviceLimits(l limitSettings) service.Limits {
	out := service.Limits{
		Plan: l.Plan.text, Domains: int(l.Domains), TeamUsers: int(l.TeamUsers), Mailboxes: int(l.Mailboxes),
		MailboxesPerDomain: int(l.MailboxesPerDomain), RatePerMinute: int(l.RatePerMinute), BurstPerMinute: int(l.BurstPerMinute),
	}
	if out.Plan == "" {
		out.Plan = "startup"
	}
	for n, byDefault := range map[*int]int{&out.Domains: 500, &out.TeamUsers: 25, &out.MailboxesPerDomain: 100} {
		if *n == 0 {
			*n = byDefault
		}
	}
	return out
}

// nameservers are the names of our own DNS servers, beside the host's name.
func nameservers(hostname string) []string {
	parent := hostname
	for i, c := range hostname {
		if c == '.' {
			parent = hostname[i+1:]
			break
		}
	}
	return []string{"ns1." + parent, "ns2." + parent}
}

// firstStart makes the first account of a sandbox; in production `init` does that, so that nothing
// secret lands in a log.
func (in *installation) firstStart(ctx context.Context, s *settings) (*service.AccountCreated, error) {
	_, err := in.svc.Operator(ctx, "")
	if err == nil {
		return nil, nil
	}
	if e, ok := service.AsError(err); !ok || e.Status != 404 {
		return nil, err
	}
	if !s.Sandbox() {
		return nil, usageError{errors.New("there is no account yet: run `mailstead init --owner-email YOU@example.com` first")}
	}
	return in.svc.CreateAccount(ctx, service.NewAccount{OwnerEmail: "owner@mailstead.test", First: true})
}

// withInstallation opens the data directory of a stopped server for one command.
func withInstallation(dir string, s *settings, do func(*installation) error) (err error) {
	if info, statErr := os.Stat(dir); statErr == nil && !info.IsDir() {
		return usageError{fmt.Errorf("%s is not a directory", dir)}
	}
	in, err := openInstallation(dir, s, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.close()) }()
	return do(in)
}

var _ service.Resolver = (*net.Resolver)(nil)
