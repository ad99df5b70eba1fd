package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

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
func startPebble(t *testing.T, world *fakeResolver, httpPort, life int, env ...string) *pebble {
	t.Helper()
	program, dir := peer(t, "pebble"), t.TempDir()
	p := &pebble{t: t, caFile: filepath.Join(dir, "cert.pem")}
	writeCertificate(t, p.caFile, filepath.Join(dir, "key.pem"))
	listen, manage := fmt.Sprintf("127.0.0.1:%d", freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t))
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": listen, "managementListenAddress": manage, "certificate": p.caFile, "privateKey": filepath.Join(dir, "key.pem"),
		"httpPort": httpPort, "tlsPort": freePort(t), "certificateValidityPeriod": life,
	}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pebble.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-config", file, "-dnsserver", world.addr)
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

// writeCertificate makes a certificate of 127.0.0.1 that vouches for itself.
func writeCertificate(t *testing.T, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "a test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:  []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
