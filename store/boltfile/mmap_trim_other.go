//go:build !linux

package boltfile

import bolt "go.etcd.io/bbolt"

// An MmapTrim does nothing. It is for systems where mapped pages do not count as the process's
// memory, or where that cannot be measured.
type MmapTrim struct{}

// Trim does nothing.
func (*MmapTrim) Trim(*bolt.DB) {}
