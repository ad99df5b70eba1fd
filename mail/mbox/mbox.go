// Package mbox reads and writes mbox files (RFC 4155), in the variant mboxrd: a line of a message
// that begins with any number of > and "From " has one > more in the file. It does not know where
// messages come from or go to.
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

// ErrTooLarge is returned for a message that is longer than the reader's limit. Reading can
// continue with the next message.
var ErrTooLarge = errors.New("the message is too large")

// ErrNotMbox is returned for a file that does not begin with a "From " line.
var ErrNotMbox = errors.New(`the file is no mbox: it does not begin with "From "`)

// A Message is one message of a file.
type Message struct {
	Offset int64     // offset of its "From " line in the file
	Date   time.Time // date of that line, in UTC; zero if it has no readable date
	Flags  string    // letters as in a Maildir, from the fields Status and X-Status: S R F D T
	Text   []byte    // the message without these fields, with CRLF line ends
}

// A Reader reads the messages of a file one after another.
type Reader struct {
	r      *bufio.Reader
	max    int
	offset int64  // offset of the next byte to read
	from   []byte // the "From " line of the next message, if already read
	at     int64  // offset of from
	line   []byte
}

// NewReader returns a reader of a file. For a message of more than max bytes, Next returns
// ErrTooLarge.
func NewReader(r io.Reader, max int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10), max: max}
}

// readLine returns the next line with its line end, valid until the next call. A line longer than
// max is truncated.
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

// Next returns the next message. The error is io.EOF after the last one, ErrTooLarge (with only
// Offset set), ErrNotMbox, or a read error.
func (r *Reader) Next() (m Message, err error) {
	if r.from == nil {
		line, err := r.readLine()
		for err == nil && len(trimEnd(line)) == 0 { // skip empty lines before the first message
			line, err = r.readLine()
		}
		switch {
		case len(line) == 0:
			return m, err
		case !isFrom(line):
			return m, ErrNotMbox
		}
		r.from, r.at = bytes.Clone(line), r.offset-int64(len(line))
	}
	m = Message{Offset: r.at, Date: fromDate(r.from)}
	r.from = nil
	header, large := true, false
	blank, framing := false, false // blank: the previous line is empty; framing: and it is not the end of the header
	for {
		at := r.offset
		line, err := r.readLine()
		if len(line) == 0 || blank && isFrom(line) && !fromDate(line).IsZero() {
			if len(line) > 0 {
				r.from, r.at = bytes.Clone(line), at
			} else if !errors.Is(err, io.EOF) {
				return m, err
			}
			if framing { // the empty line before the next "From " line does not belong to the message
				m.Text = bytes.TrimSuffix(m.Text, []byte("\r\n"))
			}
			if large {
				return Message{Offset: m.Offset}, ErrTooLarge
			}
			return m, nil
		}
		ended := line[len(line)-1] == '\n' || err == nil
		text := trimEnd(line)
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

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

func isFrom(line []byte) bool { return bytes.HasPrefix(line, []byte("From ")) }

// addStatus adds the flags of a Status or X-Status field. It returns false for other lines.
func (m *Message) addStatus(line []byte) bool {
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

// dateForms are the date formats of "From " lines: that of RFC 4155, and others that programs
// write.
var dateForms = []string{
	time.ANSIC, "Mon Jan _2 15:04:05 -0700 2006", "Mon Jan _2 15:04:05 2006 -0700", "Mon Jan _2 15:04:05 MST 2006", "Mon Jan _2 15:04 2006", time.RFC1123Z,
}

// fromDate returns the date of a "From " line, after the sender. It returns the zero time if there
// is none.
func fromDate(line []byte) time.Time {
	if len(line) > 1000 {
		return time.Time{}
	}
	words := strings.Fields(string(line))
	for from := min(2, len(words)); from < len(words); from++ {
		for _, form := range dateForms {
			if at, err := time.Parse(form, strings.Join(words[from:], " ")); err == nil {
				return at.UTC()
			}
		}
	}
	return time.Time{}
}

// FileName returns the file name of a folder: its levels separated by dots.
func FileName(levels []string) string {
	names := make([]string, len(levels))
	for i, level := range levels {
		names[i] = fileNames.Replace(level)
	}
	return strings.Join(names, ".") + ".mbox"
}

var fileNames = strings.NewReplacer("%", "%25", ".", "%2E", "/", "%2F")

// Write writes a message to an mbox file. It converts line ends from CRLF to LF. flags are letters
// as in Message.Flags and are written in the fields Status and X-Status.
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
	begins, ended := true, true // begins: at the start of a line; ended: the last line has its line end
	for {
		piece, err := r.ReadSlice('\n')
		if len(piece) > 0 {
			if quoted := bytes.TrimLeft(piece, ">"); begins && bytes.HasPrefix(quoted, []byte("From ")) {
				w.WriteByte('>')
			}
			// Keep CR CR LF unchanged, since CR LF would be read as a line end.
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
	_, err := w.WriteString("\n") // returns the first error of any write to w
	return err
}
