package store

import (
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// Values of Domain.Claim.
const (
	ClaimProven  = ""        // only this account may use the name; also for domains that are older than claims
	ClaimOpen    = "open"    // not proven yet; other accounts may claim the name too
	ClaimLost    = "lost"    // another account has proven its claim
	ClaimExpired = "expired" // it was not proven in time
)

// A Domain is a mail domain of an account, and the account's claim of the name. The owner connected
// it or bought it here. A job sets it up (keys, zone, delegation, checks), and Status says how far
// the setup is. A complete domain is checked periodically. A job deletes the domain with everything
// that belongs to it. Several accounts may claim a name, each once. A claim is open until it is
// proven; then the claims of the other accounts are lost. docs/claims.md says how a claim is
// proven.
type Domain struct {
	ID           string // dom_…
	AccountID    string
	Name         string // ASCII, lower-case
	Claim        string // one of the Claim… constants
	ClaimedAt    time.Time
	ProvenAt     time.Time // zero: not proven, or older than claims
	ProvenBy     string    // one of the DomainProvenBy… constants; "": not proven, or older than claims
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
	NSAwaited    time.Time // when it began to wait for its nameservers or records; zero: it does not wait
	DNSStatus    string    // one of the DomainDNS… constants

	DKIM         []DKIMKey // keys that sign outgoing mail; the RSA key comes first
	DMARC        string    // the policy that overrides the default; "" for the default
	DMARCAt      time.Time
	RedirectURL  string
	RedirectCode int // 301, 302
	RedirectPath bool
	Forward      string // forward_address in the API: gets mail for unknown addresses if CatchAll is ""
	CatchAll     string // catch_all in the API: gets mail for unknown addresses; "": none
	SendingMode  string // one of the DomainSending… constants, or "" for the installation's default
	Relay        string // the name of the relay for its mail; "" for the first relay
	ListUnsub    bool   // its messages offer one-click unsubscription (RFC 8058)
	Tags         []string
	Notes        string
	JobID        string // the newest job about it
	CreatedTold  bool   // whether the event domain.created was sent

	EdgeToken   []byte            // the edge provider's API token, sealed
	EdgeError   string            `json:",omitempty"` // why its records could not be written at the edge provider; "": they could
	EdgeErrorAt time.Time         `json:",omitzero"`  // when EdgeError was set
	EdgeRecords map[string]string `json:",omitempty"` // only in stores before format 9: what EdgeRecord rows have now
	DNSSEC      *DNSSECKey        // the key that signs the zone that we serve; nil: the zone is not signed
	Challenges  []DNSChallenge    // ACME challenges that are in the zone now

	Checks        []DNSCheck // results of the newest DNS lookup
	CheckedAt     time.Time  // time of the newest lookup that was answered
	NextCheckAt   time.Time  // time of the next periodic check, or of the next look while it waits; zero: none is planned
	BadChecks     int        // failed checks in a row
	FailingSince  time.Time
	FailureTold   bool // the event domain.dns_failed was sent since FailingSince
	CurrentNS     []string
	CreatedAt     time.Time
	UpdatedAt     time.Time
	CompletedAt   time.Time
	ZoneChangedAt time.Time // when the records last changed, for the SOA serial

	SendingPaused *SendingPaused `json:",omitempty"` // nil: it may send
	Counting      *CountingStart `json:",omitempty"` // nil: nobody has resumed its sending yet
	TLSPolicy     string         `json:",omitempty"` // required, or "" for opportunistic TLS

	SendsElsewhere []SendingPlace `json:",omitempty"` // servers other than this one that send its mail

	SPF             *DomainSPF       `json:",omitempty"` // what the owner adds to the SPF record; nil: nothing
	ZoneGeneration  uint64           `json:",omitempty"` // number of the newest change of its custom records, see CustomRecord
	ZoneStaged      bool             `json:",omitempty"` // a change that takes several transactions has begun and not ended
	DNSCredentialID string           `json:",omitempty"` // the credential for its DNS provider; "": EdgeToken, or none is needed
	Move            *DomainMove      `json:",omitempty"` // nil: it stays at its DNS provider
	EdgePlace       uint32           `json:",omitempty"` // the EdgeRecord.Place of its DNS provider
	EdgePlaces      uint32           `json:",omitempty"` // the highest place that was given
	Replace         bool             `json:",omitempty"` // mail records of others at its DNS provider are to be replaced, once
	Replaced        []ReplacedRecord `json:",omitempty"` // the records of others that were replaced, in the order in which they were found
	ReplaceDMARC    bool             `json:",omitempty"` // the DMARC record of others at its DNS provider is to be replaced, once
	ForeignDMARC    string           `json:",omitempty"` // the DMARC record of others at its DNS provider, when it was last read; "": there is none
	ForeignMX       []MXRecord       `json:",omitempty"` // MX records of others that are in the place of ours at its DNS provider, when it was last read
	EdgeRemains     string           `json:",omitempty"` // what could not be deleted at its DNS provider, for people; "": its deletion has not given up
	Apex            *DomainApex      `json:",omitempty"` // where visitors of its bare name go; nil: it is older than the choice, see ApexMode
	MX              *DomainMX        `json:",omitempty"` // where its mail goes; nil: here

	ScanJobID  string      `json:",omitempty"` // the newest job that scans its zone at the nameservers of others; "": none
	ScanAt     time.Time   `json:",omitzero"`  // when that job was queued
	PreviousNS *PreviousNS `json:",omitempty"` // the nameservers of others that it had when it was last scanned; nil: none are known
	ForeignDS  *ForeignDS  `json:",omitempty"` // nil: the parent zone has had no DS record but ours
	Delegation *Delegation `json:",omitempty"` // what the parent zone has had for it at the last look; nil: there was none
}

// A Delegation is what the parent zone of a domain has for it.
type Delegation struct {
	Nameservers []string      // lower-case, no trailing dot, sorted; empty: it is not delegated
	DS          []string      `json:",omitempty"` // in zone file format, sorted
	TTL         time.Duration `json:",omitempty"` // of the NS records; 0: the servers of the parent zone did not answer, and a resolver told the others
	LookedAt    time.Time
}

// PreviousNS is the nameservers of others that a domain has, or had before it was delegated to us.
type PreviousNS struct {
	Names []string // lower-case, no trailing dot
	Addrs []string // IP addresses, since names in the domain itself may have none after the change
}

// ForeignDS is what is known of DS records in the parent zone that are only for keys of others.
type ForeignDS struct {
	TTL   time.Duration // how long resolvers keep them
	Until time.Time     // until when a resolver may have one
}

// A DomainApex says where visitors of the bare name of a domain go. Its addresses elsewhere are the
// custom A and AAAA records of that name, except at a manual domain.
type DomainApex struct {
	Mode      string   // one of the Apex… constants
	Chosen    bool     `json:",omitempty"` // the owner has chosen the mode, so it does not follow from what is found
	Given     bool     `json:",omitempty"` // the owner has given the addresses or the alias, so they are not looked for
	Found     []string `json:",omitempty"` // the addresses that were found at the old nameservers, in the order of their answer
	Addresses []string `json:",omitempty"` // the addresses of the owner's website; but for a manual domain, the values of custom records
	Alias     string   `json:",omitempty"` // host name whose addresses the bare name has; lower-case, no trailing dot

	AliasAddresses []string  `json:",omitempty"` // the addresses of Alias that are served, sorted
	AliasSeenAt    time.Time `json:",omitzero"`  // when a lookup last found these, or that there are none, to the hour
	AliasChangedAt time.Time `json:",omitzero"`  // when AliasAddresses last changed
}

// Values of DomainApex.Mode.
const (
	ApexHere      = "here"      // to this host, which redirects them
	ApexElsewhere = "elsewhere" // to the owner's website
	ApexUndecided = "undecided" // the nameservers of the domain have not answered yet
)

// A DomainMX says where the mail of a domain goes.
type DomainMX struct {
	Mode    string     // one of the MX… constants
	Found   bool       `json:",omitempty"` // the old nameservers have told Records
	Records []MXRecord `json:",omitempty"` // the MX records of elsewhere, the most preferred first
}

// An MXRecord is one MX record of another server.
type MXRecord struct {
	Host     string // lower-case, no trailing dot
	Priority uint16
	TTL      uint32 // seconds
}

// Values of DomainMX.Mode.
const (
	MXHere      = "here"      // to this host
	MXElsewhere = "elsewhere" // to other servers still; the domain is not complete before it comes here
)

// A DomainMove is a DNS provider to which a domain moves when its records are there.
type DomainMove struct {
	Provider     string // one of the DomainProvider… constants
	CredentialID string
	Place        uint32 // the EdgeRecord.Place there
	CopyRecords  bool   // the rows of Domain.EdgePlace are yet to be copied to Place, since both may be one zone
}

// An EdgeRecord notes that we made a record at a DNS provider by API.
type EdgeRecord struct {
	DomainID string
	Place    uint32 // a number for each DNS provider that the domain has, or moves to
	RecordID string // the provider's id of the record
	Purpose  string // why the domain needs the record
}

// EdgeRecords keeps the records that we made at DNS providers by API.
var EdgeRecords = engine.NewTable("edge_record", func(r *EdgeRecord) string { return EdgeRecordKey(r.DomainID, r.Place, r.RecordID) })

// EdgeRecordKey returns the key of a row in EdgeRecords.
func EdgeRecordKey(domainID string, place uint32, recordID string) string {
	return fmt.Sprintf("%s\x00%08x.%s", domainID, place, recordID)
}

// EdgeRecordsOf iterates over the rows in EdgeRecords of a domain, ordered by place.
func EdgeRecordsOf(tx engine.Transaction, domainID string) iter.Seq[*EdgeRecord] {
	return func(yield func(*EdgeRecord) bool) {
		for r := range EdgeRecords.After(tx, domainID+"\x00") {
			if r.DomainID != domainID || !yield(r) {
				return
			}
		}
	}
}

// A ReplacedRecord is a record of somebody else that we have replaced.
type ReplacedRecord struct {
	Name     string // FQDN, lower-case, no trailing dot
	Type     string
	Value    string // as dnsprov.Record.Value
	Priority uint16 // of an MX
	TTL      uint32
}

// A DomainSPF is what the owner of a domain adds to its SPF record.
type DomainSPF struct {
	Extra []string // terms that come after ours, in order
	All   string   // one of the SPF… constants
}

// Values of DomainSPF.All: the qualifier of the term "all", for senders that no term permits.
const (
	SPFSoftFail = "~"
	SPFFail     = "-"
)

// A SendingPlace is another server that sends mail of a domain for its owner.
type SendingPlace struct {
	Host     string `json:",omitempty"` // host name, which stands for its addresses; "": see Network
	Network  string `json:",omitempty"` // in CIDR form
	Selector string // DKIM selector of the key that signs there
}

// TLSRequired is the TLSPolicy of a domain that sends mail only to hosts with a valid certificate.
const TLSRequired = "required"

// Values of Domain.Status.
const (
	DomainPending    = "pending"             // a job to set it up is queued
	DomainPendingNS  = "pending_ns"          // its owner must change the nameservers
	DomainPendingDNS = "pending_dns_records" // its owner must publish records
	DomainInProgress = "in_progress"         // a job is setting it up
	DomainComplete   = "complete"
	DomainError      = "error"    // its setup or its claim has failed
	DomainDeleting   = "deleting" // a job is deleting it
)

// Values of Domain.DNSProvider: who serves the DNS of the domain.
const (
	DomainProviderBuiltin    = "builtin"    // this server
	DomainProviderCloudflare = "cloudflare" // Cloudflare; we write the records with an API token of the owner
	DomainProviderRFC2136    = "rfc2136"    // a nameserver of the owner; we write the records by dynamic updates (RFC 2136)
	DomainProviderRoute53    = "route53"    // Amazon Route 53; as at Cloudflare, with an access key
	DomainProviderHetzner    = "hetzner"    // Hetzner; as at Cloudflare
	DomainProviderDeSEC      = "desec"      // deSEC; as at Cloudflare
	DomainProviderManual     = "manual"     // somebody else; the owner enters the records there
	DomainProviderExternal   = "external"   // somebody else, and the mailboxes are on another server too
)

// Values of Domain.Source: where the domain comes from.
const (
	DomainSourceConnected  = "connected"  // its owner got it elsewhere
	DomainSourceRegistered = "registered" // it was bought here
)

// Values of Domain.NSStatus: the state of the domain's nameservers.
const (
	DomainNSPending     = "pending"
	DomainNSVerified    = "verified"     // the nameservers are this server's
	DomainNSLost        = "lost"         // the nameservers were this server's before
	DomainNSNotRequired = "not_required" // somebody else serves its DNS
)

// Values of Domain.DNSStatus: the state of the domain's records.
const (
	DomainDNSPending     = "pending"
	DomainDNSPropagating = "propagating" // some of the records were found
	DomainDNSComplete    = "complete"
	DomainDNSFailed      = "failed"
)

// Values of Domain.ProvenBy: how the claim of the name was proven.
const (
	DomainProvenByPurchase   = "registered" // the name was bought here
	DomainProvenByCloudflare = "cloudflare" // the API token can edit the zone
	DomainProvenByDKIM       = "dkim"       // the published record holds this claim's key
	DomainProvenByLogin      = "login"      // somebody logged in to a mailbox of the domain on another server
	DomainProvenByTXT        = "txt"        // a TXT record with the claim's text
	DomainProvenByDelegation = "delegation" // the name was delegated to this server while nobody else claimed it
	DomainProvenByOperator   = "operator"
)

// Values of Domain.SendingMode: how the domain's mail is sent.
const (
	DomainSendingDirect = "direct" // to the MX hosts of its recipients
	DomainSendingRelay  = "relay"  // through a relay
)

// Values of DNSSECKey.Status: what the DS records in the parent zone say about a signed zone.
const (
	DNSSECUnpublished = "unpublished" // there are no DS records, so resolvers treat the zone as unsigned
	DNSSECSecure      = "secure"
	DNSSECBogus       = "bogus" // the DS records are only for other keys, so validating resolvers accept no answer
)

// Hosted reports whether the mail of a domain is delivered here. Then mail from outside and from
// other domains here goes into the mailboxes of the domain, and these send in its name.
func (d *Domain) Hosted() bool {
	return d.Claim == ClaimProven && d.Status == DomainComplete && d.DNSProvider != DomainProviderExternal
}

// MaySend reports whether the mailboxes of a domain may send. The claim does not matter for an
// external domain: its mailboxes send through its own server, which knows who owns the name.
func (d *Domain) MaySend() bool {
	return d.Status == DomainComplete && (d.DNSProvider == DomainProviderExternal || d.Claim == ClaimProven)
}

// ClaimEnded reports whether a domain's claim was lost or has expired.
func (d *Domain) ClaimEnded() bool { return d.Claim == ClaimLost || d.Claim == ClaimExpired }

// AtEdge reports whether the records of a domain are kept at a DNS provider that somebody else
// runs, where we write them.
func (d *Domain) AtEdge() bool { return IsEdge(d.DNSProvider) }

// IsEdge reports whether we write records at a DNS provider that somebody else runs.
func IsEdge(provider string) bool {
	switch provider {
	case DomainProviderCloudflare, DomainProviderRFC2136, DomainProviderRoute53, DomainProviderHetzner, DomainProviderDeSEC:
		return true
	}
	return false
}

// ApexMode returns where visitors of the bare name of a domain go: one of the Apex… constants, or
// "" for an external domain. For a domain from before there was a choice it follows from the
// records that such a domain has.
func (d *Domain) ApexMode() string {
	switch {
	case d.DNSProvider == DomainProviderExternal:
		return ""
	case d.Apex != nil:
		return d.Apex.Mode
	case d.AtEdge() && d.RedirectURL == "":
		return ApexElsewhere
	}
	return ApexHere
}

// MXMode returns where the mail of a domain goes: one of the MX… constants.
func (d *Domain) MXMode() string {
	if d.MX == nil {
		return MXHere
	}
	return d.MX.Mode
}

// RedirectsWWW reports whether the redirect of a domain covers its www name too. It does not if the
// redirect leads to the www name: then that name belongs to the owner's website.
func (d *Domain) RedirectsWWW() bool {
	if d.RedirectURL == "" {
		return false
	}
	u, err := url.Parse(d.RedirectURL)
	return err != nil || !strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), "www."+d.Name)
}

// Troubled reports whether the row of a domain says that its owner should do something: its setup
// has failed or waits for the owner, or its DNS is wrong.
func (d *Domain) Troubled() bool {
	switch d.Status {
	case DomainPendingNS, DomainPendingDNS, DomainError:
		return true
	case DomainComplete:
		return d.DNSProvider != DomainProviderExternal && !d.CheckedAt.IsZero() &&
			(d.NSStatus == DomainNSLost || len(d.ForeignMX) > 0 || d.BadChecks >= DomainFailing || slices.ContainsFunc(d.Checks, DNSCheck.Wrong))
	}
	return false
}

// DomainFailing is the number of bad checks in a row from which on a domain is failing.
const DomainFailing = 2

// Gone reports whether a domain is being deleted: only the job that deletes it may see it.
func (d *Domain) Gone() bool { return d.Status == DomainDeleting }

// A DKIMKey is one signing key of a domain; the private half is sealed.
type DKIMKey struct {
	Selector string
	Sealed   []byte // PKCS#8 PEM, sealed under the master key
	Record   string // value of the TXT record
}

// A DNSSECKey is the one key that signs a zone (RFC 6781 section 3.1, combined signing key); the
// private half is sealed.
type DNSSECKey struct {
	Sealed []byte
	Public []byte // as in a DNSKEY record (RFC 6605 section 4)
	Status string // one of the DNSSEC… constants; "" before the DS records have been looked up
}

// A DNSChallenge is a text in the DNS that proves control of a domain to a certificate authority
// (RFC 8555 section 8.4).
type DNSChallenge struct {
	Name  string // FQDN, lower-case, no trailing dot
	Value string
}

// A DNSCheck is the result of looking up one wanted record.
type DNSCheck struct {
	Purpose, Type, Host, Expected, Actual, Error string
	Offer                                        string // value to publish instead of Expected, so that the owner's other mail servers still pass
	Priority                                     uint16
	Critical, Verified                           bool
}

// CheckUnanswered is the DNSCheck.Error of a record whose lookup failed.
const CheckUnanswered = "lookup_failed"

// Wrong reports whether a record that mail needs, or the DMARC record, was found missing or wrong.
func (c DNSCheck) Wrong() bool {
	return !c.Verified && c.Error != CheckUnanswered && (c.Critical || c.Purpose == "DMARC")
}

// Domains keeps the domains of every account.
var (
	Domains = engine.NewTable("domain", func(d *Domain) string { return d.ID }).
		Watched(func(_ *engine.Tx, d *Domain) Change { return Change{Account: d.AccountID, ID: d.ID} }).Sealed((*Domain).visitSecrets)
	// DomainByName finds the domain with a name. Of several, it finds the one whose claim is
	// proven.
	DomainByName = Domains.Unique("name", func(d *Domain) string {
		if d.Claim != ClaimProven {
			return ""
		}
		return d.Name
	})
	// DomainsByName holds every claim of a name. ClaimsKey returns the prefix of its keys.
	DomainsByName = Domains.Index(claimIndex, func(d *Domain) string { return ClaimsKey(d.Name) })
	// DomainOfAccount finds an account's claim of a name. AccountDomainKey returns its keys.
	DomainOfAccount  = Domains.Unique("own", func(d *Domain) string { return AccountDomainKey(d.AccountID, d.Name) })
	DomainsByAccount = Domains.Index("account", func(d *Domain) string { return d.AccountID })
	// DomainsByTrouble holds the domains of an account, those that are in trouble after the others.
	// TroubleKey returns the prefix of their keys.
	DomainsByTrouble = Domains.Index("trouble", func(d *Domain) string { return TroubleKey(d.AccountID, d.Troubled()) })
	// DomainsOpen holds the claims that are not proven yet.
	DomainsOpen = Domains.Index("open", func(d *Domain) string {
		if d.Claim != ClaimOpen {
			return ""
		}
		return d.AccountID
	})
	// DomainsStaged holds the domains with a change of their zone that has not ended.
	DomainsStaged = Domains.Index("staged", func(d *Domain) string {
		if !d.ZoneStaged {
			return ""
		}
		return "staged"
	})
	// DomainsByDNSCredential holds the domains that use a credential for their DNS provider.
	DomainsByDNSCredential = Domains.Index("dns_credential", func(d *Domain) string { return d.DNSCredentialID })
	// DomainsByDNSMove holds the domains that move to a DNS provider, by the credential for that.
	DomainsByDNSMove = Domains.Index("dns_move", func(d *Domain) string {
		if d.Move == nil {
			return ""
		}
		return d.Move.CredentialID
	})
	// DomainsUnder holds each domain under its labels in reverse order, each followed by a dot. So
	// a domain and all domains below it are adjacent; see ReverseLabels.
	DomainsUnder = Domains.Index("under", func(d *Domain) string { return ReverseLabels(d.Name) + "\x00" })
)

const claimIndex = "claim"

// ClaimsKey returns the prefix of the keys in DomainsByName of all claims of a name.
func ClaimsKey(name string) string { return name + "\x00" }

// TroubleKey returns the prefix of the keys in DomainsByTrouble of an account's domains that are in
// trouble, or of the others.
func TroubleKey(accountID string, troubled bool) string {
	if troubled {
		return accountID + "1"
	}
	return accountID + "0"
}

// AccountDomainKey returns the key in the index DomainOfAccount for an account's claim to a name.
func AccountDomainKey(accountID, name string) string { return accountID + "\x00" + name }

// publicMailDomains lists domains in which anybody can get a mailbox, so that a log-in to a mailbox
// proves nothing about the domain.
var publicMailDomains = strings.Fields(`
	gmail.com googlemail.com outlook.com hotmail.com hotmail.co.uk hotmail.de hotmail.fr hotmail.it live.com live.co.uk live.de live.fr
	msn.com yahoo.com yahoo.co.uk yahoo.de yahoo.fr yahoo.it yahoo.es yahoo.co.in yahoo.co.jp yahoo.com.br ymail.com rocketmail.com
	aol.com icloud.com me.com mac.com gmx.de gmx.net gmx.at gmx.ch gmx.com web.de mail.com email.com t-online.de freenet.de
	orange.fr wanadoo.fr free.fr laposte.net sfr.fr libero.it virgilio.it tin.it alice.it uol.com.br bol.com.br terra.com.br
	mail.ru bk.ru inbox.ru list.ru yandex.ru yandex.com ya.ru rambler.ru ukr.net seznam.cz wp.pl o2.pl onet.pl interia.pl
	proton.me protonmail.com pm.me zoho.com fastmail.com hey.com tutanota.com posteo.de mailbox.org
	qq.com foxmail.com 163.com 126.com sina.com naver.com daum.net hanmail.net rediffmail.com
	comcast.net verizon.net att.net sbcglobal.net bellsouth.net cox.net btinternet.com sky.com virginmedia.com ntlworld.com bluewin.ch`)

// IsPublicMail reports whether anybody can get a mailbox in a domain.
func IsPublicMail(domain string) bool { return slices.Contains(publicMailDomains, domain) }

// ReverseLabels returns a name with its labels reversed: "com.example." for example.com. In
// DomainsUnder it is the prefix for the name and all names below it.
func ReverseLabels(name string) string {
	labels := strings.Split(name, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "."
}

// A CustomRecord is a DNS record that a domain's owner added. Each change of the custom records of
// a domain makes a new generation of its zone, which is Domain.ZoneGeneration. A record belongs to
// the generations from From until before Until. So a change that takes several transactions takes
// effect when the last one raises ZoneGeneration, and the records of earlier generations are the
// history.
type CustomRecord struct {
	ID        string // rec_…
	DomainID  string
	Name      string // FQDN, lower-case, no trailing dot
	Type      string // one of dnsprov.CustomTypes
	Value     string // data of the record as one line, as dnsprov.Record.Text returns it
	TTL       int
	Status    string // one of the CustomRecord… constants; "": the domain is at no DNS provider by API
	Error     string
	CreatedAt time.Time
	UpdatedAt time.Time

	From  uint64 `json:",omitempty"` // first generation that has it; 0: it is older than generations
	Until uint64 `json:",omitempty"` // first generation that does not have it; 0: it was not removed
	// Was is the id of the record whose earlier content this is: a record that changes keeps its
	// id, and its old content becomes another row. It is "" for a record itself.
	Was string `json:",omitempty"`
}

// LiveIn reports whether a generation of the zone has the record.
func (r *CustomRecord) LiveIn(generation uint64) bool {
	return r.From <= generation && (r.Until == 0 || r.Until > generation)
}

// Values of CustomRecord.Status: the state of the record at a DNS provider by API.
const (
	CustomRecordActive  = "active"
	CustomRecordPending = "pending" // not written there yet
	CustomRecordError   = "error"   // the provider refused it
)

// CustomRecords keeps the records that owners added, also those of earlier generations.
var (
	CustomRecords = engine.NewTable("custom_record", func(r *CustomRecord) string { return r.ID }).
			Watched(func(tx *engine.Tx, r *CustomRecord) Change {
			return Change{Account: accountOfDomain(tx, r.DomainID), ID: r.ID}
		})
	// CustomRecordsByDomain holds the records that were not removed.
	CustomRecordsByDomain = CustomRecords.Index("domain", func(r *CustomRecord) string {
		if r.Until != 0 {
			return ""
		}
		return r.DomainID
	})
	// CustomRecordsRemoved holds the others, in the order of their removal. RemovedKey returns its
	// keys.
	CustomRecordsRemoved = CustomRecords.Index("removed", func(r *CustomRecord) string {
		if r.Until == 0 {
			return ""
		}
		return RemovedKey(r.DomainID, r.Until)
	})
)

// RemovedKey returns the prefix that the records which a generation removed have in
// CustomRecordsRemoved.
func RemovedKey(domainID string, generation uint64) string {
	return fmt.Sprintf("%s.%016x.", domainID, generation)
}

// A ZoneChange is one change of the custom records of a domain.
type ZoneChange struct {
	ID         string // zch_…
	DomainID   string
	Generation uint64 // the generation of the zone that it made
	Kind       string // one of the ZoneChange… constants
	By         string // the name of whoever made it
	Name       string // FQDN of the record set that it changed; "": several
	Type       string // of the record set that it changed; "": several
	Added      int    // values that it added
	Removed    int    // values that it removed
	CreatedAt  time.Time
	Settings   *ZoneSettings `json:",omitempty"` // what it changed beside custom records; nil: nothing
}

// ZoneSettings are the settings of a domain before and after a ZoneChange.
type ZoneSettings struct {
	Apex     *ApexSetting `json:",omitempty"` // nil: the change does not concern it
	NewApex  *ApexSetting `json:",omitempty"`
	DMARC    string       // as Domain.DMARC
	NewDMARC string
	SPF      *DomainSPF // as Domain.SPF
	NewSPF   *DomainSPF
}

// An ApexSetting is what the owner chooses of a DomainApex beside its addresses.
type ApexSetting struct {
	Mode  string // as DomainApex.Mode
	Alias string // as DomainApex.Alias
}

// Values of ZoneChange.Kind.
const (
	ZoneChangeSet    = "set"
	ZoneChangeDelete = "delete"
	ZoneChangeImport = "import"
	ZoneChangeUndo   = "undo"
)

// ZoneChanges keeps the newest changes of each domain.
var (
	ZoneChanges         = engine.NewTable("zone_change", func(c *ZoneChange) string { return c.ID })
	ZoneChangesByDomain = ZoneChanges.Index("domain", func(c *ZoneChange) string { return c.DomainID })
)

// ZoneBaseID is the id of the one ZoneBase.
const ZoneBaseID = "zones"

// A ZoneBase is the state of the records that all zones share, such as the addresses of this host.
type ZoneBase struct {
	ID        string
	Digest    string    // digest of the shared records
	Changes   uint32    // number of changes of these records; each raises the serial of every zone
	ChangedAt time.Time // when these records last changed
}

// ZoneBases holds the one ZoneBase, once it is made.
var ZoneBases = engine.NewTable("zone_base", func(b *ZoneBase) string { return b.ID })

// accountOfDomain returns the account that a domain belongs to, or "" if the domain is gone.
func accountOfDomain(tx *engine.Tx, id string) string {
	d, err := Domains.Read(tx, id)
	if err != nil {
		return ""
	}
	return d.AccountID
}

// A Purchase is the intent to buy a domain, and its outcome. It is written before the registrar is
// called, and stays when the domain is deleted, so that nothing is bought twice.
type Purchase struct {
	ID          string // pur_…; also the idempotency key of the order at the registrar
	AccountID   string // "": the account was deleted
	Domain      string // name of the domain
	Registrar   string
	Years       int
	MaxPrice    int64 // in cents, for all years
	AutoRenew   bool
	State       string // one of the Purchase… constants
	RefusedCode string
	RefusedWhy  string
	TriedAt     time.Time
	Price       int64 // paid price in cents; 0: the registrar did not say
	CreatedAt   time.Time
	BoughtAt    time.Time
	ExpiresAt   time.Time
}

// Values of Purchase.State.
const (
	PurchaseIntended = "intended" // the registrar has not been called
	PurchaseOrdering = "ordering" // the registrar was called at TriedAt; the outcome is not known
	PurchaseBought   = "bought"
	PurchaseRefused  = "refused" // nothing was bought, and nothing will be
)

// OutlivesAccount reports whether a purchase is kept when its account is deleted, because money was
// paid or may have been paid.
func (p *Purchase) OutlivesAccount() bool {
	return p.State == PurchaseBought || p.State == PurchaseOrdering
}

// Purchases keeps the purchases. A domain name has at most one that is not refused;
// PurchaseOfDomain finds it.
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
	Key          string // idempotency key of the order
	Price        int64  // in cents
	AutoRenew    bool
	Nameservers  []string
	RegisteredAt time.Time
	ExpiresAt    time.Time
}

// PretendDomains keeps the domains that the sandbox registrar has sold.
var PretendDomains = engine.NewTable("pretend_domain", func(d *PretendDomain) string { return d.Name })

// HostCertificate is the id of the certificate of this host's own name.
const HostCertificate = "host"

// A Certificate is the TLS certificate of one set of names, with the state of its renewal.
type Certificate struct {
	ID        string   // HostCertificate, or the id of the domain that the names belong to
	Directory string   // URL of the ACME directory of the authority that the other fields refer to
	Names     []string // names in the certificate; empty: there is no certificate yet
	Chain     [][]byte // DER, the leaf first
	Key       []byte   // PKCS#8, sealed
	NotBefore time.Time
	NotAfter  time.Time
	RenewAt   time.Time

	NextKey    []byte    // key of the next certificate, PKCS#8, sealed; host only
	NextDigest []byte    // SHA-256 of the public half of NextKey (SubjectPublicKeyInfo)
	NextSince  time.Time // when NextDigest was published in the DNS

	Order    CertificateOrder
	Refused  map[string]Refusal // names that the authority refused
	Failures int                // failed attempts in a row
	Error    string             // text of the newest failed attempt
	NextTry  time.Time          // earliest time of the next attempt; zero: as soon as one is needed
	TriedAt  time.Time
}

// A CertificateOrder is an unfinished ACME order. Its URL is "" if there is no such order.
type CertificateOrder struct {
	URL     string
	Names   []string
	Key     []byte // private key for the certificate, PKCS#8, sealed
	BegunAt time.Time
}

// A Refusal says that a certificate authority refused a name, and how often.
type Refusal struct {
	Why   string
	Times int // refusals in a row
	At    time.Time
}

// Certificates keeps the certificates of the host and of domains.
var Certificates = engine.NewTable("certificate", func(c *Certificate) string { return c.ID }).Sealed((*Certificate).visitSecrets)

// A CertificateAccount is our account at an ACME certificate authority.
type CertificateAccount struct {
	Directory string // URL of the authority's directory
	Key       []byte // PKCS#8, sealed
	URL       string // URL of the account; "": it is not registered yet
	CreatedAt time.Time
}

// CertificateAccounts keeps our accounts under the URL of the authority's directory.
var CertificateAccounts = engine.NewTable("certificate_account", func(a *CertificateAccount) string { return a.Directory }).
	Sealed((*CertificateAccount).visitSecrets)
