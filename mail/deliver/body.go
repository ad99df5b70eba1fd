package deliver

import (
	"bufio"
	"bytes"
	"net"
	"time"
)

const bodyBlock = 32 << 10

// bodyWriter streams a message as DATA wants it (RFC 5321 §4.5.2): every line end is CRLF, a bare
// CR or LF included, so that no two servers can disagree about where the message ends, and a dot
// that begins a line is doubled. With chunked it is as BDAT wants it: the same without anything
// about dots.
type bodyWriter struct {
	w       *bufio.Writer
	chunked bool
	cr      bool  // a CR is held back until it is known what follows
	mid     bool  // something stands on the current line
	err     error // the first error of the connection, to tell it from one of the message's source
}

func (b *bodyWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && b.err == nil {
		if b.cr {
			b.endLine()
			if p[0] == '\n' {
				p = p[1:]
			}
			continue
		}
		if !b.mid && p[0] == '.' && !b.chunked {
			b.putString(".")
		}
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			b.put(p)
			b.mid = true
			break
		}
		b.put(p[:i])
		b.mid = b.mid || i > 0
		if p[i] == '\r' {
			b.cr = true
		} else {
			b.endLine()
		}
		p = p[i+1:]
	}
	return n, b.err
}

// finish ends the last line if need be, and the message.
func (b *bodyWriter) finish() error {
	if b.cr || b.mid {
		b.endLine()
	}
	if !b.chunked {
		b.putString(".\r\n")
	}
	if b.err == nil {
		b.err = b.w.Flush()
	}
	return b.err
}

func (b *bodyWriter) endLine() {
	b.cr, b.mid = false, false
	b.putString("\r\n")
}

func (b *bodyWriter) put(p []byte) {
	if b.err == nil {
		_, b.err = b.w.Write(p)
	}
}

func (b *bodyWriter) putString(s string) {
	if b.err == nil {
		_, b.err = b.w.WriteString(s)
	}
}

// blockWriter gives every block of a message its own deadline.
type blockWriter struct {
	conn  net.Conn
	limit time.Duration
}

func (b blockWriter) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		if err := b.conn.SetDeadline(time.Now().Add(b.limit)); err != nil {
			return done, err
		}
		n, err := b.conn.Write(p[done:min(done+bodyBlock, len(p))])
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}
