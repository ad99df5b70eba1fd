package pull

import (
	"fmt"
	"net"
	"strings"
)

const (
	plainLine  = 4 << 10 // bytes of a line before TLS
	plainLines = 20
)

// startTLS sends STARTTLS on a new connection (RFC 9051 section 6.2.1). It reads byte by byte, so
// that it buffers no plain text that would then be taken for encrypted data.
func startTLS(conn net.Conn) error {
	greeting, err := readLine(conn)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(strings.ToUpper(greeting), "* OK") {
		return fmt.Errorf("%w: unexpected greeting %q", ErrProtocol, printable(greeting))
	}
	if _, err := conn.Write([]byte("a1 STARTTLS\r\n")); err != nil {
		return err
	}
	for range plainLines {
		line, err := readLine(conn)
		if err != nil {
			return err
		}
		if answer, ok := strings.CutPrefix(line, "a1 "); ok {
			if !strings.HasPrefix(strings.ToUpper(answer), "OK") {
				return fmt.Errorf("%w: STARTTLS refused: %s", ErrTLS, printable(answer))
			}
			return nil
		}
	}
	return fmt.Errorf("%w: no reply to STARTTLS", ErrProtocol)
}

func readLine(conn net.Conn) (string, error) {
	var line []byte
	var b [1]byte
	for len(line) < plainLine {
		if _, err := conn.Read(b[:]); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return strings.TrimSuffix(string(line), "\r"), nil
		}
		line = append(line, b[0])
	}
	return "", fmt.Errorf("%w: a line before TLS is too long", ErrTooMuch)
}
