package cli

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/service/servicetest"
)

// A fakeDNS answers with the records of its map, by name and type, such as "a.test. A".
type fakeDNS struct {
	mu      sync.Mutex
	records map[string]string
	address string
}

func newFakeDNS(t *testing.T) *fakeDNS {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &fakeDNS{records: map[string]string{}, address: packets.LocalAddr().String()}
	server := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		q := r.Question[0]
		d.mu.Lock()
		defer d.mu.Unlock()
		value, ok := d.records[strings.ToLower(q.Name)+" "+dns.TypeToString[q.Qtype]]
		switch rr, err := dns.NewRR(fmt.Sprintf("%s 60 IN %s %s", q.Name, dns.TypeToString[q.Qtype], value)); {
		case ok && err == nil:
			m.Answer = append(m.Answer, rr)
		case !ok:
			m.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	return d
}

func (d *fakeDNS) set(name, value string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if value == "" {
		delete(d.records, name)
		return
	}
	d.records[name] = value
}

// TestCheckHost: without any installation it tells what is wrong with the host, and leaves nothing
// behind. Everything outside is a fake.
func TestCheckHost(t *testing.T) {
	resolver := newFakeDNS(t)
	target := servicetest.Greeter(t, "250 mx.far.test")
	var off time.Duration // by which the clock of the web server is ahead
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
	}))
	defer web.Close()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	temp := filepath.Join(dir, "tmp")
	for _, path := range []string{data, temp} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", temp)
	settings := "[doctor]\nblocklists = ['zen.test']\nport25_targets = ['" + target + "']\n"
	if err := os.WriteFile(filepath.Join(data, settingsFile), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	run := func(more ...string) (checks map[string]health.Check, err error) {
		t.Helper()
		if len(more) == 0 || more[0] != "--public-ip" {
			more = append([]string{"--public-ip", "11.77.0.10"}, more...)
		}
		args := append([]string{
			"check-host", "--json", "--data", data, "--hostname", "mail.fit.test", "--resolver", resolver.address, "--ca-file", ca, "--time-url", web.URL,
			"--acme-directory", "off", "--smtp", "127.0.0.1:0", "--submission", "off", "--submissions", "off", "--imap", "off", "--imaps", "off", "--http", "off", "--http-tls", "off", "--dns", "off",
		}, more...)
		out, err := mailsteadCommand(t, args...)
		var report health.Report
		if decoded := json.Unmarshal([]byte(out), &report); decoded != nil {
			t.Fatalf("%v, %v: %s", more, err, out)
		}
		checks = map[string]health.Check{}
		for _, c := range report.Checks {
			if old, seen := checks[c.Code]; !seen || old.Status == health.OK {
				checks[c.Code] = c
			}
			if (c.Status == health.Error || c.Status == health.Warning) == (c.Mend == nil) {
				t.Errorf("%+v says what to do, or does not", c)
			}
		}
		return checks, err
	}
	resolver.set("10.0.77.11.in-addr.arpa. PTR", "mail.fit.test.")
	resolver.set("mail.fit.test. A", "11.77.0.10")
	checks, err := run()
	if err != nil {
		t.Errorf("a host that is fit: %v", err)
	}
	for _, code := range []string{"port25_out", "ports", "ptr", "blocklist", "clock", "resolver"} {
		if checks[code].Status != health.OK {
			t.Errorf("a host that is fit: %s is %+v", code, checks[code])
		}
	}
	if c := checks["public_address"]; c.Status != health.Warning || !strings.Contains(c.Message, "the address is translated") { // no interface of this machine has it
		t.Errorf("%+v", c)
	}
	if _, ok := checks["disk_space"]; !ok {
		t.Error("the disk is not looked at")
	}

	for name, c := range map[string]struct {
		change, undo func()
		args         []string
		code, status string
		want         string
	}{
		"no reverse name":      {func() { resolver.set("10.0.77.11.in-addr.arpa. PTR", "") }, func() { resolver.set("10.0.77.11.in-addr.arpa. PTR", "mail.fit.test.") }, nil, "ptr", health.Error, "no reverse name"},
		"another reverse name": {func() { resolver.set("10.0.77.11.in-addr.arpa. PTR", "ip-10.provider.test.") }, func() { resolver.set("10.0.77.11.in-addr.arpa. PTR", "mail.fit.test.") }, nil, "ptr", health.Warning, "Its reverse name is ip-10.provider.test."},
		"a listed address":     {func() { resolver.set("10.0.77.11.zen.test. A", "127.0.0.2") }, func() { resolver.set("10.0.77.11.zen.test. A", "") }, nil, "blocklist", health.Error, "It is listed in zen.test"},
		"a clock that is slow": {func() { off = 10 * time.Minute }, func() { off = 0 }, nil, "clock", health.Error, "It is 10m0s behind https://"},
		"a clock that is fast": {func() { off = -20 * time.Second }, func() { off = 0 }, nil, "clock", health.Warning, "ahead of https://"},
		"no web server":        {nil, nil, []string{"--time-url", "https://127.0.0.1:1/"}, "clock", health.OK, "It agrees with"}, // the next one counts
		"no such address":      {nil, nil, []string{"--smtp", "192.0.2.1:2525"}, "ports", health.Error, "It cannot be opened: "},
		"a port in use":        {nil, nil, []string{"--smtp", busy.Addr().String()}, "ports", health.Error, fmt.Sprintf("has it (process %d).", os.Getpid())},
		"a private address":    {nil, nil, []string{"--public-ip", "192.168.1.5"}, "public_address", health.Error, "It is not a public address"},
		"one of the carrier":   {nil, nil, []string{"--public-ip", "100.64.1.5"}, "public_address", health.Error, "It is not a public address"},
	} {
		if c.change != nil {
			c.change()
		}
		checks, err := run(c.args...)
		if got := checks[c.code]; got.Status != c.status || !strings.Contains(got.Message, c.want) || (err != nil) != (c.status == health.Error) && c.args == nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if c.undo != nil {
			c.undo()
		}
	}
	// Port 25 is closed outwards: the only target is gone.
	if err := os.WriteFile(filepath.Join(data, settingsFile), []byte("[doctor]\nblocklists = []\nport25_targets = ['127.0.0.1:1']\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if checks, err := run(); err == nil || checks["port25_out"].Status != health.Error || !strings.Contains(*checks["port25_out"].Mend, "Ask the provider of this host to open port 25") {
		t.Errorf("a closed port 25: %v, %+v", err, checks["port25_out"])
	}
	entries, err := os.ReadDir(temp)
	if err != nil || len(entries) > 0 {
		t.Errorf("it left %v, %v", entries, err)
	}
	if list, err := os.ReadDir(data); err != nil || len(list) != 1 {
		t.Errorf("in the data directory are now %v, %v", list, err)
	}
}

// TestCheckHostDisk: a directory that is not there yet is on the disk of its parent.
func TestCheckHostDisk(t *testing.T) {
	dir := t.TempDir()
	if c := checkHostDisk(filepath.Join(dir, "a", "b")); c.Subject != dir || c.Code != "disk_space" {
		t.Errorf("%+v", c)
	}
}
