// Package mbox reads and writes mbox files (RFC 4155) of the variant mboxrd: if a line of a message
// begins with "From ", or with any number of ">" and "From ", the file has one ">" more before it.
// The package does not know where messages come from or go to.
package mbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// ErrTooLarge is returned by Reader.Next for a message that is longer than the limit. The next call
// returns the message after it.
var ErrTooLarge = errors.New("the message is too large")

// ErrNotMbox is returned by Reader.Next if the file does not begin with a "From " line.
var ErrNotMbox = errors.New(`the file is no mbox: it does not begin with "From "`)

// A Message is one message of an mbox file.
type Message struct {
	Offset int64     // offset of its "From " line in the file
	Date   time.Time // date of the "From " line, in UTC; zero if the line has no readable date
	Flags  string    // flags as in a Maildir (S R F D T), read from the fields Status and X-Status
	Text   []byte    // the message without the fields Status and X-Status, with CRLF line ends
}

// A Reader reads the messages of an mbox file one after another.
type Reader struct {
	r      *bufio.Reader
	max    int
	offset int64  // offset of the next byte to read
	from   []byte // the "From " line of the next message, if it was read already
	at     int64  // offset of from
	line   []byte
}

// NewReader returns a reader of an mbox file. max is the maximum length of a message in bytes.
func NewReader(r io.Reader, max int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10), max: max}
}

// readLine returns the next line with its line end. The line is valid until the next call. A line
// longer than max is cut off.
func (r *Reader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		piece, err := r.r.ReadSlice('\n')
		r.offset += int64(len(piece))
		if len(r.line) <= r.max {
			r.line = append(r.line, piece...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return r.line, err
		}
	}
}

// Next returns the next message. The error is io.EOF after the last message, ErrTooLarge (then only
// Offset is set), ErrNotMbox, or a read error.
func (r *Reader) Next() (m Message, err error) {
	if r.from == nil {
		line, err := r.readLine()
		for err == nil && len(trimLineEnd(line)) == 0 { // skip empty lines at the start of the file
			line, err = r.readLine()
		}
		switch {
		case len(line) == 0:
			return m, err
		case !isFromLine(line):
			return m, ErrNotMbox
		}
		r.from, r.at = bytes.Clone(line), r.offset-int64(len(line))
	}
	m = Message{Offset: r.at, Date: fromDate(r.from)}
	r.from = nil
	header, large := true, false
	blank, framing := false, false // blank: the line before is empty; framing: it is empty and not the end of the header
	for {
		at := r.offset
		line, err := r.readLine()
		if len(line) == 0 || blank && isFromLine(line) && !fromDate(line).IsZero() {
			if len(line) > 0 {
				r.from, r.at = bytes.Clone(line), at
			} else if !errors.Is(err, io.EOF) {
				return m, err
			}
			if framing { // the empty line before a "From " line does not belong to the message
				m.Text = bytes.TrimSuffix(m.Text, []byte("\r\n"))
			}
			if large {
				return Message{Offset: m.Offset}, ErrTooLarge
			}
			return m, nil
		}
		ended := line[len(line)-1] == '\n' || err == nil
		text := trimLineEnd(line)
		blank = len(text) == 0
		framing = blank && !header
		header = header && !blank
		if header && m.addStatus(text) {
			continue
		}
		if quoted := bytes.TrimLeft(text, ">"); len(quoted) < len(text) && bytes.HasPrefix(quoted, []byte("From ")) {
			text = text[1:]
		}
		large = large || len(m.Text)+len(text)+2 > r.max
		if large {
			m.Text = nil
			continue
		}
		m.Text = append(m.Text, text...)
		if ended {
			m.Text = append(m.Text, "\r\n"...)
		}
	}
}

// trimLineEnd removes the line end.
func trimLineEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

func isFromLine(line []byte) bool { return bytes.HasPrefix(line, []byte("From ")) }

// addStatus adds the flags in a Status or X-Status field. It returns false if the line is another
// field.
func (m *Message) addStatus(line []byte) (isStatus bool) {
	name, value, ok := strings.Cut(string(line), ":")
	if !ok || len(line) > 100 {
		return false
	}
	var letters map[rune]string
	switch {
	case strings.EqualFold(name, "Status"):
		letters = map[rune]string{'R': "S"}
	case strings.EqualFold(name, "X-Status"):
		letters = map[rune]string{'A': "R", 'F': "F", 'D': "T", 'T': "D"}
	default:
		return false
	}
	for _, c := range value {
		if f := letters[c]; f != "" && !strings.Contains(m.Flags, f) {
			m.Flags += f
		}
	}
	return true
}

// dateFormats are the date formats in "From " lines: that of RFC 4155, and those of some programs.
var dateFormats = []string{
	time.ANSIC, "Mon Jan _2 15:04:05 -0700 2006", "Mon Jan _2 15:04:05 2006 -0700", "Mon Jan _2 15:04:05 MST 2006", "Mon Jan _2 15:04 2006", time.RFC1123Z,
}

// fromDate returns the date in a "From " line. It returns the zero time if there is none.
func fromDate(line []byte) time.Time {
	if len(line) > 1000 {
		return time.Time{}
	}
	words := strings.Fields(string(line))
	for from := min(2, len(words)); from < len(words); from++ {
		for _, form := range dateFormats {
			if at, err := time.Parse(form, strings.Join(words[from:], " ")); err == nil {
				return at.UTC()
			}
		}
	}
	return time.Time{}
}

// FileName returns the name of the mbox file for a folder: the levels of the folder's name,
// separated by dots.
func FileName(levels []string) string {
	names := make([]string, len(levels))
	for i, level := range levels {
		names[i] = escapeFileName.Replace(level)
	}
	return strings.Join(names, ".") + ".mbox"
}

var escapeFileName = strings.NewReplacer("%", "%25", ".", "%2E", "/", "%2F")

// Write writes a message to an mbox file, with LF in place of CRLF. flags are as in Message.Flags;
// they are written into the fields Status and X-Status.
func Write(w *bufio.Writer, sender string, date time.Time, flags string, message io.Reader) error {
	if sender == "" || strings.ContainsAny(sender, " \t\r\n") {
		sender = "MAILER-DAEMON"
	}
	fmt.Fprintf(w, "From %s %s\n", sender, date.UTC().Format(time.ANSIC))
	status, more := "", ""
	for _, c := range []struct {
		flag, to string
		field    *string
	}{{"S", "R", &status}, {"R", "A", &more}, {"F", "F", &more}, {"T", "D", &more}, {"D", "T", &more}} {
		if strings.Contains(flags, c.flag) {
			*c.field += c.to
		}
	}
	fmt.Fprintf(w, "Status: %sO\n", status)
	if more != "" {
		fmt.Fprintf(w, "X-Status: %s\n", more)
	}
	r := bufio.NewReaderSize(message, 64<<10)
	begins, ended := true, true // begins: a line begins here; ended: the last line has its line end
	for {
		piece, err := r.ReadSlice('\n')
		if len(piece) > 0 {
			if quoted := bytes.TrimLeft(piece, ">"); begins && bytes.HasPrefix(quoted, []byte("From ")) {
				w.WriteByte('>')
			}
			// CR CR LF stays: of CR LF, a reader would take the CR for a part of the line end.
			begins = piece[len(piece)-1] == '\n'
			if begins && bytes.HasSuffix(piece, []byte("\r\n")) && !bytes.HasSuffix(piece, []byte("\r\r\n")) {
				piece = append(piece[:len(piece)-2], '\n')
			}
			ended = begins
			w.Write(piece)
		}
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
	if !ended {
		w.WriteByte('\n')
	}
	_, err := w.WriteString("\n") // also returns the first error of the writes before it
	return err
}
