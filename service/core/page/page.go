// Package page has the long lists of the API: their pages, the cursors that lead from one page to
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

// Query is what every long list takes.
type Query struct {
	Limit  *int   `query:"limit" example:"25"` // Maximum rows: 25 by default, at most 100.
	Cursor string `query:"cursor"`             // Opaque: where the next page begins.
}

// A Page is one page of a long list.
type Page[T any] struct {
	Data       []T        `json:"data"`
	Pagination Pagination `json:"pagination"`
}

// Pagination says where the next page is; Cursor is null on the last one.
type Pagination struct {
	Cursor  *string `json:"cursor" words:"ours"` // Opaque: where the next page begins.
	HasMore bool    `json:"has_more"`
	Count   int     `json:"count"`              // How many rows are in `data`.
	Limit   int     `json:"limit" example:"25"` // The maximum number of rows on a page.
}

// Most is how many rows a page has: the limit that was asked for, or the default, and no more than
// most.
func (p Query) Most(byDefault, most int) (int, error) {
	if p.Limit == nil {
		return byDefault, nil
	}
	if *p.Limit < 1 {
		return 0, core.Invalid("limit", "out_of_range", "must be a whole number from 1 to %d", most)
	}
	return min(*p.Limit, most), nil
}

const cursorMAC = 12 // bytes of the HMAC that a cursor carries

// Seal turns a position into a cursor that only the same account, operation and filters accept.
func Seal(c *core.Core, who core.Actor, operation, position string, filters ...string) string {
	mac := c.Keys.Mac("cursor", cursorScope(who, operation, filters), position)
	return base64.RawURLEncoding.EncodeToString(append(mac[:cursorMAC], position...))
}

// Open undoes Seal; "" stays "".
func Open(c *core.Core, who core.Actor, operation, cursor string, filters ...string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	bad := core.Errorf("invalid_cursor", "The cursor does not belong to this list with these filters. Leave it out to start again.")
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) < cursorMAC {
		return "", bad
	}
	position := string(raw[cursorMAC:])
	same := func(mac []byte) bool { return hmac.Equal(mac[:cursorMAC], raw[:cursorMAC]) }
	if !c.Keys.MadeMac(same, "cursor", cursorScope(who, operation, filters), position) {
		return "", bad
	}
	return position, nil
}

func cursorScope(who core.Actor, operation string, filters []string) string {
	return who.AccountID + "\x00" + operation + "\x00" + strings.Join(filters, "\x00")
}

// pageBytes is about how much a page of a list has: past it a page ends, whatever its limit, and
// its cursor goes on.
const pageBytes = 4 << 20

// A Builder gathers one page: it takes rows until the page is full and one more has shown that
// there is a next page. A page has pageBytes, or one row.
type Builder[T any] struct {
	Data  []T
	Limit int
	Last  string
	More  bool
	bytes int
}

// Add takes a row of about so many bytes, and the position after it; false ends the walk.
func (c *Builder[T]) Add(position string, row T, size int) bool {
	if len(c.Data) == c.Limit || len(c.Data) > 0 && c.bytes+size > pageBytes {
		c.More = true
		return false
	}
	c.bytes += size
	if len(c.Data) == cap(c.Data) { // rows are large, and pages mostly full or nearly empty
		c.Data = slices.Grow(c.Data, min(max(1, len(c.Data)*16), c.Limit-len(c.Data)))
	}
	c.Data = append(c.Data, row)
	c.Last = position
	return true
}

// Page gives the page; seal makes its cursor of a position.
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

// A Listing is a long list over one index, newest first: what every list operation but the inbox
// is.
type Listing[R, Out any] struct {
	Operation string
	Index     *store.Index[R]
	Prefix    string
	Filters   []string                         // what the cursor is bound to, besides account and operation
	Before    string                           // where the first page starts, see Index.Desc; "" is the end
	Prefilter func(row []byte) bool            // false only for rows whose records Keep leaves out, see HasTexts; nil asks Keep alone
	Keep      func(*R) bool                    // nil keeps every record
	Until     func(*R) bool                    // ends the walk; nil walks to the end
	Out       func(*store.Tx, *R) (Out, error) // the record on the wire
	Size      func(*Out) int                   // bytes of what is there beside the record; nil: nothing is
	First     func(*store.Tx) error            // checked before the walk, in the same snapshot; nil checks nothing
}

// Page answers one page of it.
func (l Listing[R, Out]) Page(s *core.Core, who core.Actor, in Query) (*Page[Out], error) {
	limit, err := in.Most(25, 100)
	if err != nil {
		return nil, err
	}
	before, err := Open(s, who, l.Operation, in.Cursor, l.Filters...)
	if err != nil {
		return nil, err
	}
	if before == "" {
		before = l.Before
	}
	c := Builder[Out]{Limit: limit}
	err = s.Store.View(func(tx *store.Tx) error {
		if l.First != nil {
			if err := l.First(tx); err != nil {
				return err
			}
		}
		return l.walk(tx, before, &c)
	})
	if err != nil {
		return nil, err
	}
	return c.Page(func(position string) string { return Seal(s, who, l.Operation, position, l.Filters...) }), nil
}

// listScan bounds the work of one request: a record that Prefilter leaves out counts 1, one that is
// decoded counts listDecode, which is about what it takes longer. A page that this cuts short says
// where to go on. Of those that Prefilter leaves out, each listLook-th is decoded all the same,
// since Until may end the walk there.
const (
	listScan   = 4000
	listDecode = 8
	listLook   = 100
)

func (l Listing[R, Out]) walk(tx *store.Tx, before string, c *Builder[Out]) error {
	scanned, left, size := 0, 0, 0
	wanted := func(row []byte) bool {
		size = len(row)
		if l.Prefilter == nil || l.Prefilter(row) {
			return true
		}
		left++
		return l.Until != nil && left%listLook == 0
	}
	for key, rec := range store.DescSome(tx, l.Index, l.Prefix, before, wanted) {
		if rec != nil && l.Until != nil && l.Until(rec) {
			return nil
		}
		if scanned >= listScan {
			c.More = true
			return nil
		}
		if rec != nil {
			scanned += listDecode
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
