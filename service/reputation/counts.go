package reputation

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// maxOperatorDomains is the maximum number of an operator's recipient domains that are recorded for
// a day.
const maxOperatorDomains = 20

// OperatorOf returns a name for the operator of the receiving host: the registrable domain of the
// MX host, or of the recipient's own domain if no host answered.
func OperatorOf(host, recipient string) string {
	name := strings.ToLower(strings.TrimSuffix(cmp.Or(host, core.DomainOfAddress(recipient)), "."))
	if registrable, err := publicsuffix.EffectiveTLDPlusOne(name); err == nil {
		return registrable
	}
	return name
}

// countsForSender reports whether the deliveries and bounces of a message are counted for its
// sender. They are if a person or a program sent the message, and not this server, and the message
// leaves this server.
func countsForSender(row *store.Outgoing, forward bool) bool {
	left := row.Transport != store.OutgoingTransportLocal && row.Transport != store.OutgoingTransportSimulator
	return (row.MailboxID != "" || row.Program) && !forward && left
}

// CountAttempt counts a delivery attempt. It pauses the sender if too much of its mail has bounced
// or drawn complaints. The caller calls it for each attempt, in the transaction that records the
// attempt, and writes the row.
func (s *Service) CountAttempt(tx *store.Tx, row *store.Outgoing, forward bool, r deliver.Result) error {
	if !countsForSender(row, forward) {
		return nil
	}
	mx := r.Host
	if row.Transport != store.OutgoingTransportDirect {
		mx = ""
	}
	operator := OperatorOf(mx, row.Recipient)
	if !row.Counted {
		row.Counted = true
		if err := s.addCounts(tx, row, operator, func(h *store.HourCount) {
			h.Sent++
			if r.Status == deliver.Temporary {
				h.Deferred++
			}
		}); err != nil {
			return err
		}
	}
	switch advice, blocked := adviceOn(r.Reply); {
	case row.Transport != store.OutgoingTransportDirect && row.Transport != store.OutgoingTransportRelay:
	case blocked && r.Code != 0 && r.Status != deliver.Delivered:
		if err := s.notifyBlocked(tx, row, operator, r.Reply, advice); err != nil {
			return err
		}
	case r.Status == deliver.Delivered && row.Transport == store.OutgoingTransportDirect:
		if err := endAlert(tx, row.AccountID, KindBlocked, "account", operator); err != nil {
			return err
		}
	}
	if r.Status == deliver.Permanent {
		return nil // the caller calls CountBounce next
	}
	return s.checkResults(tx, row)
}

// IsBlocking reports whether an answer is about this host or its sender, and not about a recipient.
func IsBlocking(reply string) bool {
	_, blocked := adviceOn(reply)
	return blocked
}

// acceptingHost returns the MX host that accepted a message, or the last one that was tried; "" if
// no MX host was tried. Later bounces and complaints count for this host's operator, whatever names
// they mention.
func acceptingHost(row *store.Outgoing) string {
	n := len(row.Log)
	if n == 0 || row.Transport != store.OutgoingTransportDirect {
		return ""
	}
	for _, a := range slices.Backward(row.Log) {
		if a.Code/100 == 2 {
			return a.Host
		}
	}
	return row.Log[n-1].Host
}

// CountBounce counts a message that was refused permanently: by an answer of host, or by a later
// bounce message, for which host is "".
func (s *Service) CountBounce(tx *store.Tx, row *store.Outgoing, host, reply string) error {
	if !row.Counted {
		return nil
	}
	if row.Transport != store.OutgoingTransportDirect {
		host = ""
	}
	blocked := IsBlocking(reply)
	if err := s.addCounts(tx, row, OperatorOf(cmp.Or(host, acceptingHost(row)), row.Recipient), func(h *store.HourCount) {
		h.Bounced++
		if blocked {
			h.Blocked++
		}
	}); err != nil {
		return err
	}
	return s.checkResults(tx, row)
}

// CountComplaint counts a message that its recipient reported as spam.
func (s *Service) CountComplaint(tx *store.Tx, row *store.Outgoing) error {
	if !row.Counted {
		return nil
	}
	if err := s.addCounts(tx, row, OperatorOf(acceptingHost(row), row.Recipient), func(h *store.HourCount) { h.Complained++ }); err != nil {
		return err
	}
	return s.checkResults(tx, row)
}

// addCounts changes this hour's counts of the mailbox, domain, account and operator of a row.
func (s *Service) addCounts(tx *store.Tx, row *store.Outgoing, operator string, change func(*store.HourCount)) error {
	domainID := ""
	if d, err := store.DomainByName.Read(tx, row.Domain); err == nil {
		domainID = d.ID
	} else if !core.IsGone(err) {
		return err
	}
	hour := tx.Now().UTC().Hour()
	for _, subject := range []string{row.MailboxID, domainID, row.AccountID, "@" + operator} {
		if subject == "" {
			continue
		}
		day := today(tx)
		c, err := store.SendCounts.Find(tx, store.SendDayID(row.AccountID, day, subject))
		if err != nil {
			return err
		}
		if c == nil {
			c = &store.SendCount{AccountID: row.AccountID, Day: day, Subject: subject}
		}
		if to := core.DomainOfAddress(row.Recipient); subject[0] == '@' && len(c.Domains) < maxOperatorDomains && !slices.Contains(c.Domains, to) {
			c.Domains = append(c.Domains, to)
		}
		if n := len(c.Hours); n == 0 || c.Hours[n-1].Hour != hour {
			c.Hours = append(c.Hours, store.HourCount{Hour: hour})
		}
		change(&c.Hours[len(c.Hours)-1])
		if err := store.SendCounts.Put(tx, c); err != nil {
			return err
		}
	}
	return nil
}

func add(to *store.HourCount, h store.HourCount, sign int) {
	to.Sent += sign * h.Sent
	to.Deferred += sign * h.Deferred
	to.Bounced += sign * h.Bounced
	to.Blocked += sign * h.Blocked
	to.Complained += sign * h.Complained
}

// sumLastDay sums up the results of a subject's mail: of the last 24 hours, or since the counting
// was restarted if that is less long ago.
func sumLastDay(tx *store.Tx, accountID, subject string, since *store.CountingStart) (sum store.HourCount, err error) {
	now := tx.Now().UTC()
	first := now.Truncate(time.Hour).Add(-23 * time.Hour)
	if since != nil {
		if began := since.Since.UTC().Truncate(time.Hour); !began.Before(first) {
			first = began
			add(&sum, since.Base, -1)
		}
	}
	for _, day := range []time.Time{now.Add(-24 * time.Hour), now} {
		c, err := store.SendCounts.Find(tx, store.SendDayID(accountID, day.Format(time.DateOnly), subject))
		if err != nil {
			return sum, err
		}
		if c == nil {
			continue
		}
		for _, h := range c.Hours {
			if at := day.Truncate(24 * time.Hour).Add(time.Duration(h.Hour) * time.Hour); !at.Before(first) {
				add(&sum, h, 1)
			}
		}
	}
	return sum, nil
}

// restartCounting returns a CountingStart of now for a subject's mail. It has this hour's counts so
// far, so that sumLastDay can subtract them.
func restartCounting(tx *store.Tx, accountID, subject string) (*store.CountingStart, error) {
	now := tx.Now().UTC()
	c, err := store.SendCounts.Find(tx, store.SendDayID(accountID, now.Format(time.DateOnly), subject))
	out := &store.CountingStart{Since: now}
	if err == nil && c != nil {
		for _, h := range c.Hours {
			if h.Hour == now.Hour() {
				out.Base = h
			}
		}
	}
	return out, err
}
