package smtpd

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/emersion/go-smtp"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service"
)

// A session is what go-smtp calls for one greeting. It puts the service's answers into SMTP's words
// and decides nothing but when a client has had enough.
//
// go-smtp calls Data in a goroutine of its own when a message comes in chunks, and may call Reset
// and Logout meanwhile; so what Data needs is taken from the session when it begins.
type session struct {
	*run
	wire *wire
	conn *smtp.Conn
	ip   netip.Addr
	ctx  context.Context
	end  context.CancelFunc

	unknown, logins int
	user            *service.MailboxUser

	mu       sync.Mutex
	messages int
	closed   bool
	envelope *envelope
}

// An envelope is one message's, as far as it has come.
type envelope struct {
	from     string
	opts     smtp.MailOptions
	accepted []service.Recipient // MX
	to       []service.Rcpt      // submission
}

// loginSession is a session that may log in; go-smtp offers AUTH to no other.
type loginSession struct{ *session }

func (s *session) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.envelope = nil
}

func (s *session) Logout() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.end()
	return nil
}

func (s *session) current() *envelope {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.envelope
}

func (s *session) sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.messages
}

// Mail begins a message.
func (s *session) Mail(from string, o *smtp.MailOptions) error {
	switch {
	case s.current() != nil:
		return reply(503, "5.5.1", "One sender at a time; RSET forgets it")
	case s.mode != MX && s.user == nil:
		return reply(530, "5.7.0", "Log in first")
	case s.sent() >= s.limits.Messages:
		return s.goodbye("4.7.0", "That is enough for one connection")
	case !s.rates.allow(s.ip, message):
		return s.goodbye("4.7.0", "Too many messages from where you are; come again in a minute")
	}
	sender, ok := reversePath(from)
	if !ok {
		return reply(553, "5.1.7", "That is no address")
	}
	if err := s.service.Healthy(); err != nil {
		return s.last(s.answer(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.envelope = &envelope{from: sender, opts: *o}
	return nil
}

// reversePath gives a sender as it was written, with the quotes that go-smtp has taken off. More is
// let pass than for a recipient, since it only has to name somebody else's mailbox.
func reversePath(from string) (string, bool) {
	if from == "" {
		return "", true
	}
	path, ok := requote(from)
	bad := func(r rune) bool { return isControl(r) || r == '<' || r == '>' }
	return path, ok && len(path) <= 254 && utf8.ValidString(path) && !strings.ContainsFunc(path, bad)
}

// requote divides an address at its last @ and puts quotes where its local part needs them.
func requote(address string) (string, bool) {
	local, domain, ok := msg.SplitEmail(address)
	if !ok || strings.ContainsAny(domain, " \t\"") {
		return "", false
	}
	return msg.Address{Mailbox: local, Host: domain}.Email(), true
}

// Rcpt takes a recipient or says why not.
func (s *session) Rcpt(to string, o *smtp.RcptOptions) error {
	e := s.current()
	address, ok := requote(to)
	if e == nil {
		return reply(503, "5.5.1", "Whose message is it?")
	}
	if !ok {
		return reply(553, "5.1.3", "That is no address")
	}
	if !s.rates.allow(s.ip, recipient) {
		return s.goodbye("4.7.0", "Too many recipients from where you are; come again in a minute")
	}
	if s.mode != MX {
		return s.rcptOut(e, address, o)
	}
	r, err := s.service.Accepts(s.ctx, service.RecipientQuery{From: e.from, To: address, Size: e.opts.Size, RemoteIP: s.ip})
	if err != nil {
		return s.refused(err)
	}
	e.accepted = append(e.accepted, r)
	s.wire.progress()
	return nil
}

// rcptOut takes a recipient of a message that is sent. What else there is against it is decided
// when all of it is there.
func (s *session) rcptOut(e *envelope, address string, o *smtp.RcptOptions) error {
	if err := s.service.MaySendTo(s.ctx, *s.user, address); err != nil {
		return s.refused(err)
	}
	r := service.Rcpt{Address: address}
	words := make([]string, 0, len(o.Notify))
	for _, n := range o.Notify {
		words = append(words, string(n))
	}
	r.Notify = strings.Join(words, ",")
	if o.OriginalRecipient != "" {
		r.ORCPT = strings.ToLower(string(o.OriginalRecipientType)) + ";" + o.OriginalRecipient
	}
	e.to = append(e.to, r)
	s.wire.progress()
	return nil
}

// refused counts a recipient that is not taken. Who guesses names is sent away.
func (s *session) refused(err error) error {
	e := s.answer(err)
	if e.Code < 500 {
		return s.last(e)
	}
	s.unknown++
	if known := s.rates.allow(s.ip, failure); s.unknown > s.limits.Unknown || !known {
		return s.goodbye("4.7.0", "Too many recipients that are not here")
	}
	return e
}

// last ends the connection with this answer if it is one that does.
func (s *session) last(e *smtp.SMTPError) error {
	if e.Code == 421 {
		s.wire.hangUp()
	}
	return e
}

// goodbye ends the connection with this answer.
func (s *session) goodbye(enhanced, text string) error {
	s.wire.hangUp()
	return reply(421, enhanced, text)
}

// Data takes the message. It answers 250 when the message and all that follows from it are on disk.
func (s *session) Data(r io.Reader) error {
	e, done := s.begin()
	if e == nil {
		return reply(451, "4.3.0", "The message was given up")
	}
	defer done()
	if _, inChunks := r.(*io.PipeReader); !inChunks {
		// The library's reader does not find the end behind CR CR LF; what this one leaves to it is
		// the end alone.
		r = s.wire.message()
	}
	spool, err := s.service.Spool(newNormal(r))
	if err != nil {
		return s.answer(unread(err))
	}
	defer spool.Close()
	id, err := s.take(e, spool)
	if err != nil {
		return s.answer(err)
	}
	s.wire.progress()
	return reply(250, "2.0.0", "OK, it is ours: "+id)
}

// begin takes the envelope for Data, unless the session is over.
func (s *session) begin() (*envelope, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.envelope == nil {
		return nil, nil
	}
	e := s.envelope
	s.envelope = nil
	s.messages++
	s.taking.Add(1)
	return e, s.taking.Done
}

// take hands a message to the service and gives the name that it is known by.
func (s *session) take(e *envelope, spool *service.Spool) (string, error) {
	c := service.Client{IP: s.ip, Helo: s.conn.Hostname(), Extended: s.wire.esmtp, UTF8: e.opts.UTF8, TLS: s.wire.tls}
	if s.mode == MX {
		return s.service.Receive(s.ctx, service.Incoming{Client: c, From: e.from, Recipients: e.accepted, Body: spool})
	}
	c.Authenticated = true
	trace, _ := s.service.Trace(c, "")
	out, err := s.service.Submit(s.ctx, *s.user, service.Submission{
		From: e.from, To: e.to, Body: spool, EnvelopeID: e.opts.EnvelopeID, Ret: string(e.opts.Return), SMTPUTF8: e.opts.UTF8,
		Trace: trace,
	})
	if err != nil {
		return "", err
	}
	return out.ID, nil
}

// unread says in SMTP's words why a message could not be read to its end.
func unread(err error) error {
	var f *farewell
	switch {
	case errors.Is(err, errLongLine):
		return &service.SMTPError{Code: 554, Enhanced: "5.6.0", Message: "A line may have " + strconv.Itoa(maxLine) + " bytes at most"}
	case errors.As(err, &f):
		return &service.SMTPError{Code: 451, Enhanced: f.enhanced, Message: f.text}
	case errors.Is(err, errCut), errors.Is(err, smtp.ErrDataReset):
		return &service.SMTPError{Code: 451, Enhanced: "4.4.2", Message: "The message did not come whole"}
	}
	return err
}

func reply(code int, enhanced, text string) *smtp.SMTPError {
	e := &smtp.SMTPError{Code: code, Message: text}
	for i, part := range strings.SplitN(enhanced, ".", 3) {
		e.EnhancedCode[i], _ = strconv.Atoi(part)
	}
	return e
}

// answer is what a client is told of an error. What is our own fault goes to the log too, since the
// client's operator sees of it only that we are busy.
func (s *session) answer(err error) *smtp.SMTPError {
	e := service.AsSMTPError(err)
	cause := e.Unwrap()
	for inner := e; errors.As(cause, &inner) && inner.Unwrap() != nil; {
		cause = inner.Unwrap()
	}
	switch {
	case cause == nil, errors.Is(cause, context.Canceled):
	case e.Code == 421, e.Enhanced == "4.3.0": // a full disk, 4.3.1, is the store's to tell of, once
		s.log.Error("smtp: mail is put off for a fault of our own", "ip", s.ip, "answer", e.Error(), "error", cause)
	}
	return reply(e.Code, e.Enhanced, strings.Map(func(r rune) rune {
		if isControl(r) {
			return ' '
		}
		return r
	}, e.Message))
}
