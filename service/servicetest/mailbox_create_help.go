package servicetest

import (
	"crypto"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// CheapSecrets makes the hashing of new passwords take a thirtieth of a millisecond, and gives new
// domains the RSA keys that all tests share: the first few of a service have different ones, as the
// key of a domain tells whose it is. Hashes that exist already keep their cost.
func CheapSecrets(c *core.Core) {
	c.Logins.Time, c.Logins.Memory = 1, 64
	var taken atomic.Int64
	c.GenerateRSA = func() ([]byte, crypto.Signer, error) {
		text, err := rsaKeys[int(taken.Add(1)-1)%len(rsaKeys)]()
		if err != nil {
			return nil, nil, err
		}
		key, err := auth.ParseKey(text)
		return text, key, err
	}
}

var rsaKeys = func() (keys [5]func() ([]byte, error)) {
	for n := range keys {
		keys[n] = sync.OnceValues(func() (text []byte, err error) {
			text, _, err = auth.GenerateRSA()
			return text, err
		})
	}
	return keys
}()

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
	CheapSecrets(s.Core)
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
