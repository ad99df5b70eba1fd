package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/store"
)

const (
	sendWait     = 500 * time.Millisecond // period whose entries are sent together
	retryWait    = 10 * time.Second       // wait after a failure
	maxKeptBytes = 256 << 20              // bytes of kept entries above which the next backup is made early
)

// A Schedule sends the entries and makes the backups of one installation while it runs. The
// exported fields must be set before Run. SetIntervals changes the intervals later.
type Schedule struct {
	Target           *Target
	Source           Source
	Every, FullEvery time.Duration // time between two backups, and between two full ones
	Keep             time.Duration // how far back a restore must be possible
	Sync             bool          // a commit is acknowledged only once its entry is stored at the target

	running sync.Mutex   // locked while a backup is made
	reading sync.RWMutex // locked while old backups are deleted, and for reading while a drill reads

	mu      sync.Mutex // also held while Every and FullEvery are read or changed after the start of Run
	state   State
	begun   time.Time     // when Run began
	changed chan struct{} // gets a value when the intervals change; nil before Run
}

// SetIntervals changes the time between two backups, and between two full ones. Both count from the
// last backup.
func (s *Schedule) SetIntervals(every, fullEvery time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Every == every && s.FullEvery == fullEvery {
		return
	}
	s.Every, s.FullEvery = every, fullEvery
	select {
	case s.changed <- struct{}{}:
	default: // Run does not run, or will see the change
	}
}

// intervals returns the time between two backups, and between two full ones.
func (s *Schedule) intervals() (every, fullEvery time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Every, s.FullEvery
}

// A State describes the backups of a Schedule.
type State struct {
	Target   string
	Every    time.Duration
	LastAt   time.Time // when the last backup was made; zero: there is none
	FirstAt  time.Time // the first time that can be restored; zero: there is none
	Verified bool      // the last backup was read back and compared
	Late     bool      // the last backup, or the start of the server if there is none, was more than two intervals ago
	Full     bool      // the next backup is a full one, since the entries for an incremental one were dropped
	Failures int       // number of backups that failed since the start
	BackupErr,
	SendErr error // errors of the last attempts to make a backup and to send entries; nil: successful
}

// Err returns the errors of the last attempts to make a backup and to send entries; nil if both
// were successful.
func (s State) Err() error { return errors.Join(s.BackupErr, s.SendErr) }

// State returns the state of the backups.
func (s *Schedule) State() (State, error) {
	dropped, err := s.Source.Store.EntriesDropped()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.state
	now.Target, now.Every = s.Target.Place.String(), s.Every
	now.Late = s.isLateLocked()
	now.Full = dropped
	return now, err
}

// isLateLocked does the work of isLate; the caller has locked s.mu.
func (s *Schedule) isLateLocked() bool {
	since := s.state.LastAt
	if since.IsZero() {
		since = s.begun
	}
	return !since.IsZero() && s.Source.Store.Now().After(since.Add(2*s.Every))
}

// isLate reports whether the last backup is older than two intervals.
func (s *Schedule) isLate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isLateLocked()
}

// recordBackup records the outcome of an attempt to make a backup.
func (s *Schedule) recordBackup(at time.Time, verified bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.BackupErr = err
	if err == nil {
		s.state.LastAt, s.state.Verified = at, verified
	} else {
		s.state.Failures++
	}
}

// recordFirst records the first time that can be restored.
func (s *Schedule) recordFirst(list []summary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.FirstAt = time.Time{}
	if i := slices.IndexFunc(list, func(m summary) bool { return m.Kind == Full }); i >= 0 {
		s.state.FirstAt = list[i].At
	}
}

// recordSend records the outcome of sending entries.
func (s *Schedule) recordSend(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.SendErr = err
}

// limitToIntervals limits the times of the next backup and of the next full one to one interval
// from now, in case the clock was set back.
func (s *Schedule) limitToIntervals(now, next, full time.Time) (limitedNext, limitedFull time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.LastAt, s.begun = earlierTime(s.state.LastAt, now), earlierTime(s.begun, now)
	return earlierTime(next, now.Add(s.Every)), earlierTime(full, now.Add(s.FullEvery))
}

// Backup makes one backup now, to the schedule's target.
func (s *Schedule) Backup(ctx context.Context, full, verify bool) (*Result, error) {
	s.running.Lock()
	defer s.running.Unlock()
	at := s.Source.Store.Now()
	dropped, err := s.Source.Store.EntriesDropped()
	if err != nil {
		return nil, err
	}
	res, err := s.Target.Run(ctx, s.Source, full, verify)
	s.recordBackup(at, verify, err)
	if err != nil {
		return nil, err
	}
	s.Source.Store.ConfirmEntriesStored(res.Number)
	if res.Reason != "" {
		level := slog.LevelInfo
		if dropped { // the changes that were dropped cannot be restored
			level = slog.LevelWarn
		}
		s.Source.Log.Log(ctx, level, "the backup is a full one", "reason", res.Reason)
	}
	if s.reading.TryLock() { // otherwise a drill reads them, and the next backup deletes them
		if err := s.Target.Prune(ctx, s.Source.Store.Now().Add(-s.Keep)); err != nil {
			s.Source.Log.Error("old backups could not be deleted; the next backup tries again", "target", res.Target, "error", err)
		}
		s.reading.Unlock()
	}
	if list, err := s.Target.summaries(ctx); err == nil {
		s.recordFirst(list)
	}
	return res, nil
}

// Running reports whether a backup is being made at this moment.
func (s *Schedule) Running() bool {
	if !s.running.TryLock() {
		return true
	}
	s.running.Unlock()
	return false
}

// Hold keeps old backups from being deleted until release is called. It waits until a deletion that
// has begun is done.
func (s *Schedule) Hold() (release func()) {
	s.reading.RLock()
	return s.reading.RUnlock
}

// LoadState reads the list of backups, so that State knows the last one. Run does so itself.
func (s *Schedule) LoadState(ctx context.Context) { s.readDueTimes(ctx) }

// Run makes a backup after each interval Every, and sends each entry at most a second after its
// commit, until ctx ends. It logs failures and tries again.
func (s *Schedule) Run(ctx context.Context) error {
	s.mu.Lock()
	s.begun, s.changed = s.Source.Store.Now(), make(chan struct{}, 1)
	s.mu.Unlock()
	s.Source.Store.RequireStored(s.Sync)
	next, full := s.readDueTimes(ctx)
	late := false
	for {
		var err error
		every, fullEvery := s.intervals()
		kept, _, keptErr := s.Source.Store.KeptEntries()
		now := s.Source.Store.Now()
		next, full = s.limitToIntervals(now, next, full)
		if !now.Before(next) || kept > maxKeptBytes {
			var res *Result
			res, err = s.Backup(ctx, !now.Before(full), true)
			if err == nil {
				s.Source.Log.Info("backup made", "kind", res.Kind, "target", res.Target, "number", res.Number, "bytes_added", res.BytesAdded, "ms", res.DurationMS)
				next = now.Add(every)
				if res.Kind == Full {
					full = now.Add(fullEvery)
				}
			} else {
				next = now.Add(min(every, time.Minute))
			}
		} else {
			if err = s.Target.Send(ctx, s.Source.Store); errors.Is(err, store.ErrGap) {
				err, next = nil, s.Source.Store.Now() // too many entries, or no backup to build on: make a full backup
			}
			s.recordSend(err)
		}
		if err = errors.Join(err, keptErr); err != nil && ctx.Err() == nil {
			s.Source.Log.Error("the backup is not up to date; trying again", "target", s.Target.Place.String(), "error", err)
		}
		if s.isLate() != late {
			late = !late
			if late {
				s.Source.Log.Error("the last backup is older than two intervals", "target", s.Target.Place.String(), "every", every)
			} else {
				s.Source.Log.Info("the backup is up to date again", "target", s.Target.Place.String())
			}
		}
		wait := sendWait
		switch {
		case err != nil:
			wait = retryWait
		case s.Sync:
			wait = 0
		}
		goOn, changed := s.waitForWork(ctx, wait, next)
		if !goOn {
			break
		}
		if changed {
			next, full = s.readDueTimes(ctx)
		}
	}
	// Send the last entries: when the process has ended, the backup should have all acknowledged
	// messages.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := s.Target.Send(last, s.Source.Store); err != nil && !errors.Is(err, store.ErrClosed) {
		s.Source.Log.Error("the last entries were not sent to the backup; the next start sends them", "error", err)
	}
	return nil
}

// waitForWork waits for the duration least, and then until there are entries to send or the time
// nextBackup has come, or the intervals have changed. goOn is false when ctx has ended.
func (s *Schedule) waitForWork(ctx context.Context, least time.Duration, nextBackup time.Time) (goOn, changed bool) {
	select {
	case <-ctx.Done():
		return false, false
	case <-time.After(least):
	}
	due, stop := s.Source.Store.Clock().At(nextBackup)
	defer stop()
	select {
	case <-ctx.Done():
		return false, false
	case <-s.changed:
		return true, true
	case <-s.Source.Store.EntriesAdded():
	case <-due:
	}
	return true, false
}

func earlierTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// readDueTimes returns when the next backup and the next full one are due. It also records the last
// backup for State.
func (s *Schedule) readDueTimes(ctx context.Context) (next, full time.Time) {
	every, fullEvery := s.intervals()
	manifests, err := s.Target.summaries(ctx)
	if err != nil {
		s.recordBackup(time.Time{}, false, err)
		return s.Source.Store.Now(), s.Source.Store.Now()
	}
	s.recordFirst(manifests)
	for _, m := range manifests {
		at, ok := timeInID(m.ID)
		if !ok {
			continue
		}
		s.recordBackup(at, m.Verified, nil)
		next = at.Add(every)
		if m.Kind == Full {
			full = at.Add(fullEvery)
		}
	}
	// If no entries are kept, a backup is due now. Either the store was restored, or the last
	// process ended between dropping the entries and the full backup.
	if _, kept, err := s.Source.Store.KeptEntries(); err == nil && !kept {
		next = s.Source.Store.Now()
	}
	return next, full
}

// idTimeLayout is the layout of the time at the start of a backup's id.
const idTimeLayout = "20060102T150405.000Z"

// timeInID returns the time in the id of a backup; ok is false if there is none.
func timeInID(id string) (at time.Time, ok bool) {
	at, err := time.Parse(idTimeLayout, id[:min(len(idTimeLayout), len(id))])
	return at, err == nil
}

// newID returns the id of a backup: when it was made, the number of its last commit, its kind.
func newID(at time.Time, number uint64, kind string) string {
	return strings.Join([]string{at.UTC().Format(idTimeLayout), fmt.Sprintf("%016x", number), kind}, "-")
}
