// Package mbox reads and writes mbox files (RFC 4155), in the variant mboxrd: a line of a message
// that begins with any number of > and "From " has one > more in the file. It does not know where
// messages go to.
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

// ErrTooLarge is returned for a message that is longer than the reader takes. The next one can be
// read.
var ErrTooLarge = errors.New("the message is too large")

// ErrNotMbox is returned for a file that does not begin with a "From " line.
var ErrNotMbox = errors.New(`the file is no mbox: it does not begin with "From "`)

// A Message is one message of a file.
type Message struct {
	Offset int64     // of its "From " line in the file
	Date   time.Time // of that line, which is in UTC; zero: it has none that can be read
	Flags  string    // letters as in a Maildir, of the fields Status and X-Status: S R F D T
	Text   []byte    // the message, with CRLF at the end of lines, without these fields
}

// A Reader reads the messages of a file, one after the other.
type Reader struct {
	r      *bufio.Reader
	max    int
	offset int64  // of what is read next
	from   []byte // the "From " line that was read ahead
	at     int64  // its offset
	line   []byte
}

// NewReader reads a file. A message of more than max bytes is passed over.
func NewReader(r io.Reader, max int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10), max: max}
}

// readLine gives the next line with its end, valid until the next call. The end of a line that is
// longer than max is lost.
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

// Next gives the next message. The error is io.EOF behind the last one, ErrTooLarge with the
// message's Offset, or that of the file.
func (r *Reader) Next() (m Message, err error) {
	if r.from == nil {
		line, err := r.readLine()
		for err == nil && len(trimEnd(line)) == 0 { // empty lines before the first message
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
	blank, framing := false, false // the line before is empty, and no end of the header
	for {
		at := r.offset
		line, err := r.readLine()
		if len(line) == 0 || blank && isFrom(line) && !fromDate(line).IsZero() {
			if len(line) > 0 {
				r.from, r.at = bytes.Clone(line), at
			} else if !errors.Is(err, io.EOF) {
				return m, err
			}
			if framing { // the empty line before the next message is not the message's
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

// addStatus takes the flags of a header line that mail programs keep them in.
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

// dateForms are those of "From " lines: RFC 4155's, and those that programs write.
var dateForms = []string{
	time.ANSIC, "Mon Jan _2 15:04:05 -0700 2006", "Mon Jan _2 15:04:05 2006 -0700", "Mon Jan _2 15:04:05 MST 2006", "Mon Jan _2 15:04 2006", time.RFC1123Z,
}

// fromDate is the date of a "From " line, behind the sender.
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

// FileName is the name of a folder's file: its levels with dots between.
func FileName(levels []string) string {
	names := make([]string, len(levels))
	for i, level := range levels {
		names[i] = fileNames.Replace(level)
	}
	return strings.Join(names, ".") + ".mbox"
}

var fileNames = strings.NewReplacer("%", "%25", ".", "%2E", "/", "%2F")

// Write appends a message to a file. Its lines, whose ends are CRLF or LF, end with LF there. flags
// are letters as in a Message; they go into the fields Status and X-Status.
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
	begins, ended := true, true // of a line
	for {
		piece, err := r.ReadSlice('\n')
		if len(piece) > 0 {
			if quoted := bytes.TrimLeft(piece, ">"); begins && bytes.HasPrefix(quoted, []byte("From ")) {
				w.WriteByte('>')
			}
			// A CR before CRLF stays, and so does the CRLF, or it would be read as one.
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
	_, err := w.WriteString("\n") // the first error of w
	return err
}
