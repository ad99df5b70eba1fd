//go:build !linux

package store

import bolt "go.etcd.io/bbolt"

// A resident does nothing where mapped pages do not count as the process's memory, or nobody tells.
type resident struct{}

func (*resident) trim(*bolt.DB) {}
