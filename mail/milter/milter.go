// Package milter is a client for mail filters. It speaks the protocol of Sendmail's filters
// (version 6), which rspamd, ClamAV and others support. It does not know mailboxes, nor what a
// caller does with a verdict.
//
// The whole conversation takes place after the message has been received. Of the changes that a
// filter may request, only new header fields and quarantine are supported.
//
// The client of github.com/emersion/go-milter (v0.5.0) is not used. It collects an unlimited number
// of changes in packets of up to 1 MiB, and its timeouts apply to each packet, not to the
// conversation. So a hostile filter could fill the memory, or hold a message forever by progress
// packets. It also treats the response "skip", by which a filter declines the rest of the body, as
// an error, and leaves its connection open if the negotiation fails.
package milter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Actions of a filter.
const (
	Accept   = "accept"
	Reject   = "reject"   // refuse the message permanently
	TempFail = "tempfail" // refuse the message temporarily
	Discard  = "discard"  // accept the message, but do not deliver it
)

// A Verdict is the decision of a filter about a message.
type Verdict struct {
	Action     string
	Reply      string // the filter's SMTP reply: one line that begins with a code; "" if it gave none
	Quarantine string // the reason for quarantine; "" if the filter does not want it
	Fields     []Field
	Ignored    []string // changes that the filter requested and that are not supported
}

// A Field is a header field. Value may be folded with CRLF.
type Field struct{ Name, Value string }

// A Message is a message to check, with its envelope.
type Message struct {
	Hostname  string // name of this host
	IP        netip.Addr
	Port      uint16
	Helo      string
	TLS       string // version and cipher; "" if the client used no TLS
	QueueID   string
	From      string // the reverse-path
	To        []string
	Body      io.ReaderAt // the whole message with its header, with CRLF line ends; Size is its length in bytes
	Size      int64
	MaxHeader int64 // how many bytes of the header to send; 0 means all
}

// ErrProtocol is wrapped by errors about a filter that violates the protocol or the limits of this
// package.
var ErrProtocol = errors.New("milter violates the protocol")

// Limits on the responses of a filter, in bytes and in number of fields.
const (
	maxPacket = 256 << 10
	maxFields = 100
	maxValue  = 16 << 10
	maxText   = 500
	maxChunk  = 65535
)

// Numbers of the protocol: the actions that the client offers (SMFIF_), and the steps that the
// filter may decline or leave without a reply (SMFIP_).
const (
	protocolVersion = 6
	allActions      = 0x1ff
	allSteps        = 0x1fffff
	noConnect       = 1 << 0
	noHelo          = 1 << 1
	noMail          = 1 << 2
	noRcpt          = 1 << 3
	noBody          = 1 << 4
	noHeaders       = 1 << 5
	noEOH           = 1 << 6
	nrHeader        = 1 << 7
	noData          = 1 << 9
	nrConnect       = 1 << 12
	nrHelo          = 1 << 13
	nrMail          = 1 << 14
	nrRcpt          = 1 << 15
	nrData          = 1 << 16
	nrEOH           = 1 << 18
	nrBody          = 1 << 19
	leadSpaces      = 1 << 20
)

// DefaultTimeout limits a conversation with a filter, unless another limit is set.
const DefaultTimeout = 10 * time.Second

// A Client checks messages with one filter. It is safe for concurrent use.
type Client struct {
	// Network and Address are the address of the filter: "tcp" and host:port, or "unix" and a path.
	Network, Address string
	// Timeout limits a whole conversation; 0 means DefaultTimeout.
	Timeout time.Duration
	// Dial connects to the filter; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Check returns the verdict of the filter about a message. It returns an error if the connection
// fails or the message cannot be read, and one that wraps ErrProtocol if the filter violates the
// protocol.
func (c *Client) Check(ctx context.Context, m *Message) (*Verdict, error) {
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dial := c.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, c.Network, c.Address)
	if err != nil {
		return nil, fmt.Errorf("connect to milter: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	exchange := &conversation{w: bufio.NewWriterSize(conn, 32<<10), r: bufio.NewReaderSize(conn, 8<<10), m: m}
	v, err := exchange.run()
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("milter %s: %w", c.Address, err)
	}
	return v, nil
}

// conversation is the exchange with a filter about one message.
type conversation struct {
	w       *bufio.Writer
	r       *bufio.Reader
	m       *Message
	options uint32 // SMFIP_ bits: which steps the filter does not want, and to which it does not reply
	verdict Verdict
	decided bool // the verdict is final
}

func (c *conversation) run() (*Verdict, error) {
	if err := c.negotiate(); err != nil {
		return nil, err
	}
	for _, step := range []func() error{c.sendEnvelope, c.sendHeader, c.sendBody} {
		if err := step(); err != nil {
			return nil, err
		}
		if c.decided {
			break
		}
	}
	if !c.decided {
		if err := c.sendEnd(); err != nil {
			return nil, err
		}
	}
	if c.writePacket('Q', nil) == nil {
		_ = c.w.Flush()
	}
	return &c.verdict, nil
}

// negotiate agrees with the filter on the version and on the steps.
func (c *conversation) negotiate() error {
	var offer [12]byte
	binary.BigEndian.PutUint32(offer[:], protocolVersion)
	binary.BigEndian.PutUint32(offer[4:], allActions)
	binary.BigEndian.PutUint32(offer[8:], allSteps)
	if err := c.writePacket('O', offer[:]); err != nil {
		return err
	}
	kind, answer, err := c.readPacket()
	if err != nil {
		return err
	}
	if kind != 'O' || len(answer) < 12 {
		return fmt.Errorf("%w: unexpected response %q to the negotiation", ErrProtocol, kind)
	}
	if v := binary.BigEndian.Uint32(answer); v < 2 || v > protocolVersion {
		return fmt.Errorf("%w: unsupported version %d", ErrProtocol, v)
	}
	c.options = binary.BigEndian.Uint32(answer[8:])
	return nil
}

// sendStep sends a step and handles the response. If c.options has a bit of without, the filter
// does not want the step, and nothing is sent. If it has a bit of silent, the filter does not
// respond.
func (c *conversation) sendStep(kind byte, body []byte, without, silent uint32) error {
	if c.decided || c.options&without != 0 {
		return nil
	}
	if err := c.writePacket(kind, body); err != nil || c.options&silent != 0 {
		return err
	}
	answer, text, err := c.readPacket()
	if err != nil {
		return err
	}
	return c.handleResponse(answer, text, kind)
}

// handleResponse handles the response to a step. If the filter refuses a single recipient,
// handleResponse ignores that, since the sending host has already received the reply to its RCPT.
func (c *conversation) handleResponse(answer byte, text []byte, step byte) error {
	if step == 'R' && strings.IndexByte("rtyd", answer) >= 0 {
		c.addIgnored("a recipient refused")
		return nil
	}
	switch answer {
	case 'c', 's':
	case 'a':
		c.verdict.Action, c.decided = Accept, true
	case 'r':
		c.verdict.Action, c.decided = Reject, true
	case 't':
		c.verdict.Action, c.decided = TempFail, true
	case 'd':
		c.verdict.Action, c.decided = Discard, true
	case 'y':
		c.verdict.Reply, c.decided = oneLine(text), true
		c.verdict.Action = Reject
		if strings.HasPrefix(c.verdict.Reply, "4") {
			c.verdict.Action = TempFail
		}
	default:
		return fmt.Errorf("%w: unknown response %q", ErrProtocol, answer)
	}
	return nil
}

// sendEnvelope sends the steps before the header: connection, HELO, MAIL, each RCPT and DATA.
func (c *conversation) sendEnvelope() error {
	address := appendCString(nil, "["+c.m.IP.String()+"]")
	switch {
	case c.m.IP.Is4():
		address = appendCString(binary.BigEndian.AppendUint16(append(address, '4'), c.m.Port), c.m.IP.String())
	case c.m.IP.IsValid():
		address = appendCString(binary.BigEndian.AppendUint16(append(address, '6'), c.m.Port), c.m.IP.String())
	default:
		address = append(address, 'U')
	}
	if err := c.sendMacros('C', "j", c.m.Hostname, "{daemon_name}", c.m.Hostname, "v", "Mailstead"); err != nil {
		return err
	}
	if err := c.sendStep('C', address, noConnect, nrConnect); err != nil || c.decided {
		return err
	}
	if c.m.TLS != "" {
		protocol, cipher, _ := strings.Cut(c.m.TLS, " ")
		if err := c.sendMacros('H', "{tls_version}", protocol, "{cipher}", cipher); err != nil {
			return err
		}
	}
	if err := c.sendStep('H', appendCString(nil, c.m.Helo), noHelo, nrHelo); err != nil || c.decided {
		return err
	}
	if err := c.sendMacros('M', "i", c.m.QueueID, "{mail_addr}", c.m.From); err != nil {
		return err
	}
	if err := c.sendStep('M', appendCString(nil, "<"+c.m.From+">"), noMail, nrMail); err != nil || c.decided {
		return err
	}
	for _, to := range c.m.To {
		if err := c.sendMacros('R', "{rcpt_addr}", to); err != nil {
			return err
		}
		if err := c.sendStep('R', appendCString(nil, "<"+to+">"), noRcpt, nrRcpt); err != nil {
			return err
		}
	}
	return c.sendStep('T', nil, noData, nrData)
}

// sendHeader sends the header fields one by one. Folds in them have LF line ends, as Sendmail sends
// them.
func (c *conversation) sendHeader() error {
	fields, err := readFields(c.m)
	if err != nil {
		return err
	}
	for _, f := range fields {
		value := f.Value
		if c.options&leadSpaces == 0 {
			value = strings.TrimPrefix(value, " ")
		}
		if err := c.sendStep('L', appendCString(appendCString(nil, f.Name), value), noHeaders, nrHeader); err != nil {
			return err
		}
	}
	return c.sendStep('N', nil, noEOH, nrEOH)
}

// sendBody sends the body, until the filter has decided or does not want the rest.
func (c *conversation) sendBody() error {
	if c.decided || c.options&noBody != 0 {
		return nil
	}
	from, err := bodyOffset(c.m)
	if err != nil {
		return err
	}
	r := io.NewSectionReader(c.m.Body, from, c.m.Size-from)
	piece := make([]byte, min(maxChunk, r.Size()))
	for !c.decided {
		n, err := io.ReadFull(r, piece)
		if n == 0 {
			return nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("read message: %w", err)
		}
		if err := c.writePacket('B', piece[:n]); err != nil {
			return err
		}
		if c.options&nrBody != 0 {
			continue
		}
		answer, text, err := c.readPacket()
		if err != nil || answer == 's' {
			return err
		}
		if err := c.handleResponse(answer, text, 'B'); err != nil {
			return err
		}
	}
	return nil
}

// sendEnd sends the end of the message. It handles the changes that the filter requests, and its
// verdict.
func (c *conversation) sendEnd() error {
	if err := c.sendMacros('E', "i", c.m.QueueID); err != nil {
		return err
	}
	if err := c.writePacket('E', nil); err != nil {
		return err
	}
	for !c.decided {
		kind, text, err := c.readPacket()
		if err != nil {
			return err
		}
		switch kind {
		case 'h':
			err = c.addField(text)
		case 'i':
			if len(text) < 4 {
				return fmt.Errorf("%w: a field to insert has no index", ErrProtocol)
			}
			err = c.addField(text[4:])
		case 'q':
			reason, _, _ := bytes.Cut(text, []byte{0})
			c.verdict.Quarantine = oneLine(reason)
			if c.verdict.Quarantine == "" {
				c.verdict.Quarantine = "quarantine"
			}
		case 'm', 'b', '+', '-', 'e', '2':
			c.addIgnored(map[byte]string{'m': "a field changed", 'b': "another body", '+': "another recipient", '-': "a recipient less", 'e': "another sender", '2': "another recipient"}[kind])
		case 'c': // continue, which means no objections
			c.verdict.Action, c.decided = Accept, true
		default:
			err = c.handleResponse(kind, text, 'E')
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addIgnored records a requested change that is not supported, once.
func (c *conversation) addIgnored(what string) {
	for _, known := range c.verdict.Ignored {
		if known == what {
			return
		}
	}
	c.verdict.Ignored = append(c.verdict.Ignored, what)
}

// addField stores a header field that the filter wants to add to the message.
func (c *conversation) addField(text []byte) error {
	name, rest, ok := bytes.Cut(text, []byte{0})
	value, _, ended := bytes.Cut(rest, []byte{0})
	if !ok || !ended {
		return fmt.Errorf("%w: a field has no terminating zero", ErrProtocol)
	}
	if len(c.verdict.Fields) == maxFields || len(value) > maxValue {
		return fmt.Errorf("%w: too many fields to add, or a field is too long", ErrProtocol)
	}
	if !isName(string(name)) {
		return fmt.Errorf("%w: invalid field name %.40q", ErrProtocol, name)
	}
	c.verdict.Fields = append(c.verdict.Fields, Field{string(name), foldedValue(string(value))})
	return nil
}
