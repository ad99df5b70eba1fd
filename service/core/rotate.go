package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/keyfile"
)

// The master key is changed in steps, each of which is on disk before the next begins:
//
//  1. the file of the key that takes over is made, and goes to the backups;
//  2. the store notes its fingerprint: from now on secrets are sealed under it and opened by both;
//  3. every record that has secrets is written with them sealed anew, some in a transaction;
//  4. the store notes that nothing is sealed under the key before;
//  5. the new key's file takes the place of the old one's.
//
// Until the end of step 2 the change can be forgotten. From then on it goes on at the next start,
// or when it is asked for again.

// KeyRotated says what came of a change of the master key.
type KeyRotated struct {
	KeyID   string `json:"key_id"`  // the fingerprint of the new one
	Records int    `json:"records"` // that were sealed anew
}

// RotateKey changes the master key while everything else goes on. share is called when the file of
// the new key is on disk and nothing is sealed under it yet, so that backups have it before they
// have what needs it; where it fails, nothing has changed. A change that was interrupted goes on in
// the place of a new one.
func (s *Core) RotateKey(ctx context.Context, share func(context.Context) error) (*KeyRotated, error) {
	s.keyChange.Lock()
	defer s.keyChange.Unlock()
	known, err := s.masterKey()
	if err != nil {
		return nil, err
	}
	if known.Next == "" {
		if err := s.beginKeyChange(ctx, known, share); err != nil {
			return nil, err
		}
	}
	return s.sealAnew(context.WithoutCancel(ctx)) // what has begun is not left to whoever asked for it
}

// FinishKeyChange goes on with a change of the master key that was interrupted. It does nothing
// where there is none.
func (s *Core) FinishKeyChange(ctx context.Context) error {
	s.keyChange.Lock()
	defer s.keyChange.Unlock()
	known, err := s.masterKey()
	if err != nil || known.Next == "" {
		return err
	}
	_, err = s.sealAnew(ctx)
	return err
}

// masterKey is what the store says of its master key. The key's file is that key then, unless
// somebody has put another one there, which is an error.
func (s *Core) masterKey() (known store.MasterKey, err error) {
	known, _, err = sealedIn(s.Store)
	if err != nil {
		return known, err
	}
	if err := takeOverIfDue(s.Store.Dir(), known); err != nil {
		return known, err
	}
	master, err := keyfile.Read(filepath.Join(s.Store.Dir(), keyfile.Name))
	if err == nil && keyfile.Fingerprint(master) != known.Fingerprint {
		err = fmt.Errorf("%s in %s is not the key that the secrets there are sealed under (fingerprint %s). Put that one back",
			keyfile.Name, s.Store.Dir(), orUnknown(known.Fingerprint))
	}
	return known, err
}

// takeOverIfDue ends a change of the key of which only the last step is missing.
func takeOverIfDue(dir string, known store.MasterKey) error {
	next, err := keyfile.Read(filepath.Join(dir, keyfile.NextName))
	if err != nil || keyfile.Fingerprint(next) != known.Fingerprint {
		return nil // of a change that has not come so far, which others look at
	}
	return keyfile.TakeOver(dir)
}

func (s *Core) beginKeyChange(ctx context.Context, known store.MasterKey, share func(context.Context) error) error {
	killpoint.At("rotate.begin")
	path := filepath.Join(s.Store.Dir(), keyfile.NextName)
	master, err := keyfile.Make(path)
	if err != nil {
		return err
	}
	killpoint.At("rotate.made")
	if err := share(ctx); err != nil {
		return errors.Join(fmt.Errorf("the master key was not changed, since the new one could not be stored with the backups. Run this again when their place can be reached: %w", err), os.Remove(path))
	}
	killpoint.At("rotate.shared")
	before := s.Keys.ring.Load()
	ring, err := before.follow(master)
	if err != nil {
		return err
	}
	past := []store.PastKey{{Fingerprint: known.Fingerprint, MacRoot: ring.sealFor(macRootPlace(known.Fingerprint), before.roots[0])}}
	for _, p := range known.Past {
		p.MacRoot = ring.anew(macRootPlace(p.Fingerprint), p.MacRoot)
		past = append(past, p)
	}
	known.Next, known.Resealed, known.Past = ring.print, 0, past
	if err := s.Store.Update(func(tx *store.Tx) error { return store.MasterKeys.Put(tx, &known) }); err != nil {
		return err
	}
	killpoint.At("rotate.noted")
	return nil
}

// sealAnew does what is left of a change of the master key that the store has noted.
func (s *Core) sealAnew(ctx context.Context) (*KeyRotated, error) {
	known, err := s.masterKey()
	if err != nil {
		return nil, err
	}
	if ring := s.Keys.ring.Load(); ring.print != known.Next {
		master, err := nextKey(s.Store.Dir(), known)
		if err != nil {
			return nil, err
		}
		ring, err = ring.follow(master)
		if err != nil {
			return nil, err
		}
		s.Keys.ring.Store(ring)
	}
	// From here on nothing is put that is sealed under the key before, so that it is enough to look
	// at each record once.
	ring := s.Keys.ring.Load()
	s.Store.ResealWrites(ring.anew)
	for after, more := "", true; more; {
		var next string
		err := s.Store.Update(func(tx *store.Tx) (err error) {
			var records int
			records, next, err = tx.Reseal(after, ring.anew)
			if err != nil || records == 0 {
				return err
			}
			known, err := store.MasterKeys.Get(tx, store.MasterKeyID)
			if err != nil {
				return err
			}
			known.Resealed += records
			return store.MasterKeys.Put(tx, known)
		})
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return nil, fmt.Errorf("the change of the master key is not finished; run `mailstead rotate-key` to go on: %w", err)
		}
		killpoint.At("rotate.some")
		after, more = next, next != ""
	}
	killpoint.At("rotate.all")
	out := new(KeyRotated)
	err = s.Store.Update(func(tx *store.Tx) error {
		known, err := store.MasterKeys.Get(tx, store.MasterKeyID)
		if err != nil {
			return err
		}
		*out = KeyRotated{KeyID: known.Next, Records: known.Resealed}
		known.Past[0].Number = tx.Number() + 1
		known.Fingerprint, known.Since, known.Next, known.Resealed = known.Next, tx.Now(), "", 0
		if err := store.MasterKeys.Put(tx, known); err != nil {
			return err
		}
		for range store.Accounts.All(tx) { // there may be none yet
			return AuditCommand(tx, "rotate-key", "", store.AuditTarget{Type: "master_key", ID: out.KeyID, Name: keyfile.Name})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	killpoint.At("rotate.done")
	if err := keyfile.TakeOver(s.Store.Dir()); err != nil {
		return nil, err
	}
	killpoint.At("rotate.replaced")
	s.Log.Info("the master key was changed", "key_id", out.KeyID, "records", out.Records)
	return out, nil
}
