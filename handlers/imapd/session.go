package imapd

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"
	"github.com/emersion/go-sasl"

	"github.com/mailstead/mailstead/handlers/maillogin"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
)

const maxLogins = 5 // failed log-ins on one connection

// A session is the state of one connection. go-imap calls it from one goroutine, and from a second
// one during IDLE.
type session struct {
	server       *Server
	imapConn     *imapserver.Conn
	conn         *protocolConn
	user         core.MailboxUser // MailboxID is "" before log-in
	failedLogins int
	extensions   extensions // of the command that the parser runs
	// compressed reports whether the connection counts against Server.MaxCompressed.
	compressed bool

	mu       sync.Mutex // IDLE may not have ended when the next command arrives
	selected *selected
	closed   bool
	// condStore: changes are reported with their MODSEQ (RFC 7162).
	condStore bool
	// qresync: expunged messages are reported by their UIDs.
	qresync bool
}

var (
	_ imapserver.SessionIMAP4rev2   = (*session)(nil)
	_ imapserver.SessionAppendLimit = (*session)(nil)
	_ imapserver.SessionSASL        = (*session)(nil)
)

func (s *Server) newSession(c *imapserver.Conn) (imapserver.Session, *imapserver.GreetingData, error) {
	w, ok := c.NetConn().(*protocolConn)
	if !ok {
		return nil, nil, fmt.Errorf("IMAP session on an unexpected connection of type %T", c.NetConn())
	}
	w.setSession(true)
	ss := &session{server: s, imapConn: c, conn: w}
	w.intercept = ss.intercept
	return ss, &imapserver.GreetingData{}, nil
}

// Close ends the session.
func (ss *session) Close() error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.closed = true
	ss.selected = nil
	if ss.user.MailboxID != "" {
		ss.server.releaseLogin(ss, ss.user.Mailbox)
		ss.user = core.MailboxUser{}
	}
	if ss.compressed {
		ss.server.releaseCompression()
	}
	ss.conn.setSession(false)
	return nil
}

// AppendLimit is the size in bytes of the largest message that APPEND accepts.
func (ss *session) AppendLimit() uint32 { return AppendLimit }

// Login logs in to a mailbox.
func (ss *session) Login(username, password string) error {
	ss.conn.slot.Busy() // the slot stays busy after log-in
	return ss.saslLogin().Password(username, password)
}

// AuthenticateMechanisms returns the mechanisms that AUTHENTICATE accepts.
func (ss *session) AuthenticateMechanisms() []string {
	return maillogin.Mechanisms(ss.server.Service.Mailboxes, ss.conn.tlsState() != nil)
}

// Authenticate begins a SASL log-in.
func (ss *session) Authenticate(mechanism string) (sasl.Server, error) {
	server := ss.saslLogin().Server(mechanism)
	if server == nil {
		return nil, refusal("", "There is no mechanism of that name")
	}
	ss.conn.slot.Busy()
	return server, nil
}

func (ss *session) saslLogin() *maillogin.Login {
	return &maillogin.Login{
		Service: ss.server.Service.Mailboxes, Context: ss.conn.ctx, Protocol: core.ProtocolIMAP, IP: addressOf(ss.conn.RemoteAddr()),
		TLS: ss.conn.tlsState(), Config: ss.server.TLS, Done: ss.loggedIn,
		Malformed: func(why error) error {
			ss.conn.slot.Idle()
			return refusal(imap.ResponseCodeAuthenticationFailed, plainText("Log-in failed: "+why.Error()))
		},
	}
}

// loggedIn finishes a log-in: it returns nil, or the reply to a refused log-in.
func (ss *session) loggedIn(user core.MailboxUser, err error) error {
	ss.server.Service.Core.Metrics.CountLogin("imap", err)
	if err != nil {
		ss.conn.slot.Idle()
		if ss.failedLogins++; ss.failedLogins >= maxLogins {
			// Takes effect after the reply is sent.
			ss.conn.stop("[UNAVAILABLE] Too many failed log-ins")
		}
		return ss.replyError(err)
	}
	if !ss.server.acquireLogin(ss, user) {
		ss.conn.slot.Idle()
		return &imap.Error{
			Type: imap.StatusResponseTypeNo, Code: imap.ResponseCodeLimit,
			Text: fmt.Sprintf("This mailbox has %d connections already", ss.server.MaxPerMailbox),
		}
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.user = user
	ss.conn.loggedIn()
	return nil
}

// responseCodes maps the codes of service errors that a mail client can get to response codes (RFC
// 5530).
var responseCodes = map[string]imap.ResponseCode{
	inbox.CodeFolderNotFound:    imap.ResponseCodeNonExistent,
	inbox.CodeFolderExists:      imap.ResponseCodeAlreadyExists,
	inbox.CodeFolderHasChildren: imap.ResponseCodeHasChildren,
	inbox.CodeFolderLimit:       imap.ResponseCodeLimit,
	inbox.CodeFolderRate:        imap.ResponseCodeLimit, // RFC 5530 section 3
	inbox.CodeFolderName:        imap.ResponseCodeCannot,
	inbox.CodeSpecialUse:        "USEATTR",
	inbox.CodeQuota:             imap.ResponseCodeOverQuota,
	core.CodeMailboxClosed:      imap.ResponseCodeUnavailable,
	inbox.CodeKeywords:          imap.ResponseCodeLimit,
	inbox.CodeMessageEmpty:      imap.ResponseCodeCannot,
	inbox.CodeMessageGone:       expungedCode, // RFC 5530 section 3

	"tainted": imap.ResponseCodeNoPerm,

	"unauthorized":        imap.ResponseCodeAuthenticationFailed,
	"mailbox_unavailable": imap.ResponseCodeContactAdmin,
	"account_suspended":   imap.ResponseCodeContactAdmin,
	"not_found":           imap.ResponseCodeNonExistent,
	"rate_limited":        imap.ResponseCodeUnavailable,
	"busy":                imap.ResponseCodeUnavailable,
	"shutting_down":       imap.ResponseCodeUnavailable,
	"storage_unavailable": imap.ResponseCodeUnavailable,
	"storage_full":        imap.ResponseCodeUnavailable,
	"internal_error":      imap.ResponseCodeServerBug,
}

// replyError turns any error into a NO reply, and logs internal errors.
func (ss *session) replyError(err error) error {
	if err == nil {
		return nil
	}
	return ss.imapError(err)
}

func (ss *session) imapError(err error) *imap.Error {
	var given *imap.Error
	if errors.As(err, &given) {
		return given
	}
	e := core.Explain(err)
	// An error after the client has left is not logged.
	if e.Code == "internal_error" && !ss.conn.failed() {
		ss.server.Log.Error("IMAP command failed", "mailbox", ss.user.Email, "error", err)
	}
	return &imap.Error{Type: imap.StatusResponseTypeNo, Code: responseCodes[e.Code], Text: plainText(e.Message)}
}

// tryCreate is replyError for a command with a destination folder: a missing folder gets the code
// TRYCREATE (RFC 3501 section 7.1).
func (ss *session) tryCreate(err error) error {
	err = ss.replyError(err)
	var given *imap.Error
	if errors.As(err, &given) && given.Code == imap.ResponseCodeNonExistent {
		given.Code = imap.ResponseCodeTryCreate
	}
	return err
}

// plainText replaces every rune that is not printable ASCII by "?", so that the text can be part of
// any reply.
func plainText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f {
			return '?'
		}
		return r
	}, s)
}

func badCommand(format string, args ...any) error {
	return &imap.Error{Type: imap.StatusResponseTypeBad, Code: imap.ResponseCodeClientBug, Text: fmt.Sprintf(format, args...)}
}

func refusal(code imap.ResponseCode, text string) error {
	return &imap.Error{Type: imap.StatusResponseTypeNo, Code: code, Text: text}
}
