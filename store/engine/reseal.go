package engine

import "bytes"

// The service encrypts ("seals") some fields of records with a key that the store does not know.
// This file re-encrypts them when the key changes.

// A Reseal is called with a sealed secret. It returns the secret sealed under the current key, or
// sealed itself if that is already so. binding is the associated data of the encryption, which
// identifies the record and the kind of secret.
type Reseal func(binding string, sealed []byte) []byte

// A SecretVisitor is called with each sealed field of a record, and with the binding of the field.
type SecretVisitor func(binding string, secret *[]byte)

// Sealed declares which fields of a record are secrets. `secrets` gets a shallow copy of the record
// and calls `each` for every sealed field. A field that is behind a pointer, or in a slice or map,
// is shared with the record: `secrets` must copy what the record refers to before it passes such a
// field.
func (t *Table[T]) Sealed(secrets func(rec *T, each SecretVisitor)) *Table[T] {
	t.resealed = func(rec any, reseal Reseal) (any, bool) {
		out := *rec.(*T)
		changed := resealSecrets(func(each SecretVisitor) { secrets(&out, each) }, reseal)
		return &out, changed
	}
	return t
}

// resealSecrets replaces each secret by the result of reseal, and reports whether any has changed.
// Equal secrets get equal replacements, since other code compares them: a certificate's next key
// with the one in use.
func resealSecrets(secrets func(SecretVisitor), reseal Reseal) (changed bool) {
	var done []Secret // the original secrets; fresh has their replacements
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
	Binding string // the binding that Reseal gets
	Sealed  []byte // the encrypted bytes
}

// ResealWrites makes every later Put pass the secrets of its record through reseal. A caller may
// have sealed or read a secret before the key changed, and write it after all rows were resealed.
func (db *DB) ResealWrites(reseal Reseal) { db.reseal.Store(&reseal) }

// SomeSecrets returns the secrets of the first records. It stops after the record with which it has
// at least `enough` secrets.
func (t *AnyTable) SomeSecrets(in Transaction, enough int) (list []Secret) {
	tx := in.engine()
	t.walk(tx, "", func(rec any) bool {
		t.resealed(rec, func(binding string, sealed []byte) []byte {
			list = append(list, Secret{binding, sealed})
			return sealed
		})
		return len(list) < enough
	})
	return list
}

// ResealProgress is the result of ResealRows.
type ResealProgress struct {
	Examined, Changed int    // numbers of records
	Last              string // id of the last record examined
	More              bool   // there are records after Last
}

// ResealRows passes the secrets of the records after the id `after` to reseal, and writes the
// records that have changed. It examines at most `most` records. These changes are not reported to
// OnCommit.
func (t *AnyTable) ResealRows(in Transaction, after string, most int, reseal Reseal) (found ResealProgress, err error) {
	tx := in.engine()
	found.Last = after
	t.walk(tx, after, func(rec any) bool {
		if found.Examined == most || tx.IsLarge() {
			found.More = true
			return false
		}
		found.Examined++
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
