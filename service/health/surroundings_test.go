package health_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/keyfile"
)

// newPublicHost returns a host at 127.0.0.1 with correct DNS.
func newPublicHost(t *testing.T) *host {
	h := newHost(t)
	h.Health.Host = &health.Host{Running: true}
	h.Core.Config.PublicIPs = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	for _, name := range []string{"mail.example.test", "ns1.example.test", "ns2.example.test"} {
		h.world.Tell("A", name, "127.0.0.1")
	}
	h.world.Tell("PTR", "127.0.0.1", "mail.example.test.")
	h.world.Tell("TXT", "mail.example.test", "v=spf1 a -all")
	return h
}

// TestNames: the host's name, its reverse name and its nameservers must resolve to it.
func TestNames(t *testing.T) {
	h := newPublicHost(t)
	h.Health.Host.Ports = []health.Port{{Name: "dns", Number: 53}}
	for _, code := range []string{"resolver", "hostname_address", "ptr", "nameservers"} {
		h.finds(code, health.OK, "")
	}
	h.world.Tell("A", "mail.example.test", "192.0.2.9")
	h.finds("hostname_address", health.Error, "does not lead to this host's address 127.0.0.1")
	h.finds("ptr", health.Error, "which does not lead back to it")
	h.world.Tell("A", "mail.example.test", "127.0.0.1", "192.0.2.9")
	h.finds("hostname_address", health.Error, "also leads to 192.0.2.9")
	h.finds("ptr", health.OK, "mail.example.test")
	h.world.Tell("PTR", "127.0.0.1")
	h.finds("ptr", health.Error, "has no reverse name")
	h.world.Tell("A", "mail.example.test", "127.0.0.1")
	for _, c := range []struct {
		texts        []string
		status, part string
	}{
		{[]string{"other"}, health.Warning, "has no SPF record"},
		{[]string{"v=spf1 a -all", "v=spf1 mx -all"}, health.Warning, "more than one"},
		{[]string{"v=spf1 ip4:192.0.2.0/24 -all"}, health.Warning, "does not let 127.0.0.1"},
		{[]string{"v=spf1 ip4:127.0.0.0/8 -all", "other"}, health.OK, ""},
		{[]string{"v=spf1 include:far.test -all"}, health.OK, ""},
	} {
		h.world.Tell("TXT", "mail.example.test", c.texts...)
		h.finds("hostname_address", c.status, c.part)
	}
	h.world.Tell("TXT", "mail.example.test")
	report, err := h.Health.Doctor(t.Context(), struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range report.Checks {
		if check.Code == "hostname_address" && (check.Mend == nil || !strings.Contains(*check.Mend, "`mail.example.test. TXT \"v=spf1 a -all\"`")) {
			t.Errorf("the remedy names no record: %+v", check)
		}
	}
	h.world.Tell("TXT", "mail.example.test", "v=spf1 a -all")
	h.world.Tell("A", "ns2.example.test")
	h.finds("nameservers", health.Warning, "does not lead to it")
	d := &store.Domain{ID: "dom_1", Name: "a.test", DNSProvider: store.DomainProviderBuiltin, FailingSince: h.now}
	if err := h.Core.Store.Update(func(tx *store.Tx) error { return store.Domains.Put(tx, d) }); err != nil {
		t.Fatal(err)
	}
	h.finds("nameservers", health.Error, "does not lead to it")
	h.finds("domain_dns", health.Warning, "have been wrong since")
	d.FailingSince, d.DMARC = time.Time{}, "v=DMARC1; p=reject; pct=50; ri=3600"
	if err := h.Core.Store.Update(func(tx *store.Tx) error { return store.Domains.Put(tx, d) }); err != nil {
		t.Fatal(err)
	}
	h.finds("domain_dns", health.Warning, "has pct=, ri=,")
	h.world.Set(func() { h.world.Dead = "all" })
	h.finds("resolver", health.Error, "does not answer")
	h.finds("hostname_address", health.Error, "cannot be looked up")
}

// TestWhereTheDNSServerIs: a DNS server at another port or address is on; port 53 must be forwarded
// to it.
func TestWhereTheDNSServerIs(t *testing.T) {
	h := newPublicHost(t)
	h.finds("nameservers", health.Skipped, "The DNS server is off")
	h.Health.Host.Ports = []health.Port{{Name: "dns", Number: 5353}}
	h.finds("nameservers", health.OK, "listens at port 5353, so port 53 has to lead there")
	h.Health.Host.Ports[0].Inner = "127.0.0.2"
	h.finds("nameservers", health.OK, "listens at 127.0.0.2:5353, so port 53 has to lead there")
	h.finds("ports", health.OK, "") // it need not be reachable there
	h.world.Tell("A", "ns2.example.test")
	h.finds("nameservers", health.Warning, "does not lead to it")
}

// TestDirectory: files that other users of the machine can read are reported.
func TestDirectory(t *testing.T) {
	h := newPublicHost(t)
	dir := h.Core.Store.Dir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h.finds("data_directory", health.OK, "")
	if err := os.Chmod(filepath.Join(dir, keyfile.Name), 0o640); err != nil {
		t.Fatal(err)
	}
	h.finds("data_directory", health.Warning, "mode 0640")
}

// TestPorts: a closed port is reported, and so is a server that does not run.
func TestPorts(t *testing.T) {
	h := newPublicHost(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.Health.Host.Ports = []health.Port{{Name: "smtp", Number: ln.Addr().(*net.TCPAddr).Port}}
	h.finds("ports", health.OK, "can be reached")
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	h.finds("ports", health.Error, "cannot be reached")
	h.Health.Host.Running = false
	h.finds("ports", health.Error, "does not run")
}

// TestOutside: port 25 of other servers, block lists, and relays.
func TestOutside(t *testing.T) {
	h := newPublicHost(t)
	h.Core.ChangeSettings(func(c *core.Settings) { c.Outbound = "direct" })
	refuses := servicetest.Greeter(t, "554 5.7.1 no")
	h.Core.ChangeSettings(func(c *core.Settings) { c.Doctor.Port25Targets = []string{refuses} })
	h.finds("port25_out", health.Error, "554 5.7.1 no")
	takes := servicetest.Greeter(t, "250 mx.far.test")
	h.Core.ChangeSettings(func(c *core.Settings) { c.Doctor.Port25Targets = []string{refuses, takes} })
	h.finds("port25_out", health.OK, "was reached")

	h.Core.ChangeSettings(func(c *core.Settings) { c.Doctor.Blocklists = []string{"zen.example", "other.example"} })
	h.finds("blocklist", health.OK, "zen.example, other.example")
	h.world.Tell("A", "1.0.0.127.other.example", "127.255.255.254")
	h.finds("blocklist", health.Warning, "does not answer who asks through this resolver")
	h.world.Tell("A", "1.0.0.127.other.example", "127.0.0.2")
	h.world.Tell("TXT", "1.0.0.127.other.example", "see example.org")
	h.finds("blocklist", health.Error, "It says: see example.org")

	host, port, err := net.SplitHostPort(servicetest.Greeter(t, "250 r"))
	if err != nil {
		t.Fatal(err)
	}
	r := core.Relay{Name: "r1", Host: host, TLS: "none"}
	if _, err := fmt.Sscan(port, &r.Port); err != nil {
		t.Fatal(err)
	}
	h.Core.ChangeSettings(func(c *core.Settings) { c.Relays = []core.Relay{r} })
	h.finds("relay", health.OK, "takes the login")
	r.TLS = "starttls"
	h.Core.ChangeSettings(func(c *core.Settings) { c.Relays = []core.Relay{r} })
	h.finds("relay", health.Error, "does not take mail")
}

// TestCertificate: certificates that clients would refuse, and that were not renewed in time.
func TestCertificate(t *testing.T) {
	h := newPublicHost(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	sign := func(template, parent *x509.Certificate) *tls.Certificate {
		t.Helper()
		template.SerialNumber, template.NotBefore = big.NewInt(1), now.AddDate(0, 0, -90)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
	authority := &x509.Certificate{NotAfter: now.AddDate(1, 0, 0), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	root, err := x509.ParseCertificate(sign(authority, authority).Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	h.Core.Config.RootCAs = x509.NewCertPool()
	h.Core.Config.RootCAs.AddCert(root)
	h.finds("certificate", health.Skipped, "speaks no TLS")
	for _, c := range []struct {
		name         string
		days         int
		status, part string
	}{
		{"mail.example.test", 60, health.OK, "is valid until"},
		{"mail.example.test", 15, health.Warning, "was not renewed"},
		{"mail.example.test", 3, health.Error, "was not renewed"},
		{"mail.example.test", -1, health.Error, "has expired"},
		{"other.example.test", 60, health.Error, "Clients refuse"},
	} {
		leaf := &x509.Certificate{NotAfter: now.AddDate(0, 0, c.days), DNSNames: []string{c.name}, KeyUsage: x509.KeyUsageDigitalSignature}
		cert := sign(leaf, root)
		h.Health.Certificates.Host = func() *tls.Certificate { return cert }
		h.finds("certificate", c.status, c.part)
	}
	h.Core.Config.ACME = &core.ACME{Host: true}
	own := &x509.Certificate{Subject: pkix.Name{CommonName: "own"}, NotAfter: now.AddDate(1, 0, 0), DNSNames: []string{"mail.example.test"}, KeyUsage: x509.KeyUsageDigitalSignature}
	cert := sign(own, own)
	h.Health.Certificates.Host = func() *tls.Certificate { return cert }
	h.finds("certificate", health.Error, "has given none yet")
}

// TestEveryCode: the report has every documented code, and the sandbox skips outside checks.
func TestEveryCode(t *testing.T) {
	h := newHost(t)
	codes := map[string]string{}
	for _, c := range h.ask().Checks {
		codes[c.Code] = c.Status
	}
	for _, code := range strings.Fields("data_directory disk_space store clock resolver hostname_address ptr ports certificate nameservers domain_dns port25_out blocklist relay queue backup passwords sending_limits objects standby") {
		if codes[code] == "" {
			t.Errorf("there is no check %s", code)
		}
	}
	h.Core.Config.Sandbox = true
	h.Health.Host = &health.Host{Running: true}
	h.finds("ptr", health.Skipped, "sandbox")
}
