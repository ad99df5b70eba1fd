package engine

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"iter"
	"sync/atomic"

	"github.com/mailstead/mailstead/store/rowform"
)

// A Table stores the records of one type by id and keeps all their indexes up to date. Its methods
// wrap those of AnyTable, so that the code of AnyTable is compiled once, not for each type.
type Table[T any] struct{ AnyTable }

// An Index finds records of a table by a key other than the id. The function passed to Table.Index
// or Table.Unique returns the key. If the index is not unique, the id is appended to it. A record
// with the key "" is not in the index. If one key can be the prefix of another, keys must end in
// "\x00".
type Index[T any] struct{ AnyIndex }

// An AnyTable is a Table without the record type: its records have the type any and hold a *T.
type AnyTable struct {
	name    string
	id      func(rec any) string
	rows    rowform.Records
	indexes []*AnyIndex
	change  func(tx *Tx, rec any) Change // makes the Change for OnCommit; nil: there is none for this table
	// resealed returns a copy of the record with its secrets resealed, and whether any changed. It
	// is nil for a table without secrets; see Sealed.
	resealed func(rec any, reseal Reseal) (any, bool)
}

// An AnyIndex is an Index without the record type.
type AnyIndex struct {
	name   string
	unique bool
	table  *AnyTable
	key    func(rec any) string
}

// NewTable declares a table by the name of its bucket. The function id returns the id of a record.
// Call it only to set package variables.
func NewTable[T any](name string, id func(*T) string) *Table[T] {
	return &Table[T]{AnyTable{
		name: name,
		id:   func(rec any) string { return id(rec.(*T)) },
		rows: rowform.Records{Sum: rowform.SumOf(name), New: func() any { return new(T) }},
	}}
}

// Any returns the table without its record type.
func (t *AnyTable) Any() *AnyTable { return t }

// Binary makes the table store records as binary fields, not as JSON. Decoding them takes a fifth
// of the time that JSON takes. fields lists the fields, see rowform.Coder.
func (t *Table[T]) Binary(fields func(*T, *rowform.Coder)) *Table[T] {
	t.rows.Fields = func(rec any, c *rowform.Coder) { fields(rec.(*T), c) }
	return t
}

// Index adds an index in which several records may have the same key.
func (t *Table[T]) Index(name string, key func(*T) string) *Index[T] {
	x := &Index[T]{AnyIndex{name: t.name + "." + name, table: &t.AnyTable, key: func(rec any) string { return key(rec.(*T)) }}}
	t.indexes = append(t.indexes, &x.AnyIndex)
	return x
}

// Unique adds an index in which each key has at most one record.
func (t *Table[T]) Unique(name string, key func(*T) string) *Index[T] {
	x := t.Index(name, key)
	x.unique = true
	return x
}

// Watched makes OnCommit receive the changes of the table's rows. change identifies the row and its
// owner; a Change without an Account is not reported.
func (t *Table[T]) Watched(change func(*Tx, *T) Change) *Table[T] {
	t.change = func(tx *Tx, rec any) Change { return change(tx, rec.(*T)) }
	return t
}

// as converts a record and an error to the type of the record; nil stays nil.
func as[T any](rec any, err error) (*T, error) {
	typed, _ := rec.(*T)
	return typed, err
}

// Get returns the record with the id, or ErrNotFound. The caller may change it.
func (t *Table[T]) Get(tx Transaction, id string) (*T, error) {
	return as[T](orNotFound(t.find(tx.engine(), id)))
}

// Find returns the record with the id, or nil without an error if there is none.
func (t *Table[T]) Find(tx Transaction, id string) (*T, error) { return as[T](t.find(tx.engine(), id)) }

// Read is like Get for callers that only read. The record is shared: neither the record nor what it
// refers to may be changed.
func (t *Table[T]) Read(tx Transaction, id string) (*T, error) {
	return as[T](orNotFound(t.findShared(tx.engine(), []byte(id))))
}

// FindShared is like Find for callers that only read. The record is shared, as with Read.
func (t *Table[T]) FindShared(tx Transaction, id string) (*T, error) {
	return as[T](t.findShared(tx.engine(), []byte(id)))
}

// Put writes the record and its index entries. If another record has the same key in a unique
// index, it returns ErrExists and writes nothing.
func (t *Table[T]) Put(tx Transaction, rec *T) error { return t.put(tx.engine(), rec) }

// All iterates over the records of the table in the order of ids.
func (t *Table[T]) All(tx Transaction) iter.Seq[*T] { return t.After(tx, "") }

// After iterates over the records with ids greater than `after`, in the order of ids. `after` need
// not exist.
func (t *Table[T]) After(tx Transaction, after string) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		t.walk(tx.engine(), after, func(rec any) bool { return yield(rec.(*T)) })
	}
}

// Get returns the record with the key in a unique index, or ErrNotFound.
func (x *Index[T]) Get(tx Transaction, key string) (*T, error) {
	return as[T](orNotFound(x.find(tx.engine(), key)))
}

// Find returns the record with the key in a unique index, or nil without an error if there is none.
// An index entry whose record is missing is damage: the error is then ErrNotFound.
func (x *Index[T]) Find(tx Transaction, key string) (*T, error) {
	return as[T](x.find(tx.engine(), key))
}

// Read is like Get for callers that only read; see Table.Read.
func (x *Index[T]) Read(tx Transaction, key string) (*T, error) {
	return as[T](orNotFound(x.findShared(tx.engine(), key)))
}

// FindShared is like Find for callers that only read; see Table.FindShared.
func (x *Index[T]) FindShared(tx Transaction, key string) (*T, error) {
	return as[T](x.findShared(tx.engine(), key))
}

// Asc iterates in ascending order over the index entries with the prefix, from the first key
// greater than `after` ("": from the start). It yields the entry's key, from which the next page
// continues, and the record.
func (x *Index[T]) Asc(tx Transaction, prefix, after string) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		x.asc(tx.engine(), prefix, after, func(key string, rec any) bool { return yield(key, rec.(*T)) })
	}
}

// Desc iterates in descending order over the index entries with the prefix, from the last key less
// than `before` ("": from the end). It yields the entry's key and the record.
func (x *Index[T]) Desc(tx Transaction, prefix, before string) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		x.walkRecordsDown(tx.engine(), prefix, before, func(key string, rec any) bool { return yield(key, rec.(*T)) })
	}
}

// DescSome is like Index.Desc, for callers that want few of many records. It verifies each row and
// passes its bytes to wanted, which must not keep or change them. If wanted returns false, the
// record is not decoded and DescSome yields nil. The bytes contain every text of the record
// literally, except for characters that JSON escapes.
func DescSome[T any](tx Transaction, x *Index[T], prefix, before string, wanted func(row []byte) bool) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		x.walkSomeDown(tx.engine(), prefix, before, wanted, func(key string, rec any) bool {
			typed, _ := rec.(*T)
			return yield(key, typed)
		})
	}
}

// AscSome is like DescSome, but in ascending order, from the first key greater than `after` ("":
// from the start).
func AscSome[T any](tx Transaction, x *Index[T], prefix, after string, wanted func(row []byte) bool) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		x.walkSomeUp(tx.engine(), prefix, after, wanted, func(key string, rec any) bool {
			typed, _ := rec.(*T)
			return yield(key, typed)
		})
	}
}

// Name returns the name of the table's bucket. A Change has it in the field Table.
func (t *AnyTable) Name() string { return t.name }

// RowForm returns the encoding of the table's rows.
func (t *AnyTable) RowForm() *rowform.Records { return &t.rows }

func (t *AnyTable) find(tx *Tx, id string) (any, error) {
	data := tx.bucket(t.name).Get([]byte(id))
	if data == nil {
		return nil, nil
	}
	return t.Decode([]byte(id), data)
}

// ID returns the id of a record.
func (t *AnyTable) ID(rec any) string { return t.id(rec) }

// Indexes returns the indexes of the table.
func (t *AnyTable) Indexes() []*AnyIndex { return t.indexes }

// HasSecrets reports whether records of the table have sealed fields.
func (t *AnyTable) HasSecrets() bool { return t.resealed != nil }

// Name returns the name of the index's bucket.
func (x *AnyIndex) Name() string { return x.name }

// WalkRows calls `each` with the encoded rows whose ids are greater than `after`, in the order of
// ids, until `each` returns false.
func (t *AnyTable) WalkRows(in Transaction, after string, each func(id, row []byte) bool) {
	in.engine().walkAfter(t.name, after, each)
}

// Row returns the encoded row of an id; nil if there is none.
func (t *AnyTable) Row(in Transaction, id string) []byte {
	return in.engine().bucket(t.name).Get([]byte(id))
}

// NextNumber increments the sequence number of the table and returns it; the first is 1.
func (t *AnyTable) NextNumber(in Transaction) (uint64, error) {
	return in.engine().nextSequence(t.name)
}

// The methods from here to Fill write only rows or only index entries. They are for code that
// rebuilds or migrates a database.

// AddIndexEntries writes the index entries of a row. If another record has the same key in a unique
// index, it returns ErrExists and writes nothing. It skips a row that cannot be decoded.
func (t *AnyTable) AddIndexEntries(in Transaction, id, row []byte) error {
	tx := in.engine()
	rec, err := t.Decode(id, row)
	if err != nil {
		return nil // the row has a newer format
	}
	keys := t.indexKeys(rec)
	for i, x := range t.indexes {
		if x.unique && x.isTaken(tx, keys[i], string(id)) {
			return ErrExists
		}
	}
	for i, x := range t.indexes {
		if err := x.moveEntry(tx, "", keys[i], string(id)); err != nil {
			return err
		}
	}
	return nil
}

// DropRow deletes the row of an id, but not its index entries.
func (t *AnyTable) DropRow(in Transaction, id []byte) error { return in.engine().delete(t.name, id) }

// PutRow writes the row of a record, but not its index entries.
func (t *AnyTable) PutRow(in Transaction, rec any) error {
	return t.putRow(in.engine(), t.id(rec), rec)
}

// Add writes the index entry of a record, if it has one.
func (x *AnyIndex) Add(in Transaction, rec any) error {
	id := x.table.id(rec)
	return x.moveEntry(in.engine(), "", x.entryKey(rec, id), id)
}

// Fill writes the index entries of the next `rows` records after the id `from`. It returns the id
// to continue from; nil when all are done.
func (x *AnyIndex) Fill(in Transaction, from []byte, rows int) (next []byte, err error) {
	more := false
	x.table.walk(in.engine(), string(from), func(rec any) bool {
		if rows--; rows < 0 {
			more = true
			return false
		}
		next, err = []byte(x.table.id(rec)), x.Add(in, rec)
		return err == nil
	})
	if !more || err != nil {
		return nil, err
	}
	return next, nil
}

// orNotFound turns a nil record without an error into ErrNotFound.
func orNotFound(rec any, err error) (any, error) {
	if rec == nil && err == nil {
		return nil, ErrNotFound
	}
	return rec, err
}

// indexKeys returns the key of the record's entry in each index; "" where it has none.
func (t *AnyTable) indexKeys(rec any) []string {
	list, id := make([]string, 0, len(t.indexes)), t.id(rec)
	for _, x := range t.indexes {
		list = append(list, x.entryKey(rec, id))
	}
	return list
}

// Decode decodes a row. The error is ErrDamagedRow or ErrNewer, and names the record.
func (t *AnyTable) Decode(id, data []byte) (any, error) {
	rec, err := t.rows.Record(id, data)
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", t.name, id, err)
	}
	return rec, nil
}

// putRow writes the record's row, but not its index entries.
func (t *AnyTable) putRow(tx *Tx, id string, rec any) error {
	row, err := t.rows.Row([]byte(id), rec)
	if err != nil {
		return fmt.Errorf("write %s %s: %w", t.name, id, err)
	}
	return tx.put(t.name, []byte(id), row)
}

func (t *AnyTable) put(tx *Tx, rec any) error {
	if reseal := tx.db.reseal.Load(); reseal != nil && t.resealed != nil {
		rec, _ = t.resealed(rec, *reseal)
	}
	id := t.id(rec)
	old, err := t.findShared(tx, []byte(id))
	if err != nil {
		return err
	}
	for _, x := range t.indexes {
		if x.unique && x.isTaken(tx, x.key(rec), id) {
			return ErrExists
		}
	}
	for _, x := range t.indexes {
		if err := x.moveEntry(tx, x.entryKey(old, id), x.entryKey(rec, id), id); err != nil {
			return err
		}
	}
	if err := t.putRow(tx, id, rec); err != nil {
		return err
	}
	t.recordChange(tx, rec)
	return nil
}

// Delete deletes the record and its index entries. A missing record is not an error.
func (t *AnyTable) Delete(in Transaction, id string) error {
	tx := in.engine()
	old, err := t.findShared(tx, []byte(id))
	if old == nil || err != nil {
		return err
	}
	for _, x := range t.indexes {
		if err := x.moveEntry(tx, x.entryKey(old, id), "", id); err != nil {
			return err
		}
	}
	if err := tx.delete(t.name, []byte(id)); err != nil {
		return err
	}
	tx.mayUseReserve = true
	t.recordChange(tx, old)
	return nil
}

// recordChange records for OnCommit that a row was written or deleted, if a function is set.
func (t *AnyTable) recordChange(tx *Tx, rec any) {
	if t.change == nil || !tx.HasObserver() {
		return
	}
	c := t.change(tx, rec)
	c.Table = t.name
	tx.RecordChange(c)
}

func (t *AnyTable) walk(tx *Tx, after string, each func(rec any) bool) {
	tx.walkAfter(t.name, after, func(k, row []byte) bool {
		rec, err := t.Decode(k, row)
		if err != nil {
			tx.Fail(err)
		}
		return err == nil && each(rec)
	})
}

// entryKey returns the key of the record's index entry; "" if it has none.
func (x *AnyIndex) entryKey(rec any, id string) string {
	if rec == nil {
		return ""
	}
	key := x.key(rec)
	if key == "" || x.unique {
		return key
	}
	return key + id
}

// isTaken reports whether a record other than the one with the id has this key in a unique index.
func (x *AnyIndex) isTaken(tx *Tx, key, id string) bool {
	if key == "" {
		return false
	}
	holder := tx.bucket(x.name).Get([]byte(key))
	return holder != nil && string(holder) != id
}

// moveEntry replaces the index entry with the key `from` by one with the key `to`. "" stands for no
// entry.
func (x *AnyIndex) moveEntry(tx *Tx, from, to, id string) error {
	if from == to {
		return nil
	}
	if from != "" {
		if err := tx.delete(x.name, []byte(from)); err != nil {
			return err
		}
	}
	if to == "" {
		return nil
	}
	return tx.put(x.name, []byte(to), []byte(id))
}

func (x *AnyIndex) find(tx *Tx, key string) (any, error) {
	id := tx.bucket(x.name).Get([]byte(key))
	if id == nil {
		return nil, nil
	}
	return orNotFound(x.table.find(tx, string(id)))
}

// Has reports whether any entry has the prefix.
func (x *AnyIndex) Has(in Transaction, prefix string) bool {
	tx := in.engine()
	k, _ := tx.seek(tx.bucket(x.name), []byte(prefix))
	return k != nil && bytes.HasPrefix(k, []byte(prefix))
}

// Count counts the entries with the prefix, up to limit (0: all of them).
func (x *AnyIndex) Count(in Transaction, prefix string, limit int) int {
	tx, n, want := in.engine(), 0, []byte(prefix)
	for k := range tx.ascend(tx.bucket(x.name), want) {
		if !bytes.HasPrefix(k, want) {
			break
		}
		if n++; n == limit {
			break
		}
	}
	return n
}

// Keys iterates in ascending order over the entries with the prefix, from the first key greater
// than `after` ("": from the start). It yields the key and the record's id without reading the
// record.
func (x *AnyIndex) Keys(tx Transaction, prefix, after string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		x.walkUp(tx.engine(), prefix, after, yield)
	}
}

func (x *AnyIndex) walkUp(tx *Tx, prefix, after string, each func(key, id string) bool) {
	for k, id := range tx.ascend(tx.bucket(x.name), []byte(max(prefix, after))) {
		if after != "" && string(k) == after {
			continue
		}
		if !bytes.HasPrefix(k, []byte(prefix)) || !each(string(k), string(id)) {
			return
		}
	}
}

func (x *AnyIndex) asc(tx *Tx, prefix, after string, each func(key string, rec any) bool) {
	x.walkUp(tx, prefix, after, func(k, id string) bool { return x.yieldRecord(tx, k, id, each) })
}

func (x *AnyIndex) walkRecordsDown(tx *Tx, prefix, before string, each func(key string, rec any) bool) {
	x.walkDown(tx, prefix, before, func(k, id []byte) bool { return x.yieldRecord(tx, string(k), string(id), each) })
}

// yieldRecord passes the record of an entry to `each`.
func (x *AnyIndex) yieldRecord(tx *Tx, key, id string, each func(key string, rec any) bool) bool {
	rec, err := orNotFound(x.table.find(tx, id))
	if err != nil {
		tx.Fail(fmt.Errorf("index %s: record %s: %w", x.name, id, err))
		return false
	}
	return each(key, rec)
}

func (x *AnyIndex) walkSomeUp(tx *Tx, prefix, after string, wanted func(row []byte) bool, each func(key string, rec any) bool) {
	rows := tx.bucket(x.table.name)
	x.walkUp(tx, prefix, after, func(k, id string) bool {
		rec, err := x.decodeIf([]byte(id), rows.Get([]byte(id)), wanted)
		if err != nil {
			tx.Fail(fmt.Errorf("index %s: record %s: %w", x.name, id, err))
		}
		return err == nil && each(k, rec)
	})
}

func (x *AnyIndex) walkDown(tx *Tx, prefix, before string, each func(key, id []byte) bool) {
	for k, id := range tx.descend(tx.bucket(x.name), []byte(prefix), []byte(before)) {
		if !each(k, id) {
			return
		}
	}
}

func (x *AnyIndex) walkSomeDown(tx *Tx, prefix, before string, wanted func(row []byte) bool, each func(key string, rec any) bool) {
	x.walkRowsDown(tx, prefix, before, func(k, id, row []byte) bool {
		rec, err := x.decodeIf(id, row, wanted)
		if err != nil {
			tx.Fail(fmt.Errorf("index %s: record %s: %w", x.name, id, err))
		}
		return err == nil && each(string(k), rec)
	})
}

// walkRowsDown is like walkDown, but also passes the record's row; nil if the table lacks it.
func (x *AnyIndex) walkRowsDown(tx *Tx, prefix, before string, each func(key, id, row []byte) bool) {
	rows := tx.bucket(x.table.name).Cursor()
	var at, row []byte // key and value at which the cursor is
	writes := tx.writes
	x.walkDown(tx, prefix, before, func(k, id []byte) bool {
		if writes != tx.writes { // a write moves bbolt cursors
			at, writes = nil, tx.writes
		}
		// Ids mostly decrease as keys do, so the next row is usually the one before this row, or
		// near it.
		for steps := 0; at != nil && steps < stepsPerSeek && bytes.Compare(at, id) > 0; steps++ {
			at, row = rows.Prev()
		}
		if !bytes.Equal(at, id) {
			at, row = rows.Seek(id)
		}
		if !bytes.Equal(at, id) {
			return each(k, id, nil)
		}
		return each(k, id, row)
	})
}

// decodeIf decodes the row of an id if wanted accepts it; otherwise it returns nil.
func (x *AnyIndex) decodeIf(id, row []byte, wanted func(row []byte) bool) (any, error) {
	if row == nil {
		return nil, ErrNotFound
	}
	text, err := x.table.rows.Payload(id, row)
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", x.table.name, id, err)
	}
	if !wanted(text) {
		return nil, nil
	}
	return x.table.Decode(id, row)
}

// RecordSlots is the number of slots for decoded records. An id is hashed to a slot, which holds
// one record.
const RecordSlots = 4096

// A recordCache holds decoded records, so that a record that every message needs is not decoded
// each time. A cached record is used only if the row that the transaction sees equals the row that
// it was decoded from. So writes need not invalidate anything.
type recordCache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[decodedRecord]
}

type decodedRecord struct {
	table *AnyTable
	id    string
	raw   []byte
	rec   any // *T of the table; read-only
}

func newRecordCache() recordCache {
	return recordCache{maphash.MakeSeed(), make([]atomic.Pointer[decodedRecord], RecordSlots)}
}

// slot returns the slot of an id. Ids of different tables differ in their prefix.
func (r *recordCache) slot(id []byte) *atomic.Pointer[decodedRecord] {
	return &r.slots[maphash.Bytes(r.seed, id)%RecordSlots]
}

// find returns the cached record if it was decoded from this row; otherwise nil.
func (r *recordCache) find(t *AnyTable, id, row []byte) any {
	known := r.slot(id).Load()
	if known == nil || known.table != t || known.id != string(id) || !bytes.Equal(known.raw, row) {
		return nil
	}
	return known.rec
}

// cacheRecord caches the record that was decoded from a row. It copies id and row, which bbolt
// owns.
func (r *recordCache) cacheRecord(t *AnyTable, id, row []byte, rec any) {
	r.slot(id).Store(&decodedRecord{t, string(id), bytes.Clone(row), rec})
}

func (t *AnyTable) findShared(tx *Tx, id []byte) (any, error) {
	data := tx.bucket(t.name).Get(id)
	if data == nil {
		return nil, nil
	}
	if rec := tx.db.records.find(t, id, data); rec != nil {
		return rec, nil
	}
	rec, err := t.Decode(id, data)
	if err == nil {
		tx.db.records.cacheRecord(t, id, data, rec)
	}
	return rec, err
}

func (x *AnyIndex) findShared(tx *Tx, key string) (any, error) {
	id := tx.bucket(x.name).Get([]byte(key))
	if id == nil {
		return nil, nil
	}
	return orNotFound(x.table.findShared(tx, id))
}
