// Package milter asks another program what it thinks of a message, by the protocol of Sendmail's
// filters (version 6), which rspamd, ClamAV and others speak. It does not know mailboxes, nor what
// is done with the answer.
//
// The whole conversation takes place when the message is there. Of what a filter may ask to be
// changed only new header fields count, and that the message be set aside.
//
// The client of github.com/emersion/go-milter (v0.5.0) is not used, since it collects whatever
// changes a filter asks for, in packets of up to 1 MiB, without a bound on their number, and its
// timeouts hold for each packet, not for the conversation: a hostile filter fills the memory, or
// holds a message for ever by signs of progress. It also takes the answer that no more of the body
// is wanted for an error, and leaves its connection open when the negotiation fails.
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

// What a filter can decide.
const (
	Accept   = "accept"
	Reject   = "reject"   // for good
	TempFail = "tempfail" // for now
	Discard  = "discard"  // take it and drop it
)

// A Verdict is what a filter has decided.
type Verdict struct {
	Action     string
	Reply      string // what the client is to be told, beginning with a code, where the filter has said; one line
	Quarantine string // why the message is to be set aside; "" it is not
	Fields     []Field
	Ignored    []string // changes that it asked for and that are not made
}

// A Field is a header field to be added. Value may be folded, with CRLF.
type Field struct{ Name, Value string }

// A Message is what a filter is told.
type Message struct {
	Hostname  string // ours
	IP        netip.Addr
	Port      uint16
	Helo      string
	TLS       string // version and cipher; "" without
	QueueID   string
	From      string // reverse path
	To        []string
	Body      io.ReaderAt // all of it, header included, with CRLF line ends
	Size      int64
	MaxHeader int64 // bytes of the header that are shown
}

// ErrProtocol is wrapped by errors about a filter that does not keep to the protocol or to the
// bounds.
var ErrProtocol = errors.New("milter does not keep to the protocol")

// Bounds on what a filter may answer.
const (
	maxPacket = 256 << 10
	maxFields = 100
	maxValue  = 16 << 10
	maxText   = 500
	chunk     = 65535
)

// What we offer (SMFIF_) and the steps that we know how to leave out (SMFIP_).
const (
	version    = 6
	actions    = 0x1ff
	steps      = 0x1fffff
	noConnect  = 1 << 0
	noHelo     = 1 << 1
	noMail     = 1 << 2
	noRcpt     = 1 << 3
	noBody     = 1 << 4
	noHeaders  = 1 << 5
	noEOH      = 1 << 6
	nrHeader   = 1 << 7
	noData     = 1 << 9
	nrConnect  = 1 << 12
	nrHelo     = 1 << 13
	nrMail     = 1 << 14
	nrRcpt     = 1 << 15
	nrData     = 1 << 16
	nrEOH      = 1 << 18
	nrBody     = 1 << 19
	leadSpaces = 1 << 20
)

// A Client asks one filter. It is safe for use by several goroutines.
type Client struct {
	// Network and Address are where the filter listens: tcp and host:port, or unix and a path.
	Network, Address string
	// Timeout bounds a whole conversation; 0 is 10 s.
	Timeout time.Duration
	// Dial is used instead of a net.Dialer, where it is set.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Check asks about a message. The error is that of the connection, of reading the message, or wraps
// ErrProtocol.
func (c *Client) Check(ctx context.Context, m *Message) (*Verdict, error) {
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = 10 * time.Second
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

// conversation is one exchange with a filter about one message.
type conversation struct {
	w       *bufio.Writer
	r       *bufio.Reader
	m       *Message
	options uint32 // SMFIP_ bits: steps and answers that the filter does without
	verdict Verdict
	decided bool // verdict is final
}

func (c *conversation) run() (*Verdict, error) {
	if err := c.negotiate(); err != nil {
		return nil, err
	}
	for _, step := range []func() error{c.envelope, c.header, c.body} {
		if err := step(); err != nil {
			return nil, err
		}
		if c.decided {
			break
		}
	}
	if !c.decided {
		if err := c.end(); err != nil {
			return nil, err
		}
	}
	if c.send('Q', nil) == nil {
		_ = c.w.Flush()
	}
	return &c.verdict, nil
}

func (c *conversation) negotiate() error {
	var offer [12]byte
	binary.BigEndian.PutUint32(offer[:], version)
	binary.BigEndian.PutUint32(offer[4:], actions)
	binary.BigEndian.PutUint32(offer[8:], steps)
	if err := c.send('O', offer[:]); err != nil {
		return err
	}
	kind, answer, err := c.receive()
	if err != nil {
		return err
	}
	if kind != 'O' || len(answer) < 12 {
		return fmt.Errorf("%w: it answers %q to the negotiation", ErrProtocol, kind)
	}
	if v := binary.BigEndian.Uint32(answer); v < 2 || v > version {
		return fmt.Errorf("%w: it speaks version %d", ErrProtocol, v)
	}
	c.options = binary.BigEndian.Uint32(answer[8:])
	return nil
}

// step sends a step unless the filter does without it, and takes the answer unless there is none.
func (c *conversation) step(kind byte, body []byte, without, silent uint32) error {
	if c.decided || c.options&without != 0 {
		return nil
	}
	if err := c.send(kind, body); err != nil || c.options&silent != 0 {
		return err
	}
	answer, text, err := c.receive()
	if err != nil {
		return err
	}
	return c.decide(answer, text, kind)
}

// decide takes the answer to a step. One about a recipient alone is too late: the client was told
// already.
func (c *conversation) decide(answer byte, text []byte, step byte) error {
	if step == 'R' && strings.IndexByte("rtyd", answer) >= 0 {
		c.ignore("a recipient refused")
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
		return fmt.Errorf("%w: it answers %q", ErrProtocol, answer)
	}
	return nil
}

// envelope shows what came before the message: the connection, HELO, MAIL, each RCPT and DATA.
func (c *conversation) envelope() error {
	address := zero(nil, "["+c.m.IP.String()+"]")
	switch {
	case c.m.IP.Is4():
		address = zero(binary.BigEndian.AppendUint16(append(address, '4'), c.m.Port), c.m.IP.String())
	case c.m.IP.IsValid():
		address = zero(binary.BigEndian.AppendUint16(append(address, '6'), c.m.Port), c.m.IP.String())
	default:
		address = append(address, 'U')
	}
	if err := c.macros('C', "j", c.m.Hostname, "{daemon_name}", c.m.Hostname, "v", "Mailstead"); err != nil {
		return err
	}
	if err := c.step('C', address, noConnect, nrConnect); err != nil || c.decided {
		return err
	}
	if c.m.TLS != "" {
		protocol, cipher, _ := strings.Cut(c.m.TLS, " ")
		if err := c.macros('H', "{tls_version}", protocol, "{cipher}", cipher); err != nil {
			return err
		}
	}
	if err := c.step('H', zero(nil, c.m.Helo), noHelo, nrHelo); err != nil || c.decided {
		return err
	}
	if err := c.macros('M', "i", c.m.QueueID, "{mail_addr}", c.m.From); err != nil {
		return err
	}
	if err := c.step('M', zero(nil, "<"+c.m.From+">"), noMail, nrMail); err != nil || c.decided {
		return err
	}
	for _, to := range c.m.To {
		if err := c.macros('R', "{rcpt_addr}", to); err != nil {
			return err
		}
		if err := c.step('R', zero(nil, "<"+to+">"), noRcpt, nrRcpt); err != nil {
			return err
		}
	}
	return c.step('T', nil, noData, nrData)
}

// header shows the fields one by one, with LF in folds, as filters know them from Sendmail.
func (c *conversation) header() error {
	fields, err := readFields(c.m)
	if err != nil {
		return err
	}
	for _, f := range fields {
		value := f.Value
		if c.options&leadSpaces == 0 {
			value = strings.TrimPrefix(value, " ")
		}
		if err := c.step('L', zero(zero(nil, f.Name), value), noHeaders, nrHeader); err != nil {
			return err
		}
	}
	return c.step('N', nil, noEOH, nrEOH)
}

// body shows what follows the header, until the filter has seen enough.
func (c *conversation) body() error {
	if c.decided || c.options&noBody != 0 {
		return nil
	}
	from, err := bodyOffset(c.m)
	if err != nil {
		return err
	}
	r := io.NewSectionReader(c.m.Body, from, c.m.Size-from)
	piece := make([]byte, min(chunk, r.Size()))
	for !c.decided {
		n, err := io.ReadFull(r, piece)
		if n == 0 {
			return nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("read message: %w", err)
		}
		if err := c.send('B', piece[:n]); err != nil {
			return err
		}
		if c.options&nrBody != 0 {
			continue
		}
		answer, text, err := c.receive()
		if err != nil || answer == 's' {
			return err
		}
		if err := c.decide(answer, text, 'B'); err != nil {
			return err
		}
	}
	return nil
}

// end says that this was all, and takes the changes and the verdict.
func (c *conversation) end() error {
	if err := c.macros('E', "i", c.m.QueueID); err != nil {
		return err
	}
	if err := c.send('E', nil); err != nil {
		return err
	}
	for !c.decided {
		kind, text, err := c.receive()
		if err != nil {
			return err
		}
		switch kind {
		case 'h':
			err = c.add(text)
		case 'i':
			if len(text) < 4 {
				return fmt.Errorf("%w: a field without a place", ErrProtocol)
			}
			err = c.add(text[4:])
		case 'q':
			reason, _, _ := bytes.Cut(text, []byte{0})
			c.verdict.Quarantine = oneLine(reason)
			if c.verdict.Quarantine == "" {
				c.verdict.Quarantine = "quarantine"
			}
		case 'm', 'b', '+', '-', 'e', '2':
			c.ignore(map[byte]string{'m': "a field changed", 'b': "another body", '+': "another recipient", '-': "a recipient less", 'e': "another sender", '2': "another recipient"}[kind])
		case 'c': // no objections
			c.verdict.Action, c.decided = Accept, true
		default:
			err = c.decide(kind, text, 'E')
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *conversation) ignore(what string) {
	for _, known := range c.verdict.Ignored {
		if known == what {
			return
		}
	}
	c.verdict.Ignored = append(c.verdict.Ignored, what)
}

// add takes a field to be added.
func (c *conversation) add(text []byte) error {
	name, rest, ok := bytes.Cut(text, []byte{0})
	value, _, ended := bytes.Cut(rest, []byte{0})
	if !ok || !ended {
		return fmt.Errorf("%w: a field without its end", ErrProtocol)
	}
	if len(c.verdict.Fields) == maxFields || len(value) > maxValue {
		return fmt.Errorf("%w: too many fields, or one that is too long", ErrProtocol)
	}
	if !isName(string(name)) {
		return fmt.Errorf("%w: a field called %.40q", ErrProtocol, name)
	}
	c.verdict.Fields = append(c.verdict.Fields, Field{string(name), folded(string(value))})
	return nil
}
