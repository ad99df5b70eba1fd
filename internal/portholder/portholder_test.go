package portholder

import (
	"net"
	"os"
	"strings"
	"testing"
)

// TestPortsNameTheirProgram: a port that somebody listens on is found without a right to open it,
// with the program that has it.
func TestPortsNameTheirProgram(t *testing.T) {
	if _, err := os.Stat("/proc/net/tcp"); err != nil {
		t.Skip("this is not Linux")
	}
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	self := Holder{PID: os.Getpid(), Program: strings.TrimSpace(string(comm))}
	holds := func(at string, udp bool) bool {
		h, found := Find(at, udp)
		h.Unit = "" // the service in which the tests run, if any
		if found && h != self {
			t.Errorf("%s is held by %+v, not %+v", at, h, self)
		}
		return found
	}
	for _, host := range []string{"127.0.0.1", "[::1]"} {
		ln, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Logf("%s: %v", host, err) // a machine without IPv6
			continue
		}
		at := ln.Addr().String()
		_, port, _ := net.SplitHostPort(at)
		if !holds(at, false) || !holds(":"+port, false) || holds("127.0.0.2:"+port, false) || holds(at, true) {
			t.Errorf("%s is not found, or elsewhere too", at)
		}
		ln.Close()
		if holds(at, false) {
			t.Errorf("%s is taken after it was closed", at)
		}
		packets, err := net.ListenPacket("udp", at)
		if err != nil {
			t.Fatal(err)
		}
		if holds(at, false) || !holds(at, true) {
			t.Errorf("%s over UDP is not found, or over TCP too", at)
		}
		packets.Close()
	}
}

// TestPortMessages say what to do with what has the port.
func TestPortMessages(t *testing.T) {
	for _, c := range []struct {
		h    Holder
		want string
	}{
		{Holder{}, "ss -lntup 'sport = :25'` names it. Stop that program, or set smtp to another port, or to off."},
		{Holder{PID: 1, Program: "systemd"}, "A socket unit of systemd has it: `systemctl list-sockets` names it."},
		{Holder{PID: 812, Program: "master", Unit: "postfix.service"}, "master has it (process 812). Stop it: `systemctl disable --now postfix.service`, or set smtp to another port, or to off."},
		{Holder{PID: 812, Program: "python3"}, "python3 has it (process 812). Stop that program, or set smtp"},
		{Holder{PID: 500, Program: "systemd-resolve", Unit: "systemd-resolved.service"}, "set DNSStubListener=no in /etc/systemd/resolved.conf"},
	} {
		message, mend := c.h.Message(25, "smtp")
		if got := message + " " + mend; mend == "" || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %s", c.h, got)
		}
	}
	for groups, want := range map[string]string{
		"0::/system.slice/postfix.service\n": "postfix.service", "1:name=systemd:/system.slice/named.service\n0::/\n": "named.service",
		"0::/user.slice/user-0.slice/session-1.scope\n": "", "": "",
	} {
		if got := serviceOf(groups); got != want {
			t.Errorf("%q is of %q, want %q", groups, got, want)
		}
	}
}
