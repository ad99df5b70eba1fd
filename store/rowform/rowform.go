// Package rowform encodes the rows of a database with a form byte and a checksum, and verifies the
// checksum of each row that is read. The error for a wrong checksum is [ErrDamaged]. Package engine
// passes this error on, and store.RebuildDatabase leaves such a row out. Package rowform does not
// know what rows mean, nor where they are kept.
//
// checksum.go has the checksum ([Sum.Seal], [Sum.Open]), rowform.go the forms, coder.go the fields.
//
//	row     form 1 | payload | crc32c 4
//	form 1  the record as JSON
//	form 2  the record's fields one after the other: version uvarint | fields, see Coder
//
// The checksum covers the bucket's name, a zero, the key, the form and the payload, so that a row
// in the wrong place is detected too. Every form has it, also future ones: a row of an unknown form
// was written by a newer version if its checksum is valid, and is damaged otherwise.
//
// A row that begins with "{" is plain JSON, as all records were before forms existed. "{" differs
// from the first byte of every form in use by more than one bit.
package rowform

import (
	"encoding/json"
	"errors"
	"fmt"
)

var (
	// ErrDamaged is returned for a row that differs from what was written at its key.
	ErrDamaged = errors.New("damaged row")
	// ErrNewer is returned for a row that only a newer version can read.
	ErrNewer = errors.New("written by a newer version of mailstead")
)

// The forms of a row.
const (
	formJSON   = 1
	formFields = 2
)

// Records encodes and decodes the rows of a bucket with records of one type. New returns a pointer
// to a new record. Fields encodes or decodes the fields of a record, for rows of form 2; if it is
// nil, rows have form 1. Records is not generic, since the program would contain a copy for each
// type.
type Records struct {
	Sum    Sum
	New    func() any
	Fields func(rec any, c *Coder)
}

// Row encodes a record as the row of a key.
func (r *Records) Row(key []byte, rec any) ([]byte, error) {
	if r.Fields == nil {
		text, err := json.Marshal(rec)
		if err != nil {
			return nil, err
		}
		return r.Sum.Seal(key, append(append(make([]byte, 0, 1+len(text)+SumSize), formJSON), text...)), nil
	}
	c := Coder{out: append(make([]byte, 0, 512), formFields)}
	r.Fields(rec, &c)
	if c.err != nil {
		return nil, c.err
	}
	return r.Sum.Seal(key, c.out[:c.end]), nil
}

// Record decodes a row. The record does not refer to the bytes of the row. The error is ErrDamaged
// or ErrNewer.
func (r *Records) Record(key, row []byte) (any, error) {
	form, text, err := r.open(key, row)
	if err != nil {
		return nil, err
	}
	rec := r.New()
	if form == formJSON {
		return rec, decodeJSON(text, rec)
	}
	c := Coder{in: string(text), reading: true}
	r.Fields(rec, &c)
	c.finish()
	return rec, c.err
}

// Payload verifies a row and returns its payload, the part between form and checksum. It contains
// all texts of the record literally, except for characters that JSON escapes. The error is
// ErrDamaged or ErrNewer.
func (r *Records) Payload(key, row []byte) ([]byte, error) {
	_, text, err := r.open(key, row)
	return text, err
}

// open verifies a row and returns its form and its payload.
func (r *Records) open(key, row []byte) (form byte, payload []byte, err error) {
	if len(row) > 0 && row[0] == '{' {
		return formJSON, row, nil
	}
	row, err = r.Sum.Open(key, row)
	switch {
	case err != nil:
		return 0, nil, err
	case len(row) == 0:
		return 0, nil, ErrDamaged
	case row[0] != formJSON && (row[0] != formFields || r.Fields == nil):
		return 0, nil, fmt.Errorf("unknown row form %d: %w", row[0], ErrNewer)
	}
	return row[0], row[1:], nil
}

func decodeJSON(text []byte, rec any) error {
	if err := json.Unmarshal(text, rec); err != nil {
		return fmt.Errorf("decode JSON: %w: %w", ErrDamaged, err)
	}
	return nil
}
