package auth

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slowDNS answers names that it knows at once, and never answers others.
type slowDNS struct {
	*fakeDNS
	silent atomic.Bool
}

func (s *slowDNS) LookupTXT(ctx context.Context, name string) ([]string, error) {
	if s.silent.Load() || name == "slow.x.com." || name == "_dmarc.slow.x.com." {
		return deadDNS{}.LookupTXT(ctx, name)
	}
	return s.fakeDNS.LookupTXT(ctx, name)
}

// TestDeadResolverIsNotWaitedFor gives look-ups up soon when nothing at all is answered, and takes
// up again when it is.
func TestDeadResolverIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns := &slowDNS{fakeDNS: &fakeDNS{t: t, txt: map[string][]string{"_dmarc.x.com": {rej}, "x.com": {"v=spf1 -all"}}}}
		var probes atomic.Int32
		v := &Verifier{Resolver: dns, Health: &ResolverHealth{Probe: func(ctx context.Context) error {
			probes.Add(1)
			if dns.silent.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}}
		verify := func(from string, result Result, least, most time.Duration) {
			t.Helper()
			began := time.Now()
			r := request("From: u@"+from+"\r\n\r\nhi\r\n", "u@"+from)
			r.MailFrom = "u@" + from
			got, err := v.Verify(t.Context(), r)
			if took := time.Since(began); err != nil || got.DMARC != result || took < least || took > most {
				t.Errorf("dmarc=%s of %s after %v, %v; want %s after %v to %v", got.DMARC, from, took, err, result, least, most)
			}
		}
		verify("x.com", Fail, 0, 0)
		// A name of the sender's that is slow does not make the resolver dead, nor its look-ups
		// shorter.
		verify("slow.x.com", TempError, 6*time.Second, 21*time.Second)
		if v.Health.Dead() || probes.Load() != 1 {
			t.Errorf("dead: %v, %d probes", v.Health.Dead(), probes.Load())
		}
		verify("x.com", Fail, 0, 0)
		dns.silent.Store(true)
		verify("x.com", TempError, 3*time.Second, 3*time.Second)
		for range 3 {
			verify("x.com", TempError, 2*time.Second, 2*time.Second)
		}
		if n := probes.Load(); n != 2 {
			t.Errorf("%d probes of one that is known to be dead", n)
		}
		time.Sleep(time.Minute)
		verify("x.com", TempError, 2*time.Second, 2*time.Second)
		dns.silent.Store(false)
		verify("x.com", Fail, 0, 0)
		if v.Health.Dead() {
			t.Error("still dead")
		}
	})
}
