package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/segment"
)

const (
	compactBlobs = 128     // blobs moved in one transaction
	compactBytes = 2 << 20 // bytes copied before one transaction; more would make other writes wait long for the sync
)

// Compact frees the disk space of deleted messages. A blob is live while a row refers to it, and a
// segment without live blobs is dead. Compact first records up to where all messages are filed, so
// that the next Open has little to read even after a crash. Then it removes segments that have been
// dead for Options.Grace, and copies the live blobs out of segments that are less than half live.
// It may be called at any time and stopped at any point. A segment with damage is kept and named in
// the error; the others are still compacted.
func (s *Store) Compact(ctx context.Context) error {
	if err := s.compact.lock(ctx); err != nil {
		return err
	}
	defer s.compact.unlock()
	var errs []error
	if err := s.recordFiledEnd(); err != nil {
		errs = append(errs, fmt.Errorf("write the mark of filed messages: %w", err))
	}
	full, err := s.fullSegments(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	// Dead segments are removed first: the copies may need their space.
	for _, step := range []func(context.Context, segment.Info) error{s.removeDeadSegment, s.moveLiveBlobs} {
		for _, info := range full {
			if err := ctx.Err(); err != nil {
				return errors.Join(append(errs, err)...)
			}
			if err := step(ctx, info); err != nil {
				errs = append(errs, fmt.Errorf("compact segment %08x: %w", info.Number, err))
			}
		}
	}
	return errors.Join(errs...)
}

// fullSegments returns the segments that take no more messages, except for those that
// keepExistingSegments protects. It waits for running appends. So every blob in these segments is
// leased, live or dead for good.
func (s *Store) fullSegments(ctx context.Context) ([]segment.Info, error) {
	full := s.seg.List()
	if err := s.leases.WaitAppends(ctx); err != nil {
		return nil, err
	}
	err := s.View(func(tx *Tx) error {
		kept := tx.Bucket(mailrow.BucketLive).Sequence() // see keepExistingSegments
		full = slices.DeleteFunc(full, func(i segment.Info) bool { return i.Active || uint64(i.Number) <= kept })
		return nil
	})
	return full, err
}

// removeDeadSegment removes a segment that has been dead for the grace period. A dead segment stays
// dead: no row can begin to refer to a blob without a lease or another reference.
func (s *Store) removeDeadSegment(_ context.Context, info segment.Info) error {
	if s.leases.InSegment(info.Number) {
		return nil
	}
	var live int64
	var oldest time.Time // time of the oldest kept entry: a backup of that entry may need the bytes
	var kept bool
	// This is an Update since a View may see a commit before it is on disk.
	err := s.Update(func(tx *Tx) (err error) {
		oldest, kept = tx.OldestEntryTime()
		live, err = mailindex.LiveBytes(&tx.Tx, info.Number)
		return err
	})
	if err != nil || live != 0 {
		return err
	}
	now := s.clock.Now()
	since, known := s.compact.dead[info.Number]
	if !known {
		since = now
		s.compact.dead[info.Number] = now
	}
	if now.Sub(since) < s.compact.grace || kept && !oldest.After(since) {
		return nil
	}
	s.compact.removing.Lock()
	defer s.compact.removing.Unlock()
	if s.compact.snapshots > 0 {
		return nil
	}
	delete(s.compact.dead, info.Number)
	killpoint.At("compact.remove")
	return s.seg.Remove(info.Number)
}

// moveLiveBlobs moves every live blob out of a segment that is less than half live.
func (s *Store) moveLiveBlobs(ctx context.Context, info segment.Info) error {
	if s.leases.InSegment(info.Number) {
		return nil
	}
	var live int64
	err := s.View(func(tx *Tx) (err error) {
		live, err = mailindex.LiveBytes(&tx.Tx, info.Number)
		return err
	})
	if err != nil || live == 0 || live*2 >= info.Size {
		return err
	}
	began := time.Now()
	var pace Pacer
	var errs []error
	for from := uint32(0); ; {
		blobs, err := s.liveBlobs(info.Number, from)
		if err != nil {
			return err
		}
		if len(blobs) == 0 {
			break
		}
		if err := s.moveBlobs(ctx, blobs); err != nil {
			errs = append(errs, err)
			if !errors.Is(err, segment.ErrDamaged) {
				return errors.Join(errs...)
			}
		}
		if err := pace.Rest(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
		from = blobs[len(blobs)-1].Offset + 1
	}
	s.log.Info("live messages were moved out of a segment", "segment", fmt.Sprintf("%08x", info.Number), "bytes", live, "of", info.Size, "took", time.Since(began).Round(time.Millisecond))
	return errors.Join(append(errs, s.removeDeadSegment(ctx, info))...)
}

// liveBlobs returns the next live blobs of a segment in the order of offsets, from the offset
// fromOffset on: at most compactBlobs of them, with little more than compactBytes in total.
func (s *Store) liveBlobs(segment, fromOffset uint32) (blobs []BlobRef, err error) {
	err = s.View(func(tx *Tx) error {
		var size int64
		first := mailrow.BlobPrefix(BlobRef{Segment: segment, Offset: fromOffset})
		for k, row := range tx.Ascend(mailrow.BucketRef, first[:]) {
			ref, _, err := mailrow.DecodeRef(k, row)
			if err != nil {
				return err
			}
			if ref.Segment != segment || len(blobs) == compactBlobs || size > compactBytes {
				break
			}
			if len(blobs) > 0 && blobs[len(blobs)-1] == ref {
				continue
			}
			blobs = append(blobs, ref)
			size += ref.Size()
		}
		return nil
	})
	return blobs, err
}

// moveBlobs copies the blobs and then, in one transaction, makes all references to them refer to
// the copies. Damaged blobs are not moved, and the error names them.
func (s *Store) moveBlobs(ctx context.Context, blobs []BlobRef) error {
	var errs []error
	var moves []blobMove
	defer func() {
		for _, move := range moves {
			s.leases.Release(move.to)
		}
	}()
	for _, from := range blobs {
		if err := ctx.Err(); err != nil {
			return err
		}
		to, err := s.copyBlob(from)
		if errors.Is(err, segment.ErrDamaged) {
			errs = append(errs, err)
			continue
		}
		if err != nil {
			return err
		}
		moves = append(moves, blobMove{from, to})
	}
	killpoint.At("compact.copied")
	err := s.Update(func(tx *Tx) error {
		for _, move := range moves {
			if err := tx.repointRefs(move); err != nil {
				return err
			}
		}
		return nil
	})
	killpoint.At("compact.moved")
	return errors.Join(append(errs, err)...)
}

// copyBlob appends a copy of a blob to the segments, and leases it: until Release the copy is kept,
// although no row refers to it yet.
func (s *Store) copyBlob(from BlobRef) (BlobRef, error) {
	done := s.leases.BeginAppend()
	defer done()
	to, err := s.seg.Copy(from)
	if err != nil {
		return BlobRef{}, s.appendError(err)
	}
	s.leases.Add(to)
	return to, nil
}

// repointRefs makes all references to a blob refer to its copy, and moves the row with the MIME
// structure of the message. If no row refers to the blob any more, it does nothing.
func (tx *Tx) repointRefs(move blobMove) error {
	owners, err := mailindex.Owners(&tx.Tx, move.from)
	if err != nil || len(owners) == 0 {
		return err
	}
	from, to := mailrow.BlobPrefix(move.from), mailrow.BlobPrefix(move.to)
	structure, err := mailindex.Structure(&tx.Tx, from[:])
	if structure != nil && err == nil { // DropRef of the last reference deletes the old row
		err = mailindex.PutStructure(&tx.Tx, to[:], structure)
	}
	if err != nil {
		return err
	}
	for _, owner := range owners {
		if err := mailindex.AddRef(&tx.Tx, move.to, owner); err != nil {
			return err
		}
		if err := tx.repointOwner(owner, move); err != nil {
			return err
		}
		if err := mailindex.DropRef(&tx.Tx, move.from, owner); err != nil {
			return err
		}
	}
	return nil
}

// repointOwner makes the message or record that owns a blob refer to its copy. It skips a message
// or record that is gone or has another blob: Check reports such damage.
func (tx *Tx) repointOwner(owner []byte, move blobMove) error {
	if b, id := blobTableOf(owner); b != nil {
		return b.repoint(tx, id, move)
	}
	m, err := mailindex.OwnerMessage(&tx.Tx, owner)
	if errors.Is(err, ErrNotFound) || err == nil && m.Blob != move.from {
		return nil
	}
	if err != nil {
		return err
	}
	m.Blob = move.to
	key := m.Key()
	return tx.PutRow(mailrow.BucketMessage, key[:], m.Row())
}
