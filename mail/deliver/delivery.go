package deliver

import (
	"cmp"
	"context"
	"net/netip"
)

// delivery is the attempt to deliver one message to one recipient. It tries one host after another.
type delivery struct {
	client   *Client
	env      Envelope
	message  Message
	attempts []Attempt
	sessions []Session
	best     *Result // the result so far; a better one replaces it
}

// run tries the targets in order until one accepts or refuses the message, and returns the result.
func (d *delivery) run(ctx context.Context, targets []target) Result {
	for _, t := range targets {
		if d.tryHost(ctx, t) {
			break
		}
	}
	d.best.Attempts, d.best.Sessions = d.attempts, d.sessions
	return *d.best
}

// tryHost tries an idle connection to one host, then the addresses of the host. It returns true if
// no other host must be tried.
func (d *delivery) tryHost(ctx context.Context, t target) (done bool) {
	if f := d.requireTLS(ctx, &t); f != nil {
		return d.recordFailure(ctx, t.hop, Attempt{Host: t.hop.host}, d.explainPolicy(t.hop, f))
	}
	if s := d.client.idle.take(t.hop); s != nil {
		s.closeWhenDone(ctx)
		if done, stale := d.tryIdle(ctx, s); !stale {
			return done
		}
	}
	addrs, f := d.client.addresses(ctx, t)
	if f != nil {
		return d.recordFailure(ctx, t.hop, Attempt{Host: t.hop.host}, f)
	}
	for _, ip := range addrs {
		if d.tryAddress(ctx, t.hop, ip) {
			return true
		}
	}
	return false
}

// tryAddress tries one address by a new connection. It returns true if no other address or host
// must be tried.
func (d *delivery) tryAddress(ctx context.Context, h hop, ip netip.Addr) (done bool) {
	a := Attempt{Host: h.host, IP: ip.String()}
	s, f := d.client.openSession(ctx, h, ip, h.tls)
	d.addSession(h, ip, s, f)
	if f != nil && f.handshake && h.tls == tlsOpportunistic && ctx.Err() == nil {
		d.addFailure(a, f, Temporary)
		s, f = d.client.openSession(ctx, h, ip, tlsNone)
	}
	if f != nil && f.tls != "" {
		f = d.tlsUnavailableFailure(h, f)
	}
	if f != nil {
		return d.recordFailure(ctx, h, a, d.explainPolicy(h, f))
	}
	r, f := s.transact(d.env, d.message)
	d.client.release(s)
	return d.recordOutcome(ctx, s, r, f)
}

// tryIdle tries an idle connection. stale reports that the connection had died before the host
// accepted MAIL. That does not count as an attempt, and the caller must use a new connection.
func (d *delivery) tryIdle(ctx context.Context, s *session) (done, stale bool) {
	r, f := s.transact(d.env, d.message)
	broken := s.broken
	d.client.release(s) // after this call another delivery may use s
	if f != nil && broken && f.stage <= stageMail && ctx.Err() == nil {
		return false, true
	}
	return d.recordOutcome(ctx, s, r, f), false
}

// recordOutcome records the outcome of a transaction. It returns true if no other address or host
// must be tried.
func (d *delivery) recordOutcome(ctx context.Context, s *session, r reply, f *failure) (done bool) {
	a := Attempt{Host: s.hop.host, IP: s.ip.String(), TLS: s.tls, Authenticated: s.auth}
	if f != nil {
		return d.recordFailure(ctx, s.hop, a, f)
	}
	a.Code, a.Enhanced, a.Reply, a.At = r.code, cmp.Or(r.enhancedCode(), "2.0.0"), r.String(), d.client.now()
	d.attempts = append(d.attempts, a)
	d.setResult(a, Result{Status: Delivered, DSN: s.ext.dsn})
	return true
}

// recordFailure records a failed attempt. It returns true if no other address or host must be
// tried.
func (d *delivery) recordFailure(ctx context.Context, h hop, a Attempt, f *failure) (done bool) {
	status, tryNext := f.verdict(h.relay)
	if f.err != nil {
		f.err = withCause(ctx, f.err)
	}
	a = d.addFailure(a, f, status)
	if !tryNext || d.isBetter(a, status) {
		d.setResult(a, Result{Status: status, RecipientFault: status == Permanent && f.recipientFault()})
	}
	return !tryNext || ctx.Err() != nil || len(d.attempts) >= maxAttempts
}

// isBetter reports whether a failure is a better result than d.best, in case all hosts fail. A
// temporary failure is better than a permanent one, since a retry may succeed. The reply of a host
// is better than an error of our own.
func (d *delivery) isBetter(a Attempt, status Status) bool {
	switch {
	case d.best == nil:
		return true
	case status != d.best.Status:
		return status == Temporary
	}
	return a.Code != 0 || d.best.Code == 0
}

// addFailure fills in why an attempt failed and appends it to d.attempts.
func (d *delivery) addFailure(a Attempt, f *failure, status Status) Attempt {
	a.Code, a.Enhanced, a.Reply, a.Err, a.At = f.reply.code, f.enhancedFor(status), f.text(), f.err, d.client.now()
	d.attempts = append(d.attempts, a)
	return a
}

func (d *delivery) setResult(a Attempt, r Result) {
	r.Code, r.Enhanced, r.Reply, r.Host, r.TLS = a.Code, a.Enhanced, a.Reply, a.Host, a.TLS
	d.best = &r
}
