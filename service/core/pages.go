package core

import (
	"crypto/hmac"
	"encoding/base64"
	"strings"

	"github.com/mailstead/mailstead/store"
)

// PageIn is what every long list takes.
type PageIn struct {
	Limit  *int   `query:"limit"`
	Cursor string `query:"cursor"`
}

// A Page is one page of a long list.
type Page[T any] struct {
	Data       []T        `json:"data"`
	Pagination Pagination `json:"pagination"`
}

// Pagination says where the next page is; Cursor is null on the last one.
type Pagination struct {
	Cursor  *string `json:"cursor" words:"ours"`
	HasMore bool    `json:"has_more"`
	Count   int     `json:"count"`
	Limit   int     `json:"limit"`
}

// limit applies the default and the maximum.
func (p PageIn) PageLimit(byDefault, most int) (int, error) {
	if p.Limit == nil {
		return byDefault, nil
	}
	if *p.Limit < 1 {
		return 0, Invalid("limit", "out_of_range", "must be a whole number from 1 to %d", most)
	}
	return min(*p.Limit, most), nil
}

const cursorMAC = 12 // bytes of the HMAC that a cursor carries

// seal turns a position into a cursor that only the same account, operation and filters accept.
func (s *Core) SealCursor(who Actor, operation, position string, filters ...string) string {
	mac := s.Keys.Mac("cursor", cursorScope(who, operation, filters), position)
	return base64.RawURLEncoding.EncodeToString(append(mac[:cursorMAC], position...))
}

// OpenCursor undoes sealCursor; "" stays "".
func (s *Core) OpenCursor(who Actor, operation, cursor string, filters ...string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	bad := Errorf("invalid_cursor", "The cursor is not one of this list with these filters. Leave it out to start again.")
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) < cursorMAC {
		return "", bad
	}
	position := string(raw[cursorMAC:])
	mac := s.Keys.Mac("cursor", cursorScope(who, operation, filters), position)
	if !hmac.Equal(mac[:cursorMAC], raw[:cursorMAC]) {
		return "", bad
	}
	return position, nil
}

func cursorScope(who Actor, operation string, filters []string) string {
	return who.AccountID + "\x00" + operation + "\x00" + strings.Join(filters, "\x00")
}

// A PageBuilder gathers one page: it takes rows until the page is full and one more has shown that
// there is a next page.
type PageBuilder[T any] struct {
	Data  []T
	Limit int
	Last  string
	More  bool
}

// Add takes a row and the position after it; false ends the walk.
func (c *PageBuilder[T]) Add(position string, row T) bool {
	if len(c.Data) == c.Limit {
		c.More = true
		return false
	}
	c.Data = append(c.Data, row)
	c.Last = position
	return true
}

func (c *PageBuilder[T]) Page(seal func(position string) string) *Page[T] {
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

// A list is a long list over one index, newest first: what every list operation but the inbox is.
type Listing[R, Out any] struct {
	Operation string
	Index     *store.Index[R]
	Prefix    string
	Filters   []string                         // what the cursor is bound to, besides account and operation
	Keep      func(*R) bool                    // nil keeps every record
	Until     func(*R) bool                    // ends the walk; nil walks to the end
	Out       func(*store.Tx, *R) (Out, error) // the record on the wire
	First     func(*store.Tx) error            // checked before the walk, in the same snapshot; nil checks nothing
}

// Page answers one page of it.
func (l Listing[R, Out]) Page(s *Core, who Actor, in PageIn) (*Page[Out], error) {
	limit, err := in.PageLimit(25, 100)
	if err != nil {
		return nil, err
	}
	before, err := s.OpenCursor(who, l.Operation, in.Cursor, l.Filters...)
	if err != nil {
		return nil, err
	}
	c := PageBuilder[Out]{Limit: limit}
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
	return c.Page(func(position string) string { return s.SealCursor(who, l.Operation, position, l.Filters...) }), nil
}

// listScan is how many records one request looks at. A page that this cuts short says where to go
// on.
const listScan = 10_000

func (l Listing[R, Out]) walk(tx *store.Tx, before string, c *PageBuilder[Out]) error {
	scanned := 0
	for key, rec := range l.Index.Desc(tx, l.Prefix, before) {
		if l.Until != nil && l.Until(rec) {
			return nil
		}
		if scanned++; scanned > listScan {
			c.More = true
			return nil
		}
		if l.Keep != nil && !l.Keep(rec) {
			if len(c.Data) < c.Limit {
				c.Last = key
			}
			continue
		}
		row, err := l.Out(tx, rec)
		if err != nil {
			return err
		}
		if !c.Add(key, row) {
			return nil
		}
	}
	return nil
}

// List is a short list.
type List[T any] struct {
	Data  []T `json:"data"`
	Count int `json:"count"`
}

func ListOf[T any](data []T) *List[T] {
	if data == nil {
		data = []T{}
	}
	return &List[T]{data, len(data)}
}
