package operator

import (
	"context"

	"github.com/mailstead/mailstead/store/backup"
)

// CopyIn is the request for a copy of a running server's store.
type CopyIn struct {
	To string `json:"to"` // an absolute path in the data directory
}

// CopyOut describes a copy.
type CopyOut struct {
	Version string `json:"version"` // of the server that made it
}

// copyStore makes a copy of the store for the rehearsal of an upgrade.
func (o *Operator) copyStore(ctx context.Context, ask CopyIn) (CopyOut, error) {
	return CopyOut{o.Version}, backup.CopyRunning(ctx, o.backupSource(), ask.To)
}
