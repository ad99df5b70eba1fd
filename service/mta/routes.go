package mta

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/objects"
)

// A route is the way to one recipient, as things stand.
type route struct {
	transport string
	relay     *relay // of viaRelay; nil if there is none
	own       bool   // the relay is the sending mailbox's own server
	wants     string // the name of the relay that the mailbox or domain chose; "" where it did not
	gone      bool   // the sending mailbox, whose own server it would be, was deleted
}

// routeOf decides how mail of a row that a domain (nil: one that is gone) sends gets to its
// recipient. The simulator's recipients are played here, and to domains of ours it stays here; what
// a mailbox that lives elsewhere sends goes through its own server, to mailboxes here, too; else
// capture wins over everything, then the relay counts that the mailbox chose, then the domain's
// sending mode and relay, then what the installation does.
func (s *Service) routeOf(tx *store.Tx, d *store.Domain, row *store.Outgoing) (route, error) {
	if s.Simulates(row.Recipient) {
		return route{transport: core.ViaSimulator}, nil
	}
	to, err := store.DomainByName.Read(tx, core.DomainOfAddress(row.Recipient))
	if err != nil && !core.IsGone(err) {
		return route{}, err
	}
	local := err == nil && to.Hosted()
	capture := s.Config.Outbound == core.ViaCapture
	external := d != nil && d.DNSProvider == store.DomainProviderExternal
	if external && capture && d.Claim != store.ClaimProven { // in whose name nobody here may be written to
		return route{transport: core.ViaCapture}, nil
	}
	if local && (!external || capture) {
		return route{transport: core.ViaLocal}, nil
	}
	if capture {
		return route{transport: core.ViaCapture}, nil
	}

	var mb *store.Mailbox // nil: none, or gone
	if row.MailboxID != "" {
		mb, err = store.Mailboxes.FindShared(tx, row.MailboxID)
		if err != nil {
			return route{}, err
		}
	}
	if external {
		if mb == nil || mb.Gone() {
			return route{transport: core.ViaRelay, own: true, gone: true}, nil // nobody is left to send it
		}
		if mb.External == nil || mb.External.SMTP == nil {
			return route{transport: core.ViaRelay, own: true}, nil
		}
		at := mb.External.SMTP
		password, err := s.Keys.Open(store.ServerPlace(mb.ID, "smtp"), at.PasswordSealed)
		if err != nil {
			return route{}, fmt.Errorf("smtp password of %s: %w", mb.Email, err)
		}
		own, err := newRelay(core.Relay{ // one that keeps Message-IDs
			Name: at.Host, Kind: "custom", Host: at.Host, Port: at.Port, TLS: at.Security, Username: at.Username, Password: string(password),
			ReturnPath: "sender", // it takes no other
		})
		return route{transport: core.ViaRelay, relay: own, own: true}, err
	}

	// The sending mode ("": relay where there is one) and the relay ("": the first).
	mode, wants := s.Config.Outbound, ""
	switch {
	case mb != nil && mb.Relay != "":
		mode, wants = core.ViaRelay, mb.Relay
	case d == nil:
	case d.SendingMode != "":
		mode, wants = d.SendingMode, d.Relay
	case d.Relay != "":
		mode, wants = core.ViaRelay, d.Relay
	}
	var relay *relay // nil: none is configured, or not the one that is wanted
	for _, r := range s.relays {
		if wants == "" || r.Name == wants {
			relay = r
			break
		}
	}
	if mode == core.ViaRelay || mode == "" && relay != nil {
		return route{transport: core.ViaRelay, relay: relay, wants: wants}, nil
	}
	return route{transport: core.ViaDirect}, nil
}

// missing says why a route has no relay.
func (r route) missing() string {
	if r.own {
		return "the mailbox has no server that sends for it"
	}
	if r.wants != "" {
		return fmt.Sprintf("the relay %s, which the mailbox or its domain chose, is not configured", r.wants)
	}
	return "no relay is configured, and the domain's sending mode is relay"
}

// Kinds of delivery jobs. They differ in how many of one lane, that is to one next hop, run at a
// time, and in how many of the queue's workers they may have: what waits for others must not keep
// mail from its mailbox.
const (
	KindDeliver = "deliver" // to mailboxes here, and to nowhere
	KindDirect  = "direct"  // to strangers' hosts, which are to be treated gently
	KindRelay   = "relay"   // through a relay, which is there to take much
)

const (
	localLanes  = 32
	directLanes = 5
	relayLanes  = 36

	directMost = 96
	directEach = 64 // of one account
	relayMost  = 64
)

// job is the delivery of a row on this route. Its lane is the next hop, so that a slow one holds up
// nobody else; which way it goes is decided again at each attempt.
func (r route) job(row *store.Outgoing) jobs.New {
	kinds := map[string]string{core.ViaRelay: KindRelay, core.ViaDirect: KindDirect}
	if r.own { // a tenant named the host
		kinds[core.ViaRelay] = KindDirect
	}
	return jobs.New{AccountID: row.AccountID, Kind: cmp.Or(kinds[r.transport], KindDeliver), Lane: r.lane(row.Recipient), Args: deliverArgs{row.ID}, Due: row.SendAt}
}

// lane names the next hop of a recipient's mail.
func (r route) lane(recipient string) string {
	switch {
	case r.transport == core.ViaDirect:
		return "mx " + core.DomainOfAddress(recipient)
	case r.transport != core.ViaRelay:
		return "here"
	case r.own && r.relay != nil:
		return "own " + r.relay.Host
	case r.own:
		return "own"
	case r.relay != nil:
		return "relay " + r.relay.Name
	}
	return "relay"
}

// A relay is a configured Relay with what its kind does to a Message-ID.
type relay struct {
	core.Relay
	minted   *regexp.Regexp // finds the id in the answer to DATA; nil where the relay keeps ours
	template string         // the Message-ID made of it
	fields   string         // header fields that it wants
	verp     bool           // mail leaves with a return path for each recipient

	keyID, keySecret string // of the access key that makes the topic of its notices; "": there is none

	Notices feedback.Reader // nil: it is not configured for them
}

// relayKinds are the kinds of relays. For each, controls names how the header fields begin that it
// takes as commands from whoever may send through it: more recipients, another sender of bounces,
// past its own suppression list. Only the operator may give such commands. SES sends bounces to the
// address in Return-Path.
var relayKinds = []struct {
	name     string
	controls []string
}{
	{"ses", []string{"x-ses-", "return-path"}},
	{"postmark", []string{"x-pm-", "x-postmark-"}},
	{"mailgun", []string{"x-mailgun-"}},
	{"sendgrid", []string{"x-smtpapi", "x-sendgrid-", "x-sg-"}},
	{"custom", nil}, // control_headers alone
}

// RelayKinds names the kinds of relays.
func RelayKinds() []string {
	var out []string
	for _, kind := range relayKinds {
		out = append(out, kind.name)
	}
	return out
}

// controls are the beginnings of header fields that the relay must not find in what its users send.
func (r *relay) controls() []string {
	var out []string
	for _, kind := range relayKinds {
		if kind.name == r.Kind {
			out = append(out, kind.controls...)
		}
	}
	return append(out, r.ControlHeaders...)
}

// controls are those of every kind, and what the operator names: a message may go through another
// relay when it is tried again.
func (r relays) controls() []string {
	var out []string
	for _, kind := range relayKinds {
		out = append(out, kind.controls...)
	}
	for _, relay := range r {
		out = append(out, relay.ControlHeaders...)
	}
	return out
}

// neededFields are header fields that a message cannot do without.
var neededFields = []string{
	"from", "sender", "to", "cc", "reply-to", "subject", "date", "message-id", "in-reply-to", "references", "received",
	"mime-version", "content-type", "content-transfer-encoding", "dkim-signature", "list-unsubscribe", "auto-submitted",
}

// checkControls says what is wrong with the control_headers of a configuration.
func checkControls(list []string) error {
	for _, prefix := range list {
		notName := func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' } // RFC 5322 section 3.6.8
		if prefix == "" || len(prefix) > 100 || strings.ContainsFunc(prefix, notName) {
			return fmt.Errorf("control_headers: %.100q is not the beginning of a header field's name", prefix)
		}
		for _, name := range neededFields {
			if msg.HasFieldPrefix(name, []string{prefix}) {
				return fmt.Errorf("control_headers: %q would take %s out of every message", prefix, name)
			}
		}
	}
	return nil
}

// sesAnswer is what Amazon SES says to a message that it takes.
const sesAnswer = `(?i)^250 (?:2\.\d+\.\d+ )?ok:? ([^\s<>@]+)`

// CheckRelay says what is wrong with the configuration of a relay.
func CheckRelay(r core.Relay) error {
	_, err := newRelay(r)
	return err
}

// newRelay says what is wrong with a configuration that nobody has checked.
func newRelay(r core.Relay) (*relay, error) {
	out := &relay{Relay: r}
	var err error
	// The others write return paths of their own, and look at ours only to see that it is of a
	// sender whom they know.
	out.verp = r.Kind == "custom"
	switch r.ReturnPath {
	case "":
	case "verp", "sender":
		out.verp = r.ReturnPath == "verp"
	default:
		return nil, fmt.Errorf("relay %s: return_path is %q, not sender or verp", r.Name, r.ReturnPath)
	}
	if err := checkControls(r.ControlHeaders); err != nil {
		return nil, fmt.Errorf("relay %s: %w", r.Name, err)
	}
	if !slices.Contains(RelayKinds(), r.Kind) {
		return nil, fmt.Errorf("relay %s: kind is %q, not one of %s", r.Name, r.Kind, strings.Join(RelayKinds(), ", "))
	}
	if r.AccessKeyFile != "" && r.Kind != "ses" {
		return nil, fmt.Errorf("relay %s: access_key_file is for kind ses", r.Name)
	}
	switch r.Kind {
	case "ses":
		if err := out.readAccessKey(); err != nil {
			return nil, fmt.Errorf("relay %s: %w", r.Name, err)
		}
		out.minted, err = regexp.Compile(sesAnswer)
		out.template = "<{1}@" + sesHost(r) + ">"
	case "postmark":
		out.fields = "X-PM-KeepID: true\r\n"
	case "custom":
		out.template = r.IDTemplate
		if (r.IDPattern == "") != (r.IDTemplate == "") {
			return nil, fmt.Errorf("relay %s: id_pattern and id_template go together", r.Name)
		}
		if r.IDPattern != "" {
			out.minted, err = regexp.Compile(r.IDPattern)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("relay %s: id_pattern: %w", r.Name, err)
	}
	return out, nil
}

// readAccessKey reads the key that makes the topic of the relay's notices, if there is to be one.
func (r *relay) readAccessKey() (err error) {
	if r.AccessKeyFile == "" {
		return nil
	}
	if r.TopicARN != "" {
		return errors.New("give topic_arn or access_key_file, not both")
	}
	r.keyID, r.keySecret, err = objects.ReadAccessKey(r.AccessKeyFile)
	if err != nil {
		return fmt.Errorf("access_key_file: %w", err)
	}
	return nil
}

// sesHost is the domain of the Message-IDs that SES mints in the relay's region.
func sesHost(r core.Relay) string {
	region := r.Region
	if parts := strings.Split(r.Host, "."); region == "" && len(parts) == 4 && parts[2] == "amazonaws" {
		region = parts[1]
	}
	if region == "" || region == "us-east-1" {
		return "email.amazonses.com"
	}
	return region + ".amazonses.com"
}

// replaces tells whether recipients see another Message-ID than ours, so that a signature must not
// cover it.
func (r *relay) replaces() bool { return r != nil && r.minted != nil }

// maxMinted bounds a Message-ID that a relay makes (RFC 5322 section 2.1.1).
const maxMinted = 900

// mint gives the Message-ID that recipients see, made of the relay's answer to the message; "" if
// it tells none.
func (r *relay) mint(answer string) string {
	if !r.replaces() {
		return ""
	}
	groups := r.minted.FindStringSubmatch(answer)
	if groups == nil {
		return ""
	}
	pairs := make([]string, 0, 2*len(groups))
	for i, g := range groups {
		pairs = append(pairs, "{"+strconv.Itoa(i)+"}", g)
	}
	id := core.Bracketed(strings.NewReplacer(pairs...).Replace(r.template))
	inner := id[1 : len(id)-1]
	if inner == "" || len(id) > maxMinted || strings.ContainsFunc(inner, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '<' || c == '>' }) {
		return ""
	}
	return id
}

func (r *relay) hop() deliver.Relay {
	tls := r.TLS
	if tls == "" {
		tls = "starttls"
	}
	return deliver.Relay{Host: r.Host, Port: r.Port, TLS: tls, Username: r.Username, Password: r.Password}
}

// relays are those that are configured, in the order of the configuration.
type relays []*relay

// newRelays leaves out relays that cannot work.
func newRelays(list []core.Relay, log *slog.Logger) relays {
	var out relays
	for _, r := range list {
		made, err := newRelay(r)
		if err != nil {
			log.Error("a relay is not used", "error", err)
			continue
		}
		out = append(out, made)
	}
	return out
}
