package imapd

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// acknowledge has the system acknowledge at once what has come. Clients that write a message, and
// what follows it, wait for that in between (Nagle's algorithm, RFC 9293 section 3.7.4), and
// delayed it takes 40 ms a message.
func acknowledge(conn net.Conn) {
	for {
		switch c := conn.(type) {
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		case syscall.Conn:
			if raw, err := c.SyscallConn(); err == nil {
				_ = raw.Control(func(fd uintptr) {
					_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) // without it all is slower, not wrong
				})
			}
			return
		default:
			return
		}
	}
}
