package deliver

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// chunkSize is about the number of bytes in one BDAT command. A message that fits into one chunk
// can be sent together with its envelope.
const chunkSize = 64 << 10

// chunker splits a message into chunks and converts line ends to CRLF.
type chunker struct {
	src       io.Reader
	lines     bodyWriter
	out       bytes.Buffer
	block     []byte
	bytesRead int64
	done      bool
}

func newChunker(src io.Reader) *chunker {
	c := &chunker{src: src, block: make([]byte, bodyBlock)}
	c.lines = bodyWriter{w: bufio.NewWriterSize(&c.out, 1<<10), chunked: true}
	return c
}

// next returns the next chunk, which is valid until the next call. last is true for the last chunk.
func (c *chunker) next() (chunk []byte, last bool, err error) {
	c.out.Reset()
	for !c.done && c.out.Len() < chunkSize {
		n, err := c.src.Read(c.block)
		c.bytesRead += int64(n)
		_, _ = c.lines.Write(c.block[:n]) // writing to a buffer does not fail
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

// sendByBDAT sends a message by BDAT (RFC 3030). If the host accepts the message, it returns the
// reply to the last chunk.
func (s *session) sendByBDAT(e Envelope, m Message, content io.Reader) (reply, *failure) {
	c := newChunker(content)
	chunk, last, f := s.nextChunk(c, m)
	if f != nil {
		return reply{}, f
	}
	together := last && s.ext.pipelining
	if !together {
		if f := s.runCommands(s.envelopeCommands(e, m)); f != nil {
			return reply{}, f
		}
	}
	done, f := m.handOver()
	if f != nil {
		return reply{}, f
	}
	defer done()
	if together {
		return s.sendInOneChunk(e, m, chunk)
	}
	for {
		r, f := s.sendChunk(chunk, last)
		if f != nil {
			s.broken = s.broken || !last // the host would treat the next MAIL as part of the unfinished message
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

// nextChunk returns the next chunk. It returns a failure if the message cannot be read or does not
// have its declared size.
func (s *session) nextChunk(c *chunker, m Message) (_ []byte, last bool, f *failure) {
	chunk, last, err := c.next()
	if err == nil && last && m.Size > 0 && c.bytesRead != m.Size {
		err = fmt.Errorf("%w: %d bytes of %d", errWrongSize, c.bytesRead, m.Size)
	}
	if err != nil {
		return nil, false, &failure{stage: stageBody, err: fmt.Errorf("read the message: %w", err), enhanced: "4.3.0", localError: true}
	}
	return chunk, last, nil
}

func bdatCommand(chunk []byte, last bool) string {
	line := "BDAT " + strconv.Itoa(len(chunk))
	if last {
		line += " LAST"
	}
	return line + "\r\n"
}

// sendInOneChunk sends the envelope and the message together, for which the host must offer
// PIPELINING (RFC 3030 section 4.2).
func (s *session) sendInOneChunk(e Envelope, m Message, chunk []byte) (reply, *failure) {
	head := e.mailLine(s.ext, m.Size) + "\r\n" + e.rcptLine(s.ext) + "\r\n" + bdatCommand(chunk, true)
	if s.br.Buffered() > 0 {
		s.broken = true
		return reply{}, s.checkReply(stageMail, 2, reply{}, errUnsolicited)
	}
	if _, err := (blockWriter{s.conn, s.timeouts.DataBlock}).Write(append([]byte(head), chunk...)); err != nil {
		f := s.interruptedFailure(err)
		f.stage = stageMail // the host has not replied to anything yet
		return reply{}, f
	}
	var first *failure
	for _, at := range []stage{stageMail, stageRcpt} {
		r, err := s.receive(s.timeouts.Command)
		f := s.checkReply(at, 2, r, err)
		if first == nil {
			first = f
		}
		if f != nil && s.broken {
			return reply{}, first
		}
	}
	r, err := s.receive(s.timeouts.DataEnd)
	switch {
	case first != nil:
		s.broken = s.broken || err != nil || r.class() == 2 // the host has accepted a message for no recipient
		return reply{}, first
	case err != nil:
		return reply{}, connectionLostFailure(stageEnd, fmt.Errorf("%s: %w: %w", s.hop.host, ErrOutcomeUnknown, err))
	}
	return r, s.checkReply(stageEnd, 2, r, nil)
}

// sendChunk sends one chunk and returns the reply to it.
func (s *session) sendChunk(chunk []byte, last bool) (reply, *failure) {
	if f := s.checkReply(stageBody, 2, reply{code: 250}, s.send(bdatCommand(chunk, last))); f != nil {
		return reply{}, f
	}
	if _, err := (blockWriter{s.conn, s.timeouts.DataBlock}).Write(chunk); err != nil {
		return reply{}, s.interruptedFailure(err)
	}
	if !last {
		r, err := s.receive(s.timeouts.DataBlock)
		return r, s.checkReply(stageBody, 2, r, err)
	}
	r, err := s.receive(s.timeouts.DataEnd)
	if err != nil {
		return reply{}, connectionLostFailure(stageEnd, fmt.Errorf("%s: %w: %w", s.hop.host, ErrOutcomeUnknown, err))
	}
	return r, s.checkReply(stageEnd, 2, r, nil)
}
