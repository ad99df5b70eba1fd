package listen

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/mailstead/mailstead/config"
)

const (
	firstPassedFD = 3  // the first file descriptor that a service manager passes
	maxPassed     = 64 // greater than the number of listeners
)

// passedSockets are the sockets that a service manager has opened and passed to this process
// (sd_listen_fds(3)). They stay open while the program is replaced, so that clients that connect in
// the meantime wait. A listener uses the socket that has its name in LISTEN_FDNAMES, or else the
// socket that has its address.
type passedSockets struct {
	streams []passedSocket[*net.TCPListener]
	packets []passedSocket[*net.UDPConn] // for DNS
}

type passedSocket[S io.Closer] struct {
	name   string
	addr   net.Addr
	socket S
}

// takePassedSockets returns the sockets that were passed to this process. It removes the
// environment variables about them, so that child processes do not use them. It returns no sockets
// if the process was not started by a service manager.
func takePassedSockets() (p *passedSockets, err error) {
	pid, fds, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	p = &passedSockets{}
	if fds == "" || pid != strconv.Itoa(os.Getpid()) {
		return p, nil
	}
	n, err := strconv.Atoi(fds)
	if err != nil || n < 0 || n > maxPassed {
		return nil, config.Mistake(fmt.Errorf("LISTEN_FDS is %q, but must be the number of passed sockets, at most %d", fds, maxPassed))
	}
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	for i := range n {
		name := ""
		if i < len(names) {
			name = names[i]
		}
		if err := p.add(firstPassedFD+i, name); err != nil {
			return nil, errors.Join(config.Mistake(fmt.Errorf("use socket %d (%s), which was passed to this process: %w", firstPassedFD+i, name, err)), p.close())
		}
	}
	return p, nil
}

// add makes a listener from a file descriptor that was passed to this process. It closes the
// descriptor, since the listener has a duplicate.
func (p *passedSockets) add(fd int, name string) error {
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	syscall.CloseOnExec(fd)
	kind, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE)
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	if kind == syscall.SOCK_DGRAM {
		conn, err := net.FilePacketConn(f)
		if err != nil {
			return err
		}
		if udp, ok := conn.(*net.UDPConn); ok {
			p.packets = append(p.packets, passedSocket[*net.UDPConn]{name, udp.LocalAddr(), udp})
			return nil
		}
		return errors.Join(errors.New("the socket is neither TCP nor UDP"), conn.Close())
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return err
	}
	if tcp, ok := ln.(*net.TCPListener); ok {
		p.streams = append(p.streams, passedSocket[*net.TCPListener]{name, tcp.Addr(), tcp})
		return nil
	}
	return errors.Join(errors.New("the socket is neither TCP nor UDP"), ln.Close())
}

// take removes the socket for the listener with the name and address from the list, and returns it.
// ok is false if there is none.
func take[S io.Closer](all *[]passedSocket[S], name string, at config.Address) (socket S, ok bool) {
	i := slices.IndexFunc(*all, func(s passedSocket[S]) bool { return s.name == name })
	if i < 0 {
		i = slices.IndexFunc(*all, func(s passedSocket[S]) bool { return sameAddress(at, s.addr) })
	}
	if i < 0 {
		return socket, false
	}
	socket = (*all)[i].socket
	*all = slices.Delete(*all, i, i+1)
	return socket, true
}

// sameAddress reports whether a socket listens on the wanted address. 0.0.0.0 and [::] count as the
// same address.
func sameAddress(want config.Address, have net.Addr) bool {
	w, err := net.ResolveTCPAddr("tcp", want.String())
	if err != nil {
		return false
	}
	h, err := net.ResolveTCPAddr("tcp", have.String())
	if err != nil || w.Port != h.Port {
		return false
	}
	anyHost := w.IP == nil || w.IP.IsUnspecified()
	return anyHost == h.IP.IsUnspecified() && (anyHost || w.IP.Equal(h.IP))
}

// warnUnused logs a warning for each socket that no listener has taken.
func (p *passedSockets) warnUnused(log *slog.Logger) {
	const text = "a socket that was passed to this process belongs to no listener, so connections to it get no answer"
	for _, s := range p.streams {
		log.Warn(text, "name", s.name, "tcp", s.addr.String())
	}
	for _, s := range p.packets {
		log.Warn(text, "name", s.name, "udp", s.addr.String())
	}
}

// close closes the sockets that no listener has taken.
func (p *passedSockets) close() error {
	var errs []error
	for _, s := range p.streams {
		errs = append(errs, s.socket.Close())
	}
	for _, s := range p.packets {
		errs = append(errs, s.socket.Close())
	}
	return errors.Join(errs...)
}

// NotifyServiceManager reports a state, such as READY=1, to the service manager that started this
// process (sd_notify(3)). It does nothing if the service manager wants no reports.
func NotifyServiceManager(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		return fmt.Errorf("report %s to the service manager: %w", state, err)
	}
	_, err = io.WriteString(conn, state)
	return errors.Join(err, conn.Close())
}
