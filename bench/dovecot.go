package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"time"
)

// dovecot is the name of the server Dovecot 2.3 in tables. It stores mail in Maildirs, with the
// default mail_fsync = optimized, and reads passwords from a plain text file.
const dovecot = "dovecot maildir"

const dovecotConfig = `base_dir = %[1]s/run
state_dir = %[1]s/state
log_path = /dev/stderr
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
service anvil {
  unix_listener anvil-auth-penalty {
    mode = 0
  }
}
`

// newDovecot starts Dovecot with empty mailboxes.
func (b *bench) newDovecot() (*imapServer, error) {
	path, err := programPath("dovecot")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "dovecot-")
	if err != nil {
		return nil, err
	}
	uid, gid, own := os.Getuid(), os.Getgid(), ""
	if uid == 0 {
		uid, gid = 65534, 65534 // Dovecot refuses to read mail as root
	} else {
		me, err := user.Current()
		if err != nil {
			return nil, err
		}
		group, err := user.LookupGroupId(me.Gid)
		if err != nil {
			return nil, err
		}
		own = fmt.Sprintf("default_internal_user = %s\ndefault_login_user = %[1]s\ndefault_internal_group = %[2]s\n"+
			"service anvil {\n  chroot =\n}\nservice imap-login {\n  chroot =\n}\n", me.Username, group.Name)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr, port := l.Addr().String(), l.Addr().(*net.TCPAddr).Port
	errs := []error{l.Close()}
	for _, name := range []string{"run", "state", "mail", "home"} {
		errs = append(errs, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	// Dovecot accesses mail as another user than its own.
	errs = append(errs, os.Chmod(dir, 0o755), os.Chown(filepath.Join(dir, "mail"), uid, gid), os.Chown(filepath.Join(dir, "home"), uid, gid))
	var logins bytes.Buffer
	for n := range users {
		fmt.Fprintf(&logins, "%s:%s\n", address(n), password)
	}
	config := filepath.Join(dir, "dovecot.conf")
	errs = append(errs, os.WriteFile(filepath.Join(dir, "users"), logins.Bytes(), 0o644),
		os.WriteFile(config, []byte(fmt.Sprintf(dovecotConfig, dir, port, uid, gid)+own), 0o644))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	p, err := b.start(dir, path, "-F", "-c", config)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			p.scratch = dir
			return &imapServer{p, addr, p.stop}, nil
		}
		if time.Now().After(end) {
			text, _ := os.ReadFile(p.log.Name())
			p.stop()
			return nil, fmt.Errorf("dovecot does not listen: %w: %s", err, text[max(0, len(text)-2000):])
		}
	}
}
