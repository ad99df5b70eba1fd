package service

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Keys seals secrets and authenticates what we hand out, under one master key that is kept outside the database.
type Keys struct {
	seal cipher.AEAD
	root []byte
}

// LoadKeys reads the master key file in dir, and makes it, readable by its owner alone, if there is none.
func LoadKeys(dir string) (*Keys, error) {
	path := filepath.Join(dir, "master.key")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKeys(dir, path)
	}
	if err != nil {
		return nil, fmt.Errorf("read master key: %w", err)
	}
	master, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil || len(master) != 32 {
		return nil, fmt.Errorf("%s is not a master key; put the one that belongs to this data back", path)
	}
	return newKeys(master)
}

func makeKeys(dir, path string) (*Keys, error) {
	master := make([]byte, 32)
	rand.Read(master)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make master key: %w", err)
	}
	_, err = f.WriteString(base64.StdEncoding.EncodeToString(master))
	if err = errors.Join(err, f.Sync(), f.Close(), syncDir(dir)); err != nil {
		return nil, fmt.Errorf("write master key: %w", err)
	}
	return newKeys(master)
}

// syncDir makes a new directory entry survive a crash.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func newKeys(master []byte) (*Keys, error) {
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

// Seal encrypts a secret for the record named by place, such as a record's id; it opens only with the same place.
func (k *Keys) Seal(place string, secret []byte) []byte {
	nonce := make([]byte, k.seal.NonceSize(), k.seal.NonceSize()+len(secret)+k.seal.Overhead())
	rand.Read(nonce)
	return k.seal.Seal(nonce, nonce, secret, []byte(place))
}

// Open undoes Seal.
func (k *Keys) Open(place string, sealed []byte) ([]byte, error) {
	n := k.seal.NonceSize()
	if len(sealed) < n {
		return nil, fmt.Errorf("open the secret of %s: it is cut short", place)
	}
	secret, err := k.seal.Open(nil, sealed[:n], sealed[n:], []byte(place))
	if err != nil {
		return nil, fmt.Errorf("open the secret of %s: the master key does not fit: %w", place, err)
	}
	return secret, nil
}

// mac authenticates the parts for one purpose.
func (k *Keys) mac(purpose string, parts ...string) []byte {
	h := hmac.New(sha256.New, k.root)
	for _, p := range append([]string{purpose}, parts...) {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return h.Sum(nil)
}
