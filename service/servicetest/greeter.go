package servicetest

import (
	"bufio"
	"fmt"
	"net"
	"testing"
)

// Greeter runs a mail server that greets, and answers the first line of every command with reply.
// It returns its address.
func Greeter(t testing.TB, reply string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				fmt.Fprint(conn, "220 mx.far.test ESMTP\r\n")
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					fmt.Fprint(conn, reply+"\r\n")
				}
			}()
		}
	}()
	return ln.Addr().String()
}
