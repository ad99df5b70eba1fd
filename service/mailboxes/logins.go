package mailboxes

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/scram"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const saltSize = 16 // bytes of a salt of SCRAM

func errWrongPassword() *core.Error {
	return core.Errorf("unauthorized", "The address or the password is wrong.")
}

// LoginMailbox checks the log-in of a mail client, with the mailbox's password or a credential's.
// The error is an *Error: 401 for a wrong address or password, which take the same time, and for a
// credential that is for something else; 403 for a mailbox that may not be used, 429 after too many
// wrong ones, 503 busy where too many wait.
func (s *Service) LoginMailbox(ctx context.Context, in core.MailLogin) (core.MailboxUser, error) {
	address, rec, err := s.loginRecord(in)
	if err != nil {
		return core.MailboxUser{}, err
	}
	g, err := s.BeginGuess(ctx, core.Network(in.IP), s.identity(address, rec, in.IP))
	if err != nil {
		return core.MailboxUser{}, err
	}
	defer g.End()
	_, rec, err = s.loginRecord(in)
	if err != nil { // as it is after the wait
		return core.MailboxUser{}, err
	}
	if c := rec.withPassword(in.Password); c != nil {
		g.Right(address)
		return s.loggedIn(rec, c, in)
	}
	hash := rec.mb.PasswordHash
	if in.Bearer || rec.secondFactor {
		hash = "" // never right, and takes as long
	}
	right, err := g.Compare(ctx, address, hash, in.Password)
	if err != nil {
		return core.MailboxUser{}, err
	}
	if !right {
		return core.MailboxUser{}, errWrongPassword()
	}
	u, err := s.loggedIn(rec, nil, in)
	if err == nil && rec.mb.SCRAM == nil {
		s.completePassword(rec.mb, in.Password)
	}
	return u, err
}

// A Door is where the person of a mailbox signs in with its own password.
type Door struct {
	Identity core.Identity
	Mailbox  *store.Mailbox // empty for an address that is nobody's
	rooms    *Service
	record   *loginRecord
	in       core.MailLogin
}

// OpenDoor gives the door of an address.
func (s *Service) OpenDoor(email, ip string) (*Door, error) {
	d := &Door{rooms: s, in: core.MailLogin{Username: email, IP: ip}} // for which no credential may be used
	return d, d.Refresh()
}

// Refresh reads the records again.
func (d *Door) Refresh() error {
	name, r, err := d.rooms.loginRecord(d.in)
	if err == nil {
		d.Identity, d.Mailbox, d.record = d.rooms.identity(name, r, d.in.IP), r.mb, r
	}
	return err
}

// Exists reports whether there is a mailbox with a password of its own.
func (d *Door) Exists() bool { return d.Mailbox.ID != "" && d.Mailbox.PasswordHash != "" }

// Enter lets in whoever gave the right password. The error is an *Error, 403, where the mailbox may
// not be used.
func (d *Door) Enter() error {
	_, err := d.rooms.loggedIn(d.record, nil, d.in)
	return err
}

// CheckPassword checks the own password of a mailbox for its dashboard. The errors are those of
// LoginMailbox.
func (s *Service) CheckPassword(ctx context.Context, email, password, ip string) error {
	d, err := s.OpenDoor(email, ip)
	if err != nil {
		return err
	}
	g, err := s.BeginGuess(ctx, core.Network(ip), d.Identity)
	if err != nil {
		return err
	}
	defer g.End()
	if err := d.Refresh(); err != nil {
		return err
	}
	right, err := g.Compare(ctx, d.Identity.Name, d.Mailbox.PasswordHash, password)
	if err != nil {
		return err
	}
	if !right {
		return errWrongPassword()
	}
	return d.Enter()
}

// A loginRecord is what there is to know of whoever wants to log in. For an address that is
// nobody's the records are empty, and no password is right.
type loginRecord struct {
	mb          *store.Mailbox
	domain      *store.Domain // of a credential of a domain; nil: it is a mailbox's
	account     *store.Account
	credentials []*store.Credential // those that may be used for this protocol, from this address, now
	// secondFactor says that the mailbox's own password does not do for mail clients.
	secondFactor bool
}

// loginRecord reads it, and gives the name under which attempts are counted.
func (s *Service) loginRecord(in core.MailLogin) (name string, r *loginRecord, err error) {
	name, err = core.NormalizeEmail("username", in.Username)
	if err != nil {
		name = in.Username[:min(len(in.Username), 254)] // nobody's, but it is counted and takes its time like any other
	}
	r = &loginRecord{mb: &store.Mailbox{}, account: &store.Account{}}
	err = s.Store.View(func(tx *store.Tx) error {
		var index *store.Index[store.Credential]
		owner := ""
		if strings.HasPrefix(name, "cred_") {
			c, err := store.Credentials.FindShared(tx, name)
			if c == nil || c.DomainID == "" || err != nil {
				return err
			}
			r.domain, err = store.Domains.Get(tx, c.DomainID)
			if err != nil {
				return err
			}
			r.account, err = store.Accounts.Get(tx, c.AccountID)
			if err != nil {
				return err
			}
			index, owner = store.CredentialsByDomain, c.DomainID
		} else {
			mb, err := store.MailboxByEmail.Get(tx, name)
			if errors.Is(err, store.ErrNotFound) {
				mb, err = core.UnprovenMailbox(tx, name)
			}
			if core.IsGone(err) {
				return nil
			}
			if err != nil {
				return err
			}
			a, err := store.Accounts.Get(tx, mb.AccountID)
			if err != nil {
				return err
			}
			r.mb, r.account = mb, a
			person, err := store.UserByMailbox.Find(tx, mb.ID)
			if err != nil {
				return err
			}
			r.secondFactor = person != nil && person.TOTP != nil && person.TOTP.Confirmed
			index, owner = store.CredentialsByMailbox, mb.ID
		}
		for _, c := range index.Asc(tx, owner, "") {
			if usable(c, in, tx.Now()) && (r.domain == nil || c.ID == name) {
				r.credentials = append(r.credentials, c)
			}
		}
		return nil
	})
	if core.IsGone(err) { // deleted meanwhile
		return name, &loginRecord{mb: &store.Mailbox{}, account: &store.Account{}}, nil
	}
	return name, r, err
}

// usable reports whether a credential may be used for what is asked, from where that comes.
func usable(c *store.Credential, in core.MailLogin, now time.Time) bool {
	return slices.Contains(c.Protocols, in.Protocol) && !c.Expired(now) && UsableFrom(c, in.IP)
}

// UsableFrom reports whether a credential may be used from an address.
func UsableFrom(c *store.Credential, from string) bool {
	if len(c.Networks) == 0 {
		return true
	}
	ip, err := netip.ParseAddr(from)
	return err == nil && slices.ContainsFunc(c.Networks, func(network string) bool {
		p, err := netip.ParsePrefix(network)
		return err == nil && p.Contains(ip.Unmap().WithZone(""))
	})
}

// withPassword gives the credential that has a password; nil if none has. They are long and random,
// so that a plain hash keeps them and shows nothing by the time that it takes.
func (r *loginRecord) withPassword(password string) *store.Credential {
	hash := core.TokenHash(password)
	for _, c := range r.credentials {
		if c.Hash == hash {
			return c
		}
	}
	return nil
}

// identity is whose password is asked for, under the name that loginRecord gives.
func (s *Service) identity(name string, r *loginRecord, ip string) core.Identity {
	return core.Identity{Name: name, Known: core.IsKnown(r.mb.Seen, core.Network(ip), s.Now())}
}

// loggedIn lets somebody in whose password was right, that of a credential or, for nil, that of the
// mailbox, unless the mailbox may not be used.
func (s *Service) loggedIn(r *loginRecord, c *store.Credential, in core.MailLogin) (core.MailboxUser, error) {
	name := r.mb.Email
	if r.domain != nil {
		name = c.ID
	}
	switch {
	case !r.account.MayAct():
		return core.MailboxUser{}, core.Errorf("mailbox_unavailable", "%s cannot be used now: its account is %s.", name, r.account.Status)
	case r.domain == nil && !r.mb.MayLogIn():
		return core.MailboxUser{}, core.Errorf("mailbox_unavailable", "%s cannot be used now: it is %s.", name, r.mb.Status)
	case r.domain != nil && r.domain.Gone():
		return core.MailboxUser{}, core.Errorf("mailbox_unavailable", "%s cannot be used now: its domain is being deleted.", name)
	}
	u := core.MailboxUser{AccountID: r.account.ID, AccountNum: r.account.Num, Email: name, IP: in.IP}
	if r.domain != nil {
		u.DomainID = r.domain.ID
	} else {
		u.MailboxID, u.Mailbox = r.mb.ID, r.mb.Num
		u.Own, u.PasswordAt = c == nil, r.mb.PasswordAt
		s.recordLogin(r.mb, core.Network(in.IP))
	}
	if c != nil {
		u.CredentialID, u.Expires, u.OwnWords, u.Policy = c.ID, c.ExpiresAt, c.OwnWords, c.Policy
		if now := s.Now(); now.Sub(c.LastUsedAt) > time.Minute {
			s.uses.Record(c.ID, now, in.IP)
		}
	}
	return u, nil
}

// OffersSCRAM reports whether SCRAM is offered to clients. They are not while a mailbox of the host
// has the hash of its password alone: a client that may choose SCRAM does, and could not log in.
func (s *Service) OffersSCRAM() bool {
	offered := false
	err := s.Store.View(func(tx *store.Tx) error {
		offered = !store.MailboxesHashed.Has(tx, "")
		return nil
	})
	return offered && err == nil
}

// SCRAM gives the server's side of a log-in by SCRAM (RFC 5802), for the protocol and address of
// in. plus and offered say of the mechanism with channel binding that it is this one, and that it
// is offered; binding gives the data of a type of it. done takes the user, or the error that
// LoginMailbox would give.
func (s *Service) SCRAM(ctx context.Context, in core.MailLogin, plus, offered bool, binding func(kind string) []byte, done func(core.MailboxUser, error) error) *scram.Server {
	var r *loginRecord
	var counted string
	var guess *core.Guess
	var candidates []*store.Credential // of the keys; nil: the mailbox's own password
	return &scram.Server{
		Plus: plus, Offered: offered, Binding: binding,
		Find: func(name string) (user scram.User, err error) {
			in.Username = name
			counted, r, err = s.loginRecord(in)
			if err != nil {
				return user, done(core.MailboxUser{}, err)
			}
			guess, err = s.BeginGuess(ctx, core.Network(in.IP), s.identity(counted, r, in.IP))
			if err != nil {
				return user, done(core.MailboxUser{}, err)
			}
			guess.Wrong() // until the proof has come, or a client that never sends one would guess on
			guess.End()
			user.Salt = s.saltOf(r.mb, counted)
			if keys, ok := s.ownKeys(r.mb); ok && r.domain == nil && !r.secondFactor {
				user.Keys, candidates = append(user.Keys, keys), append(candidates, nil)
			}
			for _, c := range r.credentials {
				if r.domain != nil {
					user.Salt = c.Salt
				}
				kept, err := s.Keys.Open(store.CredentialPlace(c.ID), c.SCRAM)
				if err != nil {
					return user, done(core.MailboxUser{}, err)
				}
				if keys, ok := scram.KeysFrom(kept); ok {
					user.Keys, candidates = append(user.Keys, keys), append(candidates, c)
				}
			}
			return user, nil
		},
		Done: func(_ string, key int) error {
			if key < 0 {
				return done(core.MailboxUser{}, errWrongPassword())
			}
			guess.Right(counted)
			return done(s.loggedIn(r, candidates[key], in))
		},
	}
}

// saltOf is the salt of a mailbox's passwords, or of an address that is nobody's: both stay what
// they are.
func (s *Service) saltOf(mb *store.Mailbox, name string) []byte {
	if mb.Salt != nil {
		return mb.Salt
	}
	return s.Keys.StableMac("scram salt", name)[:saltSize]
}

// ownKeys gives the SCRAM keys of a mailbox's own password, as far as they are known.
func (s *Service) ownKeys(mb *store.Mailbox) (keys scram.Keys, ok bool) {
	if mb.SCRAM != nil {
		kept, err := s.Keys.Open(store.SCRAMPlace(mb.ID), mb.SCRAM)
		if err != nil {
			s.Log.Error("read the keys of a mailbox's password", "mailbox", mb.Email, "error", err)
			return keys, false
		}
		return scram.KeysFrom(kept)
	}
	if mb.PasswordSealed == nil || mb.External != nil {
		return keys, false
	}
	password, err := s.Keys.Open(store.MailboxPlace(mb.ID), mb.PasswordSealed) // of an older release
	if err != nil {
		s.Log.Error("read a mailbox's password", "mailbox", mb.Email, "error", err)
		return keys, false
	}
	s.completePassword(mb, string(password))
	return scram.KeysOf(string(password), s.saltOf(mb, mb.Email)), true
}

// keepPassword hashes a password, and gives what puts it into the record: for log-ins, and for
// exports unless its holder set it.
func (s *Service) keepPassword(mb store.Mailbox, password string, held bool) func(*store.Mailbox) {
	hash, salt := s.Logins.Hash(password), s.saltOf(&mb, mb.Email)
	keys := scram.KeysOf(password, salt)
	kept := s.Keys.Seal(store.SCRAMPlace(mb.ID), keys[:])
	var sealed []byte
	if !held {
		sealed = s.Keys.Seal(store.MailboxPlace(mb.ID), []byte(password))
	}
	return func(mb *store.Mailbox) {
		mb.PasswordHash, mb.PasswordSealed, mb.Salt, mb.SCRAM = hash, sealed, salt, kept
	}
}

// completePassword keeps a password, which was right, as a new one is kept: in the place of a hash
// that came from another mail server, and with SCRAM keys.
func (s *Service) completePassword(mb *store.Mailbox, password string) {
	put := s.keepPassword(*mb, password, false)
	err := s.Store.Update(func(tx *store.Tx) error {
		now, err := store.Mailboxes.Get(tx, mb.ID)
		if err != nil || now.PasswordHash != mb.PasswordHash { // it was changed meanwhile
			return err
		}
		sealed := now.PasswordSealed
		put(now)
		now.PasswordSealed = sealed
		return store.Mailboxes.Put(tx, now)
	})
	if err != nil {
		s.Log.Warn("complete what is kept of a password", "mailbox", mb.Email, "error", err)
	}
}

// HoldPassword gives what puts a password into the record of a mailbox that its holder set: nobody
// can read it again.
func (s *Service) HoldPassword(mb store.Mailbox, password string) (func(*store.Mailbox), error) {
	if err := core.CheckPassword("password", password, core.LeastPassword); err != nil {
		return nil, err
	}
	return s.keepPassword(mb, password, true), nil
}

// endPerson ends the sessions of the person of a mailbox, but for one; with the record, if it is to
// go.
func endPerson(tx *store.Tx, mailboxID, but string, record bool) (ended int, err error) {
	person, err := store.UserByMailbox.Find(tx, mailboxID)
	if person == nil || err != nil {
		return 0, err
	}
	var ids []string
	for _, t := range store.TokensByUser.Asc(tx, person.ID, "") {
		if t.ID != but && (record || t.Kind == store.TokenKindSession) {
			ids = append(ids, t.ID)
		}
	}
	if err := core.DeleteAll(tx, store.Tokens, ids); err != nil || !record {
		return len(ids), err
	}
	return len(ids), store.Users.Delete(tx, person.ID)
}

// EndSessions ends the sessions of the person of a mailbox, but for one, and says how many.
func (s *Service) EndSessions(tx *store.Tx, mailboxID, but string) (int, error) {
	return endPerson(tx, mailboxID, but, false)
}

// recordLogin keeps the time of a log-in, once a minute, and where it came from, once a day. A
// store that takes no writes is no reason to turn a reader away.
func (s *Service) recordLogin(mb *store.Mailbox, network string) {
	if _, fresh := core.RecordNetwork(mb.Seen, network, s.Now()); !fresh && s.Now().Sub(mb.LastLoginAt) < time.Minute {
		return
	}
	err := s.Store.Update(func(tx *store.Tx) error {
		now, err := store.Mailboxes.Get(tx, mb.ID)
		if err != nil {
			return err
		}
		now.Seen, _ = core.RecordNetwork(now.Seen, network, tx.Now())
		if tx.Now().Sub(now.LastLoginAt) >= time.Minute {
			now.LastLoginAt = tx.Now()
		}
		return store.Mailboxes.Put(tx, now)
	})
	if err != nil {
		s.Log.Warn("note the time of a log-in", "mailbox", mb.Email, "error", err)
	}
}
