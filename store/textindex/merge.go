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
	textRunDocs  = 30_000
	textRunBytes = 8 << 20   // of blocks; a run that has reached this or half of textRunDocs stays as it is
	fan          = 8         // runs of one size that become one
	textPiece    = 256 << 10 // bytes that one transaction of a merge writes, so that others wait for a moment only
	textDropRows = 500       // that one transaction deletes
)

// Tidy merges the runs of an account, or of all if that is 0, of which there are too many, and
// deletes what merges that did not come to their end have left. A Reset that did not is done
// again. One call at a time, and no AddText beside it.
func (s *Index) Tidy(ctx context.Context, account uint32) error {
	for {
		var runs []textRun
		resetting := false
		err := s.View(func(tx *mailindex.Tx) (err error) {
			resetting = tx.Bucket(mailrow.BucketTextTodo).Sequence() == Resetting
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
				if err := s.dropTextRun(ctx, &r); err != nil {
					return err
				}
			}
		}
		group := textGroup(runs)
		if len(group) == 0 {
			return nil
		}
		if err := s.mergeText(ctx, group, nil); err != nil {
			return err
		}
	}
}

// textGroup picks runs of one account and about one size that are to become one; none if there are
// few.
func textGroup(runs []textRun) []textRun {
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
		if len(groups[at]) == fan {
			return textGroupFits(groups[at])
		}
	}
	return nil
}

// textGroupFits gives as many of the first runs as one run can take, which are two at least.
func textGroupFits(runs []textRun) []textRun {
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

// mergeText makes one run of several, without the messages that are gone and those of drop.
func (s *Index) mergeText(ctx context.Context, old []textRun, drop map[textPlace]bool) error {
	var d *textRunData
	err := s.View(func(tx *mailindex.Tx) (err error) {
		d, err = mergedText(tx, old, drop)
		return err
	})
	if err != nil {
		return err
	}
	run, err := s.writeText(ctx, d)
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
		if err := s.dropTextRun(ctx, &r); err != nil {
			return err
		}
	}
	return nil
}

// writeText writes the rows of a run, which is not searched yet; nil if it has no messages.
func (s *Index) writeText(ctx context.Context, d *textRunData) (run *textRun, err error) {
	if len(d.places) == 0 {
		return nil, nil
	}
	err = s.Update(func(tx *mailindex.Tx) error {
		run, err = d.start(tx, textBuilding)
		return err
	})
	if err != nil {
		return nil, err
	}
	rows := d.all(run)
	for len(rows) > 0 {
		killpoint.At("text.merge")
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, size := 0, 0
		for n < len(rows) && size < textPiece {
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

// dropTextRun deletes a run that is not searched any more.
func (s *Index) dropTextRun(ctx context.Context, r *textRun) error {
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		killpoint.At("text.drop")
		err := s.Update(func(tx *mailindex.Tx) (err error) {
			done, err = dropTextRows(tx, r, textDropRows)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mergedText reads the runs and gives what they come to together.
func mergedText(tx *mailindex.Tx, runs []textRun, drop map[textPlace]bool) (*textRunData, error) {
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
		return !drop[place] && isThere(tx, d.account, place[:])
	})
	if err != nil {
		return nil, fmt.Errorf("merge runs of the text index: %w", err)
	}
	return d, nil
}

// isThere tells whether the message of a place is there.
func isThere(tx *mailindex.Tx, account uint32, place []byte) bool {
	at := mailrow.ParsePlace(place, 0)
	mailbox, folder := tx.FolderOfNum(at.Num)
	key := mailrow.MessageKey(mailbox, folder, at.UID)
	row := tx.GetRow(mailrow.BucketMessage, key[:])
	return len(row) >= mailrow.MessageRowSize && binary.BigEndian.Uint32(row[3:]) == account && bytes.Equal(row[7:15], place[:8])
}

const (
	textGoneFor  = 24 * time.Hour
	textGoneMost = 100_000 // deleted messages that are looked at at a time
)

// Purge makes runs anew of which an eighth of the messages is gone, or one has been for a day.
// One call at a time, and no AddText or Tidy beside it.
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
		if err := s.purgeText(ctx, account); err != nil {
			return err
		}
	}
	return err
}

// purgeText is Purge of one account.
func (s *Index) purgeText(ctx context.Context, account uint32) error {
	p := textPurge{drop: map[uint64]map[textPlace]bool{}}
	err := s.View(func(tx *mailindex.Tx) (err error) {
		p.gone, err = textGoneOf(tx, account)
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
		if err := s.mergeText(ctx, []textRun{r}, p.drop[r.id]); err != nil {
			return err
		}
	}
	return s.deleteTextGone(ctx, account, p.gone)
}

// A textPurge finds the runs of an account that are to be made anew.
type textPurge struct {
	gone  map[textPlace]time.Time // what was deleted; in the end what no run will have any more
	stale []textRun
	drop  map[uint64]map[textPlace]bool // by run, what it must not keep although another message has its place now
}

// findStale goes through the runs, the newest first: that is the one to keep what several have.
func (p *textPurge) findStale(tx *mailindex.Tx, account uint32, runs []textRun) error {
	before := tx.Now().Add(-textGoneFor)
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
			if !again[place] && isThere(tx, account, place[:]) {
				again[place] = true // there is a message in the place again, and this is the first run that has it
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
	// The notes of places whose messages of now are not indexed stay: a run may have them twice.
	for place := range p.gone {
		if at := mailrow.ParsePlace(place[:], 0); mailindex.IsUnindexed(tx, account, at.Num, at.UID) {
			delete(p.gone, place)
		}
	}
	return nil
}

func textGoneOf(tx *mailindex.Tx, account uint32) (map[textPlace]time.Time, error) {
	gone := map[textPlace]time.Time{}
	prefix := binary.BigEndian.AppendUint32(nil, account)
	for k, v := range tx.Ascend(mailrow.BucketTextGone, prefix) {
		if !bytes.HasPrefix(k, prefix) || len(gone) == textGoneMost {
			break
		}
		at, err := textGoneAt(k, v)
		if err != nil {
			return nil, err
		}
		gone[textPlace(k[4:])] = at
	}
	return gone, nil
}

// textGoneAt reads when a message was deleted.
func textGoneAt(key, row []byte) (at time.Time, err error) {
	if len(row) != 8 { // else it is from before there were checksums
		row, err = ofText(mailrow.BucketTextGone.Open(key, row))
		if err == nil {
			row = row[1:]
		}
	}
	if err == nil && (len(key) != 4+mailrow.PlaceSize || len(row) != 8) {
		err = ErrDamaged
	}
	if err != nil {
		return at, fmt.Errorf("deleted message %x of the text index: %w", key, err)
	}
	return time.Unix(int64(binary.BigEndian.Uint64(row)), 0), nil
}

// deleteTextGone deletes the notes of messages that no run has any more.
func (s *Index) deleteTextGone(ctx context.Context, account uint32, gone map[textPlace]time.Time) error {
	var keys [][]byte
	for place := range gone {
		keys = append(keys, append(binary.BigEndian.AppendUint32(nil, account), place[:]...))
	}
	slices.SortFunc(keys, bytes.Compare)
	for piece := range slices.Chunk(keys, textDropRows) {
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
