package backup

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/segment"
)

// A Listing lists the backups, and the first and last time that can be restored.
type Listing struct {
	Data    []Listed   `json:"data"`
	FirstAt *time.Time `json:"first_at"` // null: there is no backup
	LastAt  *time.Time `json:"last_at"`
}

// A Listed is one backup.
type Listed struct {
	ID     string    `json:"id"`
	Kind   string    `json:"kind"`
	At     time.Time `json:"at"`
	Number uint64    `json:"number"`
	Bytes  int64     `json:"bytes"`
}

// List lists the backups, oldest first.
func (t *Target) List(ctx context.Context) (*Listing, error) {
	manifests, err := t.manifests(ctx)
	if err != nil {
		return nil, err
	}
	chains, err := t.chains(ctx, manifests)
	if err != nil {
		return nil, err
	}
	out := &Listing{Data: []Listed{}}
	for _, m := range manifests {
		out.Data = append(out.Data, Listed{m.ID, m.Kind, m.At, m.Number, m.Bytes()})
	}
	if list := t.ranges(chains); len(list) > 0 {
		out.FirstAt, out.LastAt = &list[0].First, &list[len(list)-1].Last
	}
	return out, nil
}

// Verify reads all objects of all backups and compares them with what was stored. With an identity,
// or if nothing is encrypted, it also opens them and checks every record and entry. The error names
// each damaged object.
func (t *Target) Verify(ctx context.Context) error {
	manifests, err := t.manifests(ctx)
	if err != nil {
		return err
	}
	var errs []error
	seen := map[string]bool{}
	for _, m := range manifests {
		for i, o := range m.Objects {
			if seen[o.Name] {
				continue
			}
			t.report("objects of "+m.ID, i, len(m.Objects))
			seen[o.Name] = true
			err := t.verify(ctx, o, new(store.Pacer))
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
	for _, kind := range []string{"entries/", "keys/"} { // objects that were sent since the last backup
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

// verifyContent opens an object and checks its contents.
func (t *Target) verifyContent(ctx context.Context, name string) error {
	kind, _, _ := strings.Cut(name, "/")
	switch kind {
	case "entries":
		return t.readEntries(ctx, name, func(*store.Entry) error { return nil })
	case "keys":
		_, err := t.readKey(ctx, name)
		return err
	case "segments", "open":
		return t.read(ctx, name, func(r io.Reader) error { return verifySegment(r, t.Temp) })
	case "files":
		return t.read(ctx, name, func(r io.Reader) error {
			for in := tar.NewReader(r); ; {
				if _, err := in.Next(); err == io.EOF {
					return nil
				} else if err != nil {
					return err
				}
			}
		})
	}
	return t.read(ctx, name, func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
}

// verifySegment checks every record of a segment. temp is the directory for a temporary file.
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

// Prune deletes the objects that are not needed to restore any time since `from`, and those that
// killed runs have left. The newest full backup always stays. No backup may run at the same time;
// no entries are sent meanwhile.
func (t *Target) Prune(ctx context.Context, from time.Time) error {
	t.sending.Lock()
	defer t.sending.Unlock()
	manifests, err := t.manifests(ctx)
	if err != nil || len(manifests) == 0 {
		return err
	}
	first := max(0, slices.IndexFunc(manifests, func(m *Manifest) bool { return m.Kind == Full })) // the oldest manifest that stays
	for i, m := range manifests {
		if m.Kind == Full && !m.At.After(from) {
			first = i
		}
	}
	keep := map[string]bool{}
	segments := map[string]bool{} // stored segments, by the digits of their numbers
	for _, m := range manifests[first:] {
		keep["manifests/"+m.ID] = true
		for _, o := range m.Objects {
			keep[o.Name] = true
			if name, ok := strings.CutPrefix(o.Name, "segments/"); ok {
				segments[strings.SplitN(name, "-", 2)[0]] = true
			}
		}
	}
	tails := map[string]bool{} // batches of entries that were sent since the newest backup
	chains, err := t.chains(ctx, manifests[first:])
	if err != nil {
		return err
	}
	for _, c := range chains {
		for _, name := range c.batches {
			tails[name] = true
		}
	}
	for o, err := range t.Place.List(ctx, "") {
		if err != nil {
			return err
		}
		kind, _, _ := strings.Cut(o.Name, "/")
		_, stored, isKey := parseKeyName(o.Name)
		switch {
		case keep[o.Name], kind == "entries" && tails[o.Name]:
			continue
		case isKey && !stored.Before(manifests[first].At):
			continue // entries that were sent since then may need it
		case kind == "messages" && !segments[strings.SplitN(strings.TrimPrefix(o.Name, "messages/"), "-", 2)[0]]:
			continue // its segment is not stored yet
		case kind != "manifests" && kind != "db" && kind != "files" && kind != "open" && kind != "segments" && kind != "entries" && kind != "messages" && kind != "keys":
			continue // not ours
		}
		killpoint.At("backup.prune")
		if err := t.Place.Delete(ctx, o.Name); err != nil {
			return fmt.Errorf("delete old backup: %w", err)
		}
	}
	return nil
}
