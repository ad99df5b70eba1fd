package mailindex

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/mailstead/mailstead/store/mailrow"
)

// The UIDs of removed messages are kept for clients that were offline (RFC 7162), in one row per
// transaction and folder. Each row has a floor, which is a mod-sequence: the rows of the folder up
// to this one list all removals after the floor. When a row is deleted, the next row that is
// written gets a higher floor.
//
// A row also records the number of gaps of its folder: UIDs without a message. If the folder now
// has another number of gaps, something else has removed messages, such as a program version
// without these rows. The rows are then incomplete, and the floor of the next row excludes them.

const (
	DefaultMaxExpunged = 10_000 // how many UIDs are kept per folder, unless Index.MaxExpunged is set
	expungedDays       = 30     // rows older than this are deleted
	expungedTrim       = 8      // with each new row, this many old rows are deleted, and one more for each UID in the new row
)

// A folderRemovals holds the messages that the transaction has removed from one folder.
type folderRemovals struct {
	mailbox, folder uint32
	before          mailrow.FolderCounts // counters before the first removal
	modSeq          uint64               // mod-sequence of the last removal
	uids            []uint32
}

// recordExpunged records a removed UID, for which writeExpunged writes a row at the end of the
// transaction. before holds the counters of the folder before the removal.
func (tx *Tx) recordExpunged(m *mailrow.Message, before mailrow.FolderCounts, modSeq uint64) {
	i := slices.IndexFunc(tx.expunged, func(n folderRemovals) bool { return n.folder == m.Folder && n.mailbox == m.Mailbox })
	if i < 0 {
		i = len(tx.expunged)
		if i == 0 {
			tx.AtEnd(tx.writeExpunged)
		}
		tx.expunged = append(tx.expunged, folderRemovals{mailbox: m.Mailbox, folder: m.Folder, before: before})
	}
	n := &tx.expunged[i]
	n.uids, n.modSeq = append(n.uids, m.UID), modSeq
}

// writeExpunged writes the rows of all folders that the transaction has removed messages from.
func (tx *Tx) writeExpunged() error {
	for i := range tx.expunged {
		if err := tx.putExpunged(&tx.expunged[i]); err != nil {
			return err
		}
	}
	return nil
}

// putExpunged writes the row for one folder, and deletes rows that are too old or too many: about
// as many as the new row has UIDs.
func (tx *Tx) putExpunged(n *folderRemovals) error {
	key := mailrow.ExpungedKey(n.mailbox, n.folder, n.modSeq)
	if tx.GetRow(mailrow.BucketFolder, key[:8]) == nil {
		return nil // the folder was deleted after its messages
	}
	r := &mailrow.ExpungedRow{ModSeq: n.modSeq, Day: int(mailrow.Day(tx.Now())), Gaps: n.before.Gaps() + uint32(len(n.uids))}
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
	case last == nil && n.before.Gaps() == 0:
		r.Floor = 0
	case err == nil && last != nil && last.Gaps == n.before.Gaps():
		r.Floor = last.Floor
	default:
		r.Floor = n.before.ModSeq
	}
	most, left := uint32(tx.index.MaxExpunged), len(n.uids)+expungedTrim
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

// lastExpunged returns the newest row of a folder; nil if there is none.
func (tx *Tx) lastExpunged(folder []byte) (*mailrow.ExpungedRow, error) {
	for k, row := range tx.Descend(mailrow.BucketExpunged, folder) {
		r := new(mailrow.ExpungedRow)
		return r, r.Decode(k, row)
	}
	return nil, nil
}

// Expunged returns the UIDs that were removed from the folder after the mod-sequence `since`, in
// the order of removal: at most Index.MaxExpunged of them. known is false if the list would be
// incomplete: `since` is too old, or the removals were not recorded.
func (tx *Tx) Expunged(f *mailrow.Folder, since uint64) (gone []mailrow.UIDRange, known bool, err error) {
	now := mailrow.FolderCounts{UIDNext: f.UIDNext, Messages: f.Messages}
	key := mailrow.FolderKey(f.Mailbox, f.ID)
	last, err := tx.lastExpunged(key[:])
	switch {
	case err != nil || since > f.ModSeq: // since comes from before the store was restored from a backup
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

// FoldersWithOldExpunged looks for folders without removals in the last 30 days, and returns their
// keys. It examines at most `most` folders with keys greater than afterKey; nil means from the
// first. next is the afterKey of the following call, or nil at the end.
func (tx *Tx) FoldersWithOldExpunged(afterKey []byte, most int) (folders [][]byte, next []byte, err error) {
	from := []byte{}
	for ; most > 0; most-- {
		if afterKey != nil {
			from = binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(afterKey)+1)
		}
		k, _ := tx.Seek(mailrow.BucketExpunged, from)
		if len(k) < 8 {
			return folders, nil, nil
		}
		afterKey = bytes.Clone(k[:8])
		last, err := tx.lastExpunged(afterKey)
		if err != nil {
			return nil, nil, err
		}
		if last != nil && int(mailrow.Day(tx.Now()))-last.Day > expungedDays {
			folders = append(folders, afterKey)
		}
	}
	return folders, afterKey, nil
}

// DropOldExpunged deletes up to `rows` rows of a folder that FoldersWithOldExpunged returned,
// unless a message was removed from it since. done is false if rows remain.
func (tx *Tx) DropOldExpunged(folder []byte, rows int) (done bool, err error) {
	last, err := tx.lastExpunged(folder)
	if err != nil || last == nil || int(mailrow.Day(tx.Now()))-last.Day <= expungedDays {
		return true, err
	}
	// Delete the newest first: without it, the other rows are not taken for complete.
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

// dropExpunged deletes up to `rows` rows of a folder. done is false if rows remain.
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
