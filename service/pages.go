package service

import (
	"crypto/hmac"
	"encoding/base64"
	"strings"
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
	Cursor  *string `json:"cursor"`
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

// A collector gathers one page: it takes rows until the page is full and one more has shown that there is a next page.
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
