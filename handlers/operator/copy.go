package operator

import (
	"context"

	"github.com/mailstead/mailstead/store/backup"
)

// CopyIn is the request for a copy of a running server's store.
type CopyIn struct {
	To string `json:"to"` // absolute, in the data directory
}

// CopyOut describes the copy.
type CopyOut struct {
	Version string `json:"version"` // of the server
}

// copyStore copies the store for a rehearsal.
func (o *Operator) copyStore(ctx context.Context, ask CopyIn) (CopyOut, error) {
	return CopyOut{o.Version}, backup.CopyRunning(ctx, o.backupSource(), ask.To)
}
