package textindex

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/postings"
)

// A Check verifies the text index: the format of its runs, and that each message is in exactly one
// of them unless it is still to be indexed.
type Check struct {
	tx     *mailindex.Tx
	report engine.ProblemReporter

	seed         maphash.Seed
	want, have   messageSum      // the messages that should be in the index, and those that are
	reusedPlaces map[string]bool // places counted once that have a row in BucketTextGone: an older run may have them too
}

// A messageSum is the number of a set of messages and the sum of their hashes, to compare sets.
type messageSum struct {
	n   int
	sum uint64
}

// add adds a message to a sum.
func (c *Check) add(to *messageSum, account uint32, place []byte) {
	to.n++
	to.sum += maphash.Bytes(c.seed, append(binary.BigEndian.AppendUint32(nil, account), place...))
}

// NewCheck returns a check that passes each fault to report. Call AddMessage for every message,
// then CheckRuns.
func NewCheck(tx *mailindex.Tx, report engine.ProblemReporter) *Check {
	return &Check{tx: tx, report: report, seed: maphash.MakeSeed(), reusedPlaces: map[string]bool{}}
}

// AddMessage adds a message of the store to those that the index should have. num is the number of
// its folder.
func (c *Check) AddMessage(m *mailrow.Message, num uint32) {
	if mailindex.IsUnindexed(c.tx, m.Account, num, m.UID) {
		return
	}
	place := mailrow.InboxPos{Received: m.Received, UID: m.UID, Num: num}.Place()
	c.add(&c.want, m.Account, place[:])
}

// countPlace counts a message that a run has. If the message does not exist, countPlace reports
// that, unless a row of BucketTextGone says that the message was deleted.
func (c *Check) countPlace(r *textRun, place []byte) {
	key := append(binary.BigEndian.AppendUint32(nil, r.account), place...)
	noted := c.tx.GetRow(mailrow.BucketTextGone, key) != nil
	at := mailrow.ParsePlace(place, 0)
	switch {
	case !messageExists(c.tx, r.account, place):
		if !noted {
			c.report("run %d of the text index: nothing says that message %d of folder %08x is deleted", r.id, at.UID, at.Num)
		}
		return
	case noted && c.reusedPlaces[string(key)], noted && mailindex.IsUnindexed(c.tx, r.account, at.Num, at.UID):
		return // the run has a deleted message that had the same place
	case noted:
		c.reusedPlaces[string(key)] = true
	}
	c.add(&c.have, r.account, place)
}

// CheckRuns verifies every run, and that the runs have the same messages as the calls of
// AddMessage.
func (c *Check) CheckRuns() {
	for k, v := range c.tx.Ascend(mailrow.BucketTextGone, nil) {
		if _, err := deletionTime(k, v); err != nil {
			c.report("%w", err)
		}
	}
	places, words := 0, 0
	runs, err := textRuns(c.tx, 0)
	if err != nil {
		c.report("%w", err)
		return
	}
	for i := range runs {
		r := &runs[i]
		p, w := c.checkRun(r)
		places, words = places+p, words+w
	}
	if c.want != c.have {
		c.report("%d messages should be in the text index; it has %d, or other messages", c.want.n, c.have.n)
	}
	for bucket, rows := range map[*engine.Bucket]int{mailrow.BucketTextPlace: places, mailrow.BucketTextWord: words} {
		if have := c.tx.Bucket(bucket).Stats().KeyN; have != rows {
			c.report("%s has %d rows, but the runs need %d", bucket.Name(), have, rows)
		}
	}
}

// checkRun verifies a run and returns how many rows it has.
func (c *Check) checkRun(r *textRun) (places, words int) {
	if r.state != textReady { // left by an interrupted merge
		key := r.key()
		return c.countRows(mailrow.BucketTextPlace, key[:]), c.countRows(mailrow.BucketTextWord, key[:])
	}
	all, err := allPlaces(c.tx, r)
	if err != nil {
		c.report("%w", err)
		return 0, 0
	}
	if all[0] != r.newest || all[len(all)-1] != r.oldest {
		c.report("run %d of the text index has the wrong newest or oldest message", r.id)
	}
	for i, place := range all {
		if i > 0 && bytes.Compare(place[:], all[i-1][:]) >= 0 {
			c.report("run %d of the text index: message %d is out of order", r.id, i)
		}
		c.countPlace(r, place[:])
	}
	return (len(all) + placesPerRow - 1) / placesPerRow, c.checkWords(r)
}

func (c *Check) countRows(bucket *engine.Bucket, prefix []byte) (n int) {
	for k := range c.tx.Ascend(bucket, prefix) {
		if !bytes.HasPrefix(k, prefix) {
			break
		}
		n++
	}
	return n
}

// checkWords verifies the words of a run and returns how many blocks they have.
func (c *Check) checkWords(r *textRun) (blocks int) {
	prefix := r.key()
	var last []byte
	var size int64
	whole := true
	for k, v := range c.tx.Ascend(mailrow.BucketTextWord, prefix[:]) {
		if !bytes.HasPrefix(k, prefix[:]) {
			break
		}
		blocks++
		words, err := openWords(k, v)
		if err != nil {
			c.report("run %d of the text index: %w", r.id, err)
			last, whole = append(last[:0], k[12:]...), false
			continue
		}
		size += int64(len(words))
		var block postings.BlockReader
		block.Reset(words)
		for {
			more, err := block.Next()
			if err == nil && more {
				err = block.Entry().Each(r.docs, func(uint32) {})
			}
			if err != nil {
				c.report("run %d of the text index: words up to %q: %w", r.id, k[12:], err)
				break
			}
			if !more {
				break
			}
			if bytes.Compare(block.Entry().Word, last) <= 0 {
				c.report("run %d of the text index: word %q is out of order", r.id, block.Entry().Word)
			}
			last = append(last[:0], block.Entry().Word...)
		}
		if !bytes.Equal(last, k[12:]) {
			c.report("run %d of the text index: the block of words up to %q ends with %q", r.id, k[12:], last)
		}
	}
	if whole && size != r.bytes {
		c.report("run %d of the text index counts %d bytes, it has %d", r.id, r.bytes, size)
	}
	return blocks
}
