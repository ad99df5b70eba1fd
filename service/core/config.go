package core

import (
	"cmp"
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/dnsprov/rdap"
	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/dnsprov/scan"
	"github.com/mailstead/mailstead/internal/otlp"
	"github.com/mailstead/mailstead/mail/dane"
	"github.com/mailstead/mailstead/mail/milter"
)

// ClientName returns the host that users' mail clients connect to.
func (c *Config) ClientName() string { return cmp.Or(c.ClientHost, c.Hostname) }

// RDAP looks up domains in their registries; *rdap.Client implements it. An error of package rdap
// means that the registry has answered, any other error that it has not.
type RDAP interface {
	Domain(ctx context.Context, name string) (*rdap.Domain, error)
}

// Outbound returns the route of outgoing mail of domains that do not choose another route. If it is
// ViaCapture, domains cannot choose.
func (s *Core) Outbound() string {
	switch now := s.Settings(); {
	case now.Outbound != "":
		return now.Outbound
	case len(now.Relays) > 0:
		return ViaRelay
	}
	return ViaDirect
}

// CheckRelay returns an error if no relay has the name. "" is valid.
func (s *Core) CheckRelay(name string) error {
	var names []string
	for _, relay := range s.Settings().Relays {
		names = append(names, relay.Name)
	}
	if name == "" || slices.Contains(names, name) {
		return nil
	}
	if len(names) == 0 {
		return Invalid("relay", "not_found", "cannot be set: this installation has no relay; its operator can add one in the settings")
	}
	return Invalid("relay", "not_found", "must be one of %s, or null", strings.Join(names, ", "))
}

// OtherNameservers returns the addresses of nameservers other than this host, by name of the
// nameserver.
func (c Config) OtherNameservers() map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for _, one := range c.Secondaries {
		if one.Nameserver != "" {
			out[one.Nameserver] = append(out[one.Nameserver], one.Addr.Addr())
		}
	}
	return out
}

// IsOwnNameserver reports whether a name, in lower case and without the last dot, is that of one of
// this host's nameservers.
func (c Config) IsOwnNameserver(name string) bool { return slices.Contains(c.Nameservers, name) }

// AreOwnNameservers reports whether all of a domain's nameservers are this host's. It returns false
// if there are none.
func (c Config) AreOwnNameservers(names []string) bool {
	isOther := func(name string) bool { return !c.IsOwnNameserver(name) }
	return len(names) > 0 && !slices.ContainsFunc(names, isOther)
}

// Settings are the operator's settings that can change while the service runs. A value of this type
// is never changed once Core.Settings has returned it; see there.
type Settings struct {
	Outbound     string // one of capture, direct, relay; "": relay if one is configured, else direct
	Relays       []Relay
	Destinations []Destination // in addition to the built-in table of large mail operators
	Sending      Sending
	Limits       Limits
	Retention    Retention
	Spam         Spam
	Simulator    bool                  // addresses at the SimulatorDomain simulate recipients
	Registrars   []registrar.Registrar // the first one is asked for prices
	Doctor       Doctor
	AlertURL     string // URL to which alerts about this host are posted; "": none
	AlertGuarded bool   // AlertURL must have a public address, see Relay.Guarded
	Connections  ConnectionLimits
	LogLevel     slog.Level

	BackupEvery, FullBackupEvery time.Duration // time between two scheduled backups, and between two full ones
	DrillEvery                   time.Duration // time from the end of one drill to the next; 0: none are made by themselves

	Ignored []IgnoredSetting // settings in the store that do not hold
}

// An IgnoredSetting is a setting in the store that does not hold: it is invalid, or the settings
// file, a flag or an environment variable has another value.
type IgnoredSetting struct {
	Key string // a key, or the name of an entry such as relay."r1"
	Why string // for people: the end of a sentence
}

// ConnectionLimits are how many connections over SMTP and IMAP may be open at once. 0 means no
// limit.
type ConnectionLimits struct {
	PerAddress     int // before log-in, from one IPv4 address or IPv6 /64 to one listener
	PerMailboxIMAP int // after log-in
	PerMailboxSMTP int // after log-in
	PerAccount     int // after log-in, over both protocols
}

// DefaultDNSCheckInterval is the time between two checks of a domain, unless another is configured.
const DefaultDNSCheckInterval = time.Hour

// Config is the operator's configuration of the service. Settings are those that it starts with;
// afterwards Core.Settings has them, and those in Core.Config are empty.
type Config struct {
	Settings

	Hostname    string   // this host's public name
	ClientHost  string   // the host that users' mail clients connect to; "": Hostname
	Nameservers []string // names of this host's DNS servers
	PublicIPs   []netip.Addr
	Sandbox     bool
	BaseURL     string             // how clients reach the API, without a trailing slash
	MXPort      int                // port of other mail servers to which mail is sent directly
	RDAP        RDAP               // asked if no registrar answers; nil: no RDAP
	Scanner     Scanner            // reads zones from nameservers of others; nil: not possible
	ScanNew     bool               // domains are scanned when they are connected; without it only on request
	DNS         map[string]OpenDNS // the DNS providers at which records can be kept, by their name in dns_provider
	HTTPS       bool               // this host serves HTTPS
	HTTPSPort   int                // 0: 443
	ACME        *ACME              // nil: certificates come from files, or there are none
	Version     string
	Metrics     *Metrics     // nil: new ones are made
	Tracer      *otlp.Tracer // nil: no traces

	NoSignInLinks bool // the operator may make no links that sign in to other accounts

	SMTPPort                     int           // where other servers deliver mail; 0: no SMTP server
	SubmissionPort, IMAPPort     int           // ports shown to users of mail clients
	SMTPSecurity, IMAPSecurity   string        // one of tls, starttls, none
	SubmissionBeside, IMAPBeside int           // ports with STARTTLS in addition to those with implicit TLS; 0: none
	DNSCheckInterval             time.Duration // time between two checks of a domain; 0: DefaultDNSCheckInterval

	Secondaries []builtin.Secondary // other nameservers that copy this host's zones
	Catalog     string              // name of the catalog zone, which lists the zones for secondaries (RFC 9432); "": none

	Resolver     Resolver       // nil: the system's resolver
	DANE         *dane.Resolver // looks up records that DNSSEC protects; nil: no DANE
	LookupDS     LookupDS       // nil: not possible
	RootCAs      *x509.CertPool // nil: the system's
	WaitForRows  bool           // mail from outside is acknowledged only after its rows are written
	AllowPrivate bool           // tenants may use private and loopback addresses
	Log          *slog.Logger   // nil: slog.Default
}

// A Scanner reads zones from nameservers of others; *scan.Client implements it.
type Scanner interface {
	Find(ctx context.Context, domain string, names []string) (*scan.Servers, error)
	Parent(ctx context.Context, domain string) (*scan.Parent, error)
	Ask(ctx context.Context, s *scan.Servers, name, typ string) ([]dnsprov.Record, error)
	OwnTexts(ctx context.Context, s *scan.Servers, domain string, names ...string) (map[string][]string, error)
	Zone(ctx context.Context, s *scan.Servers, domain string, progress func(done, total int)) (*scan.Result, error)
}

// DNSAccess is what a DNS provider needs to let us change records of an owner.
type DNSAccess struct {
	Secrets map[string]string // by their field in the API, such as token
	Zones   []string          // the zones that may be changed; empty: the provider knows them
}

// OpenDNS returns a client of a DNS provider. It sends nothing. The error is a *dnsprov.FieldError.
type OpenDNS func(DNSAccess) (dnsprov.Provider, error)

// ACME configures the certificate authority that issues certificates (RFC 8555).
type ACME struct {
	Directory string // URL of the ACME directory
	Email     string // contact address for the authority; "": none
	EABKeyID  string // key ID of the external account binding (RFC 8555 section 7.3.4); "": none
	EABKey    []byte
	Host      bool // whether the host's own name gets a certificate too; otherwise it comes from a file
}

// A Destination configures how mail is sent to the hosts of one mail operator. A nil field keeps
// the default.
type Destination struct {
	Operator    string         // the registrable domain of its MX hosts
	Connections *int           // at the same time; 0: no limit
	PerMinute   *int           // messages; 0: no limit
	Pause       *time.Duration // how long sending stops after the operator asks to slow down
	Relay       string         // name of the relay for all mail to the operator; "": none
}

// A Relay is a provider through which outgoing mail can be sent.
type Relay struct {
	Name, Kind            string // Kind is one of RelayKinds
	Host                  string
	Port                  int
	TLS                   string // one of starttls, tls, none
	Username, Password    string
	Region, TopicARN      string
	WebhookSecret         string
	NoDKIM                bool // mail through it is not signed with DKIM here
	IDPattern, IDTemplate string
	ReturnPath            string // one of sender, verp; "": the default of the kind
	AccessKeyFile         string // ses: file with the access key that creates the SNS topic; "": TopicARN names an existing topic, or there is none
	SESURL                string // ses: URL of its API; "": the default
	SNSURL                string // ses: URL of Amazon SNS; "": the default
	// ControlHeaders are prefixes of header fields that the relay interprets as commands, in
	// addition to those of its kind.
	ControlHeaders []string
	// Guarded says that the relay was set by API, so that Core.Guard decides which addresses it may
	// have. Relays in the settings file may have any.
	Guarded bool
}

// Sending configures mail that goes out directly to other hosts.
type Sending struct {
	IPv4, IPv6 netip.Addr // source addresses; invalid: the system chooses
	Helo       string     // name in EHLO; "": Hostname
}

// Addresses returns the source addresses that are set.
func (s Sending) Addresses() (out []netip.Addr) {
	for _, ip := range []netip.Addr{s.IPv4, s.IPv6} {
		if ip.IsValid() {
			out = append(out, ip)
		}
	}
	return out
}

// Doctor configures the checks of this host that query other servers.
type Doctor struct {
	Blocklists    []string // zones of DNS block lists in which this host's addresses are looked up
	Port25Targets []string // HOST:PORT of other mail servers
	Guarded       bool     // Port25Targets must have public addresses, see Relay.Guarded
}

// Retention says how long things are kept that nobody deletes.
type Retention struct {
	Trash, Junk time.Duration // messages in Trash and Junk; 0: for ever
	Requests    time.Duration // rows of the request log; 0: no requests are recorded
}

// DefaultWarmupDays is how many days an account keeps warm-up mail in its folder unless it sets
// another number.
const DefaultWarmupDays = 7

// Limits are the installation's limits for one account. 0 for Mailboxes means no limit.
type Limits struct {
	Plan               string
	Domains            int
	TeamUsers          int
	Mailboxes          int
	MailboxesPerDomain int
	RatePerMinute      int // 0: the plan's rate
	BurstPerMinute     int // 0: the plan's burst

	// Maximum numbers of recipients, and of new recipients, per day (UTC); 0: no limit.
	RecipientsPerMailbox, RecipientsPerDomain, RecipientsPerAccount          int
	NewRecipientsPerMailbox, NewRecipientsPerDomain, NewRecipientsPerAccount int
}

// SendingLimits returns the default limits on recipients of a new installation.
func SendingLimits() Limits {
	return Limits{
		RecipientsPerMailbox: 1_000, RecipientsPerDomain: 10_000, RecipientsPerAccount: 10_000,
		NewRecipientsPerMailbox: 200, NewRecipientsPerDomain: 2_000, NewRecipientsPerAccount: 2_000,
	}
}

// A Resolver does every DNS lookup; *lookup.Client and *net.Resolver implement it.
type Resolver interface {
	LookupTXT(ctx context.Context, name string) ([]string, error)
	LookupMX(ctx context.Context, name string) ([]*net.MX, error)
	LookupNS(ctx context.Context, name string) ([]*net.NS, error)
	LookupCNAME(ctx context.Context, name string) (string, error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error)
	LookupAddr(ctx context.Context, addr string) ([]string, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// LookupDS looks up the DS records of a domain in its parent zone. An error means that the lookup
// failed.
type LookupDS func(ctx context.Context, domain string) ([]dnsprov.DS, error)

// Spam configures the filters for mail from outside. Everything but Reports and Classifier is off
// by default.
type Spam struct {
	TrustedSealers []string       // domains whose ARC seals can replace a DMARC pass
	Reports        bool           // send aggregate reports to domains that ask for them
	Milter         *milter.Client // a filter that checks every message; nil: none
	DNSBL          []string       // zones of DNS block lists in which a client's address is looked up
	DNSBLJunk      bool           // mail of listed clients goes to Junk; otherwise it is refused
	Greylisting    bool           // mail of unknown senders is first refused temporarily
	FirstDelay     time.Duration  // mail of unknown senders is delayed by this time
	Classifier     bool           // classify mail by what users have moved to Junk
	JunkScore      float64        // from 0 to 1: from this score on the classifier moves mail to Junk
}
