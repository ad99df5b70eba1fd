// Package keyfile reads and writes the file of the master key, and the file of the next key while
// the master key is being replaced. It does not know what is encrypted with them.
package keyfile

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mailstead/mailstead/internal/killpoint"
)

// Name is the name of the master key's file in the data directory. NextName is the name of the next
// key's file while the master key is being replaced.
const (
	Name     = "master.key"
	NextName = "master.key.next"
)

// Size is the size of a master key in bytes.
const Size = 32

// ErrMalformed is returned for a file that does not contain a master key.
var ErrMalformed = errors.New("the file does not contain a master key")

// Read reads a key file. The error is fs.ErrNotExist if there is no file, or ErrMalformed.
func Read(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read master key: %w", err)
	}
	master, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return master, nil
}

// Parse decodes the contents of a key file. The error is ErrMalformed.
func Parse(text []byte) ([]byte, error) {
	master, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(master) != Size {
		return nil, ErrMalformed
	}
	return master, nil
}

// Format encodes a key for its file; Parse is the inverse.
func Format(master []byte) string { return base64.StdEncoding.EncodeToString(master) }

// Make creates a new key and writes it to a file that only its owner can read.
func Make(path string) ([]byte, error) {
	master := make([]byte, Size)
	rand.Read(master)
	return master, Write(path, master)
}

// Write writes a key file atomically. The file is synced before it gets its name, and the directory
// is synced before Write returns.
func Write(path string, master []byte) error {
	draft := path + ".tmp"
	f, err := os.OpenFile(draft, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("create master key file: %w", err)
	}
	_, err = f.WriteString(Format(master))
	killpoint.At("key.written")
	if err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close()); err == nil {
		err = os.Rename(draft, path)
	}
	killpoint.At("key.named")
	if err != nil {
		return errors.Join(fmt.Errorf("write master key: %w", err), os.Remove(draft))
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("write master key: %w", err)
	}
	return nil
}

// UseNextKey makes the next key the master key of the data directory dir. It deletes the old key.
func UseNextKey(dir string) error {
	err := os.Rename(filepath.Join(dir, NextName), filepath.Join(dir, Name))
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("replace the master key by the next one: %w", err)
	}
	return nil
}

// Fingerprint returns 32 hexadecimal digits that identify a master key without revealing anything
// of it.
func Fingerprint(master []byte) string {
	print, err := hkdf.Key(sha256.New, master, nil, "mailstead fingerprint 1", 16)
	if err != nil {
		panic(err) // impossible: the length is valid
	}
	return hex.EncodeToString(print)
}

// syncDir syncs a directory, so that a new entry in it survives a crash.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
