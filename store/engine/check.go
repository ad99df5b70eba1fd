package engine

import (
	"cmp"
	"reflect"

	"github.com/mailstead/mailstead/store/entry"
)

// A ProblemReporter is called with each problem that a check finds, in the form of the arguments of
// fmt.Errorf.
type ProblemReporter func(format string, args ...any)

// Check reports every record that cannot be decoded or is stored under a wrong id, every index
// entry that is missing, and every index entry that belongs to no record.
func (t *AnyTable) Check(in Transaction, report ProblemReporter) {
	tx := in.engine()
	indexes := t.indexes
	want := make([]int, len(indexes))
	for k, v := range tx.ascend(tx.bucket(t.name), nil) {
		rec, err := t.Decode(k, v)
		if err != nil {
			report("%w", err)
			continue
		}
		if id := t.id(rec); id != string(k) {
			report("%s %s: its row is stored under the id %s", t.name, id, k)
		}
		for i, key := range t.indexKeys(rec) {
			if key == "" {
				continue
			}
			want[i]++
			if id := tx.bucket(indexes[i].name).Get([]byte(key)); string(id) != string(k) {
				report("%s %s: index %s has no entry for it", t.name, k, indexes[i].name)
			}
		}
	}
	for i, x := range indexes {
		if have := tx.bucket(x.name).Stats().KeyN; have != want[i] {
			report("index %s has %d entries, but the records of its table need %d", x.name, have, want[i])
		}
	}
}

// CheckEntries reports every kept entry that cannot be decoded.
func (tx *Tx) CheckEntries(report ProblemReporter) {
	for k, v := range tx.ascend(tx.bucket(EntryBucket), nil) {
		if string(k) == lastEntryKey {
			if b := tx.bucket(EntryBucket); lastEntryIn(b) == nil && !areEntriesDropped(b) {
				report("the last entry: %w", ErrDamagedRow)
			}
			continue
		}
		if _, err := entry.FromRow(0, v); err != nil || len(k) != 8 {
			report("entry %x: %w", k, cmp.Or(err, ErrDamagedRow))
		}
	}
}

// CheckCachedRecords reports every cached record that some code has changed in memory. Cached
// records are shared, so no code may change them.
func (db *DB) CheckCachedRecords(report ProblemReporter) {
	for i := range db.records.slots {
		known := db.records.slots[i].Load()
		if known == nil {
			continue
		}
		if again, err := known.table.Decode([]byte(known.id), known.raw); err != nil || !reflect.DeepEqual(again, known.rec) {
			report("the shared record %s of %s was changed in memory", known.id, known.table.name)
		}
	}
}
