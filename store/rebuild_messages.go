package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/segment"
)

// bucketRebuild lists the rows that RebuildDatabase could not copy, and that must be made from the
// bytes of the messages. Only a store whose database is being rebuilt has this bucket:
//
//	m, key in msg → reference 16            a message whose row is lost
//	i, key in msg → account 4, received ms 8, flags 1, bits 1   what an inbox index has about it
//	d, key in msg → reference 16            a message whose meta row is lost
//	f, key in folder → name                 a folder whose row is lost; only during RebuildDatabase
//	b, mailbox 4 → nothing                  the mailbox lacks messages, and no index names them
var bucketRebuild = engine.NewBucket("rebuild")

// Kinds of rows in bucketRebuild, the first byte of their keys, and the size of the marks.
const (
	rebuildMessage = 'm' // a message whose row is lost
	rebuildMarks   = 'i' // what an inbox index has about such a message
	rebuildMeta    = 'd' // a message whose meta row is lost
	rebuildFolder  = 'f' // a folder whose row is lost
	rebuildMissing = 'b' // a mailbox that lacks messages
	marksSize      = 14
)

// A RowToMake is a message whose row, or only whose meta row, must be made from its bytes.
type RowToMake struct {
	Message         // has Mailbox, Folder, UID and Blob; more if Marked is true
	Marked    bool  // Received, Flags and Bits are set; so is Account if it is not 0
	MetaAlone bool  // the row exists and is valid; only the meta row is missing
	Kept      *Meta // its old meta row, or nil
	key       []byte
}

// RowsToMake returns the next rows that must be made, at most limit.
func (s *Store) RowsToMake(limit int) (rows []RowToMake, err error) {
	err = s.View(func(tx *Tx) error {
		rows = nil
		todo := tx.Bucket(bucketRebuild)
		if todo == nil {
			return nil
		}
		for k, v := range tx.Ascend(bucketRebuild, nil) {
			if len(rows) == limit {
				break
			}
			if k[0] != rebuildMessage && k[0] != rebuildMeta {
				continue
			}
			ref, err := segment.ParseRef(v)
			if err != nil || len(k) != 13 {
				return fmt.Errorf("read row %x of bucket %s: %w", k, bucketRebuild.Name(), ErrDamagedRow)
			}
			at := k[1:]
			row := RowToMake{MetaAlone: k[0] == rebuildMeta, key: bytes.Clone(k)}
			row.Message = Message{Mailbox: binary.BigEndian.Uint32(at), Folder: binary.BigEndian.Uint32(at[4:]), UID: binary.BigEndian.Uint32(at[8:]), Blob: ref}
			if marks := todo.Get(append([]byte{rebuildMarks}, at...)); len(marks) == marksSize && row.Folder == InboxID {
				row.Marked, row.Account, row.Received = true, binary.BigEndian.Uint32(marks), mailrow.MsTime(binary.BigEndian.Uint64(marks[4:]))
				row.Flags, row.Bits = Flags(marks[12]), Bits(marks[13])
			}
			if meta := new(Meta); !row.MetaAlone && tx.GetRow(mailrow.BucketMeta, at) != nil {
				if _, err := meta.Decode(at, tx.GetRow(mailrow.BucketMeta, at)); err == nil {
					meta.Structure = bytes.Clone(meta.Structure) // bbolt owns the bytes of a row
					row.Kept = meta
				}
			}
			rows = append(rows, row)
		}
		return nil
	})
	return rows, err
}

// RemoveRowToMake removes a row from the list of RowsToMake, because it was made or cannot be made.
func (tx *Tx) RemoveRowToMake(row *RowToMake) error { return tx.DeleteRow(bucketRebuild, row.key) }

// PutMeta writes the meta row of a message that has none.
func (tx *Tx) PutMeta(m *Message, meta *Meta) error {
	row, err := mailindex.MetaRow(&tx.Tx, m.Blob, meta)
	if err != nil {
		return err
	}
	key := m.Key()
	return tx.PutRow(mailrow.BucketMeta, key[:], mailrow.BucketMeta.Seal(key[:], row))
}

// MailboxesMissingMessages returns the numbers of the mailboxes that lack messages which no index
// names.
func (s *Store) MailboxesMissingMessages() (missing map[uint32]bool, err error) {
	err = s.View(func(tx *Tx) error {
		missing = map[uint32]bool{}
		todo := tx.Bucket(bucketRebuild)
		if todo == nil {
			return nil
		}
		for k := range tx.Ascend(bucketRebuild, []byte{rebuildMissing}) {
			if k[0] != rebuildMissing || len(k) != 5 {
				break
			}
			missing[binary.BigEndian.Uint32(k[1:])] = true
		}
		return nil
	})
	return missing, err
}

// An UnlistedMessage is a message in the segments that no row refers to.
type UnlistedMessage struct {
	Blob     BlobRef
	Newer    bool // it was appended after all messages that the database refers to
	Envelope []byte
}

// EachUnlisted calls fn for each message in the segments that no row refers to, the oldest first.
// It leaves out accepted messages that the server files when it starts.
func (s *Store) EachUnlisted(fn func(UnlistedMessage) error) error {
	toFile := map[BlobRef]bool{}
	for _, a := range s.unfiledAtOpen {
		toFile[a.Blob] = true
	}
	listed := map[uint64]bool{} // by sequence number of the record
	newest := uint64(0)
	var known segment.Position
	type record struct {
		ref BlobRef
		seq uint64
	}
	var others []record
	for _, info := range s.seg.List() {
		err := s.View(func(tx *Tx) error {
			mark, err := readFiledMark(engine.Bolt(tx))
			if err != nil {
				return err
			}
			for _, at := range append(mark.Done, mark.From) {
				if at.Compare(known) > 0 {
					known = at
				}
			}
			return s.seg.EachRecord(info.Number, func(f segment.FoundRecord) error {
				_, found, err := mailindex.FindRef(&tx.Tx, f.Ref)
				switch {
				case err != nil:
					return err
				case found:
					listed[f.Sequence] = true
					newest = max(newest, f.Sequence)
					if at := f.Ref.Position(); at.Compare(known) > 0 {
						known = at
					}
				case !toFile[f.Ref]:
					others = append(others, record{f.Ref, f.Sequence})
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	for _, o := range others {
		if listed[o.seq] { // the original or the copy is referred to, or was passed to fn
			continue
		}
		listed[o.seq] = true
		env, err := s.seg.Envelope(o.ref)
		if errors.Is(err, ErrDamaged) {
			continue
		}
		if err == nil {
			err = fn(UnlistedMessage{o.ref, o.seq > newest && o.ref.Position().Compare(known) >= 0, env})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// AdoptBlob leases a blob that no row refers to, as if Append had just returned it, so that a row
// may refer to it. It returns ErrDamaged if its bytes differ from what was written.
func (s *Store) AdoptBlob(ref BlobRef) error {
	if err := s.seg.Verify(ref); err != nil {
		return err
	}
	if !s.leases.Has(ref) {
		s.leases.Add(ref)
	}
	return nil
}

// Envelope returns the envelope that Append was given with a message.
func (s *Store) Envelope(ref BlobRef) ([]byte, error) { return s.seg.Envelope(ref) }

// EndRebuild deletes the list of rows to be made. If keepSegments is true, compaction will keep all
// segments that exist now, since the missing messages may be in them.
func (s *Store) EndRebuild(keepSegments bool) error {
	return s.Setup(func(tx *engine.Tx) error {
		b := engine.Bolt(tx)
		if b.Bucket([]byte(bucketRebuild.Name())) == nil {
			return nil
		}
		list := s.seg.List()
		if live := b.Bucket([]byte(mailrow.BucketLive.Name())); keepSegments && len(list) > 0 {
			if err := live.SetSequence(uint64(list[len(list)-1].Number)); err != nil {
				return err
			}
		}
		return b.DeleteBucket([]byte(bucketRebuild.Name()))
	})
}

// recordFiledEnd stores up to where in the segments all messages are filed. Compact and Close call
// it. So if an older copy of the database is put in place later, only messages after this position
// can be missing in it.
func (s *Store) recordFiledEnd() error {
	if !s.appended.Load() || s.Failed() != nil {
		return nil
	}
	end := s.unfiled.First(s.seg.End())
	noted := false
	err := s.View(func(tx *Tx) error {
		mark, err := readFiledMark(engine.Bolt(tx))
		noted = end.Compare(mark.From) <= 0
		return err
	})
	if noted || err != nil {
		return err
	}
	return s.Update(func(tx *Tx) error { return tx.MarkFiled() })
}

// IsRebuilding reports whether the error of a check says that rows of messages are still to be
// made. The other problems in err may follow from that.
func IsRebuilding(err error) bool { return strings.Contains(err.Error(), errRebuilding.Error()) }

// errRebuilding is reported by Check after RebuildDatabase as long as there are rows to be made.
var errRebuilding = errors.New("the database was rebuilt, but rows of messages are still to be made: run mailstead check --rebuild again")
