package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/mail/auth"
)

// buildDir has the programs that tests drive.
var buildDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "mailstead-test") })

// binary builds the program once for all tests that drive it.
var binary = sync.OnceValues(func() (string, error) { return build("mailstead") })

func build(name string, args ...string) (string, error) {
	dir, err := buildDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	args = slices.Concat([]string{"build", "-tags", "urfave_cli_no_docs", "-o", path}, buildArgs, args, []string{".."})
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
}

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))) // they wait for programs more than they work
	}
	if os.Getenv("MAILSTEAD_STRICT") == "" {
		_ = os.Setenv("MAILSTEAD_STRICT", "1") // the programs that tests start hold transactions to their bounds
	}
	code := m.Run()
	if dir, err := buildDir(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// mailstead runs one command to its end.
func mailstead(t *testing.T, args ...string) (stdout string, code int) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	if errs.Len() > 0 {
		t.Logf("mailstead %s: %s", strings.Join(args, " "), errs.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// peer finds a program of somebody else; without it the test is skipped, or fails where CI promises
// it.
func peer(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin") {
		if path := filepath.Join(dir, name); isFile(path) {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing; run .ci/peers", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// ready is what the ready file says: the process, and where it listens. What is off is empty.
type ready struct {
	PID         int
	HTTP        string
	HTTPTLS     string `json:"http_tls"`
	SMTP        string
	Submission  string
	Submissions string
	IMAP        string
	IMAPS       string
	DNS         string
}

// An instance is the real program at work on a data directory of its own.
type instance struct {
	t     *testing.T
	dir   string
	args  []string
	token string
	ready ready
	cmd   *exec.Cmd
	log   *os.File

	path   string   // of the program; that of binary if empty
	env    []string // added to the environment
	before []string // a program that runs the server, and its arguments
	bare   bool     // it listens where its settings say
	http   *http.Client
}

// newInstance initialises a data directory with the given mailstead.toml and starts a server on it.
func newInstance(t *testing.T, config string, args ...string) *instance {
	t.Helper()
	return newInstanceIn(t, t.TempDir(), config, args...)
}

func newInstanceIn(t *testing.T, dir, config string, args ...string) *instance {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "mailstead.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := mailstead(t, "init", "--data", dir, "--owner-email", "owner@example.org", "--json")
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 || made.Token == "" {
		t.Fatalf("init: code %d, %v, %s", code, err, out)
	}
	return startInstance(t, dir, made.Token, args...)
}

// startInstance starts a server on a data directory.
func startInstance(t *testing.T, dir, token string, args ...string) *instance {
	t.Helper()
	i := startable(t, dir, token, args...)
	i.start()
	return i
}

// startable is a server on a data directory, which is not started yet.
func startable(t *testing.T, dir, token string, args ...string) *instance {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	i := &instance{t: t, dir: dir, args: args, token: token, log: log, http: &http.Client{Timeout: time.Minute}}
	t.Cleanup(func() {
		i.stop()
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the server's log:\n%s", text[max(0, len(text)-8000):])
		}
	})
	return i
}

// start runs serve and waits for its ready file.
func (i *instance) start() {
	i.t.Helper()
	if !i.launch() {
		i.t.Fatal("the server did not become ready")
	}
}

// launch runs serve and tells whether it became ready.
func (i *instance) launch() bool {
	i.t.Helper()
	path, err := i.path, error(nil)
	if path == "" {
		path, err = binary()
	}
	if err != nil {
		i.t.Fatal(err)
	}
	file := filepath.Join(i.t.TempDir(), "ready.json")                 // not in the data directory, whose disk may be full
	dns := net.JoinHostPort("127.0.0.1", freePortOn(i.t, "127.0.0.1")) // some tests start the server there again
	args := []string{"serve", "--data", i.dir, "--ready-file", file}
	if !i.bare {
		args = append(args, "--http", "127.0.0.1:0", "--smtp", "127.0.0.1:0", "--submission", "127.0.0.1:0", "--imap", "127.0.0.1:0", "--dns", dns)
	}
	command := append(append(i.before, path), append(args, i.args...)...)
	i.cmd = exec.Command(command[0], command[1:]...)
	i.cmd.Stdout, i.cmd.Stderr = i.log, i.log
	if len(i.env) > 0 {
		i.cmd.Env = append(os.Environ(), i.env...)
	}
	if err := i.cmd.Start(); err != nil {
		i.t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		text, err := os.ReadFile(file)
		if err == nil && json.Unmarshal(text, &i.ready) == nil && (i.ready.PID == i.cmd.Process.Pid || i.before != nil) {
			return true
		}
		if time.Now().After(deadline) || i.died() {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// died tells whether the process has ended by itself.
func (i *instance) died() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", i.cmd.Process.Pid))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) && runtime.GOOS == "linux"
	}
	_, state, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(state, "Z") // nobody has waited for it
}

// stop ends the server with SIGTERM and waits; it must end well.
func (i *instance) stop() {
	if i.cmd == nil {
		return
	}
	_ = syscall.Kill(cmp.Or(i.ready.PID, i.cmd.Process.Pid), syscall.SIGTERM) // 0 would be this process's group
	done := make(chan error, 1)
	go func() { done <- i.cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			i.t.Errorf("the server ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		i.t.Error("the server did not stop within 30 s of SIGTERM")
		_ = i.cmd.Process.Kill()
		<-done
	}
	i.cmd = nil
}

// kill ends the server as a power cut would.
func (i *instance) kill() {
	_ = i.cmd.Process.Kill()
	_ = i.cmd.Wait()
	i.cmd = nil
}

// do calls the API and decodes the answer into out, which may be nil. It returns the status.
func (i *instance) do(method, path string, body, out any) int {
	i.t.Helper()
	var r io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			i.t.Fatal(err)
		}
		r = bytes.NewReader(text)
	}
	req, err := http.NewRequest(method, "http://"+i.ready.HTTP+path, r)
	if err != nil {
		i.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+i.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := i.http.Do(req)
	if err != nil {
		i.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			i.t.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
	}
	if resp.StatusCode >= 400 {
		i.t.Logf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	return resp.StatusCode
}

// want calls the API and demands a status.
func (i *instance) want(status int, method, path string, body, out any) {
	i.t.Helper()
	if got := i.do(method, path, body, out); got != status {
		i.t.Fatalf("%s %s: status %d, want %d", method, path, got, status)
	}
}

// addDomain connects a builtin domain and waits until it is complete.
func (i *instance) addDomain(name string) (id string) {
	i.t.Helper()
	var connected struct {
		Domains []struct {
			DomainID string `json:"domain_id"`
			Status   string
		}
	}
	i.want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{name}}, &connected)
	if len(connected.Domains) != 1 || connected.Domains[0].Status != "created" {
		i.t.Fatalf("connect: %+v", connected)
	}
	i.want(200, "POST", "/v1/domains/check-ns", map[string]any{"domains": []string{name}}, nil)
	id = connected.Domains[0].DomainID
	i.until("the domain is complete", func() bool {
		var d struct{ Status string }
		i.want(200, "GET", "/v1/domains/"+id, nil, &d)
		return d.Status == "complete"
	})
	return id
}

// addMailbox makes a mailbox.
func (i *instance) addMailbox(email, password string) (id string) {
	i.t.Helper()
	var made struct {
		UserID string `json:"user_id"`
		Status string
	}
	i.want(201, "POST", "/v1/email-users", map[string]any{"email": email, "password": password}, &made)
	if made.Status != "active" {
		i.t.Fatalf("mailbox %s is %s", email, made.Status)
	}
	return made.UserID
}

// until waits for something to become true.
func (i *instance) until(what string, ok func() bool) {
	i.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			i.t.Fatalf("waited too long until %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A row is what the tests read of an inbox message.
type row struct {
	UID               string
	Mailbox           string
	Subject           string
	MessageID         string  `json:"message_id"`
	OriginalMessageID *string `json:"original_message_id"`
	HasAttachments    bool    `json:"has_attachments"`
	IsBounce          bool    `json:"is_bounce"`
	Size              int64
}

// inbox reads every page of a mailbox's inbox.
func (i *instance) inbox(userID string) []row {
	i.t.Helper()
	var all []row
	cursor := ""
	for {
		var page struct {
			Data       []row
			Pagination struct {
				Cursor  *string
				HasMore bool `json:"has_more"`
			}
		}
		i.want(200, "GET", "/v1/email-users/"+userID+"/inbox?limit=100"+cursor, nil, &page)
		all = append(all, page.Data...)
		if !page.Pagination.HasMore {
			return all
		}
		cursor = "&cursor=" + *page.Pagination.Cursor
	}
}

// generousLimits lets a test call the API as often as it needs.
const generousLimits = "[limits]\nrate_per_minute = 100000\nburst_per_minute = 100000\n"

// freePort is a port of 127.0.0.1 for a program that is not told of a listener but of a number.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := strconv.Atoi(freePortOn(t, "127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// freePortOn is a port that nobody has, for TCP and UDP. It is below the ports that the kernel
// gives to whoever names none, so that nobody takes it before the program that it is for.
func freePortOn(t *testing.T, ip string) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(10000 + rand.IntN(20000))
		addr := net.JoinHostPort(ip, port)
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue
		}
		stream, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		stream.Close()
		packets, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		packets.Close()
		return port
	}
	t.Fatal("no port is free")
	return ""
}

var givenPorts sync.Map // so that no two tests get the same

// A policy by sender asks for a name that has the local part in it, whatever characters that has.
func TestSPFAsksForNamesThatNoHostHas(t *testing.T) {
	world := newResolver(t)
	world.set(t, "example.test", "TXT", `"v=spf1 exists:%{l}._u.%{o} a:odd/name.example.test mx:mail/name.example.test -all"`)
	world.set(t, "bob+a\\ b=c._u.example.test", "A", "127.0.0.2")
	world.set(t, "odd/name.example.test", "AAAA", "2001:db8::1")
	world.set(t, "mail/name.example.test", "MX", "10 mx/1.example.test.")
	world.set(t, "mx/1.example.test", "A", "192.0.2.7")
	v := auth.Verifier{Resolver: lookup.New(lookup.Options{Servers: []string{world.addr}})}
	message := "From: bob@example.test\r\n\r\n"
	for _, c := range []struct{ ip, from, want string }{
		{"192.0.2.1", "bob+a b=c@example.test", "pass"}, {"192.0.2.1", "bob+b@example.test", "fail"}, {"192.0.2.1", "-bob-@example.test", "fail"},
		{"2001:db8::1", "eve@example.test", "pass"}, {"192.0.2.7", "eve@example.test", "pass"},
	} {
		got, err := v.Verify(t.Context(), auth.Request{IP: netip.MustParseAddr(c.ip), Helo: "mx.test", MailFrom: c.from, AuthservID: "us.test", Message: strings.NewReader(message), Size: int64(len(message))})
		if err != nil || string(got.SPF) != c.want {
			t.Errorf("%s from %s: %+v, %v; want %s", c.from, c.ip, got, err, c.want)
		}
	}
	world.hush(true)
	r := lookup.New(lookup.Options{Servers: []string{world.addr}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var e *net.DNSError
	if _, err := r.LookupIPAddr(ctx, "odd/name.example.test."); !errors.As(err, &e) || !e.IsTemporary || e.IsNotFound {
		t.Errorf("a dead resolver: %v", err)
	}
}
