package service

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/tlsrpt"
	"github.com/mailstead/mailstead/store"
)

// countYesterday counts sessions as if they were of the day before yesterday.
func countYesterday(i *installation, domain string, sessions ...deliver.Session) {
	i.t.Helper()
	i.update(func(tx *store.Tx) error {
		row := &store.TLSCount{Day: tx.Now().UTC().AddDate(0, 0, -2).Format(time.DateOnly), Domain: domain}
		for _, s := range sessions {
			addSession(row, s)
		}
		return store.TLSCounts.Put(tx, row)
	})
}

func reportTLS(i *installation) {
	i.t.Helper()
	if _, err := i.svc.reportTLS(context.Background(), nil); err != nil {
		i.t.Fatal(err)
	}
}

var (
	untrusted = deliver.Session{Policy: tlsrpt.PolicySTS, Strings: []string{"version: STSv1"}, MXHosts: []string{"*.far.test"}, Host: "mx.far.test", IP: "192.0.2.1", Result: tlsrpt.NotTrusted, Reason: "why"}
	fine      = deliver.Session{Policy: tlsrpt.PolicySTS, Strings: []string{"version: STSv1"}, MXHosts: []string{"*.far.test"}, Host: "mx.far.test"}
)

// TestTLSReportArrives: it is mail that we sign, and gets through where the policy that it tells of
// would hold mail back.
func TestTLSReportArrives(t *testing.T) {
	h := (&host{}).start(t)
	i := install(t, Config{MXPort: h.port})
	(&policyHost{text: enforced}).serve(i)
	i.dns.mx["far.test"], i.dns.txt["_mta-sts.far.test"] = "mx.far.test", "v=STSv1; id=1;"
	i.dns.txt["_smtp._tls.far.test"] = "v=TLSRPTv1; rua=mailto:tls@far.test"
	i.addDomain(i.account, "mailstead.test", nil)
	countYesterday(i, "far.test", untrusted, untrusted, fine)
	i.run()
	reportTLS(i)
	i.becomes("tls@far.test", store.OutgoingSent)
	got := h.mails()
	if len(got) != 1 || got[0].from != "" {
		t.Fatalf("the host took %+v", got)
	}
	for _, want := range []string{
		"From: postmaster@mailstead.test\r\n", "TLS-Report-Domain: far.test\r\n", "TLS-Report-Submitter: mailstead.test\r\n", "Subject: Report Domain: far.test",
		"report-type=tlsrpt", "Content-Type: application/tlsrpt+gzip",
	} {
		if !strings.Contains(got[0].data, want) {
			t.Errorf("the mail lacks %q:\n%s", want, got[0].data)
		}
	}
	if v := i.verify([]byte(got[0].data)); v.DKIM != auth.Pass {
		t.Errorf("DKIM is %s", v.DKIM)
	}
	_, body, _ := strings.Cut(got[0].data, "application/tlsrpt+gzip")
	_, body, _ = strings.Cut(body, "\r\n\r\n")
	body, _, _ = strings.Cut(body, "\r\n--")
	checkReport(t, base64.NewDecoder(base64.StdEncoding, strings.NewReader(body)))
	if c := tlsCount(i, "far.test"); c.Domain != "" {
		t.Errorf("after the report there is %+v", c)
	}
	reportTLS(i)
	if subs, _ := i.left(); subs != 0 || len(h.mails()) != 1 {
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
	i := install(t, Config{RootCAs: roots})
	i.dns.txt["_smtp._tls.far.test"] = "v=TLSRPTv1; rua=" + server.URL + "/tls"
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
	i := install(t, Config{RootCAs: roots})
	i.dns.txt["_smtp._tls.far.test"] = "v=TLSRPTv1; rua=" + server.URL + "/tls"
	countYesterday(i, "far.test", untrusted)
	if _, err := i.svc.reportTLS(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if c := tlsCount(i, "far.test"); c.Domain == "" {
		t.Error("what was counted is forgotten")
	}
}

func TestNoReportWhereNoneIsDue(t *testing.T) {
	i := install(t, Config{})
	for _, d := range []string{"fine.test", "today.test"} {
		i.dns.txt["_smtp._tls."+d] = "v=TLSRPTv1; rua=mailto:tls@" + d
	}
	countYesterday(i, "fine.test", fine)
	countYesterday(i, "silent.test", untrusted)
	i.update(func(tx *store.Tx) error { return countTLS(tx, "today.test", []deliver.Session{untrusted}) })
	reportTLS(i)
	if subs, js := i.left(); subs+js != 0 {
		t.Errorf("%d submissions, %d jobs", subs, js)
	}
	if tlsCount(i, "fine.test").Domain != "" || tlsCount(i, "silent.test").Domain != "" || tlsCount(i, "today.test").Domain == "" {
		t.Error("counts of days that are over are to go, and only those")
	}
}

func TestTLSCountsAreBounded(t *testing.T) {
	row := &store.TLSCount{}
	for n := range 1000 {
		addSession(row, deliver.Session{Policy: tlsrpt.PolicyTLSA, Strings: []string{fmt.Sprint(n % 10)}, Host: fmt.Sprint(n), Result: tlsrpt.Failed, Reason: strings.Repeat("ä", 500)})
	}
	total := int64(0)
	for _, p := range row.Policies {
		total += p.Failed
		if len(p.Failures) > maxTLSFailures || len(p.Failures[0].Reason) > maxTLSReason {
			t.Errorf("%d failures", len(p.Failures))
		}
	}
	if total != 1000 || len(row.Policies) != maxTLSPolicies {
		t.Errorf("%d sessions under %d policies", total, len(row.Policies))
	}
}
