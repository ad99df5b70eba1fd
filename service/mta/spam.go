package mta

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service/core"
)

// Bounds of the first-sender delay: longer than a minute is more than some senders wait, and each
// that waits holds a connection.
const (
	maxFirstDelay = time.Minute
	mostDelayed   = 200
)

// A screener holds what screening needs over messages.
type screener struct {
	pulse   *auth.ResolverHealth
	Delayed chan struct{} // one place for each message that is delayed
	Grey    crowd         // rows of GreyTuples
	known   crowd         // rows of KnownSenders
}

func newScreener(r core.Resolver, now func() time.Time) *screener {
	return &screener{
		pulse:   &auth.ResolverHealth{Probe: func(ctx context.Context) error { return probe(ctx, r) }, Now: now},
		Delayed: make(chan struct{}, mostDelayed),
		Grey:    crowd{Most: maxGreyTuples}, known: crowd{Most: maxKnownSenders},
	}
}

// probe asks the resolver for the servers of the root, which everybody has and no sender has a hand
// in. That it knows of none, or that they do not answer it, is an answer too.
func probe(ctx context.Context, r core.Resolver) error {
	_, err := r.LookupNS(ctx, ".")
	var dns *net.DNSError
	answers := []string{"server misbehaving", "lame referral"} // as package net calls them
	if errors.As(err, &dns) && (dns.IsNotFound || slices.Contains(answers, dns.Err)) && ctx.Err() == nil {
		return nil
	}
	return err
}
