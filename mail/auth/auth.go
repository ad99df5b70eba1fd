// Package auth verifies where mail comes from (SPF, DKIM, DMARC, Authentication-Results) and signs
// what goes out (DKIM). It does not know mailboxes or accounts, nor what its caller does with a
// verdict, such as to refuse or deliver the message.
//
// Where things are:
//   - auth.go: [Verifier.Verify] checks a message; verdict.go: its [Verdict].
//   - spf.go, dkim.go, arc.go, dmarc.go: one check each. tree.go: the DMARC record of a domain.
//   - verified_domain.go: the domain that a message is proven to be from ([Verdict.Proof]; in the
//     API verified_domain). shown.go, covers.go: what a signature must cover for that.
//   - attest.go: whether a trusted forwarder attests DMARC, and whether a return path is genuine.
//   - sign.go: DKIM signatures. seal.go: ARC seals. keys.go: keys for both.
//   - reports.go: who wants DMARC reports. dnsbl.go: blocklists.
package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/mail/idn"
)

// Verifier verifies messages. It is safe for concurrent use once its fields are set.
type Verifier struct {
	Resolver Resolver
	// Now is the clock by which signatures expire; nil means time.Now.
	Now func() time.Time
	// MaxVerifications is the maximum number of DKIM signatures that are verified; 0 means 10.
	// Signatures of the From domain's organisation come first, then the others, in the order of the
	// header.
	MaxVerifications int
	// Health knows whether the resolver is dead. It may be nil.
	Health *ResolverHealth
	// Timeout limits all DNS look-ups for one message; 0 means 20 s. LookupTimeout limits one
	// look-up, so that one slow name cannot use up the time of the others; 0 means 6 s.
	Timeout, LookupTimeout time.Duration
}

const (
	defaultVerifications = 10
	defaultTimeout       = 20 * time.Second
	defaultLookupTimeout = 6 * time.Second
)

// Verify authenticates a message. If DNS fails, it returns no error but temperror results without a
// policy. It returns an error if ctx ends, if the message cannot be read, or if the authserv-id is
// invalid (ErrAuthservID).
func (v *Verifier) Verify(ctx context.Context, r Request) (*Verdict, error) {
	id, ok := idn.Host(r.AuthservID)
	if !ok {
		return nil, fmt.Errorf("%w: %.100q", ErrAuthservID, r.AuthservID)
	}
	m, err := openMessage(io.NewSectionReader(r.Message, 0, r.Size))
	if err != nil {
		return nil, err
	}
	defer m.free()
	look, cancel := v.newLookups(ctx)
	defer cancel()

	verdict := &Verdict{}
	from := authorsOf(r.HeaderFrom, m)
	walks := newTreeWalker(look)
	var dkimErr, arcErr error
	withLookups := []func(){
		func() { verdict.SPF, verdict.SPFDomain, verdict.SPFHelo, verdict.SPFOwn = checkSPF(look, r) },
		func() { walks.prefetch(from.domains) },
	}
	dkim := func() { verdict.Signatures, dkimErr = v.checkDKIM(ctx, walks, m, from.domains...) }
	arc := func() { verdict.ARC, arcErr = v.checkARCOfRequest(ctx, look, r, m.fields) }
	for _, check := range []struct {
		run   func()
		field string // without such a field, the check needs no look-ups
	}{{dkim, "DKIM-Signature"}, {arc, arcSeal}} {
		if slices.ContainsFunc(m.fields, func(f field) bool { return f.is(check.field) }) {
			withLookups = append(withLookups, check.run)
		} else {
			check.run()
		}
	}
	runAll(withLookups...)
	if err := errors.Join(dkimErr, arcErr); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	verdict.DKIM = overallResult(verdict.Signatures)
	verdict.Repeated = m.repeated
	evaluateDMARC(walks, verdict, from)
	verdict.Header = resultsField(id, verdict)
	return verdict, nil
}

// runAll runs the functions concurrently. If one panics, runAll panics in the caller's goroutine,
// where it can be recovered. Otherwise the panic would end the process, and a stranger's message
// could cause that.
func runAll(fns ...func()) {
	switch len(fns) {
	case 0:
		return
	case 1:
		fns[0]()
		return
	}
	panics := make(chan any, len(fns))
	run := func(fn func()) {
		defer func() {
			if p := recover(); p != nil {
				panics <- fmt.Sprintf("%v\n\n%s", p, debug.Stack())
			}
		}()
		fn()
	}
	var wg sync.WaitGroup
	for _, fn := range fns[1:] {
		wg.Go(func() { run(fn) })
	}
	run(fns[0])
	wg.Wait()
	select {
	case p := <-panics:
		panic(p)
	default:
	}
}

// newLookups returns a resolver for one message, and a function that ends its look-ups.
func (v *Verifier) newLookups(ctx context.Context) (*lookups, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, orDefault(v.Timeout, defaultTimeout))
	look := &lookups{ctx: ctx, resolver: v.Resolver, lookupTimeout: orDefault(v.LookupTimeout, defaultLookupTimeout)}
	if v.Health == nil {
		return look, cancel
	}
	look.answered = v.Health.recordAnswer
	stop := v.Health.watch(ctx, cancel)
	return look, func() {
		stop()
		cancel()
	}
}

func (v *Verifier) now() time.Time {
	if v.Now == nil {
		return time.Now()
	}
	return v.Now()
}

func orDefault[T int | time.Duration](have, otherwise T) T {
	if have <= 0 {
		return otherwise
	}
	return have
}
