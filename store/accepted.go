package store

import (
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/segment"
)

// bucketAccepted has one row, which says which accepted messages are filed. A message from outside
// is accepted, and acknowledged to its sender, once its record is on disk. A later transaction
// files it: it writes its rows, events and jobs, and updates that row. After a crash, Open finds
// the messages that are accepted but not filed.
var bucketAccepted = engine.NewBucket("accepted")

const filedRowKey = "filed"

// An AcceptedMessage is a message that was acknowledged and is not filed yet.
type AcceptedMessage struct {
	Blob     BlobRef
	Envelope []byte
}

// AppendAccepted writes a message with its envelope, as Append does, and syncs it to disk, so that
// it may be acknowledged. The caller then files the message: in a transaction that calls MarkFiled,
// it writes the rows, events and jobs that follow from the envelope. If the process ends before
// that, Unfiled returns the message after the next start.
func (s *Store) AppendAccepted(envelope []byte, body *Spool) (BlobRef, error) {
	if err := s.checkAppend(); err != nil {
		return BlobRef{}, err
	}
	done := s.leases.BeginAppend()
	defer done()
	token := s.unfiled.Begin(s.seg.End())
	ref, err := s.seg.AppendAccepted(envelope, body)
	if err != nil {
		s.unfiled.Abandon(token)
		return BlobRef{}, s.appendError(err)
	}
	s.leases.Add(ref)
	s.unfiled.SetAppended(token, ref.Position())
	killpoint.At("accept.appended")
	if err := s.seg.Sync(); err != nil {
		return BlobRef{}, s.Fail(err)
	}
	killpoint.At("accept.synced")
	return ref, nil
}

// MarkFiled marks accepted messages as filed: all their rows, events and jobs are written by this
// transaction or an earlier one.
func (tx *Tx) MarkFiled(refs ...BlobRef) error {
	mark, err := readFiledMark(engine.Bolt(tx))
	if err != nil {
		return err
	}
	at := make([]segment.Position, 0, len(refs))
	for _, ref := range refs {
		at = append(at, ref.Position())
	}
	// unfiled still has these messages: they are removed from it once this transaction is on disk.
	mark.Add(tx.s.unfiled.First(tx.s.seg.End()), at)
	tx.After(func() {
		for _, p := range at {
			tx.s.unfiled.MarkFiled(p)
		}
	})
	tx.MayUseReserve()
	return tx.PutRow(bucketAccepted, []byte(filedRowKey), bucketAccepted.Sum().Seal([]byte(filedRowKey), mark.Row()))
}

// readFiledMark reads the mark that says which accepted messages are filed.
func readFiledMark(b *bolt.Tx) (segment.FiledMark, error) {
	return parseFiledMark(b.Bucket([]byte(bucketAccepted.Name())).Get([]byte(filedRowKey)))
}

// parseFiledMark parses the row that marks the filed messages. In older stores the row has no
// checksum, and its length is 8n+1 bytes.
func parseFiledMark(row []byte) (m segment.FiledMark, err error) {
	if len(row)%8 != 1 && row != nil {
		row, err = bucketAccepted.Sum().Open([]byte(filedRowKey), row)
		if err != nil {
			return m, fmt.Errorf("read the mark of filed messages: %w", err)
		}
	}
	return segment.ParseMark(row)
}

// Unfiled returns the messages that were acknowledged but not filed when the store was opened, in
// the order in which they came. Their bytes are kept until they are filed.
func (s *Store) Unfiled() []AcceptedMessage { return s.unfiledAtOpen }

// UnfiledCount returns the number of messages that are acknowledged but not filed.
func (s *Store) UnfiledCount() int { return s.unfiled.Len() }

// findUnfiled finds the messages that were acknowledged but not filed, and stores them in
// unfiledAtOpen.
func (s *Store) findUnfiled() error {
	var mark segment.FiledMark
	err := s.db.View(func(tx *engine.Tx) (err error) {
		mark, err = readFiledMark(engine.Bolt(tx))
		return err
	})
	if err != nil {
		return err
	}
	err = s.seg.EachAccepted(mark.From, func(ref BlobRef, env []byte) error {
		if mark.Has(ref.Position()) {
			return nil
		}
		s.unfiledAtOpen = append(s.unfiledAtOpen, AcceptedMessage{ref, env})
		s.unfiled.SetAppended(s.unfiled.Begin(ref.Position()), ref.Position())
		s.leases.Add(ref)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read accepted messages: %w", err)
	}
	return nil
}

// initFiledMark writes the mark of filed messages if there is none. It marks all messages that are
// in the segments as filed.
func (s *Store) initFiledMark(b *bolt.Tx) error {
	bucket := b.Bucket([]byte(bucketAccepted.Name()))
	if bucket.Get([]byte(filedRowKey)) != nil {
		return nil
	}
	mark := segment.FiledMark{From: s.seg.End()}
	return bucket.Put([]byte(filedRowKey), bucketAccepted.Sum().Seal([]byte(filedRowKey), mark.Row()))
}
