package deliver

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"github.com/mailstead/mailstead/internal/buffers"
	"github.com/mailstead/mailstead/internal/killpoint"
)

// replyGrace is how long to wait for the reply of a host that stops reading the message.
const replyGrace = time.Second

// transact sends one message. If the host accepts it, transact returns the host's last reply.
func (s *session) transact(e Envelope, m Message) (reply, *failure) {
	if f := s.checkExtensions(e, m); f != nil {
		return reply{}, f
	}
	if f := s.reset(); f != nil {
		return reply{}, f
	}
	content, err := m.Open()
	if err != nil {
		return reply{}, &failure{stage: stageMail, err: fmt.Errorf("open the message: %w", err), enhanced: "4.3.0", localError: true}
	}
	defer content.Close()
	s.dirty = true
	s.uses++
	send := s.sendByDATA
	if s.ext.chunking {
		send = s.sendByBDAT
	}
	killpoint.At("delivery.envelope")
	r, f := send(e, m, content)
	if f != nil {
		return reply{}, f
	}
	s.dirty = false
	return r, nil
}

// sendByDATA sends a message by DATA. If the host accepts it, sendByDATA returns the reply to the
// final dot.
func (s *session) sendByDATA(e Envelope, m Message, content io.Reader) (reply, *failure) {
	commands := s.envelopeCommands(e, m)
	if !s.ext.pipelining {
		if f := s.runCommands(commands); f != nil {
			return reply{}, f
		}
		commands = nil
	}
	done, f := m.handOver()
	if f != nil {
		return reply{}, f
	}
	defer done()
	if f := s.runCommands(append(commands, envelopeCommand{stageData, "DATA\r\n", 3, s.timeouts.DataStart})); f != nil {
		return reply{}, f
	}
	killpoint.At("delivery.body")
	if f := s.sendBody(content, m.Size); f != nil {
		return reply{}, f
	}
	killpoint.At("delivery.dot_sent")
	r, err := s.receive(s.timeouts.DataEnd)
	killpoint.At("delivery.answered")
	if err != nil {
		return reply{}, connectionLostFailure(stageEnd, fmt.Errorf("%s: %w: %w", s.hop.host, ErrOutcomeUnknown, err))
	}
	return r, s.checkReply(stageEnd, 2, r, nil)
}

// checkExtensions returns a failure if the host lacks an extension that the message needs, or if
// the message exceeds its size limit.
func (s *session) checkExtensions(e Envelope, m Message) *failure {
	f := &failure{stage: stageMail, status: Permanent}
	switch {
	case e.RequireTLS && (!s.ext.requireTLS || s.tls == ""):
		f.err, f.enhanced = fmt.Errorf("%s: %w", s.hop.host, errNoRequireTLS), "5.7.30"
		if !s.hop.relay {
			f.stage = stageConnect // another host of the domain may offer it
		}
	case e.SMTPUTF8 && !s.ext.utf8:
		f.err, f.enhanced = fmt.Errorf("%s: %w", s.hop.host, errNeedsUTF8), "5.6.7"
	case e.EightBit && !s.ext.eightBit: // conversion required but not supported (RFC 3463 section 3.7)
		f.err, f.enhanced = fmt.Errorf("%s: %w", s.hop.host, errNeeds8Bit), "5.6.3"
	case s.ext.maxSize > 0 && m.Size > s.ext.maxSize:
		f.err, f.enhanced = fmt.Errorf("%s: %w: %d bytes of %d", s.hop.host, errTooBig, m.Size, s.ext.maxSize), "5.3.4"
	default:
		return nil
	}
	return f
}

// reset sends RSET after a transaction that was not completed. If that fails, the session is
// broken; the failure says nothing about the message.
func (s *session) reset() *failure {
	if !s.dirty {
		return nil
	}
	r, err := s.command("RSET")
	f := s.checkReply(stageMail, 2, r, err)
	s.dirty, s.broken = f != nil, s.broken || f != nil
	return f
}

// envelopeCommand is one command of a transaction, with the class of the reply that it expects.
type envelopeCommand struct {
	at    stage
	line  string
	class int
	limit time.Duration
}

// envelopeCommands returns the MAIL and RCPT commands.
func (s *session) envelopeCommands(e Envelope, m Message) []envelopeCommand {
	return []envelopeCommand{
		{stageMail, e.mailLine(s.ext, m.Size) + "\r\n", 2, s.timeouts.Command},
		{stageRcpt, e.rcptLine(s.ext) + "\r\n", 2, s.timeouts.Command},
	}
}

// runCommands sends the commands and reads the replies. If the host offers PIPELINING (RFC 2920),
// it sends all commands at once. It returns the first failure.
func (s *session) runCommands(commands []envelopeCommand) *failure {
	if s.ext.pipelining {
		all := ""
		for _, command := range commands {
			all += command.line
		}
		if err := s.send(all); err != nil {
			return s.checkReply(stageMail, 2, reply{}, err)
		}
	}
	var first *failure
	for _, command := range commands {
		var err error
		if !s.ext.pipelining {
			err = s.send(command.line)
		}
		var r reply
		if err == nil {
			r, err = s.receive(command.limit)
		}
		if first != nil {
			// The host has refused the recipient but accepted DATA, and waits for content.
			// Disconnect, so that it gets no empty message.
			s.broken = s.broken || r.class() == 3
		} else {
			first = s.checkReply(command.at, command.class, r, err)
		}
		if first != nil && (s.broken || !s.ext.pipelining) {
			return first
		}
	}
	return first
}

// sendBody sends the content and the final dot. If the content cannot be sent completely, it sends
// no dot, so the host discards the message.
func (s *session) sendBody(content io.Reader, size int64) *failure {
	out := blockWriter{conn: s.conn, limit: s.timeouts.DataBlock}
	if s.bw == nil {
		s.bw = bufio.NewWriterSize(out, bodyBlock)
	}
	s.bw.Reset(out)
	w := &bodyWriter{w: s.bw}
	n, err := buffers.Copy(w, content)
	if err == nil && size > 0 && n != size {
		err = fmt.Errorf("%w: %d bytes of %d", errWrongSize, n, size)
	}
	if err != nil && w.err == nil {
		s.broken = true
		return &failure{stage: stageBody, err: fmt.Errorf("read the message: %w", err), enhanced: "4.3.0", localError: true}
	}
	if err == nil && w.finish() == nil {
		return nil
	}
	return s.interruptedFailure(w.err)
}

// interruptedFailure returns the failure for a host that stops reading the message. The failure has
// the host's reply if there is one, otherwise err.
func (s *session) interruptedFailure(err error) *failure {
	r, rerr := s.receive(replyGrace)
	s.broken = true
	if rerr == nil && r.class() >= 4 {
		return &failure{stage: stageBody, reply: r}
	}
	return connectionLostFailure(stageBody, fmt.Errorf("%s: connection lost while sending the message: %w", s.hop.host, err))
}
