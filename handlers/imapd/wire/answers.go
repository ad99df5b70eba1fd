package wire

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/mailstead/mailstead/handlers/imapd/deflate"
)

// WriteLine writes a line of an answer. The caller gives no line end.
func (c *Conn) WriteLine(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.put(fmt.Appendf(nil, format+"\r\n", args...)) // the error stays in c.err
}

// WriteAnswer writes a whole answer, or a piece of one. It does not keep p.
func (c *Conn) WriteAnswer(p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.put(p)
}

// Copy writes n bytes from r as part of an answer. If r fails, it closes the connection, because a
// part of the answer may have been sent.
func (c *Conn) Copy(r io.Reader, n int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n > 0 {
		if c.err != nil {
			return c.err
		}
		if len(c.out) >= outBuffer {
			if err := c.flush(); err != nil {
				return err
			}
		}
		room := int(min(n, int64(outBuffer-len(c.out))))
		c.out = slices.Grow(c.out, room)
		read, err := r.Read(c.out[len(c.out) : len(c.out)+room])
		c.out = c.out[:len(c.out)+read]
		n -= int64(read)
		if n > 0 && err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			c.err, c.out = err, nil
			c.Conn.Close()
			return err
		}
	}
	return c.err
}

// put adds p to the buffered answers, or sends it at once if the buffer is full or the server waits
// for the client.
func (c *Conn) put(p []byte) error {
	if c.err != nil || len(p) == 0 {
		return c.err
	}
	if len(c.out)+len(p) > outBuffer {
		if err := c.flush(); err != nil {
			return err
		}
	}
	if len(p) >= outBuffer {
		return c.send(p)
	}
	c.out = append(c.out, p...)
	if c.waiting {
		return c.flush()
	}
	return nil
}

// Flush sends the buffered answers.
func (c *Conn) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flush()
}

// flush is Flush for callers that hold c.mu.
func (c *Conn) flush() error {
	if c.err != nil || len(c.out) == 0 {
		return c.err
	}
	err := c.send(c.out)
	c.out = c.out[:0]
	return err
}

// send writes p to the client in pieces, each with its own deadline.
func (c *Conn) send(p []byte) error {
	for len(p) > 0 && c.err == nil {
		n := min(len(p), outBuffer)
		c.Conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		if c.pool != nil {
			c.err = c.pool.Write(c.Conn, p[:n])
		} else {
			_, c.err = c.Conn.Write(p[:n])
		}
		p = p[n:]
	}
	return c.err
}

// Bye sends a BYE with the reason; later writes fail. It must not be called in the middle of an
// answer. Unless Stop was called, it gives the client a moment to read the reason.
func (c *Conn) Bye(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.put([]byte("* BYE "+why+"\r\n")) != nil || c.flush() != nil {
		return
	}
	c.err = errClosedByServer
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.stopReason() == "" && half.CloseWrite() == nil {
		// If unread bytes were left, closing would reset the connection, and the client might not
		// receive the BYE.
		c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		// An error does not matter, since the connection ends.
		_, _ = io.CopyN(io.Discard, c.in, lingerSize)
	}
}

// Compress writes the line answer, and then compresses both directions of the connection (RFC
// 4978). Decompressed input has the same limits as other input: on lines, literals and time.
func (c *Conn) Compress(pool *deflate.Pool, answer string) {
	c.WriteLine("%s", answer)
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.flush() // the error stays in c.err
	c.pool = pool
	c.in = bufio.NewReaderSize(deflate.NewReader(c.in), 4096)
}

// Compressed reports whether Compress was called.
func (c *Conn) Compressed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool != nil
}

// Failed reports whether nothing more can be written.
func (c *Conn) Failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

// Close sends the buffered answers and closes the connection.
func (c *Conn) Close() error {
	_ = c.Flush() // a client that has left gets no answer
	return c.Conn.Close()
}
