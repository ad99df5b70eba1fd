package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
)

// A Position is a place in the order in which records are appended: every record that is appended
// after End has given a position is at that position or behind it.
type Position struct{ Segment, Offset uint32 }

// Compare orders positions.
func (p Position) Compare(other Position) int {
	return Ref{Segment: p.Segment, Offset: p.Offset}.Compare(Ref{Segment: other.Segment, Offset: other.Offset})
}

// Position is where the record stands.
func (r Ref) Position() Position { return Position{r.Segment, r.Offset} }

// End is the position behind all records.
func (s *Store) End() Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active == nil {
		return Position{s.next, 0}
	}
	return Position{s.active.number, uint32(s.end)}
}

// Accepted calls fn for each whole record from a position on that AppendAccepted has appended, in
// the order of their positions. Damage is reported to the log.
func (s *Store) Accepted(from Position, fn func(Ref, []byte) error) error {
	for _, info := range s.List() {
		if info.Number < from.Segment {
			continue
		}
		start := int64(fileHead)
		if info.Number == from.Segment {
			start = max(start, int64(from.Offset))
		}
		if start >= info.Size {
			continue
		}
		if err := s.acceptedIn(info, start, fn); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) acceptedIn(info Info, start int64, fn func(Ref, []byte) error) error {
	sf, err := s.files.acquire(info.Number)
	if errors.Is(err, ErrDamaged) {
		s.log.Error("message segment cannot be read; mail that was accepted last may be in it", "segment", s.files.path(info.Number), "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer s.files.release(sf)
	w := newScanner(sf.f, info.Size, sf.head.mark)
	for off := start; off < info.Size; {
		rec, err := w.head(off) // bodies of others are not read
		if err == nil && rec.flags&flagAccepted != 0 {
			rec, err = w.record(off)
		}
		if err == nil {
			if rec.flags&flagAccepted != 0 {
				env := slices.Clone(w.env) // that of the next record takes its place
				if err := fn(Ref{info.Number, uint32(off), rec.head, uint32(rec.body)}, env); err != nil {
					return err
				}
			}
			off += rec.size()
			continue
		}
		if !errors.Is(err, ErrDamaged) {
			return err
		}
		next, err := w.skip(off, rec)
		if err != nil {
			return err
		}
		if unused, err := w.zero(off, next); err != nil {
			return err
		} else if !unused {
			s.log.Error("damage among the messages that were accepted last", "segment", sf.f.Name(), "offset", off, "bytes", next-off)
		}
		off = next
	}
	return nil
}

// Unfiled are the records that were accepted and of which nothing is made yet.
type Unfiled struct {
	mu    sync.Mutex
	next  int
	least map[int]Position // where each of them is, or may be from; by token
	token map[Position]int
}

// NewUnfiled returns an Unfiled without records.
func NewUnfiled() *Unfiled {
	return &Unfiled{least: map[int]Position{}, token: map[Position]int{}}
}

// Begin announces a record that will be appended at a position or behind it.
func (u *Unfiled) Begin(from Position) (token int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.next++
	u.least[u.next] = from
	return u.next
}

// Appended says where the record is.
func (u *Unfiled) Appended(token int, at Position) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.least[token] = at
	u.token[at] = token
}

// Abandon forgets a record that was not appended.
func (u *Unfiled) Abandon(token int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.least, token)
}

// Filed forgets the record at a position.
func (u *Unfiled) Filed(at Position) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.least, u.token[at])
	delete(u.token, at)
}

// First is the position from which on there may be records that are not filed; end if there are
// none.
func (u *Unfiled) First(end Position) Position {
	u.mu.Lock()
	defer u.mu.Unlock()
	first := end
	for _, at := range u.least {
		if at.Compare(first) < 0 {
			first = at
		}
	}
	return first
}

// Len is how many there are.
func (u *Unfiled) Len() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.least)
}

// A FiledMark says which accepted records are filed: all that are before From, and Done.
type FiledMark struct {
	From Position
	Done []Position // ascending, none before From
}

// Has tells whether the record at a position is filed.
func (m *FiledMark) Has(at Position) bool {
	_, done := slices.BinarySearchFunc(m.Done, at, Position.Compare)
	return done || at.Compare(m.From) < 0
}

// Add notes that the records at some positions are filed; from says before which all are.
func (m *FiledMark) Add(from Position, at []Position) {
	if from.Compare(m.From) > 0 {
		m.From = from
	}
	m.Done = append(m.Done, at...)
	sort.Slice(m.Done, func(i, j int) bool { return m.Done[i].Compare(m.Done[j]) < 0 })
	m.Done = slices.DeleteFunc(slices.Compact(m.Done), func(p Position) bool { return p.Compare(m.From) < 0 })
}

const markVersion = 1

// Row gives the mark as bytes: version 1 | from: segment 4, offset 4 | each of Done the same.
func (m *FiledMark) Row() []byte {
	out := append(make([]byte, 0, 9+8*len(m.Done)), markVersion)
	for _, p := range append([]Position{m.From}, m.Done...) {
		out = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(out, p.Segment), p.Offset)
	}
	return out
}

// ParseMark reads what Row gave; of nothing it makes the mark of a store in which nothing was
// accepted.
func ParseMark(row []byte) (m FiledMark, err error) {
	if len(row) == 0 {
		return m, nil
	}
	if row[0] != markVersion {
		return m, fmt.Errorf("mark of what is filed: %w", ErrNewer)
	}
	if len(row) < 9 || len(row)%8 != 1 {
		return m, fmt.Errorf("mark of what is filed: %w", ErrDamaged)
	}
	for at := row[1:]; len(at) > 0; at = at[8:] {
		p := Position{binary.BigEndian.Uint32(at), binary.BigEndian.Uint32(at[4:])}
		if len(at) == len(row)-1 {
			m.From = p
		} else {
			m.Done = append(m.Done, p)
		}
	}
	return m, nil
}
