package store

import (
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/rowform"
)

// A Mailbox is one address that takes and sends mail; the API calls it an email user.
type Mailbox struct {
	ID             string // eu_…
	Num            uint32 // short form for message keys, from 1, never used again
	AccountID      string
	AccountNum     uint32
	DomainID       string
	Email          string // lower-case
	Name           string
	Status         string // one of MailboxPending to MailboxDeleting
	Ready          bool   // its domain was complete once, and email_user.created has fired
	JobID          string // the job that deletes it
	ErrorCode      string `json:",omitempty"` // "" in rows of older releases, which have the text alone
	ErrorText      string // why the newest look at an external mailbox failed
	Type           string // one of the MailboxType… constants
	PasswordHash   string // argon2id, PHC form
	PasswordSealed []byte // the same password under the master key, for export; nil: its holder set it
	Footer         string
	DailySendLimit *int
	ForwardTo      string
	ForwardOnly    bool   `json:",omitempty"` // what goes to ForwardTo is not kept here
	Relay          string // the name of the relay that its mail goes through; "" for what its domain does
	QuotaBytes     *int64
	External       *External
	LastSyncAt     time.Time
	LastLoginAt    time.Time
	Seen           []SeenNetwork `json:",omitempty"` // where it was logged in to from, newest first
	CreatedAt      time.Time
	UpdatedAt      time.Time

	PasswordAt time.Time `json:",omitzero"`  // when the password was last changed
	Salt       []byte    `json:",omitempty"` // of SCRAM, for its password and its credentials
	SCRAM      []byte    `json:",omitempty"` // the password's keys, sealed; nil: they are made when somebody logs in
	Signature  string    `json:",omitempty"`
	Recovery   *Recovery `json:",omitempty"` // nil: it has no recovery address

	SendingPaused *SendingPaused `json:",omitempty"` // nil: it may send
	Counting      *Counting      `json:",omitempty"` // since somebody resumed it

	SendPolicy Policy    `json:",omitzero"` // of all that is sent from it
	ExpiresAt  time.Time `json:",omitzero"` // when it is deleted; zero: never
}

// A Recovery is the address elsewhere that a link goes to when the holder has forgotten the
// password.
type Recovery struct {
	Email     string
	Confirmed bool        // its holder has opened the link that was sent there
	Hash      string      `json:",omitempty"` // SHA-256 of the token of that link, hex
	Expires   time.Time   `json:",omitzero"`  // of that link
	Asked     []time.Time `json:",omitempty"` // when that was sent, of the last day
	Mailed    []time.Time `json:",omitempty"` // when links that set a password were sent, of the last day
}

// States of a mailbox.
const (
	MailboxPending   = "pending" // until its domain is complete
	MailboxActive    = "active"
	MailboxSuspended = "suspended" // by its account
	MailboxError     = "error"     // external: its server refuses the log-in, so nothing looks there by itself
	MailboxDeleting  = "deleting"  // a job deletes it
)

// Types of a mailbox.
const (
	MailboxTypeHosted   = "hosted"
	MailboxTypeExternal = "external" // its mail lives at another server
)

// MayLogIn tells whether a mailbox may be logged in to, as far as it is for the mailbox to say.
func (m *Mailbox) MayLogIn() bool { return m.Status == MailboxActive }

// MayReceive tells whether mail may be put into a mailbox for an address of it.
func (m *Mailbox) MayReceive() bool { return m.Status == MailboxActive }

// MaySend tells whether a mailbox may send, as far as it is for the mailbox to say. An external one
// needs a server that sends for it.
func (m *Mailbox) MaySend() bool {
	return m.Status == MailboxActive && (m.Type != MailboxTypeExternal || m.External != nil && m.External.SMTP != nil)
}

// MayFetch tells whether the mail of an external mailbox may be fetched where somebody asks for it.
// Nothing fetches by itself in MailboxError.
func (m *Mailbox) MayFetch() bool {
	return m.External != nil && (m.Status == MailboxActive || m.Status == MailboxError)
}

// Gone tells whether a mailbox is being deleted: it is not there for anybody but the job that
// deletes it.
func (m *Mailbox) Gone() bool { return m.Status == MailboxDeleting }

// HashOnly tells whether a mailbox has nothing of its password but a hash that came from elsewhere,
// so that log-ins which need more than the password itself cannot be checked (RFC 5802).
func (m *Mailbox) HashOnly() bool {
	return m.PasswordHash != "" && m.SCRAM == nil && m.PasswordSealed == nil && m.External == nil
}

// A SeenNetwork is where somebody has logged in from: an IPv4 address, an IPv6 /64.
type SeenNetwork struct {
	Network string
	At      time.Time
}

// External says where the mail of a mailbox of type external lives.
type External struct {
	IMAP Server
	SMTP *Server
}

// A Server is a mail server elsewhere and the log-in to it.
type Server struct {
	Host           string
	Port           int
	Security       string // one of the ServerSecurity… constants
	Username       string
	PasswordSealed []byte
}

// How the connection to a server is encrypted.
const (
	ServerSecurityTLS      = "tls" // from its beginning
	ServerSecuritySTARTTLS = "starttls"
	ServerSecurityNone     = "none"
)

// Mailboxes keeps the mailboxes of every account.
var (
	Mailboxes = engine.NewTable("mailbox", func(m *Mailbox) string { return m.ID }).
			Watched(func(_ *engine.Tx, m *Mailbox) Change { return Change{Account: m.AccountID, ID: m.ID} }).Sealed((*Mailbox).secrets)
	// MailboxByAddress finds a mailbox of a domain by AddressKey. It lacks those that are being
	// deleted, so that their addresses are free at once.
	MailboxByAddress = Mailboxes.Unique("address", func(m *Mailbox) string {
		if m.Gone() {
			return ""
		}
		return AddressKey(m.DomainID, m.Email)
	})
	// MailboxesPaused are those of a domain that may not send.
	MailboxesPaused = Mailboxes.Index("paused", func(m *Mailbox) string {
		if m.SendingPaused == nil {
			return ""
		}
		return m.DomainID
	})
	// MailboxByEmail finds the mailbox that an address leads to: of the domain whose claim of the
	// name is proven.
	MailboxByEmail     addressFinder
	MailboxByNum       = Mailboxes.Unique("num", func(m *Mailbox) string { return NumKey(m.Num) })
	MailboxesByAccount = Mailboxes.Index("account", func(m *Mailbox) string { return m.AccountID })
	MailboxesByDomain  = Mailboxes.Index("domain", func(m *Mailbox) string { return m.DomainID })
	MailboxByRecovery  = Mailboxes.Unique("recovery", func(m *Mailbox) string {
		if m.Recovery == nil {
			return ""
		}
		return m.Recovery.Hash
	})
	// MailboxesHashed holds by domain those with nothing but the hash of their password.
	MailboxesHashed = Mailboxes.Index("hashed", func(m *Mailbox) string {
		if !m.HashOnly() || m.Gone() {
			return ""
		}
		return m.DomainID
	})
	// MailboxesWaiting holds by domain those that are not ready yet.
	MailboxesWaiting = Mailboxes.Index("waiting", func(m *Mailbox) string {
		if m.Ready || m.Gone() {
			return ""
		}
		return m.DomainID
	})
)

// AddressKey is the key of MailboxByAddress.
func AddressKey(domainID, email string) string { return domainID + "\x00" + email }

// An addressFinder finds mailboxes by address alone.
type addressFinder struct{}

// Get returns the mailbox of the address, or ErrNotFound.
func (addressFinder) Get(tx *Tx, email string) (*Mailbox, error) {
	return MailboxByAddress.Get(tx, addressKey(tx, email))
}

// Find returns the mailbox of the address, or nil without an error if there is none.
func (addressFinder) Find(tx *Tx, email string) (*Mailbox, error) {
	return MailboxByAddress.Find(tx, addressKey(tx, email))
}

// FindShared is Find for those who only look; see Table.FindShared.
func (addressFinder) FindShared(tx *Tx, email string) (*Mailbox, error) {
	return MailboxByAddress.FindShared(tx, addressKey(tx, email))
}

// Read is Get for those who only look; see Table.Read.
func (addressFinder) Read(tx *Tx, email string) (*Mailbox, error) {
	return MailboxByAddress.Read(tx, addressKey(tx, email))
}

// Of returns the account's own mailbox of the address, whatever has become of its domain's claim,
// or ErrNotFound.
func (addressFinder) Of(tx *Tx, accountID, email string) (*Mailbox, error) {
	name := email[strings.LastIndexByte(email, '@')+1:]
	id := engine.NamedBucket(tx, DomainOfAccount.Name()).Get([]byte(OwnKey(accountID, name)))
	return MailboxByAddress.Get(tx, AddressKey(string(id), email))
}

func addressKey(tx *Tx, email string) string {
	name := email[strings.LastIndexByte(email, '@')+1:]
	return AddressKey(string(engine.NamedBucket(tx, DomainByName.Name()).Get([]byte(name))), email)
}

// NextMailboxNum gives the next short mailbox number.
func (tx *Tx) NextMailboxNum() (uint32, error) {
	n, err := Mailboxes.NextNumber(tx)
	return uint32(n), err
}

// A Template is a named list of usernames.
type Template struct {
	ID        string // tpl_…
	AccountID string
	Name      string
	Usernames []string
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Templates keeps the templates of every account.
var (
	Templates = engine.NewTable("template", func(t *Template) string { return t.ID }).
			Watched(func(_ *engine.Tx, t *Template) Change { return Change{Account: t.AccountID, ID: t.ID} })
	TemplatesByAccount = Templates.Index("account", func(t *Template) string { return t.AccountID })
)

// A CopyIntent says what an IMAP COPY of several transactions has copied so far. It goes with the
// last of them; one that is found at a start was cut by a crash, and what it names is to be taken
// back.
type CopyIntent struct {
	ID      string // cpy_…
	Mailbox uint32 // number
	Folder  uint32
	Ranges  [][2]uint32 // UIDs, first and last
}

// CopyIntents keeps them.
var CopyIntents = engine.NewTable("copy_intent", func(c *CopyIntent) string { return c.ID })

// An Export says which mailboxes a file of credentials holds. The file itself is never kept: it is
// made while it is sent.
type Export struct {
	ID        string // exp_…
	AccountID string
	CreatedBy string // a user id
	Format    string
	All       bool // every mailbox of the account

	AppPasswords bool `json:",omitempty"` // each mailbox gets a credential for it

	Domains   []string // ids of domains
	Mailboxes []byte   // short mailbox numbers, four bytes each, big-endian
	Link      string   // SHA-256 of the token that fetches the file, hex; "" once that was used, and if there never was one
	CreatedAt time.Time
	ExpiresAt time.Time // of the link
}

// Exports keeps them while their links live.
var (
	Exports = engine.NewTable("export", func(e *Export) string { return e.ID }).
		Watched(func(_ *engine.Tx, e *Export) Change { return Change{Account: e.AccountID, User: e.CreatedBy, ID: e.ID} })
	ExportByLink     = Exports.Unique("link", func(e *Export) string { return e.Link })
	ExportsByAccount = Exports.Index("account", func(e *Export) string { return e.AccountID })
)

// A RemoteBox is how far the INBOX of an external mailbox has been read. UIDs and UIDVALIDITY are
// the remote server's.
type RemoteBox struct {
	MailboxID   string
	AccountID   string
	UIDValidity uint32        // 0: what is stored is of another one and is to go
	Seen        uint32        // messages up to this UID are no news
	Done        bool          // all that were there at first have been read
	ModSeq      uint64        // HIGHESTMODSEQ up to which flags are known; 0: none
	Lost        uint32        // messages that the server counts and does not give
	WalkedAt    time.Time     // when every row was last compared
	ActiveAt    time.Time     // when new mail was last found
	Wait        time.Duration // between looks, where the server does not tell by itself
	Fails       int           // looks in a row that failed
	Refusals    int           // log-ins in a row that were refused
}

// RemoteBoxes keeps the state of external mailboxes.
var (
	RemoteBoxes          = engine.NewTable("remote_box", func(r *RemoteBox) string { return r.MailboxID })
	RemoteBoxesByAccount = RemoteBoxes.Index("account", func(r *RemoteBox) string { return r.AccountID })
)

// A RemoteCopy is a message that is to be put into a folder on the server of an external mailbox,
// kept until that is done or given up.
type RemoteCopy struct {
	ID        string    `json:",omitzero"` // rcp_…
	AccountID string    `json:",omitzero"`
	MailboxID string    `json:",omitzero"`
	MessageID string    `json:",omitzero"` // RFC 5322, with brackets: what is there already is not put there again
	Sent      bool      `json:",omitzero"` // into the folder of sent mail, as one that was read; else into INBOX
	Blob      BlobRef   `json:",omitzero"`
	CreatedAt time.Time `json:",omitzero"`
}

// RemoteCopies keeps them; Check counts their blobs among the references.
var (
	RemoteCopies          = engine.NewTable("remote_copy", func(c *RemoteCopy) string { return c.ID })
	RemoteCopiesByAccount = RemoteCopies.Index("account", func(c *RemoteCopy) string { return c.AccountID })
)

// An Imported message was brought in from elsewhere. An import that is begun again leaves it out.
type Imported struct {
	ID      string // see ImportedID
	Expires time.Time
}

func (i *Imported) fields(c *rowform.Coder) {
	c.Version(1)
	c.String(&i.ID)
	c.Time(&i.Expires)
}

// ImportedID is the id of a message that came into a mailbox, from a digest that names it.
func ImportedID(mailbox uint32, digest [16]byte) string {
	return fmt.Sprintf("%08x%x", mailbox, digest)
}

// ImportedMessages keeps them; ImportedByTime finds those that are forgotten first.
var (
	ImportedMessages = engine.NewTable("imported", func(i *Imported) string { return i.ID }).Binary((*Imported).fields)
	ImportedByTime   = ImportedMessages.Index("time", func(i *Imported) string { return TimeKey(i.Expires) })
)
