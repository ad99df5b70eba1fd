package scan

import (
	"context"
	"errors"
	"time"

	"github.com/miekg/dns"
)

const (
	transferTimeout = time.Minute      // for all transfers of a zone that are tried
	messageTimeout  = 10 * time.Second // for each message of a transfer
)

// Errors of a transfer.
var (
	errRefused  = errors.New("the nameserver does not transfer the zone")
	errBroken   = errors.New("the transfer is not that of a whole zone")
	errTooLarge = errors.New("the zone is too large")
)

// transfer asks one server after the other for the whole zone (RFC 5936). It returns the records at
// and below a domain, or nil if no server gives a whole zone within the limits.
func (z *session) transfer(ctx context.Context, domain string) *harvest {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	for _, s := range z.servers {
		found, err := z.transferFrom(ctx, s, domain)
		if err == nil {
			return found
		}
		if errors.Is(err, errTooLarge) || ctx.Err() != nil {
			break
		}
	}
	return nil
}

func (z *session) transferFrom(ctx context.Context, s *server, domain string) (*harvest, error) {
	if err := z.Pace.wait(ctx, s.addr.Addr()); err != nil {
		return nil, err
	}
	soon, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	conn, err := z.Dial(soon, "tcp", s.addr.String())
	if err != nil {
		return nil, errSilent
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	asked := new(dns.Msg).SetAxfr(z.zone)
	asked.Id = dns.Id()
	if err := conn.SetDeadline(time.Now().Add(messageTimeout)); err != nil {
		return nil, errSilent
	}
	if err := send(conn, asked, "tcp"); err != nil {
		return nil, errSilent
	}

	found := newHarvest(domain)
	var first *dns.SOA
	size, hasServers := 0, false
	for {
		if err := conn.SetDeadline(time.Now().Add(messageTimeout)); err != nil {
			return nil, errSilent
		}
		wire, err := receive(conn, "tcp", nil)
		if err != nil {
			return nil, errBroken
		}
		size += len(wire)
		if size > MaxBytes {
			return nil, errTooLarge
		}
		in := new(dns.Msg)
		switch {
		case in.Unpack(wire) != nil || in.Id != asked.Id || !in.Response || in.Opcode != dns.OpcodeQuery || in.Truncated:
			return nil, errBroken
		case in.Rcode != dns.RcodeSuccess || len(in.Answer) == 0:
			return nil, errRefused
		}
		rrs := usable(in.Answer)
		for i, rr := range rrs {
			soa, isSOA := rr.(*dns.SOA)
			isSOA = isSOA && soa.Hdr.Name == z.zone
			switch {
			case first == nil && !isSOA:
				return nil, errBroken
			case first == nil:
				first = soa
			case isSOA:
				switch {
				case soa.Serial != first.Serial || i+1 < len(rrs) || !hasServers:
					return nil, errBroken
				case found.isFull():
					return nil, errTooLarge
				}
				return found, nil
			default:
				hasServers = hasServers || rr.Header().Rrtype == dns.TypeNS && rr.Header().Name == z.zone
				found.add(rr)
			}
		}
		if found.isFull() {
			return nil, errTooLarge
		}
	}
}
