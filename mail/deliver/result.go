package deliver

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
)

// Status is what came of a message.
type Status int

const (
	Temporary Status = iota // not delivered, to be tried again later
	Delivered               // a server took it over
	Permanent               // refused for good
)

func (s Status) String() string {
	return [...]string{"temporary", "delivered", "permanent"}[s]
}

// ErrOutcomeUnknown is in an Attempt whose connection was lost between the end of the message and
// its answer: the host may have taken it. It counts as temporary, since a duplicate is better than
// a loss (RFC 5321 §4.2.5).
var ErrOutcomeUnknown = errors.New("no answer to the end of the message; it may have been delivered")

// Attempt is one address tried.
type Attempt struct {
	Host string // MX host, relay or IP address
	IP   string // "" if none was found
	TLS  string // version and cipher, as "TLS 1.3 TLS_AES_128_GCM_SHA256"; "" is plain
	// Authenticated says what vouched for the host: ByDANE, BySTS, ByCertificate, or "" for
	// nothing.
	Authenticated string
	Code          int    // of the reply that decided, 0 if there was none
	Enhanced      string // never empty
	Reply         string // the reply or, without one, what went wrong: one printable line of at most 1 KiB
	At            time.Time
	Err           error // nil if the host's reply says it all
}

// Result is what came of a call. Host, TLS, Code, Enhanced and Reply are those of the attempt that
// decided.
type Result struct {
	Status   Status
	Code     int    // SMTP reply code; 0 means that Reply is our own finding, no server's
	Enhanced string // RFC 3463, "2.0.0", "4.0.0" or "5.0.0" where the server gave none; begins with 4 when Status is Temporary
	Reply    string // one printable line of at most 1 KiB, the code included
	Host     string
	TLS      string
	Attempts []Attempt
	Sessions []Session // each fresh connection of Direct, for reports on TLS
	// DSN says that the host took over the duty to tell the sender of success (RFC 3461 section
	// 5.2.1).
	DSN bool
	// RecipientFault says that a permanent failure concerns the address itself, so that nothing
	// more should be sent there, and not content, policy or connection.
	RecipientFault bool
}

// AnsweredBy is the host whose reply the result shows; "" where Reply is our own finding.
func (r Result) AnsweredBy() string {
	if r.Code == 0 {
		return ""
	}
	return r.Host
}

// stage is how far an attempt came; the order matters.
type stage int

const (
	stageConnect stage = iota
	stageHello         // greeting, EHLO, STARTTLS
	stageAuth
	stageMail
	stageRcpt
	stageData // the DATA command
	stageBody // the message is on its way
	stageEnd  // the final dot has been sent
)

// failure is why an attempt did not deliver: a reply of the host, or err with a status and code of
// our own.
type failure struct {
	stage     stage
	reply     reply
	err       error  // with a reply: what it means to the operator
	status    Status // where there is no reply; Delivered does not occur
	enhanced  string // where there is no reply
	handshake bool   // TLS failed; plain may work
	tls       string // what a report on TLS calls it (RFC 8460 section 4.3)
	local     bool   // the message cannot be read; no other host helps
	fault     bool   // err concerns the recipient's address
}

// unroutable is a permanent failure before any host was asked.
func unroutable(enhanced string, err error) *failure {
	return &failure{stage: stageConnect, status: Permanent, enhanced: enhanced, err: err, fault: strings.HasPrefix(enhanced, "5.1.")}
}

// connectionLost is a failure without a reply.
func connectionLost(at stage, err error) *failure {
	return &failure{stage: at, err: err, enhanced: "4.4.2"}
}

// verdict decides the status of f, and whether another host may do better.
func (f *failure) verdict(relay bool) (status Status, next bool) {
	early := f.stage < stageBody
	switch {
	case f.local:
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

// isLogin reports whether the reply asks for another login (RFC 4954 §6).
func (f *failure) isLogin() bool {
	switch f.reply.code {
	case 530, 534, 535, 538:
		return true
	}
	return f.reply.enhanced() == "5.7.8"
}

// recipientFault reads a permanent failure as one of the address (RFC 3463 §3.2, 3.3). A reply to
// RCPT without a telling enhanced code is judged by its code, unless its words speak of something
// else; at other stages a code says nothing about the address.
func (f *failure) recipientFault() bool {
	status := f.reply.enhanced()
	switch {
	case f.reply.code == 0:
		return f.fault
	case f.stage < stageRcpt:
		return false
	case status == "5.1.7" || status == "5.1.8": // the sender's address
		return false
	case status == "5.2.1" || strings.HasPrefix(status, "5.1."):
		return true
	case status == "5.4.1" && f.stage == stageRcpt: // with these words, Exchange Online's way to say that it has no such user
		return strings.Contains(strings.ToLower(f.reply.String()), "access denied")
	case status != "" && status != "5.0.0":
		return false
	}
	return f.stage == stageRcpt && (f.reply.code == 550 || f.reply.code == 551 || f.reply.code == 553) && !f.isNotAddress()
}

// isNotAddress reports whether the words of a reply say that a mailbox is full or that we are not
// welcome, say: they are about no address that does not exist.
func (f *failure) isNotAddress() bool {
	_, means, _ := strings.Cut(msg.StatusIn(f.reply.String()), ".")
	return !strings.HasPrefix(means, "1.") && means != "2.1" && means != "0.0"
}

// enhancedFor returns the enhanced code to report for a status.
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

// refuse is the result of a call that came to no host.
func (c *Client) refuse(f *failure) Result {
	r := Result{Status: f.status, Enhanced: f.enhancedFor(f.status), Reply: f.text()}
	r.RecipientFault = r.Status == Permanent && f.fault
	r.Attempts = []Attempt{{Enhanced: r.Enhanced, Reply: r.Reply, At: c.now(), Err: f.err}}
	return r
}
