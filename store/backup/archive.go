package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/segment"
)

// An archive is a tar file, compressed and, if there are recipients, encrypted. It contains the
// manifest (without objects), then the files of a data directory, and at the end their checksums in
// the format of sha256sum.
const (
	archiveManifest = "manifest.json"
	archiveSums     = "SHA256SUMS"
)

// WriteArchive writes a backup of the store to one file (mode 0600). The file gets its name only
// when it is complete, and replaces a file of that name. If verify is true, the file is read back
// and compared.
func WriteArchive(ctx context.Context, file string, src Source, recipients []age.Recipient, verify bool) (*Result, error) {
	began := time.Now()
	snap, files, err := src.snapshot()
	if err != nil {
		return nil, err
	}
	defer snap.Close()
	m := &Manifest{
		Version: manifestVersion, ID: newID(src.Store.Now(), snap.Number, Full), Kind: Full,
		At: snap.Time, Number: snap.Number, Messages: snap.Messages, Encrypted: len(recipients) > 0, Program: src.Program,
	}
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", file, err)
	}
	defer os.Remove(f.Name()) // does nothing once the file is renamed
	defer f.Close()
	sum := sha256.New()
	size := &byteCounter{w: io.MultiWriter(f, sum)}
	if err := seal(size, recipients, func(w io.Writer) error { return writeArchive(ctx, w, m, files, snap) }); err != nil {
		return nil, fmt.Errorf("write %s: %w", file, err)
	}
	if err := f.Sync(); err != nil {
		return nil, fmt.Errorf("write %s: %w", file, err)
	}
	if verify {
		again, progress := sha256.New(), newByteProgress(ctx, "the backup, read back", size.n)
		if _, err := io.Copy(again, progress.countingReader(io.NewSectionReader(f, 0, size.n))); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if !slices.Equal(again.Sum(nil), sum.Sum(nil)) {
			return nil, fmt.Errorf("%s differs from what was written: %w", file, ErrDamaged)
		}
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return nil, err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	return &Result{
		ID: m.ID, Kind: Full, Target: file, At: m.At, Number: m.Number, Messages: m.Messages, Bytes: size.n, BytesAdded: size.n,
		DurationMS: time.Since(began).Milliseconds(), Verified: verify,
	}, errors.Join(dir.Sync(), dir.Close())
}

func writeArchive(ctx context.Context, w io.Writer, m *Manifest, files []sourceFile, snap *store.Snapshot) error {
	total := snap.DatabaseSize()
	for _, info := range snap.Segments {
		total += info.Size
	}
	progress := newByteProgress(ctx, "the backup", total)
	out := tar.NewWriter(w)
	var sums strings.Builder
	add := func(name string, size int64, write func(io.Writer) error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: m.At, Format: tar.FormatPAX}); err != nil {
			return err
		}
		h := sha256.New()
		if err := write(progress.counting(io.MultiWriter(out, h))); err != nil {
			return fmt.Errorf("add %s to the archive: %w", name, err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", h.Sum(nil), name)
		return nil
	}
	text := func(name string, data []byte) error {
		return add(name, int64(len(data)), func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		})
	}
	manifest, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	if err := text(archiveManifest, manifest); err != nil {
		return err
	}
	for _, f := range files {
		if err := text(f.name, f.data); err != nil {
			return err
		}
	}
	for _, info := range snap.Segments {
		f, err := snap.OpenSegment(info.Number)
		if err != nil {
			return err
		}
		err = add(path.Join(store.SegmentDir, segment.FileName(info.Number)), info.Size, func(w io.Writer) error {
			_, err := io.CopyN(w, f, info.Size)
			return err
		})
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if err := add(store.DatabaseFile, snap.DatabaseSize(), snap.WriteDatabase); err != nil {
		return err
	}
	if err := text(archiveSums, []byte(sums.String())); err != nil {
		return err
	}
	return out.Close()
}

// RestoreArchive makes a store in dir from an archive. dir must be empty, except for files of a
// restore that was killed. at is the zero time or the time of the archive; for any other time the
// error is a *RangeError. program is the version of this program.
func RestoreArchive(ctx context.Context, file, dir string, at time.Time, identities []age.Identity, program string) (res *RestoreResult, err error) {
	work := ""
	defer func() {
		if work != "" {
			err = errors.Join(err, endRestore(work, err))
		}
	}()
	m, err := readArchive(ctx, file, identities, func(m *Manifest) (err error) {
		if !at.IsZero() && !at.Equal(m.At) {
			return &RangeError{at, []TimeRange{{m.At, m.At}}}
		}
		work, err = beginRestore(dir)
		return err
	}, func(name string, r io.Reader) error {
		f, err := os.OpenFile(filepath.Join(work, filepath.FromSlash(name)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return nil, err
	}
	st, err := store.Open(work, store.Options{Unsynced: true, Program: program})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(st.ForgetEntries(), st.Close()); err != nil {
		return nil, err
	}
	res = &RestoreResult{At: m.At, Number: m.Number, Messages: m.Messages}
	return res, finishRestore(work, dir, res)
}

// ListArchive returns a Listing with the one backup in an archive.
func ListArchive(file string, identities []age.Identity) (*Listing, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	enough := errors.New("stop: the manifest was read")
	var m *Manifest
	_, err = readArchive(context.Background(), file, identities, func(found *Manifest) error {
		m = found
		return enough
	}, nil)
	if !errors.Is(err, enough) {
		return nil, err
	}
	return &Listing{Data: []ListedBackup{{m.ID, m.Kind, m.At, m.Number, info.Size(), m.Verified}}, FirstAt: &m.At, LastAt: &m.At}, nil
}

// VerifyArchive reads an archive, compares each file in it with its checksum, and checks every
// record in the segments.
func VerifyArchive(ctx context.Context, file string, identities []age.Identity) error {
	_, err := readArchive(ctx, file, identities, func(*Manifest) error { return nil }, func(name string, r io.Reader) error {
		if !strings.HasPrefix(name, store.SegmentDir+"/") {
			_, err := io.Copy(io.Discard, r)
			return err
		}
		return verifySegment(r, filepath.Dir(file))
	})
	return err
}

// readArchive calls `begin` with the manifest of an archive, then `each` for every other file. At
// the end it compares the checksums of all files. It stops at the first error of `begin` or `each`.
func readArchive(ctx context.Context, file string, identities []age.Identity, begin func(*Manifest) error, each func(name string, r io.Reader) error) (*Manifest, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int64(0)
	if info, err := f.Stat(); err == nil {
		size = info.Size()
	}
	plain, err := unseal(newByteProgress(ctx, "the archive", size).countingReader(f), identities)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	defer plain.Close()
	var m *Manifest
	sums := map[string]string{}
	for in := tar.NewReader(plain); ; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h, err := in.Next()
		if err != nil { // the checksums are last: without them the archive is truncated
			return nil, fmt.Errorf("read %s: %w: %w", file, ErrDamaged, err)
		}
		dir, base := path.Split(h.Name)
		if h.Typeflag != tar.TypeReg || dir != "" && dir != store.SegmentDir+"/" || base == "" || base[0] == '.' || strings.ContainsAny(base, `\:`) {
			return nil, fmt.Errorf("read %s: unexpected file %q: %w", file, h.Name, ErrDamaged)
		}
		sum := sha256.New()
		body := io.TeeReader(in, sum)
		switch {
		case h.Name == archiveSums:
			return m, compareSums(file, in, sums)
		case m == nil:
			m = new(Manifest)
			text, err := io.ReadAll(io.LimitReader(body, 1<<20))
			if err == nil {
				err = json.Unmarshal(text, m)
			}
			if err != nil || h.Name != archiveManifest {
				return nil, fmt.Errorf("%s is not a backup of Mailstead: %w", file, errors.Join(ErrDamaged, err))
			}
			if m.Version > manifestVersion {
				return nil, fmt.Errorf("%s was written by a newer version of Mailstead (%s): use that version", file, m.Program)
			}
			err = begin(m)
			if err != nil {
				return nil, err
			}
		default:
			if err := each(h.Name, body); err != nil {
				return nil, fmt.Errorf("read %s: %s: %w", file, h.Name, err)
			}
		}
		sums[h.Name] = hex.EncodeToString(sum.Sum(nil))
	}
}

func compareSums(file string, r io.Reader, have map[string]string) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read %s: %w: %w", file, ErrDamaged, err)
	}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if have[name] != sum {
			return fmt.Errorf("%s in %s differs from what was stored: %w", name, file, ErrDamaged)
		}
		delete(have, name)
	}
	if len(have) > 0 {
		return fmt.Errorf("%s contains files without a checksum: %w", file, ErrDamaged)
	}
	return nil
}
