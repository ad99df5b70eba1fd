package store

import (
	"bytes"
	"iter"

	bolt "go.etcd.io/bbolt"
)

// ascend walks a bucket upwards from the first key that is not before from. Whoever walks may write
// to the bucket: the walk then finds its place again by the key, since writes move what a bbolt
// cursor points at.
func (tx *Tx) ascend(b *bolt.Bucket, from []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		c := b.Cursor()
		k, v := c.Seek(from)
		for k != nil {
			tx.steps++
			writes := tx.writes
			if !yield(k, v) {
				return
			}
			if writes == tx.writes {
				k, v = c.Next()
				continue
			}
			at := k
			if k, v = c.Seek(at); bytes.Equal(k, at) {
				k, v = c.Next()
			}
		}
	}
}

// descend walks a bucket downwards, from the last key under the prefix, or from the last one before
// `before` if that is not empty, to the first key under the prefix. Whoever walks may write to the
// bucket.
func (tx *Tx) descend(b *bolt.Bucket, prefix, before []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		if len(before) == 0 {
			before = after(prefix)
		}
		c := b.Cursor()
		for k, v := seekBefore(c, before); k != nil && bytes.HasPrefix(k, prefix); {
			tx.steps++
			writes := tx.writes
			if !yield(k, v) {
				return
			}
			if writes == tx.writes {
				k, v = prev(c, k)
				continue
			}
			k, v = seekBefore(c, k)
		}
	}
}

// seekBefore moves c to the last key before end; nil stands for the end of the bucket.
func seekBefore(c *bolt.Cursor, end []byte) (k, v []byte) {
	if end != nil {
		if k, _ = c.Seek(end); k != nil {
			return prev(c, k)
		}
	}
	// bbolt's Last never returns from a bucket whose pages this transaction has emptied, all of
	// them.
	if k, _ = c.First(); k == nil {
		return nil, nil
	}
	return c.Last()
}

// prev moves c, which is at the key `at`, to the key before it. A page that this transaction has
// emptied looks to bbolt's Prev like the start of the bucket; behind it the walk goes on.
func prev(c *bolt.Cursor, at []byte) (k, v []byte) {
	if k, v = c.Prev(); k != nil || !c.Bucket().Writable() {
		return k, v
	}
	if first, _ := c.Bucket().Cursor().First(); first == nil || bytes.Compare(first, at) >= 0 {
		return nil, nil
	}
	for k == nil {
		k, v = c.Prev()
	}
	return k, v
}

// after is the first key that is after every key of the prefix; nil if there is none.
func after(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}
