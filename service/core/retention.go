package core

import (
	"time"

	"github.com/mailstead/mailstead/store"
)

const (
	DropsAtATime = 200 // custom records
)

const (
	MappingKept  = 90 * 24 * time.Hour
	PruneAtATime = 500
)

func DeleteAll[T any](tx *store.Tx, table *store.Table[T], ids []string) error {
	for _, id := range ids {
		if err := table.Delete(tx, id); err != nil {
			return err
		}
	}
	return nil
}
