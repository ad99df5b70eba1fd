package backup

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/entry"
)

// maxEntry is the largest size of an entry that is accepted, in bytes. The store only makes smaller
// ones.
const maxEntry = 1 << 30

// An entryBatch is an object with several entries. The name of the object contains all fields of
// the batch.
type entryBatch struct {
	first, last     uint64    // numbers of the entries
	previous, nonce string    // nonces of the entry before the first one and of the last one: their first 8 bytes, in hex
	at              time.Time // time of the last entry
}

func (b *entryBatch) add(e *store.Entry) {
	if b.previous == "" {
		b.previous = shortNonce(e.Previous)
	}
	b.last, b.nonce, b.at = e.Number, shortNonce(e.Nonce), e.Time
}

func shortNonce(n entry.Nonce) string { return hex.EncodeToString(n[:8]) }

func (b *entryBatch) name() string {
	return fmt.Sprintf("entries/%016x-%016x-%s-%s-%x", b.first, b.last, b.previous, b.nonce, b.at.UnixMilli())
}

func parseBatch(name string) (b entryBatch, ok bool) {
	part := strings.Split(strings.TrimPrefix(name, "entries/"), "-")
	if len(part) != 5 || !strings.HasPrefix(name, "entries/") {
		return b, false
	}
	first, err1 := strconv.ParseUint(part[0], 16, 64)
	last, err2 := strconv.ParseUint(part[1], 16, 64)
	ms, err3 := strconv.ParseInt(part[4], 16, 64)
	b = entryBatch{first, last, part[2], part[3], time.UnixMilli(ms).UTC()}
	return b, err1 == nil && err2 == nil && err3 == nil && first <= last
}

func parseSegmentName(name string) (number uint32, ok bool) {
	digits, _, ok := strings.Cut(strings.TrimPrefix(name, "segments/"), "-")
	n, err := strconv.ParseUint(digits, 16, 32)
	return uint32(n), ok && err == nil && strings.HasPrefix(name, "segments/")
}

// writeEntry writes the length of an entry and then the entry. It returns the number of bytes of
// the entry.
func writeEntry(w io.Writer, e *store.Entry) (int64, error) {
	data := e.Marshal()
	if _, err := w.Write(binary.AppendUvarint(nil, uint64(len(data)))); err != nil {
		return 0, err
	}
	n, err := w.Write(data)
	return int64(n), err
}

// readEntries calls fn with each entry in an object.
func (t *Target) readEntries(ctx context.Context, name string, fn func(*store.Entry) error) error {
	return t.readObject(ctx, name, func(r io.Reader) error {
		in := bufio.NewReaderSize(r, 256<<10)
		for {
			size, err := binary.ReadUvarint(in)
			if err == io.EOF {
				return nil
			}
			if err == nil && size > maxEntry {
				err = entry.ErrDamaged
			}
			if err != nil {
				return err
			}
			data := make([]byte, size)
			if _, err := io.ReadFull(in, data); err != nil {
				return err
			}
			e, err := entry.Parse(data)
			if err != nil {
				return err
			}
			if err := fn(e); err != nil {
				return err
			}
		}
	})
}

// readObject calls fn with the decrypted and decompressed contents of an object.
func (t *Target) readObject(ctx context.Context, name string, fn func(io.Reader) error) error {
	in, err := t.Place.Open(ctx, name)
	if err != nil {
		return err
	}
	defer in.Close()
	from := t.drill.reader(ctx, in)
	plain, err := unseal(from, t.Identities)
	if err == nil {
		err = fn(&contentReader{plain, from})
		plain.Close()
	} else if !errors.Is(err, ErrNoIdentity) && from.err == nil {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if from.err == nil {
		err = t.drill.compare(name, from, err)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// An objectReader reads an object as it is stored, and keeps the error of the place.
type objectReader struct {
	io.Reader
	err    error         // nil: everything was read that was asked for
	summed *summedReader // set in a drill; Reader reads through it
}

// Read reads like the object.
func (r *objectReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// A contentReader reads the contents of an object. Its error is ErrDamaged if they cannot be
// decrypted or decompressed, although the place returned all bytes.
type contentReader struct {
	io.Reader
	from *objectReader
}

// Read reads like the contents.
func (r *contentReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF && r.from.err == nil {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return n, err
}

// Send sends the entries that were not sent yet, so that the target then has every commit up to
// now. It does nothing if the store keeps no entries: the first backup begins to keep them.
func (t *Target) Send(ctx context.Context, s *store.Store) error {
	t.sending.Lock()
	defer t.sending.Unlock()
	number, err := s.CommitNumber()
	if err != nil {
		return err
	}
	if t.sent == 0 {
		sent, err := t.lastSent(ctx, s)
		if err == nil && sent != 0 {
			err = t.PutKeys(ctx, s) // the master key may have been changed while this target was not in use
		}
		if err != nil || sent == 0 {
			return err
		}
		t.sent = sent
	}
	return t.sendUpTo(ctx, s, number)
}

// lastSent returns the number of the last entry of this store that the target has. If the target
// has none, it returns the number before the oldest kept entry, or 0 if no entry is kept.
func (t *Target) lastSent(ctx context.Context, s *store.Store) (uint64, error) {
	oldest, err := s.OldestEntry()
	if err != nil || oldest == 0 {
		return 0, err
	}
	sent := oldest - 1
	for o, err := range t.Place.List(ctx, "entries/") {
		if err != nil {
			return 0, err
		}
		b, ok := parseBatch(o.Name)
		if !ok || b.last <= sent {
			continue
		}
		nonce, err := s.NonceOf(b.last)
		if err == nil && shortNonce(nonce) == b.nonce {
			sent = b.last
		} else if err != nil && !errors.Is(err, store.ErrGap) {
			return 0, err
		}
	}
	return sent, nil
}

// sendUpTo sends the entries up to a number. The caller has locked t.sending.
func (t *Target) sendUpTo(ctx context.Context, s *store.Store, number uint64) error {
	for t.sent < number {
		list, err := s.Entries(t.sent, batchBytes)
		if errors.Is(err, store.ErrGap) {
			t.sent = 0 // the next backup is a full one
		}
		if err != nil {
			return err
		}
		b := entryBatch{first: t.sent + 1}
		temp, err := t.sealToFile(func(w io.Writer) error {
			for _, e := range list {
				if e.Number > number {
					break
				}
				for _, ref := range e.SeparateMessages() {
					message, err := t.sealToFile(func(w io.Writer) error { return writeMessage(w, s, ref) })
					if isLost(err) {
						e.RecordLost(ref)
						continue
					}
					if err != nil {
						return err
					}
					if err := errors.Join(t.Place.Put(ctx, messageName(ref, e.Nonce), message, message.size), message.Close()); err != nil {
						return err
					}
				}
				if _, err := writeEntry(w, e); err != nil {
					return err
				}
				b.add(e)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("write the entries from number %d on: %w", b.first, err)
		}
		killpoint.At("backup.send")
		if err := errors.Join(t.Place.Put(ctx, b.name(), temp, temp.size), temp.Close()); err != nil {
			return err
		}
		killpoint.At("backup.sent")
		t.sent = b.last
		s.ConfirmEntriesStored(b.last)
	}
	return nil
}
