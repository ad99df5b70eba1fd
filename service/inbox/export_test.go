package inbox

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox/indexer"
	"github.com/mailstead/mailstead/store"
)

// Internals that external tests use.

const (
	InboxMerged = maxMergedMailboxes
	InboxScan   = maxScanned
	PerTransfer = transfersPerWrite
)

type (
	ImageRef   = imageRef
	WarmupArgs = warmupArgs
)

var (
	RecordCopy = recordCopy
)

func (s *Service) ImageExpiry() int64 { return s.imageExpiry() }

func (s *Service) ImageToken(r imageRef) string { return s.imageToken(r) }

func (s *Service) MarkSome(at *warmupArgs) (bool, error) { return s.correctBatch(at) }

func (s *Service) ReadImageToken(token string) (imageRef, error) { return s.readImageToken(token) }

func (s *Service) TransferBatch(tx *store.Tx, u core.MailboxUser, folder uint32, uids []uint32, dest uint32, move bool, out *Copied) error {
	return s.transferBatch(tx, u, folder, uids, dest, move, out)
}

func (s *Service) UndoCopies() error { return s.undoCopies() }

// Indexer is an indexer that runs only when a test calls it.
func (s *Service) Indexer() *indexer.Worker { return s.index.NewWorker() }

// WaitFor is WaitForMessage, or WaitForAnyMessage without a user ID, with a timeout of any length.
func (s *Service) WaitFor(ctx context.Context, who core.Actor, userID string, f WaitFilter, timeout time.Duration) (*WaitAnswer, error) {
	w, _, err := s.newWait(who, userID, f)
	if err != nil {
		return nil, err
	}
	return w.wait(ctx, timeout)
}

// Waiters returns how many requests of an account wait.
func (s *Service) Waiters(account uint32) int {
	s.arrivals.mu.Lock()
	defer s.arrivals.mu.Unlock()
	if in := s.arrivals.accounts[account]; in != nil {
		return len(in.waiters)
	}
	return 0
}
