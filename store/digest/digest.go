// Package digest compares what two stores contain, also if they are of different formats.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/segment"
)

// None is the digest of an empty table: the SHA-256 of no bytes, in hex.
const None = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Contents returns digests (SHA-256, hex) of what the store in dir contains: one for the records of
// each table, under the name of the table, one under "folders", and one under "messages" (UIDs,
// flags, MODSEQs, dates, bytes). No process may write to the store. Contents reads stores of older
// formats as they are and changes nothing, so that a store can be compared before and after a
// migration.
func Contents(dir string) (digests map[string]string, err error) {
	digests = map[string]string{}
	err = store.ReadRows(dir, func(tx *store.Tx) error {
		digest := func(name string, write func(*store.Tx, io.Writer) error) error {
			h := sha256.New()
			if err := write(tx, h); err != nil {
				return fmt.Errorf("digest the contents of %s: %w", name, err)
			}
			digests[name] = hex.EncodeToString(h.Sum(nil))
			return nil
		}
		for _, t := range store.Tables() {
			if t == store.EdgeRecords.Any() {
				if err := digest(t.Name(), writeEdgeRecords); err != nil {
					return err
				}
				continue
			}
			if engine.NamedBucket(tx, t.Name()) == nil { // an older store lacks it
				continue
			}
			if err := digest(t.Name(), func(tx *store.Tx, w io.Writer) error { return writeRecords(tx, t, w) }); err != nil {
				return err
			}
		}
		messages := func(tx *store.Tx, w io.Writer) error { return writeMessages(tx, dir, w) }
		return errors.Join(digest("folders", writeFolders), digest("messages", messages))
	})
	return digests, err
}

// writeRecords writes the records of a table in the order of their ids, as JSON without zero
// fields, so that a newly added field does not change the digest.
func writeRecords(tx *store.Tx, t *engine.AnyTable, w io.Writer) error {
	out := json.NewEncoder(w)
	for k, row := range engine.AscendNamed(tx, t.Name(), nil) {
		rec, err := t.Decode(k, row)
		if d, ok := rec.(*store.Domain); ok {
			d.EdgeRecords = nil // writeEdgeRecords writes them
		}
		if err == nil {
			err = out.Encode(rec)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeEdgeRecords writes the records of store.EdgeRecords. Stores before format 9 have them in
// their domains.
func writeEdgeRecords(tx *store.Tx, w io.Writer) error {
	var all []*store.EdgeRecord
	if engine.NamedBucket(tx, store.EdgeRecords.Name()) != nil {
		all = slices.Collect(store.EdgeRecords.All(tx))
	}
	for d := range store.Domains.All(tx) {
		for id, purpose := range d.EdgeRecords {
			all = append(all, &store.EdgeRecord{DomainID: d.ID, RecordID: id, Purpose: purpose})
		}
	}
	slices.SortFunc(all, func(a, b *store.EdgeRecord) int {
		return strings.Compare(store.EdgeRecords.ID(a), store.EdgeRecords.ID(b))
	})
	out := json.NewEncoder(w)
	for _, r := range all {
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return tx.Err()
}

func writeFolders(tx *store.Tx, w io.Writer) error {
	out := json.NewEncoder(w)
	for k, row := range tx.Ascend(mailrow.BucketFolder, nil) {
		f := new(store.Folder)
		if err := f.Decode(k, row); err != nil {
			return fmt.Errorf("read folder %x: %w", k, err)
		}
		f.Num = 0 // only folders from format 6 on have it, and no user sees it
		if err := out.Encode(f); err != nil {
			return err
		}
	}
	return nil
}

func writeMessages(tx *store.Tx, dir string, w io.Writer) error {
	out := json.NewEncoder(w)
	for k, row := range tx.Ascend(mailrow.BucketMessage, nil) {
		var m store.Message
		if err := m.Decode(k, row); err != nil {
			return fmt.Errorf("read message %x: %w", k, err)
		}
		meta, err := tx.Meta(m.Mailbox, m.Folder, m.UID)
		if err != nil {
			return err
		}
		sum, err := segment.RecordIdentity(dir, m.Blob)
		if err != nil {
			return err
		}
		if err := out.Encode(struct {
			*store.Message
			*store.Meta
			Sum []byte
		}{&m, meta, sum}); err != nil {
			return err
		}
	}
	return nil
}
