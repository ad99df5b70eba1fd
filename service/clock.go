package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// maxAdvance is how far one request may advance the clock of a sandbox. The clock never passes
// endOfTime, since rows have days in 16 bits and times of signatures in zones end in 2106.
const maxAdvance = 3650 * 24 * time.Hour

var endOfTime = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// AdvanceIn says by how much to advance a sandbox's clock.
type AdvanceIn struct {
	Seconds int64 `json:"seconds"`
}

// Advanced is the clock's new time.
type Advanced struct {
	Now core.Time `json:"now"`
}

// AdvanceClock advances the clock of a sandbox, now and after every restart, and wakes everything
// that waits for a time. The clock never goes back, since stored times would then be in the future.
func (s *Service) AdvanceClock(_ context.Context, in AdvanceIn) (*Advanced, error) {
	if in.Seconds <= 0 || in.Seconds > int64(maxAdvance/time.Second) {
		return nil, core.Invalid("seconds", "out_of_range", "It must be from 1 to %d: the clock goes forward only, at most ten years at a time.", int64(maxAdvance/time.Second))
	}
	by := time.Duration(in.Seconds) * time.Second
	err := s.Core.Store.Update(func(tx *store.Tx) error {
		if !tx.Now().Add(by).Before(endOfTime) {
			return core.Invalid("seconds", "out_of_range", "The clock would show a year after 2099, which it cannot.")
		}
		row, err := store.SandboxClocks.Find(tx, store.SandboxClockID)
		if err != nil {
			return err
		}
		if row == nil {
			row = &store.SandboxClock{ID: store.SandboxClockID}
		}
		row.Ahead += by
		tx.After(func() { s.Core.Store.Clock().Advance(by) })
		return errors.Join(store.SandboxClocks.Put(tx, row), core.AuditCommand(tx, "advance_clock", "", store.AuditTarget{}))
	})
	if err != nil {
		return nil, err
	}
	s.Core.Log.Info("the clock of the sandbox was advanced", "seconds", in.Seconds)
	return &Advanced{core.Time{Time: s.Core.Now()}}, nil
}

// ResumeClock advances the clock of a newly opened store by as much as it was advanced before the
// restart. It is for sandboxes only.
func ResumeClock(st *store.Store) error {
	var row *store.SandboxClock
	err := st.View(func(tx *store.Tx) (err error) {
		row, err = store.SandboxClocks.Find(tx, store.SandboxClockID)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the offset of the sandbox's clock: %w", err)
	}
	if row != nil {
		st.Clock().Advance(row.Ahead)
	}
	return nil
}
