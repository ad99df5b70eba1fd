package store

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// What has become of the claim that a Domain is to its name.
const (
	ClaimProven  = ""        // the name is this account's alone; so is that of a domain from before there were claims
	ClaimOpen    = "open"    // to be proven; others may claim the name too
	ClaimLost    = "lost"    // another account has proven its claim
	ClaimExpired = "expired" // nothing proved it in time
)

// A Domain is a mail domain of an account, and the account's claim of the name. It is connected or
// bought; a job sets it up (keys, zone, delegation, checks) while Status says how far that has
// come; when it is complete it is checked by the clock; in the end a job deletes it with all that
// it has. Several accounts may claim a name, each once. A claim is open until something proves it:
// then it is proven, and the others are lost. What proves a claim is in docs/claims.md.
type Domain struct {
	ID           string // dom_…
	AccountID    string
	Name         string // ASCII, lower-case
	Claim        string // one of the Claim… constants
	ClaimedAt    time.Time
	ProvenAt     time.Time // zero: not proven, or before there were claims
	ProvenBy     string    // one of the DomainProvenBy… constants; "" before there were claims
	Status       string    // one of DomainPending to DomainDeleting
	StatusDetail string
	ErrorCode    string
	ErrorMessage string
	DNSProvider  string // one of the DomainProvider… constants
	Source       string // one of the DomainSource… constants
	Registrar    string
	ExpiresAt    time.Time
	AutoRenew    bool
	NSStatus     string    // one of the DomainNS… constants
	NSAwaited    time.Time // since when its setup waits for its delegation; zero: it does not
	DNSStatus    string    // one of the DomainDNS… constants

	DKIM         []DKIMKey // what signs outgoing mail; the RSA key comes first
	DMARC        string    // the override; "" for the default policy
	DMARCAt      time.Time
	RedirectURL  string
	RedirectCode int // 301, 302
	RedirectPath bool
	Forward      string // forward_address
	CatchAll     string
	SendingMode  string // one of the DomainSending… constants, or "" for what the installation does
	Relay        string // the name of the relay that its mail goes through; "" for the first one
	ListUnsub    bool   // what it sends offers to unsubscribe (RFC 8058)
	Tags         []string
	Notes        string
	JobID        string // the newest job about it
	CreatedTold  bool   // domain.created has fired

	EdgeToken   []byte            // the edge provider's API token, sealed
	EdgeRecords map[string]string // what we made at the edge provider: its ID of a record, and the record's purpose
	DNSSEC      *DNSSECKey        // what signs the zone that we serve; nil: it is not signed
	Challenges  []DNSChallenge    // texts for certificate authorities that are in the zone now

	Checks        []DNSCheck // of the newest look-up
	CheckedAt     time.Time  // of the newest look-up that was answered
	NextCheckAt   time.Time  // of the next one by the clock; zero: none is planned
	BadChecks     int        // in a row
	FailingSince  time.Time
	FailureTold   bool // domain.dns_failed has fired in this episode
	CurrentNS     []string
	CreatedAt     time.Time
	UpdatedAt     time.Time
	CompletedAt   time.Time
	ZoneChangedAt time.Time // when the records last changed, for the SOA serial

	SendingPaused *SendingPaused `json:",omitempty"` // nil: it may send
	Counting      *Counting      `json:",omitempty"` // since somebody resumed it
	TLSPolicy     string         `json:",omitempty"` // what its mail goes out over: required, or "" for what there is

	SendsElsewhere []SendingPlace `json:",omitempty"` // beside this server
}

// A SendingPlace is where mail of a domain comes from that another server sends for its owner.
type SendingPlace struct {
	Host     string `json:",omitempty"` // name, whose addresses it has; "": Network says which
	Network  string `json:",omitempty"` // in CIDR form
	Selector string // of the DKIM key that signs there
}

// TLSRequired is the TLSPolicy of a domain whose mail goes only to hosts with a valid certificate.
const TLSRequired = "required"

// States of a domain.
const (
	DomainPending    = "pending"             // a job waits to set it up
	DomainPendingNS  = "pending_ns"          // its owner must change the nameservers
	DomainPendingDNS = "pending_dns_records" // its owner must publish records
	DomainInProgress = "in_progress"         // a job sets it up
	DomainComplete   = "complete"
	DomainError      = "error"    // its setup or its claim has failed
	DomainDeleting   = "deleting" // a job deletes it
)

// Who serves a domain's DNS.
const (
	DomainProviderBuiltin    = "builtin"    // this server
	DomainProviderCloudflare = "cloudflare" // which is told what to serve, by an API token of the owner's
	DomainProviderManual     = "manual"     // somebody else; the owner enters the records there
	DomainProviderExternal   = "external"   // somebody else, and the mail is elsewhere too
)

// Where a domain comes from.
const (
	DomainSourceConnected  = "connected"  // its owner has it from somewhere else
	DomainSourceRegistered = "registered" // it was bought here
)

// Where a domain's nameservers stand.
const (
	DomainNSPending     = "pending"
	DomainNSVerified    = "verified"     // they are this server's
	DomainNSLost        = "lost"         // they were this server's once
	DomainNSNotRequired = "not_required" // somebody else serves its DNS
)

// How far a domain's records have come.
const (
	DomainDNSPending     = "pending"
	DomainDNSPropagating = "propagating" // some are found
	DomainDNSComplete    = "complete"
	DomainDNSFailed      = "failed"
)

// What has proven a domain's claim of its name.
const (
	DomainProvenByPurchase   = "registered" // the name was bought here
	DomainProvenByCloudflare = "cloudflare" // the token edits its zone
	DomainProvenByDKIM       = "dkim"       // the published record holds this claim's key
	DomainProvenByLogin      = "login"      // to a mailbox of it elsewhere
	DomainProvenByTXT        = "txt"        // a TXT record with the claim's text
	DomainProvenByDelegation = "delegation" // to this server, of a name that nobody else claims
	DomainProvenByOperator   = "operator"
)

// How a domain's mail goes out.
const (
	DomainSendingDirect = "direct" // to the MX hosts of its recipients
	DomainSendingRelay  = "relay"  // through a relay
)

// What the parent's DS records say of a signed zone.
const (
	DNSSECUnpublished = "unpublished" // there are none: the zone counts as unsigned
	DNSSECSecure      = "secure"
	DNSSECBogus       = "bogus" // they name other keys only: resolvers that validate take no answer
)

// Hosted tells whether the mail of a domain is here and live: mail from outside and from other
// domains here goes into its mailboxes, and what they send goes out in its name.
func (d *Domain) Hosted() bool {
	return d.Claim == ClaimProven && d.Status == DomainComplete && d.DNSProvider != DomainProviderExternal
}

// MaySend tells whether mailboxes of a domain may send. Those of an external one send through its
// own server, which knows whose the name is, so that its claim does not matter.
func (d *Domain) MaySend() bool {
	return d.Status == DomainComplete && (d.DNSProvider == DomainProviderExternal || d.Claim == ClaimProven)
}

// ClaimEnded tells whether a domain's claim was lost or has expired.
func (d *Domain) ClaimEnded() bool { return d.Claim == ClaimLost || d.Claim == ClaimExpired }

// RedirectsWWW tells whether the redirect of a domain is one of its www too. One to its own www
// leaves that name to the owner's web site.
func (d *Domain) RedirectsWWW() bool {
	if d.RedirectURL == "" {
		return false
	}
	u, err := url.Parse(d.RedirectURL)
	return err != nil || !strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), "www."+d.Name)
}

// Gone tells whether a domain is being deleted: it is not there for anybody but the job that
// deletes it.
func (d *Domain) Gone() bool { return d.Status == DomainDeleting }

// A DKIMKey is one signing key; the private half is sealed.
type DKIMKey struct {
	Selector string
	Sealed   []byte // PKCS#8 PEM, sealed under the master key
	Record   string // the TXT value
}

// A DNSSECKey is the one key that signs a zone (RFC 6781 section 3.1, combined signing key); the
// private half is sealed.
type DNSSECKey struct {
	Sealed []byte
	Public []byte // as in a DNSKEY record (RFC 6605 section 4)
	Status string // one of the DNSSEC… constants; "" before the DS records have been looked up
}

// A DNSChallenge is a text that proves to a certificate authority who holds a domain (RFC 8555
// section 8.4).
type DNSChallenge struct {
	Name  string // FQDN, lower-case, no trailing dot
	Value string
}

// A DNSCheck is what one look-up of a wanted record found.
type DNSCheck struct {
	Purpose, Type, Host, Expected, Actual, Error string
	Offer                                        string // what to publish in place of Expected, so that others' senders stay
	Priority                                     uint16
	Critical, Verified                           bool
}

// Domains keeps the domains of every account.
var (
	Domains = engine.NewTable("domain", func(d *Domain) string { return d.ID }).
		Watched(func(_ *engine.Tx, d *Domain) Change { return Change{Account: d.AccountID, ID: d.ID} }).Sealed((*Domain).secrets)
	// DomainByName finds the domain whose claim of the name is proven.
	DomainByName = Domains.Unique("name", func(d *Domain) string {
		if d.Claim != ClaimProven {
			return ""
		}
		return d.Name
	})
	// DomainsByName holds every claim of a name; its prefix is ClaimsKey.
	DomainsByName = Domains.Index(claimIndex, func(d *Domain) string { return ClaimsKey(d.Name) })
	// DomainOfAccount finds an account's claim of a name by OwnKey.
	DomainOfAccount  = Domains.Unique("own", func(d *Domain) string { return OwnKey(d.AccountID, d.Name) })
	DomainsByAccount = Domains.Index("account", func(d *Domain) string { return d.AccountID })
	// DomainsOpen holds the claims that are to be proven.
	DomainsOpen = Domains.Index("open", func(d *Domain) string {
		if d.Claim != ClaimOpen {
			return ""
		}
		return d.AccountID
	})
	// DomainsUnder holds each domain under its labels from the right, each with a dot behind it, so
	// that a domain and all that lie below it are neighbours; see TreeKey.
	DomainsUnder = Domains.Index("under", func(d *Domain) string { return TreeKey(d.Name) + "\x00" })
)

const claimIndex = "claim"

// ClaimsKey is the prefix of DomainsByName under which the claims of a name are.
func ClaimsKey(name string) string { return name + "\x00" }

// OwnKey is the key of DomainOfAccount.
func OwnKey(accountID, name string) string { return accountID + "\x00" + name }

// publicMail are domains in which anybody gets a mailbox, so that a log-in to one says nothing
// about the domain.
var publicMail = strings.Fields(`
	gmail.com googlemail.com outlook.com hotmail.com hotmail.co.uk hotmail.de hotmail.fr hotmail.it live.com live.co.uk live.de live.fr
	msn.com yahoo.com yahoo.co.uk yahoo.de yahoo.fr yahoo.it yahoo.es yahoo.co.in yahoo.co.jp yahoo.com.br ymail.com rocketmail.com
	aol.com icloud.com me.com mac.com gmx.de gmx.net gmx.at gmx.ch gmx.com web.de mail.com email.com t-online.de freenet.de
	orange.fr wanadoo.fr free.fr laposte.net sfr.fr libero.it virgilio.it tin.it alice.it uol.com.br bol.com.br terra.com.br
	mail.ru bk.ru inbox.ru list.ru yandex.ru yandex.com ya.ru rambler.ru ukr.net seznam.cz wp.pl o2.pl onet.pl interia.pl
	proton.me protonmail.com pm.me zoho.com fastmail.com hey.com tutanota.com posteo.de mailbox.org
	qq.com foxmail.com 163.com 126.com sina.com naver.com daum.net hanmail.net rediffmail.com
	comcast.net verizon.net att.net sbcglobal.net bellsouth.net cox.net btinternet.com sky.com virginmedia.com ntlworld.com bluewin.ch`)

// PublicMail tells whether the mailboxes of a domain are anybody's.
func PublicMail(domain string) bool { return slices.Contains(publicMail, domain) }

// TreeKey is a name with its labels in reverse, "com.example." for example.com: the prefix of
// DomainsUnder under which the name and all below it are.
func TreeKey(name string) string {
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "."
}

// A CustomRecord is a DNS record that a domain's owner added.
type CustomRecord struct {
	ID        string // rec_…
	DomainID  string
	Name      string // FQDN, lower-case, no trailing dot
	Type      string // TXT CNAME A AAAA
	Value     string
	TTL       int
	Status    string // one of the CustomRecord… constants; "" where the domain is not at Cloudflare
	Error     string
	CreatedAt time.Time
	UpdatedAt time.Time
}

// States of a custom record at Cloudflare.
const (
	CustomRecordActive  = "active"
	CustomRecordPending = "pending" // it is to be written there
	CustomRecordError   = "error"   // it was refused there
)

// CustomRecords keeps the records that owners added.
var (
	CustomRecords = engine.NewTable("custom_record", func(r *CustomRecord) string { return r.ID }).
			Watched(func(tx *engine.Tx, r *CustomRecord) Change {
			return Change{Account: accountOfDomain(tx, r.DomainID), ID: r.ID}
		})
	CustomRecordsByDomain = CustomRecords.Index("domain", func(r *CustomRecord) string { return r.DomainID })
)

// ZoneBaseID is the id of the one ZoneBase.
const ZoneBaseID = "zones"

// A ZoneBase is the version of what all zones have in common, such as the addresses of this host.
type ZoneBase struct {
	ID        string
	Digest    string    // of what they have in common
	Changes   uint32    // how often that has changed: each moves the serial of every zone on
	ChangedAt time.Time // when it last did
}

// ZoneBases holds the one ZoneBase, once there is one.
var ZoneBases = engine.NewTable("zone_base", func(b *ZoneBase) string { return b.ID })

// accountOfDomain is the account that a domain belongs to; "" where it is gone.
func accountOfDomain(tx *engine.Tx, id string) string {
	d, err := Domains.Read(tx, id)
	if err != nil {
		return ""
	}
	return d.AccountID
}

// A Purchase is the intent to buy a domain, and what came of it. It is written before the registrar
// is asked, and stays when the domain is deleted, so that nothing is bought twice.
type Purchase struct {
	ID          string // pur_…; the key of the order
	AccountID   string // "": it was deleted
	Domain      string // name
	Registrar   string
	Years       int
	MaxPrice    int64 // cents, of all years
	AutoRenew   bool
	State       string // one of the Purchase… constants
	RefusedCode string
	RefusedWhy  string
	TriedAt     time.Time
	Price       int64 // cents, paid; 0 where the registrar does not say
	CreatedAt   time.Time
	BoughtAt    time.Time
	ExpiresAt   time.Time
}

// States of a purchase.
const (
	PurchaseIntended = "intended" // the registrar has not been asked to sell
	PurchaseOrdering = "ordering" // it has been asked at TriedAt; what it did is not known
	PurchaseBought   = "bought"
	PurchaseRefused  = "refused" // nothing was bought, and nothing will be
)

// Stays tells whether a purchase is kept when its account is deleted, since money was paid or may
// have been.
func (p *Purchase) Stays() bool { return p.State == PurchaseBought || p.State == PurchaseOrdering }

// Purchases keeps them; of those that are not refused there is one for a name.
var (
	Purchases        = engine.NewTable("purchase", func(p *Purchase) string { return p.ID })
	PurchaseOfDomain = Purchases.Unique("domain", func(p *Purchase) string {
		if p.State == PurchaseRefused {
			return ""
		}
		return p.Domain
	})
)

// A PretendDomain is a name that the sandbox registrar has sold.
type PretendDomain struct {
	Name         string
	Key          string // of the order
	Price        int64  // cents
	AutoRenew    bool
	Nameservers  []string
	RegisteredAt time.Time
	ExpiresAt    time.Time
}

// PretendDomains are the books of the sandbox registrar.
var PretendDomains = engine.NewTable("pretend_domain", func(d *PretendDomain) string { return d.Name })

// HostCertificate is the id of the certificate of this host's own name.
const HostCertificate = "host"

// A Certificate is the TLS certificate of one set of names, and what is known of getting the next.
type Certificate struct {
	ID        string   // host, or the id of the domain that the names are of
	Directory string   // of the authority that all else here is about
	Names     []string // that the certificate is for; none while there is none
	Chain     [][]byte // DER, the leaf first
	Key       []byte   // PKCS#8, sealed
	NotBefore time.Time
	NotAfter  time.Time
	RenewAt   time.Time

	NextKey    []byte    // of the certificate after this one, PKCS#8, sealed; host only
	NextDigest []byte    // SHA-256 of its public half (SubjectPublicKeyInfo)
	NextSince  time.Time // it is in the DNS

	Order    CertificateOrder
	Refused  map[string]Refusal // names that the authority did not take, by name
	Failures int                // attempts in a row that came to nothing
	Error    string             // of the newest of them
	NextTry  time.Time          // after it; zero: whenever there is a need
	TriedAt  time.Time
}

// A CertificateOrder is one that was begun at the authority and has no end yet; it has no URL if
// there is none.
type CertificateOrder struct {
	URL     string
	Names   []string
	Key     []byte // of the certificate, PKCS#8, sealed
	BegunAt time.Time
}

// A Refusal is a name that a certificate authority did not take.
type Refusal struct {
	Why   string
	Times int // in a row
	At    time.Time
}

// Certificates keeps them.
var Certificates = engine.NewTable("certificate", func(c *Certificate) string { return c.ID }).Sealed((*Certificate).secrets)

// A CertificateAccount is ours at a certificate authority.
type CertificateAccount struct {
	Directory string // URL of the authority's directory
	Key       []byte // PKCS#8, sealed
	URL       string // the authority's name for the account; "" until it is registered
	CreatedAt time.Time
}

// CertificateAccounts keeps them under the authority's directory.
var CertificateAccounts = engine.NewTable("certificate_account", func(a *CertificateAccount) string { return a.Directory }).
	Sealed((*CertificateAccount).secrets)
