package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/keyfile"
)

// The master key may be replaced between two full backups. So each key is also stored as an object,
// before the first entry with secrets under it is sent: the code that replaces the key stores it
// with PutKeys, and each backup stores the keys that no earlier one has. The store has the
// fingerprints of the keys that it needs.

// A sourceFile is a file in the data directory that is not part of the store.
type sourceFile struct {
	name string
	data []byte
}

// readFiles reads those of Files that exist.
func (s Source) readFiles() (list []sourceFile, err error) {
	for _, name := range s.Files {
		data, err := os.ReadFile(filepath.Join(s.Store.Dir(), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, sourceFile{name, data})
	}
	return list, nil
}

// snapshot takes a snapshot of the store and reads the files beside it. It starts again if a file
// changed meanwhile, so that the files contain the keys that the snapshot needs.
func (s Source) snapshot() (*store.Snapshot, []sourceFile, error) {
	for {
		files, err := s.readFiles()
		if err != nil {
			return nil, nil, err
		}
		snap, err := s.Store.Snapshot()
		if err != nil {
			return nil, nil, err
		}
		again, err := s.readFiles()
		if err == nil && slices.EqualFunc(files, again, func(a, b sourceFile) bool { return a.name == b.name && bytes.Equal(a.data, b.data) }) {
			return snap, files, nil
		}
		if err := errors.Join(err, snap.Close()); err != nil {
			return nil, nil, err
		}
	}
}

// keysIn returns the master keys in the files by their fingerprints.
func keysIn(files []sourceFile) map[string][]byte {
	keys := map[string][]byte{}
	for _, f := range files {
		if f.name != keyfile.Name && f.name != keyfile.NextName {
			continue
		}
		if master, err := keyfile.Parse(f.data); err == nil {
			keys[keyfile.Fingerprint(master)] = master
		}
	}
	return keys
}

func keyName(fingerprint string, at time.Time) string {
	return fmt.Sprintf("keys/%s-%x", fingerprint, at.UnixMilli())
}

// parseKeyName parses the name of a key object: the fingerprint of the key, and when it was stored.
func parseKeyName(name string) (fingerprint string, at time.Time, ok bool) {
	fingerprint, digits, ok := strings.Cut(strings.TrimPrefix(name, "keys/"), "-")
	ms, err := strconv.ParseInt(digits, 16, 64)
	return fingerprint, time.UnixMilli(ms).UTC(), ok && err == nil && strings.HasPrefix(name, "keys/")
}

// keyObjects returns the names of the key objects by the fingerprint of the key, each list oldest
// first.
func (t *Target) keyObjects(ctx context.Context) (map[string][]string, error) {
	names := map[string][]string{}
	for o, err := range t.Place.List(ctx, "keys/") {
		if err != nil {
			return nil, err
		}
		if print, _, ok := parseKeyName(o.Name); ok {
			names[print] = append(names[print], o.Name)
		}
	}
	return names, nil
}

// keysSince returns the fingerprints of the master keys that may have sealed something after the
// commit with this number. It returns none if the store has no record of its key.
func keysSince(s *store.Store, number uint64) (prints []string, err error) {
	err = s.View(func(tx *store.Tx) error {
		known, err := store.MasterKeys.Find(tx, store.MasterKeyID)
		if known == nil || err != nil {
			return err
		}
		prints = []string{known.Fingerprint}
		if known.Next != "" {
			prints = append(prints, known.Next)
		}
		for _, past := range known.Past {
			if past.Number > number {
				prints = append(prints, past.Fingerprint)
			}
		}
		return nil
	})
	return prints, err
}

// storeKeys stores the master keys that no earlier backup has. A full backup stores the current
// keys again, since it is complete in itself.
func (r *backupRun) storeKeys(ctx context.Context) error {
	for print, master := range keysIn(r.dataFiles) {
		named := false
		for name := range r.known {
			of, _, ok := parseKeyName(name)
			named = named || ok && of == print
		}
		if named && r.m.Kind != Full {
			continue
		}
		err := r.addObject(ctx, keyName(print, r.src.Store.Now()), func(w io.Writer) error {
			_, err := io.WriteString(w, keyfile.Format(master))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// PutKeys stores at the target those master keys of the data directory that the target lacks: the
// current one and the next one. It must have returned before anything is sealed under the next key.
func (t *Target) PutKeys(ctx context.Context, s *store.Store) error {
	files, err := Source{Store: s, Files: []string{keyfile.NextName, keyfile.Name}}.readFiles()
	if err != nil {
		return err
	}
	stored, err := t.keyObjects(ctx)
	if err != nil {
		return err
	}
	for print, master := range keysIn(files) {
		if len(stored[print]) > 0 {
			continue
		}
		temp, err := t.sealToFile(func(w io.Writer) error {
			_, err := io.WriteString(w, keyfile.Format(master))
			return err
		})
		if err != nil {
			return err
		}
		name := keyName(print, s.Now())
		if err := errors.Join(t.Place.Put(ctx, name, temp, temp.size), temp.Close()); err != nil {
			return err
		}
		if err := t.verifyObject(ctx, StoredObject{Name: name, Size: temp.size, SHA256: temp.sum}, new(store.Pacer)); err != nil {
			return err
		}
	}
	return nil
}

// readKey returns the master key in an object.
func (t *Target) readKey(ctx context.Context, name string) (master []byte, err error) {
	err = t.readObject(ctx, name, func(r io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(r, 1<<10))
		if err != nil {
			return err
		}
		master, err = keyfile.Parse(text)
		if err != nil {
			return fmt.Errorf("parse the master key: %w: %w", ErrDamaged, err)
		}
		if print, _, _ := parseKeyName(name); print != keyfile.Fingerprint(master) {
			return ErrDamaged
		}
		return nil
	})
	return master, err
}

// restoreKeys writes the master keys that a restored store needs into its directory. The full
// backup contains them, unless the key was replaced after it.
func (t *Target) restoreKeys(ctx context.Context, st *store.Store, log *slog.Logger) error {
	var known *store.MasterKeyRecord
	err := st.View(func(tx *store.Tx) (err error) {
		known, err = store.MasterKeys.Find(tx, store.MasterKeyID)
		return err
	})
	if known == nil || err != nil {
		return err
	}
	files, err := Source{Store: st, Files: []string{keyfile.NextName, keyfile.Name}}.readFiles()
	if err != nil {
		return err
	}
	have := keysIn(files)
	stored, err := t.keyObjects(ctx)
	if err != nil {
		return err
	}
	for _, want := range []struct{ name, print string }{{keyfile.Name, known.Fingerprint}, {keyfile.NextName, known.Next}} {
		path := filepath.Join(st.Dir(), want.name)
		if want.print == "" {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		master := have[want.print]
		for _, name := range slices.Backward(stored[want.print]) {
			if master != nil {
				break
			}
			master, err = t.readKey(ctx, name)
			if err != nil && !errors.Is(err, ErrNoIdentity) && !errors.Is(err, ErrDamaged) {
				return err
			}
		}
		if master == nil {
			log.Error("no backup has the master key of that time; the server needs it to start", "file", want.name, "fingerprint", want.print, "error", err)
			continue
		}
		if err := keyfile.Write(path, master); err != nil {
			return err
		}
	}
	return nil
}
