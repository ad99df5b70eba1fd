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

const saltSize = 16 // bytes of a SCRAM salt

func errWrongPassword() *core.Error {
	return core.Errorf("unauthorized", "The address or the password is wrong.")
}

// LoginMailbox checks the login of a mail client, with the mailbox's password or a credential's.
// The error is a *core.Error: 401 if the address is unknown, the password is wrong, or the
// credential is not valid for the protocol or network; 403 if the mailbox may not be used; 429
// after too many wrong passwords; 503 (busy) if too many logins wait. An unknown address takes as
// long as a wrong password.
func (s *Service) LoginMailbox(ctx context.Context, in core.MailLogin) (core.MailboxUser, error) {
	address, rec, err := s.readLoginRecord(in)
	if err != nil {
		return core.MailboxUser{}, err
	}
	g, err := s.BeginGuess(ctx, core.Network(in.IP), s.identity(address, rec, in.IP))
	if err != nil {
		return core.MailboxUser{}, err
	}
	defer g.End()
	_, rec, err = s.readLoginRecord(in)
	if err != nil { // read the records again, since they may have changed during the wait
		return core.MailboxUser{}, err
	}
	if c := rec.credentialWith(in.Password); c != nil {
		g.Right(address)
		return s.completeLogin(rec, c, in)
	}
	hash := rec.mb.PasswordHash
	if in.Bearer || rec.secondFactor {
		hash = "" // Compare takes as long with an empty hash, and returns false
	}
	right, err := g.Compare(ctx, address, hash, in.Password)
	if err != nil {
		return core.MailboxUser{}, err
	}
	if !right {
		return core.MailboxUser{}, errWrongPassword()
	}
	u, err := s.completeLogin(rec, nil, in)
	if err == nil && rec.mb.SCRAM == nil {
		s.upgradePassword(rec.mb, in.Password)
	}
	return u, err
}

// A PasswordLogin is a sign-in to a mailbox with the mailbox's own password.
type PasswordLogin struct {
	Identity core.Identity
	Mailbox  *store.Mailbox // empty if no mailbox has the address
	service  *Service
	record   *loginRecord
	in       core.MailLogin
}

// FindPasswordLogin returns the PasswordLogin of an address.
func (s *Service) FindPasswordLogin(email, ip string) (*PasswordLogin, error) {
	d := &PasswordLogin{service: s, in: core.MailLogin{Username: email, IP: ip}} // without a protocol, so that no credential is valid
	return d, d.Refresh()
}

// Refresh reads the records again.
func (d *PasswordLogin) Refresh() error {
	name, r, err := d.service.readLoginRecord(d.in)
	if err == nil {
		d.Identity, d.Mailbox, d.record = d.service.identity(name, r, d.in.IP), r.mb, r
	}
	return err
}

// Exists reports whether there is a mailbox and it has its own password.
func (d *PasswordLogin) Exists() bool { return d.Mailbox.ID != "" && d.Mailbox.PasswordHash != "" }

// CompleteSignIn completes the sign-in after the right password. The error is a *core.Error, 403,
// if the mailbox may not be used.
func (d *PasswordLogin) CompleteSignIn() error {
	_, err := d.service.completeLogin(d.record, nil, d.in)
	return err
}

// CheckPassword checks a mailbox's own password for the dashboard. The errors are those of
// LoginMailbox.
func (s *Service) CheckPassword(ctx context.Context, email, password, ip string) error {
	d, err := s.FindPasswordLogin(email, ip)
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
	return d.CompleteSignIn()
}

// A loginRecord holds the records that a login needs. For an unknown address they are empty, and
// every password is wrong.
type loginRecord struct {
	mb          *store.Mailbox
	domain      *store.Domain // set for the login of a domain's credential; nil for the login of a mailbox
	account     *store.Account
	credentials []*store.Credential // those that are valid now, for the protocol and network of the login
	// secondFactor reports whether the mailbox's user has two-factor authentication, so that mail
	// clients may not use the mailbox's own password.
	secondFactor bool
}

// readLoginRecord reads the records for a login, and returns the name under which wrong passwords
// are counted.
func (s *Service) readLoginRecord(in core.MailLogin) (name string, r *loginRecord, err error) {
	name, err = core.NormalizeEmail("username", in.Username)
	if err != nil {
		name = in.Username[:min(len(in.Username), 254)] // not an address; wrong passwords for it are counted like those of any other name
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
			if isUsable(c, in, tx.Now()) && (r.domain == nil || c.ID == name) {
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

// isUsable reports whether a credential is valid for the login's protocol and network.
func isUsable(c *store.Credential, in core.MailLogin, now time.Time) bool {
	return slices.Contains(c.Protocols, in.Protocol) && !c.Expired(now) && IsUsableFrom(c, in.IP)
}

// IsUsableFrom reports whether a credential may be used from an address.
func IsUsableFrom(c *store.Credential, from string) bool {
	if len(c.Networks) == 0 {
		return true
	}
	ip, err := netip.ParseAddr(from)
	return err == nil && slices.ContainsFunc(c.Networks, func(network string) bool {
		p, err := netip.ParsePrefix(network)
		return err == nil && p.Contains(ip.Unmap().WithZone(""))
	})
}

// credentialWith returns the credential with this password; nil if there is none. These passwords
// are long and random, so that a fast hash is enough and timing reveals nothing.
func (r *loginRecord) credentialWith(password string) *store.Credential {
	hash := core.TokenHash(password)
	for _, c := range r.credentials {
		if c.Hash == hash {
			return c
		}
	}
	return nil
}

// identity returns the identity of the login, for counting wrong passwords. name is the one that
// readLoginRecord returned.
func (s *Service) identity(name string, r *loginRecord, ip string) core.Identity {
	return core.Identity{Name: name, Known: core.IsKnownNetwork(r.mb.Seen, core.Network(ip), s.Now())}
}

// completeLogin completes a login after the right password. c is the credential whose password was
// given; nil if it was the mailbox's own. It returns an error if the mailbox may not be used.
func (s *Service) completeLogin(r *loginRecord, c *store.Credential, in core.MailLogin) (core.MailboxUser, error) {
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

// OffersSCRAM reports whether SCRAM is offered to clients. It is false while any mailbox of this
// host has only an imported hash: the clients of that mailbox would choose SCRAM and could not log
// in.
func (s *Service) OffersSCRAM() bool {
	offered := false
	err := s.Store.View(func(tx *store.Tx) error {
		offered = !store.MailboxesHashed.Has(tx, "")
		return nil
	})
	return offered && err == nil
}

// SCRAM returns the server side of a SCRAM login (RFC 5802), for the protocol and network of in.
// plus says that the client uses the mechanism with channel binding, and offered that the server
// offers it. binding returns the channel binding data of a type. done is called with the user, or
// with one of the errors of LoginMailbox.
func (s *Service) SCRAM(ctx context.Context, in core.MailLogin, plus, offered bool, binding func(kind string) []byte, done func(core.MailboxUser, error) error) *scram.Server {
	var r *loginRecord
	var counted string
	var guess *core.Guess
	var candidates []*store.Credential // of each key in user.Keys; nil for the mailbox's own password
	return &scram.Server{
		Plus: plus, Offered: offered, Binding: binding,
		Find: func(name string) (user scram.User, err error) {
			in.Username = name
			counted, r, err = s.readLoginRecord(in)
			if err != nil {
				return user, done(core.MailboxUser{}, err)
			}
			guess, err = s.BeginGuess(ctx, core.Network(in.IP), s.identity(counted, r, in.IP))
			if err != nil {
				return user, done(core.MailboxUser{}, err)
			}
			guess.Wrong() // count the attempt as wrong until the proof arrives: a client might never send it
			guess.End()
			user.Salt = s.saltOf(r.mb, counted)
			if keys, ok := s.ownSCRAMKeys(r.mb); ok && r.domain == nil && !r.secondFactor {
				user.Keys, candidates = append(user.Keys, keys), append(candidates, nil)
			}
			for _, c := range r.credentials {
				if r.domain != nil {
					user.Salt = c.Salt
				}
				kept, err := s.Keys.Open(store.CredentialBinding(c.ID), c.SCRAM)
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
			return done(s.completeLogin(r, candidates[key], in))
		},
	}
}

// saltOf returns the salt of a mailbox's passwords. For an unknown address it returns a constant
// salt, so that clients cannot tell whether the address exists.
func (s *Service) saltOf(mb *store.Mailbox, name string) []byte {
	if mb.Salt != nil {
		return mb.Salt
	}
	return s.Keys.StableMac("scram salt", name)[:saltSize]
}

// ownSCRAMKeys returns the SCRAM keys of a mailbox's own password, if they are known.
func (s *Service) ownSCRAMKeys(mb *store.Mailbox) (keys scram.Keys, ok bool) {
	if mb.SCRAM != nil {
		kept, err := s.Keys.Open(store.SCRAMBinding(mb.ID), mb.SCRAM)
		if err != nil {
			s.Log.Error("could not open the SCRAM keys of a mailbox", "mailbox", mb.Email, "error", err)
			return keys, false
		}
		return scram.KeysFrom(kept)
	}
	if mb.PasswordSealed == nil || mb.External != nil {
		return keys, false
	}
	password, err := s.Keys.Open(store.MailboxBinding(mb.ID), mb.PasswordSealed) // stored by an older release
	if err != nil {
		s.Log.Error("could not open the password of a mailbox", "mailbox", mb.Email, "error", err)
		return keys, false
	}
	s.upgradePassword(mb, string(password))
	return scram.KeysOf(string(password), s.saltOf(mb, mb.Email)), true
}

// hashPassword hashes a password and returns a function that sets it in a mailbox's record.
// chosenByUser says that the mailbox's user chose the password. Otherwise the record also gets the
// password itself, sealed, for exports.
func (s *Service) hashPassword(mb store.Mailbox, password string, chosenByUser bool) func(*store.Mailbox) {
	hash, salt := s.Logins.Hash(password), s.saltOf(&mb, mb.Email)
	keys := scram.KeysOf(password, salt)
	kept := s.Keys.Seal(store.SCRAMBinding(mb.ID), keys[:])
	var sealed []byte
	if !chosenByUser {
		sealed = s.Keys.Seal(store.MailboxBinding(mb.ID), []byte(password))
	}
	return func(mb *store.Mailbox) {
		mb.PasswordHash, mb.PasswordSealed, mb.Salt, mb.SCRAM = hash, sealed, salt, kept
	}
}

// upgradePassword replaces an imported hash by our own hash of the password, and adds the SCRAM
// keys. The password must have been verified.
func (s *Service) upgradePassword(mb *store.Mailbox, password string) {
	put := s.hashPassword(*mb, password, false)
	err := s.Store.Update(func(tx *store.Tx) error {
		now, err := store.Mailboxes.Get(tx, mb.ID)
		if err != nil || now.PasswordHash != mb.PasswordHash { // changed meanwhile
			return err
		}
		sealed := now.PasswordSealed
		put(now)
		now.PasswordSealed = sealed
		return store.Mailboxes.Put(tx, now)
	})
	if err != nil {
		s.Log.Warn("could not store a password in its new form", "mailbox", mb.Email, "error", err)
	}
}

// HashChosenPassword checks and hashes a password that the mailbox's user chose. It returns a
// function that sets the password in the mailbox's record. Nobody can read the password again.
func (s *Service) HashChosenPassword(mb store.Mailbox, password string) (func(*store.Mailbox), error) {
	if err := core.CheckPassword("password", password, core.LeastPassword); err != nil {
		return nil, err
	}
	return s.hashPassword(mb, password, true), nil
}

// endUserSessions ends the sessions of a mailbox's user, except the one with the id exceptID, and
// returns how many. If deleteUser is true, it also deletes the user's record and all tokens.
func endUserSessions(tx *store.Tx, mailboxID, exceptID string, deleteUser bool) (ended int, err error) {
	person, err := store.UserByMailbox.Find(tx, mailboxID)
	if person == nil || err != nil {
		return 0, err
	}
	var ids []string
	for _, t := range store.TokensByUser.Asc(tx, person.ID, "") {
		if t.ID != exceptID && (deleteUser || t.Kind == store.TokenKindSession) {
			ids = append(ids, t.ID)
		}
	}
	if err := core.DeleteAll(tx, store.Tokens, ids); err != nil || !deleteUser {
		return len(ids), err
	}
	return len(ids), store.Users.Delete(tx, person.ID)
}

// EndSessions ends the sessions of a mailbox's user, except the one with the id exceptID, and
// returns how many.
func (s *Service) EndSessions(tx *store.Tx, mailboxID, exceptID string) (ended int, err error) {
	return endUserSessions(tx, mailboxID, exceptID, false)
}

// recordLogin stores the time of a login, at most once a minute, and its network, once a day. If
// the store cannot be written, the login succeeds anyway.
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
		s.Log.Warn("could not store the time of a login", "mailbox", mb.Email, "error", err)
	}
}
