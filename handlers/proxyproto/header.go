package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// MaxHeaderBytes is the maximum length of a PROXY header in bytes. Every network carries that many
// bytes in one packet (section 2.2 of the specification).
const MaxHeaderBytes = 536

// maxLineV1 is the maximum length in bytes of a version 1 header, with its CRLF (section 2.1).
const maxLineV1 = 107

// A Header is what a PROXY header says about the client.
type Header struct {
	// Source is the client's address. It is invalid if the proxy does not know the address, or if
	// the connection is the proxy's own.
	Source netip.AddrPort
}

// errPartialHeader means that the bytes are the beginning of a header.
var errPartialHeader = errors.New("the PROXY header is incomplete")

// signatureV2 is the beginning of a version 2 header.
const signatureV2 = "\r\n\r\n\x00\r\nQUIT\n"

// Parse parses the header at the beginning of b and returns its length n. It returns
// errPartialHeader if it needs more bytes.
func Parse(b []byte) (h Header, n int, err error) {
	switch {
	case bytes.HasPrefix(b, []byte("PROXY ")):
		return parseHeaderV1(b)
	case bytes.HasPrefix(b, []byte(signatureV2)):
		return parseHeaderV2(b)
	case strings.HasPrefix("PROXY ", string(b)), strings.HasPrefix(signatureV2, string(b)):
		return h, 0, errPartialHeader
	}
	return h, 0, errors.New("the connection does not begin with a PROXY header")
}

// parseHeaderV1 parses a version 1 header: "PROXY TCP4 SOURCE DESTINATION PORT PORT\r\n".
func parseHeaderV1(b []byte) (h Header, n int, err error) {
	end := bytes.IndexByte(b, '\n')
	switch {
	case end < 0 && len(b) < maxLineV1:
		return h, 0, errPartialHeader
	case end < 0 || end >= maxLineV1:
		return h, 0, errors.New("the PROXY header is longer than 107 bytes")
	case b[end-1] != '\r':
		return h, 0, errors.New("the PROXY header ends with a bare LF")
	}
	words := strings.Split(string(b[:end-1]), " ")
	if words[1] == "UNKNOWN" { // the rest of the line must be ignored
		return h, end + 1, nil
	}
	if len(words) != 6 {
		return h, 0, errors.New("the PROXY header is not PROXY, TCP4 or TCP6, and four words")
	}
	source, ok := parseAddrPort(words[1], words[2], words[4])
	if _, fine := parseAddrPort(words[1], words[3], words[5]); !ok || !fine {
		return h, 0, errors.New("the PROXY header has an invalid address or port")
	}
	return Header{source}, end + 1, nil
}

// parseAddrPort parses an IP address of the family and a port. Each must be in its canonical form.
func parseAddrPort(family, address, port string) (at netip.AddrPort, valid bool) {
	ip, err := netip.ParseAddr(address)
	n, err2 := strconv.ParseUint(port, 10, 16)
	ok := err == nil && err2 == nil && ip.Zone() == "" && strconv.FormatUint(n, 10) == port &&
		(family == "TCP4" && ip.Is4() || family == "TCP6" && ip.Is6())
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)), ok
}

// Values of fields in a version 2 header.
const (
	commandLocal = 0x20 // version 2 is in the upper four bits
	commandProxy = 0x21 // the same with the command PROXY
	familyTCP4   = 0x11 // TCP over IPv4
	familyTCP6   = 0x21 // TCP over IPv6
)

// parseHeaderV2 parses a version 2 header: signature, command, family, length, addresses, and
// extensions, which it ignores.
func parseHeaderV2(b []byte) (h Header, n int, err error) {
	const fixedLength = len(signatureV2) + 4
	if len(b) < fixedLength {
		return h, 0, errPartialHeader
	}
	command, family, length := b[len(signatureV2)], b[len(signatureV2)+1], binary.BigEndian.Uint16(b[len(signatureV2)+2:])
	n = fixedLength + int(length)
	if n > MaxHeaderBytes {
		return h, 0, errors.New("the PROXY header is longer than 536 bytes")
	}
	if command != commandLocal && command != commandProxy {
		return h, 0, errors.New("the PROXY header has an unknown version or command")
	}
	if family>>4 > 3 || family&0xf > 2 {
		return h, 0, errors.New("the PROXY header has an unknown family")
	}
	size := map[byte]int{familyTCP4: 4, familyTCP6: 16}[family]
	if command == commandLocal {
		size = 0
	}
	if int(length) < 2*size+4 && size > 0 {
		return h, 0, errors.New("the PROXY header is shorter than its addresses")
	}
	if len(b) < n {
		return h, 0, errPartialHeader
	}
	if size > 0 {
		ip, _ := netip.AddrFromSlice(b[fixedLength : fixedLength+size])
		h.Source = netip.AddrPortFrom(ip.Unmap(), binary.BigEndian.Uint16(b[fixedLength+2*size:]))
	}
	return h, n, nil
}

// These addresses replace loopback addresses in a header, because the program trusts connections
// from this host in some places. They are reserved and belong to no host (RFC 7600 section 4.8, RFC
// 9780).
var (
	reservedIPv4 = netip.MustParseAddr("192.0.0.8")
	reservedIPv6 = netip.MustParseAddr("100:0:0:1::")
)

// clientAddr returns the remote address of a connection with this header: that of the client, or
// that of the proxy if the header has none.
func (h Header) clientAddr(proxy net.Addr) net.Addr {
	at := h.Source
	switch ip := at.Addr(); {
	case !at.IsValid():
		return proxy
	case ip.IsLoopback() && ip.Is4():
		at = netip.AddrPortFrom(reservedIPv4, at.Port())
	case ip.IsLoopback():
		at = netip.AddrPortFrom(reservedIPv6, at.Port())
	}
	return net.TCPAddrFromAddrPort(at)
}
