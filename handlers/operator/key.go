package operator

import (
	"context"

	"github.com/mailstead/mailstead/service/core"
)

// rotateKey replaces the master key. It copies the new key to the target of scheduled backups
// before any secret is sealed under it.
func (o *Operator) rotateKey(ctx context.Context, _ struct{}) (*core.KeyRotated, error) {
	return o.Service.Core.RotateKey(ctx, func(ctx context.Context) error {
		if o.Schedule == nil {
			return nil
		}
		return o.Schedule.Target.PutKeys(ctx, o.Store)
	})
}
