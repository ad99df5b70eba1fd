package store

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"reflect"
	"sync/atomic"
)

// recordSlots bounds how many decoded records are kept: one for each slot that ids fall into.
const recordSlots = 4096

// records keeps decoded records, so that those which every message needs are not parsed for each of
// them. A record counts only where the bytes that the transaction sees are those that it was
// decoded from: no write has to tell.
type records struct {
	seed  maphash.Seed
	slots []atomic.Pointer[decodedRecord]
}

type decodedRecord struct {
	table string
	raw   []byte
	rec   any // *T of the table; nobody changes it
	fresh func() (any, error)
}

func newRecords() records {
	return records{maphash.MakeSeed(), make([]atomic.Pointer[decodedRecord], recordSlots)}
}

// slot is where the record of an id, which begins with the kind of its record, is kept.
func (r *records) slot(id []byte) *atomic.Pointer[decodedRecord] {
	return &r.slots[maphash.Bytes(r.seed, id)%recordSlots]
}

// Read is Get for those who only look: the record is shared with others, and neither it nor what it
// refers to may be changed.
func (t *Table[T]) Read(tx *Tx, id string) (*T, error) { return orNotFound(t.FindShared(tx, id)) }

// FindShared is Find for those who only look: the record is shared as that of Read is.
func (t *Table[T]) FindShared(tx *Tx, id string) (*T, error) { return t.findShared(tx, []byte(id)) }

func (t *Table[T]) findShared(tx *Tx, id []byte) (*T, error) {
	data := tx.bucket(t.name).Get(id)
	if data == nil {
		return nil, nil
	}
	slot := tx.s.records.slot(id)
	if known := slot.Load(); known != nil && known.table == t.name && bytes.Equal(known.raw, data) {
		if rec, ok := known.rec.(*T); ok {
			return rec, nil
		}
	}
	rec, err := t.decode(id, data)
	if err != nil {
		return nil, err
	}
	raw := bytes.Clone(data) // bbolt owns what it gave
	slot.Store(&decodedRecord{t.name, raw, rec, func() (any, error) {
		again := new(T)
		return again, json.Unmarshal(raw, again)
	}})
	return rec, nil
}

// Read is Get for those who only look; see Table.Read.
func (x *Index[T]) Read(tx *Tx, key string) (*T, error) { return orNotFound(x.FindShared(tx, key)) }

// FindShared is Find for those who only look; see Table.FindShared.
func (x *Index[T]) FindShared(tx *Tx, key string) (*T, error) {
	id := tx.bucket(x.name).Get([]byte(key))
	if id == nil {
		return nil, nil
	}
	return orNotFound(x.table.findShared(tx, id))
}

// check reports shared records that somebody has changed.
func (r *records) check(p *problems) {
	for i := range r.slots {
		known := r.slots[i].Load()
		if known == nil {
			continue
		}
		if again, err := known.fresh(); err != nil || !reflect.DeepEqual(again, known.rec) {
			p.add("the shared record %s of %s was changed in memory", known.raw, known.table)
		}
	}
}
