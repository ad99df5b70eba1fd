package msg

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/mailstead/mailstead/internal/buffers"
)

// StripFields copies a message from r to w without the header fields whose names begin with one of
// prefixes (in any letter case). Such fields may be folded, and may have white space before the
// colon. found reports whether there were any. Everything else stays byte for byte. No more than
// one line is in memory.
func StripFields(w io.Writer, r io.Reader, prefixes []string) (found bool, err error) {
	br := buffers.Reader(r)
	defer buffers.FreeReader(br)
	found, err = stripHeader(w, br, prefixes)
	if err == nil {
		_, err = buffers.Copy(w, br)
	}
	return found, err
}

// HasFields reports whether StripFields would remove anything. It reads only the header.
func HasFields(r io.Reader, prefixes []string) (bool, error) {
	br := buffers.Reader(r)
	defer buffers.FreeReader(br)
	return stripHeader(io.Discard, br, prefixes)
}

// stripHeader copies the header and the empty line after it, without the fields whose names begin
// with one of prefixes.
func stripHeader(w io.Writer, br *bufio.Reader, prefixes []string) (found bool, err error) {
	lineStart, drop := true, false
	for {
		piece, err := br.ReadSlice('\n')
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return found, err
		}
		if lineStart && (len(piece) == 0 || piece[0] != ' ' && piece[0] != '\t') {
			drop = HasFieldPrefix(string(piece[:min(len(piece), maxFieldName)]), prefixes)
			found = found || drop
		}
		if !drop {
			if _, werr := w.Write(piece); werr != nil {
				return found, werr
			}
		}
		if err == io.EOF || lineStart && len(bytes.TrimRight(piece, "\r\n")) == 0 {
			return found, nil
		}
		lineStart = err == nil
	}
}

const maxFieldName = 200 // only so many bytes of a line are compared with the prefixes

// HasFieldPrefix reports whether a field name begins with one of prefixes, in any letter case.
func HasFieldPrefix(name string, prefixes []string) bool {
	for _, p := range prefixes {
		if len(name) >= len(p) && strings.EqualFold(name[:len(p)], p) {
			return true
		}
	}
	return false
}
