package outbound_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/mtasts"
	"github.com/mailstead/mailstead/mail/tlsrpt"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
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

// serve makes the service fetch policies from p.
func (p *policyHost) serve(i *servicetest.Installation) *policyHost {
	i.Svc.Outbound.Policies().HTTP = mtasts.NewHTTP(p)
	return p
}

const enforced = "version: STSv1\nmode: enforce\nmx: mx.far.test\nmax_age: 864000\n"

func TestEnforcedPolicyHoldsMailBack(t *testing.T) {
	h := (&servicetest.Host{}).Start(t) // does not offer STARTTLS
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	(&policyHost{text: enforced}).serve(i)
	i.DNS.MX["far.test"], i.DNS.Txt["_mta-sts.far.test"] = "mx.far.test", "v=STSv1; id=1;"
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	i.MustSubmit(ann, servicetest.PlainMessage, "x@far.test", "y@far.test")
	i.Becomes("x@far.test", store.OutgoingDeferred)
	o := i.Becomes("y@far.test", store.OutgoingDeferred)
	if !strings.Contains(o.LastResponse, "the MTA-STS policy of far.test is enforced") || !strings.Contains(o.LastResponse, "does not offer STARTTLS") || len(h.Mails()) != 0 {
		t.Errorf("row %+v", o)
	}
	c := tlsCount(i, "far.test")
	if len(c.Policies) != 1 || c.Policies[0].Type != tlsrpt.PolicySTS || c.Policies[0].Failed != 2 || len(c.Policies[0].Failures) != 1 ||
		c.Policies[0].Failures[0].Result != tlsrpt.NoSTARTTLS || c.Policies[0].Failures[0].Sessions != 2 || c.Policies[0].Failures[0].Host != "mx.far.test" {
		t.Errorf("counted %+v", c)
	}
}

// tlsCount returns the only count of a domain.
func tlsCount(i *servicetest.Installation, domain string) *store.TLSCount {
	i.T.Helper()
	out := &store.TLSCount{}
	err := i.St.View(func(tx *store.Tx) error {
		for c := range store.TLSCounts.All(tx) {
			if c.Domain == domain {
				out = c
			}
		}
		return nil
	})
	if err != nil {
		i.T.Fatal(err)
	}
	return out
}

// policyNow returns the mode of the current policy of far.test, "" for none, and the failure that
// was found.
func policyNow(i *servicetest.Installation) (mode, failed string) {
	i.T.Helper()
	p, f, err := i.Svc.Outbound.Policies().Of(context.Background(), "far.test")
	if err != nil {
		i.T.Fatal(err)
	}
	if p != nil {
		mode = p.Mode
	}
	if f != nil {
		failed = f.Result
	}
	return mode, failed
}

// TestPolicyIsKept follows the life of one domain's policy.
func TestPolicyIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := servicetest.Install(t, core.Config{})
		p := (&policyHost{text: enforced}).serve(i)
		record := func(text string) {
			i.DNS.Txt["_mta-sts.far.test"] = text
			if text == "" {
				delete(i.DNS.Txt, "_mta-sts.far.test")
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
			{what: "first seen", record: "v=STSv1; id=1", wait: outbound.PolicyAsked, text: enforced, mode: "enforce", asked: 1},
			{what: "just asked", record: "", wait: time.Minute, text: "", mode: "enforce", asked: 1},
			{what: "same id", record: "v=STSv1; id=1", wait: outbound.PolicyAsked, text: enforced, mode: "enforce", asked: 1},
			{what: "after a restart, nobody to ask", record: "", reopen: true, mode: "enforce", asked: 1},
			{what: "new id, cannot be fetched", record: "v=STSv1; id=2", wait: outbound.PolicyAsked, text: "", mode: "enforce", failed: tlsrpt.STSFetch, asked: 2},
			{what: "new id, no policy", record: "v=STSv1; id=2", wait: outbound.PolicyAsked, text: "hello", mode: "enforce", failed: tlsrpt.STSInvalid, asked: 3},
			{what: "new id", record: "v=STSv1; id=2", wait: outbound.PolicyAsked, text: strings.Replace(enforced, "enforce", "testing", 1), mode: "testing", asked: 4},
			{what: "it has run out", record: "", wait: 10*24*time.Hour + 1, mode: "", asked: 4},
		} {
			time.Sleep(step.wait)
			if step.reopen {
				i.Reopen()
				i.Svc.Outbound.Policies().HTTP = mtasts.NewHTTP(p)
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
	i := servicetest.Install(t, core.Config{})
	p := (&policyHost{text: enforced}).serve(i)
	i.DNS.Txt["_mta-sts.far.test"] = "v=STSv1; id=1"
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

// TestPoliciesAreRefreshed: a policy in use is fetched long before it expires; an unused one is
// deleted.
func TestPoliciesAreRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := servicetest.Install(t, core.Config{})
		p := (&policyHost{text: enforced}).serve(i)
		i.DNS.Txt["_mta-sts.far.test"] = "v=STSv1; id=1"
		policyNow(i)
		refresh := func(wait time.Duration) {
			t.Helper()
			time.Sleep(wait)
			writes, err := i.Svc.Outbound.RefreshPolicies(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			i.Update(func(tx *store.Tx) error { return writes(tx, nil) })
		}
		refresh(time.Hour)
		if p.asked.Load() != 1 {
			t.Errorf("%d fetches within a day", p.asked.Load())
		}
		refresh(outbound.PolicyFresh)
		if p.asked.Load() != 2 {
			t.Errorf("%d fetches after a day", p.asked.Load())
		}
		delete(i.DNS.Txt, "_mta-sts.far.test")
		time.Sleep(10*24*time.Hour - time.Minute)
		if mode, _ := policyNow(i); mode != "enforce" {
			t.Errorf("it ran out with the fetch before: %q", mode)
		}
		refresh(time.Hour)
		if kept, err := i.Svc.Outbound.Policies().StoredPolicy("far.test"); kept != nil || err != nil {
			t.Errorf("%+v, %v", kept, err)
		}
	})
}

// TestTLSReportArrives: a TLS report is signed mail, and is delivered even if the policy that it
// reports on would hold mail back.
func TestTLSReportArrives(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	(&policyHost{text: enforced}).serve(i)
	i.DNS.MX["far.test"], i.DNS.Txt["_mta-sts.far.test"] = "mx.far.test", "v=STSv1; id=1;"
	i.DNS.Txt["_smtp._tls.far.test"] = "v=TLSRPTv1; rua=mailto:tls@far.test"
	i.AddDomain(i.Account, "mailstead.test", nil)
	servicetest.CountTLSYesterday(i, "far.test", servicetest.Untrusted, servicetest.Untrusted, servicetest.Fine)
	i.Run()
	servicetest.ReportTLS(i)
	i.Becomes("tls@far.test", store.OutgoingSent)
	got := h.Mails()
	if len(got) != 1 || got[0].From != "" {
		t.Fatalf("the host took %+v", got)
	}
	for _, want := range []string{
		"From: postmaster@mailstead.test\r\n", "TLS-Report-Domain: far.test\r\n", "TLS-Report-Submitter: mailstead.test\r\n", "Subject: Report Domain: far.test",
		"report-type=tlsrpt", "Content-Type: application/tlsrpt+gzip",
	} {
		if !strings.Contains(got[0].Data, want) {
			t.Errorf("the mail lacks %q:\n%s", want, got[0].Data)
		}
	}
	if v := i.Verify([]byte(got[0].Data)); v.DKIM != auth.Pass {
		t.Errorf("DKIM is %s", v.DKIM)
	}
	_, body, _ := strings.Cut(got[0].Data, "application/tlsrpt+gzip")
	_, body, _ = strings.Cut(body, "\r\n\r\n")
	body, _, _ = strings.Cut(body, "\r\n--")
	checkReport(t, base64.NewDecoder(base64.StdEncoding, strings.NewReader(body)))
	if c := tlsCount(i, "far.test"); c.Domain != "" {
		t.Errorf("after the report there is %+v", c)
	}
	servicetest.ReportTLS(i)
	if subs, _ := i.Left(); subs != 0 || len(h.Mails()) != 1 {
		t.Error("it is reported again")
	}
}

func checkReport(t *testing.T, packed io.Reader) {
	t.Helper()
	body, err := io.ReadAll(packed)
	if err != nil {
		t.Fatal(err)
	}
	r, err := tlsrpt.Read(body)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Policies) != 1 || r.Policies[0].Successful != 1 || r.Policies[0].Failed != 2 || r.Policies[0].Domain != "far.test" ||
		len(r.Policies[0].Failures) != 1 || r.Policies[0].Failures[0].Sessions != 2 || r.Policies[0].Failures[0].Result != tlsrpt.NotTrusted {
		t.Errorf("report %+v", r)
	}
	if r.End.Sub(r.Begin) != 24*time.Hour-time.Second || r.Begin.Hour() != 0 || !strings.Contains(r.ID, "@") {
		t.Errorf("report %+v", r)
	}
}

func TestTLSReportIsPosted(t *testing.T) {
	var bodies [][]byte
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "POST" || r.Header.Get("Content-Type") != tlsrpt.MediaType {
			w.WriteHeader(http.StatusBadRequest)
		}
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, body)
	}))
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	i := servicetest.Install(t, core.Config{RootCAs: roots})
	i.DNS.Txt["_smtp._tls.far.test"] = "v=TLSRPTv1; rua=" + server.URL + "/tls"
	servicetest.CountTLSYesterday(i, "far.test", servicetest.Untrusted, servicetest.Untrusted, servicetest.Fine)
	servicetest.ReportTLS(i)
	if len(bodies) != 1 {
		t.Fatalf("%d reports", len(bodies))
	}
	checkReport(t, bytes.NewReader(bodies[0]))
}

// TestTLSReportOutlivesAStop: an HTTP report that a shutdown interrupts is sent again.
func TestTLSReportOutlivesAStop(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else it does not notice that the client leaves
		stop()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	i := servicetest.Install(t, core.Config{RootCAs: roots})
	i.DNS.Txt["_smtp._tls.far.test"] = "v=TLSRPTv1; rua=" + server.URL + "/tls"
	servicetest.CountTLSYesterday(i, "far.test", servicetest.Untrusted)
	if _, err := i.Svc.Reports.ReportTLS(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if c := tlsCount(i, "far.test"); c.Domain == "" {
		t.Error("what was counted is forgotten")
	}
}

func TestNoReportWhereNoneIsDue(t *testing.T) {
	i := servicetest.Install(t, core.Config{})
	for _, d := range []string{"fine.test", "today.test"} {
		i.DNS.Txt["_smtp._tls."+d] = "v=TLSRPTv1; rua=mailto:tls@" + d
	}
	servicetest.CountTLSYesterday(i, "fine.test", servicetest.Fine)
	servicetest.CountTLSYesterday(i, "silent.test", servicetest.Untrusted)
	i.Update(func(tx *store.Tx) error {
		return outbound.CountTLS(tx, "today.test", []deliver.Session{servicetest.Untrusted})
	})
	servicetest.ReportTLS(i)
	if subs, js := i.Left(); subs+js != 0 {
		t.Errorf("%d submissions, %d jobs", subs, js)
	}
	if tlsCount(i, "fine.test").Domain != "" || tlsCount(i, "silent.test").Domain != "" || tlsCount(i, "today.test").Domain == "" {
		t.Error("counts of days that are over are to go, and only those")
	}
}
