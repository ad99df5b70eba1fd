package backup

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/keyfile"
)

// A keyHistory is a history in which the master key changes.
type keyHistory struct {
	*history
	times []keyTime
}

// A keyTime is a time, and the keys that a store of that time needs.
type keyTime struct {
	at        time.Time
	now, next string
}

func newKeyHistory(t *testing.T, seed uint64) *keyHistory {
	h := &keyHistory{history: newHistory(t, seed)}
	h.known(h.make(keyfile.Name), "")
	return h
}

// make makes a key file, and gives the key's fingerprint.
func (h *keyHistory) make(name string) string {
	h.Helper()
	master, err := keyfile.Make(filepath.Join(h.s.Dir(), name))
	if err != nil {
		h.Fatal(err)
	}
	return keyfile.Fingerprint(master)
}

// known has the store note its keys, a second later, and some things happen.
func (h *keyHistory) known(now, next string) {
	h.Helper()
	h.clock = h.clock.Add(time.Second)
	h.update(func(tx *store.Tx) error {
		k, err := store.MasterKeys.Find(tx, store.MasterKeyID)
		if err != nil {
			return err
		}
		if k == nil {
			k = &store.MasterKeyRecord{ID: store.MasterKeyID, Fingerprint: now}
		}
		if k.Fingerprint != now {
			k.Past = append([]store.PastKey{{Fingerprint: k.Fingerprint, Number: tx.CommitNumber() + 1}}, k.Past...)
		}
		k.Fingerprint, k.Next = now, next
		return store.MasterKeys.Put(tx, k)
	})
	h.was = append(h.was, moment{h.clock, digest(h.T, h.s)})
	h.steps(3)
	h.times = append(h.times, keyTime{h.clock, now, next})
}

// rotate changes the key in its steps.
func (h *keyHistory) rotate(share func()) {
	h.Helper()
	now := h.times[len(h.times)-1].now
	next := h.make(keyfile.NextName)
	share()
	h.known(now, next)
	h.known(next, "")
	if err := keyfile.UseNextKey(h.s.Dir()); err != nil {
		h.Fatal(err)
	}
	h.steps(2)
}

// restoredKeys restores to each time since one, and demands the keys of that time and no others.
func (h *keyHistory) restoredKeys(to *Target, since time.Time) {
	h.Helper()
	for _, want := range h.times {
		if want.at.Before(since) {
			continue
		}
		dir := restored(h.T, to, want.at, h.at(want.at))
		var have []string
		for _, name := range []string{keyfile.Name, keyfile.NextName} {
			print := ""
			if master, err := keyfile.Read(filepath.Join(dir, name)); err == nil {
				print = keyfile.Fingerprint(master)
			}
			have = append(have, print)
		}
		if !slices.Equal(have, []string{want.now, want.next}) {
			h.Errorf("at %s: the keys are %v, not %s %s", want.at, have, want.now, want.next)
		}
	}
}

// TestRestoreAcrossKeyChanges: every second can be restored with the keys of that second, though
// the key was changed twice since the full backup, and what is not needed any more is deleted.
func TestRestoreAcrossKeyChanges(t *testing.T) {
	h := newKeyHistory(t, 11)
	to := newTarget(t, t.TempDir())
	backUp(t, to, h.source(), false, Full)
	first := h.clock
	share := func() {
		if err := to.PutKeys(t.Context(), h.s); err != nil {
			t.Fatal(err)
		}
	}
	h.rotate(share)
	if err := to.Send(t.Context(), h.s); err != nil {
		t.Fatal(err)
	}
	h.restoredKeys(to, first)
	h.rotate(share)
	backUp(t, to, h.source(), false, Incremental)
	h.restoredKeys(to, first)
	if err := to.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	h.rotate(share)
	backUp(t, to, h.source(), true, Full)
	last := h.clock
	h.restoredKeys(to, first)
	h.rotate(share)
	if err := to.Prune(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if err := to.Send(t.Context(), h.s); err != nil {
		t.Fatal(err)
	}
	h.restoredKeys(to, last)
	keys, err := to.keyObjects(t.Context())
	if err != nil || len(keys) != 2 {
		t.Errorf("two keys are needed, and these are kept: %v, %v", keys, err)
	}
	if err := to.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestBackupThatWasNotToldOfKeyChanges: a target that nobody gave the new keys can have an
// increment where it has, or gets, all of them, and has a full backup where one is gone.
func TestBackupThatWasNotToldOfKeyChanges(t *testing.T) {
	h := newKeyHistory(t, 12)
	to := newTarget(t, t.TempDir())
	backUp(t, to, h.source(), false, Full)
	first := h.clock
	h.rotate(func() {})
	backUp(t, to, h.source(), false, Incremental)
	h.restoredKeys(to, first)
	h.rotate(func() {})
	h.rotate(func() {})
	if res := backUp(t, to, h.source(), false, Full); !strings.Contains(res.Reason, "master key") {
		t.Errorf("why: %q", res.Reason)
	}
	h.times = append(h.times, keyTime{h.clock, h.times[len(h.times)-1].now, ""})
	h.restoredKeys(to, h.clock)
}
