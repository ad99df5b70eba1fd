package operator

import (
	"context"

	"github.com/mailstead/mailstead/store/backup"
)

// CopyIn asks a running server for a copy of its store.
type CopyIn struct {
	To string `json:"to"` // absolute, in the data directory
}

// CopyOut says what the copy is of.
type CopyOut struct {
	Version string `json:"version"` // of the server
}

// copyStore copies the store for a rehearsal.
func (o *Operator) copyStore(ctx context.Context, ask CopyIn) (CopyOut, error) {
	return CopyOut{o.Version}, backup.CopyRunning(ctx, o.backupSource(), ask.To)
}
