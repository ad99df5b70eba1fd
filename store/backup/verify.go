package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/segment"
)

// Verify reads all objects of all backups and compares them with their checksums. If there is an
// identity, or nothing is encrypted, it also checks every record and entry in them. The error names
// each damaged object.
func (t *Target) Verify(ctx context.Context) error {
	manifests, err := t.manifests(ctx)
	if err != nil {
		return err
	}
	var errs []error
	seen := map[string]bool{}
	for _, m := range manifests {
		progress := newByteProgress(ctx, "backup "+m.ID, m.Bytes())
		for _, o := range m.Objects {
			progress.add(o.Size)
			if seen[o.Name] {
				continue
			}
			seen[o.Name] = true
			err := t.verifyObject(ctx, o, new(store.Pacer))
			if err == nil && (!m.Encrypted || len(t.Identities) > 0) {
				err = t.verifyContent(ctx, o.Name)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				errs = append(errs, err)
			}
		}
	}
	for _, kind := range []string{"entries/", "keys/"} { // objects that were sent since the last backup, which no manifest names
		for o, err := range t.Place.List(ctx, kind) {
			if err != nil {
				return errors.Join(append(errs, err)...)
			}
			if seen[o.Name] || len(t.Identities) == 0 && len(manifests) > 0 && manifests[len(manifests)-1].Encrypted {
				continue
			}
			if err := t.verifyContent(ctx, o.Name); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// verifyContent decrypts and decompresses an object and checks its contents.
func (t *Target) verifyContent(ctx context.Context, name string) error {
	kind, _, _ := strings.Cut(name, "/")
	switch kind {
	case "entries":
		return t.readEntries(ctx, name, func(*store.Entry) error { return nil })
	case "keys":
		_, err := t.readKey(ctx, name)
		return err
	case "segments", "open":
		return t.readObject(ctx, name, func(r io.Reader) error { return verifySegment(r, t.Temp) })
	case "files":
		return t.readObject(ctx, name, func(r io.Reader) error {
			for in := tar.NewReader(r); ; {
				if _, err := in.Next(); err == io.EOF {
					return nil
				} else if err != nil {
					return err
				}
			}
		})
	}
	return t.readObject(ctx, name, func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
}

// verifySegment checks every record of a segment. It uses a temporary file in the directory temp.
func verifySegment(r io.Reader, temp string) error {
	f, err := os.CreateTemp(temp, "verify-")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return err
	}
	size, err := io.Copy(f, r)
	if err != nil {
		return err
	}
	return segment.VerifyFile(f, size)
}

// verifyObject reads an object back and compares it with its stored size and checksum.
func (t *Target) verifyObject(ctx context.Context, o StoredObject, pace *store.Pacer) error {
	in, err := t.Place.Open(ctx, o.Name)
	if err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(&pacedStream{ctx: ctx, pace: pace, to: h}, in)
	if err := errors.Join(err, in.Close()); err != nil {
		return fmt.Errorf("read %s: %w", o.Name, err)
	}
	if n != o.Size || hex.EncodeToString(h.Sum(nil)) != o.SHA256 {
		return fmt.Errorf("%s differs from what was stored: %w", o.Name, ErrDamaged)
	}
	return nil
}

// ErrDamaged is returned for an object or archive that differs from what was stored.
var ErrDamaged = errors.New("the backup is damaged")
