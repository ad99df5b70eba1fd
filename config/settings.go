// Package config reads the settings of the program: from the file mailstead.toml, environment
// variables and command-line flags, over the defaults of the sandbox or of production. Its errors
// say where a mistake is. It converts the settings to the types of the service. It does not know
// what the settings are used for: it opens no socket and no store, and sends no requests.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/dnsprov/ca"
	"github.com/mailstead/mailstead/mail/milter"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/settings"
)

// Settings has all settings of the program. A field with the tag usage can be set by a flag, an
// environment variable or a key of the file; the other fields only in the file.
type Settings struct {
	Hostname    hostName    `toml:"hostname" usage:"public hostname of this server; turns production mode on"`
	HTTP        Address     `toml:"http" usage:"where HTTP listens: ADDR, or off"`
	HTTPTLS     Address     `toml:"http_tls" usage:"where HTTPS listens"`
	SMTP        Address     `toml:"smtp" usage:"where SMTP listens for mail from other servers"`
	Submission  Address     `toml:"submission" usage:"where SMTP listens for mail from our users, with STARTTLS"`
	Submissions Address     `toml:"submissions" usage:"where SMTP listens for mail from our users, with TLS from the start"`
	IMAP        Address     `toml:"imap" usage:"where IMAP listens, with STARTTLS"`
	IMAPS       Address     `toml:"imaps" usage:"where IMAP listens, with TLS from the start"`
	DNS         Address     `toml:"-" flag:"dns" usage:"where DNS listens, over UDP and TCP"`
	TLSCert     string      `toml:"tls_cert" change:"file" usage:"certificate chain of this hostname, a PEM file; without it Mailstead gets one by ACME"`
	TLSKey      string      `toml:"tls_key" change:"file" usage:"the certificate's key, a PEM file"`
	Directory   acmeURL     `toml:"acme_directory" usage:"directory URL of the certificate authority (ACME), or off; Let's Encrypt in production"`
	ACMEEmail   contact     `toml:"acme_email" usage:"contact email address for the certificate authority"`
	EABKeyID    string      `toml:"acme_eab_kid" text:"key ID of the external account binding that the certificate authority gave"`
	EABKey      eabKey      `toml:"acme_eab_hmac" secret:"yes" text:"key of the external account binding, in base64url"`
	PublicIP    ipList      `toml:"public_ip" usage:"a public IP address for DNS records; may be repeated"`
	Proxies     netList     `toml:"trusted_proxy" usage:"address or CIDR of a reverse proxy whose X-Forwarded-For and X-Forwarded-Proto are trusted; may be repeated"`
	ProxyHeader netList     `toml:"proxy_protocol" usage:"address or CIDR of a proxy whose connections begin with a PROXY header (version 1 or 2), on every TCP listener; may be repeated"`
	ReadyFile   string      `toml:"ready_file" usage:"a file that is written once all listeners accept connections"`
	Outbound    sendingMode `toml:"outbound" change:"store" usage:"where mail to others goes: capture, direct or relay"`
	Resolver    Address     `toml:"resolver" usage:"the DNS resolver for all lookups, instead of the system's"`
	MXPort      port        `toml:"mx_port" usage:"the port for direct delivery"`
	CAFile      string      `toml:"ca_file" usage:"additional certificate authorities for outgoing TLS, a PEM file"`
	Private     toggle      `toml:"allow_private_destinations" usage:"allow private and loopback addresses as destinations that tenants choose"`
	Migrate     toggle      `toml:"-" flag:"migrate" usage:"in production, migrate a store of an older version without a rehearsal"`
	LogFormat   logFormat   `toml:"log_format" usage:"text or json"`
	LogLevel    logLevel    `toml:"log_level" change:"store" usage:"debug, info, warn or error"`

	Relay        []relaySettings       `toml:"relay" entry:"name" change:"file"`
	Destination  []destinationSettings `toml:"destination" entry:"operator" change:"file"`
	Registrar    registrarSettings     `toml:"registrar" change:"file"`
	Edge         edgeSettings          `toml:"cloudflare"`
	Route53      edgeSettings          `toml:"route53"`
	Hetzner      edgeSettings          `toml:"hetzner"`
	DeSEC        edgeSettings          `toml:"desec"`
	RDAP         rdapSettings          `toml:"rdap"`
	Limits       limitSettings         `toml:"limits"`
	Spam         spamSettings          `toml:"spam"`
	S3           S3                    `toml:"s3"`
	Backup       backupSettings        `toml:"backup"`
	Metrics      metricsSettings       `toml:"metrics"`
	Doctor       doctorSettings        `toml:"doctor"`
	Alerts       alertSettings         `toml:"alerts"`
	Sending      sendingSettings       `toml:"sending"`
	OTLP         otlpSettings          `toml:"otlp"`
	Retention    retentionSettings     `toml:"retention"`
	SandboxTable sandboxSettings       `toml:"sandbox"`
	Simulator    simulatorSettings     `toml:"simulator"`
	Operator     operatorSettings      `toml:"operator"`
	Zones        dnsSettings           `toml:"-"`

	origin *origin         // where the settings come from
	stored map[string]bool // keys whose value comes from the store, other than those of relays and destinations
}

// sandboxDefaults returns the default settings of the sandbox, which runs without a hostname.
func sandboxDefaults() Settings {
	off := Address{checkedText{"off"}}
	s := commonDefaults()
	s.HTTP.text, s.HTTPTLS = "127.0.0.1:8080", off
	s.SMTP.text, s.Submission.text, s.Submissions = "127.0.0.1:2525", "127.0.0.1:2587", off
	s.IMAP.text, s.IMAPS = "127.0.0.1:2143", off
	s.DNS.text = "127.0.0.1:2053"
	s.Outbound.text, s.Private, s.Simulator.Enabled = "capture", true, true
	for _, loopback := range []string{"127.0.0.0/8", "::1/128"} {
		s.Limits.Exempt = append(s.Limits.Exempt, network{netip.MustParsePrefix(loopback)})
	}
	s.Metrics.Allowed = s.Limits.Exempt
	return s
}

// productionDefaults returns the default settings of a server with a hostname.
func productionDefaults() Settings {
	s := commonDefaults()
	s.HTTP.text, s.HTTPTLS.text = ":80", ":443"
	s.SMTP.text, s.Submission.text, s.Submissions.text = ":25", ":587", ":465"
	s.IMAP.text, s.IMAPS.text = ":143", ":993"
	s.DNS.text = ":53"
	s.Directory.text = ca.LetsEncrypt
	s.Spam.DMARCReports = true
	for _, zone := range []string{"zen.spamhaus.org", "bl.spamcop.net"} {
		s.Doctor.Blocklists = append(s.Doctor.Blocklists, dnsName{checkedText{zone}})
	}
	for _, host := range []string{"gmail-smtp-in.l.google.com", "outlook-com.olc.protection.outlook.com", "mx01.mail.icloud.com"} {
		s.Doctor.Port25Targets = append(s.Doctor.Port25Targets, hostPort{checkedText{host + ":25"}})
	}
	return s
}

// commonDefaults returns the default settings that the sandbox and production share.
func commonDefaults() (s Settings) {
	s.MXPort, s.LogFormat.text, s.LogLevel.text = 25, "text", "info"
	s.Spam.Classifier, s.Spam.JunkScore = true, 0.9
	s.Spam.MilterTimeout.d, s.Spam.DNSBLAction.text = milter.DefaultTimeout, "reject"
	s.Zones.CheckInterval.d = core.DefaultDNSCheckInterval
	s.Limits.Plan.text, s.Limits.Domains, s.Limits.TeamUsers, s.Limits.MailboxesPerDomain = "startup", 500, 25, 100
	s.Limits.ConnectionsPerAddress, s.Limits.ConnectionsPerMailboxIMAP = 50, 50
	s.Limits.ConnectionsPerMailboxSMTP, s.Limits.ConnectionsPerAccount = 20, 2000
	s.Retention.TrashDays, s.Retention.JunkDays, s.Retention.RequestDays = 30, 30, 7
	s.Backup.Every.d, s.Backup.FullEvery.d, s.Backup.Keep.d = time.Hour, 7*24*time.Hour, 30*24*time.Hour
	s.Operator.SignInLinks = true
	return s
}

// Sandbox reports whether the server runs as a sandbox, which is the case if no hostname is set.
func (s *Settings) Sandbox() bool { return s.Hostname.text == "" }

// Load returns the settings from the flags, the environment, mailstead.toml in the directory of the
// flag "data", and the defaults, in this order of precedence. It returns an Error if a setting is
// invalid. Join adds the settings in the store, and must be called before the settings are used for
// relays, which may be in the store too.
func Load(c *cli.Context) (*Settings, error) {
	path := filepath.Join(c.String("data"), "mailstead.toml")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read settings file: %w", err)
	}
	return Merge(path, string(text), c)
}

// Merge does the same as Load, but for a settings file that has this text. path is for errors.
func Merge(path, text string, c *cli.Context) (*Settings, error) {
	o := newOrigin(path, text, c)
	s, err := o.merge(nil)
	if err != nil {
		return nil, Error{o.withLine(err)}
	}
	o.nameEntries(s)
	return s, nil
}

// An Error is a mistake in the settings or in the arguments of the program.
type Error struct{ error }

// Mistake wraps an error as an Error.
func Mistake(err error) error { return Error{err} }

// Unwrap returns the cause, such as an *fs.PathError.
func (e Error) Unwrap() error { return e.error }

// check fills in the defaults of tables, and returns an error if settings are invalid together. An
// error about a table begins with its name, such as "[spam] junk_score" or "[[relay]] number 1".
// findTableLine parses that.
func (s *Settings) check() error {
	if (s.TLSCert == "") != (s.TLSKey == "") {
		return errors.New("--tls-cert and --tls-key go together: give both or neither")
	}
	if err := s.checkTLS(); err != nil {
		return err
	}
	if (s.EABKeyID == "") != (s.EABKey.key == nil) {
		return errors.New("acme_eab_kid and acme_eab_hmac go together: give both or neither")
	}
	seen := map[string]bool{}
	for i := range s.Relay {
		if err := s.Relay[i].check(); err != nil {
			return entryError{"relay", i, err}
		}
		if seen[s.Relay[i].Name] {
			return entryError{"relay", i, fmt.Errorf("another relay already has the name %q", s.Relay[i].Name)}
		}
		seen[s.Relay[i].Name] = true
	}
	operators := map[string]bool{}
	for i := range s.Destination {
		d := &s.Destination[i]
		if err := d.check(); err != nil {
			return entryError{"destination", i, err}
		}
		if operators[d.Operator.text] {
			return entryError{"destination", i, fmt.Errorf("another entry already has the operator %q", d.Operator.text)}
		}
		operators[d.Operator.text] = true
	}
	if !s.Sandbox() && s.ClockOffset() != 0 {
		return errors.New("[sandbox] clock_offset: the clock of a server with a hostname cannot be shifted: remove clock_offset or hostname")
	}
	for _, check := range []func() error{s.Registrar.check, s.Spam.check, s.Zones.check, s.S3.check, s.Backup.check, s.Sending.check} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// An entryError is a mistake in an entry of a list.
type entryError struct {
	list  string
	index int // of the entry; those of the store come after those of the file
	err   error
}

func (e entryError) Error() string {
	return fmt.Sprintf("[[%s]] number %d: %v", e.list, e.index+1, e.err)
}
func (e entryError) Unwrap() error { return e.err }

// A relayError says that a setting needs a relay that there is not. It is a settings.ErrNoRelay.
type relayError struct{ text string }

func (e relayError) Error() string        { return e.text }
func (e relayError) Is(target error) bool { return target == settings.ErrNoRelay }

// checkRelayNames returns a relayError, maybe in an entryError, if a relay is needed that there is
// not. It is no part of check, because the store may have relays too. more are names that count as
// relays.
func (s *Settings) checkRelayNames(more []string) error {
	if s.Outbound.text == "relay" && len(s.Relay) == 0 && len(more) == 0 {
		return relayError{"--outbound relay needs a [[relay]] in mailstead.toml"}
	}
	for i, d := range s.Destination {
		named := func(r relaySettings) bool { return r.Name == d.Relay }
		if d.Relay != "" && !slices.ContainsFunc(s.Relay, named) && !slices.Contains(more, d.Relay) {
			return entryError{"destination", i, relayError{fmt.Sprintf("relay = %q is not the name of a [[relay]]", d.Relay)}}
		}
	}
	return nil
}

// checkTLS returns an error if a TLS listener is on, but there are no certificate files and ACME
// cannot work.
func (s *Settings) checkTLS() error {
	if s.TLSCert != "" {
		return nil
	}
	for name, a := range map[string]Address{"http-tls": s.HTTPTLS, "submissions": s.Submissions, "imaps": s.IMAPS} {
		switch {
		case !a.On() || s.Directory.On() && s.HTTP.On():
		case s.Directory.On():
			return fmt.Errorf("--%s needs a certificate, and the ACME challenge needs HTTP: set --http, or give --tls-cert and --tls-key", name)
		default:
			return fmt.Errorf("--%s needs a certificate: give --tls-cert and --tls-key, set --acme-directory, or set --%s off", name, name)
		}
	}
	return nil
}

// sandboxHost is the hostname of the sandbox.
const sandboxHost = "mail.mailstead.test"

// Service converts the settings to the configuration of the service. It leaves fields unset that
// depend on the running server: resolvers, ports, certificate authorities, addresses, registrars.
func (s *Settings) Service() core.Config {
	c := core.Config{
		Settings: s.Changeable(), Hostname: s.Hostname.text, Sandbox: s.Sandbox(), MXPort: int(s.MXPort), AllowPrivate: bool(s.Private),
		DNSCheckInterval: s.Zones.CheckInterval.d, Catalog: s.Zones.Catalog.text, Secondaries: s.Zones.secondaries(), ACME: s.acme(), BaseURL: s.PlannedURL(),
		NoSignInLinks: !s.Operator.SignInLinks,
	}
	if s.Sandbox() {
		c.Hostname = sandboxHost
	}
	c.Nameservers = nameservers(c.Hostname, c.Secondaries)
	return c
}

// Changeable converts the settings that can change while the server runs. It leaves out the
// registrars, which keep connections and sales.
func (s *Settings) Changeable() core.Settings {
	b := s.Backups()
	out := core.Settings{
		Outbound: s.Outbound.text, Sending: s.Sending.service(), Limits: s.Limits.service(), Connections: s.Limits.connections(),
		Retention: s.Retention.service(), Spam: s.Spam.service(), Simulator: s.Simulator.Enabled, Doctor: s.Doctor.service(),
		AlertURL: s.Alerts.URL.text, AlertGuarded: s.stored["alerts.url"], LogLevel: s.LogLevel.Level(), BackupEvery: b.Every, FullBackupEvery: b.FullEvery, DrillEvery: b.Drill,
	}
	out.Doctor.Guarded = s.stored["doctor.port25_targets"]
	for i := range s.Destination {
		out.Destinations = append(out.Destinations, s.Destination[i].service())
	}
	for i := range s.Relay {
		out.Relays = append(out.Relays, s.Relay[i].service())
	}
	return out
}

// nameservers returns the host names for the NS records of zones: ns1 and ns2 in the parent domain
// of the hostname, which are this server, and the names of secondaries.
func nameservers(hostname string, secondaries []builtin.Secondary) []string {
	parent := hostname
	if _, after, ok := strings.Cut(hostname, "."); ok {
		parent = after
	}
	out := []string{"ns1." + parent, "ns2." + parent}
	for _, one := range secondaries {
		if one.Nameserver != "" && !slices.Contains(out, one.Nameserver) {
			out = append(out, one.Nameserver)
		}
	}
	return out
}

// TLS reports whether the server has certificates, from files or by ACME. Otherwise no listener
// uses TLS.
func (s *Settings) TLS() bool { return s.TLSCert != "" || s.Directory.On() }

// acme returns the settings of the ACME certificate authority, or nil if ACME is off.
func (s *Settings) acme() *core.ACME {
	if !s.Directory.On() {
		return nil
	}
	return &core.ACME{
		Directory: s.Directory.text, Email: s.ACMEEmail.text, EABKeyID: s.EABKeyID, EABKey: s.EABKey.key, Host: s.TLSCert == "",
	}
}

// BehindProxy reports whether web clients reach this host through a reverse proxy, which serves
// HTTPS.
func (s *Settings) BehindProxy() bool { return len(s.Proxies) > 0 && !s.Sandbox() }

// PlannedURL returns the base URL that a server with these settings will have. It returns "" in the
// sandbox, whose port is known only when it listens.
func (s *Settings) PlannedURL() string {
	host := s.Hostname.text
	if host == "" {
		return ""
	}
	if s.BehindProxy() {
		return "https://" + host
	}
	scheme, at, defaultPort := "http", s.HTTP.text, "80"
	if s.HTTPTLS.On() {
		scheme, at, defaultPort = "https", s.HTTPTLS.text, "443"
	}
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		return ""
	}
	if port != defaultPort {
		host = net.JoinHostPort(host, port)
	}
	return scheme + "://" + host
}

// sandboxSettings is the table [sandbox].
type sandboxSettings struct {
	ClockOffset clockOffset `toml:"clock_offset" text:"how far the clock of the sandbox is ahead, such as 26h or -30m"`
}

// ClockOffset returns how far the clock of the sandbox is ahead of the system clock. It may be
// negative.
func (s *Settings) ClockOffset() time.Duration { return s.SandboxTable.ClockOffset.d }

// simulatorSettings is the table [simulator]: whether addresses at simulator.HOSTNAME simulate
// recipients.
type simulatorSettings struct {
	Enabled bool `toml:"enabled" change:"store" text:"whether addresses at simulator.HOSTNAME simulate recipients"`
}

// metricsSettings is the table [metrics]: the token and the networks of clients that may read
// /metrics.
type metricsSettings struct {
	Token   string  `toml:"token" secret:"yes" text:"bearer token that may read /metrics"`
	Allowed netList `toml:"allowed_networks" text:"networks of clients that may read /metrics without the token"`
}

// operatorSettings is the table [operator]: what the operator may do to other accounts.
type operatorSettings struct {
	SignInLinks bool `toml:"sign_in_links" text:"whether operators may make links that sign in to other accounts"`
}

// alertSettings is the table [alerts]: the URL to which alerts about this host are posted. The
// owner also gets them by email.
type alertSettings struct {
	URL httpURL `toml:"url" change:"store" text:"URL to which alerts about this host are posted, beside the letter to the owner"`
}

// sendingSettings is the table [sending]: the source addresses and the HELO name for direct
// delivery.
type sendingSettings struct {
	SourceIPv4 netip.Addr `toml:"source_ipv4" change:"store" text:"IPv4 address of this host from which mail is sent directly; without it the system chooses"`
	SourceIPv6 netip.Addr `toml:"source_ipv6" change:"store" text:"IPv6 address of this host from which mail is sent directly; without it the system chooses"`
	Helo       dnsName    `toml:"helo" change:"store" text:"name in EHLO for direct delivery, if it is not the hostname"`
}

func (s *sendingSettings) check() error {
	if s.SourceIPv4.IsValid() && !s.SourceIPv4.Is4() {
		return fmt.Errorf("[sending] source_ipv4: %s is not an IPv4 address", s.SourceIPv4)
	}
	if s.SourceIPv6.IsValid() && (!s.SourceIPv6.Is6() || s.SourceIPv6.Is4In6() || s.SourceIPv6.Zone() != "") {
		return fmt.Errorf("[sending] source_ipv6: %s is not an IPv6 address", s.SourceIPv6)
	}
	return nil
}

// service converts the settings to the type of the service.
func (s *sendingSettings) service() core.Sending {
	return core.Sending{IPv4: s.SourceIPv4, IPv6: s.SourceIPv6, Helo: s.Helo.text}
}

// doctorSettings is the table [doctor]: the servers that `mailstead doctor` queries to check this
// host.
type doctorSettings struct {
	Blocklists    []dnsName  `toml:"blocklists" change:"store" text:"DNS block lists in which the addresses of this host are looked up"`
	Port25Targets []hostPort `toml:"port25_targets" change:"store" text:"mail servers that are tried to find out whether port 25 is open outwards"`
}

// service converts the settings to the type of the service.
func (d *doctorSettings) service() (out core.Doctor) {
	for _, zone := range d.Blocklists {
		out.Blocklists = append(out.Blocklists, zone.text)
	}
	for _, one := range d.Port25Targets {
		out.Port25Targets = append(out.Port25Targets, one.text)
	}
	return out
}

// otlpSettings is the table [otlp]: the collector to which traces are sent.
type otlpSettings struct {
	Endpoint collectorURL `toml:"endpoint" text:"OpenTelemetry collector to which traces are sent, without /v1/traces"` // "" sends no traces
}

// retentionSettings is the table [retention]: how many days messages stay in Trash and Junk, where
// 0 means forever, and requests in the request log, where 0 means that none are recorded.
type retentionSettings struct {
	TrashDays   count `toml:"trash_days" change:"store" text:"days after which messages in Trash are deleted; 0: never"`
	JunkDays    count `toml:"junk_days" change:"store" text:"days after which messages in Junk are deleted; 0: never"`
	RequestDays count `toml:"request_days" change:"store" text:"days that the request log keeps a request; 0: none is recorded"`
}

// service converts the settings to the type of the service.
func (r *retentionSettings) service() core.Retention {
	const day = 24 * time.Hour
	return core.Retention{Trash: time.Duration(r.TrashDays) * day, Junk: time.Duration(r.JunkDays) * day, Requests: time.Duration(r.RequestDays) * day}
}

// limitSettings is the table [limits]: limits of accounts, requests, recipients and connections.
type limitSettings struct {
	Plan               plan  `toml:"plan" change:"store" text:"plan of new accounts"`
	Domains            count `toml:"domains" change:"store" text:"domains of an account"`
	TeamUsers          count `toml:"team_users" change:"store" text:"team members of an account"`
	Mailboxes          count `toml:"mailboxes" change:"store" text:"mailboxes of an account; 0: no limit"`
	MailboxesPerDomain count `toml:"mailboxes_per_domain" change:"store" text:"mailboxes of a domain"`
	RatePerMinute      count `toml:"rate_per_minute" change:"store" text:"steady API requests of an account in a minute; 0: as its plan says"`
	BurstPerMinute     count `toml:"burst_per_minute" change:"store" text:"most API requests of an account in a minute; 0: as its plan says"`

	RecipientsPerMailbox    count `toml:"recipients_per_mailbox_per_day" change:"store" text:"recipients of a mailbox in a day; 0: no limit"`
	RecipientsPerDomain     count `toml:"recipients_per_domain_per_day" change:"store" text:"recipients of a domain in a day; 0: no limit"`
	RecipientsPerAccount    count `toml:"recipients_per_account_per_day" change:"store" text:"recipients of an account in a day; 0: no limit"`
	NewRecipientsPerMailbox count `toml:"new_recipients_per_mailbox_per_day" change:"store" text:"new recipients of a mailbox in a day; 0: no limit"`
	NewRecipientsPerDomain  count `toml:"new_recipients_per_domain_per_day" change:"store" text:"new recipients of a domain in a day; 0: no limit"`
	NewRecipientsPerAccount count `toml:"new_recipients_per_account_per_day" change:"store" text:"new recipients of an account in a day; 0: no limit"`

	ConnectionsPerAddress     count `toml:"connections_per_address" change:"store" text:"connections before log-in from one address to one port; 0: no limit"`
	ConnectionsPerMailboxIMAP count `toml:"connections_per_mailbox_imap" change:"store" text:"IMAP connections that are logged in to one mailbox; 0: no limit"`
	ConnectionsPerMailboxSMTP count `toml:"connections_per_mailbox_smtp" change:"store" text:"SMTP connections that are logged in to one mailbox; 0: no limit"`
	ConnectionsPerAccount     count `toml:"connections_per_account" change:"store" text:"connections that are logged in to one account; 0: no limit"`

	// Exempt has the client networks to which limits per address and per network do not apply.
	Exempt netList `toml:"exempt_networks" text:"networks to which limits for each address and network do not apply"`
}

// service converts the settings to the type of the service. Where 0 would leave accounts without
// anything, it means the default.
func (l *limitSettings) service() core.Limits {
	return core.Limits{
		Plan: l.Plan.text, Domains: int(cmp.Or(l.Domains, 500)), TeamUsers: int(cmp.Or(l.TeamUsers, 25)),
		Mailboxes: int(l.Mailboxes), MailboxesPerDomain: int(cmp.Or(l.MailboxesPerDomain, 100)),
		RatePerMinute: int(l.RatePerMinute), BurstPerMinute: int(l.BurstPerMinute),
		RecipientsPerMailbox: int(l.RecipientsPerMailbox), RecipientsPerDomain: int(l.RecipientsPerDomain), RecipientsPerAccount: int(l.RecipientsPerAccount),
		NewRecipientsPerMailbox: int(l.NewRecipientsPerMailbox), NewRecipientsPerDomain: int(l.NewRecipientsPerDomain),
		NewRecipientsPerAccount: int(l.NewRecipientsPerAccount),
	}
}

// connections returns the limits of connections.
func (l *limitSettings) connections() core.ConnectionLimits {
	return core.ConnectionLimits{
		PerAddress: int(l.ConnectionsPerAddress), PerMailboxIMAP: int(l.ConnectionsPerMailboxIMAP),
		PerMailboxSMTP: int(l.ConnectionsPerMailboxSMTP), PerAccount: int(l.ConnectionsPerAccount),
	}
}
