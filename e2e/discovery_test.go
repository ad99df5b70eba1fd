package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// testCert makes a certificate that stands for itself, and gives its files and who trusts it.
func testCert(t *testing.T, names ...string) (cert, key string, trust *x509.CertPool) {
	t.Helper()
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeCertificate(t, cert, key, names...)
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	trust = x509.NewCertPool()
	trust.AppendCertsFromPEM(text)
	return cert, key, trust
}

// browse asks the server by HTTPS for what a host of the outside world would have.
func (i *instance) browse(trust *x509.CertPool, method, url, body string) (*http.Response, string) {
	i.t.Helper()
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trust},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, i.ready.HTTPTLS)
		},
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(i.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Do(req)
	if err != nil {
		i.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	return resp, string(text)
}

// dig asks the server's DNS.
func (i *instance) dig(dig, name, typ string) string {
	i.t.Helper()
	host, port, err := net.SplitHostPort(i.ready.DNS)
	if err != nil {
		i.t.Fatal(err)
	}
	out, err := exec.Command(dig, "@"+host, "-p", port, "+short", "+time=5", name, typ).CombinedOutput()
	if err != nil {
		i.t.Fatalf("dig %s %s: %v\n%s", name, typ, err, out)
	}
	return strings.TrimSpace(string(out))
}

// With HTTPS on, the records of a new domain lead mail clients and other servers to documents that
// are there.
func TestDiscoveryFromTheDNSToTheDocuments(t *testing.T) {
	dig := peer(t, "dig")
	cert, key, trust := testCert(t, "mail.mailstead.test", "mta-sts.shop.test", "autoconfig.shop.test", "autodiscover.shop.test")
	i := newInstance(t, generousLimits, "--http-tls", "127.0.0.1:0", "--submissions", "127.0.0.1:0", "--imaps", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)
	id := i.addDomain("shop.test")
	port := func(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
	const host = "mail.mailstead.test."
	for name, want := range map[string]string{
		"mta-sts A": "127.0.0.1", "autoconfig A": "127.0.0.1", "autodiscover A": "127.0.0.1", "www A": "",
		"_smtp._tls TXT":        `"v=TLSRPTv1; rua=mailto:postmaster@shop.test"`,
		"_submissions._tcp SRV": "0 1 " + port(i.ready.Submissions) + " " + host, "_submission._tcp SRV": "10 1 " + port(i.ready.Submission) + " " + host,
		"_imaps._tcp SRV": "0 1 " + port(i.ready.IMAPS) + " " + host, "_imap._tcp SRV": "10 1 " + port(i.ready.IMAP) + " " + host,
		"_autodiscover._tcp SRV": "0 1 " + port(i.ready.HTTPTLS) + " " + host,
	} {
		label, typ, _ := strings.Cut(name, " ")
		if got := i.dig(dig, label+".shop.test", typ); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := i.dig(dig, "_mta-sts.shop.test", "TXT"); !strings.HasPrefix(got, `"v=STSv1; id=`) {
		t.Errorf("_mta-sts: %s", got)
	}
	i.checkDocuments(trust, port)
	i.checkPurposes(id)
	i.want(200, "POST", "/v1/domains/"+id+"/redirect", map[string]any{"redirect_url": "https://else.test/"}, nil)
	if got := i.dig(dig, "www.shop.test", "A"); got != "127.0.0.1" {
		t.Errorf("www of a redirected domain: %q", got)
	}
}

func (i *instance) checkDocuments(trust *x509.CertPool, port func(string) string) {
	i.t.Helper()
	const request = `<Autodiscover xmlns="http://schemas.microsoft.com/exchange/autodiscover/outlook/requestschema/2006"><Request><EMailAddress>ann@shop.test</EMailAddress></Request></Autodiscover>`
	for _, doc := range []struct {
		method, url, body string
		want              []string
	}{
		{"GET", "https://mta-sts.shop.test/.well-known/mta-sts.txt", "", []string{"version: STSv1\r\nmode: enforce\r\nmx: mail.mailstead.test\r\n"}},
		{"GET", "https://autoconfig.shop.test/mail/config-v1.1.xml?emailaddress=ann@shop.test", "", []string{
			"<port>" + port(i.ready.IMAPS) + "</port>", "<port>" + port(i.ready.IMAP) + "</port>", "<port>" + port(i.ready.Submissions) + "</port>", "<username>ann@shop.test</username>",
		}},
		{"POST", "https://autodiscover.shop.test/autodiscover/autodiscover.xml", request, []string{"<Port>" + port(i.ready.IMAPS) + "</Port>", "<Port>" + port(i.ready.Submissions) + "</Port>"}},
		{"GET", "https://autodiscover.shop.test/autodiscover/autodiscover.json?Email=ann@shop.test&Protocol=AutodiscoverV1", "", []string{`"Url":"https://mail.mailstead.test:` + port(i.ready.HTTPTLS)}},
		{"GET", "https://mail.mailstead.test/mail/shop.mobileconfig?email=ann@shop.test", "", []string{"<integer>" + port(i.ready.IMAPS) + "</integer>"}},
	} {
		resp, text := i.browse(trust, doc.method, doc.url, doc.body)
		if resp.StatusCode != 200 {
			i.t.Errorf("%s: %d %s", doc.url, resp.StatusCode, text)
		}
		for _, want := range doc.want {
			if !strings.Contains(text, want) {
				i.t.Errorf("%s: no %q in\n%s", doc.url, want, text)
			}
		}
	}
}

// checkPurposes demands that dns-status knows every record, and has seen it.
func (i *instance) checkPurposes(id string) {
	i.t.Helper()
	var status struct {
		Ready   bool
		Records []struct {
			Purpose, Type, Host string
			Critical, Verified  bool
		}
	}
	i.want(200, "GET", "/v1/domains/"+id+"/dns-status?refresh=true", nil, &status)
	var got []string
	for _, r := range status.Records {
		got = append(got, fmt.Sprintf("%s %s %s", r.Purpose, r.Type, r.Host))
		if !r.Verified {
			i.t.Errorf("%+v is not verified", r)
		}
		if optional := slices.Contains([]string{"MTA_STS", "TLSRPT", "AUTOCONFIG", "DMARC"}, r.Purpose); r.Critical == optional {
			i.t.Errorf("%+v", r)
		}
	}
	for _, want := range []string{"MTA_STS TXT _mta-sts", "MTA_STS A mta-sts", "TLSRPT TXT _smtp._tls", "AUTOCONFIG A autoconfig", "AUTOCONFIG A autodiscover", "AUTOCONFIG SRV _imaps._tcp", "AUTOCONFIG SRV _autodiscover._tcp"} {
		if !slices.Contains(got, want) {
			i.t.Errorf("no %s in %q", want, got)
		}
	}
	if !status.Ready {
		i.t.Error("the domain is not ready")
	}
}
