package cli

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/internal/portholder"
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
		holder := portholder.Holder{}
		forbidden := errors.Is(err, syscall.EACCES)
		taken := errors.Is(err, syscall.EADDRINUSE)
		if err != nil {
			var found bool
			holder, found = portholder.Find(one.at.String(), udp)
			if !found && one.name == "dns" {
				holder, found = portholder.Find(one.at.String(), true)
			}
			taken = taken || forbidden && found
		}
		switch {
		case err == nil:
			p.Free, p.Message = true, "It is free."
		case taken && serverRuns:
			p.Message = "Mailstead has it already."
		case taken:
			p.Message, p.mend = holder.Message(p.Port, one.name)
		case forbidden:
			p.Free, p.Message = true, "This user may not open it; the systemd unit has the right to (CAP_NET_BIND_SERVICE)."
		default:
			p.Message, p.mend = fmt.Sprintf("It cannot be opened: %v.", err), fmt.Sprintf("Set %s to an address of this host, or to off.", one.name)
		}
		if p.mend != "" {
			p.Message += " " + p.mend
		}
		out = append(out, p)
	}
	return out
}

// portRemedy says which program has the port that a listener of the server could not get, and what
// to do. err is the error of Program.Serve.
func portRemedy(err error) string {
	var failed *net.OpError
	_, setting, ok := strings.Cut(err.Error(), "listen for --")
	if !errors.As(err, &failed) || failed.Addr == nil || !ok {
		return ""
	}
	setting, _, _ = strings.Cut(setting, ":")
	_, port, _ := net.SplitHostPort(failed.Addr.String())
	number, _ := strconv.Atoi(port) // of an address that was to be listened on
	holder, _ := portholder.Find(failed.Addr.String(), failed.Net == "udp")
	message, mend := holder.Message(number, "--"+setting)
	return ". " + message + " " + mend
}
