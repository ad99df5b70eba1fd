package servicetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"testing"
	"time"
)

// Pipes is a listener without a network. The clock of a synctest bubble advances while goroutines
// wait for it.
type Pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

// NewPipes returns a listener.
func NewPipes() *Pipes { return &Pipes{make(chan net.Conn), make(chan struct{})} }

// Dial returns the client's end of a connection, after the server has accepted it.
func (p *Pipes) Dial() net.Conn {
	client, served := net.Pipe()
	p.conns <- served
	return client
}

// Accept returns the server's end of the next connection, or net.ErrClosed.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. Only one goroutine may call it.
func (p *Pipes) Close() error {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	return nil
}

// Addr returns a placeholder address.
func (p *Pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// A Sluggard is a slow client of a server.
type Sluggard struct {
	Begin string        // sent at once
	Drip  string        // sent after each pause, repeatedly
	Pause time.Duration // 0: nothing more is sent
	Deaf  string        // if not "", the client reads nothing, and sends this repeatedly until the server has closed the connection
	After time.Duration // when the server must close the connection, within two seconds
}

// Play runs the client. It checks that the server closes the connection in time, and returns what
// the server has sent.
func (s Sluggard) Play(t *testing.T, conn net.Conn) (received string) {
	t.Helper()
	start, over, silence := time.Now(), make(chan string, 1), make(chan struct{})
	go func() {
		if s.Deaf != "" {
			<-silence
		}
		text, _ := io.ReadAll(conn)
		over <- string(text)
	}()
	go func() {
		defer close(silence)
		_, err := io.WriteString(conn, s.Begin)
		for err == nil && s.Pause > 0 {
			time.Sleep(s.Pause)
			_, err = io.WriteString(conn, s.Drip)
		}
		for err == nil && s.Deaf != "" {
			_, err = io.WriteString(conn, s.Deaf)
		}
	}()
	received = <-over
	took := time.Since(start)
	conn.Close()
	<-silence
	if took < s.After || took > s.After+2*time.Second {
		t.Errorf("the connection ended after %v, want %v; it got %.300q", took, s.After, received)
	}
	return received
}

// Certificate returns a server's TLS configuration with a self-signed certificate for the name.
func Certificate(t testing.TB, name string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}
