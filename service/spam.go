package service

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/milter"
)

// Spam is what the operator has decided about mail from outside. All but Reports is off unless it
// is set.
type Spam struct {
	TrustedSealers []string       // domains whose ARC seals may stand for a DMARC pass
	Reports        bool           // aggregate reports are sent to domains that ask for them
	Milter         *milter.Client // a filter that is asked about every message
	DNSBL          []string       // zones of lists that a client's address is looked up in
	DNSBLJunk      bool           // who is listed gets into Junk; else refused
	Greylisting    bool           // unknown senders are told to come again
	FirstDelay     time.Duration  // unknown senders wait for so long
}

// Bounds of the first-sender delay: longer than a minute is more than some senders wait, and each
// that waits holds a connection.
const (
	maxFirstDelay = time.Minute
	mostDelayed   = 200
)

// A screener holds what screening needs over messages.
type screener struct {
	pulse   *auth.ResolverHealth
	delayed chan struct{} // one place for each message that is delayed
	grey    crowd         // rows of GreyTuples
	known   crowd         // rows of KnownSenders
}

func newScreener(r Resolver, now func() time.Time) *screener {
	return &screener{
		pulse:   &auth.ResolverHealth{Probe: func(ctx context.Context) error { return probe(ctx, r) }, Now: now},
		delayed: make(chan struct{}, mostDelayed),
		grey:    crowd{most: maxGreyTuples}, known: crowd{most: maxKnownSenders},
	}
}

// probe asks the resolver for the servers of the root, which everybody has and no sender has a hand
// in. That it knows of none, or that they do not answer it, is an answer too.
func probe(ctx context.Context, r Resolver) error {
	_, err := r.LookupNS(ctx, ".")
	var dns *net.DNSError
	answers := []string{"server misbehaving", "lame referral"} // as package net calls them
	if errors.As(err, &dns) && (dns.IsNotFound || slices.Contains(answers, dns.Err)) && ctx.Err() == nil {
		return nil
	}
	return err
}
