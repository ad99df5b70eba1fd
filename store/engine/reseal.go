package engine

import "bytes"

// The service encrypts ("seals") some fields of records with a key that the store does not know.
// This file re-encrypts them when the key changes.

// A Reseal returns the secret sealed under the current key, or sealed itself if it already is.
// binding names the kind of secret.
type Reseal func(binding string, sealed []byte) []byte

// EachSecret is called with each sealed field of a record.
type EachSecret func(binding string, secret *[]byte)

// Sealed declares where the secrets of a record are. `secrets` gets a copy of the record and calls
// each for every sealed field. The copy is shallow: it must copy whatever the record refers to
// before it passes a field there.
func (t *Table[T]) Sealed(secrets func(rec *T, each EachSecret)) *Table[T] {
	t.resealed = func(rec any, reseal Reseal) (any, bool) {
		out := *rec.(*T)
		changed := resealEach(func(each EachSecret) { secrets(&out, each) }, reseal)
		return &out, changed
	}
	return t
}

// resealEach replaces each secret by the result of reseal, and reports whether any changed. Equal
// secrets stay equal, since other code compares them: a certificate's next key with the one in use.
func resealEach(secrets func(EachSecret), reseal Reseal) (changed bool) {
	var done []Secret // the original secrets; fresh holds their replacements
	var fresh [][]byte
	secrets(func(binding string, secret *[]byte) {
		if len(*secret) == 0 {
			return
		}
		for i, before := range done {
			if before.Binding == binding && bytes.Equal(before.Sealed, *secret) {
				*secret = fresh[i]
				return
			}
		}
		done, fresh = append(done, Secret{binding, *secret}), append(fresh, reseal(binding, *secret))
		if now := fresh[len(fresh)-1]; !bytes.Equal(now, *secret) {
			*secret, changed = now, true
		}
	})
	return changed
}

// A Secret is a sealed field of a record.
type Secret struct {
	Binding string // kind of the secret, as Reseal gets it
	Sealed  []byte // the encrypted bytes
}

// ResealWrites makes every later Put pass the secrets of its record through reseal. A caller may
// have sealed or read a secret before the key changed, and write it after all rows were resealed.
func (db *DB) ResealWrites(reseal Reseal) { db.reseal.Store(&reseal) }

// SomeSecrets returns secrets of the first records. It stops after the record with which there are
// at least `most`.
func (t *AnyTable) SomeSecrets(in Transaction, most int) (list []Secret) {
	tx := in.engine()
	t.walk(tx, "", func(rec any) bool {
		t.resealed(rec, func(binding string, sealed []byte) []byte {
			list = append(list, Secret{binding, sealed})
			return sealed
		})
		return len(list) < most
	})
	return list
}

// Resealed is the progress of ResealRows.
type Resealed struct {
	Looked, Changed int    // numbers of records
	Last            string // id of the last record examined
	More            bool   // there are records after Last
}

// ResealRows passes the secrets of the records after an id through reseal, and writes the records
// that changed. It examines at most `most` records. These changes are not reported to OnCommit.
func (t *AnyTable) ResealRows(in Transaction, after string, most int, reseal Reseal) (found Resealed, err error) {
	tx := in.engine()
	found.Last = after
	t.walk(tx, after, func(rec any) bool {
		if found.Looked == most || tx.Large() {
			found.More = true
			return false
		}
		found.Looked++
		found.Last = t.id(rec)
		fresh, changed := t.resealed(rec, reseal)
		if changed {
			err = t.putRow(tx, found.Last, fresh)
			found.Changed++
		}
		return err == nil
	})
	return found, err
}
