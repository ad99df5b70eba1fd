// Package maillogin is how mail clients log in by SASL (RFC 4422), which IMAP and submission share.
// It does not know who may log in: the service decides.
package maillogin

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"

	"github.com/emersion/go-sasl"

	"github.com/mailstead/mailstead/mail/scram"
	"github.com/mailstead/mailstead/service/core"
)

// XOAuth2 is what clients speak that do not know RFC 7628.
const XOAuth2 = "XOAUTH2"

// A Service checks log-ins.
type Service interface {
	OffersSCRAM() bool
	LoginMailbox(context.Context, core.MailLogin) (core.MailboxUser, error)
	SCRAM(ctx context.Context, in core.MailLogin, plus, offered bool, binding func(kind string) []byte, done func(core.MailboxUser, error) error) *scram.Server
}

// A Login is what one connection logs in with.
type Login struct {
	Service  Service
	Context  context.Context
	Protocol string               // core.ProtocolIMAP or core.ProtocolSMTP
	IP       string               // of the client
	TLS      *tls.ConnectionState // nil: there is none
	Config   *tls.Config          // of TLS
	// Done takes what came of a log-in, and gives the error that the client gets.
	Done func(core.MailboxUser, error) error
	// Malformed gives the error for a client that does not keep to the mechanism.
	Malformed func(why error) error
}

// Mechanisms are those that are offered, the best first.
func Mechanisms(s Service, overTLS bool) []string {
	list := []string{sasl.Plain, sasl.OAuthBearer, XOAuth2}
	if s.OffersSCRAM() {
		list = append([]string{scram.Name}, list...)
		if overTLS {
			list = append([]string{scram.NamePlus}, list...)
		}
	}
	return list
}

// Server gives the server's side of a mechanism; nil if there is none of the name.
func (l *Login) Server(mechanism string) sasl.Server {
	var s sasl.Server
	switch mechanism {
	case sasl.Plain:
		s = sasl.NewPlainServer(func(identity, username, password string) error {
			if identity != "" && identity != username {
				return l.Malformed(errors.New("the identity is not the user name"))
			}
			return l.Password(username, password)
		})
	case scram.Name, scram.NamePlus:
		plus := mechanism == scram.NamePlus
		if plus && l.TLS == nil {
			return nil
		}
		s = l.Service.SCRAM(l.Context, core.MailLogin{Protocol: l.Protocol, IP: l.IP}, plus, l.TLS != nil, l.binding, l.Done)
	case sasl.OAuthBearer:
		s = sasl.NewOAuthBearerServer(func(o sasl.OAuthBearerOptions) *sasl.OAuthBearerError {
			if l.token(o.Username, o.Token) != nil {
				return &sasl.OAuthBearerError{Status: "invalid_token", Schemes: "bearer"}
			}
			return nil
		})
		s = &bearerServer{server: s, login: l}
	case XOAuth2:
		s = &bearerServer{server: &xoauth2{login: l}, login: l}
	default:
		return nil
	}
	return &exchange{s, l}
}

// Password logs in with a name and a password.
func (l *Login) Password(username, password string) error {
	return l.Done(l.Service.LoginMailbox(l.Context, core.MailLogin{Protocol: l.Protocol, Username: username, Password: password, IP: l.IP}))
}

// token logs in with the password of a credential as a token, without telling the client yet.
func (l *Login) token(username, token string) error {
	u, err := l.Service.LoginMailbox(l.Context, core.MailLogin{Protocol: l.Protocol, Username: username, Password: token, Bearer: true, IP: l.IP})
	if err != nil {
		return err
	}
	return l.Done(u, nil)
}

// binding gives the data of a channel binding of the connection (RFC 5929, RFC 9266); nil if there
// is none of the kind.
func (l *Login) binding(kind string) []byte {
	switch {
	case l.TLS == nil:
		return nil
	case kind == "tls-exporter":
		if l.TLS.Version < tls.VersionTLS13 {
			return nil
		}
		data, err := l.TLS.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, 32)
		if err != nil {
			return nil
		}
		return data
	case kind == "tls-server-end-point" && l.Config != nil:
		return endPoint(l.Config, l.TLS.ServerName)
	}
	return nil
}

// endPoint hashes the certificate that a server shows (RFC 5929 section 4.1).
func endPoint(config *tls.Config, name string) []byte {
	var cert *tls.Certificate
	if config.GetCertificate != nil {
		cert, _ = config.GetCertificate(&tls.ClientHelloInfo{ServerName: name})
	}
	if cert == nil && len(config.Certificates) > 0 {
		cert = &config.Certificates[0]
	}
	if cert == nil || len(cert.Certificate) == 0 {
		return nil
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return nil
	}
	hash := crypto.SHA256
	switch leaf.SignatureAlgorithm {
	case x509.SHA384WithRSA, x509.ECDSAWithSHA384, x509.SHA384WithRSAPSS:
		hash = crypto.SHA384
	case x509.SHA512WithRSA, x509.ECDSAWithSHA512, x509.SHA512WithRSAPSS:
		hash = crypto.SHA512
	case x509.PureEd25519, x509.UnknownSignatureAlgorithm:
		return nil // RFC 5929 says of no hash
	}
	h := hash.New()
	h.Write(cert.Certificate[0])
	return h.Sum(nil)
}

// An exchange gives errors of a mechanism the protocol's form, and asks the client to begin as
// protocols want it.
type exchange struct {
	sasl.Server
	login *Login
}

func (e *exchange) Next(response []byte) (challenge []byte, done bool, err error) {
	challenge, done, err = e.Server.Next(response)
	if response == nil && len(challenge) == 0 {
		challenge = nil
	}
	if isMechanism(err) {
		err = e.login.Malformed(err)
	}
	return challenge, done, err
}

// isMechanism reports whether an error is one of a mechanism, not what a Login made of another one.
func isMechanism(err error) bool {
	return errors.Is(err, scram.ErrMessage) || errors.Is(err, scram.ErrBinding) || errors.Is(err, sasl.ErrUnexpectedClientResponse) ||
		err != nil && strings.HasPrefix(err.Error(), "sasl: ")
}

// A bearerServer answers a refused token as every wrong password is.
type bearerServer struct {
	server sasl.Server
	login  *Login
}

func (b *bearerServer) Next(response []byte) (challenge []byte, done bool, err error) {
	challenge, done, err = b.server.Next(response)
	if refused := new(sasl.OAuthBearerError); errors.As(err, &refused) || err != nil && strings.HasPrefix(err.Error(), "sasl: client error") {
		err = b.login.Done(core.MailboxUser{}, core.Errorf("unauthorized", "The token is not valid."))
	}
	return challenge, done, err
}

// xoauth2 is the server's side of XOAUTH2: the user name and the token in one message. A refusal is
// a challenge first, which the client answers with nothing.
type xoauth2 struct {
	login   *Login
	refused bool
}

const maxBearer = 8 << 10

func (x *xoauth2) Next(response []byte) (challenge []byte, done bool, err error) {
	switch {
	case x.refused:
		return nil, true, &sasl.OAuthBearerError{Status: "invalid_token"}
	case response == nil:
		return nil, false, nil
	case len(response) > maxBearer:
		return nil, false, sasl.ErrUnexpectedClientResponse
	}
	user, token := "", ""
	for field := range bytes.SplitSeq(response, []byte{1}) {
		name, value, _ := strings.Cut(string(field), "=")
		switch {
		case strings.EqualFold(name, "user"):
			user = value
		case strings.EqualFold(name, "auth") && len(value) > 7 && strings.EqualFold(value[:7], "bearer "):
			token = value[7:]
		}
	}
	if user == "" || token == "" {
		return nil, false, sasl.ErrUnexpectedClientResponse
	}
	if x.login.token(user, token) != nil {
		x.refused = true
		return []byte(`{"status":"401","schemes":"bearer","scope":"mail"}`), false, nil
	}
	return nil, true, nil
}
