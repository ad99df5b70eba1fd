//go:build !linux

package store

import bolt "go.etcd.io/bbolt"

// An mmapTrim does nothing where mapped pages do not count as the process's memory, or nobody
// tells.
type mmapTrim struct{}

func (*mmapTrim) trim(*bolt.DB) {}
