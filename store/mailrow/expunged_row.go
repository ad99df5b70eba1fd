package mailrow

import (
	"encoding/binary"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/rowform"
)

// An ExpungedRow is a row of BucketExpunged: UIDs that one transaction removed from a folder. Its
// form, with sizes in bytes: version 1 | day 2 | gaps uvarint | modseq minus floor uvarint | UID
// ranges in ascending order | crc32c 4. A range is a uvarint: twice its distance, plus 1 if it has
// more than one UID; then a second uvarint follows, its number of UIDs minus 2. The distance is
// First minus 1 for the first range, and First minus the Last before it minus 2 for the others.
type ExpungedRow struct {
	ModSeq uint64     // mod-sequence of the last removal; the row's key ends in it
	Floor  uint64     // the rows of the folder up to this one list all removals after this mod-sequence
	Day    int        // day of the removal, see Day
	Gaps   uint32     // gaps of the folder after the removal, see FolderCounts.Gaps
	UIDs   []UIDRange // in ascending order
}

// A UIDRange is the range of UIDs from First to Last, both inclusive.
type UIDRange struct{ First, Last uint32 }

// ExpungedKey returns the key of a row in BucketExpunged. The rows of a folder are in the order of
// their mod-sequences.
func ExpungedKey(mailbox, folder uint32, modSeq uint64) []byte {
	key := FolderKey(mailbox, folder)
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 16), key[:]...), modSeq)
}

// Row encodes the row for its key, with the checksum.
func (r *ExpungedRow) Row(key []byte) []byte {
	b := append(make([]byte, 0, 3+5+10+6*len(r.UIDs)+rowform.SumSize), engine.RowVersion)
	b = binary.BigEndian.AppendUint16(b, uint16(r.Day))
	b = binary.AppendUvarint(b, uint64(r.Gaps))
	b = binary.AppendUvarint(b, r.ModSeq-r.Floor)
	next := uint64(1)
	for _, u := range r.UIDs {
		skip := 2 * (uint64(u.First) - next)
		if more := u.Last - u.First; more > 0 {
			b = binary.AppendUvarint(binary.AppendUvarint(b, skip+1), uint64(more-1))
		} else {
			b = binary.AppendUvarint(b, skip)
		}
		next = uint64(u.Last) + 2 // ranges have at least one UID between them
	}
	return BucketExpunged.Seal(key, b)
}

// Decode verifies and decodes a row.
func (r *ExpungedRow) Decode(key, row []byte) error {
	b, err := BucketExpunged.Open(key, row)
	if err != nil {
		return err
	}
	if len(key) != 16 || len(b) < 3 {
		return engine.ErrDamagedRow
	}
	*r = ExpungedRow{ModSeq: binary.BigEndian.Uint64(key[8:]), Day: int(binary.BigEndian.Uint16(b[1:]))}
	b = b[3:]
	damaged := false
	number := func(most uint64) uint64 {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > most {
			damaged, b = true, nil
			return 0
		}
		b = b[used:]
		return n
	}
	r.Gaps = uint32(number(1<<32 - 1))
	r.Floor = r.ModSeq - number(r.ModSeq)
	for next := uint64(1); len(b) > 0; {
		skip, more := number(1<<33-1), uint64(0)
		if skip&1 == 1 {
			more = 1 + number(1<<32-1)
		}
		first := next + skip/2
		if first+more > 1<<32-1 {
			damaged = true
			break
		}
		r.UIDs = append(r.UIDs, UIDRange{uint32(first), uint32(first + more)})
		next = first + more + 2
	}
	if damaged || len(r.UIDs) == 0 {
		return engine.ErrDamagedRow
	}
	return nil
}

// Count returns the number of UIDs in the row.
func (r *ExpungedRow) Count() (n uint32) {
	for _, u := range r.UIDs {
		n += u.Last - u.First + 1
	}
	return n
}
