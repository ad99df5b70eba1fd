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

// Keys seals secrets, and authenticates tokens such as cursors, under one master key that is kept
// outside the database. The key may change at any time; see RotateKey.
type Keys struct {
	ring atomic.Pointer[keyring]
}

// A keyring holds the master key, and the parts of earlier master keys that are still needed.
type keyring struct {
	fingerprint string        // of the master key
	seal        cipher.AEAD   // encrypts secrets under the master key
	earlier     []cipher.AEAD // ciphers of earlier master keys: they open secrets that were sealed before a change
	roots       [][]byte      // keys of MACs; the first is from the master key, the others are from earlier ones
}

// NewKeys returns the keys for a store that has never had another master key.
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
		return nil, fmt.Errorf("derive MAC key: %w", err)
	}
	block, err := aes.NewCipher(sealing)
	if err != nil {
		return nil, fmt.Errorf("make AES cipher: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("make GCM cipher: %w", err)
	}
	return &keyring{fingerprint: keyfile.Fingerprint(master), seal: aead, roots: [][]byte{root}}, nil
}

// successor returns the keyring for a master key that replaces r's.
func (r *keyring) successor(master []byte) (*keyring, error) {
	next, err := newKeyring(master)
	if err != nil {
		return nil, err
	}
	next.earlier = append([]cipher.AEAD{r.seal}, r.earlier...)
	next.roots = append(next.roots, r.roots...)
	return next, nil
}

// Seal encrypts a secret. binding names the record that the secret belongs to, for example by the
// record's id: it is the associated data of the encryption, so Open succeeds only with the same
// binding.
func (k *Keys) Seal(binding string, secret []byte) []byte {
	return k.ring.Load().sealFor(binding, secret)
}

func (r *keyring) sealFor(binding string, secret []byte) []byte {
	nonce := make([]byte, r.seal.NonceSize(), r.seal.NonceSize()+len(secret)+r.seal.Overhead())
	rand.Read(nonce)
	return r.seal.Seal(nonce, nonce, secret, []byte(binding))
}

// Open decrypts a sealed secret, even if the master key has changed since.
func (k *Keys) Open(binding string, sealed []byte) ([]byte, error) {
	secret, _, err := k.ring.Load().open(binding, sealed)
	return secret, err
}

// open decrypts a secret. current reports whether it is sealed under the present master key.
func (r *keyring) open(binding string, sealed []byte) (secret []byte, current bool, err error) {
	n := r.seal.NonceSize()
	if len(sealed) < n {
		return nil, false, fmt.Errorf("open the secret of %s: the sealed text is too short", binding)
	}
	secret, err = r.seal.Open(nil, sealed[:n], sealed[n:], []byte(binding))
	if err == nil {
		return secret, true, nil
	}
	for _, before := range r.earlier {
		if secret, err := before.Open(nil, sealed[:n], sealed[n:], []byte(binding)); err == nil {
			return secret, false, nil
		}
	}
	return nil, false, fmt.Errorf("open the secret of %s: no master key opens it: %w", binding, err)
}

// reseal seals a secret again, under the master key, if it is sealed under an earlier one. A secret
// that no key opens is returned as it is.
func (r *keyring) reseal(binding string, sealed []byte) []byte {
	secret, now, err := r.open(binding, sealed)
	if now || err != nil {
		return sealed
	}
	return r.sealFor(binding, secret)
}

// Mac returns the MAC of the parts for one purpose. A change of the master key changes the MAC. So
// a value that was made with Mac and must stay valid is compared with MatchesMac.
func (k *Keys) Mac(purpose string, parts ...string) []byte {
	return macUnder(k.ring.Load().roots[0], purpose, parts)
}

// StableMac is like Mac, but under the oldest known master key, so that it does not change with the
// key.
func (k *Keys) StableMac(purpose string, parts ...string) []byte {
	roots := k.ring.Load().roots
	return macUnder(roots[len(roots)-1], purpose, parts)
}

// MatchesMac reports whether same returns true for the MAC of the parts, either under the present
// master key or under an earlier one. same must compare in constant time.
func (k *Keys) MatchesMac(same func(mac []byte) bool, purpose string, parts ...string) bool {
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

// OpenKeys reads the master key beside a store. For a new store it makes the file, readable by its
// owner only. The store records the key's fingerprint. OpenKeys refuses a missing key, and a key
// that the store's secrets are not sealed under, since a new key would silently make them useless.
// The store of an old release has no fingerprint. For such a store, OpenKeys accepts a key that
// opens one of the secrets. If a change of the key was interrupted, both keys are needed.
func OpenKeys(st *store.Store) (*Keys, error) {
	path := filepath.Join(st.Dir(), keyfile.Name)
	known, secrets, err := storedMasterKey(st)
	if err != nil {
		return nil, err
	}
	if err := replaceKeyFile(st.Dir(), known); err != nil {
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
	if ring.fingerprint == known.Fingerprint {
		ring, err = ring.withEarlier(st.Dir(), known)
		if err != nil {
			return nil, err
		}
		keys.ring.Store(ring)
		return keys, nil
	}
	keys.ring.Store(ring)
	killpoint.At("key.note")
	if known.Fingerprint != "" || len(secrets) > 0 && !slices.ContainsFunc(secrets, func(s store.Secret) bool {
		_, err := keys.Open(s.Binding, s.Sealed)
		return err == nil
	}) {
		return nil, fmt.Errorf("%s is another key (fingerprint %s) than the one that the secrets in %s are sealed under (fingerprint %s). Put back the master.key that belongs to this data directory, from the same backup",
			path, ring.fingerprint, st.Dir(), orUnknown(known.Fingerprint))
	}
	return keys, st.Update(func(tx *store.Tx) error {
		return store.MasterKeys.Put(tx, &store.MasterKeyRecord{ID: store.MasterKeyID, Fingerprint: ring.fingerprint, Since: tx.Now()})
	})
}

func orUnknown(fingerprint string) string {
	if fingerprint == "" {
		return "not known"
	}
	return fingerprint
}

// secretsTried is how many secrets of each kind OpenKeys tries to open if it knows no fingerprint.
const secretsTried = 3

// storedMasterKey returns what the store records about its master key. If it records nothing, it
// returns some of the store's secrets of each kind.
func storedMasterKey(st *store.Store) (known store.MasterKeyRecord, secrets []store.Secret, err error) {
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

// replaceKeyFile replaces the old master key's file by that of the next one, if only this last step
// of a change of the key is missing.
func replaceKeyFile(dir string, known store.MasterKeyRecord) error {
	next, err := keyfile.Read(filepath.Join(dir, keyfile.NextName))
	if err != nil || keyfile.Fingerprint(next) != known.Fingerprint {
		return nil // no change was interrupted, or FinishKeyChange has to continue it
	}
	return keyfile.UseNextKey(dir)
}

// withEarlier adds the parts of earlier master keys that the store keeps to the keyring. While the
// master key is being changed, it returns the keyring of the next key.
func (r *keyring) withEarlier(dir string, known store.MasterKeyRecord) (*keyring, error) {
	if known.Next != "" {
		next, err := nextKey(dir, known)
		if err != nil {
			return nil, err
		}
		r, err = r.successor(next)
		if err != nil {
			return nil, err
		}
	}
	out := *r
	out.roots = r.roots[:1:1]
	for _, past := range known.Past {
		root, _, err := r.open(macRootBinding(past.Fingerprint), past.MacRoot)
		if err != nil {
			return nil, err
		}
		out.roots = append(out.roots, root)
	}
	return &out, nil
}

// nextKey reads the master key that replaces the present one, while it is being changed.
func nextKey(dir string, known store.MasterKeyRecord) ([]byte, error) {
	path := filepath.Join(dir, keyfile.NextName)
	next, err := keyfile.Read(path)
	if err == nil && keyfile.Fingerprint(next) != known.Next {
		err = fmt.Errorf("%s is another key (fingerprint %s)", path, keyfile.Fingerprint(next))
	}
	if err != nil {
		return nil, fmt.Errorf("%w. The master key is being changed, and some secrets in %s are already sealed under the new key (fingerprint %s). Put back the %s that belongs to this data directory, from the same backup",
			err, dir, known.Next, keyfile.NextName)
	}
	return next, nil
}

// macRootBinding is the binding under which the MAC key of an earlier master key is sealed.
func macRootBinding(fingerprint string) string { return "mac root " + fingerprint }
