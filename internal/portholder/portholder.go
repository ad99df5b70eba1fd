// Package portholder finds the process that listens on a port, by Linux's /proc. It does not know
// what the port is for.
package portholder

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Holder is the process that listens on a port.
type Holder struct {
	PID     int    // 0: this user may not see it
	Program string // its name, as in /proc/PID/comm
	Unit    string // its systemd service, such as postfix.service; "" if it has none
}

// Message says which program has a port. mend says what to do. setting is the setting of the
// listener that needs the port.
func (h Holder) Message(port int, setting string) (message, mend string) {
	instead := fmt.Sprintf("or set %s to another port, or to off.", setting)
	switch {
	case h.PID == 0 && os.Geteuid() != 0:
		return fmt.Sprintf("Another program has it, which only root can see: `sudo ss -lntup 'sport = :%d'` names it.", port), "Stop that program, " + instead
	case h.PID == 0:
		return fmt.Sprintf("Another program has it: `ss -lntup 'sport = :%d'` names it.", port), "Stop that program, " + instead
	case h.PID == 1:
		return "A socket unit of systemd has it: `systemctl list-sockets` names it.", "Stop and disable that unit, " + instead
	case h.Unit == "systemd-resolved.service":
		return fmt.Sprintf("systemd-resolved has it (process %d).", h.PID), "Switch off its listener: set DNSStubListener=no in /etc/systemd/resolved.conf and restart it, " + instead
	case h.Unit != "":
		return fmt.Sprintf("%s has it (process %d).", h.Program, h.PID), fmt.Sprintf("Stop it: `systemctl disable --now %s`, %s", h.Unit, instead)
	}
	return fmt.Sprintf("%s has it (process %d).", h.Program, h.PID), "Stop that program, " + instead
}

// Find finds the process that listens on the TCP address, or, if udp is set, on the UDP
// address. found is false if nobody does. On Linux, users without the right to listen there can see
// whether somebody does, and root sees who.
func Find(address string, udp bool) (h Holder, found bool) {
	inodes := listeningSockets(address, udp)
	if len(inodes) == 0 {
		return h, false
	}
	processes, _ := filepath.Glob("/proc/[0-9]*") // none on other systems
	for _, dir := range processes {
		files, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			continue // it has ended, or belongs to another user
		}
		for _, f := range files {
			target, err := os.Readlink(filepath.Join(dir, "fd", f.Name()))
			inode, ok := strings.CutPrefix(target, "socket:[")
			if err != nil || !ok || !slices.Contains(inodes, strings.TrimSuffix(inode, "]")) {
				continue
			}
			h.PID, _ = strconv.Atoi(filepath.Base(dir))
			name, _ := os.ReadFile(filepath.Join(dir, "comm")) // "" if it has just ended
			groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
			h.Program, h.Unit = strings.TrimSpace(string(name)), serviceOf(string(groups))
			if h.PID != 1 { // systemd has the sockets of its services too
				return h, true
			}
		}
	}
	return h, true
}

// serviceOf returns the systemd service that the text of /proc/PID/cgroup names, or "".
func serviceOf(groups string) string {
	for line := range strings.Lines(groups) {
		if name := filepath.Base(strings.TrimSpace(line)); strings.HasSuffix(name, ".service") {
			return name
		}
	}
	return ""
}

// listeningSockets returns the inodes of the sockets that listen on an address, from Linux's
// /proc/net.
func listeningSockets(address string, udp bool) (inodes []string) {
	want, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil
	}
	states := map[string]string{"tcp": "0A", "tcp6": "0A"} // TCP_LISTEN
	if udp {
		states = map[string]string{"udp": "07", "udp6": "07"}
	}
	for kind, state := range states {
		f, err := os.Open("/proc/net/" + kind)
		if err != nil {
			continue // this is not Linux
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			// The columns: number, local address, remote address, state, queues, timer,
			// retransmits, user, timeout, inode.
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 || fields[3] != state {
				continue
			}
			ip, port := parseProcAddress(fields[1])
			if port == want.Port && (ip.IsUnspecified() || want.IP == nil || want.IP.IsUnspecified() || ip.Equal(want.IP)) {
				inodes = append(inodes, fields[9])
			}
		}
		_ = f.Close()
	}
	return inodes
}

// parseProcAddress parses an address from a file in Linux's /proc/net: the IP address in
// hexadecimal, with the bytes of each 32-bit word in little-endian order, ":", and the port in
// hexadecimal.
func parseProcAddress(text string) (ip net.IP, port int) {
	host, number, _ := strings.Cut(text, ":")
	ip, _ = hex.DecodeString(host)
	for word := range slices.Chunk(ip, 4) {
		slices.Reverse(word)
	}
	n, _ := strconv.ParseUint(number, 16, 16)
	return ip, int(n)
}
