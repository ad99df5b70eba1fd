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

// What RebuildDatabase leaves to be made of messages stands in bucketRebuild, which only a store
// has whose database is being made anew:
//
//	m, key in msg → reference 16            a message whose row is gone
//	i, key in msg → account 4, received ms 8, flags 1, bits 1   what an inbox index says of it
//	d, key in msg → reference 16            a message whose meta row is gone
//	f, key in folder → name                 a folder whose row is gone; RebuildDatabase alone
//	b, mailbox 4 → nothing                  messages are missing, and nothing tells which
var bucketRebuild = engine.NewBucket("rebuild")

const (
	rebuildMessage = 'm'
	rebuildMarks   = 'i'
	rebuildMeta    = 'd'
	rebuildFolder  = 'f'
	rebuildMissing = 'b'
	marksSize      = 14
)

// A RowToMake is a message whose row, or whose meta row alone, is to be made anew of its bytes.
type RowToMake struct {
	Message         // Mailbox, Folder, UID and Blob; more if Marked is true
	Marked    bool  // Received, Flags and Bits are known, and Account if it is not 0
	MetaAlone bool  // the row is there, and known
	Kept      *Meta // what is left of its meta row, or nil
	key       []byte
}

// RowsToMake gives the next rows to be made, up to a limit.
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
				return fmt.Errorf("message to be made %x: %w", k, ErrDamagedRow)
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
					meta.Structure = bytes.Clone(meta.Structure) // bbolt owns what it gave
					row.Kept = meta
				}
			}
			rows = append(rows, row)
		}
		return nil
	})
	return rows, err
}

// RowMade notes that a row is made, or that it cannot be.
func (tx *Tx) RowMade(row *RowToMake) error { return tx.DeleteRow(bucketRebuild, row.key) }

// PutMeta writes the meta row of a message that lacks it.
func (tx *Tx) PutMeta(m *Message, meta *Meta) error {
	row, err := mailindex.MetaRow(&tx.Tx, m.Blob, meta)
	if err != nil {
		return err
	}
	key := m.Key()
	return tx.PutRow(mailrow.BucketMeta, key[:], mailrow.BucketMeta.Seal(key[:], row))
}

// MailboxesMissingMessages gives the numbers of mailboxes of which messages are missing, and
// nothing tells which.
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

// An Unlisted is a record of the segments that no row refers to.
type Unlisted struct {
	Blob     BlobRef
	Newer    bool // it came after all that the database knows of
	Envelope []byte
}

// Unlisted calls fn for each message in the segments that no row refers to, the oldest first, but
// for those that are to be filed when the server starts.
func (s *Store) Unlisted(fn func(Unlisted) error) error {
	toFile := map[BlobRef]bool{}
	for _, a := range s.left {
		toFile[a.Blob] = true
	}
	listed := map[uint64]bool{} // sequences
	newest := uint64(0)
	var known segment.Position
	type record struct {
		ref BlobRef
		seq uint64
	}
	var others []record
	for _, info := range s.seg.List() {
		err := s.View(func(tx *Tx) error {
			mark, err := filedMark(engine.Bolt(tx))
			if err != nil {
				return err
			}
			for _, at := range append(mark.Done, mark.From) {
				if at.Compare(known) > 0 {
					known = at
				}
			}
			return s.seg.Records(info.Number, func(f segment.Found) error {
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
		if listed[o.seq] { // a copy, or what it was made of
			continue
		}
		listed[o.seq] = true
		env, err := s.seg.Envelope(o.ref)
		if errors.Is(err, ErrDamaged) {
			continue
		}
		if err == nil {
			err = fn(Unlisted{o.ref, o.seq > newest && o.ref.Position().Compare(known) >= 0, env})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// AdoptBlob lets a message be referred to that nothing refers to, as if Append had just returned
// it. It returns ErrDamaged where its bytes are not what was written.
func (s *Store) AdoptBlob(ref BlobRef) error {
	if err := s.seg.Verify(ref); err != nil {
		return err
	}
	if !s.leases.Has(ref) {
		s.leases.Add(ref)
	}
	return nil
}

// Envelope gives what Append was given beside the message's bytes.
func (s *Store) Envelope(ref BlobRef) ([]byte, error) { return s.seg.Envelope(ref) }

// EndRebuild forgets what was to be made. Where keep is true, compaction leaves alone all messages
// that are there now: some of them may be what is missing.
func (s *Store) EndRebuild(keep bool) error {
	return s.Setup(func(tx *engine.Tx) error {
		b := engine.Bolt(tx)
		if b.Bucket([]byte(bucketRebuild.Name())) == nil {
			return nil
		}
		list := s.seg.List()
		if live := b.Bucket([]byte(mailrow.BucketLive.Name())); keep && len(list) > 0 {
			if err := live.SetSequence(uint64(list[len(list)-1].Number)); err != nil {
				return err
			}
		}
		return b.DeleteBucket([]byte(bucketRebuild.Name()))
	})
}

// noteEnd notes up to where the segments have what is filed, when the store is closed and now and
// then before. What an older copy of the database does not know of is behind that.
func (s *Store) noteEnd() error {
	if !s.appended.Load() || s.Failed() != nil {
		return nil
	}
	end := s.unfiled.First(s.seg.End())
	noted := false
	err := s.View(func(tx *Tx) error {
		mark, err := filedMark(engine.Bolt(tx))
		noted = end.Compare(mark.From) <= 0
		return err
	})
	if noted || err != nil {
		return err
	}
	return s.Update(func(tx *Tx) error { return tx.Filed() })
}

// IsRebuilding tells whether a check has found that messages are still to be made anew. What else
// it found may follow from that.
func IsRebuilding(err error) bool { return strings.Contains(err.Error(), errRebuilding.Error()) }

// errRebuilding is what Check says of a store whose messages RebuildDatabase has left to be made.
var errRebuilding = errors.New("the database was made anew, and messages are still to be made: run mailstead check --rebuild again")
