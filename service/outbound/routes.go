package outbound

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
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/objects"
)

// A Route is the way to one recipient, as things stand.
type Route struct {
	Transport string
	relay     *Relay // of viaRelay; nil if there is none
	own       bool   // the relay is the sending mailbox's own server
	wants     string // the name of the relay that the mailbox or domain chose; "" where it did not
	gone      bool   // the sending mailbox, whose own server it would be, was deleted
}

// RouteOf decides how mail of a row that a domain (nil: one that is gone) sends gets to its
// recipient. The simulator's recipients are played here, and to domains of ours it stays here; what
// a mailbox that lives elsewhere sends goes through its own server, to mailboxes here, too; else
// capture wins over everything, then the relay counts that the mailbox chose, then the domain's
// sending mode and relay, then what the installation does.
func (s *Service) RouteOf(tx *store.Tx, d *store.Domain, row *store.Outgoing) (Route, error) {
	if s.Simulates(row.Recipient) {
		return Route{Transport: core.ViaSimulator}, nil
	}
	to, err := store.DomainByName.Read(tx, core.DomainOfAddress(row.Recipient))
	if err != nil && !core.IsGone(err) {
		return Route{}, err
	}
	local := err == nil && to.Hosted()
	capture := s.Config.Outbound == core.ViaCapture
	external := d != nil && d.DNSProvider == store.DomainProviderExternal
	if external && capture && d.Claim != store.ClaimProven { // in whose name nobody here may be written to
		return Route{Transport: core.ViaCapture}, nil
	}
	if local && (!external || capture) {
		return Route{Transport: core.ViaLocal}, nil
	}
	if capture {
		return Route{Transport: core.ViaCapture}, nil
	}

	var mb *store.Mailbox // nil: none, or gone
	if row.MailboxID != "" {
		mb, err = store.Mailboxes.FindShared(tx, row.MailboxID)
		if err != nil {
			return Route{}, err
		}
	}
	if external {
		if mb == nil || mb.Gone() {
			return Route{Transport: core.ViaRelay, own: true, gone: true}, nil // nobody is left to send it
		}
		if mb.External == nil || mb.External.SMTP == nil {
			return Route{Transport: core.ViaRelay, own: true}, nil
		}
		at := mb.External.SMTP
		password, err := s.Keys.Open(store.ServerPlace(mb.ID, "smtp"), at.PasswordSealed)
		if err != nil {
			return Route{}, fmt.Errorf("smtp password of %s: %w", mb.Email, err)
		}
		own, err := newRelay(core.Relay{ // one that keeps Message-IDs
			Name: at.Host, Kind: "custom", Host: at.Host, Port: at.Port, TLS: at.Security, Username: at.Username, Password: string(password),
			ReturnPath: "sender", // it takes no other
		})
		return Route{Transport: core.ViaRelay, relay: own, own: true}, err
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
	var relay *Relay // nil: none is configured, or not the one that is wanted
	for _, r := range s.relays {
		if wants == "" || r.Name == wants {
			relay = r
			break
		}
	}
	if mode == core.ViaRelay || mode == "" && relay != nil {
		return Route{Transport: core.ViaRelay, relay: relay, wants: wants}, nil
	}
	return Route{Transport: core.ViaDirect}, nil
}

// missing says why a route has no relay.
func (r Route) missing() string {
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
func (r Route) job(row *store.Outgoing) jobs.New {
	kinds := map[string]string{core.ViaRelay: KindRelay, core.ViaDirect: KindDirect}
	if r.own { // a tenant named the host
		kinds[core.ViaRelay] = KindDirect
	}
	return jobs.New{AccountID: row.AccountID, Kind: cmp.Or(kinds[r.Transport], KindDeliver), Lane: r.lane(row.Recipient), Args: deliverArgs{row.ID}, Due: row.SendAt}
}

// lane names the next hop of a recipient's mail.
func (r Route) lane(recipient string) string {
	switch {
	case r.Transport == core.ViaDirect:
		return "mx " + core.DomainOfAddress(recipient)
	case r.Transport != core.ViaRelay:
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

// A Relay is a configured Relay with what its kind does to a Message-ID.
type Relay struct {
	core.Relay
	minted   *regexp.Regexp // finds the id in the answer to DATA; nil where the relay keeps ours
	template string         // the Message-ID made of it
	fields   string         // header fields that it wants
	verp     bool           // mail leaves with a return path for each recipient

	KeyID, KeySecret string // of the access key that makes the topic of its notices; "": there is none
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
func (r *Relay) controls() []string {
	var out []string
	for _, kind := range relayKinds {
		if kind.name == r.Kind {
			out = append(out, kind.controls...)
		}
	}
	return append(out, r.ControlHeaders...)
}

// ControlFields are the beginnings of header fields that no relay must find in what its users send:
// those of every kind, and what the operator names. A message may go through another relay when it
// is tried again.
func (s *Service) ControlFields() []string {
	var out []string
	for _, kind := range relayKinds {
		out = append(out, kind.controls...)
	}
	for _, relay := range s.relays {
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
func newRelay(r core.Relay) (*Relay, error) {
	out := &Relay{Relay: r}
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
		out.template = "<{1}@" + SESHost(r) + ">"
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
func (r *Relay) readAccessKey() (err error) {
	if r.AccessKeyFile == "" {
		return nil
	}
	if r.TopicARN != "" {
		return errors.New("give topic_arn or access_key_file, not both")
	}
	r.KeyID, r.KeySecret, err = objects.ReadAccessKey(r.AccessKeyFile)
	if err != nil {
		return fmt.Errorf("access_key_file: %w", err)
	}
	return nil
}

// SESHost is the domain of the Message-IDs that SES mints in the relay's region.
func SESHost(r core.Relay) string {
	region := r.Region
	if parts := strings.Split(r.Host, "."); region == "" && len(parts) == 4 && parts[2] == "amazonaws" {
		region = parts[1]
	}
	if region == "" || region == "us-east-1" {
		return "email.amazonses.com"
	}
	return region + ".amazonses.com"
}

// replaces reports whether recipients see another Message-ID than ours, so that a signature must
// not cover it.
func (r *Relay) replaces() bool { return r != nil && r.minted != nil }

// maxMinted bounds a Message-ID that a relay makes (RFC 5322 section 2.1.1).
const maxMinted = 900

// mint gives the Message-ID that recipients see, made of the relay's answer to the message; "" if
// it tells none.
func (r *Relay) mint(answer string) string {
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

func (r *Relay) hop() deliver.Relay {
	tls := r.TLS
	if tls == "" {
		tls = "starttls"
	}
	return deliver.Relay{Host: r.Host, Port: r.Port, TLS: tls, Username: r.Username, Password: r.Password}
}

// newRelays leaves out relays that cannot work.
func newRelays(list []core.Relay, log *slog.Logger) []*Relay {
	var out []*Relay
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

// Relays are those that are configured, in the order of the configuration.
func (s *Service) Relays() []*Relay { return s.relays }
