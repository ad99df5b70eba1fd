package faults

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
)

// heldPorts are sockets that a test holds in the place of systemd, for servers that come and go.
type heldPorts struct {
	rig.Ready          // the addresses
	names     []string // of the listeners
	files     []*os.File
}

func holdPorts(t *testing.T) *heldPorts {
	t.Helper()
	h := &heldPorts{}
	hold := func(name string, socket interface{ File() (*os.File, error) }) {
		f, err := socket.File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		h.names, h.files = append(h.names, name), append(h.files, f)
	}
	stream := func(name, at string) string {
		ln, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close() // the file stays open
		hold(name, ln.(*net.TCPListener))
		return ln.Addr().String()
	}
	h.HTTP, h.SMTP, h.IMAP = stream("", "127.0.0.1:0"), stream("", "127.0.0.1:0"), stream("", "127.0.0.1:0")
	h.Submission = stream("submission", "127.0.0.1:0")
	h.DNS = net.JoinHostPort("127.0.0.1", rig.FreePortOn(t, "127.0.0.1"))
	stream("", h.DNS)
	packets, err := net.ListenPacket("udp", h.DNS)
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	hold("", packets.(*net.UDPConn))
	return h
}

// serve starts a server on the ports, by a command that ends in that of the server; its arguments
// say where it listens. The submission port is found by its name.
func (h *heldPorts) serve(i *rig.Instance, cmd *exec.Cmd) {
	i.T.Helper()
	cmd.Args = append(cmd.Args, "--http", h.HTTP, "--smtp", h.SMTP, "--imap", h.IMAP, "--submission", "127.0.0.1:1", "--dns", h.DNS)
	cmd.Env = append(os.Environ(), fmt.Sprint("LISTEN_FDS=", len(h.files)), "LISTEN_FDNAMES="+strings.Join(h.names, ":"))
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = h.files, i.Log, i.Log
	if err := cmd.Start(); err != nil {
		i.T.Fatal(err)
	}
	i.Cmd, i.Ready = cmd, h.Ready
	i.Ready.PID = cmd.Process.Pid
}

// passing is a shell that runs the program in its arguments with the sockets that it was given.
var passing = []string{"sh", "-c", `export LISTEN_PID=$$; exec "$@"`, "sh"}

// TestPortsStayOpen: with the sockets of a service manager, what comes while no server runs waits
// for the next one, over TCP and UDP.
func TestPortsStayOpen(t *testing.T) {
	t.Parallel()
	i, box := rig.StartWithMailbox(t)
	i.Stop()
	path, err := rig.Binary()
	if err != nil {
		t.Fatal(err)
	}
	h := holdPorts(t)
	start := func() {
		t.Helper()
		args := append(passing, path, "serve", "--data", i.Dir)
		h.serve(i, exec.Command(args[0], args[1:]...))
	}
	sent := make(chan error, 1)
	send := func(subject string) { sent <- rig.Transmit(h.SMTP, "ann@example.test", rig.Letter(subject)) }
	asked := make(chan error, 1)
	ask := func() {
		c := dns.Client{Timeout: 30 * time.Second}
		_, _, err := c.Exchange(new(dns.Msg).SetQuestion("example.test.", dns.TypeMX), h.DNS)
		asked <- err
	}
	var want []string
	for round := range 3 {
		subject := fmt.Sprint("r", round)
		want = append([]string{subject}, want...)
		go send(subject)
		go ask()
		time.Sleep(50 * time.Millisecond) // so that both come before the server, and wait in its sockets
		start()
		if err := <-sent; err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := <-asked; err != nil {
			t.Fatalf("round %d: DNS: %v", round, err)
		}
		for _, addr := range []string{h.Submission, h.IMAP} {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
			greeting := make([]byte, 3)
			if _, err := conn.Read(greeting); err != nil || string(greeting) != "220" && string(greeting) != "* O" {
				t.Errorf("%s greets with %q, %v", addr, greeting, err)
			}
			conn.Close()
		}
		if got := subjects(i, box); got != strings.Join(want, " ") {
			t.Errorf("round %d: the inbox has %q", round, got)
		}
		i.Stop()
	}
	if text, err := os.ReadFile(i.Log.Name()); err != nil || bytes.Contains(text, []byte("belongs to no listener")) {
		t.Errorf("a socket was not used: %v, %s", err, text)
	}
}

// TestSocketActivate has systemd's own program pass sockets: it starts the server when somebody
// connects.
func TestSocketActivate(t *testing.T) {
	t.Parallel()
	activate := rig.Peer(t, "systemd-socket-activate")
	i, box := rig.StartWithMailbox(t)
	i.Stop()
	path, err := rig.Binary()
	if err != nil {
		t.Fatal(err)
	}
	i.Ready = rig.Ready{HTTP: net.JoinHostPort("127.0.0.1", rig.FreePortOn(t, "127.0.0.1")), SMTP: net.JoinHostPort("127.0.0.1", rig.FreePortOn(t, "127.0.0.1"))}
	strange := net.JoinHostPort("127.0.0.1", rig.FreePortOn(t, "127.0.0.1"))
	i.Cmd = exec.Command(activate, "-l", i.Ready.SMTP, "-l", i.Ready.HTTP, "-l", strange, "--fdname=a:http:c",
		path, "serve", "--data", i.Dir, "--http", "127.0.0.1:1", "--smtp", i.Ready.SMTP, "--submission", "off", "--imap", "off", "--dns", "127.0.0.1:0")
	i.Cmd.Stdout, i.Cmd.Stderr = i.Log, i.Log
	if err := i.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	i.Ready.PID = i.Cmd.Process.Pid
	i.Until("somebody listens", func() bool {
		err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("first"))
		return err == nil
	})
	if got := subjects(i, box); got != "first" {
		t.Errorf("the inbox has %q", got)
	}
	if text, err := os.ReadFile(i.Log.Name()); err != nil || !strings.Contains(string(text), "belongs to no listener") || !strings.Contains(string(text), "tcp="+strange) {
		t.Errorf("the log does not name %s: %v, %s", strange, err, text)
	}
}

// TestServiceManagerIsTold: it learns when the server is ready, and when it stops.
func TestServiceManagerIsTold(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/notify"
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	_ = manager.SetDeadline(time.Now().Add(time.Minute))
	i := rig.Prepare(t, t.TempDir(), "")
	i.Env = []string{"NOTIFY_SOCKET=" + path}
	i.Start()
	_ = syscall.Kill(i.Ready.PID, syscall.SIGTERM)
	for _, want := range []string{"READY=1", "STOPPING=1"} {
		got := make([]byte, 100)
		n, err := manager.Read(got)
		if err != nil || string(got[:n]) != want {
			t.Errorf("told %q, %v; want %s", got[:n], err, want)
		}
	}
}
