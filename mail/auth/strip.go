package auth

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mailstead/mailstead/internal/buffers"
	"github.com/mailstead/mailstead/mail/idn"
)

// maxResultsField is the maximum number of bytes of an Authentication-Results field in which its
// authserv-id is searched.
const maxResultsField = 16 << 10

var resultsFieldName = []byte("authentication-results")

// StripResults copies a message from r to w without the Authentication-Results fields that have our
// authserv-id: this host has not added any yet, so these are forged (RFC 8601 section 5). It also
// removes malformed fields that could be taken for ours. Everything else stays byte for byte. Only
// a part of one field is kept in memory. It returns an error if reading or writing fails, and
// ErrAuthservID if authservID is invalid.
func StripResults(w io.Writer, r io.Reader, authservID string) error {
	id, ok := idn.Host(authservID)
	if !ok {
		return fmt.Errorf("%w: %.100q", ErrAuthservID, authservID)
	}
	br, bw := buffers.Reader(r), buffers.Writer(w)
	defer buffers.FreeReader(br)
	defer buffers.FreeWriter(bw)
	s := stripper{id: id, w: bw}
	if err := s.copyHeader(br); err != nil {
		return fmt.Errorf("strip %s: %w", resultsFieldName, err)
	}
	if err := bw.Flush(); err != nil {
		return fmt.Errorf("strip %s: %w", resultsFieldName, err)
	}
	if _, err := buffers.Copy(w, br); err != nil {
		return fmt.Errorf("strip %s: %w", resultsFieldName, err)
	}
	return nil
}

// stripper copies a header without our Authentication-Results fields.
type stripper struct {
	id     string
	w      *bufio.Writer
	held   []byte // the start of a field that may have to be removed
	action fieldAction
}

// fieldAction says what to do with the bytes of the current field.
type fieldAction int

const (
	keepField fieldAction = iota
	holdField
	dropField
)

func (s *stripper) copyHeader(br *bufio.Reader) error {
	lineStart := true
	for {
		piece, err := br.ReadSlice('\n')
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if lineStart && (len(piece) == 0 || piece[0] != ' ' && piece[0] != '\t') {
			if werr := s.beginField(piece); werr != nil {
				return werr
			}
		}
		if werr := s.takePiece(piece); werr != nil {
			return werr
		}
		if err == io.EOF {
			return s.endField()
		}
		if lineStart && len(bytes.TrimRight(piece, "\r\n")) == 0 {
			return nil
		}
		lineStart = err == nil
	}
}

// beginField ends the previous field and sets the action for the field that begins with line.
func (s *stripper) beginField(line []byte) error {
	if err := s.endField(); err != nil {
		return err
	}
	if n := len(resultsFieldName); len(line) >= n && bytes.EqualFold(line[:n], resultsFieldName) &&
		(len(line) == n || bytes.IndexByte([]byte(": \t\r\n"), line[n]) >= 0) {
		s.action = holdField
	}
	return nil
}

// takePiece writes, holds or drops a piece of the current field.
func (s *stripper) takePiece(piece []byte) error {
	switch s.action {
	case dropField:
	case keepField:
		_, err := s.w.Write(piece)
		return err
	case holdField:
		s.held = append(s.held, piece...)
		if len(s.held) > maxResultsField {
			return s.decideHeld(0)
		}
	}
	return nil
}

// endField decides about a held field at its end.
func (s *stripper) endField() error {
	if s.action == holdField {
		// The end of a field ends the authserv-id, as a semicolon does.
		s.held = append(s.held, ';')
		if err := s.decideHeld(1); err != nil {
			return err
		}
	}
	s.action = keepField
	return nil
}

// decideHeld writes or drops the held bytes. The last extra bytes of these do not belong to the
// message.
func (s *stripper) decideHeld(extra int) error {
	held := s.held
	s.held, s.action = s.held[:0], dropField
	name, value, _ := strings.Cut(string(held), ":")
	if strings.EqualFold(strings.TrimRight(name, " \t\r\n"), string(resultsFieldName)) && claimsID(value, s.id) {
		return nil
	}
	s.action = keepField
	_, err := s.w.Write(held[:len(held)-extra])
	return err
}

// claimsID reports whether an Authentication-Results field with this value has our authserv-id, or
// could seem to have it to a lenient program. It could if our name is split by comments or quotes,
// or if a comment is not closed within maxResultsField.
func claimsID(value, ours string) bool {
	bare, ok := bareTextBeforeSemicolon(value)
	if !ok {
		return true
	}
	if id, ok := authservIDOf(value); ok {
		name, isName := idn.Host(id)
		return isName && name == ours
	}
	return strings.HasPrefix(strings.ToLower(bare), ours)
}

// authservIDOf returns the authserv-id at the start of a value (RFC 8601 section 2.2). The value
// must have, in this order, comments and white space, a token or a quoted string, an optional
// version, and a semicolon. For any other form ok is false.
func authservIDOf(value string) (_ string, ok bool) {
	rest := skipCFWS(value)
	if rest == "" {
		return "", false
	}
	var id string
	if rest[0] == '"' {
		var ok bool
		id, rest, ok = unquote(rest[1:])
		if !ok {
			return "", false
		}
	} else {
		end := strings.IndexAny(rest, " \t\r\n;(")
		if end < 0 {
			return "", false
		}
		id, rest = rest[:end], rest[end:]
		if strings.ContainsAny(id, `"\)<>@,:/[]?=`) {
			return "", false
		}
	}
	rest = strings.TrimLeft(skipCFWS(rest), "0123456789")
	rest = skipCFWS(rest)
	return id, strings.HasPrefix(rest, ";")
}

// skipCFWS skips white space and comments, which may be nested and have quoted pairs (RFC 5322
// section 3.2.2).
func skipCFWS(s string) string {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case c == '\\' && depth > 0:
			i++
		case depth == 0 && !isFoldingSpace(rune(c)):
			return s[i:]
		}
	}
	return ""
}

// bareTextBeforeSemicolon returns the part of s before the first semicolon, without comments,
// quotation marks and white space. It returns false if there is no semicolon outside of comments
// and quoted strings.
func bareTextBeforeSemicolon(s string) (_ string, ok bool) {
	var b strings.Builder
	depth, inQuotes := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			if depth == 0 {
				b.WriteByte(s[i])
			}
		case c == '"' && depth == 0:
			inQuotes = !inQuotes
		case c == '(' && !inQuotes:
			depth++
		case c == ')' && depth > 0:
			depth--
		case c == ';' && depth == 0 && !inQuotes:
			return b.String(), true
		case depth == 0 && !isFoldingSpace(rune(c)):
			b.WriteByte(c)
		}
	}
	return "", false
}

// unquote reads a quoted string. s begins after the opening quote; rest is the text after the
// closing quote.
func unquote(s string) (text, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return strings.TrimSpace(b.String()), s[i+1:], true
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case c != '\r' && c != '\n':
			b.WriteByte(c)
		}
	}
	return "", "", false
}
