package imapd

import (
	"encoding/base64"
	"fmt"
	"net"
	"strings"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/handlers/connlimit"
	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/handlers/maillogin"
	"github.com/mailstead/mailstead/service/core"
)

const (
	maxFailedLogins = 5 // on one connection

	// Limits of the fields that a client sends with ID (RFC 2971 section 3.3).
	maxIDFields = 30
	maxIDText   = 1024 // bytes of a name or of a value
)

const (
	capsOfEveryState = "IMAP4rev2 IMAP4rev1 SASL-IR LITERAL+ ID"
	capsAfterLogin   = " CONDSTORE QUOTA QUOTA=RES-STORAGE COMPRESS=DEFLATE MULTIAPPEND SORT THREAD=REFERENCES THREAD=ORDEREDSUBJECT" +
		" QRESYNC OBJECTID PREVIEW SAVEDATE REPLACE UNSELECT ENABLE IDLE UTF8=ACCEPT NAMESPACE UIDPLUS ESEARCH SEARCHRES" +
		" LIST-EXTENDED LIST-STATUS MOVE STATUS=SIZE BINARY CHILDREN SPECIAL-USE CREATE-SPECIAL-USE APPENDLIMIT="
)

// capabilities returns the capabilities that the server offers to this client now (RFC 9051 section
// 6.1.1).
func (ss *session) capabilities() string {
	if ss.user.MailboxID == "" {
		mechanisms := maillogin.Mechanisms(ss.server.Service.Mailboxes, ss.conn.TLSState() != nil)
		return capsOfEveryState + " AUTH=" + strings.Join(mechanisms, " AUTH=")
	}
	caps := capsOfEveryState + capsAfterLogin + fmt.Sprint(AppendLimit)
	if ss.compressed {
		caps = strings.Replace(caps, " COMPRESS=DEFLATE", "", 1)
	}
	return caps
}

// capability answers CAPABILITY (RFC 9051 section 6.1.1).
func (ss *session) capability(p *wire.Command) error {
	if err := p.End(); err != nil {
		return err
	}
	ss.conn.WriteLine("* CAPABILITY %s", ss.capabilities())
	return nil
}

// login answers LOGIN (RFC 9051 section 6.2.3).
func (ss *session) login(p *wire.Command) error {
	p.Space()
	username := p.AString()
	p.Space()
	password := p.AString()
	if err := p.End(); err != nil {
		return err
	}
	ss.slot.Busy()
	if err := ss.saslLogin().Password(username, password); err != nil {
		return err
	}
	ss.code, ss.text = "CAPABILITY "+ss.capabilities(), "Logged in"
	return nil
}

// authenticate answers AUTHENTICATE (RFC 9051 section 6.2.2), also with an initial response (RFC
// 4959).
func (ss *session) authenticate(p *wire.Command) error {
	p.Space()
	mechanism := p.Word()
	var response []byte
	if p.More() {
		p.Space()
		text := p.ReadWhile("a response", func(b byte) bool { return b > ' ' && b < 0x7f })
		var err error
		response, err = decodeSASL(text)
		if err != nil {
			p.Fail(err)
		}
	}
	if err := p.End(); err != nil {
		return err
	}
	server := ss.saslLogin().Server(mechanism)
	if server == nil {
		return wire.No("", "There is no mechanism of that name")
	}
	ss.slot.Busy()
	for {
		challenge, done, err := server.Next(response)
		if err != nil {
			return err
		}
		if done {
			break
		}
		text := base64.StdEncoding.EncodeToString(challenge)
		if challenge != nil && text == "" {
			text = "="
		}
		ss.conn.WriteLine("+ %s", text)
		ss.slot.Idle() // the server waits for the client
		line, err := ss.conn.NextLine()
		if err == nil && line == "*" {
			err = wire.Bad("AUTHENTICATE is cancelled")
		}
		if err == nil {
			response, err = decodeSASL(line)
		}
		if err != nil {
			return err
		}
		ss.slot.Busy()
	}
	ss.code, ss.text = "CAPABILITY "+ss.capabilities(), mechanism+" authentication successful"
	return nil
}

// decodeSASL decodes a response of the client from base64. "=" is an empty response (RFC 4959
// section 3).
func decodeSASL(text string) ([]byte, error) {
	if text == "=" {
		return []byte{}, nil
	}
	response, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, wire.Bad("The response is not base64")
	}
	return response, nil
}

// saslLogin returns the maillogin.Login of this connection, which LOGIN and AUTHENTICATE use.
func (ss *session) saslLogin() *maillogin.Login {
	return &maillogin.Login{
		Service: ss.server.Service.Mailboxes, Context: ss.ctx, Protocol: core.ProtocolIMAP, IP: clientAddress(ss.conn.RemoteAddr()),
		TLS: ss.conn.TLSState(), Config: ss.server.TLS, Done: ss.finishLogin,
		Malformed: func(why error) error {
			ss.slot.Idle()
			return wire.No(imap.ResponseCodeAuthenticationFailed, printableASCII("Log-in failed: "+why.Error()))
		},
	}
}

// finishLogin ends a log-in with its result, the user or an error. It returns nil if the client is
// logged in, or else the tagged answer.
func (ss *session) finishLogin(user core.MailboxUser, err error) error {
	ss.server.Service.Core.Metrics.CountLogin("imap", err)
	if err != nil {
		ss.slot.Idle()
		if ss.failedLogins++; ss.failedLogins >= maxFailedLogins {
			// The connection ends after the tagged answer is sent.
			ss.conn.Stop("[UNAVAILABLE] Too many failed log-ins")
		}
		return ss.imapError(err)
	}
	who := connlimit.Login{Protocol: core.ProtocolIMAP, Mailbox: user.MailboxID, Account: user.AccountID}
	if refusal := ss.slot.LogIn(ss.server.Logins, who); refusal != "" {
		ss.slot.Idle()
		return wire.No(imap.ResponseCodeLimit, refusal)
	}
	ss.server.addSession(ss, user)
	ss.user = user
	ss.conn.LoggedIn()
	return nil
}

// id answers ID (RFC 2971). The answer has the server's version only after log-in.
func (ss *session) id(p *wire.Command) error {
	var fields []string
	p.Space()
	if p.Next('(') {
		p.ReadList(func() {
			name := p.AString()
			p.Space()
			value := p.AString() // NIL is parsed as the text NIL
			if len(name) > maxIDText || len(value) > maxIDText || len(fields) == maxIDFields {
				p.Fail(wire.Bad("ID takes at most %d names and values of at most %d bytes", maxIDFields, maxIDText))
			}
			fields = append(fields, printableASCII(name)+"="+printableASCII(value))
		})
	} else if p.Word() != "NIL" {
		p.Fail(wire.Bad("ID takes NIL or a list of names and values"))
	}
	if err := p.End(); err != nil {
		return err
	}
	ss.server.Log.Debug("IMAP client", "mailbox", ss.user.Email, "id", fields)
	version := ss.server.Service.Core.Config.Version
	if ss.user.MailboxID == "" || version == "" {
		ss.conn.WriteLine(`* ID ("name" "Mailstead")`)
	} else {
		ss.conn.WriteLine(`* ID ("name" "Mailstead" "version" %s)`, wire.Quote(version))
	}
	return nil
}

// enable answers ENABLE (RFC 5161). It ignores extensions that it cannot enable.
func (ss *session) enable(p *wire.Command) error {
	enabled := ""
	for p.More() {
		p.Space()
		name := p.Word()
		switch name {
		case "IMAP4REV2":
			name = "IMAP4rev2"
		case "UTF8=ACCEPT", "CONDSTORE", "QRESYNC":
		default:
			continue
		}
		if !strings.Contains(enabled+" ", " "+name+" ") {
			enabled += " " + name
		}
	}
	if err := p.End(); err != nil {
		return err
	}
	for _, name := range strings.Fields(enabled) {
		switch name {
		case "IMAP4rev2":
			ss.rev2 = true
			ss.conn.UseUTF8()
		case "UTF8=ACCEPT":
			ss.conn.UseUTF8()
		case "CONDSTORE":
			ss.enableCondStore()
		case "QRESYNC":
			ss.enableCondStore()
			ss.qresync = true
		}
	}
	ss.conn.WriteLine("* ENABLED%s", enabled)
	return nil
}

// compress answers COMPRESS (RFC 4978).
func (ss *session) compress(p *wire.Command) error {
	p.Space()
	algorithm := p.Word()
	if err := p.End(); err != nil {
		return err
	}
	switch {
	case algorithm != "DEFLATE":
		return wire.Bad("Only DEFLATE is supported")
	case ss.compressed:
		return wire.No("COMPRESSIONACTIVE", "The connection is compressed already")
	case !ss.server.acquireCompression():
		return wire.No("LIMIT", "Too many connections are compressed")
	}
	ss.compressed = true
	ss.conn.Compress(ss.server.pool, p.Tag+" OK COMPRESS completed")
	return errAnswered
}

// clientAddress returns the client's IP address without port. An IPv4-mapped IPv6 address becomes
// IPv4. Log-ins are throttled by this address.
func clientAddress(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().String()
	}
	return addr.String()
}
