package textindex

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/postings"
)

const (
	textRunDocs    = 30_000    // limit on the messages of a run
	textRunBytes   = 8 << 20   // limit on the bytes of a run's blocks; a run at half of a limit is not merged
	mergeWidth     = 8         // number of runs of similar size that are merged into one
	textBytesPerTx = 256 << 10 // bytes that one transaction writes: few, so that others wait only briefly
	textRowsPerTx  = 500       // rows that one transaction deletes
)

// Tidy merges the runs of an account, or of all accounts if account is 0, until fewer than
// mergeWidth runs have a similar size. It also deletes what interrupted merges have left. If a
// Reset was interrupted, it runs Reset instead. Only one call at a time is allowed, and no Write or
// Purge meanwhile.
func (s *Index) Tidy(ctx context.Context, account uint32) error {
	for {
		var runs []textRun
		resetting := false
		err := s.View(func(tx *mailindex.Tx) (err error) {
			resetting = tx.Bucket(mailrow.BucketTextTodo).Sequence() == ResettingSequence
			if !resetting {
				runs, err = textRuns(tx, account)
			}
			return err
		})
		if resetting {
			return s.Reset()
		}
		if err != nil {
			return err
		}
		for _, r := range runs {
			if r.state != textReady {
				if err := s.deleteRun(ctx, &r); err != nil {
					return err
				}
			}
		}
		group := pickMergeGroup(runs)
		if len(group) == 0 {
			return nil
		}
		if err := s.replaceRuns(ctx, group, nil); err != nil {
			return err
		}
	}
}

// pickMergeGroup returns runs of one account and similar size to merge; nil if there are not
// enough.
func pickMergeGroup(runs []textRun) []textRun {
	type size struct {
		account uint32
		level   int
	}
	groups := map[size][]textRun{}
	for _, r := range runs {
		if r.state != textReady || r.docs >= textRunDocs/2 || r.bytes >= textRunBytes/2 {
			continue
		}
		at := size{r.account, bits.Len(uint(r.docs)) / 3}
		groups[at] = append(groups[at], r)
		if len(groups[at]) == mergeWidth {
			return firstThatFit(groups[at])
		}
	}
	return nil
}

// firstThatFit returns the longest prefix of runs that one run can hold: at least two.
func firstThatFit(runs []textRun) []textRun {
	docs, size := 0, int64(0)
	for i, r := range runs {
		docs += r.docs
		size += r.bytes
		if docs > textRunDocs || size > textRunBytes {
			return runs[:i]
		}
	}
	return runs
}

// replaceRuns replaces runs by one new run. It leaves out messages that no longer exist, and those
// at the places in `drop`.
func (s *Index) replaceRuns(ctx context.Context, old []textRun, drop map[textPlace]bool) error {
	var d *textRunData
	err := s.View(func(tx *mailindex.Tx) (err error) {
		d, err = readMerged(tx, old, drop)
		return err
	})
	if err != nil {
		return err
	}
	run, err := s.writeRun(ctx, d)
	if err != nil {
		return err
	}
	err = s.Update(func(tx *mailindex.Tx) error {
		if run != nil {
			run.state = textReady
			if err := putTextRun(tx, run); err != nil {
				return err
			}
		}
		for _, r := range old {
			r.state = textDropping
			if err := putTextRun(tx, &r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range old {
		if err := s.deleteRun(ctx, &r); err != nil {
			return err
		}
	}
	return nil
}

// writeRun writes a run in state textBuilding, in several transactions. It returns nil if the run
// has no messages.
func (s *Index) writeRun(ctx context.Context, d *textRunData) (run *textRun, err error) {
	if len(d.places) == 0 {
		return nil, nil
	}
	err = s.Update(func(tx *mailindex.Tx) error {
		run, err = d.createRun(tx, textBuilding)
		return err
	})
	if err != nil {
		return nil, err
	}
	rows := d.rows(run)
	for len(rows) > 0 {
		killpoint.At("text.merge")
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, size := 0, 0
		for n < len(rows) && size < textBytesPerTx {
			size += len(rows[n].value)
			n++
		}
		if err := s.Update(func(tx *mailindex.Tx) error { return putTextRows(tx, rows[:n]) }); err != nil {
			return nil, err
		}
		rows = rows[n:]
	}
	return run, nil
}

// deleteRun deletes a run that is no longer searched.
func (s *Index) deleteRun(ctx context.Context, r *textRun) error {
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		killpoint.At("text.drop")
		err := s.Update(func(tx *mailindex.Tx) (err error) {
			done, err = deleteRunRows(tx, r, textRowsPerTx)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readMerged returns the merged content of runs, without writing it.
func readMerged(tx *mailindex.Tx, runs []textRun, drop map[textPlace]bool) (*textRunData, error) {
	d := &textRunData{account: runs[0].account}
	var parts []*postings.Part
	for i := range runs {
		places, err := allPlaces(tx, &runs[i])
		if err != nil {
			return nil, err
		}
		parts = append(parts, &postings.Part{Words: wordsFrom(tx, &runs[i], nil), Places: places})
	}
	var err error
	d.places, d.blocks, d.size, err = postings.Merge(parts, func(place textPlace) bool {
		return !drop[place] && messageExists(tx, d.account, place[:])
	})
	if err != nil {
		return nil, fmt.Errorf("merge runs of the text index: %w", err)
	}
	return d, nil
}

// messageExists reports whether the account has a message at the place.
func messageExists(tx *mailindex.Tx, account uint32, place []byte) bool {
	at := mailrow.ParsePlace(place, 0)
	mailbox, folder := tx.FolderOfNum(at.Num)
	key := mailrow.MessageKey(mailbox, folder, at.UID)
	row := tx.GetRow(mailrow.BucketMessage, key[:])
	return len(row) >= mailrow.MessageRowSize && binary.BigEndian.Uint32(row[3:]) == account && bytes.Equal(row[7:15], place[:8])
}

const (
	maxDeletedAge      = 24 * time.Hour // a run is rewritten when a message in it has been deleted for this long
	maxDeletedExamined = 100_000        // limit on the deleted messages examined at a time
)

// Purge rewrites runs in which an eighth of the messages is deleted, or one has been deleted for a
// day. Only one call at a time is allowed, and no Write or Tidy meanwhile.
func (s *Index) Purge(ctx context.Context) error {
	var accounts []uint32
	err := s.View(func(tx *mailindex.Tx) error {
		c := tx.Bucket(mailrow.BucketTextGone).Cursor()
		for k, _ := c.First(); len(k) >= 4; {
			account := binary.BigEndian.Uint32(k)
			accounts = append(accounts, account)
			if account == ^uint32(0) {
				break
			}
			k, _ = c.Seek(binary.BigEndian.AppendUint32(nil, account+1))
		}
		return nil
	})
	for _, account := range accounts {
		if err := s.purgeAccount(ctx, account); err != nil {
			return err
		}
	}
	return err
}

// purgeAccount is Purge for one account.
func (s *Index) purgeAccount(ctx context.Context, account uint32) error {
	p := textPurge{drop: map[uint64]map[textPlace]bool{}}
	err := s.View(func(tx *mailindex.Tx) (err error) {
		p.gone, err = deletedMessages(tx, account)
		if err != nil {
			return err
		}
		runs, err := textRuns(tx, account)
		if err != nil {
			return err
		}
		return p.findStale(tx, account, runs)
	})
	if err != nil {
		return err
	}
	for _, r := range p.stale {
		if err := s.replaceRuns(ctx, []textRun{r}, p.drop[r.id]); err != nil {
			return err
		}
	}
	return s.deleteTextGone(ctx, account, p.gone)
}

// A textPurge finds the runs of an account that must be rewritten.
type textPurge struct {
	gone  map[textPlace]time.Time       // deleted messages; findStale leaves only those that no run will have
	stale []textRun                     // runs to rewrite
	drop  map[uint64]map[textPlace]bool // by run: places to leave out, even if another message has the place now
}

// findStale examines the runs, the newest first, and completes p. If several runs have the place of
// an existing message, only the newest of them keeps it.
func (p *textPurge) findStale(tx *mailindex.Tx, account uint32, runs []textRun) error {
	before := tx.Now().Add(-maxDeletedAge)
	again := map[textPlace]bool{}
	var kept []textPlace
	for _, r := range slices.Backward(runs) {
		if r.state != textReady {
			continue
		}
		places, err := allPlaces(tx, &r)
		if err != nil {
			return err
		}
		var dead []textPlace
		old, drop := false, map[textPlace]bool{}
		for _, place := range places {
			at, gone := p.gone[place]
			if !gone {
				continue
			}
			if !again[place] && messageExists(tx, account, place[:]) {
				again[place] = true // this run keeps the existing message at the place
				continue
			}
			dead, drop[place] = append(dead, place), true
			old = old || at.Before(before)
		}
		if len(dead) > 0 && (old || len(dead)*8 >= r.docs) {
			p.stale = append(p.stale, r)
			p.drop[r.id] = drop
			continue
		}
		kept = append(kept, dead...)
	}
	for _, place := range kept {
		delete(p.gone, place)
	}
	// Keep the BucketTextGone row of a place whose present message is not indexed yet. Later an old
	// run and a new run may both have the place, and the row says that the old one does not count.
	for place := range p.gone {
		if at := mailrow.ParsePlace(place[:], 0); mailindex.IsUnindexed(tx, account, at.Num, at.UID) {
			delete(p.gone, place)
		}
	}
	return nil
}

// deletedMessages returns the deleted messages of an account, up to maxDeletedExamined, and when
// they were deleted.
func deletedMessages(tx *mailindex.Tx, account uint32) (map[textPlace]time.Time, error) {
	gone := map[textPlace]time.Time{}
	prefix := binary.BigEndian.AppendUint32(nil, account)
	for k, v := range tx.Ascend(mailrow.BucketTextGone, prefix) {
		if !bytes.HasPrefix(k, prefix) || len(gone) == maxDeletedExamined {
			break
		}
		at, err := deletionTime(k, v)
		if err != nil {
			return nil, err
		}
		gone[textPlace(k[4:])] = at
	}
	return gone, nil
}

// deletionTime returns when a message was deleted, from its row in BucketTextGone.
func deletionTime(key, row []byte) (at time.Time, err error) {
	if len(row) != 8 { // old rows have no checksum
		row, err = asTextDamage(mailrow.BucketTextGone.Open(key, row))
		if err == nil {
			row = row[1:]
		}
	}
	if err == nil && (len(key) != 4+mailrow.PlaceSize || len(row) != 8) {
		err = ErrDamaged
	}
	if err != nil {
		return at, fmt.Errorf("read deletion row %x of the text index: %w", key, err)
	}
	return time.Unix(int64(binary.BigEndian.Uint64(row)), 0), nil
}

// deleteTextGone deletes the rows of deleted messages that are in no run.
func (s *Index) deleteTextGone(ctx context.Context, account uint32, gone map[textPlace]time.Time) error {
	var keys [][]byte
	for place := range gone {
		keys = append(keys, append(binary.BigEndian.AppendUint32(nil, account), place[:]...))
	}
	slices.SortFunc(keys, bytes.Compare)
	for piece := range slices.Chunk(keys, textRowsPerTx) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.Update(func(tx *mailindex.Tx) error {
			for _, key := range piece {
				if err := tx.DeleteRow(mailrow.BucketTextGone, key); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
