package engine

import "bytes"

// Some fields of records are sealed by the service, under a key that the store does not know. What
// follows has them sealed anew when that key changes.

// A Reseal gives what is to stand in the place of a sealed secret: the secret sealed anew, or
// `sealed` where that is as it should be.
type Reseal func(place string, sealed []byte) []byte

// EachSecret is told of the fields of a record that are sealed.
type EachSecret func(place string, secret *[]byte)

// Sealed says where the secrets of a record are. `secrets` is given a copy of the record, and
// copies what that refers to before it tells of a field there.
func (t *Table[T]) Sealed(secrets func(rec *T, each EachSecret)) *Table[T] {
	t.resealed = func(rec any, reseal Reseal) (any, bool) {
		out := *rec.(*T)
		changed := resealEach(func(each EachSecret) { secrets(&out, each) }, reseal)
		return &out, changed
	}
	return t
}

// resealEach puts secrets through reseal, and tells whether any changed. Those that are alike stay
// alike: a certificate's next key is told from the one in use by that.
func resealEach(secrets func(EachSecret), reseal Reseal) (changed bool) {
	var done []Secret // as they were
	var fresh [][]byte
	secrets(func(place string, secret *[]byte) {
		if len(*secret) == 0 {
			return
		}
		for i, before := range done {
			if before.Place == place && bytes.Equal(before.Sealed, *secret) {
				*secret = fresh[i]
				return
			}
		}
		done, fresh = append(done, Secret{place, *secret}), append(fresh, reseal(place, *secret))
		if now := fresh[len(fresh)-1]; !bytes.Equal(now, *secret) {
			*secret, changed = now, true
		}
	})
	return changed
}

// A Secret is sealed for its place.
type Secret struct {
	Place  string
	Sealed []byte
}

// ResealWrites has the secrets of every record that is put from now on go through reseal: somebody
// may have sealed or read one before the key was changed, and put it after all others were sealed
// anew.
func (db *DB) ResealWrites(reseal Reseal) { db.reseal.Store(&reseal) }

// SomeSecrets gives the secrets of the first records, as many as `most` or a record's more.
func (t *AnyTable) SomeSecrets(in Transaction, most int) (list []Secret) {
	tx := in.engine()
	t.walk(tx, "", func(rec any) bool {
		t.resealed(rec, func(place string, sealed []byte) []byte {
			list = append(list, Secret{place, sealed})
			return sealed
		})
		return len(list) < most
	})
	return list
}

// Resealed says how far ResealRows has come.
type Resealed struct {
	Looked, Changed int    // records
	Last            string // the id of the last record that was looked at
	More            bool   // there are records behind it
}

// ResealRows has the secrets of records behind an id go through reseal, and writes those that this
// changes: it looks at up to so many. Nobody is told of these changes.
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
