package store

import (
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/rowform"
)

// A Mailbox is one address that receives and sends mail. The API calls it an email user.
type Mailbox struct {
	ID             string // eu_…
	Num            uint32 // short number in the keys of messages, from 1, never reused
	AccountID      string
	AccountNum     uint32
	DomainID       string
	Email          string // lower-case
	Name           string
	Status         string // one of MailboxPending to MailboxDeleting
	Ready          bool   // whether its domain was ever complete; the event email_user.created was sent then
	JobID          string // id of the job that deletes it
	ErrorCode      string `json:",omitempty"` // code for ErrorText; "" in rows of older releases
	ErrorText      string // why the newest connection to an external mailbox failed
	Type           string // one of the MailboxType… constants
	PasswordHash   string // argon2id, PHC form
	PasswordSealed []byte // the password, sealed under the master key, for exports; nil: the mailbox's owner set it
	Footer         string
	DailySendLimit *int
	ForwardTo      string
	ForwardOnly    bool   `json:",omitempty"` // mail that is forwarded to ForwardTo is not kept here
	Relay          string // the name of the relay for its mail; "" for that of its domain
	QuotaBytes     *int64
	External       *External
	LastSyncAt     time.Time
	LastLoginAt    time.Time
	Seen           []SeenNetwork `json:",omitempty"` // networks that somebody has logged in from, newest first
	CreatedAt      time.Time
	UpdatedAt      time.Time

	PasswordAt time.Time `json:",omitzero"`  // when the password was last changed
	Salt       []byte    `json:",omitempty"` // SCRAM salt of its password and its credentials
	SCRAM      []byte    `json:",omitempty"` // SCRAM keys of the password, sealed; nil: the next log-in makes them
	Signature  string    `json:",omitempty"`
	Recovery   *Recovery `json:",omitempty"` // nil: it has no recovery address

	SendingPaused *SendingPaused `json:",omitempty"` // nil: it may send
	Counting      *CountingStart `json:",omitempty"` // nil: nobody has resumed its sending yet

	SendPolicy Policy    `json:",omitzero"` // applies to everything that is sent from it
	ExpiresAt  time.Time `json:",omitzero"` // when it is deleted; zero: never
}

// A Recovery is an external address that password reset links of a mailbox are sent to.
type Recovery struct {
	Email     string
	Confirmed bool        // somebody has opened the confirmation link that was sent to it
	Hash      string      `json:",omitempty"` // SHA-256 of the token in the confirmation link, hex
	Expires   time.Time   `json:",omitzero"`  // when the confirmation link expires
	Asked     []time.Time `json:",omitempty"` // when confirmation links were sent in the last day
	Mailed    []time.Time `json:",omitempty"` // when password reset links were sent in the last day
}

// Values of Mailbox.Status.
const (
	MailboxPending   = "pending" // its domain is not complete yet
	MailboxActive    = "active"
	MailboxSuspended = "suspended" // its account suspended it
	MailboxError     = "error"     // its external server refuses the log-in, so its mail is not fetched periodically
	MailboxDeleting  = "deleting"  // a job is deleting it
)

// Values of Mailbox.Type.
const (
	MailboxTypeHosted   = "hosted"
	MailboxTypeExternal = "external" // its mail is on another server
)

// MayLogIn reports whether the state of a mailbox allows log-ins.
func (m *Mailbox) MayLogIn() bool { return m.Status == MailboxActive }

// MayReceive reports whether mail for an address of a mailbox may be delivered to it.
func (m *Mailbox) MayReceive() bool { return m.Status == MailboxActive }

// MaySend reports whether the state of a mailbox allows sending. An external mailbox needs an SMTP
// server too.
func (m *Mailbox) MaySend() bool {
	return m.Status == MailboxActive && (m.Type != MailboxTypeExternal || m.External != nil && m.External.SMTP != nil)
}

// MayFetch reports whether the mail of an external mailbox may be fetched when somebody requests
// it. In the state MailboxError it is fetched only then.
func (m *Mailbox) MayFetch() bool {
	return m.External != nil && (m.Status == MailboxActive || m.Status == MailboxError)
}

// Gone reports whether a mailbox is being deleted: only the job that deletes it may see it.
func (m *Mailbox) Gone() bool { return m.Status == MailboxDeleting }

// HashOnly reports whether only an imported hash of the mailbox's password is known. Then SCRAM
// log-ins (RFC 5802) cannot be checked.
func (m *Mailbox) HashOnly() bool {
	return m.PasswordHash != "" && m.SCRAM == nil && m.PasswordSealed == nil && m.External == nil
}

// A SeenNetwork is a network that somebody has logged in from: an IPv4 address or an IPv6 /64.
type SeenNetwork struct {
	Network string
	At      time.Time
}

// External holds the servers that have the mail of an external mailbox.
type External struct {
	IMAP Server
	SMTP *Server
}

// A Server is another mail server, with the credentials for logging in to it.
type Server struct {
	Host           string
	Port           int
	Security       string // one of the ServerSecurity… constants
	Username       string
	PasswordSealed []byte
}

// Values of Server.Security: how the connection to the server is encrypted.
const (
	ServerSecurityTLS      = "tls" // TLS from the first byte
	ServerSecuritySTARTTLS = "starttls"
	ServerSecurityNone     = "none"
)

// Mailboxes keeps the mailboxes of every account.
var (
	Mailboxes = engine.NewTable("mailbox", func(m *Mailbox) string { return m.ID }).
			Watched(func(_ *engine.Tx, m *Mailbox) Change { return Change{Account: m.AccountID, ID: m.ID} }).Sealed((*Mailbox).visitSecrets)
	// MailboxByAddress finds a mailbox of a domain by its AddressKey. It leaves out mailboxes that
	// are being deleted, so that their addresses are free at once.
	MailboxByAddress = Mailboxes.Unique("address", func(m *Mailbox) string {
		if m.Gone() {
			return ""
		}
		return AddressKey(m.DomainID, m.Email)
	})
	// MailboxesPaused holds, by domain, the mailboxes whose sending is paused.
	MailboxesPaused = Mailboxes.Index("paused", func(m *Mailbox) string {
		if m.SendingPaused == nil {
			return ""
		}
		return m.DomainID
	})
	// MailboxByEmail finds the mailbox of an address. Of several domains with the same name, it
	// looks in the one whose claim is proven.
	MailboxByEmail     addressFinder
	MailboxByNum       = Mailboxes.Unique("num", func(m *Mailbox) string { return NumKey(m.Num) })
	MailboxesByAccount = Mailboxes.Index("account", func(m *Mailbox) string { return m.AccountID })
	MailboxesByDomain  = Mailboxes.Index("domain", func(m *Mailbox) string { return m.DomainID })
	// MailboxesOfAccount holds the mailboxes of an account in the order of their addresses.
	MailboxesOfAccount = Mailboxes.Index("own", func(m *Mailbox) string { return m.AccountID + m.Email + "\x00" })
	MailboxByRecovery  = Mailboxes.Unique("recovery", func(m *Mailbox) string {
		if m.Recovery == nil {
			return ""
		}
		return m.Recovery.Hash
	})
	// MailboxesHashed holds, by domain, the mailboxes for which HashOnly is true.
	MailboxesHashed = Mailboxes.Index("hashed", func(m *Mailbox) string {
		if !m.HashOnly() || m.Gone() {
			return ""
		}
		return m.DomainID
	})
	// MailboxesWaiting holds, by domain, the mailboxes that are not ready yet.
	MailboxesWaiting = Mailboxes.Index("waiting", func(m *Mailbox) string {
		if m.Ready || m.Gone() {
			return ""
		}
		return m.DomainID
	})
)

// AddressKey returns the key of an address of a domain in MailboxByAddress.
func AddressKey(domainID, email string) string { return domainID + "\x00" + email }

// An addressFinder finds mailboxes by address alone.
type addressFinder struct{}

// Get returns the mailbox of the address, or ErrNotFound.
func (addressFinder) Get(tx *Tx, email string) (*Mailbox, error) {
	return MailboxByAddress.Get(tx, provenAddressKey(tx, email))
}

// Find returns the mailbox of the address, or nil without an error if there is none.
func (addressFinder) Find(tx *Tx, email string) (*Mailbox, error) {
	return MailboxByAddress.Find(tx, provenAddressKey(tx, email))
}

// FindShared is like Find, but the caller must not change the record; see Table.FindShared.
func (addressFinder) FindShared(tx *Tx, email string) (*Mailbox, error) {
	return MailboxByAddress.FindShared(tx, provenAddressKey(tx, email))
}

// Read is like Get, but the caller must not change the record; see Table.Read.
func (addressFinder) Read(tx *Tx, email string) (*Mailbox, error) {
	return MailboxByAddress.Read(tx, provenAddressKey(tx, email))
}

// OfAccount returns the account's own mailbox with the address, or ErrNotFound. The state of the
// domain's claim does not matter.
func (addressFinder) OfAccount(tx *Tx, accountID, email string) (*Mailbox, error) {
	name := email[strings.LastIndexByte(email, '@')+1:]
	id := engine.NamedBucket(tx, DomainOfAccount.Name()).Get([]byte(AccountDomainKey(accountID, name)))
	return MailboxByAddress.Get(tx, AddressKey(string(id), email))
}

func provenAddressKey(tx *Tx, email string) string {
	name := email[strings.LastIndexByte(email, '@')+1:]
	return AddressKey(string(engine.NamedBucket(tx, DomainByName.Name()).Get([]byte(name))), email)
}

// NextMailboxNum returns the next short mailbox number.
func (tx *Tx) NextMailboxNum() (uint32, error) {
	n, err := Mailboxes.NextNumber(tx)
	return uint32(n), err
}

// A Template is a named list of usernames for new mailboxes.
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

// A CopyIntent records what an IMAP COPY that takes several transactions has copied so far. Its
// last transaction deletes the record. If the server finds one when it starts, a crash has left it:
// the copies that it names must be deleted.
type CopyIntent struct {
	ID      string // cpy_…
	Mailbox uint32 // number of the destination mailbox
	Folder  uint32
	Ranges  [][2]uint32 // UIDs, first and last
}

// CopyIntents keeps the copies that are under way.
var CopyIntents = engine.NewTable("copy_intent", func(c *CopyIntent) string { return c.ID })

// A WarmupFolder is a folder of a mailbox in which warm-up mail was filed. Its record is kept as
// long as there is such mail.
type WarmupFolder struct {
	AccountID string
	Mailbox   uint32 // number of the mailbox
	Folder    uint32 // id of the folder
	First     uint32 // no message with a lower UID was filed there as warm-up mail
}

// ID returns the id of the record.
func (w *WarmupFolder) ID() string { return WarmupFolderID(w.Mailbox, w.Folder) }

// WarmupFolderID returns the id of the record of a folder.
func WarmupFolderID(mailbox, folder uint32) string { return fmt.Sprintf("%d.%d", mailbox, folder) }

// WarmupFolders keeps the folders whose old warm-up mail is to be deleted.
var WarmupFolders = engine.NewTable("warmup_folder", (*WarmupFolder).ID)

// An Export says which mailboxes are in a file of credentials. The file itself is never stored: it
// is made while it is sent.
type Export struct {
	ID        string // exp_…
	AccountID string
	CreatedBy string // a user id
	Format    string
	All       bool // the file covers every mailbox of the account

	AppPasswords bool           `json:",omitempty"` // the file gets a new credential for each mailbox
	Columns      []ExportColumn `json:",omitempty"` // of the format columns

	Domains   []string // ids of domains
	Mailboxes []byte   // short mailbox numbers, four bytes each, big-endian
	Link      string   // SHA-256 of the token in the download link, hex; "": the link was used, or there was none
	CreatedAt time.Time
	ExpiresAt time.Time // when the link expires
}

// An ExportColumn is a column of an Export. Value has the names of fields in braces.
type ExportColumn struct {
	Header, Value string
	Raw           bool // values that a spreadsheet may take for formulas stay as they are
}

// Exports keeps the exports until their links expire.
var (
	Exports = engine.NewTable("export", func(e *Export) string { return e.ID }).
		Watched(func(_ *engine.Tx, e *Export) Change { return Change{Account: e.AccountID, User: e.CreatedBy, ID: e.ID} })
	ExportByLink     = Exports.Unique("link", func(e *Export) string { return e.Link })
	ExportsByAccount = Exports.Index("account", func(e *Export) string { return e.AccountID })
)

// A RemoteBox records how far the INBOX of an external mailbox has been read. UIDs and UIDVALIDITY
// are those of the remote server.
type RemoteBox struct {
	MailboxID   string
	AccountID   string
	UIDValidity uint32        // 0: the stored messages belong to an older UIDVALIDITY and must be deleted
	Seen        uint32        // messages up to this UID are not new
	Done        bool          // the first sync has read all messages that were there
	ModSeq      uint64        // HIGHESTMODSEQ (RFC 7162) up to which changes of flags are known; 0: none
	Lost        uint32        // number of messages that the server counts but does not return
	WalkedAt    time.Time     // when all stored messages were last compared with the server
	ActiveAt    time.Time     // when new mail was last found
	Wait        time.Duration // time between polls, if the server does not support IDLE
	Fails       int           // failed polls in a row
	Refusals    int           // refused log-ins in a row
}

// RemoteBoxes keeps the sync state of external mailboxes.
var (
	RemoteBoxes          = engine.NewTable("remote_box", func(r *RemoteBox) string { return r.MailboxID })
	RemoteBoxesByAccount = RemoteBoxes.Index("account", func(r *RemoteBox) string { return r.AccountID })
)

// A RemoteCopy is a message to be appended to a folder on the server of an external mailbox. It is
// kept until the server has it or the attempts are given up.
type RemoteCopy struct {
	ID        string    `json:",omitzero"` // rcp_…
	AccountID string    `json:",omitzero"`
	MailboxID string    `json:",omitzero"`
	MessageID string    `json:",omitzero"` // RFC 5322, with brackets; used to find a message that is there already
	Sent      bool      `json:",omitzero"` // into the folder of sent mail, marked as read; false: into INBOX
	Blob      BlobRef   `json:",omitzero"`
	CreatedAt time.Time `json:",omitzero"`
}

// RemoteCopies keeps the messages to be appended. Check verifies that the Blob of each has a
// reference.
var (
	RemoteCopies          = engine.NewTable("remote_copy", func(c *RemoteCopy) string { return c.ID })
	RemoteCopiesByAccount = RemoteCopies.Index("account", func(c *RemoteCopy) string { return c.AccountID })
)

// An ImportedMessage records that a message was imported. A repeated import skips it.
type ImportedMessage struct {
	ID      string // see ImportedID
	Expires time.Time
}

func (i *ImportedMessage) codeFields(c *rowform.Coder) {
	c.Version(1)
	c.String(&i.ID)
	c.Time(&i.Expires)
}

// ImportedID returns the id of an ImportedMessage: the number of its mailbox and the digest of the
// message, in hex.
func ImportedID(mailbox uint32, digest [16]byte) string {
	return fmt.Sprintf("%08x%x", mailbox, digest)
}

// ImportedMessages keeps one record for each imported message. Pruning reads ImportedByTime.
var (
	ImportedMessages = engine.NewTable("imported", func(i *ImportedMessage) string { return i.ID }).Binary((*ImportedMessage).codeFields)
	ImportedByTime   = ImportedMessages.Index("time", func(i *ImportedMessage) string { return TimeKey(i.Expires) })
)
