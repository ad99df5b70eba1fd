package cli

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/mailstead/mailstead/config"
)

// checkPorts tries to listen on every address in the settings, and reports which ports are free.
func checkPorts(s *config.Settings, serverRuns bool) []setupPort {
	out := []setupPort{}
	for _, one := range []struct {
		name string
		at   config.Address
	}{
		{"smtp", s.SMTP}, {"submission", s.Submission}, {"submissions", s.Submissions}, {"imap", s.IMAP}, {"imaps", s.IMAPS},
		{"http", s.HTTP}, {"http_tls", s.HTTPTLS}, {"dns", s.DNS},
	} {
		if !one.at.On() {
			continue
		}
		p := setupPort{Name: one.name}
		p.Port, _ = strconv.Atoi(portOf(one.at))
		udp := false // whether the port is taken over UDP alone
		ln, err := net.Listen("tcp", one.at.String())
		if err == nil {
			ln.Close()
			if one.name == "dns" {
				var packets net.PacketConn
				packets, err = net.ListenPacket("udp", one.at.String())
				udp = err != nil
				if err == nil {
					packets.Close()
				}
			}
		}
		holder := portHolder{}
		forbidden := errors.Is(err, syscall.EACCES)
		taken := errors.Is(err, syscall.EADDRINUSE)
		if err != nil {
			var found bool
			holder, found = findPortHolder(one.at.String(), udp)
			if !found && one.name == "dns" {
				holder, found = findPortHolder(one.at.String(), true)
			}
			taken = taken || forbidden && found
		}
		switch {
		case err == nil:
			p.Free, p.Message = true, "It is free."
		case taken && serverRuns:
			p.Message = "Mailstead has it already."
		case taken:
			p.Message = holder.message(p.Port, one.name)
		case forbidden:
			p.Free, p.Message = true, "This user may not open it; the systemd unit has the right to (CAP_NET_BIND_SERVICE)."
		default:
			p.Message = fmt.Sprintf("It cannot be opened: %v.", err)
		}
		out = append(out, p)
	}
	return out
}

// A portHolder is the process that listens on a port.
type portHolder struct {
	pid     int    // 0: this user may not see it
	program string // its name, as in /proc/PID/comm
	unit    string // its systemd service, such as postfix.service; "" if it has none
}

// message says which program has a port, and what to do. setting is the setting of the listener
// that needs the port.
func (h portHolder) message(port int, setting string) string {
	instead := fmt.Sprintf("or set %s to another port, or to off.", setting)
	switch {
	case h.pid == 0 && os.Geteuid() != 0:
		return fmt.Sprintf("Another program has it, which only root can see: `sudo ss -lntup 'sport = :%d'` names it. Stop that program, %s", port, instead)
	case h.pid == 0:
		return fmt.Sprintf("Another program has it: `ss -lntup 'sport = :%d'` names it. Stop that program, %s", port, instead)
	case h.pid == 1:
		return fmt.Sprintf("A socket unit of systemd has it: `systemctl list-sockets` names it. Stop and disable that unit, %s", instead)
	case h.unit == "systemd-resolved.service":
		return fmt.Sprintf("systemd-resolved has it (process %d). Switch off its listener: set DNSStubListener=no in /etc/systemd/resolved.conf and restart it, %s", h.pid, instead)
	case h.unit != "":
		return fmt.Sprintf("%s has it (process %d). Stop it: `systemctl disable --now %s`, %s", h.program, h.pid, h.unit, instead)
	}
	return fmt.Sprintf("%s has it (process %d). Stop that program, %s", h.program, h.pid, instead)
}

// findPortHolder finds the process that listens on the TCP address, or, if udp is set, on the UDP
// address. found is false if nobody does. On Linux, users without the right to listen there can see
// whether somebody does, and root sees who.
func findPortHolder(address string, udp bool) (h portHolder, found bool) {
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
			h.pid, _ = strconv.Atoi(filepath.Base(dir))
			name, _ := os.ReadFile(filepath.Join(dir, "comm")) // "" if it has just ended
			groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
			h.program, h.unit = strings.TrimSpace(string(name)), serviceOf(string(groups))
			if h.pid != 1 { // systemd has the sockets of its services too
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
