package engine

import (
	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/store/rowform"
)

// What follows shows the inside to the tests of a store.

// File is bbolt's database.
func File(db *DB) *bolt.DB { return db.bolt }

// LacksFreelist tells whether the file is without the list of free pages.
func LacksFreelist(db *DB) bool { return db.freelistMissing }

// EndCommitter ends the committer alone, as a process does that is killed.
func EndCommitter(db *DB) {
	close(db.closing)
	<-db.committed
}

// IsClosing tells whether Close has begun.
func IsClosing(db *DB) bool {
	select {
	case <-db.closing:
		return true
	default:
		return false
	}
}

// CommitFailed is what the committer makes of an error of bbolt's Commit.
func CommitFailed(db *DB, err error) error { return db.commitFailed(err) }

// Rows is the form of a table's rows.
func Rows(t *AnyTable) *rowform.Records { return &t.rows }

// RecordChange is what Put and Delete do for OnCommit.
func RecordChange(tx Transaction, t *AnyTable, rec any) { t.recordChange(tx.engine(), rec) }

// Changes are what the transaction has noted for OnCommit.
func Changes(tx Transaction) []Change { return tx.engine().changes }

// ForgetBuckets has the transaction look buckets up again, which a test has made anew.
func ForgetBuckets(tx Transaction) {
	tx.engine().opened, tx.engine().writes = nil, tx.engine().writes+1
}

// Put and Delete write a row of any bucket.
func Put(tx Transaction, bucket string, key, row []byte) error {
	return tx.engine().put(bucket, key, row)
}

// Delete deletes a row of any bucket.
func Delete(tx Transaction, bucket string, key []byte) error { return tx.engine().delete(bucket, key) }
