package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"reflect"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/textindex"
)

// An AccountRow names a record of an account.
type AccountRow struct {
	Table string // name of the table
	ID    string
	table int // index of the table in tables
}

// AccountRows returns at most `most` records of an account. It skips the tables of accounts,
// domains and mailboxes: deleting one of these takes more than deleting a row. It examines at most
// `steps` records, starting at `from`, which is nil in the first call. next is the position to
// continue at, or nil at the end.
func (tx *Tx) AccountRows(accountID string, from []byte, most, steps int) (rows []AccountRow, next []byte) {
	first, after := 0, ""
	if len(from) > 0 {
		first, after = int(from[0]), string(from[1:])
	}
	for i := first; i < len(tables); i, after = i+1, "" {
		for id, account := range recordAccounts(tx, tables[i], after) {
			if account == accountID {
				rows = append(rows, AccountRow{tables[i].Name(), id, i})
			}
			if steps--; steps == 0 || len(rows) == most {
				return rows, append([]byte{byte(i)}, id...)
			}
		}
	}
	return rows, nil
}

// DropAccountRow deletes a record that AccountRows has returned, with its reference to a blob. It
// does nothing if the record is gone or now belongs to another account.
func (tx *Tx) DropAccountRow(accountID string, row AccountRow) error {
	return deleteAccountRecord(tx, tables[row.table], row.ID, accountID)
}

// DropAccountIndex deletes the rows that have the account's number in their keys: the text index,
// threads, spam tokens and counts. The account's messages must be deleted before. One call deletes
// about `rows` rows; done reports whether none are left. It must not run at the same time as
// TidyText, PurgeText or AddText, which write rows from what they have read before.
func (tx *Tx) DropAccountIndex(account uint32, rows int) (done bool, err error) {
	dropped, err := textindex.DropAccount(&tx.Tx, account, rows)
	if !dropped || err != nil {
		return false, err
	}
	prefix := binary.BigEndian.AppendUint32(nil, account)
	for _, i := range []*engine.Bucket{mailrow.BucketAccount, mailrow.BucketTextTodo, mailrow.BucketTextGone, mailrow.BucketThread, mailrow.BucketThreadJoined, mailrow.BucketSpamToken} {
		for k := range tx.Ascend(i, prefix) {
			if !bytes.HasPrefix(k, prefix) {
				break
			}
			if rows--; rows < 0 {
				return false, nil
			}
			if err := tx.DeleteRow(i, bytes.Clone(k)); err != nil {
				return false, err
			}
		}
	}
	return tx.dropSubjects(account, rows)
}

// dropSubjects deletes at most `rows` subjects of an account's threads; done reports whether none
// are left. The keys begin with a day, before the account, so it searches day after day. Subjects
// are kept for few days only.
func (tx *Tx) dropSubjects(account uint32, rows int) (done bool, err error) {
	for day, more := uint16(0), true; more; day++ {
		more = false
		for k := range tx.Ascend(mailrow.BucketSubject, binary.BigEndian.AppendUint16(nil, day)) {
			day, more = binary.BigEndian.Uint16(k), true
			break
		}
		prefix := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, day), account)
		for k := range tx.Ascend(mailrow.BucketSubject, prefix) {
			if !bytes.HasPrefix(k, prefix) {
				break
			}
			if rows--; rows < 0 {
				return false, nil
			}
			if err := tx.DeleteRow(mailrow.BucketSubject, bytes.Clone(k)); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// accountFieldIndex returns the index of the field AccountID in a record, or -1 if it has none or
// is an account, a domain or a mailbox.
func accountFieldIndex(rec any) int {
	switch rec.(type) {
	case *Account, *Domain, *Mailbox:
		return -1
	}
	if f, ok := reflect.TypeOf(rec).Elem().FieldByName("AccountID"); ok {
		return f.Index[0]
	}
	return -1
}

func accountIDIn(rec any, field int) string { return reflect.ValueOf(rec).Elem().Field(field).String() }

// recordAccounts iterates over the ids of the records after the id `after`, each with the id of its
// account. It yields nothing if the records of the table belong to no account.
func recordAccounts(tx *Tx, t *engine.AnyTable, after string) iter.Seq2[string, string] {
	return func(yield func(id, account string) bool) {
		field := -1
		t.WalkRows(tx, after, func(k, row []byte) bool {
			rec, err := t.Decode(k, row)
			if err != nil {
				tx.Fail(err)
				return false
			}
			if field < 0 {
				field = accountFieldIndex(rec)
			}
			return field >= 0 && yield(string(k), accountIDIn(rec, field))
		})
	}
}

// deleteAccountRecord deletes a record with its reference to a blob if it belongs to the account.
// It keeps a running job. It also keeps a purchase that outlives its account, but removes the
// account's id from it.
func deleteAccountRecord(tx *Tx, t *engine.AnyTable, id, accountID string) error {
	row := engine.NamedBucket(tx, t.Name()).Get([]byte(id))
	if row == nil {
		return nil
	}
	rec, err := t.Decode([]byte(id), row)
	if err != nil || accountIDIn(rec, accountFieldIndex(rec)) != accountID {
		return err
	}
	switch r := rec.(type) {
	case *Submission:
		err = PendingRecipients.Delete(tx, r.ID)
	case *Purchase:
		if r.OutlivesAccount() {
			r.AccountID = ""
			return Purchases.Put(tx, r)
		}
	case *Job:
		if r.State == JobRunning {
			return nil
		}
	}
	if err = errors.Join(err, unrefRecord(tx, t, id)); err != nil {
		return fmt.Errorf("delete %s %s: %w", t.Name(), id, err)
	}
	return t.Delete(tx, id)
}
