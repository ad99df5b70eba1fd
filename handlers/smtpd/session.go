package smtpd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/emersion/go-smtp"

	"github.com/mailstead/mailstead/internal/otlp"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbound"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/reputation"
	"github.com/mailstead/mailstead/service/submit"
)

// A session is the state of one SMTP session, which go-smtp begins at a greeting. It turns results
// of the service into SMTP replies. It decides only one thing itself: when a client has made too
// many errors.
type session struct {
	*run
	conn     *protocolConn
	smtpConn *smtp.Conn
	ip       netip.Addr
	ctx      context.Context
	end      context.CancelFunc

	unknownRecipients, failedLogins int
	user                            *core.MailboxUser

	mu       sync.Mutex
	messages int // that were received or are being received
	closed   bool
	envelope *envelope // nil outside a mail transaction
}

// An envelope is the state of one mail transaction, from MAIL to the end of the message.
type envelope struct {
	from       string
	opts       smtp.MailOptions
	sendAt     time.Time // zero: send at once
	requireTLS bool
	accepted   []inbound.Recipient // recipients in the mode MX
	to         []outbound.Rcpt     // recipients in the modes for submission
	counts     reputation.Envelope // recipients that count against the sending limits
	refused    *smtp.SMTPError     // the reply to the last refused recipient; nil: none was refused

	ctx  context.Context // that of the session, with the trace span
	span *otlp.Span      // of the whole transaction
}

// A loginSession is a session of a submission server. go-smtp offers AUTH only for this type.
type loginSession struct{ *session }

// Reset ends the mail transaction.
func (s *session) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countRefused()
	s.envelope = nil
}

// countRefused records the mail transaction as refused if all of its recipients were refused.
func (s *session) countRefused() {
	if e := s.envelope; e != nil && e.refused != nil && len(e.accepted)+len(e.to) == 0 {
		s.recordRefused(e, e.refused)
	}
}

// allow counts an event for the client's address or, after log-in, for the mailbox. It reports
// whether that is within the limits.
func (s *session) allow(what eventKind) bool {
	mailbox := ""
	if s.user != nil {
		mailbox = loginOf(*s.user).Mailbox
	}
	return s.rates.allow(s.ip, mailbox, what)
}

// recordRefused records a refused message in the metrics, the trace and the log.
func (s *session) recordRefused(e *envelope, answer *smtp.SMTPError) {
	s.countReceived(answer.Code)
	e.span.SetInt("smtp.code", answer.Code)
	e.span.Fail()
	e.span.End()
	if s.log.Enabled(e.ctx, slog.LevelInfo) {
		mailbox := ""
		if s.user != nil {
			mailbox = s.user.MailboxID
		}
		enhanced := answer.EnhancedCode
		s.service.Core.LogMessage(e.ctx, "message refused", "", slog.String("ip", s.ip.String()), slog.String("from", core.DomainOfAddress(e.from)),
			slog.String("mailbox_id", mailbox), slog.Int("recipients", len(e.accepted)+len(e.to)), slog.Int("code", answer.Code),
			slog.String("enhanced", fmt.Sprintf("%d.%d.%d", enhanced[0], enhanced[1], enhanced[2])))
	}
}

// countReceived counts a message from another server in the metrics, by the code of the reply.
func (s *session) countReceived(code int) {
	if s.mode != MX {
		return
	}
	result := core.ReceivedAccepted
	if code >= 500 {
		result = core.ReceivedRejected
	} else if code >= 400 {
		result = core.ReceivedDeferred
	}
	s.service.Core.Metrics.Received.Add(result)
}

// Logout ends the session.
func (s *session) Logout() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countRefused()
	s.closed, s.envelope = true, nil
	s.end()
	return nil
}

// currentEnvelope returns the state of the mail transaction, nil outside one.
func (s *session) currentEnvelope() *envelope {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.envelope
}

// messageCount returns how many messages the connection has sent, with one that is still being
// received.
func (s *session) messageCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.messages
}

// Mail begins a mail transaction.
func (s *session) Mail(from string, o *smtp.MailOptions) error {
	switch {
	case s.currentEnvelope() != nil:
		return newReply(503, "5.5.1", "Nested MAIL command")
	case s.mode != MX && s.user == nil:
		return newReply(530, "5.7.0", "Authentication required")
	case s.messageCount() >= s.limits.Messages:
		return s.replyAndClose("4.7.0", "Too many messages in one connection")
	case !s.allow(messageEvent):
		return s.replyAndClose("4.7.0", "Too many messages from your address, try again in a minute")
	}
	sender, ok := reversePath(from)
	if !ok {
		return newReply(553, "5.1.7", "Invalid sender address")
	}
	if s.conn.requireTLS && s.conn.tls == "" {
		// RFC 8689 section 4.1
		return newReply(530, "5.7.10", "REQUIRETLS needs TLS: begin with STARTTLS")
	}
	if s.conn.release.invalid != "" {
		return newReply(501, "5.5.4", s.conn.release.invalid)
	}
	if err := s.service.Core.StoreFailure(); err != nil {
		return s.closeIf421(s.smtpError(err))
	}
	if s.mode != MX {
		if err := s.service.Submit.MaySend(s.ctx, *s.user); err != nil {
			return s.closeIf421(s.smtpError(err))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &envelope{from: sender, opts: *o, sendAt: s.conn.release.at, requireTLS: s.conn.requireTLS}
	what := "receive message"
	if s.mode != MX {
		what = "submit message"
	}
	e.ctx, e.span = s.service.Core.Tracer.Start(s.ctx, otlp.Server, what)
	s.envelope = e
	return nil
}

// reversePath returns a sender address with the quotes that go-smtp has removed. ok is false if the
// address is invalid. It accepts more addresses than the check of a recipient, since the sender's
// mailbox is on another server.
func reversePath(from string) (path string, ok bool) {
	if from == "" {
		return "", true
	}
	path, ok = quoteAddress(from)
	bad := func(r rune) bool { return isControl(r) || r == '<' || r == '>' }
	return path, ok && len(path) <= 254 && utf8.ValidString(path) && !strings.ContainsFunc(path, bad)
}

// quoteAddress returns an address with its local part quoted if necessary. ok is false if the
// address has no @ or an invalid domain.
func quoteAddress(address string) (quoted string, ok bool) {
	local, domain, ok := msg.SplitEmail(address)
	if !ok || strings.ContainsAny(domain, " \t\"") {
		return "", false
	}
	return msg.Address{Mailbox: local, Host: domain}.Email(), true
}

// Rcpt accepts a recipient or returns the reply that refuses it.
func (s *session) Rcpt(to string, o *smtp.RcptOptions) error {
	e := s.currentEnvelope()
	address, ok := quoteAddress(to)
	if e == nil {
		return newReply(503, "5.5.1", "Need MAIL FROM first")
	}
	if !ok {
		return newReply(553, "5.1.3", "Invalid recipient address")
	}
	if !s.allow(recipientEvent) {
		return s.replyAndClose("4.7.0", "Too many recipients from your address, try again in a minute")
	}
	if s.mode != MX {
		return s.addSubmissionRcpt(e, address, o)
	}
	r, err := s.service.Inbound.Accepts(s.ctx, inbound.RecipientQuery{From: e.from, To: address, Size: e.opts.Size, RemoteIP: s.ip})
	if err != nil {
		return s.rejectRecipient(err)
	}
	e.accepted = append(e.accepted, r)
	s.conn.resetIdleCommands()
	return nil
}

// addSubmissionRcpt accepts a recipient of a submitted message. The service makes other checks when
// it has the whole message.
func (s *session) addSubmissionRcpt(e *envelope, address string, o *smtp.RcptOptions) error {
	if err := s.service.Submit.MaySendTo(s.ctx, *s.user, &e.counts, address); err != nil {
		return s.rejectRecipient(err)
	}
	r := outbound.Rcpt{Address: address}
	words := make([]string, 0, len(o.Notify))
	for _, n := range o.Notify {
		words = append(words, string(n))
	}
	r.Notify = strings.Join(words, ",")
	if o.OriginalRecipient != "" {
		r.ORCPT = strings.ToLower(string(o.OriginalRecipientType)) + ";" + o.OriginalRecipient
	}
	e.to = append(e.to, r)
	s.conn.resetIdleCommands()
	return nil
}

// rejectRecipient returns the reply to a refused recipient, and counts it. After too many unknown
// recipients it ends the connection, since the client may be guessing addresses.
func (s *session) rejectRecipient(err error) error {
	e := s.smtpError(err)
	if of := s.currentEnvelope(); of != nil {
		of.refused = e
	}
	if e.Code < 500 {
		return s.closeIf421(e)
	}
	s.unknownRecipients++
	if known := s.allow(failureEvent); s.unknownRecipients > s.limits.Unknown || !known {
		return s.replyAndClose("4.7.0", "Too many unknown recipients")
	}
	return e
}

// closeIf421 returns the reply e. If its code is 421, the connection ends after it.
func (s *session) closeIf421(e *smtp.SMTPError) error {
	if e.Code == 421 {
		s.conn.closeAfterReply()
	}
	return e
}

// replyAndClose returns a reply with the code 421, after which the connection ends.
func (s *session) replyAndClose(enhanced, text string) error {
	s.conn.closeAfterReply()
	return newReply(421, enhanced, text)
}

// Data receives the message. It replies 250 only when the message and all rows for its delivery are
// on disk.
func (s *session) Data(r io.Reader) error {
	e, done := s.beginData()
	if e == nil {
		return newReply(451, "4.3.0", "Message aborted")
	}
	defer done()
	if _, inChunks := r.(*io.PipeReader); !inChunks {
		// The library's reader misses the end of a message after CR CR LF. Our reader passes only
		// the end to it.
		r = s.conn.message()
	}
	lines := newNormalizer(r)
	spool, err := s.service.Inbound.Spool(lines)
	lines.free()
	if err != nil {
		answer := s.smtpError(bodyError(err))
		s.recordRefused(e, answer)
		return answer
	}
	defer spool.Close()
	said, err := s.deliver(e, spool)
	if err != nil {
		answer := s.smtpError(err)
		s.recordRefused(e, answer)
		return answer
	}
	s.countReceived(250)
	e.span.SetInt("smtp.code", 250)
	e.span.SetInt("size", int(spool.Size()))
	e.span.SetInt("recipients", len(e.accepted)+len(e.to))
	e.span.End()
	s.conn.resetIdleCommands()
	return newReply(250, "2.0.0", "OK: "+said)
}

// beginData takes the envelope out of the session, so that Reset does not change it. The envelope
// is nil if the session has ended. Otherwise the caller must call done.
func (s *session) beginData() (e *envelope, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.envelope == nil {
		return nil, nil
	}
	e = s.envelope
	s.envelope = nil
	s.messages++
	s.receiving.Add(1)
	return e, s.receiving.Done
}

// deliver passes a message to the service and returns the text for the reply.
func (s *session) deliver(e *envelope, spool *core.Spool) (replyText string, err error) {
	c := inbound.Client{IP: s.ip, Helo: s.smtpConn.Hostname(), Extended: s.conn.sentEHLO, UTF8: e.opts.UTF8, TLS: s.conn.tls, RequireTLS: e.requireTLS}
	if s.mode == MX {
		id, err := s.service.Inbound.Receive(e.ctx, inbound.Incoming{Client: c, From: e.from, Recipients: e.accepted, Body: spool})
		return "queued as " + id, err
	}
	c.Authenticated = true
	trace, _ := s.service.Inbound.Trace(c, "")
	out, err := s.service.Submit.Submit(e.ctx, *s.user, submit.Submission{
		From: e.from, To: e.to, Body: spool, EnvelopeID: e.opts.EnvelopeID, Ret: string(e.opts.Return), SMTPUTF8: e.opts.UTF8,
		Trace: trace, SendAt: e.sendAt, RequireTLS: e.requireTLS,
	})
	if err != nil {
		return "", err
	}
	if out.ApprovalID != "" {
		return "held for approval as " + out.ApprovalID, nil
	}
	return "queued as " + out.ID, nil
}

// bodyError returns the SMTP error for a message that could not be read to its end.
func bodyError(err error) error {
	var f *closeReply
	switch {
	case errors.Is(err, errLongLine):
		return &core.SMTPError{Code: 554, Enhanced: "5.6.0", Message: "Line too long, at most " + strconv.Itoa(maxLineBytes) + " bytes"}
	case errors.As(err, &f):
		return &core.SMTPError{Code: 451, Enhanced: f.enhanced, Message: f.text}
	case errors.Is(err, errTruncated), errors.Is(err, smtp.ErrDataReset):
		return &core.SMTPError{Code: 451, Enhanced: "4.4.2", Message: "Message incomplete"}
	}
	return err
}

// newReply makes an SMTP reply. enhanced is the enhanced status code, such as "5.7.1" (RFC 3463).
func newReply(code int, enhanced, text string) *smtp.SMTPError {
	e := &smtp.SMTPError{Code: code, Message: text}
	for i, part := range strings.SplitN(enhanced, ".", 3) {
		e.EnhancedCode[i], _ = strconv.Atoi(part)
	}
	return e
}

// smtpError returns the reply to an error. It logs internal errors, because the client learns only
// of a temporary failure.
func (s *session) smtpError(err error) *smtp.SMTPError {
	e := core.AsSMTPError(err)
	cause := e.Unwrap()
	for inner := e; errors.As(cause, &inner) && inner.Unwrap() != nil; {
		cause = inner.Unwrap()
	}
	switch {
	case cause == nil, errors.Is(cause, context.Canceled):
	case e.Code == 421, e.Enhanced == "4.3.0": // not 4.3.1, a full disk, which the store logs
		s.log.Error("smtp: an internal error deferred a message", "ip", s.ip, "answer", e.Error(), "error", cause)
	}
	return newReply(e.Code, e.Enhanced, strings.Map(func(r rune) rune {
		if isControl(r) {
			return ' '
		}
		return r
	}, e.Message))
}
