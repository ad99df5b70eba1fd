package main

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/emersion/go-msgauth/dkim"
)

// A signingSink signs each message with DKIM, by RSA and Ed25519 as Mailstead does, and sends it
// to a relay. It stores nothing.
type signingSink struct {
	relay   string          // address of the relay
	keys    []crypto.Signer // DKIM keys
	waiting chan sinkMail   // messages to sign
}

// A sinkMail is a message with its envelope.
type sinkMail struct {
	from, to string
	body     []byte
}

// signedHeaders lists the header fields that Mailstead signs. As in Mailstead, each field is
// listed once more than it occurs, so that nobody can add one.
var signedHeaders = []string{"From", "From", "Reply-To", "Subject", "Subject", "Date", "Date", "To", "To", "Cc", "Message-ID", "Message-ID",
	"In-Reply-To", "References", "MIME-Version", "MIME-Version", "Content-Type", "Content-Type", "Content-Transfer-Encoding"}

// newSigningSink returns a signingSink with a worker for each core. Each worker has its own
// connection to the relay.
func newSigningSink(relay string) (*signingSink, error) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	_, second, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	s := &signingSink{relay, []crypto.Signer{private, second}, make(chan sinkMail, 10000)}
	for range runtime.NumCPU() {
		go func() {
			if err := s.signAndSendAll(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}()
	}
	return s, nil
}

// signAndSendAll signs and sends waiting messages. It returns only after an error.
func (s *signingSink) signAndSendAll() error {
	c, err := dialSMTP(s.relay, false, 10*time.Minute)
	if err != nil {
		return err
	}
	defer c.Close()
	for m := range s.waiting {
		fields, err := s.sign(m.body)
		if err != nil {
			return err
		}
		if err := c.send(m.from, m.to, append(append(fields, m.body...), ".\r\n"...)); err != nil {
			return err
		}
	}
	return nil
}

// sign returns the DKIM-Signature fields of a message.
func (s *signingSink) sign(message []byte) (fields []byte, err error) {
	var signers []*dkim.Signer
	var writers []io.Writer
	for n, key := range s.keys {
		one, err := dkim.NewSigner(&dkim.SignOptions{
			Domain: domain, Selector: fmt.Sprintf("s%d", n+1), Signer: key, HeaderKeys: signedHeaders,
			HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
		})
		if err != nil {
			return nil, err
		}
		signers, writers = append(signers, one), append(writers, one)
	}
	if _, err := io.Copy(io.MultiWriter(writers...), bytes.NewReader(message)); err != nil {
		return nil, err
	}
	for _, one := range signers {
		if err := one.Close(); err != nil {
			return nil, err
		}
		fields = append(fields, one.Signature()...)
	}
	return fields, nil
}
