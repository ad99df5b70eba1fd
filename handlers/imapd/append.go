package imapd

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/service/inbox"
)

// One APPEND can have any number of messages. They are written to the store in batches of at most
// this size.
const (
	maxBatchMessages = 100      // messages of a batch
	maxBatchBytes    = 64 << 20 // bytes of all messages of a batch
)

// A newMessage is what APPEND or REPLACE says about a message before the bytes of the message
// follow.
type newMessage struct {
	flags []imap.Flag
	date  time.Time // zero: not given
	size  int64     // in bytes
	utf8  bool      // sent as UTF8 (~{size} …), so a parenthesis follows the message
}

// parseNewMessage parses optional flags, an optional date, and the beginning of a literal or
// literal8, up to its size (RFC 9051 section 6.3.12, RFC 3516, RFC 6855 section 4).
func parseNewMessage(p *wire.Command) (m newMessage) {
	if p.Next('(') {
		m.flags = p.Flags()
		p.Space()
	}
	if p.Next('"') {
		m.date = p.DateTime()
		p.Space()
	}
	if !p.Skip('~') && !p.Next('{') {
		if p.Word() != "UTF8" {
			p.Fail(wire.Bad("%s knows no data of that kind", p.Name))
		}
		p.Space()
		p.Expect('(')
		p.Expect('~')
		m.utf8 = true
	}
	m.size = p.MessageSize()
	return m
}

// receive reads the bytes of the message from the client and writes them to w.
func (m *newMessage) receive(p *wire.Command, w io.Writer) error {
	r, err := p.ReadMessage()
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, r); err != nil {
		return err
	}
	p.EndOfMessage()
	if m.utf8 {
		p.Expect(')')
	}
	return p.Err()
}

// append answers APPEND (RFC 9051 section 6.3.12). It stores all messages of the command or none
// (RFC 3502), in batches of at most maxBatchMessages and maxBatchBytes.
func (ss *session) append(p *wire.Command) error {
	p.Space()
	folder := p.Folder()
	if err := p.Err(); err != nil {
		return err
	}
	body := ss.server.Service.Core.NewSpool(maxBatchBytes)
	defer func() { body.Close() }()
	all := ss.server.Service.Inbox.BeginAppend(ss.user, folder)
	undo := func(err error) error { return ss.withTryCreate(cmp.Or(all.Undo(), err)) }
	var messages []inbox.Append
	var held, room int64
	for first := true; first || p.More(); first = false {
		p.Space()
		m := parseNewMessage(p)
		err := p.Err()
		if err == nil && (len(messages) == maxBatchMessages || held+m.size > maxBatchBytes) {
			err = all.Put(false, messages...)
			body.Close()
			body = ss.server.Service.Core.NewSpool(maxBatchBytes)
			messages, held, room = nil, 0, 0
		}
		if err == nil && (first || m.size == 0 || m.size > room-held) {
			room, err = ss.server.Service.Inbox.CheckAppend(ss.ctx, ss.user, folder, m.size, held)
		}
		one := inbox.Append{Received: m.date, Body: io.NewSectionReader(body, held, m.size)}
		if err == nil {
			one.Flags, one.Keywords, err = parseFlags(m.flags)
		}
		if err == nil {
			err = m.receive(p, body)
		}
		if err != nil {
			return undo(err)
		}
		messages, held = append(messages, one), held+m.size
	}
	if err := p.End(); err != nil {
		return undo(err)
	}
	if err := all.Put(true, messages...); err != nil {
		return undo(err)
	}
	ss.code = fmt.Sprintf("APPENDUID %d %s", all.UIDValidity, uidSet(all.UIDs))
	return nil
}
