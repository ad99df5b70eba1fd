package store

import (
	"os"

	"golang.org/x/sys/unix"
)

// diskRoom says how many bytes of the disk that dir is on are free for us, and how many it has.
func diskRoom(dir string) (free, total int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, nil
}

// segDatasync puts the file's bytes and length on disk, without its times.
func segDatasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err == nil {
			return nil
		}
		if err != unix.EINTR {
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
	}
}
