package reputation

import (
	"cmp"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A scope is a sender with a limit on recipients: a mailbox, its domain, or its account.
type scope struct {
	field   string // its name in errors
	name    string
	subject string // its name in alerts
	id      string
	most    int  // recipients in a day; -1: no limit
	mostNew int  // new recipients in a day; -1: no limit
	own     bool // most is the mailbox's daily_send_limit
}

// scopes returns the scopes whose limits apply to mail of a mailbox: the mailbox, its domain and
// its account, in this order. mb is nil when the credential of the domain sends without a mailbox.
func (s *Service) scopes(tx *store.Tx, mb *store.Mailbox, d *store.Domain) ([]scope, error) {
	a, err := store.Accounts.Read(tx, d.AccountID)
	if err != nil {
		return nil, err
	}
	l := s.LimitsOf(a) // 0 is no limit
	list := []scope{
		{field: "domain", name: d.Name, subject: d.Name, id: d.ID, most: cmp.Or(l.RecipientsPerDomain, -1), mostNew: cmp.Or(l.NewRecipientsPerDomain, -1)},
		{field: "account", name: "the account " + a.Name, subject: a.Name, id: a.ID, most: cmp.Or(l.RecipientsPerAccount, -1), mostNew: cmp.Or(l.NewRecipientsPerAccount, -1)},
	}
	if mb == nil {
		return list, nil
	}
	box := scope{field: "mailbox", name: mb.Email, subject: mb.Email, id: mb.ID, most: cmp.Or(l.RecipientsPerMailbox, -1), mostNew: cmp.Or(l.NewRecipientsPerMailbox, -1)}
	if own := mb.DailySendLimit; own != nil && (box.most < 0 || *own <= box.most) {
		box.most, box.own = *own, true
	}
	return append([]scope{box}, list...), nil
}

// SentToday returns how many recipients a mailbox has sent to on the day (UTC) of tx.
func SentToday(tx *store.Tx, mb *store.Mailbox) (int, error) {
	d, err := store.SendDays.Find(tx, store.SendDayID(mb.AccountID, today(tx), mb.ID))
	if d == nil {
		return 0, err
	}
	return d.Recipients, nil
}

func today(tx *store.Tx) string { return tx.Now().UTC().Format(time.DateOnly) }

// An Envelope holds the recipients of a message so far.
type Envelope struct {
	known      int // recipients that are contacts, or hosted here
	strangers  int // other recipients
	recipients map[string]bool
}

// Admit checks whether a mailbox of a domain may send to more recipients today, and counts them if
// so. mb is nil when the credential of the domain sends without a mailbox. The recipients are
// distinct. Errors are SMTPErrors 452 4.5.3 that wrap the API's daily_send_limit_reached or
// new_recipient_limit_reached.
func (s *Service) Admit(tx *store.Tx, mb *store.Mailbox, from *store.Domain, recipients []string) error {
	var e Envelope
	for _, r := range recipients {
		if err := s.addRecipient(tx, from.AccountID, &e, r); err != nil {
			return err
		}
	}
	list, err := s.scopes(tx, mb, from)
	if err != nil {
		return err
	}
	day := today(tx)
	for _, sc := range list {
		if sc.field != "mailbox" && sc.most < 0 && sc.mostNew < 0 {
			continue // no limit, so nothing is counted
		}
		d, err := s.checkScopeLimit(tx, from.AccountID, day, sc, &e)
		if err != nil {
			return err
		}
		d.Recipients += e.known + e.strangers
		d.New += e.strangers
		if err := store.SendDays.Put(tx, d); err != nil {
			return err
		}
	}
	for _, r := range recipients {
		if err := s.recordContact(tx, from.AccountID, r); err != nil {
			return err
		}
	}
	return nil
}

// MayAdd checks whether a message may have one more recipient, and adds the recipient to the
// envelope if so. It takes the same sender and returns the same errors as Admit, but counts
// nothing.
func (s *Service) MayAdd(tx *store.Tx, mb *store.Mailbox, from *store.Domain, e *Envelope, recipient string) error {
	if e.recipients[recipient] {
		return nil
	}
	more := *e // shares the map with e
	err := s.addRecipient(tx, from.AccountID, &more, recipient)
	if err != nil {
		return err
	}
	list, err := s.scopes(tx, mb, from)
	for _, sc := range list {
		if err == nil {
			_, err = s.checkScopeLimit(tx, from.AccountID, today(tx), sc, &more)
		}
	}
	if err != nil {
		delete(more.recipients, recipient)
		return err
	}
	*e = more
	return nil
}

// addRecipient adds a recipient to an envelope, unless the envelope has it already.
func (s *Service) addRecipient(tx *store.Tx, accountID string, e *Envelope, recipient string) error {
	if e.recipients[recipient] {
		return nil
	}
	known := true
	if s.limitsNewRecipients() {
		var err error
		known, err = isKnown(tx, accountID, recipient)
		if err != nil {
			return err
		}
	}
	if e.recipients == nil {
		e.recipients = map[string]bool{}
	}
	e.recipients[recipient] = true
	if known {
		e.known++
	} else {
		e.strangers++
	}
	return nil
}

// limitsNewRecipients reports whether there is any limit on new recipients.
func (s *Service) limitsNewRecipients() bool {
	l := s.Settings().Limits
	return l.NewRecipientsPerMailbox+l.NewRecipientsPerDomain+l.NewRecipientsPerAccount > 0
}

// checkScopeLimit returns today's count of a mailbox, domain or account, or an error if the
// recipients of an envelope exceed its limit.
func (s *Service) checkScopeLimit(tx *store.Tx, accountID, day string, sc scope, e *Envelope) (*store.SendDay, error) {
	d, err := store.SendDays.Find(tx, store.SendDayID(accountID, day, sc.id))
	if err != nil {
		return nil, err
	}
	if d == nil {
		d = &store.SendDay{AccountID: accountID, Day: day, Subject: sc.id}
	}
	again := tx.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	refuse := func(code, what string, most, sent int, more string) error {
		text := fmt.Sprintf("%s can send to %d %s a day (UTC) and has sent to %d. Send again after %s, or have ", sc.name, most, what, sent, again.Format(time.RFC3339))
		kind := "host_limit"
		if sc.own {
			kind, text = "own_limit", text+"its daily_send_limit raised."
		} else {
			text += "the operator of this host raise the limit."
		}
		refused := core.Errorf(code, "%s", text+more).With(sc.field, kind, text)
		refused.RetryAfter = again.Sub(tx.Now())
		answer := core.OverSMTP(452, "4.5.3", refused)
		answer.Message = fmt.Sprintf("%s has reached its limit of %d %s a day until %s", sc.name, most, what, again.Format(time.RFC3339))
		return answer
	}
	if n := e.known + e.strangers; sc.most >= 0 && n > 0 && d.Recipients+n > sc.most {
		return nil, refuse("daily_send_limit_reached", "recipients", sc.most, d.Recipients, "")
	}
	if sc.mostNew >= 0 && e.strangers > 0 && d.New+e.strangers > sc.mostNew {
		return nil, refuse("new_recipient_limit_reached", "new recipients", sc.mostNew, d.New,
			" New are addresses elsewhere that the account has not written to, and that have not written to it, in 90 days.")
	}
	return d, nil
}

// isKnown reports whether a recipient is hosted here, or is a contact of the account.
func isKnown(tx *store.Tx, accountID, email string) (bool, error) {
	if here, err := core.IsHosted(tx, email); here || err != nil {
		return here, err
	}
	c, err := store.Contacts.Find(tx, store.ContactID(accountID, email))
	if c == nil || err != nil {
		return false, err
	}
	return store.DayNumber(tx.Now())-c.Day <= store.ContactDays, nil
}

// recordContact stores an address on another server as a contact of an account, if there are limits
// on new recipients.
func (s *Service) recordContact(tx *store.Tx, accountID, email string) error {
	if !s.limitsNewRecipients() || s.Simulates(email) {
		return nil
	}
	if here, err := core.IsHosted(tx, email); here || err != nil {
		return err
	}
	id, day := store.ContactID(accountID, email), store.DayNumber(tx.Now())
	c, err := store.Contacts.Find(tx, id)
	if err != nil || c != nil && c.Day >= day {
		return err
	}
	return store.Contacts.Put(tx, &store.Contact{AccountID: accountID, Hash: id[len(accountID):], Day: day})
}

// RecordAuthor stores the author of a message that arrived in an account as a contact.
func (s *Service) RecordAuthor(tx *store.Tx, accountID, email string) error {
	if email == "" {
		return nil
	}
	return s.recordContact(tx, accountID, email)
}

// Prune deletes some expired days, contacts and counts, and returns how many.
func (s *Service) Prune(tx *store.Tx) (int, error) {
	days, err := core.DeleteExpired(tx, store.SendDays, store.SendDaysByTime)
	if err != nil {
		return days, err
	}
	contacts, err := core.DeleteExpired(tx, store.Contacts, store.ContactsByTime)
	if err != nil {
		return days + contacts, err
	}
	counts, err := core.DeleteExpired(tx, store.SendCounts, store.SendCountsByTime)
	if err != nil {
		return days + contacts + counts, err
	}
	alerts, err := core.DeleteExpired(tx, store.SendAlerts, store.SendAlertsByTime)
	return days + contacts + counts + alerts, err
}
