// Package requests keeps the log of requests to the API, and shows it to the owner and the admins
// of each account. Rows wait in memory and are written in batches to files beside the store
// (package requestlog), so that a request does not wait for its row, and no damage to the log
// affects anything else. The package does not know how a request is answered, nor which of its
// fields may be kept: package handlers gives it what is shown of a body.
package requests

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/requestlog"
)

const (
	writeInterval   = 2 * time.Second // longest time that a row waits to be written
	batchRows       = 1000            // so many rows are written at once
	maxWaiting      = 20_000          // rows in memory; further ones are dropped
	maxWaitingBytes = 16 << 20
	rowOverhead     = 512 // bytes of a row in memory besides its body and answer
)

// MaxShown is the maximum number of bytes that a row shows of a body, and of an answer.
const MaxShown = 8 << 10

// A Row is one request, as it is recorded.
type Row = requestlog.Row

// A Service keeps the request log.
type Service struct {
	*core.Core
	log  *requestlog.Log
	wake chan struct{} // receives a value when there are enough rows for a batch

	mu      sync.Mutex
	waiting []waitingRow // not yet written
	bytes   int          // approximate size of waiting in memory
	dropped int          // rows that were dropped since the last batch

	writing sync.Mutex // held while a batch is written
	spare   []waitingRow
	failing bool // the last batch could not be written
}

// A waitingRow is a row that waits to be written, with its account.
type waitingRow struct {
	account string
	Row
}

// New returns a Service.
func New(c *core.Core) *Service {
	return &Service{Core: c, log: requestlog.Open(c.Store.Dir()), wake: make(chan struct{}, 1)}
}

// On reports whether requests are recorded.
func (s *Service) On() bool { return s.Settings().Retention.Requests > 0 }

// Record adds a request to the log of an account. It does not wait for the disk: the row is written
// soon. It is dropped if too many rows wait.
func (s *Service) Record(account string, r Row) {
	size := rowOverhead + len(r.Body) + len(r.Answer)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= maxWaiting || s.bytes+size > maxWaitingBytes {
		s.dropped++
		return
	}
	s.waiting = append(s.waiting, waitingRow{account, r})
	s.bytes += size
	if len(s.waiting) == batchRows {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// Run writes rows from time to time until ctx ends.
func (s *Service) Run(ctx context.Context) {
	t := time.NewTicker(writeInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			s.write()
			return
		case <-s.wake:
		case <-t.C:
		}
		s.write()
	}
}

// write writes the waiting rows. If that fails, they are lost. It logs the first failure of
// several, and how many rows were dropped.
func (s *Service) write() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	batch, dropped := s.waiting, s.dropped
	s.waiting, s.bytes, s.dropped = s.spare[:0], 0, 0
	s.mu.Unlock()
	if dropped > 0 {
		s.Log.Warn("rows of the request log were dropped, since too many requests came at once", "rows", dropped)
	}
	if len(batch) == 0 {
		s.spare = batch
		return
	}
	err := s.append(batch)
	if err != nil && !s.failing {
		s.Log.Warn("requests are not written to the request log", "error", err)
	}
	if err == nil && s.failing {
		s.Log.Info("requests are written to the request log again")
	}
	s.failing = err != nil
	clear(batch) // the rows can be freed
	s.spare = batch
	if cap(batch) > 4*batchRows {
		s.spare = nil
	}
}

// errDiskFull is returned if the disk has too little space for the log.
var errDiskFull = errors.New("the disk is almost full")

// append appends rows to the logs of their accounts.
func (s *Service) append(batch []waitingRow) error {
	disk, err := s.Store.Disk()
	if err != nil {
		return err
	}
	if disk.Full || disk.Free < disk.Spare() {
		return errDiskFull
	}
	byAccount := map[string][]Row{}
	for _, r := range batch {
		byAccount[r.account] = append(byAccount[r.account], r.Row)
	}
	var failed []error
	for _, account := range slices.Sorted(maps.Keys(byAccount)) {
		failed = append(failed, s.log.Append(account, s.Now(), byAccount[account]))
	}
	return errors.Join(failed...)
}

// DropAccount deletes the log of an account.
func (s *Service) DropAccount(accountID string) error {
	s.write() // so that no row of the account comes later
	return s.log.Drop(accountID)
}

// Prune deletes old rows, and the logs of accounts that do not exist. The job that deletes old
// records calls it.
func (s *Service) Prune(ctx context.Context) error {
	accounts, err := s.log.Accounts()
	if err != nil {
		s.Log.Warn("read the request log", "error", err)
		return nil
	}
	var alive map[string]bool
	err = s.Store.View(func(tx *store.Tx) error {
		alive = map[string]bool{}
		for _, id := range accounts {
			a, err := store.Accounts.Find(tx, id)
			if err != nil {
				return err
			}
			alive[id] = a != nil
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range accounts {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if alive[id] && s.On() {
			err = s.log.Prune(id, s.oldest())
		} else {
			err = s.log.Drop(id)
		}
		if err != nil {
			s.Log.Warn("delete old rows of the request log", "account", id, "error", err)
		}
	}
	return nil
}

// oldest returns the time from which on requests are kept.
func (s *Service) oldest() time.Time { return s.Now().Add(-s.Settings().Retention.Requests) }
