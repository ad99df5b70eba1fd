package rig

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Dovecot is a Dovecot IMAP server on a port of its own. Its mailboxes are maildirs, which tests
// write.
type Dovecot struct {
	t    *testing.T
	path string
	Dir  string
	Port int
	cmd  *exec.Cmd
	made int
}

const dovecotConfig = `base_dir = %[1]s/run
state_dir = %[1]s/state
log_path = %[1]s/log
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
mail_location = maildir:%[1]s/mail/%%n
mail_max_userip_connections = 50
first_valid_uid = 1
passdb {
  driver = passwd-file
  args = scheme=PLAIN %[1]s/users
}
namespace inbox {
  inbox = yes
  mailbox Sent {
    special_use = \Sent
    auto = create
  }
}
userdb {
  driver = static
  args = uid=%[3]d gid=%[4]d home=%[1]s/home/%%n
}
service imap-login {
  inet_listener imap {
    port = %[2]d
  }
  inet_listener imaps {
    port = 0
  }
}
service imap {
  process_limit = 300
}
service anvil {
  unix_listener anvil-auth-penalty {
    mode = 0
  }
}
`

// StartDovecot starts a server with the users, whose password is "secret".
func StartDovecot(t *testing.T, users []string) *Dovecot {
	t.Helper()
	d := &Dovecot{t: t, path: Peer(t, "dovecot")}
	var err error
	d.Dir, err = os.MkdirTemp("", "mailstead-dovecot")
	if err != nil {
		t.Fatal(err)
	}
	uid, gid, own := os.Getuid(), os.Getgid(), ""
	if uid == 0 {
		uid, gid = 65534, 65534 // dovecot reads no mail as root
	} else {
		own = fmt.Sprintf("default_internal_user = %d\ndefault_login_user = %[1]d\nservice anvil {\n  chroot =\n}\nservice imap-login {\n  chroot =\n}\n", uid)
	}
	var logins bytes.Buffer
	for _, u := range users {
		fmt.Fprintf(&logins, "%s:secret\n", u)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.Port = ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	d.Write("users", logins.String())
	d.Write("dovecot.conf", fmt.Sprintf(dovecotConfig, d.Dir, d.Port, uid, gid)+own)
	for _, dir := range []string{"run", "state", "mail", "home"} {
		if err := os.Mkdir(filepath.Join(d.Dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"", "mail", "home"} {
		if err := os.Chmod(filepath.Join(d.Dir, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		d.Stop()
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(d.Dir, "log"))
			t.Logf("dovecot's log:\n%s", text[max(0, len(text)-4000):])
		}
		os.RemoveAll(d.Dir)
	})
	d.start()
	return d
}

// Write writes a file below the server's directory.
func (d *Dovecot) Write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.Dir, name), []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

func (d *Dovecot) start() {
	d.t.Helper()
	d.cmd = exec.Command(d.path, "-F", "-c", filepath.Join(d.Dir, "dovecot.conf"))
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(d.Port))); err == nil {
			c.Close()
			return
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(filepath.Join(d.Dir, "log"))
			d.t.Fatalf("dovecot does not listen: %s", text)
		}
	}
}

// Stop ends the server, if it runs.
func (d *Dovecot) Stop() {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	_ = d.cmd.Wait()
	d.cmd = nil
}

// Box returns the directory of a user's maildir, which is created if it is missing.
func (d *Dovecot) Box(user string) string {
	d.t.Helper()
	dir := filepath.Join(d.Dir, "mail", user)
	for _, sub := range []string{"", "cur", "new", "tmp"} {
		path := filepath.Join(dir, sub)
		if err := os.MkdirAll(path, 0o777); err != nil {
			d.t.Fatal(err)
		}
		if err := os.Chmod(path, 0o777); err != nil {
			d.t.Fatal(err)
		}
	}
	return dir
}

// Put writes a message to new/, as a delivery agent does. Messages are ordered by when.
func (d *Dovecot) Put(user, subject string, when, size int) {
	d.t.Helper()
	d.made++
	text := fmt.Sprintf("From: Someone <someone@far.test>\r\nTo: %s@away.test\r\nSubject: %s\r\nMessage-ID: <%s.%s@far.test>\r\nDate: Mon, 02 Nov 2026 10:00:00 +0000\r\n\r\n",
		user, subject, strings.ReplaceAll(subject, " ", "."), user)
	for len(text) < size {
		text += "The quick brown fox jumps over the lazy dog, again and again.\r\n"
	}
	dir := d.Box(user)
	name := fmt.Sprintf("%d.%07d.test,S=%d,W=%d", 1_600_000_000+when, d.made, len(text), len(text))
	tmp := filepath.Join(dir, "tmp", name)
	if err := os.WriteFile(tmp, []byte(text), 0o666); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Chmod(tmp, 0o666); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, "new", name)); err != nil {
		d.t.Fatal(err)
	}
}

// Fill writes n messages to each mailbox; "message 0" is the oldest. The files of the users after
// the first are hard links to the first user's.
func (d *Dovecot) Fill(users []string, n int) {
	d.t.Helper()
	for k := range n {
		d.Put(users[0], fmt.Sprint("message ", k), k, 600+k%7*700)
	}
	from := filepath.Join(d.Box(users[0]), "new")
	entries, err := os.ReadDir(from)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, u := range users[1:] {
		to := filepath.Join(d.Box(u), "new")
		for _, e := range entries {
			if err := os.Link(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				d.t.Fatal(err)
			}
		}
	}
}

// File returns the file of a user's message, and the flags in its name.
func (d *Dovecot) File(user, subject string) (path, flags string) {
	d.t.Helper()
	for _, sub := range []string{"cur", "new"} {
		dir := filepath.Join(d.Box(user), sub)
		entries, err := os.ReadDir(dir)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, e := range slices.Backward(entries) {
			path := filepath.Join(dir, e.Name())
			if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("\r\nSubject: "+subject+"\r\n")) {
				_, flags, _ := strings.Cut(e.Name(), ":2,")
				return path, flags
			}
		}
	}
	return "", ""
}

// Renumber has every mailbox of the server get another UIDVALIDITY, and starts it again.
func (d *Dovecot) Renumber(users []string) {
	d.t.Helper()
	d.Stop()
	for _, u := range users {
		for _, pattern := range []string{"dovecot*", "subscriptions"} {
			files, _ := filepath.Glob(filepath.Join(d.Dir, "mail", u, pattern))
			for _, f := range files {
				if err := os.Remove(f); err != nil {
					d.t.Fatal(err)
				}
			}
		}
	}
	d.start()
}
