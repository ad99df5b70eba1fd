package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
)

// A Position is a place in the order in which records are appended: a record appended after a call
// of End is at or after the position that End returned.
type Position struct{ Segment, Offset uint32 }

// Compare returns -1, 0 or 1, by the order of positions.
func (p Position) Compare(other Position) int {
	return Ref{Segment: p.Segment, Offset: p.Offset}.Compare(Ref{Segment: other.Segment, Offset: other.Offset})
}

// Position returns the position of the record.
func (r Ref) Position() Position { return Position{r.Segment, r.Offset} }

// End returns the position after all records.
func (s *Store) End() Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active == nil {
		return Position{s.next, 0}
	}
	return Position{s.active.number, uint32(s.end)}
}

// EachAccepted calls fn with each intact record that AppendAccepted has appended at or after the
// position `from`, and with its envelope, in the order of positions. It logs damage and goes on.
func (s *Store) EachAccepted(from Position, fn func(Ref, []byte) error) error {
	for _, info := range s.List() {
		if info.Number < from.Segment {
			continue
		}
		start := int64(fileHeadSize)
		if info.Number == from.Segment {
			start = max(start, int64(from.Offset))
		}
		if start >= info.Size {
			continue
		}
		if err := s.eachAcceptedIn(info, start, fn); err != nil {
			return err
		}
	}
	return nil
}

// eachAcceptedIn is EachAccepted for one segment, from the offset start.
func (s *Store) eachAcceptedIn(info Info, start int64, fn func(Ref, []byte) error) error {
	sf, err := s.files.acquire(info.Number)
	if errors.Is(err, ErrDamaged) {
		s.log.Error("message segment cannot be read; recently accepted mail may be in it", "segment", s.files.path(info.Number), "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer s.files.release(sf)
	w := newScanner(sf.f, info.Size, sf.head.mark)
	for off := start; off < info.Size; {
		rec, err := w.readHead(off) // the bodies of other records are not read
		if err == nil && rec.flags&flagAccepted != 0 {
			rec, err = w.readRecord(off)
		}
		if err == nil {
			if rec.flags&flagAccepted != 0 {
				env := slices.Clone(w.env) // the scanner reuses w.env for the next record
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
		next, err := w.nextOffset(off, rec)
		if err != nil {
			return err
		}
		if unused, err := w.isAllZero(off, next); err != nil {
			return err
		} else if !unused {
			s.log.Error("damage in a message segment, among recently accepted messages", "segment", sf.f.Name(), "offset", off, "bytes", next-off)
		}
		off = next
	}
	return nil
}

// Unfiled tracks the accepted records that are not filed yet: nothing in the database refers to
// their messages. It is safe for concurrent use.
type Unfiled struct {
	mu        sync.Mutex
	next      int
	positions map[int]Position // by token: the position of the record; before SetAppended, a position at or before it
	tokens    map[Position]int
}

// NewUnfiled returns an Unfiled that tracks no records.
func NewUnfiled() *Unfiled {
	return &Unfiled{positions: map[int]Position{}, tokens: map[Position]int{}}
}

// Begin starts tracking a record that will be appended at or after from.
func (u *Unfiled) Begin(from Position) (token int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.next++
	u.positions[u.next] = from
	return u.next
}

// SetAppended sets the position of the record.
func (u *Unfiled) SetAppended(token int, at Position) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.positions[token] = at
	u.tokens[at] = token
}

// Abandon stops tracking a record that could not be appended.
func (u *Unfiled) Abandon(token int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.positions, token)
}

// MarkFiled stops tracking the record at a position.
func (u *Unfiled) MarkFiled(at Position) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.positions, u.tokens[at])
	delete(u.tokens, at)
}

// First returns a position at or before all unfiled records; end if there are none.
func (u *Unfiled) First(end Position) Position {
	u.mu.Lock()
	defer u.mu.Unlock()
	first := end
	for _, at := range u.positions {
		if at.Compare(first) < 0 {
			first = at
		}
	}
	return first
}

// Len returns the number of unfiled records.
func (u *Unfiled) Len() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.positions)
}

// A FiledMark says which accepted records are filed: all before From, and those in Done. The zero
// value means none.
type FiledMark struct {
	From Position
	Done []Position // ascending; none is before From
}

// Has reports whether the record at a position is filed.
func (m *FiledMark) Has(at Position) bool {
	_, done := slices.BinarySearchFunc(m.Done, at, Position.Compare)
	return done || at.Compare(m.From) < 0
}

// Add marks the records at these positions, and all records before from, as filed.
func (m *FiledMark) Add(from Position, at []Position) {
	if from.Compare(m.From) > 0 {
		m.From = from
	}
	m.Done = append(m.Done, at...)
	sort.Slice(m.Done, func(i, j int) bool { return m.Done[i].Compare(m.Done[j]) < 0 })
	m.Done = slices.DeleteFunc(slices.Compact(m.Done), func(p Position) bool { return p.Compare(m.From) < 0 })
}

const markVersion = 1

// Row encodes the mark, sizes in bytes: version 1 | From: segment 4, offset 4 | the same for each
// of Done.
func (m *FiledMark) Row() []byte {
	out := append(make([]byte, 0, 9+8*len(m.Done)), markVersion)
	for _, p := range append([]Position{m.From}, m.Done...) {
		out = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(out, p.Segment), p.Offset)
	}
	return out
}

// ParseMark decodes a mark that Row has encoded. An empty row is the zero mark. The error is
// ErrNewer or ErrDamaged.
func ParseMark(row []byte) (m FiledMark, err error) {
	if len(row) == 0 {
		return m, nil
	}
	if row[0] != markVersion {
		return m, fmt.Errorf("decode the mark of filed messages: %w", ErrNewer)
	}
	if len(row) < 9 || len(row)%8 != 1 {
		return m, fmt.Errorf("decode the mark of filed messages: %w", ErrDamaged)
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
