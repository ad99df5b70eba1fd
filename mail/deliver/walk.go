package deliver

import (
	"cmp"
	"context"
	"net/netip"
)

// walk is one call on its way from host to host.
type walk struct {
	client   *Client
	env      Envelope
	message  Message
	attempts []Attempt
	sessions []Session
	best     *Result // what to report if no later host does better
}

// run tries the targets in order until one settles the matter.
func (w *walk) run(ctx context.Context, targets []target) Result {
	for _, t := range targets {
		if w.host(ctx, t) {
			break
		}
	}
	w.best.Attempts, w.best.Sessions = w.attempts, w.sessions
	return *w.best
}

// host tries one host; true ends the walk.
func (w *walk) host(ctx context.Context, t target) bool {
	if f := w.demand(ctx, &t); f != nil {
		return w.failed(ctx, t.hop, Attempt{Host: t.hop.host}, w.why(t.hop, f))
	}
	if s := w.client.idle.take(t.hop); s != nil {
		s.bind(ctx)
		if done, stale := w.reuse(ctx, s); !stale {
			return done
		}
	}
	addrs, f := w.client.addresses(ctx, t)
	if f != nil {
		return w.failed(ctx, t.hop, Attempt{Host: t.hop.host}, f)
	}
	for _, ip := range addrs {
		if w.address(ctx, t.hop, ip) {
			return true
		}
	}
	return false
}

// address tries one address over a fresh connection; true ends the walk.
func (w *walk) address(ctx context.Context, h hop, ip netip.Addr) bool {
	a := Attempt{Host: h.host, IP: ip.String()}
	s, f := w.client.open(ctx, h, ip, h.tls)
	w.count(h, ip, s, f)
	if f != nil && f.handshake && h.tls == tlsOpportunistic && ctx.Err() == nil {
		w.log(a, f, Temporary)
		s, f = w.client.open(ctx, h, ip, tlsNone)
	}
	if f != nil {
		return w.failed(ctx, h, a, w.why(h, f))
	}
	r, f := s.transact(w.env, w.message)
	w.client.release(s)
	return w.settle(ctx, s, r, f)
}

// reuse tries an idle connection. One that turns out to be dead before MAIL is accepted counts for
// nothing: stale asks for a fresh one.
func (w *walk) reuse(ctx context.Context, s *session) (done, stale bool) {
	r, f := s.transact(w.env, w.message)
	broken := s.broken
	w.client.release(s) // from now on it may be somebody else's
	if f != nil && broken && f.stage <= stageMail && ctx.Err() == nil {
		return false, true
	}
	return w.settle(ctx, s, r, f), false
}

func (w *walk) settle(ctx context.Context, s *session, r reply, f *failure) bool {
	a := Attempt{Host: s.hop.host, IP: s.ip.String(), TLS: s.tls, Authenticated: s.auth}
	if f != nil {
		return w.failed(ctx, s.hop, a, f)
	}
	a.Code, a.Enhanced, a.Reply, a.At = r.code, cmp.Or(r.enhanced(), "2.0.0"), r.String(), w.client.now()
	w.attempts = append(w.attempts, a)
	w.report(a, Result{Status: Delivered, DSN: s.ext.dsn})
	return true
}

// failed notes an attempt; true ends the walk.
func (w *walk) failed(ctx context.Context, h hop, a Attempt, f *failure) bool {
	status, next := f.verdict(h.relay)
	if f.err != nil {
		f.err = giveUp(ctx, f.err)
	}
	a = w.log(a, f, status)
	if !next || w.better(a, status) {
		w.report(a, Result{Status: status, RecipientFault: status == Permanent && f.recipientFault()})
	}
	return !next || ctx.Err() != nil || len(w.attempts) >= maxAttempts
}

// better says which of several failures to report when no host settled the matter: a temporary one
// before a permanent one, since trying again may help, and a host's own words before our finding.
func (w *walk) better(a Attempt, status Status) bool {
	switch {
	case w.best == nil:
		return true
	case status != w.best.Status:
		return status == Temporary
	}
	return a.Code != 0 || w.best.Code == 0
}

// log adds a failed attempt to the list.
func (w *walk) log(a Attempt, f *failure, status Status) Attempt {
	a.Code, a.Enhanced, a.Reply, a.Err, a.At = f.reply.code, f.enhancedFor(status), f.text(), f.err, w.client.now()
	w.attempts = append(w.attempts, a)
	return a
}

func (w *walk) report(a Attempt, r Result) {
	r.Code, r.Enhanced, r.Reply, r.Host, r.TLS = a.Code, a.Enhanced, a.Reply, a.Host, a.TLS
	w.best = &r
}
