package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// browse asks the server by HTTPS for what a host of the outside world would have.
func browse(i *rig.Instance, trust *x509.CertPool, method, url, body string) (*http.Response, string) {
	i.T.Helper()
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trust},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, i.Ready.HTTPTLS)
		},
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(i.T.Context(), method, url, strings.NewReader(body))
	if err != nil {
		i.T.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Do(req)
	if err != nil {
		i.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		i.T.Fatal(err)
	}
	return resp, string(text)
}

// askDNS asks the server's DNS.
func askDNS(i *rig.Instance, dig, name, typ string) string {
	i.T.Helper()
	host, port, err := net.SplitHostPort(i.Ready.DNS)
	if err != nil {
		i.T.Fatal(err)
	}
	out, err := exec.Command(dig, "@"+host, "-p", port, "+short", "+time=5", name, typ).CombinedOutput()
	if err != nil {
		i.T.Fatalf("dig %s %s: %v\n%s", name, typ, err, out)
	}
	return strings.TrimSpace(string(out))
}

// With HTTPS on, the records of a new domain lead mail clients and other servers to documents that
// are there.
func TestDiscoveryFromTheDNSToTheDocuments(t *testing.T) {
	dig := rig.Peer(t, "dig")
	cert, key, trust := rig.SelfSigned(t, "mail.mailstead.test", "mta-sts.shop.test", "autoconfig.shop.test", "autodiscover.shop.test")
	i := rig.Start(t, rig.GenerousLimits, "--http-tls", "127.0.0.1:0", "--submissions", "127.0.0.1:0", "--imaps", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)
	id := i.AddDomain("shop.test")
	port := func(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
	const host = "mail.mailstead.test."
	for name, want := range map[string]string{
		"mta-sts A": "127.0.0.1", "autoconfig A": "127.0.0.1", "autodiscover A": "127.0.0.1", "www A": "",
		"_smtp._tls TXT":        `"v=TLSRPTv1; rua=mailto:postmaster@shop.test"`,
		"_submissions._tcp SRV": "0 1 " + port(i.Ready.Submissions) + " " + host, "_submission._tcp SRV": "10 1 " + port(i.Ready.Submission) + " " + host,
		"_imaps._tcp SRV": "0 1 " + port(i.Ready.IMAPS) + " " + host, "_imap._tcp SRV": "10 1 " + port(i.Ready.IMAP) + " " + host,
		"_autodiscover._tcp SRV": "0 1 " + port(i.Ready.HTTPTLS) + " " + host,
	} {
		label, typ, _ := strings.Cut(name, " ")
		if got := askDNS(i, dig, label+".shop.test", typ); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := askDNS(i, dig, "_mta-sts.shop.test", "TXT"); !strings.HasPrefix(got, `"v=STSv1; id=`) {
		t.Errorf("_mta-sts: %s", got)
	}
	checkDocuments(i, trust, port)
	checkPurposes(i, id)
	i.Want(200, "POST", "/v1/domains/"+id+"/redirect", map[string]any{"redirect_url": "https://else.test/"}, nil)
	if got := askDNS(i, dig, "www.shop.test", "A"); got != "127.0.0.1" {
		t.Errorf("www of a redirected domain: %q", got)
	}
}

func checkDocuments(i *rig.Instance, trust *x509.CertPool, port func(string) string) {
	i.T.Helper()
	const request = `<Autodiscover xmlns="http://schemas.microsoft.com/exchange/autodiscover/outlook/requestschema/2006"><Request><EMailAddress>ann@shop.test</EMailAddress></Request></Autodiscover>`
	for _, doc := range []struct {
		method, url, body string
		want              []string
	}{
		{"GET", "https://mta-sts.shop.test/.well-known/mta-sts.txt", "", []string{"version: STSv1\r\nmode: enforce\r\nmx: mail.mailstead.test\r\n"}},
		{"GET", "https://autoconfig.shop.test/mail/config-v1.1.xml?emailaddress=ann@shop.test", "", []string{
			"<port>" + port(i.Ready.IMAPS) + "</port>", "<port>" + port(i.Ready.IMAP) + "</port>", "<port>" + port(i.Ready.Submissions) + "</port>", "<username>ann@shop.test</username>",
		}},
		{"POST", "https://autodiscover.shop.test/autodiscover/autodiscover.xml", request, []string{"<Port>" + port(i.Ready.IMAPS) + "</Port>", "<Port>" + port(i.Ready.Submissions) + "</Port>"}},
		{"GET", "https://autodiscover.shop.test/autodiscover/autodiscover.json?Email=ann@shop.test&Protocol=AutodiscoverV1", "", []string{`"Url":"https://mail.mailstead.test:` + port(i.Ready.HTTPTLS)}},
		{"GET", "https://mail.mailstead.test/mail/shop.mobileconfig?email=ann@shop.test", "", []string{"<integer>" + port(i.Ready.IMAPS) + "</integer>"}},
	} {
		resp, text := browse(i, trust, doc.method, doc.url, doc.body)
		if resp.StatusCode != 200 {
			i.T.Errorf("%s: %d %s", doc.url, resp.StatusCode, text)
		}
		for _, want := range doc.want {
			if !strings.Contains(text, want) {
				i.T.Errorf("%s: no %q in\n%s", doc.url, want, text)
			}
		}
	}
}

// checkPurposes demands that dns-status knows every record, and has seen it.
func checkPurposes(i *rig.Instance, id string) {
	i.T.Helper()
	var status struct {
		Ready   bool
		Records []struct {
			Purpose, Type, Host string
			Critical, Verified  bool
		}
	}
	i.Want(200, "GET", "/v1/domains/"+id+"/dns-status?refresh=true", nil, &status)
	var got []string
	for _, r := range status.Records {
		got = append(got, fmt.Sprintf("%s %s %s", r.Purpose, r.Type, r.Host))
		if !r.Verified {
			i.T.Errorf("%+v is not verified", r)
		}
		if optional := slices.Contains([]string{"MTA_STS", "TLSRPT", "AUTOCONFIG", "DMARC"}, r.Purpose); r.Critical == optional {
			i.T.Errorf("%+v", r)
		}
	}
	for _, want := range []string{"MTA_STS TXT _mta-sts", "MTA_STS A mta-sts", "TLSRPT TXT _smtp._tls", "AUTOCONFIG A autoconfig", "AUTOCONFIG A autodiscover", "AUTOCONFIG SRV _imaps._tcp", "AUTOCONFIG SRV _autodiscover._tcp"} {
		if !slices.Contains(got, want) {
			i.T.Errorf("no %s in %q", want, got)
		}
	}
	if !status.Ready {
		i.T.Error("the domain is not ready")
	}
}
