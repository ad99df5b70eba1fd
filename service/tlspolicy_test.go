package service

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/mail/mtasts"
	"github.com/mailstead/mailstead/mail/tlsrpt"
	"github.com/mailstead/mailstead/store"
)

// A policyHost serves one policy for every domain.
type policyHost struct {
	text  string // "" cannot be reached
	asked atomic.Int32
}

func (p *policyHost) RoundTrip(r *http.Request) (*http.Response, error) {
	p.asked.Add(1)
	if p.text == "" {
		return nil, errors.New("no route to host")
	}
	return &http.Response{
		StatusCode: 200, Status: "200 OK", Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader(p.text)), Request: r,
	}, nil
}

// serve has the service ask p.
func (p *policyHost) serve(i *installation) *policyHost {
	i.svc.policies.http = mtasts.NewHTTP(p)
	return p
}

const enforced = "version: STSv1\nmode: enforce\nmx: mx.far.test\nmax_age: 864000\n"

func TestEnforcedPolicyHoldsMailBack(t *testing.T) {
	h := (&host{}).start(t) // does not offer STARTTLS
	i := install(t, Config{MXPort: h.port})
	(&policyHost{text: enforced}).serve(i)
	i.dns.mx["far.test"], i.dns.txt["_mta-sts.far.test"] = "mx.far.test", "v=STSv1; id=1;"
	ann := i.addMailbox(i.addDomain(i.account, "example.test", nil), "ann", nil)
	i.run()
	i.mustSubmit(ann, plainMessage, "x@far.test", "y@far.test")
	i.becomes("x@far.test", store.OutgoingDeferred)
	o := i.becomes("y@far.test", store.OutgoingDeferred)
	if !strings.Contains(o.LastResponse, "the MTA-STS policy of far.test is enforced") || !strings.Contains(o.LastResponse, "does not offer STARTTLS") || len(h.mails()) != 0 {
		t.Errorf("row %+v", o)
	}
	c := tlsCount(i, "far.test")
	if len(c.Policies) != 1 || c.Policies[0].Type != tlsrpt.PolicySTS || c.Policies[0].Failed != 2 || len(c.Policies[0].Failures) != 1 ||
		c.Policies[0].Failures[0].Result != tlsrpt.NoSTARTTLS || c.Policies[0].Failures[0].Sessions != 2 || c.Policies[0].Failures[0].Host != "mx.far.test" {
		t.Errorf("counted %+v", c)
	}
}

// tlsCount is the only count of a domain.
func tlsCount(i *installation, domain string) *store.TLSCount {
	i.t.Helper()
	out := &store.TLSCount{}
	err := i.st.View(func(tx *store.Tx) error {
		for c := range store.TLSCounts.All(tx) {
			if c.Domain == domain {
				out = c
			}
		}
		return nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	return out
}

// policyNow is the mode of the policy that counts for far.test now, "" for none, and the failure
// that was found.
func policyNow(i *installation) (mode, failed string) {
	i.t.Helper()
	p, f, err := i.svc.policies.of(context.Background(), "far.test")
	if err != nil {
		i.t.Fatal(err)
	}
	if p != nil {
		mode = p.Mode
	}
	if f != nil {
		failed = f.Result
	}
	return mode, failed
}

// TestPolicyIsKept walks one domain's policy through its life.
func TestPolicyIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t, Config{})
		p := (&policyHost{text: enforced}).serve(i)
		record := func(text string) {
			if i.dns.txt["_mta-sts.far.test"] = text; text == "" {
				delete(i.dns.txt, "_mta-sts.far.test")
			}
		}
		for _, step := range []struct {
			what, record, text string
			wait               time.Duration
			reopen             bool
			mode, failed       string
			asked              int32
		}{
			{what: "no record", wait: 0, text: enforced, mode: "", asked: 0},
			{what: "first seen", record: "v=STSv1; id=1", wait: policyAsked, text: enforced, mode: "enforce", asked: 1},
			{what: "just asked", record: "", wait: time.Minute, text: "", mode: "enforce", asked: 1},
			{what: "same id", record: "v=STSv1; id=1", wait: policyAsked, text: enforced, mode: "enforce", asked: 1},
			{what: "after a restart, nobody to ask", record: "", reopen: true, mode: "enforce", asked: 1},
			{what: "new id, cannot be fetched", record: "v=STSv1; id=2", wait: policyAsked, text: "", mode: "enforce", failed: tlsrpt.STSFetch, asked: 2},
			{what: "new id, no policy", record: "v=STSv1; id=2", wait: policyAsked, text: "hello", mode: "enforce", failed: tlsrpt.STSInvalid, asked: 3},
			{what: "new id", record: "v=STSv1; id=2", wait: policyAsked, text: strings.Replace(enforced, "enforce", "testing", 1), mode: "testing", asked: 4},
			{what: "it has run out", record: "", wait: 10*24*time.Hour + 1, mode: "", asked: 4},
		} {
			time.Sleep(step.wait)
			if step.reopen {
				i.reopen()
				i.svc.policies.http = mtasts.NewHTTP(p)
			}
			record(step.record)
			p.text = step.text
			if mode, failed := policyNow(i); mode != step.mode || failed != step.failed || p.asked.Load() != step.asked {
				t.Errorf("%s: mode %q, failure %q after %d fetches; want %q, %q after %d", step.what, mode, failed, p.asked.Load(), step.mode, step.failed, step.asked)
			}
		}
	})
}

func TestPolicyIsFetchedOnceForAll(t *testing.T) {
	i := install(t, Config{})
	p := (&policyHost{text: enforced}).serve(i)
	i.dns.txt["_mta-sts.far.test"] = "v=STSv1; id=1"
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if mode, _ := policyNow(i); mode != "enforce" {
				t.Errorf("mode %q", mode)
			}
		})
	}
	wg.Wait()
	if p.asked.Load() != 1 {
		t.Errorf("%d fetches", p.asked.Load())
	}
}

// TestPoliciesAreRefreshed: one that is in use is fetched long before it runs out, one that is not
// is forgotten.
func TestPoliciesAreRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t, Config{})
		p := (&policyHost{text: enforced}).serve(i)
		i.dns.txt["_mta-sts.far.test"] = "v=STSv1; id=1"
		policyNow(i)
		refresh := func(wait time.Duration) {
			t.Helper()
			time.Sleep(wait)
			writes, err := i.svc.refreshPolicies(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			i.update(func(tx *store.Tx) error { return writes(tx, nil) })
		}
		refresh(time.Hour)
		if p.asked.Load() != 1 {
			t.Errorf("%d fetches within a day", p.asked.Load())
		}
		refresh(policyFresh)
		if p.asked.Load() != 2 {
			t.Errorf("%d fetches after a day", p.asked.Load())
		}
		delete(i.dns.txt, "_mta-sts.far.test")
		time.Sleep(10*24*time.Hour - time.Minute)
		if mode, _ := policyNow(i); mode != "enforce" {
			t.Errorf("it ran out with the fetch before: %q", mode)
		}
		refresh(time.Hour)
		if kept, err := i.svc.policies.kept("far.test"); kept != nil || err != nil {
			t.Errorf("%+v, %v", kept, err)
		}
	})
}
