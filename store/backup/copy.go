package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/diskroom"
	"github.com/mailstead/mailstead/store/segment"
)

// A copy for a rehearsal, or for the time of a migration, is another data directory on the same
// disk. Full segments never change, so both directories share them by hard links.

// CopyRunning copies the store in use, in the state after its last commit, to the new directory
// `to`.
func CopyRunning(ctx context.Context, src Source, to string) error {
	snap, files, err := src.snapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	var own int64 // bytes that cannot be shared by hard links
	for _, info := range snap.Segments {
		if info.Active {
			own += info.Size
		}
	}
	if err := beginCopy(to, own+snap.DatabaseSize()); err != nil {
		return err
	}
	from, progress := src.Store.Dir(), newByteProgress(ctx, "the copy", own+snap.DatabaseSize())
	for _, info := range snap.Segments {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := filepath.Join(store.SegmentDir, segment.FileName(info.Number))
		if !info.Active {
			err = linkOrCopy(filepath.Join(from, name), filepath.Join(to, name))
		} else {
			err = copyFile(filepath.Join(from, name), filepath.Join(to, name), info.Size)
			progress.add(info.Size)
		}
		if err != nil {
			return err
		}
	}
	killpoint.At("copy.segments")
	for _, f := range files {
		if err := writeFile(filepath.Join(to, f.name), f.data); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(filepath.Join(to, store.DatabaseFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(snap.WriteDatabase(&pacedStream{ctx: ctx, pace: databasePacer(snap), to: progress.counting(f)}), f.Sync(), f.Close())
}

// CopyStopped copies the store in the directory `from` and the named files beside it to the new
// directory `to`. No process may have the store open.
func CopyStopped(from, to string, files []string) error {
	path := filepath.Join(from, store.DatabaseFile)
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: 10 * time.Millisecond})
	if errors.Is(err, bolterrors.ErrTimeout) {
		err = store.ErrInUse
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer db.Close() // until db is closed, no process can open the store
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	full, open, err := segment.Files(from)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	own := info.Size()
	for _, number := range open {
		if info, err := os.Stat(filepath.Join(from, store.SegmentDir, segment.FileName(number))); err == nil {
			own += info.Size()
		}
	}
	if err := beginCopy(to, own); err != nil {
		return err
	}
	for _, number := range full {
		name := filepath.Join(store.SegmentDir, segment.FileName(number))
		if err := linkOrCopy(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	for _, number := range open {
		name := filepath.Join(store.SegmentDir, segment.FileName(number))
		if err := copyFile(filepath.Join(from, name), filepath.Join(to, name), -1); err != nil {
			return err
		}
	}
	killpoint.At("swap.segments")
	if err := copyFiles(files, from, to); err != nil {
		return err
	}
	return copyFile(path, filepath.Join(to, store.DatabaseFile), -1)
}

// beginCopy creates the directory. It returns an error if less than twice `size` bytes are free on
// the disk: a migration may write the database a second time.
func beginCopy(to string, size int64) error {
	if err := os.MkdirAll(filepath.Join(to, store.SegmentDir), 0o700); err != nil {
		return err
	}
	free, _, err := diskroom.Free(to)
	if err == nil && free < 2*size+(64<<20) {
		return fmt.Errorf("copy to %s: its disk has %d bytes free, but %d are needed", to, free, 2*size+(64<<20))
	}
	return err
}

// linkOrCopy makes a hard link to a file, or copies it if that is not possible.
func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	return copyFile(from, to, -1) // the directories are on two disks, or the file system has no hard links
}

// copyFile copies the first size bytes of a file to a new file and syncs it; a negative size copies
// all of it.
func copyFile(from, to string, size int64) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	var r io.Reader = in
	if size >= 0 {
		r = io.LimitReader(in, size)
	}
	_, err = io.Copy(out, r)
	return errors.Join(err, out.Sync(), out.Close())
}

// writeFile writes a new file and syncs it.
func writeFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func copyFiles(names []string, from, to string) error {
	for _, name := range names {
		err := copyFile(filepath.Join(from, name), filepath.Join(to, name), -1)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
