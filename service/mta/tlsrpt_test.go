package mta_test

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
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/tlsrpt"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// countYesterday counts sessions as if they were of the day before yesterday.
func countYesterday(i *servicetest.Installation, domain string, sessions ...deliver.Session) {
	i.T.Helper()
	i.Update(func(tx *store.Tx) error {
		row := &store.TLSCount{Day: tx.Now().UTC().AddDate(0, 0, -2).Format(time.DateOnly), Domain: domain}
		for _, s := range sessions {
			mta.AddSession(row, s)
		}
		return store.TLSCounts.Put(tx, row)
	})
}

func reportTLS(i *servicetest.Installation) {
	i.T.Helper()
	if _, err := i.Svc.ReportTLS(context.Background(), nil); err != nil {
		i.T.Fatal(err)
	}
}

var (
	untrusted = deliver.Session{Policy: tlsrpt.PolicySTS, Strings: []string{"version: STSv1"}, MXHosts: []string{"*.far.test"}, Host: "mx.far.test", IP: "192.0.2.1", Result: tlsrpt.NotTrusted, Reason: "why"}
	fine      = deliver.Session{Policy: tlsrpt.PolicySTS, Strings: []string{"version: STSv1"}, MXHosts: []string{"*.far.test"}, Host: "mx.far.test"}
)

// TestTLSReportArrives: it is mail that we sign, and gets through where the policy that it tells of
// would hold mail back.
func TestTLSReportArrives(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{MXPort: h.Port})
	(&policyHost{text: enforced}).serve(i)
	i.DNS.MX["far.test"], i.DNS.Txt["_mta-sts.far.test"] = "mx.far.test", "v=STSv1; id=1;"
	i.DNS.Txt["_smtp._tls.far.test"] = "v=TLSRPTv1; rua=mailto:tls@far.test"
	i.AddDomain(i.Account, "mailstead.test", nil)
	countYesterday(i, "far.test", untrusted, untrusted, fine)
	i.Run()
	reportTLS(i)
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
	reportTLS(i)
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
	countYesterday(i, "far.test", untrusted, untrusted, fine)
	reportTLS(i)
	if len(bodies) != 1 {
		t.Fatalf("%d reports", len(bodies))
	}
	checkReport(t, bytes.NewReader(bodies[0]))
}

// TestTLSReportOutlivesAStop: a post that ends with the program is made again, not forgotten.
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
	countYesterday(i, "far.test", untrusted)
	if _, err := i.Svc.ReportTLS(ctx, nil); !errors.Is(err, context.Canceled) {
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
	countYesterday(i, "fine.test", fine)
	countYesterday(i, "silent.test", untrusted)
	i.Update(func(tx *store.Tx) error { return mta.CountTLS(tx, "today.test", []deliver.Session{untrusted}) })
	reportTLS(i)
	if subs, js := i.Left(); subs+js != 0 {
		t.Errorf("%d submissions, %d jobs", subs, js)
	}
	if tlsCount(i, "fine.test").Domain != "" || tlsCount(i, "silent.test").Domain != "" || tlsCount(i, "today.test").Domain == "" {
		t.Error("counts of days that are over are to go, and only those")
	}
}
