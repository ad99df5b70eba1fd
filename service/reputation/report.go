package reputation

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// maxReportRows is the maximum number of domains, of mailboxes and of operators in a report. Those
// with the most mail are listed.
const maxReportRows = 100

// A Window counts the results of mail of some days, by recipients.
type Window struct {
	Sent          int     `json:"sent" example:"1200"`   // Recipients, each counted once, at the first attempt. Mail between mailboxes here does not count.
	Deferred      int     `json:"deferred" example:"40"` // Of these, how many were put off at the first attempt.
	Bounced       int     `json:"bounced" example:"6"`   // Refused for good, at once or by a report later.
	Complained    int     `json:"complained" example:"1"`
	BounceRate    float64 `json:"bounce_rate" example:"0.005"`
	ComplaintRate float64 `json:"complaint_rate" example:"0.0008"`
}

// Windows holds the counts of the last one, seven and thirty days.
type Windows struct {
	Day   Window `json:"1d"`
	Week  Window `json:"7d"`
	Month Window `json:"30d"`
}

// AccountReputation counts the results of an account's mail.
type AccountReputation struct {
	Windows Windows `json:"windows"`
}

// DomainReputation counts the results of a domain's mail.
type DomainReputation struct {
	DomainID      string             `json:"domain_id" words:"ours"`
	Domain        string             `json:"domain" words:"ours"`
	SendingPaused *core.SendingPause `json:"sending_paused"`
	Windows       Windows            `json:"windows"`
}

// MailboxReputation counts the results of a mailbox's mail.
type MailboxReputation struct {
	UserID        string             `json:"user_id" words:"ours"`
	Email         string             `json:"email" words:"ours"`
	SendingPaused *core.SendingPause `json:"sending_paused"`
	Windows       Windows            `json:"windows"`
}

// DestinationReputation counts the results of mail to one operator of receiving hosts.
type DestinationReputation struct {
	Operator string        `json:"operator" words:"theirs" example:"outlook.com"` // Who runs the receiving hosts: the registrable domain of their names.
	Domains  []string      `json:"domains" words:"theirs" example:"example.net"`  // Some of the recipient domains.
	Blocked  *BlockedReply `json:"blocked"`
	Windows  Windows       `json:"windows"`
}

// A BlockedReply is an operator's answer that blocks this host or sender.
type BlockedReply struct {
	Reply string `json:"reply" words:"theirs" example:"550 5.7.1 Service unavailable, client host blocked"`
	// What to do, for people; the text may change.
	Advice string    `json:"advice" words:"ours" example:"Ask for the address of this host to be taken off at https://sender.office.com."`
	At     core.Time `json:"at"`
}

// Reputation counts the results of an account's mail in the last thirty days.
type Reputation struct {
	Account      AccountReputation       `json:"account"`
	Domains      []DomainReputation      `json:"domains"`
	Mailboxes    []MailboxReputation     `json:"mailboxes"`
	Destinations []DestinationReputation `json:"destinations"`
	AsOf         core.Time               `json:"as_of"`
}

// ReputationIn is the query of get_reputation.
type ReputationIn struct {
	Domain  string `query:"domain"`  // Only this domain, by its name or id.
	Mailbox string `query:"mailbox"` // The mailbox's address.
}

// A tally sums up the results of a subject's mail.
type tally struct {
	sums    [3]store.HourCount
	domains []string
}

// GetReputation returns the results of the mail of the account, its domains and mailboxes, and for
// each receiving operator.
func (s *Service) GetReputation(_ context.Context, who core.Actor, in ReputationIn) (*Reputation, error) {
	out := &Reputation{Domains: []DomainReputation{}, Mailboxes: []MailboxReputation{}, Destinations: []DestinationReputation{}, AsOf: core.Time{Time: s.Now()}}
	err := s.Store.View(func(tx *store.Tx) error {
		onlyDomain, onlyMailbox := "", ""
		if in.Domain != "" {
			d, err := core.FindDomain(tx, who, in.Domain)
			if err != nil {
				if core.IsGone(err) {
					return core.NotFound("domain")
				}
				return err
			}
			onlyDomain = d.ID
		}
		if in.Mailbox != "" {
			mb, err := store.MailboxByEmail.OfAccount(tx, who.AccountID, strings.ToLower(in.Mailbox))
			if core.IsGone(err) {
				mb, err = core.ReadMailbox(tx, who, in.Mailbox)
			}
			if err != nil {
				if core.IsGone(err) {
					return core.NotFound("email user")
				}
				return err
			}
			onlyMailbox = mb.ID
		}

		// Sum up the hours of the last 1, 7 and 30 days. Each iteration reads one day of the
		// account, its domains and mailboxes, and all operators.
		now := tx.Now().UTC()
		hour := now.Truncate(time.Hour)
		var first [3]time.Time
		for i, days := range []int{1, 7, 30} {
			first[i] = hour.Add(time.Hour).AddDate(0, 0, -days)
		}
		all := map[string]*tally{}
		for back := range 31 {
			day := now.AddDate(0, 0, -back).Truncate(24 * time.Hour)
			for _, c := range store.SendCountsByDay.Asc(tx, who.AccountID+day.Format(time.DateOnly), "") {
				t := all[c.Subject]
				if t == nil {
					t = &tally{}
					all[c.Subject] = t
				}
				for _, d := range c.Domains {
					if len(t.domains) < maxOperatorDomains && !slices.Contains(t.domains, d) {
						t.domains = append(t.domains, d)
					}
				}
				for _, h := range c.Hours {
					for i := range first {
						if at := day.Add(time.Duration(h.Hour) * time.Hour); !at.Before(first[i]) {
							add(&t.sums[i], h, 1)
						}
					}
				}
			}
		}
		if t := all[who.AccountID]; t != nil {
			out.Account.Windows = t.windows()
		}
		most := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
			if n := all[b].sums[2].Sent - all[a].sums[2].Sent; n != 0 {
				return n
			}
			return strings.Compare(a, b)
		})
		for _, subject := range most {
			w := all[subject].windows()
			switch {
			case strings.HasPrefix(subject, "@") && len(out.Destinations) < maxReportRows:
				one := DestinationReputation{Operator: subject[1:], Domains: append([]string{}, all[subject].domains...), Windows: w}
				a, err := store.SendAlerts.Find(tx, store.SendAlertID(who.AccountID, KindBlocked, "account", one.Operator))
				if err != nil {
					return err
				}
				if a != nil {
					one.Blocked = &BlockedReply{a.Reply, a.Advice, core.Time{Time: a.At}}
				}
				out.Destinations = append(out.Destinations, one)
			case strings.HasPrefix(subject, "dom_") && len(out.Domains) < maxReportRows && (onlyDomain == "" || onlyDomain == subject):
				d, err := store.Domains.Read(tx, subject)
				if core.IsGone(err) {
					continue
				}
				if err != nil {
					return err
				}
				out.Domains = append(out.Domains, DomainReputation{d.ID, d.Name, core.PauseOut(d.SendingPaused), w})
			case strings.HasPrefix(subject, "eu_") && len(out.Mailboxes) < maxReportRows && (onlyMailbox == "" || onlyMailbox == subject):
				mb, err := store.Mailboxes.Read(tx, subject)
				if core.IsGone(err) {
					continue
				}
				if err != nil {
					return err
				}
				if onlyDomain == "" || mb.DomainID == onlyDomain {
					out.Mailboxes = append(out.Mailboxes, MailboxReputation{mb.ID, mb.Email, core.PauseOut(mb.SendingPaused), w})
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (t *tally) windows() Windows {
	var out [3]Window
	for i, c := range t.sums {
		w := Window{Sent: c.Sent, Deferred: c.Deferred, Bounced: c.Bounced, Complained: c.Complained}
		if c.Sent > 0 {
			w.BounceRate = min(1, float64(c.Bounced)/float64(c.Sent))
			w.ComplaintRate = min(1, float64(c.Complained)/float64(c.Sent))
		}
		out[i] = w
	}
	return Windows{out[0], out[1], out[2]}
}
