package store

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/rowform"
)

// The UIDs of messages that have left a folder are kept for clients that come back (RFC 7162), in
// one row for each transaction and folder. Everything that has left since a row's floor is in the
// rows up to it: a row that is deleted raises the floor of the next one that is written.
//
// A row also tells the gaps of its folder. Where the folder has another number of them now,
// something else has removed messages, such as a program from before there were these rows: they
// are incomplete then, and the next row begins anew.

const (
	expungedMost = 10_000 // UIDs of a folder, where the options say nothing
	expungedDays = 30
	expungedTrim = 8 // rows that go with each new one, besides as many as it has UIDs
)

// An expungedRow is one row of bktExpunged: version 1 | day 2 | gaps uvarint | modseq less floor
// uvarint | UIDs, ascending ranges, each: 2 × what is between it and the one before, + 1 for more
// than one UID, uvarint | then UIDs less 2 uvarint | crc32c 4.
type expungedRow struct {
	modSeq uint64 // of the last removal; the row's key ends in it
	floor  uint64
	day    int
	gaps   uint32 // of the folder, after them
	uids   []UIDRange
}

// A UIDRange is the UIDs from First to Last, both inclusive.
type UIDRange struct{ First, Last uint32 }

func expungedKey(mailbox, folder uint32, modSeq uint64) []byte {
	key := mailrow.FolderKey(mailbox, folder)
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 16), key[:]...), modSeq)
}

func (r *expungedRow) row(key []byte) []byte {
	b := append(make([]byte, 0, 3+5+10+6*len(r.uids)+rowform.SumSize), engine.RowVersion)
	b = binary.BigEndian.AppendUint16(b, uint16(r.day))
	b = binary.AppendUvarint(b, uint64(r.gaps))
	b = binary.AppendUvarint(b, r.modSeq-r.floor)
	next := uint64(1)
	for _, u := range r.uids {
		skip := 2 * (uint64(u.First) - next)
		if more := u.Last - u.First; more > 0 {
			b = binary.AppendUvarint(binary.AppendUvarint(b, skip+1), uint64(more-1))
		} else {
			b = binary.AppendUvarint(b, skip)
		}
		next = uint64(u.Last) + 2 // one UID at least is between ranges
	}
	return mailrow.BucketExpunged.Seal(key, b)
}

func (r *expungedRow) decode(key, row []byte) error {
	b, err := mailrow.BucketExpunged.Open(key, row)
	if err != nil {
		return err
	}
	if len(key) != 16 || len(b) < 3 {
		return ErrDamagedRow
	}
	*r = expungedRow{modSeq: binary.BigEndian.Uint64(key[8:]), day: int(binary.BigEndian.Uint16(b[1:]))}
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
	r.gaps = uint32(number(1<<32 - 1))
	r.floor = r.modSeq - number(r.modSeq)
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
		r.uids = append(r.uids, UIDRange{uint32(first), uint32(first + more)})
		next = first + more + 2
	}
	if damaged || len(r.uids) == 0 {
		return ErrDamagedRow
	}
	return nil
}

// count is how many UIDs the row has.
func (r *expungedRow) count() (n uint32) {
	for _, u := range r.uids {
		n += u.Last - u.First + 1
	}
	return n
}

// An expungedNote is what one transaction has removed from a folder.
type expungedNote struct {
	mailbox, folder uint32
	was             mailrow.FolderCounts // before
	modSeq          uint64               // after
	uids            []uint32
}

// noteExpunged has the UID of a message that is removed written at the end of the transaction. was
// is what the folder counted before.
func (tx *Tx) noteExpunged(m *Message, was mailrow.FolderCounts, modSeq uint64) {
	i := slices.IndexFunc(tx.expunged, func(n expungedNote) bool { return n.folder == m.Folder && n.mailbox == m.Mailbox })
	if i < 0 {
		i = len(tx.expunged)
		if i == 0 {
			tx.AtEnd(tx.writeExpunged)
		}
		tx.expunged = append(tx.expunged, expungedNote{mailbox: m.Mailbox, folder: m.Folder, was: was})
	}
	n := &tx.expunged[i]
	n.uids, n.modSeq = append(n.uids, m.UID), modSeq
}

func (tx *Tx) writeExpunged() error {
	for i := range tx.expunged {
		if err := tx.putExpunged(&tx.expunged[i]); err != nil {
			return err
		}
	}
	return nil
}

// putExpunged writes the row of a folder for what the transaction has removed, and deletes rows
// that are old or too many: about as many as it writes.
func (tx *Tx) putExpunged(n *expungedNote) error {
	key := expungedKey(n.mailbox, n.folder, n.modSeq)
	if tx.GetRow(mailrow.BucketFolder, key[:8]) == nil {
		return nil // it was deleted after its messages
	}
	r := &expungedRow{modSeq: n.modSeq, day: int(day(tx.Now())), gaps: n.was.Gaps() + uint32(len(n.uids))}
	slices.Sort(n.uids)
	for _, uid := range n.uids {
		if last := len(r.uids) - 1; last >= 0 && r.uids[last].Last+1 == uid {
			r.uids[last].Last = uid
			continue
		}
		r.uids = append(r.uids, UIDRange{uid, uid})
	}
	last, err := tx.lastExpunged(key[:8])
	switch {
	case last == nil && n.was.Gaps() == 0:
		r.floor = 0
	case err == nil && last != nil && last.gaps == n.was.Gaps():
		r.floor = last.floor
	default:
		r.floor = n.was.ModSeq
	}
	most, left := uint32(tx.s.expungedMost), len(n.uids)+expungedTrim
	for k, row := range tx.Ascend(mailrow.BucketExpunged, key[:8]) {
		if !bytes.HasPrefix(k, key[:8]) || left == 0 {
			break
		}
		left--
		var old expungedRow
		err := old.decode(k, row)
		if err == nil && old.modSeq > r.floor && r.gaps-old.gaps+old.count() <= most && r.day-old.day <= expungedDays {
			break
		}
		r.floor = max(r.floor, binary.BigEndian.Uint64(k[8:]))
		if err := tx.DeleteRow(mailrow.BucketExpunged, bytes.Clone(k)); err != nil {
			return err
		}
	}
	return tx.PutRow(mailrow.BucketExpunged, key, r.row(key))
}

// lastExpunged gives the newest row of a folder; nil if there is none.
func (tx *Tx) lastExpunged(folder []byte) (*expungedRow, error) {
	for k, row := range tx.Descend(mailrow.BucketExpunged, folder) {
		r := new(expungedRow)
		return r, r.decode(k, row)
	}
	return nil, nil
}

// Expunged gives the UIDs of the messages that have left the folder since a mod-sequence, in the
// order in which they went. It gives at most 10 000, or what the options say. known is false where
// it is not known which they are: that is too long ago, or nobody has noted it.
func (tx *Tx) Expunged(f *Folder, since uint64) (gone []UIDRange, known bool, err error) {
	now := mailrow.FolderCounts{UIDNext: f.UIDNext, Messages: f.Messages}
	key := mailrow.FolderKey(f.Mailbox, f.ID)
	last, err := tx.lastExpunged(key[:])
	switch {
	case err != nil || since > f.ModSeq: // the client knows a later state, from before the store was restored
		return nil, false, nil
	case last == nil:
		return nil, now.Gaps() == 0, nil
	case last.gaps != now.Gaps() || since < last.floor:
		return nil, false, nil
	}
	for k, row := range tx.Ascend(mailrow.BucketExpunged, expungedKey(f.Mailbox, f.ID, since+1)) {
		if !bytes.HasPrefix(k, key[:]) {
			break
		}
		var r expungedRow
		if err := r.decode(k, row); err != nil {
			return nil, false, nil
		}
		gone = append(gone, r.uids...)
	}
	return gone, true, nil
}

// OldExpunged looks at up to `look` folders behind the one of the key after, nil at first, and
// gives the keys of those that nothing has left for over 30 days, and where to go on; next is nil
// at the end.
func (tx *Tx) OldExpunged(after []byte, look int) (old [][]byte, next []byte, err error) {
	from := []byte{}
	for ; look > 0; look-- {
		if after != nil {
			from = binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(after)+1)
		}
		k, _ := tx.Seek(mailrow.BucketExpunged, from)
		if len(k) < 8 {
			return old, nil, nil
		}
		after = bytes.Clone(k[:8])
		last, err := tx.lastExpunged(after)
		if err != nil {
			return nil, nil, err
		}
		if last != nil && int(day(tx.Now()))-last.day > expungedDays {
			old = append(old, after)
		}
	}
	return old, after, nil
}

// DropOldExpunged deletes up to so many rows of a folder that OldExpunged has given, unless
// something has left it since.
func (tx *Tx) DropOldExpunged(folder []byte, rows int) (done bool, err error) {
	last, err := tx.lastExpunged(folder)
	if err != nil || last == nil || int(day(tx.Now()))-last.day <= expungedDays {
		return true, err
	}
	// The newest goes first: without it, nobody takes the others for all that has left.
	for k := range tx.Descend(mailrow.BucketExpunged, folder) {
		if rows--; rows < 0 {
			return false, nil
		}
		if err := tx.DeleteRow(mailrow.BucketExpunged, bytes.Clone(k)); err != nil {
			return false, err
		}
	}
	return true, nil
}

// dropExpunged deletes up to so many rows of a folder.
func (tx *Tx) dropExpunged(f *Folder, rows int) (done bool, err error) {
	key := mailrow.FolderKey(f.Mailbox, f.ID)
	for k := range tx.Ascend(mailrow.BucketExpunged, key[:]) {
		if !bytes.HasPrefix(k, key[:]) {
			break
		}
		if rows--; rows < 0 {
			return false, nil
		}
		if err := tx.DeleteRow(mailrow.BucketExpunged, bytes.Clone(k)); err != nil {
			return false, err
		}
	}
	return true, nil
}

// checkExpunged verifies what is kept of messages that have left.
func (c *messageCheck) checkExpunged() {
	for k, row := range c.tx.Ascend(mailrow.BucketExpunged, nil) {
		var r expungedRow
		if err := r.decode(k, row); err != nil {
			c.add("expunged messages %x: %w", k, err)
			continue
		}
		f, err := c.tx.Folder(binary.BigEndian.Uint32(k), binary.BigEndian.Uint32(k[4:]))
		if err != nil {
			c.add("expunged messages %x: %w", k, err)
		} else if r.modSeq > f.ModSeq {
			c.add("expunged messages %x: their folder's MODSEQ is %d", k, f.ModSeq)
		}
	}
}
