package mailindex

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/mailstead/mailstead/store/mailrow"
)

// The UIDs of messages that have left a folder are kept for clients that come back (RFC 7162), in
// one row for each transaction and folder. Everything that has left since a row's floor is in the
// rows up to it: a row that is deleted raises the floor of the next one that is written.
//
// A row also tells the gaps of its folder. Where the folder has another number of them now,
// something else has removed messages, such as a program from before there were these rows: they
// are incomplete then, and the next row begins anew.

const (
	ExpungedMost = 10_000 // UIDs of a folder, where the options say nothing
	expungedDays = 30
	expungedTrim = 8 // rows that go with each new one, besides as many as it has UIDs
)

// An expungedNote is what one transaction has removed from a folder.
type expungedNote struct {
	mailbox, folder uint32
	was             mailrow.FolderCounts // before
	modSeq          uint64               // after
	uids            []uint32
}

// noteExpunged has the UID of a message that is removed written at the end of the transaction. was
// is what the folder counted before.
func (tx *Tx) noteExpunged(m *mailrow.Message, was mailrow.FolderCounts, modSeq uint64) {
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
	key := mailrow.ExpungedKey(n.mailbox, n.folder, n.modSeq)
	if tx.GetRow(mailrow.BucketFolder, key[:8]) == nil {
		return nil // it was deleted after its messages
	}
	r := &mailrow.ExpungedRow{ModSeq: n.modSeq, Day: int(mailrow.Day(tx.Now())), Gaps: n.was.Gaps() + uint32(len(n.uids))}
	slices.Sort(n.uids)
	for _, uid := range n.uids {
		if last := len(r.UIDs) - 1; last >= 0 && r.UIDs[last].Last+1 == uid {
			r.UIDs[last].Last = uid
			continue
		}
		r.UIDs = append(r.UIDs, mailrow.UIDRange{First: uid, Last: uid})
	}
	last, err := tx.lastExpunged(key[:8])
	switch {
	case last == nil && n.was.Gaps() == 0:
		r.Floor = 0
	case err == nil && last != nil && last.Gaps == n.was.Gaps():
		r.Floor = last.Floor
	default:
		r.Floor = n.was.ModSeq
	}
	most, left := uint32(tx.index.Expunged), len(n.uids)+expungedTrim
	for k, row := range tx.Ascend(mailrow.BucketExpunged, key[:8]) {
		if !bytes.HasPrefix(k, key[:8]) || left == 0 {
			break
		}
		left--
		var old mailrow.ExpungedRow
		err := old.Decode(k, row)
		if err == nil && old.ModSeq > r.Floor && r.Gaps-old.Gaps+old.Count() <= most && r.Day-old.Day <= expungedDays {
			break
		}
		r.Floor = max(r.Floor, binary.BigEndian.Uint64(k[8:]))
		if err := tx.DeleteRow(mailrow.BucketExpunged, bytes.Clone(k)); err != nil {
			return err
		}
	}
	return tx.PutRow(mailrow.BucketExpunged, key, r.Row(key))
}

// lastExpunged gives the newest row of a folder; nil if there is none.
func (tx *Tx) lastExpunged(folder []byte) (*mailrow.ExpungedRow, error) {
	for k, row := range tx.Descend(mailrow.BucketExpunged, folder) {
		r := new(mailrow.ExpungedRow)
		return r, r.Decode(k, row)
	}
	return nil, nil
}

// Expunged gives the UIDs of the messages that have left the folder since a mod-sequence, in the
// order in which they went. It gives at most 10 000, or what the options say. known is false where
// it is not known which they are: that is too long ago, or nobody has noted it.
func (tx *Tx) Expunged(f *mailrow.Folder, since uint64) (gone []mailrow.UIDRange, known bool, err error) {
	now := mailrow.FolderCounts{UIDNext: f.UIDNext, Messages: f.Messages}
	key := mailrow.FolderKey(f.Mailbox, f.ID)
	last, err := tx.lastExpunged(key[:])
	switch {
	case err != nil || since > f.ModSeq: // the client knows a later state, from before the store was restored
		return nil, false, nil
	case last == nil:
		return nil, now.Gaps() == 0, nil
	case last.Gaps != now.Gaps() || since < last.Floor:
		return nil, false, nil
	}
	for k, row := range tx.Ascend(mailrow.BucketExpunged, mailrow.ExpungedKey(f.Mailbox, f.ID, since+1)) {
		if !bytes.HasPrefix(k, key[:]) {
			break
		}
		var r mailrow.ExpungedRow
		if err := r.Decode(k, row); err != nil {
			return nil, false, nil
		}
		gone = append(gone, r.UIDs...)
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
		if last != nil && int(mailrow.Day(tx.Now()))-last.Day > expungedDays {
			old = append(old, after)
		}
	}
	return old, after, nil
}

// DropOldExpunged deletes up to so many rows of a folder that OldExpunged has given, unless
// something has left it since.
func (tx *Tx) DropOldExpunged(folder []byte, rows int) (done bool, err error) {
	last, err := tx.lastExpunged(folder)
	if err != nil || last == nil || int(mailrow.Day(tx.Now()))-last.Day <= expungedDays {
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
func (tx *Tx) dropExpunged(f *mailrow.Folder, rows int) (done bool, err error) {
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
