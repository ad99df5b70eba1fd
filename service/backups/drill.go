package backups

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/backup"
	"github.com/mailstead/mailstead/store/segment"
)

const (
	drillDir       = "drill" // in the data directory; it exists while a drill runs
	messagesToRead = 1000
	secretsToOpen  = 3 // of each kind

	growthShare = 10                     // the store may have grown by a tenth since the backup
	roomEvery   = 200 * time.Millisecond // how often the free space is looked at during a drill

	dueEvery   = time.Minute // how often it is looked whether a drill is due
	retryAfter = time.Hour   // after a drill that could not be carried out, the next one is due no later than this
)

// DrillResult is the result of a job that made a drill.
type DrillResult struct {
	At       core.Time `json:"at"`       // The time that the backup ends with.
	Number   int64     `json:"number"`   // The number of its last change.
	Messages int64     `json:"messages"` // Messages in it.
	// Whether its contents were looked at. False: it is encrypted, so that this host cannot read
	// it, and only its checksums were verified.
	Decrypted bool     `json:"decrypted"`
	OK        bool     `json:"ok"`                                                                                        // Whether nothing is wrong.
	Problems  []string `json:"problems" words:"theirs" example:"[\"segments/00000001-5f differs from what was stored\"]"` // What is wrong, at most 50.
}

// DrillBackup restores the newest backup for a trial, as a job.
func (s *Service) DrillBackup(ctx context.Context, who core.Actor) (*core.JobResponse, error) {
	if err := s.mayStart(); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	if err := s.requireRoom(limited, s.drillTarget()); err != nil {
		return nil, err
	}
	return s.start(who, KindDrill)
}

// drillTarget returns the place of the backups, for a drill.
func (s *Service) drillTarget() *backup.Target {
	to := s.Schedule.Target
	return &backup.Target{Place: to.Place, Identities: to.Identities, Temp: s.drillPath(), Program: to.Program}
}

func (s *Service) drillPath() string { return filepath.Join(s.Store.Dir(), drillDir) }

// requireRoom returns an error if there is no backup, if the place cannot be read, or if the disk
// lacks the room for a drill. Damage is no such error: the drill finds it.
func (s *Service) requireRoom(ctx context.Context, t *backup.Target) error {
	needed, err := t.DrillRoom(ctx)
	if errors.As(err, new(*backup.RangeError)) {
		return core.Errorf("not_found", "There is no backup at %s yet. Make one first.", t.Place)
	}
	if errors.Is(err, backup.ErrDamaged) {
		return nil
	}
	if err != nil {
		return s.placeError(err)
	}
	held, err := s.Store.Holdings()
	if err != nil {
		return err
	}
	if needed > 0 { // what was sent since the backup may have made the store larger than it
		needed = max(needed, held.Bytes+held.Bytes/growthShare)
	}
	disk, err := s.Store.Disk()
	if err != nil {
		return nil // the system does not tell how much is free
	}
	if spare := disk.Spare(); needed > 0 && disk.Free < needed+spare {
		e := core.Errorf("storage_full", "The disk of %s has %d MiB free. A drill takes up to %d MiB there for a while, and leaves %d MiB free. Free space, or make the disk larger.",
			s.Store.Dir(), disk.Free>>20, needed>>20+1, spare>>20)
		e.RetryAfter = time.Hour
		return e
	}
	return nil
}

// errRoomTaken ends a drill when others have taken the room that it needs.
var errRoomTaken = errors.New("the disk has become too full for the drill")

// drill does the job of making a drill.
func (s *Service) drill(ctx context.Context, job *store.Job) (jobs.Writes, error) {
	if s.Schedule == nil {
		return nil, core.Errorf("not_configured", "The settings ask for no backups any more.")
	}
	s.RemoveLeftover()
	defer s.RemoveLeftover()
	defer s.Schedule.Hold()()
	t := s.drillTarget()
	if err := s.requireRoom(ctx, t); err != nil {
		return nil, err
	}
	if err := os.Mkdir(s.drillPath(), 0o700); err != nil {
		return nil, err
	}
	work, cancel := context.WithCancelCause(withProgress(ctx))
	var watch sync.WaitGroup
	watch.Go(func() { s.watchRoom(work, cancel) })
	defer watch.Wait()
	defer cancel(nil)
	found, err := t.Drill(work, filepath.Join(s.drillPath(), "store"), s.Log.With("job_id", job.ID), s.look)
	switch {
	case err == nil:
	case errors.Is(err, errRoomTaken), errors.Is(err, syscall.ENOSPC), errors.Is(err, store.ErrFull):
		return nil, core.Errorf("storage_full", "The disk of %s became too full, so the drill was stopped. Free space, and try again.", s.Store.Dir()).Because(err)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, new(*backup.RangeError)):
		return nil, core.Errorf("not_found", "There is no backup at %s.", t.Place)
	default:
		return nil, core.Errorf("backup_failed", "The newest backup at %s could not be restored: %v.", t.Place, err).Because(err)
	}
	out := DrillResult{core.Time{Time: found.At}, int64(found.Number), found.Messages, found.Decrypted, len(found.Problems) == 0, append([]string{}, found.Problems...)}
	return withResult(out, func(tx *store.Tx, j *store.Job) error {
		d, err := lastDrill(tx)
		if err != nil {
			return err
		}
		d.JobID, d.EndedAt, d.Failed = j.ID, tx.Now(), ""
		d.BackupAt, d.Messages, d.Decrypted, d.Problems = found.At, found.Messages, found.Decrypted, len(found.Problems)
		if d.OK() {
			d.FaultlessAt = d.EndedAt
		}
		return store.BackupDrills.Put(tx, d)
	})
}

// lastDrill returns the record of the last drill, or a new one.
func lastDrill(tx *store.Tx) (*store.BackupDrill, error) {
	d, err := store.BackupDrills.Find(tx, store.BackupDrillID)
	if d == nil {
		d = &store.BackupDrill{ID: store.BackupDrillID}
	}
	return d, err
}

// recordFailedDrill records a drill that could not be carried out. The damage that an earlier drill
// has found stays recorded.
func (s *Service) recordFailedDrill(tx *store.Tx, j *store.Job, failed error) error {
	d, err := lastDrill(tx)
	if err != nil {
		return err
	}
	d.JobID, d.EndedAt, d.Failed = j.ID, tx.Now(), "Something went wrong in the server; its log says what."
	if e, ok := core.AsError(failed); ok {
		d.Failed = e.Message
	}
	return store.BackupDrills.Put(tx, d)
}

// watchRoom cancels a drill when the disk becomes too full.
func (s *Service) watchRoom(ctx context.Context, cancel context.CancelCauseFunc) {
	again := time.NewTicker(roomEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		if disk, err := s.Store.Disk(); err == nil && disk.Free < disk.Spare() {
			cancel(errRoomTaken)
			return
		}
	}
}

// RemoveLeftover removes the directory of a drill. It is called before the queue runs, since a
// server that was killed during a drill leaves it.
func (s *Service) RemoveLeftover() {
	if err := os.RemoveAll(s.drillPath()); err != nil {
		s.Log.Error("the directory of a drill could not be removed", "path", s.drillPath(), "error", err)
	}
}

// look makes the checks of a restored store that need its master key or know what messages are. The
// error has a line for each problem.
func (s *Service) look(ctx context.Context, st *store.Store) error {
	return errors.Join(openSecrets(st), readMessages(ctx, st))
}

// openSecrets opens some secrets of a restored store with the master key beside it.
func openSecrets(st *store.Store) error {
	keys, err := core.OpenKeys(st)
	if err != nil {
		return fmt.Errorf("the master key in the backup: %w", err)
	}
	var errs []error
	err = st.View(func(tx *store.Tx) error {
		for _, secret := range tx.Secrets(secretsToOpen) {
			if _, err := keys.Open(secret.Binding, secret.Sealed); err != nil {
				errs = append(errs, err)
			}
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// readMessages reads and parses messagesToRead messages of a restored store, spread over all
// mailboxes. It leaves out messages whose bytes are damaged, which the check of the store names.
func readMessages(ctx context.Context, st *store.Store) error {
	held, err := st.Holdings()
	if err != nil {
		return err
	}
	list, err := sampleMessages(st, held.Messages)
	if err != nil {
		return err
	}
	var errs []error
	for i := range list {
		if ctx.Err() != nil {
			break
		}
		if err := readMessage(st, &list[i]); err != nil && !errors.Is(err, segment.ErrDamaged) {
			errs = append(errs, fmt.Errorf("message %d in folder %d of mailbox %d: %w", list[i].UID, list[i].Folder, list[i].Mailbox, err))
		}
	}
	return errors.Join(errs...)
}

func readMessage(st *store.Store, m *store.Message) error {
	blob, err := st.OpenBlob(m.Blob)
	if err != nil {
		return err
	}
	_, err = inbox.ReadMessage(blob, blob.Size(), "")
	return errors.Join(err, blob.Close())
}

// sampleMessages returns messagesToRead of all messages, or all if there are fewer. Each folder has
// its share, from a random message on.
func sampleMessages(st *store.Store, all int64) (list []store.Message, err error) {
	share := min(1, messagesToRead/float64(max(all, 1)))
	err = st.View(func(tx *store.Tx) error {
		due := 0.5
		for mb := range store.Mailboxes.All(tx) {
			folders, err := tx.Folders(mb.Num)
			if err != nil {
				return err
			}
			for _, f := range folders {
				due += share * float64(f.Messages)
				n := int(due)
				due -= float64(n)
				if n == 0 {
					continue
				}
				start := 1 + rand.Uint32N(max(f.UIDNext, 1))
				for _, uids := range [][2]uint32{{start, math.MaxUint32}, {1, start - 1}} {
					for m := range tx.Messages(mb.Num, f.ID, uids[0], uids[1]) {
						if n == 0 {
							break
						}
						list = append(list, m)
						n--
					}
				}
			}
		}
		return nil
	})
	return list, err
}

// Run makes the drills that are due, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	again, stop := s.Store.Clock().Every(dueEvery)
	defer stop()
	for {
		if err := s.startDueDrill(); err != nil && ctx.Err() == nil {
			s.Log.Error("the drill that is due could not be started", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
		}
	}
}

// startDueDrill adds the job of a drill if one is due.
func (s *Service) startDueDrill() error {
	every := s.Settings().DrillEvery
	if every == 0 || s.Schedule == nil || s.Schedule.Running() {
		return nil
	}
	state, err := s.Schedule.State()
	if err != nil || state.LastAt.IsZero() { // there is nothing to restore yet
		return err
	}
	due, who := false, core.Actor{}
	err = s.Store.View(func(tx *store.Tx) error {
		d, err := store.BackupDrills.Find(tx, store.BackupDrillID)
		if err != nil {
			return err
		}
		due = d == nil || isDue(d, tx.Now(), every)
		other, err := unendedJob(tx)
		if err != nil || !due || other != nil {
			due = false
			return err
		}
		for first := range store.Accounts.All(tx) {
			who.AccountID = first.ID
			break
		}
		return nil
	})
	if err != nil || !due || who.AccountID == "" {
		return err
	}
	_, err = s.start(who, KindDrill)
	if e, ok := core.AsError(err); ok && e.Code == "backup_running" { // somebody was faster
		return nil
	}
	return err
}

// isDue reports whether the next drill is due: `every` after the last one, or sooner after one that
// could not be carried out. If the clock was set back to before the last drill, it is due at once.
func isDue(last *store.BackupDrill, now time.Time, every time.Duration) bool {
	if last.Failed != "" {
		every = min(every, retryAfter)
	}
	return now.Before(last.EndedAt) || !now.Before(last.EndedAt.Add(every))
}
