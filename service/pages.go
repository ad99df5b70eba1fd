package service

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
func (p PageIn) limit(byDefault, most int) (int, error) {
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
func (s *Service) sealCursor(who Actor, operation, position string, filters ...string) string {
	mac := s.keys.mac("cursor", cursorScope(who, operation, filters), position)
	return base64.RawURLEncoding.EncodeToString(append(mac[:cursorMAC], position...))
}

// openCursor undoes sealCursor; "" stays "".
func (s *Service) openCursor(who Actor, operation, cursor string, filters ...string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	bad := Errorf(400, "invalid_cursor", "The cursor is not one of this list with these filters. Leave it out to start again.")
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) < cursorMAC {
		return "", bad
	}
	position := string(raw[cursorMAC:])
	mac := s.keys.mac("cursor", cursorScope(who, operation, filters), position)
	if !hmac.Equal(mac[:cursorMAC], raw[:cursorMAC]) {
		return "", bad
	}
	return position, nil
}

func cursorScope(who Actor, operation string, filters []string) string {
	return who.AccountID + "\x00" + operation + "\x00" + strings.Join(filters, "\x00")
}

// A collector gathers one page: it takes rows until the page is full and one more has shown that
// there is a next page.
type collector[T any] struct {
	data  []T
	limit int
	last  string
	more  bool
}

// add takes a row and the position after it; false ends the walk.
func (c *collector[T]) add(position string, row T) bool {
	if len(c.data) == c.limit {
		c.more = true
		return false
	}
	c.data = append(c.data, row)
	c.last = position
	return true
}

func (c *collector[T]) page(seal func(position string) string) *Page[T] {
	p := &Page[T]{Data: c.data, Pagination: Pagination{HasMore: c.more, Count: len(c.data), Limit: c.limit}}
	if p.Data == nil {
		p.Data = []T{}
	}
	if c.more {
		cursor := seal(c.last)
		p.Pagination.Cursor = &cursor
	}
	return p
}

// A list is a long list over one index, newest first: what every list operation but the inbox is.
type list[R, Out any] struct {
	operation string
	index     *store.Index[R]
	prefix    string
	filters   []string                         // what the cursor is bound to, besides account and operation
	keep      func(*R) bool                    // nil keeps every record
	until     func(*R) bool                    // ends the walk; nil walks to the end
	out       func(*store.Tx, *R) (Out, error) // the record on the wire
	first     func(*store.Tx) error            // checked before the walk, in the same snapshot; nil checks nothing
}

// page answers one page of it.
func (l list[R, Out]) page(s *Service, who Actor, in PageIn) (*Page[Out], error) {
	limit, err := in.limit(25, 100)
	if err != nil {
		return nil, err
	}
	before, err := s.openCursor(who, l.operation, in.Cursor, l.filters...)
	if err != nil {
		return nil, err
	}
	c := collector[Out]{limit: limit}
	err = s.Store.View(func(tx *store.Tx) error {
		if l.first != nil {
			if err := l.first(tx); err != nil {
				return err
			}
		}
		return l.walk(tx, before, &c)
	})
	if err != nil {
		return nil, err
	}
	return c.page(func(position string) string { return s.sealCursor(who, l.operation, position, l.filters...) }), nil
}

// listScan is how many records one request looks at. A page that this cuts short says where to go
// on.
const listScan = 10_000

func (l list[R, Out]) walk(tx *store.Tx, before string, c *collector[Out]) error {
	scanned := 0
	for key, rec := range l.index.Desc(tx, l.prefix, before) {
		if l.until != nil && l.until(rec) {
			return nil
		}
		if scanned++; scanned > listScan {
			c.more = true
			return nil
		}
		if l.keep != nil && !l.keep(rec) {
			if len(c.data) < c.limit {
				c.last = key
			}
			continue
		}
		row, err := l.out(tx, rec)
		if err != nil {
			return err
		}
		if !c.add(key, row) {
			return nil
		}
	}
	return nil
}
