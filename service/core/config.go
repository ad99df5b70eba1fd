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
	"github.com/mailstead/mailstead/internal/otlp"
	"github.com/mailstead/mailstead/mail/dane"
	"github.com/mailstead/mailstead/mail/milter"
)

// clientHost is the host that our users' mail clients connect to.
func (c *Config) ClientName() string { return cmp.Or(c.ClientHost, c.Hostname) }

// RDAP asks registries about domains; *rdap.Client is one. The errors of package rdap say what it
// was told, any other that it was told nothing.
type RDAP interface {
	Domain(ctx context.Context, name string) (*rdap.Domain, error)
}

// Outbound is where mail to others goes unless its domain says otherwise; if it is captured, no
// domain does.
func (s *Core) Outbound() string {
	switch {
	case s.Config.Outbound != "":
		return s.Config.Outbound
	case len(s.Config.Relays) > 0:
		return ViaRelay
	}
	return ViaDirect
}

// check says what is wrong with the name of a relay that somebody chose.
func (s *Core) CheckRelay(name string) error {
	var names []string
	for _, relay := range s.Config.Relays {
		names = append(names, relay.Name)
	}
	if name == "" || slices.Contains(names, name) {
		return nil
	}
	if len(names) == 0 {
		return Invalid("relay", "not_found", "cannot be set: this installation has no relay; its operator can add one to mailstead.toml")
	}
	return Invalid("relay", "not_found", "must be one of %s, or null", strings.Join(names, ", "))
}

// Elsewhere gives the addresses of the nameservers that are not this host, by name.
func (c Config) Elsewhere() map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	for _, one := range c.Secondaries {
		if one.Nameserver != "" {
			out[one.Nameserver] = append(out[one.Nameserver], one.Addr.Addr())
		}
	}
	return out
}

// Config is what the operator decided.
type Config struct {
	Hostname     string   // this host's public name
	ClientHost   string   // what our users' mail clients connect to; "": Hostname
	Nameservers  []string // names of our own DNS servers
	PublicIPs    []netip.Addr
	Sandbox      bool
	BaseURL      string // how clients reach the API, without a trailing slash
	Outbound     string // capture, direct, relay; "" = relay where one is configured, else direct
	MXPort       int
	Relays       []Relay
	Destinations []Destination // beside the table of large operators
	Limits       Limits
	Retention    Retention
	Spam         Spam
	Simulator    bool                                // addresses at the SimulatorDomain play recipients
	Registrars   []registrar.Registrar               // the first one is asked for prices
	RDAP         RDAP                                // asked where no registrar answers; nil: nobody is
	Edge         func(token string) dnsprov.Provider // the edge provider, with an API token of an owner's; nil: there is none
	HTTPS        bool                                // this host serves HTTPS
	HTTPSPort    int                                 // where; 0: 443
	ACME         *ACME                               // nil: certificates come from files, or there are none
	Version      string
	Metrics      *Metrics     // nil: new ones
	Tracer       *otlp.Tracer // nil: there are no traces

	SMTPPort                     int    // where other servers bring mail; 0: nowhere
	SubmissionPort, IMAPPort     int    // what mail clients are told
	SMTPSecurity, IMAPSecurity   string // tls, starttls, none
	SubmissionBeside, IMAPBeside int    // ports that offer STARTTLS beside those with TLS from the start; 0: none
	DNSCheckInterval             time.Duration

	Doctor      Doctor
	AlertURL    string // where alerts about this host are posted; "": nowhere
	Sending     Sending
	Secondaries []builtin.Secondary // name servers elsewhere that copy our zones
	Catalog     string              // the name of the zone that lists the zones for them (RFC 9432); "": there is none

	Resolver     Resolver       // nil: the system's
	DANE         *dane.Resolver // looks up what DNSSEC vouches for; nil: nobody does
	LookupDS     LookupDS       // nil: nobody can be asked
	RootCAs      *x509.CertPool // nil: the system's
	WaitForRows  bool           // mail from outside is acknowledged when its rows are there, not before
	AllowPrivate bool           // tenants may name private and loopback addresses
	Log          *slog.Logger   // nil: slog.Default
}

// ACME says which certificate authority is asked for certificates (RFC 8555), and as whom.
type ACME struct {
	Directory string // URL
	Email     string // where it may write to; "" = nowhere
	EABKeyID  string // of an account that it knows from elsewhere; "" = none
	EABKey    []byte
	Host      bool // the host's own name gets a certificate too; else a file has it
}

// A Destination says how mail is sent to the hosts of one mail operator. What is nil is as it would
// be without it.
type Destination struct {
	Operator    string         // the registrable domain of its MX hosts
	Connections *int           // at a time; 0: any number
	PerMinute   *int           // messages; 0: any number
	Pause       *time.Duration // without any message after an answer that asks for less
	Relay       string         // the name of the relay that all mail for it takes; "": none
}

// A Relay is a provider that outgoing mail may go through.
type Relay struct {
	Name, Kind            string // kind: one of RelayKinds
	Host                  string
	Port                  int
	TLS                   string // starttls tls none
	Username, Password    string
	Region, TopicARN      string
	WebhookSecret         string
	NoDKIM                bool // what goes through it is not signed here
	IDPattern, IDTemplate string
	ReturnPath            string // sender, verp; "": as suits the kind
	AccessKeyFile         string // ses: an access key that makes the topic of its notices; "": TopicARN is one, or there are none
	SESURL                string // ses: where its API is asked instead of at its own address
	SNSURL                string // ses: where Amazon SNS is asked instead of at its own address
	// ControlHeaders are beginnings of header fields that the relay takes as commands, beside those
	// of its kind.
	ControlHeaders []string
}

// Sending is how mail leaves that goes straight to other hosts.
type Sending struct {
	IPv4, IPv6 netip.Addr // that it comes from; invalid: the system chooses
	Helo       string     // how this host names itself; "": its name
}

// Addresses are those that are set.
func (s Sending) Addresses() (out []netip.Addr) {
	for _, ip := range []netip.Addr{s.IPv4, s.IPv6} {
		if ip.IsValid() {
			out = append(out, ip)
		}
	}
	return out
}

// Doctor is what the checks of this host ask others.
type Doctor struct {
	Blocklists    []string // zones of lists that this host's addresses are looked up in
	Port25Targets []string // HOST:PORT of mail servers of others
}

// Retention is for how long messages stay in two folders; 0: for good.
type Retention struct{ Trash, Junk time.Duration }

// Limits are the installation's bounds on one account. Zero of Mailboxes means no bound.
type Limits struct {
	Plan               string
	Domains            int
	TeamUsers          int
	Mailboxes          int
	MailboxesPerDomain int
	RatePerMinute      int // 0: the plan's
	BurstPerMinute     int // 0: the plan's

	// How many recipients may be written to in a day (UTC), and how many of them that are new; 0:
	// any number.
	RecipientsPerMailbox, RecipientsPerDomain, RecipientsPerAccount          int
	NewRecipientsPerMailbox, NewRecipientsPerDomain, NewRecipientsPerAccount int
}

// SendingLimits are the limits on recipients that a new installation gets.
func SendingLimits() Limits {
	return Limits{
		RecipientsPerMailbox: 1_000, RecipientsPerDomain: 10_000, RecipientsPerAccount: 10_000,
		NewRecipientsPerMailbox: 200, NewRecipientsPerDomain: 2_000, NewRecipientsPerAccount: 2_000,
	}
}

// A Resolver answers every DNS look-up; *lookup.Client is one, and *net.Resolver.
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

// LookupDS looks up which keys the parent of a domain names. An error says that the look-up failed.
type LookupDS func(ctx context.Context, domain string) ([]dnsprov.DS, error)

// Spam is what the operator has decided about mail from outside. All but Reports and Classifier is
// off unless it is set.
type Spam struct {
	TrustedSealers []string       // domains whose ARC seals may stand for a DMARC pass
	Reports        bool           // aggregate reports are sent to domains that ask for them
	Milter         *milter.Client // a filter that is asked about every message
	DNSBL          []string       // zones of lists that a client's address is looked up in
	DNSBLJunk      bool           // who is listed gets into Junk; else refused
	Greylisting    bool           // unknown senders are told to come again
	FirstDelay     time.Duration  // unknown senders wait for so long
	Classifier     bool           // mail is classified by what people have moved into Junk
	JunkScore      float64        // from 0 to 1: from which on the classifier puts mail into Junk
}
