package cli

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestIsTaken: a port that somebody listens on is found without a right to open it.
func TestIsTaken(t *testing.T) {
	if _, err := os.Stat("/proc/net/tcp"); err != nil {
		t.Skip("this is not Linux")
	}
	for _, host := range []string{"127.0.0.1", "[::1]"} {
		ln, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Logf("%s: %v", host, err) // a machine without IPv6
			continue
		}
		at := ln.Addr().String()
		_, port, _ := net.SplitHostPort(at)
		if !isPortTaken(at, false) || !isPortTaken(":"+port, false) || isPortTaken("127.0.0.2:"+port, false) {
			t.Errorf("%s: %t, everywhere %t, at another address %t", at, isPortTaken(at, false), isPortTaken(":"+port, false), isPortTaken("127.0.0.2:"+port, false))
		}
		ln.Close()
		if isPortTaken(at, false) {
			t.Errorf("%s is taken after it was closed", at)
		}
		packets, err := net.ListenPacket("udp", at)
		if err != nil {
			t.Fatal(err)
		}
		if isPortTaken(at, false) || !isPortTaken(at, true) {
			t.Errorf("%s over UDP: %t, %t", at, isPortTaken(at, false), isPortTaken(at, true))
		}
		packets.Close()
	}
}

// TestUnitIsNamedAsItIs: what setup says to run starts the unit that it wrote.
func TestUnitIsNamedAsItIs(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"/etc/systemd/system/mailstead.service": "mailstead", "/etc/systemd/system/second.service": "second",
		"/srv/mail/second.service": "/srv/mail/second.service", "second.service": filepath.Join(here, "second.service"),
	} {
		d := &setupResult{Data: "/srv/mail"}
		if text := d.text(file, false); !strings.Contains(text, "systemctl daemon-reload && systemctl enable --now "+want+"\n") {
			t.Errorf("%s is not started by %s: %s", file, want, text)
		}
	}
}
