package core

import (
	"time"

	"github.com/mailstead/mailstead/store"
)

const WebhookLimit = 10

// Bounded is a limit on the wire: null when there is none.
func Bounded(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// RateUsage is the present window; Reset is in Unix seconds.
type RateUsage struct {
	Limit     int   `json:"limit"`
	Remaining int   `json:"remaining"`
	Reset     int64 `json:"reset"`
}

// Count adds to today's traffic of the account.
func (s *Core) Count(tx *store.Tx, accountID string, add func(*store.DayStat)) error {
	date := tx.Now().Format(time.DateOnly)
	d, err := store.DayStats.Find(tx, accountID+date)
	if err != nil {
		return err
	}
	if d == nil {
		d = &store.DayStat{AccountID: accountID, Date: date}
	}
	add(d)
	return store.DayStats.Put(tx, d)
}
