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

// The master key is changed in steps. Each is on disk before the next begins:
//
//  1. The file of the new key is made and copied to the backups.
//  2. The store records its fingerprint: from now on secrets are sealed under the new key, and
//     opened by both.
//  3. Every record with secrets is written again with them sealed under the new key, some records
//     per transaction.
//  4. The store records that nothing is sealed under the old key any more.
//  5. The new key's file replaces the old one's.
//
// Until the end of step 2 the change can be dropped. After that it continues at the next start, or
// with the next request.

// KeyRotated is the result of a change of the master key.
type KeyRotated struct {
	KeyID   string `json:"key_id"`  // the new key's fingerprint
	Records int    `json:"records"` // how many records were sealed again
}

// RotateKey changes the master key while the server runs. It calls share when the new key's file is
// on disk and nothing is sealed under it yet, so that backups contain the key before they need it;
// if share fails, nothing has changed. If an earlier change was interrupted, RotateKey continues
// that one.
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
	return s.resealAll(context.WithoutCancel(ctx)) // once begun, the change does not stop with the request
}

// FinishKeyChange continues an interrupted change of the master key. If there is none it does
// nothing.
func (s *Core) FinishKeyChange(ctx context.Context) error {
	s.keyChange.Lock()
	defer s.keyChange.Unlock()
	known, err := s.masterKey()
	if err != nil || known.Next == "" {
		return err
	}
	_, err = s.resealAll(ctx)
	return err
}

// masterKey returns what the store records about its master key. It returns an error if the key
// file holds another key.
func (s *Core) masterKey() (known store.MasterKeyRecord, err error) {
	known, _, err = storedMasterKey(s.Store)
	if err != nil {
		return known, err
	}
	if err := replaceKeyFile(s.Store.Dir(), known); err != nil {
		return known, err
	}
	master, err := keyfile.Read(filepath.Join(s.Store.Dir(), keyfile.Name))
	if err == nil && keyfile.Fingerprint(master) != known.Fingerprint {
		err = fmt.Errorf("%s in %s is not the key that the secrets there are sealed under (fingerprint %s). Put that one back",
			keyfile.Name, s.Store.Dir(), orUnknown(known.Fingerprint))
	}
	return known, err
}

func (s *Core) beginKeyChange(ctx context.Context, known store.MasterKeyRecord, share func(context.Context) error) error {
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
	ring, err := before.successor(master)
	if err != nil {
		return err
	}
	past := []store.PastKey{{Fingerprint: known.Fingerprint, MacRoot: ring.sealFor(macRootBinding(known.Fingerprint), before.roots[0])}}
	for _, p := range known.Past {
		p.MacRoot = ring.reseal(macRootBinding(p.Fingerprint), p.MacRoot)
		past = append(past, p)
	}
	known.Next, known.Resealed, known.Past = ring.fingerprint, 0, past
	if err := s.Store.Update(func(tx *store.Tx) error { return store.MasterKeys.Put(tx, &known) }); err != nil {
		return err
	}
	killpoint.At("rotate.noted")
	return nil
}

// resealAll does steps 3 to 5 of a change of the master key.
func (s *Core) resealAll(ctx context.Context) (*KeyRotated, error) {
	known, err := s.masterKey()
	if err != nil {
		return nil, err
	}
	if ring := s.Keys.ring.Load(); ring.fingerprint != known.Next {
		master, err := nextKey(s.Store.Dir(), known)
		if err != nil {
			return nil, err
		}
		ring, err = ring.successor(master)
		if err != nil {
			return nil, err
		}
		s.Keys.ring.Store(ring)
	}
	// From here on no write is sealed under the old key, so that it is enough to read each record
	// once.
	ring := s.Keys.ring.Load()
	s.Store.ResealWrites(ring.reseal)
	for after, more := "", true; more; {
		var next string
		err := s.Store.Update(func(tx *store.Tx) (err error) {
			var records int
			records, next, err = tx.Reseal(after, ring.reseal)
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
		known.Past[0].Number = tx.CommitNumber() + 1
		known.Fingerprint, known.Since, known.Next, known.Resealed = known.Next, tx.Now(), "", 0
		if err := store.MasterKeys.Put(tx, known); err != nil {
			return err
		}
		for range store.Accounts.All(tx) { // there may be no account yet
			return AuditCommand(tx, "rotate-key", "", store.AuditTarget{Type: "master_key", ID: out.KeyID, Name: keyfile.Name})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	killpoint.At("rotate.done")
	if err := keyfile.UseNextKey(s.Store.Dir()); err != nil {
		return nil, err
	}
	killpoint.At("rotate.replaced")
	s.Log.Info("master key is changed", "key_id", out.KeyID, "records", out.Records)
	return out, nil
}
