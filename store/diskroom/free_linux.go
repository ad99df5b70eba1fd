package diskroom

import "golang.org/x/sys/unix"

// Free returns the number of bytes on the disk of dir that this process may still write, and the
// size of the disk.
func Free(dir string) (free, total int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, nil
}
