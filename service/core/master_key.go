package core

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mailstead/mailstead/store"
)

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
	if err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close()); err == nil {
		err = os.Rename(draft, path)
	}
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
