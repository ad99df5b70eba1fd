package backup

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/killpoint"
)

// A Listing lists the backups, and the first and the last time that can be restored.
type Listing struct {
	Data    []ListedBackup `json:"data"`
	FirstAt *time.Time     `json:"first_at"` // null: there is no backup
	LastAt  *time.Time     `json:"last_at"`
}

// A ListedBackup describes one backup in a Listing.
type ListedBackup struct {
	ID     string    `json:"id"`
	Kind   string    `json:"kind"`
	At     time.Time `json:"at"`
	Number uint64    `json:"number"`
	Bytes  int64     `json:"bytes"`

	Verified bool `json:"verified"` // it was read back when it was made
}

// List returns the backups, oldest first.
func (t *Target) List(ctx context.Context) (*Listing, error) {
	known, err := t.summaries(ctx)
	if err != nil {
		return nil, err
	}
	out := &Listing{Data: []ListedBackup{}}
	var manifests []*Manifest
	for _, m := range known {
		manifests = append(manifests, m.Manifest)
		out.Data = append(out.Data, ListedBackup{m.ID, m.Kind, m.At, m.Number, m.bytes, m.Verified})
	}
	chains, err := t.readChains(ctx, manifests)
	if err != nil {
		return nil, err
	}
	if list := t.restorableRanges(chains); len(list) > 0 {
		out.FirstAt, out.LastAt = &list[0].First, &list[len(list)-1].Last
	}
	return out, nil
}

// Prune deletes the objects that are not needed to restore any time since `from`, and those that
// killed runs have left. The newest full backup always stays. No backup may run at the same time.
// Sending of entries waits until Prune returns.
func (t *Target) Prune(ctx context.Context, from time.Time) error {
	t.sending.Lock()
	defer t.sending.Unlock()
	manifests, err := t.manifests(ctx)
	if err != nil || len(manifests) == 0 {
		return err
	}
	first := max(0, slices.IndexFunc(manifests, func(m *Manifest) bool { return m.Kind == Full })) // index of the oldest manifest that is kept
	for i, m := range manifests {
		if m.Kind == Full && !m.At.After(from) {
			first = i
		}
	}
	keep := map[string]bool{}
	segments := map[string]bool{} // numbers of the stored segments, in hex
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
	chains, err := t.readChains(ctx, manifests[first:])
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
			continue // entries that were sent since the first kept backup may need the key
		case kind == "messages" && !segments[strings.SplitN(strings.TrimPrefix(o.Name, "messages/"), "-", 2)[0]]:
			continue // the segment of the message is not stored yet
		case kind != "manifests" && kind != "db" && kind != "files" && kind != "open" && kind != "segments" && kind != "entries" && kind != "messages" && kind != "keys":
			continue // not an object of a backup
		}
		killpoint.At("backup.prune")
		if err := t.Place.Delete(ctx, o.Name); err != nil {
			return fmt.Errorf("delete old backup: %w", err)
		}
	}
	return nil
}
