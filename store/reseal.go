package store

import "bytes"

// Some fields of records are sealed by the service, under a key that the store does not know. What
// follows has them sealed anew when that key changes.

// A Reseal gives what is to stand in the place of a sealed secret: the secret sealed anew, or
// `sealed` where that is as it should be.
type Reseal func(place string, sealed []byte) []byte

// eachSecret is told of the fields of a record that are sealed.
type eachSecret func(place string, secret *[]byte)

// sealed says where the secrets of a record are. `secrets` is given a copy of the record, and copies
// what that refers to before it tells of a field there.
func (t *Table[T]) sealed(secrets func(rec *T, each eachSecret)) *Table[T] {
	t.resealed = func(rec *T, reseal Reseal) (*T, bool) {
		out := *rec
		changed := resealEach(func(each eachSecret) { secrets(&out, each) }, reseal)
		return &out, changed
	}
	return t
}

// resealEach puts secrets through reseal, and tells whether any changed. Those that are alike stay
// alike: a certificate's next key is told from the one in use by that.
func resealEach(secrets func(eachSecret), reseal Reseal) (changed bool) {
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
func (s *Store) ResealWrites(reseal Reseal) { s.reseal.Store(&reseal) }

// A secretTable is a table whose records have secrets, without their type. What it does is no method
// of Table, since the program would have that once for each table that there is.
type secretTable struct {
	name   string
	some   func(tx *Tx, most int) []Secret
	reseal func(tx *Tx, after string, most int, reseal Reseal) (resealedRows, error)
}

func secretTableOf[T any](t *Table[T]) secretTable {
	return secretTable{
		t.name,
		func(tx *Tx, most int) []Secret { return someSecrets(tx, t, most) },
		func(tx *Tx, after string, most int, reseal Reseal) (resealedRows, error) {
			return resealRows(tx, t, after, most, reseal)
		},
	}
}

func someSecrets[T any](tx *Tx, t *Table[T], most int) (list []Secret) {
	for rec := range t.All(tx) {
		t.resealed(rec, func(place string, sealed []byte) []byte {
			list = append(list, Secret{place, sealed})
			return sealed
		})
		if len(list) >= most {
			break
		}
	}
	return list
}

type resealedRows struct {
	looked, changed int
	last            string // the id of the last record that was looked at
	more            bool   // there are records behind it
}

func resealRows[T any](tx *Tx, t *Table[T], after string, most int, reseal Reseal) (found resealedRows, err error) {
	found.last = after
	for rec := range t.After(tx, after) {
		if found.looked == most || tx.Large() {
			found.more = true
			return found, nil
		}
		found.looked++
		found.last = t.id(rec)
		fresh, changed := t.resealed(rec, reseal)
		if !changed {
			continue
		}
		if err := t.putRow(tx, found.last, fresh); err != nil {
			return found, err
		}
		found.changed++
	}
	return found, nil
}
