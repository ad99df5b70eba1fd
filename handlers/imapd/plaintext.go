package imapd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
)

// capsBeforeTLS returns the capabilities before TLS has started.
func capsBeforeTLS(config *tls.Config) string {
	if config == nil {
		return "IMAP4rev2 IMAP4rev1 ID LOGINDISABLED"
	}
	return "IMAP4rev2 IMAP4rev1 ID STARTTLS LOGINDISABLED"
}

// maxCommandsBeforeTLS is the number of commands that a client may send before STARTTLS.
const maxCommandsBeforeTLS = 20

// errNoTLS means that the client left or was refused before it started TLS.
var errNoTLS = errors.New("the client did not start TLS")

// startTLS serves a client that has not started TLS yet, with a simple parser for the few commands
// that are allowed (RFC 3501 section 6.2.1). It returns the TLS connection. `until` is the
// deadline. If config is nil, the client cannot start TLS, so it cannot log in.
func startTLS(ctx context.Context, conn net.Conn, config *tls.Config, until time.Time) (net.Conn, error) {
	if err := conn.SetDeadline(until); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "* OK [CAPABILITY %s] Mailstead is ready\r\n", capsBeforeTLS(config)); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(conn, 1024)
	for range maxCommandsBeforeTLS {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			refuseConn(conn, wire.IdleTooLong)
		}
		if err != nil {
			return nil, err
		}
		tag, verb, ok := parsePlainCommand(line)
		if !ok {
			break
		}
		answer, goOn := answerBeforeTLS(tag, verb, config)
		starts := verb == "STARTTLS" && config != nil
		// Bytes that arrive together with STARTTLS are not protected by TLS, and may be an
		// attacker's (RFC 3501 section 6.2.1).
		if starts && in.Buffered() > 0 {
			break
		}
		if _, err := conn.Write([]byte(answer)); err != nil {
			return nil, err
		}
		if starts {
			return tlsHandshake(ctx, conn, config, until)
		}
		if !goOn {
			return nil, errNoTLS
		}
	}
	_, err := conn.Write([]byte("* BYE [PRIVACYREQUIRED] Start TLS first\r\n"))
	return nil, errors.Join(errNoTLS, err)
}

// tlsHandshake makes the TLS handshake as the server, with the deadline `until`.
func tlsHandshake(ctx context.Context, conn net.Conn, config *tls.Config, until time.Time) (net.Conn, error) {
	if err := conn.SetDeadline(until); err != nil {
		return nil, err
	}
	secure := tls.Server(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return secure, conn.SetDeadline(time.Time{})
}

// parsePlainCommand splits a line into tag and verb. ok is false if the line is invalid. Lines with
// a literal are invalid too: no command before TLS needs one, and the bytes of a non-synchronizing
// literal would run as commands.
func parsePlainCommand(line []byte) (tag, verb string, ok bool) {
	line = bytes.TrimRight(line, "\r\n")
	fields := strings.Fields(string(line))
	if len(fields) < 2 || bytes.HasSuffix(line, []byte("}")) {
		return "", "", false
	}
	for _, c := range []byte(fields[0]) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`(){%*"\+`, c) >= 0 {
			return "", "", false
		}
	}
	return fields[0], strings.ToUpper(fields[1]), true
}

// answerBeforeTLS returns the answer to a command before TLS. goOn is false if the connection ends
// then.
func answerBeforeTLS(tag, verb string, config *tls.Config) (answer string, goOn bool) {
	switch {
	case verb == "CAPABILITY":
		return "* CAPABILITY " + capsBeforeTLS(config) + "\r\n" + tag + " OK CAPABILITY completed\r\n", true
	case verb == "NOOP":
		return tag + " OK NOOP completed\r\n", true
	case verb == "ID":
		return "* ID (\"name\" \"Mailstead\")\r\n" + tag + " OK ID completed\r\n", true
	case verb == "STARTTLS" && config == nil:
		return tag + " NO This server has no certificate\r\n", true
	case verb == "STARTTLS":
		return tag + " OK Begin TLS negotiation now\r\n", true
	case verb == "LOGIN" || verb == "AUTHENTICATE":
		return tag + " NO [PRIVACYREQUIRED] Start TLS first\r\n", true
	case verb == "LOGOUT":
		return "* BYE Logging out\r\n" + tag + " OK LOGOUT completed\r\n", false
	}
	return tag + " BAD Start TLS first\r\n", true
}

// refuseConn sends a BYE and closes the connection. It does not block, since the line fits into the
// empty send buffer of the socket.
func refuseConn(conn net.Conn, why string) {
	conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte("* BYE " + why + "\r\n")) // a refused client need not get it
	conn.Close()
}
