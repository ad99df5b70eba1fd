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
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/urfave/cli/v2"

	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/dnsprov/ca"
	"github.com/mailstead/mailstead/service/core"
)

// Settings has all settings of the program. A field with the tag usage can be set by a flag, an
// environment variable or a key of the file; the other fields only in the file.
type Settings struct {
	Hostname    hostName    `toml:"hostname" usage:"public hostname of this server; turns production mode on"`
	HTTP        Address     `toml:"http" usage:"where HTTP listens: ADDR, or off"`
	HTTPTLS     Address     `toml:"http_tls" usage:"where HTTPS listens"`
	SMTP        Address     `toml:"smtp" usage:"where SMTP listens for mail from other servers"`
	Submission  Address     `toml:"submission" usage:"where SMTP listens for mail from our users, with STARTTLS"`
	Submissions Address     `toml:"submissions" usage:"the same with TLS from the start"`
	IMAP        Address     `toml:"imap" usage:"where IMAP listens, with STARTTLS"`
	IMAPS       Address     `toml:"imaps" usage:"the same with TLS from the start"`
	DNS         Address     `toml:"-" flag:"dns" usage:"where DNS listens, over UDP and TCP"`
	TLSCert     string      `toml:"tls_cert" usage:"certificate chain of this hostname, a PEM file; without it Mailstead gets one by ACME"`
	TLSKey      string      `toml:"tls_key" usage:"the certificate's key, a PEM file"`
	Directory   acmeURL     `toml:"acme_directory" usage:"directory URL of the certificate authority (ACME), or off; Let's Encrypt in production"`
	ACMEEmail   contact     `toml:"acme_email" usage:"contact email address for the certificate authority"`
	EABKeyID    string      `toml:"acme_eab_kid"`
	EABKey      eabKey      `toml:"acme_eab_hmac"`
	PublicIP    ipList      `toml:"public_ip" usage:"a public IP address for DNS records; may be repeated"`
	Proxies     netList     `toml:"trusted_proxy" usage:"address or CIDR of a reverse proxy whose X-Forwarded-For and X-Forwarded-Proto are trusted; may be repeated"`
	ProxyHeader netList     `toml:"proxy_protocol" usage:"address or CIDR of a proxy whose connections begin with a PROXY header (version 1 or 2), on every TCP listener; may be repeated"`
	ReadyFile   string      `toml:"ready_file" usage:"a file that is written once all listeners accept connections"`
	Outbound    sendingMode `toml:"outbound" usage:"where mail to others goes: capture, direct or relay"`
	Resolver    Address     `toml:"resolver" usage:"the DNS resolver for all lookups, instead of the system's"`
	MXPort      port        `toml:"mx_port" usage:"the port for direct delivery"`
	CAFile      string      `toml:"ca_file" usage:"additional certificate authorities for outgoing TLS, a PEM file"`
	Private     toggle      `toml:"allow_private_destinations" usage:"allow private and loopback addresses as destinations that tenants choose"`
	Migrate     toggle      `toml:"-" flag:"migrate" usage:"in production, migrate a store of an older version without a rehearsal"`
	LogFormat   logFormat   `toml:"log_format" usage:"text or json"`
	LogLevel    logLevel    `toml:"log_level" usage:"debug, info, warn or error"`

	Relay        []relaySettings       `toml:"relay"`
	Destination  []destinationSettings `toml:"destination"`
	Registrar    registrarSettings     `toml:"registrar"`
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
	Zones        dnsSettings           `toml:"-"`
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
	return s
}

// Sandbox reports whether the server runs as a sandbox, which is the case if no hostname is set.
func (s *Settings) Sandbox() bool { return s.Hostname.text == "" }

// Load returns the settings from the flags, the environment, mailstead.toml in the directory of the
// flag "data", and the defaults, in this order of precedence. It returns an Error if a setting is
// invalid.
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
	s, err := merge(path, text, c)
	if err != nil {
		return nil, Error{err}
	}
	return s, nil
}

// An Error is a mistake in the settings or in the arguments of the program.
type Error struct{ error }

// Mistake wraps an error as an Error.
func Mistake(err error) error { return Error{err} }

// Unwrap returns the cause, such as an *fs.PathError.
func (e Error) Unwrap() error { return e.error }

func merge(path, text string, c *cli.Context) (*Settings, error) {
	var named struct {
		Hostname string `toml:"hostname"`
	}
	_ = toml.Unmarshal([]byte(text), &named) // decode reports syntax errors below
	s := productionDefaults()
	if host, _ := flagOrEnv(c, flagField{name: "hostname"}); host == "" && named.Hostname == "" {
		s = sandboxDefaults()
	}
	err := s.decode(text)
	if k, what := findWrongItem(fileKeys(text)); what != "" {
		return nil, fmt.Errorf("%s, line %d: %s %s", path, k.row, k.name, what)
	}
	if err != nil {
		return nil, fileError(path, text, err)
	}
	if err := s.setFlags(c); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		if row := findTableLine(text, err.Error()); row > 0 {
			return nil, fmt.Errorf("%s, line %d: %w", path, row, err)
		}
		return nil, err
	}
	return &s, nil
}

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
	if s.Outbound.text == "relay" && len(s.Relay) == 0 {
		return errors.New("--outbound relay needs a [[relay]] in mailstead.toml")
	}
	seen := map[string]bool{}
	for i := range s.Relay {
		if err := s.Relay[i].check(); err != nil {
			return fmt.Errorf("[[relay]] number %d: %w", i+1, err)
		}
		if seen[s.Relay[i].Name] {
			return fmt.Errorf("[[relay]] number %d: another relay already has the name %q", i+1, s.Relay[i].Name)
		}
		seen[s.Relay[i].Name] = true
	}
	operators := map[string]bool{}
	for i := range s.Destination {
		d := &s.Destination[i]
		if err := d.check(); err != nil {
			return fmt.Errorf("[[destination]] number %d: %w", i+1, err)
		}
		if operators[d.Operator.text] {
			return fmt.Errorf("[[destination]] number %d: another entry already has the operator %q", i+1, d.Operator.text)
		}
		operators[d.Operator.text] = true
		if d.Relay != "" && !seen[d.Relay] {
			return fmt.Errorf("[[destination]] number %d: relay = %q is not the name of a [[relay]]", i+1, d.Relay)
		}
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
// depend on the running server: resolvers, ports, certificate authorities and addresses.
func (s *Settings) Service() core.Config {
	c := core.Config{
		Hostname: s.Hostname.text, Sandbox: s.Sandbox(), Outbound: s.Outbound.text, MXPort: int(s.MXPort), AllowPrivate: bool(s.Private),
		DNSCheckInterval: s.Zones.CheckInterval.d, Catalog: s.Zones.Catalog.text, Secondaries: s.Zones.secondaries(),
		AlertURL: s.Alerts.URL.text, Doctor: s.Doctor.service(), Sending: s.Sending.service(), Limits: s.Limits.service(), Retention: s.Retention.service(), Spam: s.Spam.service(), Simulator: s.Simulator.Enabled, ACME: s.acme(), BaseURL: s.PlannedURL(),
	}
	if s.Sandbox() {
		c.Hostname = sandboxHost
	}
	c.Nameservers = nameservers(c.Hostname, c.Secondaries)
	for i := range s.Destination {
		c.Destinations = append(c.Destinations, s.Destination[i].service())
	}
	for i := range s.Relay {
		c.Relays = append(c.Relays, s.Relay[i].service())
	}
	return c
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
	ClockOffset clockOffset `toml:"clock_offset"`
}

// ClockOffset returns how far the clock of the sandbox is ahead of the system clock. It may be
// negative.
func (s *Settings) ClockOffset() time.Duration { return s.SandboxTable.ClockOffset.d }

// simulatorSettings is the table [simulator]: whether addresses at simulator.HOSTNAME simulate
// recipients.
type simulatorSettings struct {
	Enabled bool `toml:"enabled"`
}

// metricsSettings is the table [metrics]: the token and the networks of clients that may read
// /metrics.
type metricsSettings struct {
	Token   string  `toml:"token"`
	Allowed netList `toml:"allowed_networks"`
}

// alertSettings is the table [alerts]: the URL to which alerts about this host are posted. The
// owner also gets them by email.
type alertSettings struct {
	URL httpURL `toml:"url"`
}

// sendingSettings is the table [sending]: the source addresses and the HELO name for direct
// delivery.
type sendingSettings struct {
	SourceIPv4 netip.Addr `toml:"source_ipv4"`
	SourceIPv6 netip.Addr `toml:"source_ipv6"`
	Helo       dnsName    `toml:"helo"`
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
	Blocklists    []dnsName  `toml:"blocklists"`
	Port25Targets []hostPort `toml:"port25_targets"`
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
	Endpoint collectorURL `toml:"endpoint"` // "" sends no traces
}

// retentionSettings is the table [retention]: how many days messages stay in Trash and Junk. 0
// means forever, and nil means defaultRetentionDays.
type retentionSettings struct {
	TrashDays *count `toml:"trash_days"`
	JunkDays  *count `toml:"junk_days"`
}

const defaultRetentionDays = 30

// service converts the settings to the type of the service.
func (r *retentionSettings) service() core.Retention {
	days := func(n *count) time.Duration {
		if n == nil {
			return defaultRetentionDays * 24 * time.Hour
		}
		return time.Duration(*n) * 24 * time.Hour
	}
	return core.Retention{Trash: days(r.TrashDays), Junk: days(r.JunkDays)}
}

// limitSettings is the table [limits]: limits of accounts, requests, recipients and connections.
type limitSettings struct {
	Plan               plan  `toml:"plan"`
	Domains            count `toml:"domains"`
	TeamUsers          count `toml:"team_users"`
	Mailboxes          count `toml:"mailboxes"`
	MailboxesPerDomain count `toml:"mailboxes_per_domain"`
	RatePerMinute      count `toml:"rate_per_minute"`
	BurstPerMinute     count `toml:"burst_per_minute"`

	RecipientsPerMailbox    count `toml:"recipients_per_mailbox_per_day"`
	RecipientsPerDomain     count `toml:"recipients_per_domain_per_day"`
	RecipientsPerAccount    count `toml:"recipients_per_account_per_day"`
	NewRecipientsPerMailbox count `toml:"new_recipients_per_mailbox_per_day"`
	NewRecipientsPerDomain  count `toml:"new_recipients_per_domain_per_day"`
	NewRecipientsPerAccount count `toml:"new_recipients_per_account_per_day"`

	// nil means the default, see Connections.
	ConnectionsPerAddress     *count `toml:"connections_per_address"`
	ConnectionsPerMailboxIMAP *count `toml:"connections_per_mailbox_imap"`
	ConnectionsPerMailboxSMTP *count `toml:"connections_per_mailbox_smtp"`
	ConnectionsPerAccount     *count `toml:"connections_per_account"`

	// Exempt has the client networks to which limits per address and per network do not apply.
	Exempt netList `toml:"exempt_networks"`
}

// service converts the settings to the type of the service. It fills in the defaults.
func (l *limitSettings) service() core.Limits {
	return core.Limits{
		Plan: cmp.Or(l.Plan.text, "startup"), Domains: int(cmp.Or(l.Domains, 500)), TeamUsers: int(cmp.Or(l.TeamUsers, 25)),
		Mailboxes: int(l.Mailboxes), MailboxesPerDomain: int(cmp.Or(l.MailboxesPerDomain, 100)),
		RatePerMinute: int(l.RatePerMinute), BurstPerMinute: int(l.BurstPerMinute),
		RecipientsPerMailbox: int(l.RecipientsPerMailbox), RecipientsPerDomain: int(l.RecipientsPerDomain), RecipientsPerAccount: int(l.RecipientsPerAccount),
		NewRecipientsPerMailbox: int(l.NewRecipientsPerMailbox), NewRecipientsPerDomain: int(l.NewRecipientsPerDomain),
		NewRecipientsPerAccount: int(l.NewRecipientsPerAccount),
	}
}

// ConnectionLimits are how many connections over SMTP and IMAP may be open at once. 0 means no
// limit.
type ConnectionLimits struct {
	PerAddress     int // before log-in, from one IPv4 address or IPv6 /64 to one listener
	PerMailboxIMAP int // after log-in
	PerMailboxSMTP int // after log-in
	PerAccount     int // after log-in, over both protocols
}

// Connections returns the limits of connections. It fills in the defaults.
func (l *limitSettings) Connections() ConnectionLimits {
	or := func(n *count, usual int) int {
		if n == nil {
			return usual
		}
		return int(*n)
	}
	return ConnectionLimits{
		PerAddress:     or(l.ConnectionsPerAddress, 50),
		PerMailboxIMAP: or(l.ConnectionsPerMailboxIMAP, 50),
		PerMailboxSMTP: or(l.ConnectionsPerMailboxSMTP, 20),
		PerAccount:     or(l.ConnectionsPerAccount, 2000),
	}
}

// reloadableSettings lists the settings that can change while the server runs, each between spaces.
const reloadableSettings = " log_level tls_cert tls_key "

// NeedRestart returns the names of the settings that differ between s and fresh and take effect
// only after a restart.
func (s *Settings) NeedRestart(fresh *Settings) []string {
	var out []string
	was, is := reflect.ValueOf(s).Elem(), reflect.ValueOf(fresh).Elem()
	for i := range was.NumField() {
		name, _, _ := strings.Cut(was.Type().Field(i).Tag.Get("toml"), ",")
		if name == "-" { // the setting dns has two fields, one of them for the table
			name = "dns"
		}
		// A change between certificate files and ACME needs a restart.
		needsRestart := !strings.Contains(reloadableSettings, " "+name+" ") || was.Field(i).IsZero() != is.Field(i).IsZero()
		if slices.Contains(out, name) {
			continue
		}
		if needsRestart && !reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()) {
			out = append(out, name)
		}
	}
	return out
}
