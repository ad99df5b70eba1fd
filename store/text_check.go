package store

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"

	"github.com/mailstead/mailstead/store/postings"
)

// A textCheck adds up the messages that should be in the text index, and those that are.
type textCheck struct {
	seed       maphash.Seed
	want, have textSum
	again      map[string]bool // messages with a note that one of their place is gone, which runs may have twice
}

// A textSum stands for a set of messages.
type textSum struct {
	n   int
	sum uint64
}

func (c *textCheck) add(to *textSum, account uint32, place []byte) {
	to.n++
	to.sum += maphash.Bytes(c.seed, append(binary.BigEndian.AppendUint32(nil, account), place...))
}

func (c *messageCheck) beginText() {
	c.text = textCheck{seed: maphash.MakeSeed(), again: map[string]bool{}}
	for range c.tx.TextTodos(0) {
		continue // which tells of damaged rows
	}
}

// countTextMessage counts a message of INBOX.
func (c *messageCheck) countTextMessage(m *Message) {
	if c.tx.isUnindexed(m.Account, m.Mailbox, m.UID) {
		return
	}
	place := InboxPos{m.Received, m.UID, m.Mailbox}.place()
	c.text.add(&c.text.want, m.Account, place[:])
}

// countTextPlace counts a message that a run has.
func (c *messageCheck) countTextPlace(r *textRun, place []byte) {
	key := append(binary.BigEndian.AppendUint32(nil, r.account), place...)
	noted := c.tx.getRow(bktTextGone, key) != nil
	at := parsePlace(place, 0)
	switch {
	case !c.tx.isInInbox(r.account, place):
		if !noted {
			c.add("run %d of the text index: nothing says that message %d of mailbox %d is gone", r.id, at.UID, at.Mailbox)
		}
		return
	case noted && c.text.again[string(key)], noted && c.tx.isUnindexed(r.account, at.Mailbox, at.UID):
		return // another message was in its place before
	case noted:
		c.text.again[string(key)] = true
	}
	c.text.add(&c.text.have, r.account, place)
}

// checkText verifies the text index: the form of its runs, and that each message is in one of them.
func (c *messageCheck) checkText() {
	places, words := 0, 0
	runs, err := c.tx.textRuns(0)
	if err != nil {
		c.add("%w", err)
		return
	}
	for i := range runs {
		r := &runs[i]
		p, w := c.checkTextRun(r)
		places, words = places+p, words+w
	}
	if c.text.want != c.text.have {
		c.add("%d messages should be in the text index, it has %d or others", c.text.want.n, c.text.have.n)
	}
	for bucket, rows := range map[messageBucket]int{bktTextPlace: places, bktTextWord: words} {
		if have := c.tx.messageBucket(bucket).Stats().KeyN; have != rows {
			c.add("%s has %d rows, the runs explain %d", messageBuckets[bucket], have, rows)
		}
	}
}

// checkTextRun gives how many rows a run has.
func (c *messageCheck) checkTextRun(r *textRun) (places, words int) {
	if r.state != textReady { // what an interrupted merge has left
		key := r.key()
		return c.countRows(bktTextPlace, key[:]), c.countRows(bktTextWord, key[:])
	}
	all, err := c.tx.allPlaces(r)
	if err != nil {
		c.add("%w", err)
		return 0, 0
	}
	if all[0] != r.newest || all[len(all)-1] != r.oldest {
		c.add("run %d of the text index does not say of which time its messages are", r.id)
	}
	for i, place := range all {
		if i > 0 && bytes.Compare(place[:], all[i-1][:]) >= 0 {
			c.add("run %d of the text index: message %d is out of order", r.id, i)
		}
		c.countTextPlace(r, place[:])
	}
	return (len(all) + textPlaces - 1) / textPlaces, c.checkTextWords(r)
}

func (c *messageCheck) countRows(bucket messageBucket, prefix []byte) (n int) {
	for k := range c.tx.ascend(c.tx.messageBucket(bucket), prefix) {
		if !bytes.HasPrefix(k, prefix) {
			break
		}
		n++
	}
	return n
}

// checkTextWords gives how many blocks of words a run has.
func (c *messageCheck) checkTextWords(r *textRun) (blocks int) {
	prefix := r.key()
	var last []byte
	var size int64
	for k, v := range c.tx.ascend(c.tx.messageBucket(bktTextWord), prefix[:]) {
		if !bytes.HasPrefix(k, prefix[:]) {
			break
		}
		blocks++
		size += int64(len(v))
		var block postings.BlockReader
		block.Reset(v)
		for {
			more, err := block.Next()
			if err == nil && more {
				err = block.Entry().Each(r.docs, func(uint32) {})
			}
			if err != nil {
				c.add("run %d of the text index: words up to %q: %w", r.id, k[12:], err)
				break
			}
			if !more {
				break
			}
			if bytes.Compare(block.Entry().Word, last) <= 0 {
				c.add("run %d of the text index: word %q is out of order", r.id, block.Entry().Word)
			}
			last = append(last[:0], block.Entry().Word...)
		}
		if !bytes.Equal(last, k[12:]) {
			c.add("run %d of the text index: words up to %q end with %q", r.id, k[12:], last)
		}
	}
	if size != r.bytes {
		c.add("run %d of the text index counts %d bytes, it has %d", r.id, r.bytes, size)
	}
	return blocks
}
