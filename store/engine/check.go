package engine

import (
	"cmp"
	"reflect"

	"github.com/mailstead/mailstead/store/entry"
)

// Report is told of each fault that a check finds.
type Report func(format string, args ...any)

// Check reports every row that cannot be read or is stored under another id, every record that an
// index lacks, and every index entry that no record explains.
func (t *AnyTable) Check(in Transaction, report Report) {
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
			report("%s %s: stored under %s", t.name, id, k)
		}
		for i, key := range t.indexKeys(rec) {
			if key == "" {
				continue
			}
			want[i]++
			if id := tx.bucket(indexes[i].name).Get([]byte(key)); string(id) != string(k) {
				report("%s %s: index %s lacks it", t.name, k, indexes[i].name)
			}
		}
	}
	for i, x := range indexes {
		if have := tx.bucket(x.name).Stats().KeyN; have != want[i] {
			report("index %s has %d entries, its table explains %d", x.name, have, want[i])
		}
	}
}

// CheckEntries reports every entry that is kept and cannot be read.
func (tx *Tx) CheckEntries(report Report) {
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

// CheckShared reports shared records that somebody has changed.
func (db *DB) CheckShared(report Report) {
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
