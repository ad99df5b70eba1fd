// Package maillogin is the SASL log-in (RFC 4422) of mail clients. The IMAP server and the
// submission server use it. It does not know who may log in: the service decides that.
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

// XOAuth2 is the name of the mechanism for clients that do not support OAUTHBEARER (RFC 7628).
const XOAuth2 = "XOAUTH2"

// A Service checks log-ins.
type Service interface {
	OffersSCRAM() bool
	LoginMailbox(context.Context, core.MailLogin) (core.MailboxUser, error)
	SCRAM(ctx context.Context, in core.MailLogin, plus, offered bool, binding func(kind string) []byte, done func(core.MailboxUser, error) error) *scram.Server
}

// A Login has what the log-ins on one connection need.
type Login struct {
	Service  Service
	Context  context.Context
	Protocol string               // core.ProtocolIMAP or core.ProtocolSMTP
	IP       string               // of the client
	TLS      *tls.ConnectionState // nil without TLS
	Config   *tls.Config          // TLS configuration of the server
	// Done gets the result of a log-in. It returns the error for the client, or nil after success.
	Done func(core.MailboxUser, error) error
	// Malformed returns the error for a client that violates the mechanism.
	Malformed func(why error) error

	doneError error // of Done, after a log-in with a token
}

// Mechanisms returns the names of the offered mechanisms, the best first.
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

// Server returns the server side of a mechanism. It returns nil if the mechanism is unknown, or is
// not available without TLS.
func (l *Login) Server(mechanism string) sasl.Server {
	var s sasl.Server
	switch mechanism {
	case sasl.Plain:
		s = sasl.NewPlainServer(func(identity, username, password string) error {
			if identity != "" && identity != username {
				return l.Malformed(errors.New("the authorization identity differs from the user name"))
			}
			return l.Password(username, password)
		})
	case scram.Name, scram.NamePlus:
		plus := mechanism == scram.NamePlus
		if plus && l.TLS == nil {
			return nil
		}
		s = l.Service.SCRAM(l.Context, core.MailLogin{Protocol: l.Protocol, IP: l.IP}, plus, l.TLS != nil, l.channelBinding, l.Done)
	case sasl.OAuthBearer:
		s = sasl.NewOAuthBearerServer(func(o sasl.OAuthBearerOptions) *sasl.OAuthBearerError {
			if l.loginWithToken(o.Username, o.Token) != nil {
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
	return &saslExchange{s, l}
}

// Password logs in with a user name and a password. Its error is that of Done.
func (l *Login) Password(username, password string) error {
	return l.Done(l.Service.LoginMailbox(l.Context, core.MailLogin{Protocol: l.Protocol, Username: username, Password: password, IP: l.IP}))
}

// loginWithToken logs in with the password of a credential, which the client sends as a token. It
// calls Done only after success.
func (l *Login) loginWithToken(username, token string) error {
	u, err := l.Service.LoginMailbox(l.Context, core.MailLogin{Protocol: l.Protocol, Username: username, Password: token, Bearer: true, IP: l.IP})
	if err != nil {
		return err
	}
	l.doneError = l.Done(u, nil)
	return l.doneError
}

// channelBinding returns the channel binding data of the connection (RFC 5929, RFC 9266). It
// returns nil if the connection has none of that kind.
func (l *Login) channelBinding(kind string) []byte {
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
		return certificateHash(l.Config, l.TLS.ServerName)
	}
	return nil
}

// certificateHash returns the data of the binding tls-server-end-point, the hash of the server's
// certificate (RFC 5929 section 4.1). It returns nil if that is not defined.
func certificateHash(config *tls.Config, name string) []byte {
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
		return nil // RFC 5929 defines no hash for these
	}
	h := hash.New()
	h.Write(cert.Certificate[0])
	return h.Sum(nil)
}

// A saslExchange is the server side of a mechanism. It turns errors of the mechanism into errors of
// the protocol. It begins with a nil challenge, as the protocol libraries expect.
type saslExchange struct {
	sasl.Server
	login *Login
}

func (e *saslExchange) Next(response []byte) (challenge []byte, done bool, err error) {
	challenge, done, err = e.Server.Next(response)
	if response == nil && len(challenge) == 0 {
		challenge = nil
	}
	if isMechanismError(err) {
		err = e.login.Malformed(err)
	}
	return challenge, done, err
}

// isMechanismError reports whether an error is from a mechanism. Others are from Login.Done or
// Login.Malformed.
func isMechanismError(err error) bool {
	return errors.Is(err, scram.ErrMessage) || errors.Is(err, scram.ErrBinding) || errors.Is(err, sasl.ErrUnexpectedClientResponse) ||
		err != nil && strings.HasPrefix(err.Error(), "sasl: ")
}

// A bearerServer is the server side of a mechanism with tokens. A refused token gets the same error
// as a wrong password. A right one whose log-in fails for another reason gets that error, so that
// the client keeps the token.
type bearerServer struct {
	server sasl.Server
	login  *Login
}

func (b *bearerServer) Next(response []byte) (challenge []byte, done bool, err error) {
	challenge, done, err = b.server.Next(response)
	if b.login.doneError != nil {
		return nil, true, b.login.doneError
	}
	if refused := new(sasl.OAuthBearerError); errors.As(err, &refused) || err != nil && strings.HasPrefix(err.Error(), "sasl: client error") {
		err = b.login.Done(core.MailboxUser{}, core.Errorf("unauthorized", "The token is not valid."))
	}
	return challenge, done, err
}

// An xoauth2 is the server side of XOAUTH2. The client sends the user name and the token in one
// message. A refusal is first sent as a challenge, and the client sends an empty response to that.
type xoauth2 struct {
	login   *Login
	refused bool
}

// maxBearerBytes is the maximum size in bytes of a response with a token.
const maxBearerBytes = 8 << 10

func (x *xoauth2) Next(response []byte) (challenge []byte, done bool, err error) {
	switch {
	case x.refused:
		return nil, true, &sasl.OAuthBearerError{Status: "invalid_token"}
	case response == nil:
		return nil, false, nil
	case len(response) > maxBearerBytes:
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
	if x.login.loginWithToken(user, token) != nil {
		x.refused = true
		return []byte(`{"status":"401","schemes":"bearer","scope":"mail"}`), false, nil
	}
	return nil, true, nil
}
