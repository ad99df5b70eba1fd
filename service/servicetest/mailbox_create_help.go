package servicetest

import (
	"crypto"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// CheapHashes makes the hashing of new passwords take a thirtieth of a millisecond. Hashes that
// exist already keep their cost.
func CheapHashes(c *core.Core) { c.Logins.Time, c.Logins.Memory = 1, 64 }

// ShareRSA gives all new domains one RSA key, for tests with hundreds of them.
func ShareRSA(c *core.Core) {
	generate := sync.OnceValues(func() (k []byte, err error) {
		k, _, err = auth.GenerateRSA()
		return k, err
	})
	c.GenerateRSA = func() ([]byte, crypto.Signer, error) {
		text, err := generate()
		if err != nil {
			return nil, nil, err
		}
		key, err := auth.ParseKey(text)
		return text, key, err
	}
}

// NewBare returns a service with one account. Its queue does not run.
func NewBare(t *testing.T) (*service.Service, core.Actor) {
	t.Helper()
	return NewClocked(t, nil)
}

// NewClocked is NewBare with the clock now.
func NewClocked(t *testing.T, now func() time.Time) (*service.Service, core.Actor) {
	t.Helper()
	return NewWith(t, store.Options{Now: now})
}

// NewWith is NewBare with options of the store.
func NewWith(t *testing.T, o store.Options) (*service.Service, core.Actor) {
	t.Helper()
	st, err := store.Open(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := core.OpenKeys(st)
	if err != nil {
		t.Fatal(err)
	}
	s := service.New(st, jobs.NewQueue(st), keys, core.Config{Log: slog.New(slog.DiscardHandler), Settings: core.Settings{Limits: core.Limits{Plan: "startup"}}})
	CheapHashes(s.Core)
	t.Cleanup(func() {
		if err := st.Check(); err != nil {
			t.Error(err)
		}
		s.Close()
		st.Close()
	})
	a, err := s.Accounts.CreateAccount(t.Context(), accounts.NewAccount{OwnerEmail: "owner@example.test"})
	if err != nil {
		t.Fatal(err)
	}
	return s, core.Actor{AccountID: a.AccountID, AccountNum: 1, UserID: a.UserID, Role: "owner", Permissions: []string{"admin"}}
}

func Update(t *testing.T, s *service.Service, fn func(*store.Tx) error) {
	t.Helper()
	if err := s.Core.Store.Update(fn); err != nil {
		t.Fatal(err)
	}
}
