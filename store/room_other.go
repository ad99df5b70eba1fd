//go:build !linux

package store

import "errors"

// diskRoom does not know.
func diskRoom(string) (free, total int64, err error) { return 0, 0, errors.ErrUnsupported }
