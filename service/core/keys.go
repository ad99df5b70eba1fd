package core

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store"
)

// AccountPlace is what the key of an account at a certificate authority is sealed for.
func AccountPlace(directory string) string { return "acme account " + directory }

// CertificatePlace is what the keys of a set's certificates are sealed for.
func CertificatePlace(set string) string { return "certificate " + set }

// DNSSECPlace is what the zone's key of a domain is sealed for.
func DNSSECPlace(domainID string) string { return "dnssec " + domainID }

// DKIMPlace is what the DKIM keys of a domain are sealed for.
func DKIMPlace(domainID string) string { return "dkim " + domainID }

// EdgePlace is what the edge provider's token of a domain is sealed for.
func EdgePlace(domainID string) string { return "edge " + domainID }

// ServerPlace is what the password of an external mailbox's server, imap or smtp, is sealed for.
func ServerPlace(id, field string) string { return "mailbox " + id + " " + field }

func TOTPPlace(userID string) string { return userID + " totp" }

// Keys seals secrets and authenticates what we hand out, under one master key that is kept outside
// the database.
type Keys struct {
	seal cipher.AEAD
	root []byte
}

func NewKeys(master []byte) (*Keys, error) {
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
	return &Keys{seal: aead, root: root}, nil
}

// Seal encrypts a secret for the record named by place, such as a record's id; it opens only with
// the same place.
func (k *Keys) Seal(place string, secret []byte) []byte {
	nonce := make([]byte, k.seal.NonceSize(), k.seal.NonceSize()+len(secret)+k.seal.Overhead())
	rand.Read(nonce)
	return k.seal.Seal(nonce, nonce, secret, []byte(place))
}

// Open undoes Seal.
func (k *Keys) Open(place string, sealed []byte) ([]byte, error) {
	n := k.seal.NonceSize()
	if len(sealed) < n {
		return nil, fmt.Errorf("open the secret of %s: it is incomplete", place)
	}
	secret, err := k.seal.Open(nil, sealed[:n], sealed[n:], []byte(place))
	if err != nil {
		return nil, fmt.Errorf("open the secret of %s: the master key does not fit: %w", place, err)
	}
	return secret, nil
}

// Mac authenticates the parts for one purpose.
func (k *Keys) Mac(purpose string, parts ...string) []byte {
	h := hmac.New(sha256.New, k.root)
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
// word. A store from before fingerprints takes a key that opens one of its secrets.
func OpenKeys(st *store.Store) (*Keys, error) {
	path := filepath.Join(st.Dir(), "master.key")
	known, secrets, err := sealedIn(st)
	if err != nil {
		return nil, err
	}
	master, err := readMaster(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (known != "" || len(secrets) > 0):
		return nil, fmt.Errorf("%s is missing, and %s holds secrets that are sealed under it (fingerprint %s). Put back the master.key that belongs to this data directory, from the same backup",
			path, st.Dir(), orUnknown(known))
	case errors.Is(err, fs.ErrNotExist):
		master, err = makeMaster(path)
	}
	if err != nil {
		return nil, err
	}
	keys, err := NewKeys(master)
	if err != nil {
		return nil, err
	}
	print, err := fingerprint(master)
	if err != nil {
		return nil, err
	}
	if print == known {
		return keys, nil
	}
	killpoint.At("key.note")
	if known != "" || len(secrets) > 0 && !keys.openOne(secrets) {
		return nil, fmt.Errorf("%s is another key (fingerprint %s) than the one that the secrets in %s are sealed under (fingerprint %s). Put back the master.key that belongs to this data directory, from the same backup",
			path, print, st.Dir(), orUnknown(known))
	}
	return keys, st.Update(func(tx *store.Tx) error {
		return store.MasterKeys.Put(tx, &store.MasterKey{ID: store.MasterKeyID, Fingerprint: print, Since: tx.Now()})
	})
}

func orUnknown(print string) string {
	if print == "" {
		return "not known"
	}
	return print
}

// readMaster reads a key file. It returns fs.ErrNotExist where there is none.
func readMaster(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read master key: %w", err)
	}
	master, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil || len(master) != 32 {
		return nil, fmt.Errorf("%s is not a master key; put the one that belongs to this data back", path)
	}
	return master, nil
}

// makeMaster makes a key file, whole or not at all: it has its name once its bytes are on disk.
func makeMaster(path string) ([]byte, error) {
	master := make([]byte, 32)
	rand.Read(master)
	draft := path + ".tmp"
	f, err := os.OpenFile(draft, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make master key: %w", err)
	}
	_, err = f.WriteString(base64.StdEncoding.EncodeToString(master))
	killpoint.At("key.written")
	if err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close()); err == nil {
		err = os.Rename(draft, path)
	}
	killpoint.At("key.named")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write master key: %w", err), os.Remove(draft))
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("write master key: %w", err)
	}
	return master, nil
}

// syncDir makes a new directory entry survive a crash.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// fingerprint names a master key without telling anything of it.
func fingerprint(master []byte) (string, error) {
	print, err := hkdf.Key(sha256.New, master, nil, "mailstead fingerprint 1", 16)
	if err != nil {
		return "", fmt.Errorf("derive fingerprint: %w", err)
	}
	return hex.EncodeToString(print), nil
}

// A sealed is a secret as it is stored, and the place that it is sealed for.
type sealed struct {
	place  string
	secret []byte
}

// secretsTried bounds how many secrets of each kind are tried.
const secretsTried = 3

// sealedIn gives the fingerprint that the store keeps, and where it keeps none some of its secrets
// of each kind.
func sealedIn(st *store.Store) (known string, secrets []sealed, err error) {
	err = st.View(func(tx *store.Tx) error {
		k, err := store.MasterKeys.Find(tx, store.MasterKeyID)
		if err != nil {
			return err
		}
		if k != nil {
			known = k.Fingerprint
			return nil
		}
		secrets = append(secrets, some(tx, store.Mailboxes, func(mb *store.Mailbox) (out []sealed) {
			out = append(out, sealed{"mailbox " + mb.ID, mb.PasswordSealed})
			if mb.External != nil {
				out = append(out, sealed{ServerPlace(mb.ID, "imap"), mb.External.IMAP.PasswordSealed})
			}
			return out
		})...)
		secrets = append(secrets, some(tx, store.Domains, func(d *store.Domain) []sealed {
			out := []sealed{{EdgePlace(d.ID), d.EdgeToken}}
			for _, k := range d.DKIM {
				out = append(out, sealed{DKIMPlace(d.ID), k.Sealed})
			}
			if d.DNSSEC != nil {
				out = append(out, sealed{DNSSECPlace(d.ID), d.DNSSEC.Sealed})
			}
			return out
		})...)
		secrets = append(secrets, some(tx, store.Webhooks, func(w *store.Webhook) []sealed { return []sealed{{"webhook " + w.ID, w.Secret}} })...)
		secrets = append(secrets, some(tx, store.Certificates, func(c *store.Certificate) []sealed {
			return []sealed{{CertificatePlace(c.ID), c.Key}, {CertificatePlace(c.ID), c.NextKey}}
		})...)
		secrets = append(secrets, some(tx, store.CertificateAccounts, func(a *store.CertificateAccount) []sealed {
			return []sealed{{AccountPlace(a.Directory), a.Key}}
		})...)
		secrets = append(secrets, some(tx, store.Users, func(u *store.User) []sealed {
			if u.TOTP == nil {
				return nil
			}
			return []sealed{{TOTPPlace(u.ID), u.TOTP.Sealed}}
		})...)
		return nil
	})
	return known, secrets, err
}

// some gives the first secrets of a table's records.
func some[T any](tx *store.Tx, table *store.Table[T], of func(*T) []sealed) (out []sealed) {
	for rec := range table.All(tx) {
		for _, s := range of(rec) {
			if len(s.secret) > 0 {
				out = append(out, s)
			}
		}
		if len(out) >= secretsTried {
			break
		}
	}
	return out
}

// openOne tells whether the key opens any of the secrets.
func (k *Keys) openOne(secrets []sealed) bool {
	for _, s := range secrets {
		if _, err := k.Open(s.place, s.secret); err == nil {
			return true
		}
	}
	return false
}
