//go:build !linux

package diskroom

import "errors"

// Free returns errors.ErrUnsupported on systems other than Linux.
func Free(string) (free, total int64, err error) { return 0, 0, errors.ErrUnsupported }
