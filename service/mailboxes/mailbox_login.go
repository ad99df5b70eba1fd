package mailboxes

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// LoginMailbox checks the log-in of a mail client from the address ip. The error is an *Error: 401
// for a wrong address or password, which take the same time, 403 for a mailbox that may not be
// used, 429 after too many wrong ones, 503 busy where too many wait.
func (s *Service) LoginMailbox(ctx context.Context, email, password, ip string) (core.MailboxUser, error) {
	address, err := core.NormalizeEmail("username", email)
	if err != nil {
		address = email[:min(len(email), 254)] // nobody's, but it is counted and takes its time like any other
	}
	mb, _, err := s.loginRecords(address)
	if err != nil {
		return core.MailboxUser{}, err
	}
	from := core.Origin{Network: core.Network(ip)}
	from.Known = core.IsKnown(mb.Seen, from.Network, s.Now())
	done, err := s.LoginAttempts.Begin(ctx, address, from, s.Now)
	if err != nil {
		return core.MailboxUser{}, err
	}
	defer done()
	mb, account, err := s.loginRecords(address) // as they are after the wait
	if err != nil {
		return core.MailboxUser{}, err
	}
	right, err := s.Logins.Verify(ctx, mb.PasswordHash, password, from, s.Now())
	if err != nil {
		return core.MailboxUser{}, err
	}
	if !right {
		s.RecordWrongPassword(address, from.Network)
		return core.MailboxUser{}, core.Errorf("unauthorized", "The address or the password is wrong.")
	}
	if mb.Status != "active" || !core.MayAct(account) {
		return core.MailboxUser{}, core.Errorf("mailbox_unavailable", "%s may not be used now: it is %s.", mb.Email, unusable(mb, account))
	}
	s.LoginAttempts.RecordSuccess(address, from.Network)
	s.recordLogin(mb, from.Network)
	return core.MailboxUser{AccountID: mb.AccountID, AccountNum: mb.AccountNum, MailboxID: mb.ID, Mailbox: mb.Num, Email: mb.Email, IP: ip}, nil
}

func unusable(mb *store.Mailbox, a *store.Account) string {
	if mb.Status == "active" {
		return a.Status
	}
	return mb.Status
}

// loginRecords gives empty records for an address that is nobody's, whose password is then never
// right.
func (s *Service) loginRecords(email string) (mb *store.Mailbox, a *store.Account, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		if mb, err = store.MailboxByEmail.Get(tx, email); errors.Is(err, store.ErrNotFound) {
			mb, err = unprovenMailbox(tx, email)
		}
		if err != nil {
			return err
		}
		a, err = store.Accounts.Get(tx, mb.AccountID)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return &store.Mailbox{}, &store.Account{}, nil
	}
	return mb, a, err
}

// unprovenMailbox gives the mailbox of an address whose domain nobody has proven to hold, if there
// is just one.
func unprovenMailbox(tx *store.Tx, email string) (mb *store.Mailbox, err error) {
	for _, d := range store.DomainsByName.Asc(tx, store.ClaimsKey(core.DomainOfAddress(email)), "") {
		if core.ClaimEnded(d) {
			continue
		}
		of, err := store.MailboxByAddress.Get(tx, store.AddressKey(d.ID, email))
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil || mb != nil {
			return nil, errors.Join(err, store.ErrNotFound)
		}
		mb = of
	}
	if mb == nil {
		return nil, store.ErrNotFound
	}
	return mb, nil
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
