package rfc2136

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/builtin"
)

const (
	fudge       = 300     // seconds by which clocks may differ (RFC 8945 section 10)
	maxUnsigned = 99      // messages between two signed ones of a transfer (RFC 8945 section 5.3.1)
	maxAnswers  = 5 << 20 // bytes of all answers on one connection
	maxRecords  = 10_000  // at and below one domain
)

// A session is a connection to the server.
type session struct {
	*Client
	conn *dns.Conn
	size int // bytes of all answers so far
}

// session connects to the server and calls do. The connection ends with ctx.
func (c *Client) session(ctx context.Context, do func(*session) error) error {
	soon, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := c.dial(soon, "tcp", c.server)
	if err != nil {
		return &silence{c.server, err}
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	return do(&session{Client: c, conn: &dns.Conn{Conn: conn}})
}

// send signs and sends a message. The chain verifies what is answered.
func (s *session) send(m *dns.Msg) (*chain, error) {
	m.SetTsig(s.key.Name, s.key.Algorithm, fudge, time.Now().Unix())
	wire, mac, err := dns.TsigGenerateWithProvider(m, s.key, "", false)
	if err != nil {
		return nil, fmt.Errorf("rfc2136: write a message: %w", err)
	}
	if err := s.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, &silence{s.server, err}
	}
	if _, err := s.conn.Write(wire); err != nil {
		return nil, &silence{s.server, err}
	}
	return &chain{key: s.key, mac: mac}, nil
}

// receive reads a message.
func (s *session) receive() (wire []byte, m *dns.Msg, err error) {
	if err := s.conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, nil, &silence{s.server, err}
	}
	wire, err = s.conn.ReadMsgHeader(nil)
	if err != nil {
		return nil, nil, &silence{s.server, err}
	}
	s.size += len(wire)
	if s.size > maxAnswers {
		return nil, nil, fmt.Errorf("rfc2136: %s answers with more than %d MiB", s.server, maxAnswers>>20)
	}
	m = new(dns.Msg)
	if err := m.Unpack(wire); err != nil {
		return nil, nil, fmt.Errorf("rfc2136: an answer of %s cannot be read", s.server)
	}
	return wire, m, nil
}

// exchange sends a message about a zone and reads the answer. The errors are those of accept, and
// others.
func (s *session) exchange(zone string, m *dns.Msg) error {
	return s.pipeline(zone, []*dns.Msg{m}, func(_ int, _ *dns.Msg, err error) error { return err })
}

// pipeline sends messages about a zone at once, and calls got with the place of each, its answer,
// and the error of accept (RFC 7766 section 6.2.1.1). It ends with the first error of got.
func (s *session) pipeline(zone string, messages []*dns.Msg, got func(at int, in *dns.Msg, err error) error) error {
	places, chains := map[uint16]int{}, map[uint16]*chain{}
	id := dns.Id()
	for at, m := range messages {
		id++
		m.Id = id
		v, err := s.send(m)
		if err != nil {
			return err
		}
		places[id], chains[id] = at, v
	}
	for len(places) > 0 {
		wire, in, err := s.receive()
		if err != nil {
			return err
		}
		at, asked := places[in.Id]
		if !asked {
			return fmt.Errorf("rfc2136: %s answers what was not asked", s.server)
		}
		delete(places, in.Id)
		if err := got(at, in, s.accept(zone, chains[in.Id], wire, in)); err != nil {
			return err
		}
	}
	return nil
}

// accept verifies the signature of an answer about a zone, and returns an error for any code but a
// success.
func (s *session) accept(zone string, v *chain, wire []byte, in *dns.Msg) error {
	refused := &refusal{server: s.server, key: strings.TrimSuffix(s.key.Name, "."), zone: zone, code: in.Rcode}
	t := in.IsTsig()
	if t != nil && in.Rcode == dns.RcodeNotAuth { // of these errors most are not signed (RFC 8945 section 5.3.2)
		switch t.Error {
		case dns.RcodeBadTime:
			return s.clockError(t)
		case dns.RcodeBadKey, dns.RcodeBadSig, dns.RcodeBadTrunc:
			refused.code = int(t.Error)
			return refused
		}
	}
	if !in.Response {
		return fmt.Errorf("rfc2136: %s sends a question instead of an answer", s.server)
	}
	if t == nil && in.Rcode != dns.RcodeSuccess {
		refused.unsigned = true
		return refused
	}
	if err := v.verify(wire, t); err != nil {
		if errors.Is(err, dns.ErrTime) {
			return s.clockError(t)
		}
		return fmt.Errorf("rfc2136: an answer of %s is not signed with the key %s", s.server, s.key.Name)
	}
	if in.Rcode != dns.RcodeSuccess {
		return refused
	}
	return nil
}

// clockError tells by how much the clocks differ. The server's time is in the other data of its
// answer (RFC 8945 section 5.2.3), else it is the time of the signature.
func (s *session) clockError(t *dns.TSIG) error {
	theirs := t.TimeSigned
	if other, err := hex.DecodeString(t.OtherData); err == nil && len(other) == 6 {
		theirs = binary.BigEndian.Uint64(append([]byte{0, 0}, other...))
	}
	ahead := time.Duration(int64(theirs)-time.Now().Unix()) * time.Second
	if ahead < 0 {
		return fmt.Errorf("rfc2136: %w: that of %s is %s behind ours", ErrClock, s.server, -ahead)
	}
	return fmt.Errorf("rfc2136: %w: that of %s is %s ahead of ours", ErrClock, s.server, ahead)
}

// A chain verifies the signatures of the answers to one request (RFC 8945 section 5.3). The dns
// package verifies no answers with the code NOTAUTH, and no transfers of which some messages are
// unsigned.
type chain struct {
	key      *builtin.TSIGKey
	mac      string // of the request, then of the last signed answer; hexadecimal
	later    bool   // an answer was verified, so that the next signatures are over the times alone
	unsigned []byte // the answers since the last signed one
	count    int    // of those
}

// skip takes an unsigned message of a transfer, which the next signature covers.
func (v *chain) skip(wire []byte) error {
	if v.count++; v.count > maxUnsigned || !v.later {
		return dns.ErrNoSig
	}
	v.unsigned = append(v.unsigned, wire...)
	return nil
}

// verify verifies an answer that has the signature t.
func (v *chain) verify(wire []byte, t *dns.TSIG) error {
	if t == nil || dns.CanonicalName(t.Hdr.Name) != v.key.Name || dns.CanonicalName(t.Algorithm) != v.key.Algorithm {
		return dns.ErrNoSig
	}
	wire = bytes.Clone(wire)
	covered := &covered{chain: v, flags: wire[3]}
	wire[3] &= 0xf0 // the code, as if it were a success
	if err := dns.TsigVerifyWithProvider(wire, covered, v.mac, v.later); err != nil {
		return err
	}
	v.mac, v.later, v.unsigned, v.count = t.MAC, true, nil, 0
	return nil
}

// covered is a dns.TsigProvider that puts back what the dns package leaves out of the digest of an
// answer: the code, and the unsigned messages before.
type covered struct {
	*chain
	flags byte
}

// Generate is not used.
func (c *covered) Generate([]byte, *dns.TSIG) ([]byte, error) { return nil, dns.ErrKeyAlg }

// Verify gets the length and bytes of the MAC before, the message, and the variables of its own
// signature (RFC 8945 section 4.3).
func (c *covered) Verify(digest []byte, t *dns.TSIG) error {
	at := 2 + len(c.mac)/2
	digest[at+3] = c.flags
	return c.key.Verify(slices.Concat(digest[:at], c.unsigned, digest[at:]), t)
}

// silence is the error if no answer came.
type silence struct {
	server string
	err    error
}

func (e *silence) Error() string { return fmt.Sprintf("rfc2136: %v: %s", ErrNoAnswer, e.server) }

// Unwrap returns ErrNoAnswer and the cause.
func (e *silence) Unwrap() []error { return []error{ErrNoAnswer, e.err} }

// refusal is an answer with another code than success.
type refusal struct {
	server, key, zone string
	code              int  // of the message, or BADSIG, BADKEY or BADTRUNC of the signature
	unsigned          bool // then the server has most likely not understood the signature
	ofRecord          bool // the key may change other records of the zone
}

func (e *refusal) Error() string {
	name := dns.RcodeToString[e.code]
	switch {
	case e.code == dns.RcodeNotAuth:
		return fmt.Sprintf("rfc2136: %s is not the primary nameserver of a zone %s", e.server, e.zone)
	case e.unsigned:
		return fmt.Sprintf("rfc2136: %s answers %s without a signature, as if it did not know the key %s", e.server, name, e.key)
	case e.code == dns.RcodeBadKey:
		return fmt.Sprintf("rfc2136: %s does not know the key %s, or allows it nothing in the zone %s", e.server, e.key, e.zone)
	case e.code == dns.RcodeBadSig, e.code == dns.RcodeBadTrunc:
		return fmt.Sprintf("rfc2136: the secret is not that of the key %s at %s", e.key, e.server)
	case e.code == dns.RcodeRefused:
		return fmt.Sprintf("rfc2136: %s does not allow the key %s what was asked of the zone %s", e.server, e.key, e.zone)
	case e.code == dns.RcodeNotImplemented:
		return fmt.Sprintf("rfc2136: %s takes no updates of the zone %s", e.server, e.zone)
	case e.changed():
		return fmt.Sprintf("rfc2136: the zone %s: %v", e.zone, dnsprov.ErrChanged)
	}
	return fmt.Sprintf("rfc2136: %s answers %s for the zone %s", e.server, name, e.zone)
}

// Unwrap returns the error of dnsprov that this is a case of, if there is one.
func (e *refusal) Unwrap() error {
	switch {
	case e.ofRecord, e.unsigned && e.code == dns.RcodeServerFailure:
		return nil // it says nothing of the key
	case e.code == dns.RcodeNotAuth: // Knot does not sign it
		return dnsprov.ErrZoneNotFound
	case e.unsigned, slices.Contains([]int{dns.RcodeBadKey, dns.RcodeBadSig, dns.RcodeBadTrunc, dns.RcodeRefused, dns.RcodeNotImplemented}, e.code):
		return dnsprov.ErrCredential
	case e.changed():
		return dnsprov.ErrChanged
	}
	return nil
}

// changed reports whether a prerequisite of an update failed (RFC 2136 section 3.2).
func (e *refusal) changed() bool {
	return !e.unsigned && slices.Contains([]int{dns.RcodeNameError, dns.RcodeYXDomain, dns.RcodeYXRrset, dns.RcodeNXRrset}, e.code)
}

// mayAsk reports whether a server that refused a transfer this way may answer single questions.
// Knot refuses by BADKEY what a key may not do.
func (e *refusal) mayAsk() bool {
	return slices.Contains([]int{dns.RcodeRefused, dns.RcodeNotAuth, dns.RcodeNotImplemented, dns.RcodeBadKey}, e.code)
}
