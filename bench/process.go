package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A process is the process of a measured server.
type process struct {
	cmd     *exec.Cmd
	log     *os.File // standard output and standard error
	scratch string   // a directory that stop deletes; "" for none
}

// start starts a server in a working directory. If b.launcher is set, that program starts the
// server.
func (b *bench) start(dir string, command string, args ...string) (*process, error) {
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	line := slices.Concat(b.launcher, []string{command}, args)
	p := &process{cmd: exec.Command(line[0], line[1:]...), log: log}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Dir = dir
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return p, nil
}

// stop sends SIGTERM and waits until the process has ended. It kills the process after 30 seconds.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(30*time.Second, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait()
	kill.Stop()
	_ = p.log.Close()
	if p.scratch != "" {
		_ = os.RemoveAll(p.scratch)
	}
}

// cpu returns the user and system time of the process and its children, including children that
// have ended. Its resolution is 10 ms.
func (p *process) cpu() time.Duration { return cpuTimeOf(strconv.Itoa(p.cmd.Process.Pid)) }

// cpuTimeOf returns the processor time of the process with an ID and its children.
func cpuTimeOf(pid string) (sum time.Duration) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	for _, field := range fields[min(11, len(fields)):min(15, len(fields))] { // utime, stime, cutime, cstime
		n, _ := strconv.Atoi(field)
		sum += time.Duration(n) * time.Second / 100 // USER_HZ is 100
	}
	children, _ := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	for _, child := range strings.Fields(string(children)) {
		sum += cpuTimeOf(child)
	}
	return sum
}

// residentBytes returns the resident memory of the process in bytes.
func (p *process) residentBytes() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	var size, resident int64
	_, _ = fmt.Sscan(string(text), &size, &resident)
	return resident * int64(os.Getpagesize())
}

// waitForReadyFile waits until the server p has written its ready file, and decodes the JSON of
// that file into out. It returns an error if the server ends, or after 30 seconds.
func waitForReadyFile(path string, p *process, out any) error {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, out) == nil {
			return nil
		}
		if err := p.cmd.Process.Signal(syscall.Signal(0)); err != nil {
			break
		}
	}
	text, _ := os.ReadFile(p.log.Name())
	return fmt.Errorf("the server did not become ready: %s", text[max(0, len(text)-2000):])
}

// A mailstead is a running Mailstead with a domain and mailboxes.
type mailstead struct {
	*process
	b          *bench
	dir, token string                                             // data directory and API token
	ready      struct{ HTTP, SMTP, Submission, IMAP, DNS string } // addresses
	args       []string                                           // further arguments of serve
	users      []string                                           // IDs of the mailboxes
}

const (
	domain   = "bench.test"            // the hosted domain
	password = "correct horse battery" // of every mailbox
	users    = 8                       // number of mailboxes that newMailstead creates
)

// address returns the address of one of the mailboxes that newMailstead creates, for any n: that of
// mailbox n modulo users.
func address(n int) string { return mailboxAddress(n % users) }

// mailboxAddress returns the address of mailbox n. The mailbox need not exist yet.
func mailboxAddress(n int) string { return fmt.Sprintf("user%d@%s", n, domain) }

// newMailstead creates a data directory with a domain and mailboxes, and starts Mailstead there.
// Mailstead uses the DNS server b.names. config is added to the settings file, and args to the
// arguments.
func (b *bench) newMailstead(config string, args ...string) (*mailstead, error) {
	dir, err := os.MkdirTemp(b.dir, "mailstead-")
	if err != nil {
		return nil, err
	}
	config = "[limits]\nrate_per_minute = 10000000\nburst_per_minute = 10000000\n" + config
	if err := os.WriteFile(filepath.Join(dir, "mailstead.toml"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	out, err := exec.Command(b.server, "init", "--data", dir, "--owner-email", "owner@example.org", "--json").Output()
	if err != nil {
		return nil, fmt.Errorf("mailstead init: %w", err)
	}
	var made struct{ Token string }
	if err := json.Unmarshal(out, &made); err != nil {
		return nil, err
	}
	m := &mailstead{b: b, dir: dir, token: made.Token}
	if err := m.start(); err != nil { // at first without --resolver: the sandbox then uses its own zones, so that setup succeeds
		return nil, err
	}
	if err := m.setUp(); err != nil {
		m.stop()
		return nil, err
	}
	m.stop()
	m.args = append([]string{"--resolver", b.names.addr}, args...)
	return m, m.start()
}

// start starts Mailstead and waits until it is ready.
func (m *mailstead) start() (err error) {
	ready := filepath.Join(m.dir, "ready.json")
	_ = os.Remove(ready)
	args := append([]string{"serve", "--data", m.dir, "--ready-file", ready, "--log-level", "warn", "--http", "127.0.0.1:0",
		"--smtp", "127.0.0.1:0", "--submission", "127.0.0.1:0", "--imap", "127.0.0.1:0", "--dns", "127.0.0.1:0"}, m.args...)
	m.process, err = m.b.start(m.dir, m.b.server, args...)
	if err != nil {
		return err
	}
	if err := waitForReadyFile(ready, m.process, &m.ready); err != nil {
		m.stop()
		return err
	}
	return nil
}

// stopAndDelete stops Mailstead and deletes its data directory.
func (m *mailstead) stopAndDelete() {
	m.stop()
	_ = os.RemoveAll(m.dir)
}

// setUp connects the domain, waits until it is complete, and creates the mailboxes.
func (m *mailstead) setUp() error {
	var connected struct {
		Domains []struct {
			DomainID string `json:"domain_id"`
		}
	}
	err := errors.Join(m.call("POST", "/v1/domains/connect", map[string]any{"domains": []string{domain}}, &connected),
		m.call("POST", "/v1/domains/check-ns", map[string]any{"domains": []string{domain}}, nil))
	if err != nil || len(connected.Domains) != 1 {
		return fmt.Errorf("connect %s: %w", domain, err)
	}
	var d struct{ Status string }
	for end := time.Now().Add(20 * time.Second); d.Status != "complete"; time.Sleep(20 * time.Millisecond) {
		if err := m.call("GET", "/v1/domains/"+connected.Domains[0].DomainID, nil, &d); err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("set up domain %s: its status is still %s", domain, d.Status)
		}
	}
	return m.addUsers(users)
}

// addUsers creates mailboxes until there are total of them.
func (m *mailstead) addUsers(total int) error {
	for n := len(m.users); n < total; n++ {
		var made struct {
			UserID string `json:"user_id"`
		}
		if err := m.call("POST", "/v1/email-users", map[string]any{"email": mailboxAddress(n), "password": password}, &made); err != nil {
			return err
		}
		m.users = append(m.users, made.UserID)
	}
	return nil
}

// call makes a request to the API and decodes the response into out, which may be nil.
func (m *mailstead) call(method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequest(method, "http://"+m.ready.HTTP+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+m.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: the API answered %s %s", method, path, resp.Status, text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}
