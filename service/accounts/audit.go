package accounts

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/recordid"
)

// An AuditRow is one row of the audit log as the API shows it.
type AuditRow struct {
	ID string `json:"id" words:"ours" example:"aud_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	// The operation, `login`, `login_failed`, another action in the dashboard, or a command of the
	// operator such as `account suspend`.
	Action    string       `json:"action" words:"ours"`
	Actor     AuditActor   `json:"actor"`
	Via       string       `json:"via" enum:"api|mcp|dashboard|command"`
	IP        *string      `json:"ip" words:"ours"`                     // Where the request came from; null for the operator.
	Target    *AuditTarget `json:"target"`                              // What was changed; null if it was several things, or nothing that has a name.
	Fields    []string     `json:"fields" words:"ours" example:"notes"` // The names of the fields that were given; never their values.
	Count     int          `json:"count"`                               // How many things were changed, or log-ins failed.
	RequestID *string      `json:"request_id" words:"ours"`             // The server's own id of the request, as in the request log; null for commands.
	CreatedAt core.Time    `json:"created_at"`
}

// An AuditActor is who made the change. The operator has no id.
type AuditActor struct {
	Type string  `json:"type" enum:"user|token|mailbox|operator|system"`
	ID   *string `json:"id" words:"ours" example:"tok_01k9a2b3c4d5e6f7g8h9j0k1m2"` // Null for the operator, and for failed log-ins of several users.
	Name string  `json:"name" words:"theirs" example:"deploy script"`              // The user's address, or the token's name.
}

// An AuditTarget is what was changed.
type AuditTarget struct {
	Type string `json:"type" words:"ours" example:"domain"` // More types may be added.
	ID   string `json:"id" words:"ours" example:"dom_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Name string `json:"name" words:"theirs" example:"example.com"` // Its name at that time.
}

// ListAuditIn is the query of list_audit. Actor and target match an id, a name or a type.
type ListAuditIn struct {
	page.Query
	Action        string     `query:"action" max:"100"`
	Actor         string     `query:"actor" max:"300" example:"tok_01k9a2b3c4d5e6f7g8h9j0k1m2"`  // The actor's id, name or type.
	Target        string     `query:"target" max:"300" example:"dom_01k9a2b3c4d5e6f7g8h9j0k1m2"` // The target's id, name or type.
	CreatedAfter  *core.Time `query:"created_after"`                                             // Only newer rows; an RFC 3339 time or a date.
	CreatedBefore *core.Time `query:"created_before"`                                            // Only older rows; an RFC 3339 time or a date.
}

// ListAudit lists the account's audit log, newest first. Both time bounds are exclusive.
func (s *Service) ListAudit(_ context.Context, who core.Actor, in ListAuditIn) (*page.Page[AuditRow], error) {
	s.flushFailedLogins()
	var after, before time.Time
	if in.CreatedAfter != nil {
		after = in.CreatedAfter.Time
	}
	if in.CreatedBefore != nil {
		before = in.CreatedBefore.Time
	}
	l := page.Listing[store.Audit, AuditRow]{
		Operation: "audit", Index: store.AuditsByAccount, Prefix: who.AccountID,
		Filters:   []string{in.Action, in.Actor, in.Target, after.String(), before.String()},
		Prefilter: page.HasTexts(in.Action, in.Actor, in.Target),
		Keep: func(a *store.Audit) bool {
			return (in.Action == "" || a.Action == in.Action) &&
				(in.Actor == "" || in.Actor == a.Actor.ID || in.Actor == a.Actor.Name || in.Actor == a.Actor.Type) &&
				(in.Target == "" || in.Target == a.Target.ID || in.Target == a.Target.Name || in.Target == a.Target.Type) &&
				(before.IsZero() || a.CreatedAt.Before(before))
		},
		Until: func(a *store.Audit) bool { return !after.IsZero() && !a.CreatedAt.After(after) },
		Out:   func(_ *store.Tx, a *store.Audit) (AuditRow, error) { return auditOut(a), nil },
	}
	if !before.IsZero() { // the time of a row is the time in its id
		l.Start = who.AccountID + recordid.First("aud", before.Add(time.Millisecond))
	}
	return l.Page(s.Core, who, in.Query)
}

func auditOut(a *store.Audit) AuditRow {
	out := AuditRow{
		ID: a.ID, Action: a.Action, Actor: AuditActor{a.Actor.Type, core.OrNull(a.Actor.ID), a.Actor.Name}, Via: a.Via, IP: core.OrNull(a.IP),
		Fields: append([]string{}, a.Fields...), Count: a.Count, RequestID: core.OrNull(a.RequestID), CreatedAt: core.Time{Time: a.CreatedAt},
	}
	if a.Target.Type != "" {
		out.Target = &AuditTarget{a.Target.Type, a.Target.ID, a.Target.Name}
	}
	return out
}

const (
	failedRowsADay = 10_000 // rows of failed log-ins a day, for all accounts together
	failedPerTx    = 300    // written in one transaction
)

// failedLogins counts wrong passwords and codes until they are written. They are written soon, but
// not before the answer: the time of a write would reveal whether an address belongs to a user.
type failedLogins struct {
	mu      sync.Mutex
	waiting map[string]*failedLogin // not yet written, by their key in the store
	wake    chan struct{}

	writing sync.Mutex // held while rows are written
	most    int        // see failedRowsADay
	day     string     // the day to which rows belongs
	rows    int        // rows of failed log-ins in the store on that day
}

// A failedLogin counts the attempts of one minute, from one IP address, at one account.
type failedLogin struct {
	row store.Audit
	n   int
}

func newFailedLogins() *failedLogins {
	return &failedLogins{waiting: map[string]*failedLogin{}, wake: make(chan struct{}, 1), most: failedRowsADay}
}

// RecordFailedLogin counts a wrong password or code at a user or a mailbox. An address that belongs
// to nobody is not logged.
func (s *Service) RecordFailedLogin(at store.AuditActor, accountID, ip, requestID string) {
	if at.ID == "" {
		return
	}
	minute := s.Now().UTC().Truncate(time.Minute)
	key := store.FailedLoginKey(minute, accountID, ip)
	f := s.failedLogins
	f.mu.Lock()
	defer f.mu.Unlock()
	found := f.waiting[key]
	if found == nil && len(f.waiting) >= f.most {
		return
	}
	if found == nil {
		found = &failedLogin{row: store.Audit{
			AccountID: accountID, Action: "login_failed", Actor: at,
			Via: core.AuditDashboard, IP: ip, Target: core.ActorTarget(at), RequestID: requestID, Minute: minute,
		}}
		f.waiting[key] = found
	}
	found.n++
	mergeAttackedUser(&found.row, at.ID)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// mergeAttackedUser records in a row which user was attacked. A row about attempts at several users
// names none of them.
func mergeAttackedUser(row *store.Audit, userID string) {
	if row.Actor.ID != userID {
		row.Actor, row.Target = store.AuditActor{Type: store.AuditActorUser, Name: "several users"}, store.AuditTarget{}
	}
}

// flushFailedLogins writes the waiting failed log-ins. Once a day has failedRowsADay rows, it adds
// no new ones, but still raises the counts in existing rows.
func (s *Service) flushFailedLogins() {
	f := s.failedLogins
	f.writing.Lock()
	defer f.writing.Unlock()
	f.mu.Lock()
	waiting := f.waiting
	f.waiting = map[string]*failedLogin{}
	f.mu.Unlock()
	for some := range slices.Chunk(slices.Sorted(maps.Keys(waiting)), failedPerTx) {
		var day string
		var rows int
		err := s.Store.Update(func(tx *store.Tx) error {
			day, rows = f.day, f.rows
			for _, key := range some {
				found := waiting[key]
				row, err := store.FailedLogins.Find(tx, key)
				if err != nil {
					return err
				}
				if row != nil {
					row.Count += found.n
					mergeAttackedUser(row, found.row.Actor.ID)
					if err := store.Audits.Put(tx, row); err != nil {
						return err
					}
					continue
				}
				if of := found.row.Minute.Format(time.DateOnly); of != day {
					day, rows = of, countFailedRows(tx, found.row.Minute, f.most)
				}
				if rows >= f.most {
					continue
				}
				rows++
				fresh := found.row
				fresh.Count = found.n
				if err := core.PutAudit(tx, fresh); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			s.Log.Error("write failed log-ins to the audit log", "error", err)
			return
		}
		if rows >= f.most && (f.rows < f.most || f.day != day) {
			s.Log.Warn("today's limit of audit rows for failed log-ins is reached; no more are added", "rows", rows)
		}
		f.day, f.rows = day, rows
	}
}

// countFailedRows counts the rows of failed log-ins on the day of minute, up to maxRows.
func countFailedRows(tx *store.Tx, minute time.Time, maxRows int) (n int) {
	begin := minute.Truncate(24 * time.Hour)
	end := store.TimeKey(begin.Add(24 * time.Hour))
	for key := range store.FailedLogins.Keys(tx, "", store.TimeKey(begin)) {
		if key >= end || n == maxRows {
			break
		}
		n++
	}
	return n
}
