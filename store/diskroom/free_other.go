//go:build !linux

package diskroom

import "errors"

// Free is not supported on this system.
func Free(string) (free, total int64, err error) { return 0, 0, errors.ErrUnsupported }
