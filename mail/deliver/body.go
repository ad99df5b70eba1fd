package deliver

import (
	"bufio"
	"bytes"
	"net"
	"time"
)

// bodyBlock is the number of bytes that are written at a time.
const bodyBlock = 32 << 10

// bodyWriter writes a message in the format of DATA (RFC 5321 §4.5.2). It converts every line end,
// including bare CR and LF, to CRLF, so that all servers agree on where the message ends. It
// doubles a dot at the start of a line. If chunked is set, it writes the format of BDAT instead,
// which leaves dots unchanged.
type bodyWriter struct {
	w       *bufio.Writer
	chunked bool
	cr      bool  // a CR was read; a line end is written once the next byte is known
	midLine bool  // something was written to the current line
	err     error // the first error in writing to the connection, not in reading the message
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
		if !b.midLine && p[0] == '.' && !b.chunked {
			b.putString(".")
		}
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			b.put(p)
			b.midLine = true
			break
		}
		b.put(p[:i])
		b.midLine = b.midLine || i > 0
		if p[i] == '\r' {
			b.cr = true
		} else {
			b.endLine()
		}
		p = p[i+1:]
	}
	return n, b.err
}

// finish ends the last line if necessary, then writes the final dot unless chunked is set.
func (b *bodyWriter) finish() error {
	if b.cr || b.midLine {
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
	b.cr, b.midLine = false, false
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

// blockWriter writes to a connection in blocks, with a new deadline for each block.
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
