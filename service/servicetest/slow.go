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

// Pipes is a listener without a network, so that the time of a synctest bubble goes on while
// everybody waits.
type Pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

// NewPipes makes a listener.
func NewPipes() *Pipes { return &Pipes{make(chan net.Conn), make(chan struct{})} }

// Dial gives the client's end of a connection, once the server has taken the other.
func (p *Pipes) Dial() net.Conn {
	client, served := net.Pipe()
	p.conns <- served
	return client
}

// Accept gives the server's end of the next connection, or net.ErrClosed.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. It is called by one goroutine.
func (p *Pipes) Close() error {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	return nil
}

// Addr is none that anybody could dial.
func (p *Pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// A Sluggard is a client that takes its time.
type Sluggard struct {
	Begin string        // is said at once
	Drip  string        // comes after each pause, again and again
	Pause time.Duration // 0: nothing more comes
	Deaf  string        // it does not read, and says this again and again, which tells when the server has gone; "": it reads
	After time.Duration // when the server is to end the connection, to two seconds
}

// Play is the client. It demands that the server ends the connection in time, and gives what it was
// told.
func (s Sluggard) Play(t *testing.T, conn net.Conn) (told string) {
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
	told = <-over
	took := time.Since(start)
	conn.Close()
	<-silence
	if took < s.After || took > s.After+2*time.Second {
		t.Errorf("the connection ended after %v, want %v; it was told %.300q", took, s.After, told)
	}
	return told
}

// Certificate makes a server's TLS configuration with a certificate of the name that it signs
// itself.
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
