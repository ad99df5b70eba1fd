package core

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/keyfile"
)

// Keys seals secrets and authenticates what we hand out, under one master key that is kept outside
// the database. The key may change at any time; see RotateKey.
type Keys struct {
	ring atomic.Pointer[keyring]
}

// A keyring is a master key, and what is needed of those from which it took over.
type keyring struct {
	print string // the fingerprint
	seal  cipher.AEAD
	past  []cipher.AEAD // what was sealed before the change may still be opened by these
	roots [][]byte      // of MACs, that of the master key first
}

// NewKeys gives the keys of a store that has had no master key but this one.
func NewKeys(master []byte) (*Keys, error) {
	ring, err := newKeyring(master)
	if err != nil {
		return nil, err
	}
	k := new(Keys)
	k.ring.Store(ring)
	return k, nil
}

func newKeyring(master []byte) (*keyring, error) {
	sealing, err := hkdf.Key(sha256.New, master, nil, "mailstead seal 1", 32)
	if err != nil {
		return nil, fmt.Errorf("derive sealing key: %w", err)
	}
	root, err := hkdf.Key(sha256.New, master, nil, "mailstead mac 1", 32)
	if err != nil {
		return nil, fmt.Errorf("derive mac key: %w", err)
	}
	block, err := aes.NewCipher(sealing)
	if err != nil {
		return nil, fmt.Errorf("make cipher: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("make cipher: %w", err)
	}
	return &keyring{print: keyfile.Fingerprint(master), seal: aead, roots: [][]byte{root}}, nil
}

// follow gives the keyring of a master key that takes over from r.
func (r *keyring) follow(master []byte) (*keyring, error) {
	next, err := newKeyring(master)
	if err != nil {
		return nil, err
	}
	next.past = append([]cipher.AEAD{r.seal}, r.past...)
	next.roots = append(next.roots, r.roots...)
	return next, nil
}

// Seal encrypts a secret for the record named by place, such as a record's id; it opens only with
// the same place.
func (k *Keys) Seal(place string, secret []byte) []byte {
	return k.ring.Load().sealFor(place, secret)
}

func (r *keyring) sealFor(place string, secret []byte) []byte {
	nonce := make([]byte, r.seal.NonceSize(), r.seal.NonceSize()+len(secret)+r.seal.Overhead())
	rand.Read(nonce)
	return r.seal.Seal(nonce, nonce, secret, []byte(place))
}

// Open undoes Seal, also where the master key has changed since.
func (k *Keys) Open(place string, sealed []byte) ([]byte, error) {
	secret, _, err := k.ring.Load().open(place, sealed)
	return secret, err
}

// open gives a secret, and whether it is sealed under the master key, not one before it.
func (r *keyring) open(place string, sealed []byte) (secret []byte, now bool, err error) {
	n := r.seal.NonceSize()
	if len(sealed) < n {
		return nil, false, fmt.Errorf("open the secret of %s: it is incomplete", place)
	}
	secret, err = r.seal.Open(nil, sealed[:n], sealed[n:], []byte(place))
	if err == nil {
		return secret, true, nil
	}
	for _, before := range r.past {
		if secret, err := before.Open(nil, sealed[:n], sealed[n:], []byte(place)); err == nil {
			return secret, false, nil
		}
	}
	return nil, false, fmt.Errorf("open the secret of %s: the master key does not fit: %w", place, err)
}

// again seals a secret under the master key where it is sealed under one before it. One that no key
// opens stays as it is.
func (r *keyring) anew(place string, sealed []byte) []byte {
	secret, now, err := r.open(place, sealed)
	if now || err != nil {
		return sealed
	}
	return r.sealFor(place, secret)
}

// Mac authenticates the parts for one purpose. After a change of the master key it gives another
// MAC, so that what is compared with it is not valid any more; MadeMac is for what stays valid.
func (k *Keys) Mac(purpose string, parts ...string) []byte {
	return macUnder(k.ring.Load().roots[0], purpose, parts)
}

// StableMac is Mac under the oldest master key that is known: a change of the key does not change
// it.
func (k *Keys) StableMac(purpose string, parts ...string) []byte {
	roots := k.ring.Load().roots
	return macUnder(roots[len(roots)-1], purpose, parts)
}

// MadeMac reports whether same is true of the MAC of the parts, as Mac gives it or gave it under a
// master key before. same must compare in constant time.
func (k *Keys) MadeMac(same func(mac []byte) bool, purpose string, parts ...string) bool {
	made := false
	for _, root := range k.ring.Load().roots {
		made = same(macUnder(root, purpose, parts)) || made
	}
	return made
}

func macUnder(root []byte, purpose string, parts []string) []byte {
	h := hmac.New(sha256.New, root)
	for _, p := range append([]string{purpose}, parts...) {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return h.Sum(nil)
}

const (
	Base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

func TokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// OpenKeys reads the master key beside a store, and makes it, readable by its owner alone, for a
// new one. The store keeps the key's fingerprint: a key that is missing, or is not the one that the
// store's secrets are sealed under, is refused, since a new one would make them useless without a
// word. A store from before fingerprints takes a key that opens one of its secrets. Where a change
// of the key was interrupted, both keys are needed.
func OpenKeys(st *store.Store) (*Keys, error) {
	path := filepath.Join(st.Dir(), keyfile.Name)
	known, secrets, err := sealedIn(st)
	if err != nil {
		return nil, err
	}
	if err := takeOverIfDue(st.Dir(), known); err != nil {
		return nil, err
	}
	master, err := keyfile.Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (known.Fingerprint != "" || len(secrets) > 0):
		return nil, fmt.Errorf("%s is missing, and %s holds secrets that are sealed under it (fingerprint %s). Put back the master.key that belongs to this data directory, from the same backup",
			path, st.Dir(), orUnknown(known.Fingerprint))
	case errors.Is(err, keyfile.ErrMalformed):
		return nil, fmt.Errorf("%w. Put back the master.key that belongs to this data directory, from the same backup", err)
	case errors.Is(err, fs.ErrNotExist):
		master, err = keyfile.Make(path)
	}
	if err != nil {
		return nil, err
	}
	ring, err := newKeyring(master)
	if err != nil {
		return nil, err
	}
	keys := new(Keys)
	if ring.print == known.Fingerprint {
		ring, err = ring.withPast(st.Dir(), known)
		if err != nil {
			return nil, err
		}
		keys.ring.Store(ring)
		return keys, nil
	}
	keys.ring.Store(ring)
	killpoint.At("key.note")
	if known.Fingerprint != "" || len(secrets) > 0 && !slices.ContainsFunc(secrets, func(s store.Secret) bool {
		_, err := keys.Open(s.Place, s.Sealed)
		return err == nil
	}) {
		return nil, fmt.Errorf("%s is another key (fingerprint %s) than the one that the secrets in %s are sealed under (fingerprint %s). Put back the master.key that belongs to this data directory, from the same backup",
			path, ring.print, st.Dir(), orUnknown(known.Fingerprint))
	}
	return keys, st.Update(func(tx *store.Tx) error {
		return store.MasterKeys.Put(tx, &store.MasterKey{ID: store.MasterKeyID, Fingerprint: ring.print, Since: tx.Now()})
	})
}

func orUnknown(print string) string {
	if print == "" {
		return "not known"
	}
	return print
}

// secretsTried bounds how many secrets of each kind are tried.
const secretsTried = 3

// sealedIn gives what the store says of its master key, and where it says nothing some of its
// secrets of each kind.
func sealedIn(st *store.Store) (known store.MasterKey, secrets []store.Secret, err error) {
	err = st.View(func(tx *store.Tx) error {
		k, err := store.MasterKeys.Find(tx, store.MasterKeyID)
		if err != nil {
			return err
		}
		if k != nil {
			known = *k
			return nil
		}
		secrets = tx.Secrets(secretsTried)
		return nil
	})
	return known, secrets, err
}

// withPast gives the keyring of the store's master key with what is kept of those before it; where
// the key is being changed, the keyring of the one that takes over.
func (r *keyring) withPast(dir string, known store.MasterKey) (*keyring, error) {
	if known.Next != "" {
		next, err := nextKey(dir, known)
		if err != nil {
			return nil, err
		}
		r, err = r.follow(next)
		if err != nil {
			return nil, err
		}
	}
	out := *r
	out.roots = r.roots[:1:1]
	for _, past := range known.Past {
		root, _, err := r.open(macRootPlace(past.Fingerprint), past.MacRoot)
		if err != nil {
			return nil, err
		}
		out.roots = append(out.roots, root)
	}
	return &out, nil
}

// nextKey reads the key that takes over.
func nextKey(dir string, known store.MasterKey) ([]byte, error) {
	path := filepath.Join(dir, keyfile.NextName)
	next, err := keyfile.Read(path)
	if err == nil && keyfile.Fingerprint(next) != known.Next {
		err = fmt.Errorf("%s is another key (fingerprint %s)", path, keyfile.Fingerprint(next))
	}
	if err != nil {
		return nil, fmt.Errorf("%w. The master key is being changed, and some secrets in %s are sealed under the one that takes over (fingerprint %s). Put back the %s that belongs to this data directory, from the same backup",
			err, dir, known.Next, keyfile.NextName)
	}
	return next, nil
}

// macRootPlace is what the root of the MACs of a past master key is sealed for.
func macRootPlace(print string) string { return "mac root " + print }
