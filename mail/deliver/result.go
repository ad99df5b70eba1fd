package deliver

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
)

// Status says whether a message was delivered.
type Status int

const (
	Temporary Status = iota // not delivered, may be retried later
	Delivered               // a server accepted the message
	Permanent               // not delivered, and a retry would fail too
)

func (s Status) String() string {
	return [...]string{"temporary", "delivered", "permanent"}[s]
}

// ErrOutcomeUnknown is the error of an Attempt if the connection was lost after the end of the
// message was sent and before the host replied. The host may have accepted the message. The failure
// is temporary, since a duplicate is better than a loss (RFC 5321 §4.2.5).
var ErrOutcomeUnknown = errors.New("no answer to the end of the message; it may have been delivered")

// Attempt is one attempt to deliver to one address of a host.
type Attempt struct {
	Host string // MX host, relay or IP address
	IP   string // "" if the host has none, or before it was looked up
	TLS  string // version and cipher, such as "TLS 1.3 TLS_AES_128_GCM_SHA256"; "" for plain text
	// Authenticated says how the host was authenticated: ByDANE, BySTS or ByCertificate, "" if it
	// was not.
	Authenticated string
	Code          int    // of the reply that decided, 0 if there was none
	Enhanced      string // enhanced status code, never ""
	Reply         string // the reply that decided, or else the error: one printable line of at most 1 KiB
	At            time.Time
	Err           error // nil if the reply explains everything
}

// Result is the result of delivering a message. Host, TLS, Code, Enhanced and Reply are those of
// the attempt that decided it.
type Result struct {
	Status   Status
	Code     int    // SMTP reply code; 0 if Reply is an error of our own
	Enhanced string // RFC 3463; "2.0.0", "4.0.0" or "5.0.0" if the server sent none; begins with 4 if Status is Temporary
	Reply    string // one printable line of at most 1 KiB, including the code
	Host     string
	TLS      string
	Attempts []Attempt
	Sessions []Session // each new connection of Direct, for TLS reports
	// DSN reports that the host which accepted the message offers DSN, so that the host itself must
	// notify the sender of success (RFC 3461 section 5.2.1).
	DSN bool
	// RecipientFault reports that a permanent failure is about the address itself, and not about
	// content, policy or connection. Nothing more should be sent to that address.
	RecipientFault bool
}

// AnsweredBy returns the host that sent Reply, "" if Reply is an error of our own.
func (r Result) AnsweredBy() string {
	if r.Code == 0 {
		return ""
	}
	return r.Host
}

// stage is how far an attempt has come. Later stages are greater.
type stage int

const (
	stageConnect stage = iota
	stageHello         // greeting, EHLO, STARTTLS
	stageAuth
	stageMail
	stageRcpt
	stageData // the DATA command
	stageBody // sending the message
	stageEnd  // the end of the message was sent
)

// failure is the reason why an attempt failed: a reply of the host, or an error with a status and
// code of our own.
type failure struct {
	stage        stage
	reply        reply
	err          error  // with a reply: an explanation for the operator
	status       Status // used if there is no reply; never Delivered
	enhanced     string // used if there is no reply
	handshake    bool   // TLS failed; plain text may work
	tls          string // result type for a TLS report (RFC 8460 section 4.3), "" if the failure is not about TLS
	localError   bool   // the message cannot be read or must not be sent, so no other host is tried
	addressFault bool   // err is about the recipient's address
}

// unroutableFailure returns a permanent failure for a domain or address to which no host can be
// found.
func unroutableFailure(enhanced string, err error) *failure {
	return &failure{stage: stageConnect, status: Permanent, enhanced: enhanced, err: err, addressFault: strings.HasPrefix(enhanced, "5.1.")}
}

// connectionLostFailure returns a temporary failure at the stage, for a connection that ended
// without a reply.
func connectionLostFailure(at stage, err error) *failure {
	return &failure{stage: at, err: err, enhanced: "4.4.2"}
}

// verdict returns the status for f. tryNext reports whether to try another host. relay says that
// the host is a relay.
func (f *failure) verdict(relay bool) (status Status, tryNext bool) {
	early := f.stage < stageBody
	switch {
	case f.localError:
		return f.status, false
	case f.status == Permanent && !(relay && f.stage == stageConnect):
		return Permanent, f.stage == stageConnect
	case f.reply.code == 0, f.reply.code == 421:
		return Temporary, early
	case f.stage == stageAuth, relay && f.isAboutLogin():
		return Temporary, false
	case f.reply.class() != 5:
		return Temporary, f.stage <= stageMail
	case f.stage <= stageHello && relay:
		return Temporary, true
	case f.stage <= stageHello:
		return Permanent, true
	}
	return Permanent, false
}

// isAboutLogin reports whether the reply asks for a login or says that the login is not valid (RFC
// 4954 §6).
func (f *failure) isAboutLogin() bool {
	switch f.reply.code {
	case 530, 534, 535, 538:
		return true
	}
	return f.reply.enhancedCode() == "5.7.8"
}

// recipientFault reports whether a permanent failure is about the recipient's address (RFC 3463
// §3.2, 3.3). If a reply to RCPT has no specific enhanced code, the reply code decides, unless the
// text of the reply is about something else. In replies to other commands, the reply code says
// nothing about the address.
func (f *failure) recipientFault() bool {
	status := f.reply.enhancedCode()
	switch {
	case f.reply.code == 0:
		return f.addressFault
	case f.stage < stageRcpt:
		return false
	case status == "5.1.7" || status == "5.1.8": // about the sender's address
		return false
	case status == "5.2.1" || strings.HasPrefix(status, "5.1."):
		return true
	case status == "5.4.1" && f.stage == stageRcpt: // Exchange Online means an unknown user if the text has "access denied"
		return strings.Contains(strings.ToLower(f.reply.String()), "access denied")
	case status != "" && status != "5.0.0":
		return false
	}
	return f.stage == stageRcpt && (f.reply.code == 550 || f.reply.code == 551 || f.reply.code == 553) && !f.hasOtherReason()
}

// hasOtherReason reports whether the text of a reply has another reason than a wrong address, such
// as a full mailbox or a policy.
func (f *failure) hasOtherReason() bool {
	_, means, _ := strings.Cut(msg.StatusIn(f.reply.String()), ".")
	return !strings.HasPrefix(means, "1.") && means != "2.1" && means != "0.0"
}

// enhancedFor returns the enhanced code to report together with status.
func (f *failure) enhancedFor(status Status) string {
	code := f.enhanced
	if f.reply.code != 0 {
		code = cmp.Or(f.reply.enhancedCode(), string('0'+rune(f.reply.class()))+".0.0")
	}
	if status == Temporary && !strings.HasPrefix(code, "4.") {
		_, rest, _ := strings.Cut(code, ".")
		code = "4." + rest
	}
	return code
}

func (f *failure) text() string {
	if f.err == nil {
		return f.reply.String()
	}
	return printableLine(f.err.Error(), maxReplyText)
}

// failedResult returns the result of a call that failed before it tried any host.
func (c *Client) failedResult(f *failure) Result {
	r := Result{Status: f.status, Enhanced: f.enhancedFor(f.status), Reply: f.text()}
	r.RecipientFault = r.Status == Permanent && f.addressFault
	r.Attempts = []Attempt{{Enhanced: r.Enhanced, Reply: r.Reply, At: c.now(), Err: f.err}}
	return r
}
