package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/mailstead/mailstead/store/postings"
)

const (
	textRunDocs  = 30_000
	textRunBytes = 8 << 20   // of blocks; a run that has reached this or half of textRunDocs stays as it is
	textFan      = 8         // runs of one size that become one
	textPiece    = 256 << 10 // bytes that one transaction of a merge writes, so that others wait for a moment only
	textDropRows = 500       // that one transaction deletes
)

// TidyText merges the runs of an account, or of all if that is 0, of which there are too many, and
// deletes what merges that did not come to their end have left. A ResetText that did not is done
// again. One call at a time, and no AddText beside it.
func (s *Store) TidyText(ctx context.Context, account uint32) error {
	for {
		var runs []textRun
		resetting := false
		err := s.View(func(tx *Tx) (err error) {
			resetting = tx.messageBucket(bktTextTodo).Sequence() == textResetting
			if !resetting {
				runs, err = tx.textRuns(account)
			}
			return err
		})
		if resetting {
			return s.ResetText()
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
		if groups[at] = append(groups[at], r); len(groups[at]) == textFan {
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
func (s *Store) mergeText(ctx context.Context, old []textRun, drop map[textPlace]bool) error {
	var d *textRunData
	err := s.View(func(tx *Tx) (err error) {
		d, err = tx.mergedText(old, drop)
		return err
	})
	if err != nil {
		return err
	}
	run, err := s.writeText(ctx, d)
	if err != nil {
		return err
	}
	err = s.Update(func(tx *Tx) error {
		if run != nil {
			run.state = textReady
			if err := tx.putTextRun(run); err != nil {
				return err
			}
		}
		for _, r := range old {
			r.state = textDropping
			if err := tx.putTextRun(&r); err != nil {
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
func (s *Store) writeText(ctx context.Context, d *textRunData) (run *textRun, err error) {
	if len(d.places) == 0 {
		return nil, nil
	}
	err = s.Update(func(tx *Tx) error {
		run, err = d.start(tx, textBuilding)
		return err
	})
	if err != nil {
		return nil, err
	}
	rows := d.all(run)
	for len(rows) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, size := 0, 0
		for n < len(rows) && size < textPiece {
			size += len(rows[n].value)
			n++
		}
		if err := s.Update(func(tx *Tx) error { return tx.putTextRows(rows[:n]) }); err != nil {
			return nil, err
		}
		rows = rows[n:]
	}
	return run, nil
}

// dropTextRun deletes a run that is not searched any more.
func (s *Store) dropTextRun(ctx context.Context, r *textRun) error {
	for done := false; !done; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.Update(func(tx *Tx) (err error) {
			done, err = tx.dropTextRows(r, textDropRows)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mergedText reads the runs and gives what they come to together.
func (tx *Tx) mergedText(runs []textRun, drop map[textPlace]bool) (*textRunData, error) {
	d := &textRunData{account: runs[0].account}
	var parts []*postings.Part
	for i := range runs {
		places, err := tx.allPlaces(&runs[i])
		if err != nil {
			return nil, err
		}
		parts = append(parts, &postings.Part{Words: tx.textWords(&runs[i], nil), Places: places})
	}
	var err error
	d.places, d.blocks, d.size, err = postings.Merge(parts, func(place textPlace) bool {
		return !drop[place] && tx.isInInbox(d.account, place[:])
	})
	if err != nil {
		return nil, fmt.Errorf("merge runs of the text index: %w", err)
	}
	return d, nil
}

// isInInbox tells whether the message of a place is there.
func (tx *Tx) isInInbox(account uint32, place []byte) bool {
	at := parsePlace(place, 0)
	key := messageKey(at.Mailbox, InboxID, at.UID)
	row := tx.getRow(bktMessage, key[:])
	return len(row) >= messageRowSize && binary.BigEndian.Uint32(row[3:]) == account && bytes.Equal(row[7:15], place[:8])
}
