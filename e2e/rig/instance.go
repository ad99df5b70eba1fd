package rig

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Run runs a command of the program to its end, and logs what it writes to standard error.
func Run(t *testing.T, args ...string) (stdout string, code int) {
	t.Helper()
	path, err := Binary()
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

// Ready is the content of the ready file: the process, and the addresses that it listens on. An
// address is empty if its server is off.
type Ready struct {
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

// An Instance is the real program, running on a data directory of its own.
type Instance struct {
	T     *testing.T
	Dir   string   // the data directory
	Args  []string // added to the arguments of serve
	Token string   // with which the API is called
	Ready Ready
	Cmd   *exec.Cmd // nil while the program is stopped
	Log   *os.File

	Program      string   // path of the program; Binary if empty
	Env          []string // added to the environment
	Wrapper      []string // a program that runs the server, and its arguments
	OwnAddresses bool     // it listens where its settings say, not on free ports of 127.0.0.1
	HTTP         *http.Client
}

// Start initialises a data directory with the given mailstead.toml and starts a server on it.
func Start(t *testing.T, config string, args ...string) *Instance {
	t.Helper()
	return StartIn(t, t.TempDir(), config, args...)
}

// StartIn is Start with a given data directory.
func StartIn(t *testing.T, dir, config string, args ...string) *Instance {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "mailstead.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := Run(t, "init", "--data", dir, "--owner-email", "owner@example.org", "--json")
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 || made.Token == "" {
		t.Fatalf("init: code %d, %v, %s", code, err, out)
	}
	return StartExisting(t, dir, made.Token, args...)
}

// StartExisting starts a server on a data directory that is initialised.
func StartExisting(t *testing.T, dir, token string, args ...string) *Instance {
	t.Helper()
	i := Prepare(t, dir, token, args...)
	i.Start()
	return i
}

// Prepare returns an instance on an initialised data directory that is not started yet. It is
// stopped when the test ends, and its log is shown if the test failed.
func Prepare(t *testing.T, dir, token string, args ...string) *Instance {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	i := &Instance{T: t, Dir: dir, Args: args, Token: token, Log: log, HTTP: &http.Client{Timeout: time.Minute}}
	t.Cleanup(func() {
		i.Stop()
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the server's log:\n%s", text[max(0, len(text)-8000):])
		}
	})
	return i
}

// Start runs serve and waits for its ready file.
func (i *Instance) Start() {
	i.T.Helper()
	if !i.Launch() {
		i.T.Fatal("the server did not become ready")
	}
}

// Launch runs serve and reports whether it became ready within 20 seconds.
func (i *Instance) Launch() bool {
	i.T.Helper()
	path, err := i.Program, error(nil)
	if path == "" {
		path, err = Binary()
	}
	if err != nil {
		i.T.Fatal(err)
	}
	file := filepath.Join(i.T.TempDir(), "ready.json")                 // not in the data directory, whose disk may be full
	dns := net.JoinHostPort("127.0.0.1", FreePortOn(i.T, "127.0.0.1")) // some tests start the server there again
	args := []string{"serve", "--data", i.Dir, "--ready-file", file}
	if !i.OwnAddresses {
		args = append(args, "--http", "127.0.0.1:0", "--smtp", "127.0.0.1:0", "--submission", "127.0.0.1:0", "--imap", "127.0.0.1:0", "--dns", dns)
	}
	command := append(append(i.Wrapper, path), append(args, i.Args...)...)
	i.Cmd = exec.Command(command[0], command[1:]...)
	i.Cmd.Stdout, i.Cmd.Stderr = i.Log, i.Log
	if len(i.Env) > 0 {
		i.Cmd.Env = append(os.Environ(), i.Env...)
	}
	if err := i.Cmd.Start(); err != nil {
		i.T.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		text, err := os.ReadFile(file)
		if err == nil && json.Unmarshal(text, &i.Ready) == nil && (i.Ready.PID == i.Cmd.Process.Pid || i.Wrapper != nil) {
			return true
		}
		if time.Now().After(deadline) || i.Died() {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Died reports whether the process has ended by itself.
func (i *Instance) Died() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", i.Cmd.Process.Pid))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) && runtime.GOOS == "linux"
	}
	_, state, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(state, "Z") // nobody has waited for it
}

// Stop ends the server with SIGTERM and waits for it. An exit code other than 0, and a wait of more
// than 30 seconds, fail the test.
func (i *Instance) Stop() {
	if i.Cmd == nil {
		return
	}
	_ = syscall.Kill(cmp.Or(i.Ready.PID, i.Cmd.Process.Pid), syscall.SIGTERM) // 0 would be this process's group
	done := make(chan error, 1)
	go func() { done <- i.Cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			i.T.Errorf("the server ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		i.T.Error("the server did not stop within 30 s of SIGTERM")
		_ = i.Cmd.Process.Kill()
		<-done
	}
	i.Cmd = nil
}

// Kill ends the server with SIGKILL.
func (i *Instance) Kill() {
	_ = i.Cmd.Process.Kill()
	_ = i.Cmd.Wait()
	i.Cmd = nil
}

// Until waits until ok returns true, and fails the test after two minutes. What names the
// condition.
func (i *Instance) Until(what string, ok func() bool) {
	i.T.Helper()
	deadline := time.Now().Add(2 * time.Minute) // the machine may be busy
	for !ok() {
		if time.Now().After(deadline) {
			i.T.Fatalf("waited too long until %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// GenerousLimits are settings that let a test call the API as often as it needs.
const GenerousLimits = "[limits]\nrate_per_minute = 100000\nburst_per_minute = 100000\n"

// StartOutgoing starts an instance that has the domain example.test and sends mail for far.test to
// mx, an address.
func StartOutgoing(t *testing.T, world *FakeResolver, mx, config string, args ...string) *Instance {
	t.Helper()
	host, port, _ := net.SplitHostPort(mx)
	i := Start(t, config, append([]string{"--resolver", world.Addr, "--outbound", "direct", "--mx-port", port}, args...)...)
	world.Delegate(i.Ready.DNS)
	world.Set(t, "far.test", "MX", "10 mx.far.test.")
	world.Set(t, "mx.far.test", "A", host)
	world.Set(t, "mx.far.test", "AAAA")
	i.AddDomain("example.test")
	return i
}

// Check stops the server and fails the test unless mailstead check finds the store whole.
func (i *Instance) Check() {
	i.T.Helper()
	i.Stop()
	if out, code := Run(i.T, "check", "--data", i.Dir); code != 0 || out != "ok\n" {
		i.T.Errorf("check: %d %s", code, out)
	}
}

// StartWithMailbox starts an instance with one domain and one mailbox, and returns the id of the
// mailbox as well.
func StartWithMailbox(t *testing.T, args ...string) (i *Instance, box string) {
	t.Helper()
	i = Start(t, GenerousLimits, args...)
	i.AddDomain("example.test")
	return i, i.AddMailbox("ann@example.test", "correct horse")
}
