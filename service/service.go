// Package service decides: every rule of Mailstead stands here once, one file per noun. It does not
// know who is asking, over HTTP, SMTP, IMAP or DNS, nor how records are laid out on disk.
package service

import (
	"context"
	"crypto/x509"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/dnsprov/registrar"
	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/dane"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/webhooks"
)

// Config is what the operator decided.
type Config struct {
	Hostname    string   // this host's public name
	ClientHost  string   // what our users' mail clients connect to; "": Hostname
	Nameservers []string // names of our own DNS servers
	PublicIPs   []netip.Addr
	Sandbox     bool
	BaseURL     string // how clients reach the API, without a trailing slash
	Outbound    string // capture, direct, relay; "" = relay where one is configured, else direct
	MXPort      int
	Relays      []Relay
	Limits      Limits
	Spam        Spam
	Registrars  []registrar.Registrar               // the first one is asked for prices
	RDAP        RDAP                                // asked where no registrar answers; nil: nobody is
	Edge        func(token string) dnsprov.Provider // the edge provider, with an API token of an owner's; nil: there is none
	HTTPS       bool                                // this host serves HTTPS
	HTTPSPort   int                                 // where; 0: 443
	ACME        *ACME                               // nil: certificates come from files, or there are none
	Version     string

	SMTPPort                     int    // where other servers bring mail; 0: nowhere
	SubmissionPort, IMAPPort     int    // what mail clients are told
	SMTPSecurity, IMAPSecurity   string // tls, starttls, none
	SubmissionBeside, IMAPBeside int    // ports that offer STARTTLS beside those with TLS from the start; 0: none
	DNSCheckInterval             time.Duration

	Secondaries []builtin.Secondary // name servers elsewhere that copy our zones
	Catalog     string              // the name of the zone that lists the zones for them (RFC 9432); "": there is none

	Resolver     Resolver       // nil: the system's
	DANE         *dane.Resolver // looks up what DNSSEC vouches for; nil: nobody does
	LookupDS     LookupDS       // nil: nobody can be asked
	RootCAs      *x509.CertPool // nil: the system's
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
	SNSURL                string // ses: where Amazon SNS is asked instead of at its own address
	// ControlHeaders are beginnings of header fields that the relay takes as commands, beside those
	// of its kind.
	ControlHeaders []string
}

// Limits are the installation's bounds on one account. Zero of Mailboxes means no bound.
type Limits struct {
	Plan               string
	Domains            int
	TeamUsers          int
	Mailboxes          int
	MailboxesPerDomain int
	RatePerMinute      int // 0: the plan's
	BurstPerMinute     int // 0: the plan's
}

// A Resolver answers every DNS look-up; *net.Resolver is one.
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

// A Service holds what every rule needs.
type Service struct {
	Store    *store.Store
	Queue    *jobs.Queue
	Config   Config
	Resolver Resolver
	Guard    *netguard.Guard // which addresses tenants may make us dial
	Log      *slog.Logger
	Rand     func() float64 // [0,1), for jitter

	keys          *Keys
	logins        *logins
	guesses       *guesses
	confirmations *confirmations
	codes         *throttle // wrong codes of the second factor, by user
	spent         *throttle // challenges that passkeys have answered
	forgotten     *throttle // questions for a new password, by address and network
	refreshes     *throttle // of external mailboxes, by account
	firstCopy     string    // an id of the time when this process began
	folderChanges *throttle // commands that changed folders, by mailbox
	hub           *hub
	feeds         *feeds
	uses          uses
	poster        *webhooks.Poster
	zones         *zones
	certs         *certificates
	looks         chan struct{} // one place for each live look at a domain's DNS
	reverse       reverse

	screener    *screener
	textDamaged chan struct{} // holds a value when the index for searches is to be made anew

	edgeTurns turns // of the domains at the edge provider

	relays    relays
	signer    *signer
	externals *externals      // mailboxes that live elsewhere
	direct    *deliver.Client // to hosts that strangers name
	relayed   *deliver.Client // to the operator's relays
	plain     *deliver.Client // to servers without TLS that tenants name
	forwards  *forwards

	paces    *paces
	policies *policies
	reports  *http.Client // posts reports on TLS to hosts that strangers name
	images   *images
}

// New puts a service together, and registers every kind of job with the queue.
func New(st *store.Store, q *jobs.Queue, keys *Keys, c Config) *Service {
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	guard := &netguard.Guard{AllowPrivate: c.AllowPrivate}
	s := &Service{
		Store: st, Queue: q, Config: c, Resolver: c.Resolver, Guard: guard, Log: c.Log, Rand: rand.Float64,
		keys: keys, logins: newLogins(), guesses: newGuesses(), confirmations: newConfirmations(), codes: newThrottle(codeWindow, guessKeys), spent: newThrottle(2*challengeFor, guessKeys),
		forgotten: newThrottle(forgotWindow, guessKeys), folderChanges: newThrottle(time.Minute, guessKeys), refreshes: newThrottle(refreshPause, guessKeys), firstCopy: st.NewID("cpy"), hub: newHub(), feeds: newFeeds(st),
		zones: newZones(c), certs: newCertificates(st.Now), looks: make(chan struct{}, looksAtOnce), edgeTurns: turns{held: map[string]chan struct{}{}},
		poster: &webhooks.Poster{Guard: guard, Resolver: c.Resolver, RootCAs: c.RootCAs, Now: st.Now},
	}
	s.relays, s.signer = newRelays(c.Relays, c.Log), newSigner(keys)
	s.textDamaged = make(chan struct{}, 1)
	s.zones.others = s.newSecondaries()
	s.paces, s.forwards = newPaces(st.Now), newForwards()
	s.policies, s.reports = newPolicies(s), s.newReportHTTP()
	s.images = s.newImages()
	s.screener = newScreener(c.Resolver, st.Now)
	s.newClients()
	s.newReaders()
	s.externals = newExternals(s)
	s.register()
	return s
}

// Close ends the connections that are kept for later. The queue must have stopped.
func (s *Service) Close() {
	s.poster.Close()
	s.images.http.CloseIdleConnections()
	_ = s.direct.Close() // ends idle connections; there is nothing to lose
	_ = s.relayed.Close()
	_ = s.plain.Close()
}

func (s *Service) now() time.Time { return s.Store.Now() }
