// Package auth verifies where mail comes from (SPF, DKIM, DMARC, Authentication-Results) and signs
// what goes out (DKIM). It does not know mailboxes, accounts or what is done with a verdict: its
// caller refuses, files or delivers.
package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/mailstead/mailstead/mail/idn"
)

// Verifier verifies messages. It is safe for use by several goroutines once its fields are set.
type Verifier struct {
	Resolver Resolver
	// Now is the clock that expired signatures are judged by; nil is time.Now.
	Now func() time.Time
	// MaxVerifications bounds the signatures looked at: those aligned with the From domain first,
	// then in the order of the header; 0 is 10.
	MaxVerifications int
	// Health says whether the resolver is dead; nil: nobody knows.
	Health *ResolverHealth
	// Timeout bounds all DNS of one message, LookupTimeout one look-up, so that one slow name
	// cannot use up the time of the others; 0 is 20 s and 6 s.
	Timeout, LookupTimeout time.Duration
}

const (
	defaultVerifications = 10
	defaultTimeout       = 20 * time.Second
	defaultLookupTimeout = 6 * time.Second
)

// Verify authenticates a message. A dead resolver gives temperror results and no policy, never an
// error. An error is the end of ctx, a message that cannot be read, or ErrAuthservID.
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
	look, cancel := v.lookups(ctx)
	defer cancel()

	verdict := &Verdict{}
	from := authorsOf(r.HeaderFrom, m)
	walks := newTree(look)
	var dkimErr, arcErr error
	runAll(
		func() { verdict.SPF, verdict.SPFDomain, verdict.SPFHelo, verdict.SPFOwn = checkSPF(look, r) },
		func() { verdict.Signatures, dkimErr = v.checkDKIM(ctx, walks, m, from.domains...) },
		func() { walks.prepare(from.domains) },
		func() { verdict.ARC, arcErr = v.chainOf(ctx, look, r, m.fields) },
	)
	if err := errors.Join(dkimErr, arcErr); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	verdict.DKIM = overall(verdict.Signatures)
	verdict.Repeated = m.repeated
	evaluateDMARC(walks, verdict, from)
	verdict.Header = resultsField(id, verdict)
	return verdict, nil
}

// runAll runs the functions at once. A panic of one of them comes up here, where the caller can
// catch it: in a goroutine of its own it would end the process, for a message that any stranger can
// write.
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

func (v *Verifier) lookups(ctx context.Context) (*lookups, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, orDefault(v.Timeout, defaultTimeout))
	look := &lookups{ctx: ctx, resolver: v.Resolver, each: orDefault(v.LookupTimeout, defaultLookupTimeout)}
	if v.Health == nil {
		return look, cancel
	}
	look.answered = v.Health.answered
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
