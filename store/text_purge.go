package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

const (
	textGoneFor  = 24 * time.Hour
	textGoneMost = 100_000 // deleted messages that are looked at at a time
)

// PurgeText makes runs anew of which an eighth of the messages is gone, or one has been for a day.
// One call at a time, and no AddText or TidyText beside it.
func (s *Store) PurgeText(ctx context.Context) error {
	var accounts []uint32
	err := s.View(func(tx *Tx) error {
		c := tx.messageBucket(bktTextGone).Cursor()
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

// purgeText is PurgeText of one account.
func (s *Store) purgeText(ctx context.Context, account uint32) error {
	p := textPurge{drop: map[uint64]map[textPlace]bool{}}
	err := s.View(func(tx *Tx) (err error) {
		if p.gone, err = tx.textGoneOf(account); err != nil {
			return err
		}
		runs, err := tx.textRuns(account)
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
func (p *textPurge) findStale(tx *Tx, account uint32, runs []textRun) error {
	before := tx.Now().Add(-textGoneFor)
	again := map[textPlace]bool{}
	var kept []textPlace
	for _, r := range slices.Backward(runs) {
		if r.state != textReady {
			continue
		}
		places, err := tx.allPlaces(&r)
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
			if !again[place] && tx.isInInbox(account, place[:]) {
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
		if at := parsePlace(place[:], 0); tx.isUnindexed(account, at.Mailbox, at.UID) {
			delete(p.gone, place)
		}
	}
	return nil
}

func (tx *Tx) textGoneOf(account uint32) (map[textPlace]time.Time, error) {
	gone := map[textPlace]time.Time{}
	prefix := binary.BigEndian.AppendUint32(nil, account)
	for k, v := range tx.ascend(tx.messageBucket(bktTextGone), prefix) {
		if !bytes.HasPrefix(k, prefix) || len(gone) == textGoneMost {
			break
		}
		if len(k) != 4+placeSize || len(v) != 8 {
			return nil, fmt.Errorf("deleted message %x of the text index: %w", k, ErrTextDamaged)
		}
		gone[textPlace(k[4:])] = time.Unix(int64(binary.BigEndian.Uint64(v)), 0)
	}
	return gone, nil
}

// deleteTextGone deletes the notes of messages that no run has any more.
func (s *Store) deleteTextGone(ctx context.Context, account uint32, gone map[textPlace]time.Time) error {
	var keys [][]byte
	for place := range gone {
		keys = append(keys, append(binary.BigEndian.AppendUint32(nil, account), place[:]...))
	}
	slices.SortFunc(keys, bytes.Compare)
	for piece := range slices.Chunk(keys, textDropRows) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.Update(func(tx *Tx) error {
			for _, key := range piece {
				if err := tx.deleteRow(bktTextGone, key); err != nil {
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
