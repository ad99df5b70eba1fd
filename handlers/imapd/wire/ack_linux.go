package wire

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// acknowledge makes the system send a TCP acknowledgement at once. Some clients write a message and
// then the text after it as two segments, and wait for the acknowledgement of the first before they
// send the second (Nagle's algorithm, RFC 9293 section 3.7.4). A delayed acknowledgement would cost
// 40 ms per message.
func acknowledge(conn net.Conn) {
	for {
		switch c := conn.(type) {
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		case syscall.Conn:
			if raw, err := c.SyscallConn(); err == nil {
				_ = raw.Control(func(fd uintptr) {
					// If this fails, the acknowledgement is only delayed.
					_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1)
				})
			}
			return
		default:
			return
		}
	}
}
