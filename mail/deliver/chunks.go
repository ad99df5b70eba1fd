package deliver

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// chunkSize is the number of bytes sent in one BDAT command. A message that fits into one chunk is
// sent together with its envelope.
const chunkSize = 64 << 10

// chunker splits a message into chunks and converts line ends to CRLF.
type chunker struct {
	src   io.Reader
	lines bodyWriter
	out   bytes.Buffer
	block []byte
	read  int64
	done  bool
}

func newChunker(src io.Reader) *chunker {
	c := &chunker{src: src, block: make([]byte, bodyBlock)}
	c.lines = bodyWriter{w: bufio.NewWriterSize(&c.out, 1<<10), chunked: true}
	return c
}

// next returns the next chunk, which is valid until the next call. last reports that the message
// ends with it.
func (c *chunker) next() (chunk []byte, last bool, err error) {
	c.out.Reset()
	for !c.done && c.out.Len() < chunkSize {
		n, err := c.src.Read(c.block)
		c.read += int64(n)
		_, _ = c.lines.Write(c.block[:n]) // writes to memory do not fail
		if err == io.EOF {
			c.done = true
			err = c.lines.finish()
		}
		if err != nil {
			return nil, false, err
		}
	}
	if !c.done {
		c.lines.err = c.lines.w.Flush()
	}
	return c.out.Bytes(), c.done, c.lines.err
}

// chunks sends a message by BDAT (RFC 3030). On success it returns the reply to the last chunk.
func (s *session) chunks(e Envelope, m Message, content io.Reader) (reply, *failure) {
	c := newChunker(content)
	chunk, last, f := s.nextChunk(c, m)
	if f != nil {
		return reply{}, f
	}
	together := last && s.ext.pipelining
	if !together {
		if f := s.steps(s.envelope(e, m)); f != nil {
			return reply{}, f
		}
	}
	done, f := m.handOver()
	if f != nil {
		return reply{}, f
	}
	defer done()
	if together {
		return s.oneChunk(e, m, chunk)
	}
	for {
		r, f := s.chunk(chunk, last)
		if f != nil {
			s.broken = s.broken || !last // the host would take the next command as the start of another message
		}
		if f != nil || last {
			return r, f
		}
		chunk, last, f = s.nextChunk(c, m)
		if f != nil {
			s.broken = true
			return reply{}, f
		}
	}
}

// nextChunk returns the next chunk, or a failure if the message cannot be read.
func (s *session) nextChunk(c *chunker, m Message) ([]byte, bool, *failure) {
	chunk, last, err := c.next()
	if err == nil && last && m.Size > 0 && c.read != m.Size {
		err = fmt.Errorf("%w: %d bytes of %d", errWrongSize, c.read, m.Size)
	}
	if err != nil {
		return nil, false, &failure{stage: stageBody, err: fmt.Errorf("read the message: %w", err), enhanced: "4.3.0", localError: true}
	}
	return chunk, last, nil
}

func bdat(chunk []byte, last bool) string {
	line := "BDAT " + strconv.Itoa(len(chunk))
	if last {
		line += " LAST"
	}
	return line + "\r\n"
}

// oneChunk sends envelope and message together (RFC 3030 section 4.2).
func (s *session) oneChunk(e Envelope, m Message, chunk []byte) (reply, *failure) {
	head := e.mailLine(s.ext, m.Size) + "\r\n" + e.rcptLine(s.ext) + "\r\n" + bdat(chunk, true)
	if s.br.Buffered() > 0 {
		s.broken = true
		return reply{}, s.expect(stageMail, 2, reply{}, errUnsolicited)
	}
	if _, err := (blockWriter{s.conn, s.t.DataBlock}).Write(append([]byte(head), chunk...)); err != nil {
		f := s.interrupted(err)
		f.stage = stageMail // the host has not replied to anything yet
		return reply{}, f
	}
	var first *failure
	for _, at := range []stage{stageMail, stageRcpt} {
		r, err := s.receive(s.t.Command)
		f := s.expect(at, 2, r, err)
		if first == nil {
			first = f
		}
		if f != nil && s.broken {
			return reply{}, first
		}
	}
	r, err := s.receive(s.t.DataEnd)
	switch {
	case first != nil:
		s.broken = s.broken || err != nil || r.class() == 2 // the host accepted a message without a recipient
		return reply{}, first
	case err != nil:
		return reply{}, connectionLost(stageEnd, fmt.Errorf("%s: %w: %w", s.hop.host, ErrOutcomeUnknown, err))
	}
	return r, s.expect(stageEnd, 2, r, nil)
}

// chunk sends one chunk and reads its reply.
func (s *session) chunk(chunk []byte, last bool) (reply, *failure) {
	if f := s.expect(stageBody, 2, reply{code: 250}, s.send(bdat(chunk, last))); f != nil {
		return reply{}, f
	}
	if _, err := (blockWriter{s.conn, s.t.DataBlock}).Write(chunk); err != nil {
		return reply{}, s.interrupted(err)
	}
	if !last {
		r, err := s.receive(s.t.DataBlock)
		return r, s.expect(stageBody, 2, r, err)
	}
	r, err := s.receive(s.t.DataEnd)
	if err != nil {
		return reply{}, connectionLost(stageEnd, fmt.Errorf("%s: %w: %w", s.hop.host, ErrOutcomeUnknown, err))
	}
	return r, s.expect(stageEnd, 2, r, nil)
}
