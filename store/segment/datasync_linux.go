package segment

import (
	"os"

	"golang.org/x/sys/unix"
)

// datasync writes the file's content and length to disk, but not its times.
func datasync(f *os.File) error {
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
