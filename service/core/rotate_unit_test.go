package core

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/keyfile"
	"github.com/mailstead/mailstead/store/storetest"
)

// A rotation is a store whose master key is changed, with the checks that must hold after each
// step.
type rotation struct {
	*testing.T
	st   *store.Store
	core *Core
	macs map[string][]byte // a MAC made under each key, by the key's fingerprint
}

func newRotation(t *testing.T) *rotation {
	t.Helper()
	r := &rotation{T: t, macs: map[string][]byte{}}
	r.st = storetest.Open(t)
	r.open()
	keepSecret(t, r.st, r.core.Keys)
	return r
}

// open opens the keys, as a start does.
func (r *rotation) open() {
	r.Helper()
	keys, err := OpenKeys(r.st)
	if err != nil {
		r.Fatal(err)
	}
	r.core = New(r.st, jobs.NewQueue(r.st), keys, Config{Log: slog.New(slog.DiscardHandler)})
	r.macs[keys.ring.Load().fingerprint] = keys.Mac("link", "ann")
}

func nowhere(context.Context) error { return nil }

// rotate changes the key and checks that it is a new one.
func (r *rotation) rotate() *KeyRotated {
	r.Helper()
	out, err := r.core.RotateKey(r.Context(), nowhere)
	if err != nil {
		r.Fatal(err)
	}
	r.macs[out.KeyID] = r.core.Keys.Mac("link", "ann")
	return out
}

func (r *rotation) file(name string) []byte {
	r.Helper()
	data, err := os.ReadFile(filepath.Join(r.st.Dir(), name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.Fatal(err)
	}
	return data
}

// whole checks that every secret opens with the key in the file alone, and that every MAC is valid.
func (r *rotation) whole() {
	r.Helper()
	master, err := keyfile.Parse(r.file(keyfile.Name))
	if err != nil {
		r.Fatal(err)
	}
	if len(r.file(keyfile.NextName)) != 0 {
		r.Errorf("there is a %s", keyfile.NextName)
	}
	alone, err := newKeyring(master)
	if err != nil {
		r.Fatal(err)
	}
	err = r.st.View(func(tx *store.Tx) error {
		known, err := store.MasterKeys.Get(tx, store.MasterKeyID)
		if err != nil || known.Fingerprint != alone.fingerprint || known.Next != "" {
			r.Errorf("%+v, %v", known, err)
		}
		for _, s := range tx.Secrets(1000) {
			if _, now, err := alone.open(s.Binding, s.Sealed); err != nil || !now {
				r.Errorf("%s: %v", s.Binding, err)
			}
		}
		for _, p := range known.Past {
			if _, now, err := alone.open(macRootBinding(p.Fingerprint), p.MacRoot); err != nil || !now {
				r.Errorf("the root of %s: %v", p.Fingerprint, err)
			}
		}
		w, err := store.Webhooks.Get(tx, "wh_1")
		if err != nil {
			return err
		}
		if plain, err := r.core.Keys.Open(store.WebhookBinding("wh_1"), w.Secret); string(plain) != "secret" {
			r.Errorf("%s, %v", plain, err)
		}
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	for print, mac := range r.macs {
		if !r.core.Keys.MatchesMac(func(m []byte) bool { return bytes.Equal(m, mac) }, "link", "ann") {
			r.Errorf("what was made under %s holds no more", print)
		}
	}
	if r.core.Keys.MatchesMac(func(m []byte) bool { return bytes.Equal(m, r.macs[alone.fingerprint]) }, "link", "bob") {
		r.Error("a MAC holds for something else")
	}
}

// TestMasterKeyIsReplaced: after two changes in a process and a third after a restart, everything
// is sealed under the new key only, the old one's bytes are nowhere, and earlier tokens are valid.
func TestMasterKeyIsReplaced(t *testing.T) {
	r := newRotation(t)
	for n := range 3 {
		old := r.file(keyfile.Name)
		before := r.core.Keys.Mac("link", "ann")
		out := r.rotate()
		if out.Records != 1 || out.KeyID == "" || bytes.Contains(r.file(keyfile.Name), []byte(out.KeyID)) {
			t.Errorf("%+v", out)
		}
		r.whole()
		if bytes.Equal(r.core.Keys.Mac("link", "ann"), before) {
			t.Error("MACs are made under the key before")
		}
		err := filepath.WalkDir(r.st.Dir(), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if data, err := os.ReadFile(path); err != nil || bytes.Contains(data, old) {
				t.Errorf("%s has the old key (%v)", path, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(r.st.Dir(), keyfile.Name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		if n == 1 {
			r.open()
			r.whole()
		}
	}
}

// TestLateSecretsAreSealedUnderTheNewKey: a secret that was sealed before the change is written
// after its end.
func TestLateSecretsAreSealedUnderTheNewKey(t *testing.T) {
	r := newRotation(t)
	late := r.core.Keys.Seal(store.WebhookBinding("wh_2"), []byte("late"))
	r.rotate()
	if plain, err := r.core.Keys.Open(store.WebhookBinding("wh_2"), late); string(plain) != "late" {
		t.Errorf("%s, %v", plain, err)
	}
	if err := r.st.Update(func(tx *store.Tx) error {
		return store.Webhooks.Put(tx, &store.Webhook{ID: "wh_2", AccountID: "acc_1", Secret: late})
	}); err != nil {
		t.Fatal(err)
	}
	r.open()
	r.whole()
}

// TestKeyChangeNeedsTheBackups: if the new key cannot be stored with the backups, nothing changes.
func TestKeyChangeNeedsTheBackups(t *testing.T) {
	r := newRotation(t)
	before, away := r.file(keyfile.Name), errors.New("the place is away")
	if _, err := r.core.RotateKey(t.Context(), func(context.Context) error {
		if len(r.file(keyfile.NextName)) == 0 {
			t.Error("there is no new key to be stored")
		}
		return away
	}); !errors.Is(err, away) || !strings.Contains(err.Error(), "was not changed") {
		t.Errorf("%v", err)
	}
	if !bytes.Equal(r.file(keyfile.Name), before) {
		t.Error("the key has changed")
	}
	r.whole()
	r.rotate()
	r.whole()
}

// TestInterruptedKeyChange: a start after any step opens everything; the start or a second change
// finishes it; and both keys are required as long as both are needed.
func TestInterruptedKeyChange(t *testing.T) {
	// stop leaves the state of a crash after a step; later is what runs then.
	for _, step := range []string{"made", "noted", "some", "done"} {
		for _, again := range []bool{true, false} {
			t.Run(step, func(t *testing.T) {
				r := newRotation(t)
				path := filepath.Join(r.st.Dir(), keyfile.Name)
				own := r.file(keyfile.Name)
				known, err := r.core.masterKey()
				if err != nil {
					t.Fatal(err)
				}
				switch step {
				case "made":
					if _, err := keyfile.Make(filepath.Join(r.st.Dir(), keyfile.NextName)); err != nil {
						t.Fatal(err)
					}
				default:
					if err := r.core.beginKeyChange(t.Context(), known, nowhere); err != nil {
						t.Fatal(err)
					}
				}
				if step == "some" {
					r.open() // uses the next key, and has not sealed old secrets again yet
					keepSecret(t, r.st, r.core.Keys)
				}
				if step == "done" {
					if _, err := r.core.resealAll(t.Context()); err != nil {
						t.Fatal(err)
					}
					// The last rename is not on disk.
					if err := os.Rename(path, filepath.Join(r.st.Dir(), keyfile.NextName)); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, own, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if step == "noted" || step == "some" {
					next := r.file(keyfile.NextName)
					if err := os.Remove(filepath.Join(r.st.Dir(), keyfile.NextName)); err != nil {
						t.Fatal(err)
					}
					if _, err := OpenKeys(r.st); err == nil || !strings.Contains(err.Error(), "Put back the master.key.next") {
						t.Errorf("without the key that takes over: %v", err)
					}
					if err := os.WriteFile(filepath.Join(r.st.Dir(), keyfile.NextName), next, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				r.open()
				w := new(store.Webhook)
				if err := r.st.View(func(tx *store.Tx) (err error) {
					w, err = store.Webhooks.Get(tx, "wh_1")
					return err
				}); err != nil {
					t.Fatal(err)
				}
				if plain, err := r.core.Keys.Open(store.WebhookBinding("wh_1"), w.Secret); string(plain) != "secret" {
					t.Errorf("after the start: %s, %v", plain, err)
				}
				if again {
					r.rotate()
				} else if err := r.core.FinishKeyChange(t.Context()); err != nil {
					t.Fatal(err)
				}
				if !again && step == "made" { // the change was dropped
					if err := os.Remove(filepath.Join(r.st.Dir(), keyfile.NextName)); err != nil {
						t.Fatal(err)
					}
				} else if bytes.Equal(r.file(keyfile.Name), own) {
					t.Error("the key is the one of before")
				}
				r.whole()
				r.open()
				r.whole()
			})
		}
	}
}
