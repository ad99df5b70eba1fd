package peers

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
)

const acmeHost = "mail.acme.test"

// acmeWorld is a DNS in which the host's names lead to loopback.
func acmeWorld(t *testing.T) *rig.FakeResolver {
	t.Helper()
	world := rig.NewFakeResolver(t)
	for _, name := range []string{acmeHost, "ns1.acme.test", "ns2.acme.test"} {
		world.PointHere(t, name)
	}
	return world
}

// acmeArgs run a server in production that trusts the authority.
func acmeArgs(p *pebble, world *rig.FakeResolver, httpPort int) []string {
	return []string{
		"--hostname", acmeHost, "--http", fmt.Sprintf("127.0.0.1:%d", httpPort), "--http-tls", "127.0.0.1:0", "--submissions", "127.0.0.1:0",
		"--imaps", "127.0.0.1:0", "--public-ip", "127.0.0.1", "--resolver", world.Addr, "--acme-directory", p.directory, "--acme-email", "ops@acme.test",
		"--ca-file", p.caFile, "--allow-private-destinations", "--outbound", "capture",
	}
}

// shown is the certificate that a TLS listener shows for a name; nil if nobody who trusts the
// authority would take it.
func (p *pebble) shown(addr, name string) *x509.Certificate {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", addr, &tls.Config{RootCAs: p.roots, ServerName: name})
	if err != nil {
		return nil
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

// visit gets a page of a name over HTTPS without going on to where it leads.
func (p *pebble) visit(addr, url string) (status int, location string) {
	p.t.Helper()
	c := &http.Client{
		Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, addr)
			},
			TLSClientConfig: &tls.Config{RootCAs: p.roots}, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		},
	}
	resp, err := c.Get(url)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.ProtoMajor != 2 {
		p.t.Errorf("%s speaks %s", url, resp.Proto)
	}
	return resp.StatusCode, resp.Header.Get("Location")
}

// overSTARTTLS is the certificate that an SMTP listener shows after STARTTLS.
func overSTARTTLS(t *testing.T, addr string, config *tls.Config) *x509.Certificate {
	t.Helper()
	c, err := smtp.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.StartTLS(config); err != nil {
		t.Fatal(err)
	}
	state, ok := c.TLSConnectionState()
	if !ok {
		t.Fatal("no TLS after STARTTLS")
	}
	return state.PeerCertificates[0]
}

// TestCertificatesByACME: a host name is enough for TLS everywhere; redirected domains get
// certificates by HTTP-01 and, where the zone is ours, by DNS-01; a restart orders nothing.
func TestCertificatesByACME(t *testing.T) {
	t.Parallel()
	world, port := acmeWorld(t), rig.FreePort(t)
	p := startPebble(t, world, port, 0, "PEBBLE_VA_NOSLEEP=1")
	i := rig.Start(t, rig.GenerousLimits, acmeArgs(p, world, port)...)
	// From the first minute there is TLS, if not trust.
	overSTARTTLS(t, i.Ready.SMTP, &tls.Config{InsecureSkipVerify: true})
	i.Until("the host has its certificate", func() bool { return p.shown(i.Ready.HTTPTLS, acmeHost) != nil })
	host := p.shown(i.Ready.HTTPTLS, acmeHost)
	for _, addr := range []string{i.Ready.IMAPS, i.Ready.Submissions} {
		if cert := p.shown(addr, acmeHost); cert == nil || !cert.Equal(host) {
			t.Errorf("%s shows %v", addr, cert)
		}
	}
	for _, addr := range []string{i.Ready.SMTP, i.Ready.Submission} {
		if cert := overSTARTTLS(t, addr, &tls.Config{RootCAs: p.roots, ServerName: acmeHost}); !cert.Equal(host) {
			t.Errorf("%s shows %v after STARTTLS", addr, cert.DNSNames)
		}
	}
	world.Delegate(i.Ready.DNS)
	redirectByHand(i, world, "shop.example.net", "https://example.org/base")
	world.Set(t, "garden.test", "NS", "ns1.acme.test.", "ns2.acme.test.")
	redirect(i, i.AddDomain("garden.test"), "https://example.org")
	for name, want := range map[string]string{"shop.example.net": "https://example.org/base/a/b?c=d", "www.shop.example.net": "https://example.org/base/a/b?c=d", "garden.test": "https://example.org/a/b?c=d"} {
		i.Until(name+" has its certificate", func() bool { return p.shown(i.Ready.HTTPTLS, name) != nil })
		if status, to := p.visit(i.Ready.HTTPTLS, "https://"+name+"/a/b?c=d"); status != 301 || to != want {
			t.Errorf("%s: %d to %s", name, status, to)
		}
	}
	if status, _ := p.visit(i.Ready.HTTPTLS, "https://"+acmeHost+"/healthz"); status != 200 {
		t.Errorf("the host itself answers %d", status)
	}
	if found := challengesOf(i, "garden.test"); len(found) > 0 {
		t.Errorf("challenges are left in the zone: %v", found)
	}
	shop, garden, issued := p.shown(i.Ready.HTTPTLS, "shop.example.net"), p.shown(i.Ready.HTTPTLS, "garden.test"), p.issued()
	i.Stop()
	i.Start()
	world.Delegate(i.Ready.DNS)
	for name, before := range map[string]*x509.Certificate{acmeHost: host, "www.shop.example.net": shop, "garden.test": garden} {
		if cert := p.shown(i.Ready.HTTPTLS, name); cert == nil || !cert.Equal(before) {
			t.Errorf("after a restart %s shows %v", name, cert)
		}
	}
	time.Sleep(2 * time.Second) // a needless order would be made in this time
	if n := p.issued(); n != issued {
		t.Errorf("the restart cost %d certificates", n-issued)
	}
	i.Check()
}

// redirect sends the visitors of a domain on, path and all.
func redirect(i *rig.Instance, id, to string) {
	i.T.Helper()
	i.Want(200, "POST", "/v1/domains/"+id+"/redirect", map[string]any{"redirect_url": to, "preserve_path": true}, nil)
}

// redirectByHand completes a redirected domain whose records its owner enters somewhere else.
func redirectByHand(i *rig.Instance, world *rig.FakeResolver, name, to string) {
	i.T.Helper()
	var connected struct {
		Domains []struct {
			DomainID string `json:"domain_id"`
		}
	}
	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{name}, "manual_dns": true, "apex": "here"}, &connected)
	id := connected.Domains[0].DomainID
	var list struct {
		Status  string
		Records []struct {
			Type, Host, Value string
			Priority          int
		}
	}
	i.Until("the records are computed", func() bool {
		i.Want(200, "GET", "/v1/domains/"+id+"/dns-records", nil, &list)
		return list.Status == "ready"
	})
	texts := map[string][]string{}
	for _, r := range list.Records {
		at := strings.TrimPrefix(r.Host+"."+name, "@.")
		switch r.Type {
		case "TXT":
			texts[at] = append(texts[at], zoneText(r.Value))
		case "MX":
			world.Set(i.T, at, "MX", fmt.Sprintf("%d %s.", r.Priority, r.Value))
		}
	}
	for at, values := range texts {
		world.Set(i.T, at, "TXT", values...)
	}
	world.PointHere(i.T, name)
	world.PointHere(i.T, "www."+name)
	i.Want(200, "POST", "/v1/domains/"+id+"/verify-dns", nil, nil)
	redirect(i, id, to)
}

// zoneText is a text as zone files have it.
func zoneText(text string) string {
	var parts []string
	for part := range slices.Chunk([]byte(text), 250) {
		parts = append(parts, `"`+string(part)+`"`)
	}
	return strings.Join(parts, " ")
}

// challengesOf asks our DNS server for the challenges of a domain.
func challengesOf(i *rig.Instance, name string) []dns.RR {
	i.T.Helper()
	m, _, err := new(dns.Client).Exchange(new(dns.Msg).SetQuestion("_acme-challenge."+name+".", dns.TypeTXT), i.Ready.DNS)
	if err != nil {
		i.T.Fatal(err)
	}
	return m.Answer
}

// TestCertificateRenewsItself: nothing is restarted, and nobody ever sees one that has run out.
func TestCertificateRenewsItself(t *testing.T) {
	t.Parallel()
	world, port := acmeWorld(t), rig.FreePort(t)
	p := startPebble(t, world, port, 12, "PEBBLE_VA_NOSLEEP=1")
	i := rig.Start(t, rig.GenerousLimits, acmeArgs(p, world, port)...)
	var serials []string
	i.Until("the certificate has been renewed twice", func() bool {
		cert := p.shown(i.Ready.IMAPS, acmeHost)
		if cert == nil {
			if len(serials) > 0 {
				t.Error("there was no valid certificate any more")
			}
			return false
		}
		if serial := cert.SerialNumber.String(); !slices.Contains(serials, serial) {
			serials = append(serials, serial)
		}
		return len(serials) == 3
	})
}

// TestCertificateOutlivesKills: however often the process ends in the middle, each certificate is
// made once, and no challenge stays in the zone.
func TestCertificateOutlivesKills(t *testing.T) {
	t.Parallel()
	world, port := acmeWorld(t), rig.FreePort(t)
	p := startPebble(t, world, port, 0, "PEBBLE_VA_SLEEPTIME=2", "PEBBLE_AUTHZREUSE=0")
	i := rig.Start(t, rig.GenerousLimits, acmeArgs(p, world, port)...)
	world.Delegate(i.Ready.DNS)
	world.Set(t, "garden.test", "NS", "ns1.acme.test.", "ns2.acme.test.")
	redirect(i, i.AddDomain("garden.test"), "https://example.org")
	for n := range 6 {
		time.Sleep(time.Duration(n) * 120 * time.Millisecond) // each kill comes a little later
		i.Kill()
		i.Start()
		world.Delegate(i.Ready.DNS)
	}
	if out, code := rig.Run(t, "job", "resume", "--all", "--data", i.Dir); code != 0 {
		t.Fatal(out)
	}
	for _, name := range []string{acmeHost, "garden.test"} {
		i.Until(name+" has its certificate", func() bool { return p.shown(i.Ready.HTTPTLS, name) != nil })
	}
	i.Until("the challenges are gone", func() bool { return len(challengesOf(i, "garden.test")) == 0 })
	// One more of each is pebble's: a late look at a challenge that it has taken already can void
	// an order that it has filled.
	if n := p.issued(); n > 4 {
		t.Errorf("two certificates cost %d", n)
	}
	i.Check()
}

// TestSIGHUPReadsSettingsAgain: the log level and the certificate's files count at once; a mistake
// changes nothing.
func TestSIGHUPReadsSettingsAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	rig.WriteCertificate(t, cert, key, "localhost")
	files := fmt.Sprintf("tls_cert = %q\ntls_key = %q\n", cert, key)
	i := rig.Start(t, files, "--http-tls", "127.0.0.1:0")
	serial := func() string {
		conn, err := tls.Dial("tcp", i.Ready.HTTPTLS, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	hup := func(settings, says string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(i.Dir, "mailstead.toml"), []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := i.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		i.Until("the log says "+says, func() bool {
			text, err := os.ReadFile(i.Log.Name())
			return err == nil && strings.Contains(string(text), says)
		})
	}
	before := serial()
	rig.WriteCertificate(t, cert, key, "localhost")
	hup(files+"log_level = \"loud\"\n", "the settings stay as they were")
	if serial() != before {
		t.Error("the certificate was read with settings that were refused")
	}
	hup(files+"log_level = \"debug\"\nmx_port = 26\n", "settings=[mx_port]")
	i.Until("the new certificate is shown", func() bool { return serial() != before })
	if err := os.WriteFile(cert, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	after := serial()
	hup(files+"log_level = \"info\"\n", "the previous certificates stay in use")
	if serial() != after {
		t.Error("another certificate is shown than the one before")
	}
}

// A pebble is the certificate authority of that name, which refuses nonces, reuses authorizations
// and sleeps as it likes.
type pebble struct {
	t         *testing.T
	directory string
	caFile    string // who vouches for its own HTTPS
	roots     *x509.CertPool
	rootFile  string // the same in PEM form
	mu        sync.Mutex
	log       bytes.Buffer
}

// Write keeps what it logs.
func (p *pebble) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(text)
}

// said counts a phrase in its log.
func (p *pebble) said(phrase string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Count(p.log.String(), phrase)
}

// issued is how many certificates it has made.
func (p *pebble) issued() int { return p.said("ssued certificate serial") }

// startPebble starts the authority. It looks names up at the resolver and HTTP challenges on the
// port; certificates live for so many seconds (0: for years).
func startPebble(t *testing.T, world *rig.FakeResolver, httpPort, life int, env ...string) *pebble {
	t.Helper()
	return startPebbleAt(t, "127.0.0.1", world, httpPort, life, env...)
}

// startPebbleAt is startPebble at another address, which its certificate calls ca.test.
func startPebbleAt(t *testing.T, ip string, world *rig.FakeResolver, httpPort, life int, env ...string) *pebble {
	t.Helper()
	program, dir := rig.Peer(t, "pebble"), t.TempDir()
	p := &pebble{t: t, caFile: filepath.Join(dir, "cert.pem")}
	rig.WriteCertificate(t, p.caFile, filepath.Join(dir, "key.pem"), "localhost", "ca.test")
	listen, manage := fmt.Sprintf("%s:%d", ip, rig.FreePort(t)), fmt.Sprintf("127.0.0.1:%d", rig.FreePort(t))
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": listen, "managementListenAddress": manage, "certificate": p.caFile, "privateKey": filepath.Join(dir, "key.pem"),
		"httpPort": httpPort, "tlsPort": rig.FreePort(t), "certificateValidityPeriod": life,
	}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pebble.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-config", file, "-dnsserver", world.Addr)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, p, p
	cmd.Env = append(append(os.Environ(), "PEBBLE_WFE_NONCEREJECT=15"), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			text := p.log.String()
			t.Logf("pebble says:\n%s", text[max(0, len(text)-8000):])
		}
	})
	p.directory = "https://" + listen + "/dir"
	p.rootFile = filepath.Join(dir, "roots.pem")
	p.roots = p.fetchRoots("https://" + manage + "/roots/0")
	return p
}

// fetchRoots waits until it answers.
func (p *pebble) fetchRoots(url string) *x509.CertPool {
	p.t.Helper()
	text, err := os.ReadFile(p.caFile)
	if err != nil {
		p.t.Fatal(err)
	}
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(text)
	c := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}}}
	defer c.CloseIdleConnections()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		resp, err := c.Get(url)
		if err == nil {
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			pool := x509.NewCertPool()
			if err != nil || !pool.AppendCertsFromPEM(text) {
				p.t.Fatalf("the roots of pebble: %v %s", err, text)
			}
			if err := os.WriteFile(p.rootFile, text, 0o600); err != nil {
				p.t.Fatal(err)
			}
			return pool
		}
		if time.Now().After(deadline) {
			p.t.Fatal(err)
		}
	}
}
