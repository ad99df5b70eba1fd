package deliver

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
)

// Status is the outcome for a message.
type Status int

const (
	Temporary Status = iota // not delivered, may be retried later
	Delivered               // a server accepted the message
	Permanent               // failed permanently
)

func (s Status) String() string {
	return [...]string{"temporary", "delivered", "permanent"}[s]
}

// ErrOutcomeUnknown is the error of an Attempt if the connection was lost between the end of the
// message and the reply to it. The host may have accepted the message. The failure is temporary,
// since a duplicate is better than a loss (RFC 5321 §4.2.5).
var ErrOutcomeUnknown = errors.New("no answer to the end of the message; it may have been delivered")

// Attempt is the attempt to deliver to one address of a host.
type Attempt struct {
	Host string // MX host, relay or IP address
	IP   string // "" if none was found
	TLS  string // version and cipher, such as "TLS 1.3 TLS_AES_128_GCM_SHA256"; "" for plain text
	// Authenticated is how the host was authenticated: ByDANE, BySTS, ByCertificate, or "" if it
	// was not.
	Authenticated string
	Code          int    // of the reply that decided, 0 if there was none
	Enhanced      string // never empty
	Reply         string // the reply, or the error if there is none: one printable line of at most 1 KiB
	At            time.Time
	Err           error // nil if the host's reply is the whole reason
}

// Result is the result of a call. Host, TLS, Code, Enhanced and Reply are those of the attempt that
// decided.
type Result struct {
	Status   Status
	Code     int    // SMTP reply code; 0 if Reply is our own error and not a server's reply
	Enhanced string // RFC 3463; "2.0.0", "4.0.0" or "5.0.0" if the server sent none; begins with 4 if Status is Temporary
	Reply    string // one printable line of at most 1 KiB, including the code
	Host     string
	TLS      string
	Attempts []Attempt
	Sessions []Session // each new connection of Direct, for reports on TLS
	// DSN reports that the host offers DSN, so that it must notify the sender of success (RFC 3461
	// section 5.2.1).
	DSN bool
	// RecipientFault reports that a permanent failure is about the address itself and not about
	// content, policy or connection. So nothing more should be sent to it.
	RecipientFault bool
}

// AnsweredBy returns the host that sent Reply, "" if Reply is our own error.
func (r Result) AnsweredBy() string {
	if r.Code == 0 {
		return ""
	}
	return r.Host
}

// stage is the stage that an attempt has reached. Stages are ordered and compared.
type stage int

const (
	stageConnect stage = iota
	stageHello         // greeting, EHLO, STARTTLS
	stageAuth
	stageMail
	stageRcpt
	stageData // the DATA command
	stageBody // the message is being sent
	stageEnd  // the final dot has been sent
)

// failure is the reason why an attempt failed: a reply of the host, or err with our own status and
// code.
type failure struct {
	stage        stage
	reply        reply
	err          error  // with a reply: an explanation for the operator
	status       Status // used if there is no reply; never Delivered
	enhanced     string // used if there is no reply
	handshake    bool   // TLS failed; plain text may work
	tls          string // result type for a report on TLS (RFC 8460 section 4.3)
	localError   bool   // the message cannot be read, so no other host is tried
	addressFault bool   // err is about the recipient's address
}

// unroutable returns a permanent failure before any host was contacted.
func unroutable(enhanced string, err error) *failure {
	return &failure{stage: stageConnect, status: Permanent, enhanced: enhanced, err: err, addressFault: strings.HasPrefix(enhanced, "5.1.")}
}

// connectionLost returns a failure without a reply.
func connectionLost(at stage, err error) *failure {
	return &failure{stage: at, err: err, enhanced: "4.4.2"}
}

// verdict returns the status of f. next reports whether to try the next host.
func (f *failure) verdict(relay bool) (status Status, next bool) {
	early := f.stage < stageBody
	switch {
	case f.localError:
		return f.status, false
	case f.status == Permanent && !(relay && f.stage == stageConnect):
		return Permanent, f.stage == stageConnect
	case f.reply.code == 0, f.reply.code == 421:
		return Temporary, early
	case f.stage == stageAuth, relay && f.isLogin():
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

// isLogin reports whether the reply requires a login or another one (RFC 4954 §6).
func (f *failure) isLogin() bool {
	switch f.reply.code {
	case 530, 534, 535, 538:
		return true
	}
	return f.reply.enhanced() == "5.7.8"
}

// recipientFault reports whether a permanent failure is about the recipient's address (RFC 3463
// §3.2, 3.3). For a reply to RCPT without a specific enhanced code, the reply code decides, unless
// the text is about something else. At other stages a reply code says nothing about the address.
func (f *failure) recipientFault() bool {
	status := f.reply.enhanced()
	switch {
	case f.reply.code == 0:
		return f.addressFault
	case f.stage < stageRcpt:
		return false
	case status == "5.1.7" || status == "5.1.8": // the sender's address
		return false
	case status == "5.2.1" || strings.HasPrefix(status, "5.1."):
		return true
	case status == "5.4.1" && f.stage == stageRcpt: // with this text, Exchange Online means an unknown user
		return strings.Contains(strings.ToLower(f.reply.String()), "access denied")
	case status != "" && status != "5.0.0":
		return false
	}
	return f.stage == stageRcpt && (f.reply.code == 550 || f.reply.code == 551 || f.reply.code == 553) && !f.isNotAddress()
}

// isNotAddress reports whether the text of a reply has a reason other than an address that does not
// exist, such as a full mailbox or a policy.
func (f *failure) isNotAddress() bool {
	_, means, _ := strings.Cut(msg.StatusIn(f.reply.String()), ".")
	return !strings.HasPrefix(means, "1.") && means != "2.1" && means != "0.0"
}

// enhancedFor returns the enhanced code to report with a status.
func (f *failure) enhancedFor(status Status) string {
	code := f.enhanced
	if f.reply.code != 0 {
		code = cmp.Or(f.reply.enhanced(), string('0'+rune(f.reply.class()))+".0.0")
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
	return bounded(f.err.Error(), maxReplyText)
}

// refuse returns the result of a call that failed before any host was tried.
func (c *Client) refuse(f *failure) Result {
	r := Result{Status: f.status, Enhanced: f.enhancedFor(f.status), Reply: f.text()}
	r.RecipientFault = r.Status == Permanent && f.addressFault
	r.Attempts = []Attempt{{Enhanced: r.Enhanced, Reply: r.Reply, At: c.now(), Err: f.err}}
	return r
}
