package reputation

import (
	"fmt"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/alert"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// Bounds for the mail of the last 24 hours: from when a sender is paused, and from when the owner
// is alerted.
const (
	minForBounces    = 50  // with fewer recipients, the share of bounces is not judged
	pauseBounces     = 10  // per cent that pause the sender
	alertBounces     = 5   // per cent that alert the owner
	minForComplaints = 300 // with fewer recipients, the share of complaints is not judged
	pauseComplaints  = 3   // per mille that pause the sender
	alertComplaints  = 1   // per mille that alert the owner
)

// Kinds of alerts.
const (
	KindLimit      = "limit"
	KindBounces    = "bounces"
	KindComplaints = "complaints"
	KindBlocked    = "blocked"
)

// exceededBound returns which bound is exceeded: KindBounces (bounces in per cent) or
// KindComplaints (complaints in per mille); "" if neither is. Mail that a receiver's block refused
// does not count, since it says nothing about the addresses.
func exceededBound(c store.HourCount, bounces, complaints int) string {
	hard := c.Bounced - c.Blocked
	switch {
	case c.Sent >= minForBounces && hard*100 > bounces*c.Sent:
		return KindBounces
	case c.Sent >= minForComplaints && c.Complained*1000 > complaints*c.Sent:
		return KindComplaints
	}
	return ""
}

// checkResults checks the bounces and spam reports of the mailbox that sent a message, and of its
// domain. Above one bound it alerts the owner; above a higher bound it pauses the mailbox or the
// domain.
func (s *Service) checkResults(tx *store.Tx, row *store.Outgoing) error {
	d, err := store.DomainByName.Read(tx, row.Domain)
	if core.IsGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	ofDomain, err := sumLastDay(tx, row.AccountID, d.ID, d.Counting)
	if err != nil || ofDomain.Bounced+ofDomain.Complained == 0 {
		return err // if the domain has no bounces and complaints, its mailboxes have none
	}
	mb, err := store.Mailboxes.Find(tx, row.MailboxID)
	if err != nil {
		return err
	}
	if mb != nil && mb.SendingPaused == nil {
		c, err := sumLastDay(tx, row.AccountID, mb.ID, mb.Counting)
		if err != nil {
			return err
		}
		if reason := exceededBound(c, pauseBounces, pauseComplaints); reason != "" {
			mb.SendingPaused, mb.UpdatedAt = &store.SendingPaused{Reason: reason, At: tx.Now()}, tx.Now()
			if err := store.Mailboxes.Put(tx, mb); err != nil {
				return err
			}
			return s.notifyPaused(tx, row, mb, d, c, reason)
		}
		if told, err := s.alertOwner(tx, row.AccountID, "mailbox", mb.ID, mb.Email, c); told || err != nil {
			return err
		}
	}

	// Check the domain and the account without the mail of the domain's paused mailboxes: the owner
	// was already notified of these.
	var ofPaused store.HourCount
	since := d.Counting
	if since != nil {
		since = &store.CountingStart{Since: since.Since}
	}
	for _, id := range store.MailboxesPaused.Keys(tx, d.ID, "") {
		theirs, err := sumLastDay(tx, row.AccountID, id, since)
		if err != nil {
			return err
		}
		add(&ofPaused, theirs, 1)
	}
	if d.SendingPaused == nil {
		add(&ofDomain, ofPaused, -1)
		if reason := exceededBound(ofDomain, pauseBounces, pauseComplaints); reason != "" {
			d, err = store.Domains.Get(tx, d.ID)
			if err != nil {
				return err
			}
			d.SendingPaused, d.UpdatedAt = &store.SendingPaused{Reason: reason, At: tx.Now()}, tx.Now()
			if err := store.Domains.Put(tx, d); err != nil {
				return err
			}
			return s.notifyPaused(tx, row, nil, d, ofDomain, reason)
		}
		if told, err := s.alertOwner(tx, row.AccountID, "domain", d.ID, d.Name, ofDomain); told || err != nil {
			return err
		}
	}
	a, err := store.Accounts.Read(tx, row.AccountID)
	if err != nil {
		return err
	}
	c, err := sumLastDay(tx, row.AccountID, a.ID, nil)
	if err != nil {
		return err
	}
	add(&c, ofPaused, -1)
	_, err = s.alertOwner(tx, row.AccountID, "account", a.ID, a.Name, c)
	return err
}

// Paused is the data of email_user.paused.
type Paused struct {
	UserID     *string   `json:"user_id" words:"ours"`
	Email      *string   `json:"email" words:"ours"`
	DomainID   string    `json:"domain_id" words:"ours"`
	Domain     string    `json:"domain" words:"ours"`
	Reason     string    `json:"reason" enum:"bounces|complaints"`
	Sent       int       `json:"sent"`
	Bounced    int       `json:"bounced"`
	Complained int       `json:"complained"`
	PausedAt   core.Time `json:"paused_at"`
}

// notifyPaused notifies the owner that a mailbox, or the whole domain if mb is nil, may no longer
// send.
func (s *Service) notifyPaused(tx *store.Tx, row *store.Outgoing, mb *store.Mailbox, d *store.Domain, c store.HourCount, reason string) error {
	data := Paused{DomainID: d.ID, Domain: d.Name, Reason: reason, Sent: c.Sent, Bounced: c.Bounced - c.Blocked, Complained: c.Complained, PausedAt: core.Time{Time: tx.Now()}}
	who := "The domain " + d.Name
	if mb != nil {
		data.UserID, data.Email, who = &mb.ID, &mb.Email, mb.Email
	}
	tx.After(func() { s.Metrics.SendPauses.Add(reason) })
	about := events.About{Domain: d.ID}
	if mb != nil {
		about.MailboxID = mb.ID
	}
	if _, err := s.events.Emit(tx, row.AccountID, EventPaused, about, data); err != nil {
		return err
	}
	why := fmt.Sprintf("%d of the %d recipients of the last 24 hours do not exist or refused the mail for good", data.Bounced, c.Sent)
	if reason == KindComplaints {
		why = fmt.Sprintf("%d of the %d recipients of the last 24 hours called it spam", c.Complained, c.Sent)
	}
	text := fmt.Sprintf("%s cannot send mail any more: %s.\n\n", who, why) +
		"Somebody else may be using a password or token of it, or a list of addresses is old. New mail is refused, and what waits stays in the queue. Receiving goes on.\n\n" +
		"Look at what was sent in the sending log, change the password and the tokens if you do not know it, and then press \"Resume sending\" on the page of the mailbox or domain. " +
		"By API that is PATCH with {\"sending_paused\": null}.\n"
	return s.mailOwner(tx, row.AccountID, who+" is paused: it cannot send mail", text)
}

// Types of the events that this package emits.
const (
	EventPaused = "email_user.paused"
	EventAlert  = "sending.alert"
)

// A SendingAlert is the data of sending.alert.
type SendingAlert struct {
	// `limit`: a limit of the day is reached; `bounces`, `complaints`: many of them; `blocked`: a
	// receiver blocks this host or sender.
	Kind    string    `json:"kind" enum:"limit|bounces|complaints|blocked"`
	Scope   string    `json:"scope" enum:"mailbox|domain|account"`
	Subject string    `json:"subject" words:"ours" example:"anna@example.com"` // The mailbox, domain or account; for `blocked` who runs the receiving host.
	Until   core.Time `json:"until"`                                           // When sending continues automatically; null if that has no fixed time.
	// What the receiver said; null for other kinds.
	Reply *string `json:"reply" words:"theirs" example:"550 5.7.1 Service unavailable, client host blocked" rare:"true"`
	// What to do, for people; the text may change.
	Advice string `json:"advice" words:"ours" example:"8 of the 80 recipients of the last 24 hours do not exist or refused the mail for good."`
}

// alertOwner notifies the owner of bounces and complaints above a bound, but not again while the
// bound stays exceeded. exceeded is true if a bound is exceeded, whether the owner is notified now
// or was before.
func (s *Service) alertOwner(tx *store.Tx, accountID, scope, id, name string, c store.HourCount) (exceeded bool, err error) {
	kind := exceededBound(c, alertBounces, alertComplaints)
	for _, k := range []string{KindBounces, KindComplaints} {
		if k == kind || c.Bounced+c.Complained == 0 {
			continue
		}
		if err := endAlert(tx, accountID, k, scope, id); err != nil {
			return false, err
		}
	}
	if kind == "" {
		return false, nil
	}
	advice := fmt.Sprintf("%d of the %d recipients of the last 24 hours do not exist or refused the mail for good. Above %d %% sending pauses. Take old addresses off your lists, and look in the sending log whether all of it is yours.",
		c.Bounced-c.Blocked, c.Sent, pauseBounces)
	if kind == KindComplaints {
		advice = fmt.Sprintf("%d of the %d recipients of the last 24 hours called the mail spam. Above 0.%d %% sending pauses. Write only to people who asked for it, and let them unsubscribe with one click.",
			c.Complained, c.Sent, pauseComplaints)
	}
	return true, s.raiseAlert(tx, &store.SendAlert{AccountID: accountID, Kind: kind, Scope: scope, Subject: id, Until: tx.Now().Add(24 * time.Hour), Advice: advice}, name)
}

func endAlert(tx *store.Tx, accountID, kind, scope, subject string) error {
	id := store.SendAlertID(accountID, kind, scope, subject)
	if a, err := store.SendAlerts.Find(tx, id); a == nil || err != nil {
		return err
	}
	return store.SendAlerts.Delete(tx, id)
}

// raiseAlert notifies an account of an alert: by an event, and by a message to the owner. An alert
// is reported once until a.Until; after that it may be reported again.
func (s *Service) raiseAlert(tx *store.Tx, a *store.SendAlert, name string) error {
	known, err := store.SendAlerts.Find(tx, store.SendAlertID(a.AccountID, a.Kind, a.Scope, a.Subject))
	if err != nil {
		return err
	}
	a.At = tx.Now()
	if known != nil && tx.Now().Before(known.Until) {
		if a.Kind == KindLimit || a.Until.Sub(known.Until) < time.Hour {
			return nil
		}
		known.Until = a.Until // the cause persists, so the alert is not repeated
		return store.SendAlerts.Put(tx, known)
	}
	if err := store.SendAlerts.Put(tx, a); err != nil {
		return err
	}
	data := SendingAlert{Kind: a.Kind, Scope: a.Scope, Subject: name, Reply: core.OrNull(a.Reply), Advice: a.Advice}
	if a.Kind == KindLimit {
		data.Until = core.Time{Time: a.Until}
	}
	tx.After(func() { s.Metrics.SendAlerts.Add(a.Kind) })
	var about events.About
	switch a.Scope {
	case "mailbox":
		about.MailboxID = a.Subject
	case "domain":
		about.Domain = a.Subject
	}
	if _, err := s.events.Emit(tx, a.AccountID, EventAlert, about, data); err != nil {
		return err
	}
	subject := map[string]string{
		KindLimit:      name + " has reached its limit of recipients for today",
		KindBounces:    "Much of the mail of " + name + " bounces",
		KindComplaints: "Recipients call mail of " + name + " spam",
		KindBlocked:    name + " blocks mail of this host",
	}[a.Kind]
	text := a.Advice + "\n"
	if a.Reply != "" {
		text += "\nThe answer was:\n" + a.Reply + "\n"
	}
	return s.mailOwner(tx, a.AccountID, subject, text)
}

// mailOwner plans a message to the owner of an account.
func (s *Service) mailOwner(tx *store.Tx, accountID, subject, text string) error {
	a, err := store.Accounts.Read(tx, accountID)
	if err != nil {
		return err
	}
	return alert.Plan(s.Core, tx, alert.HostMail{About: a.ID, To: a.Email, Subject: subject, Text: text})
}

// notifyBlocked notifies an account, once, that a receiver blocks this host or sender. It can
// notify the account again after the receiver has accepted a message.
func (s *Service) notifyBlocked(tx *store.Tx, row *store.Outgoing, operator, reply, advice string) error {
	return s.raiseAlert(tx, &store.SendAlert{
		AccountID: row.AccountID, Kind: KindBlocked, Scope: "account", Subject: operator, Until: tx.Now().AddDate(0, 0, store.SendCountDays), Reply: reply, Advice: advice,
	}, operator)
}

// NotifyLimit notifies the owner, once a day, that a daily limit stopped a mailbox from sending:
// its own limit, or that of its domain or account. It ignores other errors.
func (s *Service) NotifyLimit(u core.MailboxUser, refused error) error {
	e, ours := core.AsError(refused)
	if !ours || len(e.Details) == 0 || e.Code != "daily_send_limit_reached" && e.Code != "new_recipient_limit_reached" {
		return nil
	}
	a := &store.SendAlert{AccountID: u.AccountID, Kind: KindLimit, Scope: e.Details[0].Field, Advice: e.Message}
	name, known := "", false
	look := func(tx *store.Tx) error {
		domainID := u.DomainID
		mb, err := store.Mailboxes.Find(tx, u.MailboxID)
		if err != nil {
			return err
		}
		if mb != nil {
			domainID = mb.DomainID
		}
		d, err := store.Domains.FindShared(tx, domainID)
		if d == nil {
			known = true // there is nobody to notify
			return err
		}
		list, err := s.scopes(tx, mb, d)
		if err != nil {
			return err
		}
		for _, sc := range list {
			if sc.field == a.Scope {
				a.Subject, name = sc.id, sc.subject
			}
		}
		a.Until = tx.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		old, err := store.SendAlerts.Find(tx, store.SendAlertID(u.AccountID, a.Kind, a.Scope, a.Subject))
		known = old != nil && tx.Now().Before(old.Until)
		return err
	}
	if err := s.Store.View(look); err != nil || known {
		return err
	}
	return s.Store.Update(func(tx *store.Tx) error {
		if err := look(tx); err != nil || known {
			return err
		}
		return s.raiseAlert(tx, a, name)
	})
}

// PausedError returns why a mailbox may not send; nil if it may. mb is nil when the credential of
// the domain sends without a mailbox. The error is an SMTPError that wraps the API's Error.
func PausedError(mb *store.Mailbox, d *store.Domain) error {
	name, p := d.Name, d.SendingPaused
	if mb != nil && mb.SendingPaused != nil {
		name, p = mb.Email, mb.SendingPaused
	}
	if p == nil {
		return nil
	}
	why := "too many of its recipients do not exist or refused its mail"
	if p.Reason == store.PausedComplaints {
		why = "too many of its recipients called its mail spam"
	}
	return core.OverSMTP(452, "4.7.1", core.Errorf("sending_paused", "Sending of %s is paused since %s: %s. An owner or admin of the account can resume it.", name, p.At.UTC().Format(time.RFC3339), why))
}

// Resume lets a mailbox send again, and restarts its counting and that of its domain. The caller
// writes mb.
func (s *Service) Resume(tx *store.Tx, mb *store.Mailbox) error {
	d, err := store.Domains.Get(tx, mb.DomainID)
	if err != nil {
		return err
	}
	mb.SendingPaused = nil
	mb.Counting, err = restartCounting(tx, mb.AccountID, mb.ID)
	if err != nil {
		return err
	}
	d.Counting, err = restartCounting(tx, d.AccountID, d.ID)
	if err != nil {
		return err
	}
	if err := store.Domains.Put(tx, d); err != nil {
		return err
	}
	return s.planResume(tx, mb.AccountID)
}

// ResumeDomain lets a domain send again, and restarts its counting. The caller writes d.
func (s *Service) ResumeDomain(tx *store.Tx, d *store.Domain) (err error) {
	d.SendingPaused = nil
	d.Counting, err = restartCounting(tx, d.AccountID, d.ID)
	if err != nil {
		return err
	}
	return s.planResume(tx, d.AccountID)
}
