package core

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/storetest"
)

// keepSecret writes a webhook, whose secret is sealed.
func keepSecret(t *testing.T, st *store.Store, k *Keys) {
	t.Helper()
	err := st.Update(func(tx *store.Tx) error {
		return store.Webhooks.Put(tx, &store.Webhook{ID: "wh_1", AccountID: "acc_1", Secret: k.Seal("webhook wh_1", []byte("secret"))})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func forgetFingerprint(t *testing.T, st *store.Store) {
	t.Helper()
	if err := st.Update(func(tx *store.Tx) error { return store.MasterKeys.Delete(tx, store.MasterKeyID) }); err != nil {
		t.Fatal(err)
	}
}

func TestMasterKeyBelongsToItsStore(t *testing.T) {
	st := storetest.Open(t)
	path := filepath.Join(st.Dir(), "master.key")
	first, err := OpenKeys(st)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	own, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	keepSecret(t, st, first)
	other := storetest.Open(t)
	if _, err := OpenKeys(other); err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(filepath.Join(other.Dir(), "master.key"))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(when, want string) {
		t.Helper()
		keys, err := OpenKeys(st)
		if err == nil || keys != nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Put back the master.key") {
			t.Errorf("%s: %v", when, err)
		}
	}
	for _, known := range []bool{true, false} {
		if !known {
			forgetFingerprint(t, st) // as in a store of an old release
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		refused("missing", "is missing")
		if _, err := os.Stat(path); err == nil {
			t.Error("a new key was made")
		}
		if err := os.WriteFile(path, foreign, 0o600); err != nil {
			t.Fatal(err)
		}
		refused("another", "is another key")
		if err := os.WriteFile(path, own, 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := OpenKeys(st)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := again.Open("webhook wh_1", first.Seal("webhook wh_1", []byte("x"))); err != nil {
			t.Error(err)
		}
	}
	forgetFingerprint(t, other)
	if _, err := OpenKeys(other); err != nil {
		t.Errorf("a store without secrets: %v", err)
	}
}

// TestHalfAMasterKeyIsNoKey: a key file that a crash left incomplete is not used as a key.
func TestHalfAMasterKeyIsNoKey(t *testing.T) {
	st := storetest.Open(t)
	if err := os.WriteFile(filepath.Join(st.Dir(), "master.key.tmp"), []byte("ab"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKeys(st); err != nil {
		t.Error(err)
	}
	if entries, err := filepath.Glob(filepath.Join(st.Dir(), "*.tmp")); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
}
