package accounts

import (
	"cmp"
	"context"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// GetHostedUsageIn is the query of get_account_usage.
type GetHostedUsageIn struct {
	AccountID string `path:"account_id"`
	From      string `query:"from" example:"2026-11-01"` // The first day (UTC); 29 days before the last one by default.
	To        string `query:"to" example:"2026-11-30"`   // The last day (UTC); today by default.
}

// HostedUsage is what an account used on one UTC day.
type HostedUsage struct {
	Date         string `json:"date" words:"ours" example:"2026-11-30"`
	Sent         int64  `json:"sent"`
	Received     int64  `json:"received"`
	Bounced      int64  `json:"bounced"`
	Complained   int64  `json:"complained"`
	StorageBytes int64  `json:"storage_bytes"` // What was stored when the day was noted: today now, other days soon after they began.
	Mailboxes    int64  `json:"mailboxes"`
	Domains      int64  `json:"domains"`
}

// GetHostedUsage returns what an account used day by day, the oldest day first. Days of which
// nothing is known are left out.
func (s *Service) GetHostedUsage(_ context.Context, _ core.Actor, in GetHostedUsageIn) (*core.List[HostedUsage], error) {
	from, err := core.ParseDay("from", in.From)
	if err != nil {
		return nil, err
	}
	to, err := core.ParseDay("to", in.To)
	if err != nil {
		return nil, err
	}
	out := []HostedUsage{}
	err = s.Store.View(func(tx *store.Tx) error {
		a, err := HostedAccountOf(tx, in.AccountID)
		if err != nil {
			return err
		}
		today := tx.Now().UTC().Truncate(24 * time.Hour)
		if to.IsZero() {
			to = today
		}
		if from.IsZero() {
			from = to.AddDate(0, 0, -29)
		}
		if to.Before(from) {
			return core.Invalid("to", "out_of_range", "must not be before from, which is %s", from.Format(time.DateOnly))
		}
		before, last := from.AddDate(0, 0, -1).Format(time.DateOnly), to.Format(time.DateOnly)
		for d := range store.DayStats.After(tx, a.ID+before) {
			if d.AccountID != a.ID || d.Date > last {
				break
			}
			out = append(out, usageOut(d))
		}
		if today.Before(from) || today.After(to) {
			return nil
		}
		now, err := noteOf(tx, a)
		if err != nil {
			return err
		}
		if n := len(out); n > 0 && out[n-1].Date == now.Date {
			out = out[:n-1]
		}
		out = append(out, usageOut(now))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return core.ListOf(out), nil
}

func usageOut(d *store.DayStat) HostedUsage {
	return HostedUsage{d.Date, d.Sent, d.Received, d.Bounced, d.Complained, d.StorageBytes, d.Mailboxes, d.Domains}
}

// noteOf returns the statistics of an account's present day (UTC), with what it has now.
func noteOf(tx *store.Tx, a *store.Account) (*store.DayStat, error) {
	date := tx.Now().UTC().Format(time.DateOnly)
	d, err := store.DayStats.Find(tx, a.ID+date)
	if err != nil {
		return nil, err
	}
	if d == nil {
		d = &store.DayStat{AccountID: a.ID, Date: date}
	}
	stored, err := tx.AccountUsage(a.Num)
	d.Noted, d.StorageBytes = true, stored.Bytes
	d.Mailboxes, d.Domains = int64(store.MailboxesByAccount.Count(tx, a.ID, 0)), int64(store.DomainsByAccount.Count(tx, a.ID, 0))
	return d, err
}

// KindUsage is the kind of the job that notes once a day what each account has. It runs every hour,
// so that it runs soon after each day begins.
const KindUsage = "account_usage"

const notesPerTx = 100 // accounts noted in one transaction

func (s *Service) usageKind() jobs.Kind {
	return jobs.Kind{Name: KindUsage, Work: s.noteUsage, Timeout: 30 * time.Minute}
}

// noteUsage writes what each account has now into the statistics of this day, unless that is done.
func (s *Service) noteUsage(ctx context.Context, _ *store.Job) (jobs.Writes, error) {
	for after, more := "", true; more; {
		var due []*store.DayStat
		err := s.Store.View(func(tx *store.Tx) error {
			more = false
			for a := range store.Accounts.After(tx, after) {
				if len(due) == notesPerTx {
					more = true
					break
				}
				after = a.ID
				d, err := store.DayStats.FindShared(tx, a.ID+tx.Now().UTC().Format(time.DateOnly))
				if err != nil {
					return err
				}
				if d != nil && d.Noted || a.Gone() {
					continue
				}
				note, err := noteOf(tx, a)
				if err != nil {
					return err
				}
				due = append(due, note)
			}
			return nil
		})
		if err == nil && len(due) > 0 {
			err = s.Store.Update(func(tx *store.Tx) error { return putNotes(tx, due) })
		}
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// putNotes writes what noteOf has found, beside the traffic that was counted in the meantime.
func putNotes(tx *store.Tx, notes []*store.DayStat) error {
	for _, note := range notes {
		a, err := store.Accounts.FindShared(tx, note.AccountID)
		if err != nil {
			return err
		}
		if a == nil || a.Gone() { // its rows are being deleted
			continue
		}
		d, err := store.DayStats.Find(tx, note.AccountID+note.Date)
		if err != nil {
			return err
		}
		if d == nil {
			d = &store.DayStat{AccountID: note.AccountID, Date: note.Date}
		}
		d.Noted, d.StorageBytes, d.Mailboxes, d.Domains = true, note.StorageBytes, note.Mailboxes, note.Domains
		if err := store.DayStats.Put(tx, d); err != nil {
			return err
		}
	}
	return nil
}
