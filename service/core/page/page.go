// Package page has the paged lists of the API: their pages, the cursors that lead from one page to
// the next, and bounded walks over an index of the store. It does not know what is listed.
package page

import (
	"crypto/hmac"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Query is the query of every paged list.
type Query struct {
	Limit  *int   `query:"limit" example:"25"` // Maximum rows: 25 by default, at most 100.
	Cursor string `query:"cursor"`             // Opaque: where the next page begins.
}

// A Page is one page of a paged list.
type Page[T any] struct {
	Data       []T        `json:"data"`
	Pagination Pagination `json:"pagination"`
}

// Pagination says where the next page begins. cursor is null on the last page.
type Pagination struct {
	Cursor  *string `json:"cursor" words:"ours"` // Opaque: where the next page begins.
	HasMore bool    `json:"has_more"`
	Count   int     `json:"count"`              // How many rows are in `data`.
	Limit   int     `json:"limit" example:"25"` // The maximum number of rows on a page.
}

// PageSize returns how many rows a page may have: the requested limit but at most `most`, or
// byDefault if the request has no limit.
func (p Query) PageSize(byDefault, most int) (int, error) {
	if p.Limit == nil {
		return byDefault, nil
	}
	if *p.Limit < 1 {
		return 0, core.Invalid("limit", "out_of_range", "must be a whole number from 1 to %d", most)
	}
	return min(*p.Limit, most), nil
}

const cursorMACSize = 12 // bytes of the MAC in a cursor

// Seal turns a position into a cursor that is valid only for the same account, operation and
// filters.
func Seal(c *core.Core, who core.Actor, operation, position string, filters ...string) string {
	mac := c.Keys.Mac("cursor", cursorScope(who, operation, filters), position)
	return base64.RawURLEncoding.EncodeToString(append(mac[:cursorMACSize], position...))
}

// Open returns the position in a cursor; "" for an empty cursor. The error is invalid_cursor.
func Open(c *core.Core, who core.Actor, operation, cursor string, filters ...string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	bad := core.Errorf("invalid_cursor", "The cursor does not belong to this list with these filters. Leave it out to start again.")
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) < cursorMACSize {
		return "", bad
	}
	position := string(raw[cursorMACSize:])
	same := func(mac []byte) bool { return hmac.Equal(mac[:cursorMACSize], raw[:cursorMACSize]) }
	if !c.Keys.MatchesMac(same, "cursor", cursorScope(who, operation, filters), position) {
		return "", bad
	}
	return position, nil
}

func cursorScope(who core.Actor, operation string, filters []string) string {
	return who.AccountID + "\x00" + operation + "\x00" + strings.Join(filters, "\x00")
}

// pageBytes is the approximate size of a large page: when it is reached, the page ends before its
// limit.
const pageBytes = 4 << 20

// A Builder collects the rows of one page. A page is full when it has Limit rows or pageBytes, but
// it has at least one row. If Add refuses a row, there is a next page.
type Builder[T any] struct {
	Data  []T    // the rows
	Limit int    // maximum number of rows
	Last  string // where the next page begins
	More  bool   // there is a next page
	bytes int    // approximate size of Data
}

// Add adds a row of about size bytes. position is where the next page begins if this row is the
// last one of its page. fits is false if the page is full: then the row was not added, and the walk
// must end.
func (c *Builder[T]) Add(position string, row T, size int) (fits bool) {
	if len(c.Data) == c.Limit || len(c.Data) > 0 && c.bytes+size > pageBytes {
		c.More = true
		return false
	}
	c.bytes += size
	if len(c.Data) == cap(c.Data) { // rows are large, and most pages are either full or almost empty
		c.Data = slices.Grow(c.Data, min(max(1, len(c.Data)*16), c.Limit-len(c.Data)))
	}
	c.Data = append(c.Data, row)
	c.Last = position
	return true
}

// Page returns the page. seal turns a position into a cursor.
func (c *Builder[T]) Page(seal func(position string) string) *Page[T] {
	p := &Page[T]{Data: c.Data, Pagination: Pagination{HasMore: c.More, Count: len(c.Data), Limit: c.Limit}}
	if p.Data == nil {
		p.Data = []T{}
	}
	if c.More {
		cursor := seal(c.Last)
		p.Pagination.Cursor = &cursor
	}
	return p
}

// A Listing is a paged list over one index, from its last key on. Every paged list but the inbox is
// one.
type Listing[R, Out any] struct {
	Operation string // the operation that lists, to which cursors are bound
	Index     *store.Index[R]
	Prefix    string                           // of the keys in Index that are listed
	Filters   []string                         // values that the cursor is bound to, in addition to account and operation
	Ascending bool                             // from the first key on
	Start     string                           // where the first page starts, see Index.Desc and Index.Asc; "": at the end, or the start if Ascending
	Prefilter func(row []byte) bool            // may return false only for rows whose records Keep drops, see HasTexts; nil: decode every row
	Keep      func(*R) bool                    // nil: keep every record
	Until     func(*R) bool                    // true ends the walk; nil: walk to the end
	Out       func(*store.Tx, *R) (Out, error) // converts a record to its form in the API
	Size      func(*Out) int                   // bytes that Out adds to the record; nil: none
	First     func(*store.Tx) error            // checked before the walk, in the same snapshot; nil: no check
}

// SortBy sets the direction of the walk by a request's `sort`, which "-" begins if it descends, and
// binds cursors to it. "" is the order that the list has without it.
func (l *Listing[R, Out]) SortBy(sort string) {
	if sort == "" {
		return // cursors of before there was a choice stay valid
	}
	l.Ascending = !strings.HasPrefix(sort, "-")
	l.Filters = append(l.Filters, "sort="+sort)
}

// Page returns one page of the list.
func (l Listing[R, Out]) Page(s *core.Core, who core.Actor, in Query) (*Page[Out], error) {
	limit, err := in.PageSize(25, 100)
	if err != nil {
		return nil, err
	}
	start, err := Open(s, who, l.Operation, in.Cursor, l.Filters...)
	if err != nil {
		return nil, err
	}
	if start == "" {
		start = l.Start
	}
	c := Builder[Out]{Limit: limit}
	err = s.Store.View(func(tx *store.Tx) error {
		if l.First != nil {
			if err := l.First(tx); err != nil {
				return err
			}
		}
		return l.walk(tx, start, &c)
	})
	if err != nil {
		return nil, err
	}
	return c.Page(func(position string) string { return Seal(s, who, l.Operation, position, l.Filters...) }), nil
}

// maxListCost limits the work of one request. A record that Prefilter drops costs 1. A record that
// is decoded costs decodeCost, since decoding takes about as long as dropping that many records.
// When the limit ends a page, the page has a cursor for the rest. Every decodeInterval-th record
// that Prefilter drops is decoded anyway, since Until may end the walk there.
const (
	maxListCost    = 4000
	decodeCost     = 8
	decodeInterval = 100
)

func (l Listing[R, Out]) walk(tx *store.Tx, start string, c *Builder[Out]) error {
	scanned, left, size := 0, 0, 0
	wanted := func(row []byte) bool {
		size = len(row)
		if l.Prefilter == nil || l.Prefilter(row) {
			return true
		}
		left++
		return l.Until != nil && left%decodeInterval == 0
	}
	rows := store.DescSome[R]
	if l.Ascending {
		rows = store.AscSome[R]
	}
	for key, rec := range rows(tx, l.Index, l.Prefix, start, wanted) {
		if rec != nil && l.Until != nil && l.Until(rec) {
			return nil
		}
		if scanned >= maxListCost {
			c.More = true
			return nil
		}
		if rec != nil {
			scanned += decodeCost
		} else {
			scanned++
		}
		if rec == nil || l.Keep != nil && !l.Keep(rec) {
			if len(c.Data) < c.Limit {
				c.Last = key
			}
			continue
		}
		row, err := l.Out(tx, rec)
		if err != nil {
			return err
		}
		if l.Size != nil {
			size += l.Size(&row)
		}
		if !c.Add(key, row, size) {
			return nil
		}
	}
	return nil
}
