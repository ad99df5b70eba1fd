package peers

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/e2e/rig"
)

// Addresses of a host in a network of its own, which nobody else uses here: the host is at .10, and
// the world, which is this test, at .1.
const (
	setupHost4, setupWorld4 = "11.77.0.10", "11.77.0.1"
	setupHost6, setupWorld6 = "2001:db8:77::10", "2001:db8:77::1"
)

// inOwnNetwork reports whether this process has a network of its own. If it has none, it runs the
// test again in a process that has one. So other tests see no interface come and go: browsers end
// their connections when that happens.
func inOwnNetwork(t *testing.T) bool {
	t.Helper()
	const marker = "MAILSTEAD_OWN_NETWORK"
	if os.Getenv(marker) != "" {
		return true
	}
	rig.Peer(t, "ip")
	if os.Getuid() != 0 {
		t.Skip("network namespaces are root's")
	}
	cmd := exec.Command("unshare", "--net", "sh", "-ec", `ip link set lo up; exec "$@"`, "sh", os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), marker+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("in a network of its own: %v\n%s", err, out)
	}
	return false
}

// A netHost is a network namespace with one interface, which leads here.
type netHost struct {
	t    *testing.T
	name string
}

func newNetHost(t *testing.T) *netHost {
	t.Helper()
	ip := rig.Peer(t, "ip")
	h := &netHost{t, fmt.Sprintf("ms%d", os.Getpid())}
	outside := fmt.Sprintf("ms%do", os.Getpid()%1000000)
	run := func(words string) {
		t.Helper()
		if out, err := exec.Command(ip, strings.Fields(words)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v %s", words, err, out)
		}
	}
	run("netns add " + h.name)
	t.Cleanup(func() { run("netns del " + h.name) }) // with its interface, and so the other end
	run("link add " + outside + " type veth peer name eth0 netns " + h.name)
	run("addr add " + setupWorld4 + "/24 dev " + outside)
	run("addr add " + setupWorld6 + "/64 dev " + outside + " nodad")
	run("link set " + outside + " up")
	run("-n " + h.name + " addr add " + setupHost4 + "/24 dev eth0")
	run("-n " + h.name + " addr add " + setupHost6 + "/64 dev eth0 nodad")
	run("-n " + h.name + " link set lo up")
	run("-n " + h.name + " link set eth0 up")
	return h
}

// mailstead runs a command there, without a terminal.
func (h *netHost) mailstead(args ...string) (stdout string, code int) {
	h.t.Helper()
	path, err := rig.Binary()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command("ip", append([]string{"netns", "exec", h.name, path}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		h.t.Fatal(err)
	}
	if errs.Len() > 0 {
		h.t.Logf("mailstead %s: %s", strings.Join(args, " "), errs.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

type setupCheck struct {
	Code, Status, Subject, Message string
	Mend                           *string
}

// doctor gives what is not ok, by code, and the exit code.
func (h *netHost) doctor(dir string) (bad map[string]setupCheck, code int) {
	h.t.Helper()
	out, code := h.mailstead("doctor", "--data", dir, "--json")
	var report struct {
		Status, Hostname string
		Checks           []setupCheck
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		h.t.Fatalf("doctor: %v %s", err, out)
	}
	bad = map[string]setupCheck{}
	for _, c := range report.Checks {
		if c.Status == "warning" || c.Status == "error" {
			if c.Mend == nil || *c.Mend == "" {
				h.t.Errorf("%s says nothing of what to do: %+v", c.Code, c)
			}
			if bad[c.Code].Status != "error" { // of several the worst
				bad[c.Code] = c
			}
		}
	}
	return bad, code
}

// TestSetupAndDoctor: a host on the internet, made of a network namespace, a DNS and a certificate
// authority, from nothing to a message over verified TLS, by the commands that the README shows.
func TestSetupAndDoctor(t *testing.T) {
	t.Parallel()
	if !inOwnNetwork(t) {
		return
	}
	h := newNetHost(t)
	world := rig.NewFakeResolver(t)
	world.ListenAt(t, setupWorld4+":53")
	world.Set(t, "ca.test", "A", setupWorld4)
	world.Set(t, "ca.test", "AAAA")
	world.Set(t, "zen.example", "TXT", `"a list"`)
	ca := startPebbleAt(t, setupWorld4, world, 80, 0, "PEBBLE_VA_NOSLEEP=1")
	trusted := filepath.Join(t.TempDir(), "ca.pem") // the authority's own HTTPS, and what it issues
	var all []byte
	for _, file := range []string{ca.caFile, ca.rootFile} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	if err := os.WriteFile(trusted, all, 0o600); err != nil {
		t.Fatal(err)
	}
	directory := strings.Replace(ca.directory, setupWorld4, "ca.test", 1)
	mx, err := net.Listen("tcp", setupWorld4+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer mx.Close()
	go func() { // another mail server
		for {
			conn, err := mx.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, "220 mx.far.test ESMTP\r\n")
			go func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					fmt.Fprint(conn, "250 mx.far.test\r\n")
				}
			}()
		}
	}()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// What the operator wrote stays.
	file := filepath.Join(dir, "mailstead.toml")
	kept := "# ours\n\n[doctor]\nblocklists = [\"zen.example\"]\nport25_targets = [\"" + mx.Addr().String() + "\"]\n"
	if err := os.WriteFile(file, []byte(kept), 0o600); err != nil {
		t.Fatal(err)
	}

	// What is missing is named, and nothing is made.
	if _, code := h.mailstead("setup", "--data", dir); code != 2 || rig.IsFile(filepath.Join(dir, "mailstead.db")) {
		t.Fatalf("setup without a name: %d", code)
	}
	unit := filepath.Join(t.TempDir(), "mailstead.service")
	first := []string{
		"setup", "--data", dir, "--hostname", "mail.setup.test", "--email", "ops@setup.test", "--resolver", setupWorld4 + ":53",
		"--acme-directory", directory, "--ca-file", trusted, "--yes", "--json", "--unit", unit,
	}
	out, code := h.mailstead(first...)
	if code != 0 {
		t.Fatalf("setup: %d %s", code, out)
	}
	var made struct {
		Hostname, Data, Config, Token, Unit string
		OwnerEmail                          string   `json:"owner_email"`
		OwnerPassword                       string   `json:"owner_password"`
		PublicIPs                           []string `json:"public_ips"`
		Records, Glue                       []struct{ Name, Type, Value, Purpose string }
		PTR                                 []struct{ IP, Name string }
		Ports                               []struct {
			Name    string
			Port    int
			Free    bool
			Message string
		}
		Firewall []string
		Checks   []setupCheck
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	slices.Sort(made.PublicIPs)
	if !slices.Equal(made.PublicIPs, []string{setupHost4, setupHost6}) || made.OwnerEmail != "ops@setup.test" || made.OwnerPassword == "" || made.Token == "" || len(made.Ports) != 8 {
		t.Fatalf("setup: %s", out)
	}
	for _, p := range made.Ports {
		if !p.Free {
			t.Errorf("port %d is not free: %s", p.Port, p.Message)
		}
	}
	text, err := os.ReadFile(unit)
	if err != nil || string(text) != made.Unit || !strings.Contains(made.Unit, dir) {
		t.Errorf("the unit: %v %s", err, text)
	}
	settings, err := os.ReadFile(file)
	if info, statErr := os.Stat(file); err != nil || statErr != nil || info.Mode().Perm() != 0o600 || !strings.Contains(string(settings), kept[len("# ours\n"):]) || !strings.HasPrefix(string(settings), "# ours\n") {
		t.Errorf("the settings: %v\n%s", err, settings)
	}

	// Nothing outside is there yet, and the server does not run.
	bad, code := h.doctor(dir)
	for _, code := range []string{"hostname_address", "ptr", "ports"} {
		if bad[code].Status != "error" {
			t.Errorf("before the records, %s is %+v", code, bad[code])
		}
	}
	if code != 1 {
		t.Errorf("doctor ends with %d", code)
	}

	// The operator does what setup said.
	for _, r := range made.Records {
		value := r.Value
		if r.Type == "TXT" {
			value = `"` + value + `"`
		}
		world.Set(t, r.Name, r.Type, value)
	}
	world.Set(t, "10.0.77.11.in-addr.arpa", "PTR", "mail.setup.test.")
	i := rig.Prepare(t, dir, made.Token)
	i.Wrapper = []string{"ip", "netns", "exec", h.name}
	i.OwnAddresses = true
	i.Start()
	i.Until("the certificate is there", func() bool {
		bad, code = h.doctor(dir)
		return bad["certificate"].Status == ""
	})
	ptr, backup := bad["ptr"], bad["backup"]
	delete(bad, "ptr")
	delete(bad, "backup")
	if ptr.Status != "warning" || ptr.Subject != setupHost6 || backup.Status != "warning" || len(bad) != 0 || code != 0 {
		t.Errorf("with all records but a reverse name of IPv6, and without backups: %d %+v %+v %+v", code, ptr, backup, bad)
	}

	// Setup again keeps what is there, and shows no secret again.
	again, code := h.mailstead("setup", "--data", dir, "--log-level", "debug", "--yes", "--json")
	now, err := os.ReadFile(file)
	if code != 0 || strings.Contains(again, "owner_password") || strings.Contains(again, `"token"`) || err != nil ||
		string(now) != strings.Replace(string(settings), "\n\n[doctor]", "\nlog_level = \"debug\"\n\n[doctor]", 1) {
		t.Errorf("setup again: %d %v\n%s\n%s", code, err, again, now)
	}

	// A list that has the host is told, and its end too.
	world.Set(t, "10.0.77.11.zen.example", "A", "127.0.0.2")
	if bad, code := h.doctor(dir); bad["blocklist"].Status != "error" || code != 1 {
		t.Errorf("a host on a list: %d %+v", code, bad)
	}

	// A domain whose DNS is here, a mailbox, and a message over verified TLS.
	world.Delegate(setupHost4 + ":53")
	call := func(operation, args string) string {
		t.Helper()
		out, code := h.mailstead("call", "--data", dir, operation, args)
		if code != 0 {
			t.Fatalf("%s: %s", operation, out)
		}
		return out
	}
	call("connect_domains", `{"domains":["box.test"]}`)
	i.Until("the domain is complete", func() bool {
		call("check_nameservers", `{"domains":["box.test"]}`)
		return strings.Contains(call("list_domains", `{}`), `"status": "complete"`)
	})
	call("create_email_user", `{"email":"ann@box.test"}`)
	c, err := smtp.Dial(setupHost4 + ":25")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.StartTLS(&tls.Config{ServerName: "mail.setup.test", RootCAs: ca.roots}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Mail("bob@far.test"), c.Rcpt("ann@box.test")); err != nil {
		t.Fatal(err)
	}
	w, err := c.Data()
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprint(w, "From: bob@far.test\r\nTo: ann@box.test\r\nSubject: From nothing\r\n\r\nHello\r\n")
	if err := errors.Join(err, w.Close(), c.Quit()); err != nil {
		t.Fatal(err)
	}
	i.Until("the message is in the inbox", func() bool { return strings.Contains(call("list_inbox", `{}`), "From nothing") })
}
