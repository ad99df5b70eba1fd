package listen

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/servicetest"
)

// TestHandshakesForOtherNames: HTTPS refuses a name that it has no certificate for, and mail
// servers, which seldom verify, still get the host's.
func TestHandshakesForOtherNames(t *testing.T) {
	const host, certified, other = "mail.example.test", "www.certified.test", "www.other.test"
	byACME := &servicetest.Certificate(t, certified).Certificates[0]
	fromFile := &servicetest.Certificate(t, host).Certificates[0]
	own, err := selfSignedCertificate(host)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sandbox, file  bool
		name           string
		refused, fresh bool
	}{
		{name: ""}, {name: host}, {name: "MAIL.example.test"}, {name: certified, fresh: true}, {name: other, refused: true},
		{file: true, name: ""}, {file: true, name: host}, {file: true, name: other, refused: true},
		{sandbox: true, name: other}, {sandbox: true, file: true, name: "localhost"},
	} {
		certs := &Certificates{host: host, sandbox: c.sandbox, selfSigned: own, Issued: func(name string) *tls.Certificate {
			if name == certified {
				return byACME
			}
			return nil
		}}
		want := own
		if c.file {
			certs.file.Store(fromFile)
			want = fromFile
		}
		if c.fresh {
			want = byACME
		}
		for protocol, config := range map[string]*tls.Config{"https": certs.HTTPSConfig(), "mail": certs.MailConfig()} {
			got, err := handshake(config, c.name)
			if protocol == "https" && c.refused {
				if err == nil || !strings.HasSuffix(err.Error(), "tls: unrecognized name") {
					t.Errorf("%s %+v: %v", protocol, c, err)
				}
				continue
			}
			if err != nil || string(got) != string(want.Certificate[0]) {
				t.Errorf("%s %+v: %v, or another certificate", protocol, c, err)
			}
		}
	}
}

// handshake returns the certificate that a client gets for a name.
func handshake(config *tls.Config, name string) ([]byte, error) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	go func() { _ = tls.Server(server, config).Handshake() }() // what went wrong the client sees
	c := tls.Client(client, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err := c.Handshake(); err != nil {
		return nil, err
	}
	return c.ConnectionState().PeerCertificates[0].Raw, nil
}
