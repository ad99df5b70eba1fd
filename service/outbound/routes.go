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
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/objects"
)

// A Route is how a message reaches one recipient, by the current configuration.
type Route struct {
	Transport string
	relay     *Relay // set for core.ViaRelay; nil if no such relay is configured
	own       bool   // the relay is the sending mailbox's own server
	wants     string // name of the relay that the mailbox or domain chose; "" if none
	gone      bool   // the sending mailbox, which had its own server, was deleted
}

// RouteOf decides how a row's mail from domain d reaches its recipient; d is nil if it was deleted.
// The simulator answers for its own addresses, and mail to hosted domains stays here. Mail of an
// external mailbox goes through its own server, even to mailboxes here. For all other mail, the
// first of these applies: capture, the relay that the mailbox chose, the domain's sending mode and
// relay, the configuration.
func (s *Service) RouteOf(tx *store.Tx, d *store.Domain, row *store.Outgoing) (Route, error) {
	if s.Simulates(row.Recipient) {
		return Route{Transport: core.ViaSimulator}, nil
	}
	to, err := store.DomainByName.Read(tx, core.DomainOfAddress(row.Recipient))
	if err != nil && !core.IsGone(err) {
		return Route{}, err
	}
	local := err == nil && to.Hosted()
	settings := s.Settings()
	capture := settings.Outbound == core.ViaCapture
	external := d != nil && d.DNSProvider == store.DomainProviderExternal
	if external && capture && d.Claim != store.ClaimProven { // a domain without proven claim must not write to mailboxes here
		return Route{Transport: core.ViaCapture}, nil
	}
	if local && (!external || capture) {
		return Route{Transport: core.ViaLocal}, nil
	}
	if capture {
		return Route{Transport: core.ViaCapture}, nil
	}

	var mb *store.Mailbox // nil if there is none or it was deleted
	if row.MailboxID != "" {
		mb, err = store.Mailboxes.FindShared(tx, row.MailboxID)
		if err != nil {
			return Route{}, err
		}
	}
	if external {
		if mb == nil || mb.Gone() {
			return Route{Transport: core.ViaRelay, own: true, gone: true}, nil
		}
		if mb.External == nil || mb.External.SMTP == nil {
			return Route{Transport: core.ViaRelay, own: true}, nil
		}
		at := mb.External.SMTP
		password, err := s.Keys.Open(store.ServerBinding(mb.ID, "smtp"), at.PasswordSealed)
		if err != nil {
			return Route{}, fmt.Errorf("unseal SMTP password of %s: %w", mb.Email, err)
		}
		own, err := newRelay(core.Relay{ // without an id_pattern: the server keeps Message-IDs
			Name: at.Host, Kind: "custom", Host: at.Host, Port: at.Port, TLS: at.Security, Username: at.Username, Password: string(password),
			ReturnPath: "sender", // the server accepts no other sender
		})
		return Route{Transport: core.ViaRelay, relay: own, own: true}, err
	}

	// mode is the sending mode; "" means through a relay if one is configured. wants is the name of
	// the relay; "" means the first one.
	mode, wants := settings.Outbound, ""
	switch {
	case mb != nil && mb.Relay != "":
		mode, wants = core.ViaRelay, mb.Relay
	case d == nil:
	case d.SendingMode != "":
		mode, wants = d.SendingMode, d.Relay
	case d.Relay != "":
		mode, wants = core.ViaRelay, d.Relay
	}
	var relay *Relay // nil if no relay is configured, or not the one that is wanted
	for _, r := range s.plan.Load().relays {
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

// missingRelayText explains why a route has no relay.
func (r Route) missingRelayText() string {
	if r.own {
		return "the mailbox has no server that sends for it"
	}
	if r.wants != "" {
		return fmt.Sprintf("the relay %s, which the mailbox or its domain chose, is not configured", r.wants)
	}
	return "no relay is configured, and the domain's sending mode is relay"
}

// Kinds of delivery jobs. Each limits how many jobs run at a time in one lane, which is one next
// hop, and how many of the queue's workers they may use. So slow hosts do not hold up local mail.
const (
	KindDeliver = "deliver" // to mailboxes here, and captured mail
	KindDirect  = "direct"  // to MX hosts of recipients and servers of tenants, few at a time
	KindRelay   = "relay"   // through a relay, many at a time
)

const (
	localPerLane  = 32
	directPerLane = 5
	relayPerLane  = 36

	maxDirectJobs          = 96
	maxDirectJobsOfAccount = 64 // for one account
	maxRelayJobs           = 64
)

// newJob returns the delivery job of a row on this route. Its lane is the next hop, so that a slow
// hop delays only its own mail. Each attempt decides the route again.
func (r Route) newJob(row *store.Outgoing) jobs.New {
	kinds := map[string]string{core.ViaRelay: KindRelay, core.ViaDirect: KindDirect}
	if r.own { // a tenant chose the host
		kinds[core.ViaRelay] = KindDirect
	}
	return jobs.New{AccountID: row.AccountID, Kind: cmp.Or(kinds[r.Transport], KindDeliver), Lane: r.lane(row.Recipient), Args: deliverArgs{row.ID}, Due: row.SendAt}
}

// lane returns the name of the next hop of a recipient's mail; it is the lane of the delivery job.
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

// A Relay is a configured relay, with the header fields that it needs and how it replaces the
// Message-ID.
type Relay struct {
	core.Relay
	idPattern *regexp.Regexp // finds the new ID in the answer to DATA; nil if the relay keeps ours
	template  string         // the format of the new Message-ID
	fields    string         // header fields that the relay expects
	verp      bool           // each recipient gets its own return path

	KeyID, KeySecret string // the access key that creates the SNS topic of its notices; "": none
}

// relayKinds are the kinds of relays. controls are prefixes of header fields that the relay takes
// as commands from anyone who sends through it: to add recipients, redirect bounces, or bypass its
// suppression list. Only the operator may give such commands. Return-Path is among those of SES,
// which sends bounces to the address in it.
var relayKinds = []struct {
	name     string
	controls []string
}{
	{"ses", []string{"x-ses-", "return-path"}},
	{"postmark", []string{"x-pm-", "x-postmark-"}},
	{"mailgun", []string{"x-mailgun-"}},
	{"sendgrid", []string{"x-smtpapi", "x-sendgrid-", "x-sg-"}},
	{"custom", nil}, // only those that control_headers names
}

// RelayKinds lists the names of the kinds of relays.
func RelayKinds() []string {
	var out []string
	for _, kind := range relayKinds {
		out = append(out, kind.name)
	}
	return out
}

// controlPrefixes returns the prefixes of header fields that must not reach the relay in users'
// mail.
func (r *Relay) controlPrefixes() []string {
	var out []string
	for _, kind := range relayKinds {
		if kind.name == r.Kind {
			out = append(out, kind.controls...)
		}
	}
	return append(out, r.ControlHeaders...)
}

// ControlFields returns the prefixes of header fields that must not reach any relay in users' mail:
// those of every kind, and those that the operator configured. A retry may go through another
// relay, so all count.
func (s *Service) ControlFields() []string {
	var out []string
	for _, kind := range relayKinds {
		out = append(out, kind.controls...)
	}
	for _, relay := range s.plan.Load().relays {
		out = append(out, relay.ControlHeaders...)
	}
	return out
}

// requiredFields are header fields that must not be removed from a message.
var requiredFields = []string{
	"from", "sender", "to", "cc", "reply-to", "subject", "date", "message-id", "in-reply-to", "references", "received",
	"mime-version", "content-type", "content-transfer-encoding", "dkim-signature", "list-unsubscribe", "auto-submitted",
}

// checkControlHeaders validates the control_headers of a configuration.
func checkControlHeaders(list []string) error {
	for _, prefix := range list {
		notName := func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' } // RFC 5322 section 3.6.8
		if prefix == "" || len(prefix) > 100 || strings.ContainsFunc(prefix, notName) {
			return fmt.Errorf("control_headers: %.100q is not the beginning of a header field's name", prefix)
		}
		for _, name := range requiredFields {
			if msg.HasFieldPrefix(name, []string{prefix}) {
				return fmt.Errorf("control_headers: %q would remove %s from every message", prefix, name)
			}
		}
	}
	return nil
}

// sesAnswerPattern matches the answer of Amazon SES to an accepted message.
const sesAnswerPattern = `(?i)^250 (?:2\.\d+\.\d+ )?ok:? ([^\s<>@]+)`

// CheckRelay validates the configuration of a relay.
func CheckRelay(r core.Relay) error {
	_, err := newRelay(r)
	return err
}

// newRelay makes a Relay. The error says what is wrong with its configuration.
func newRelay(r core.Relay) (*Relay, error) {
	out := &Relay{Relay: r}
	var err error
	// Other kinds set their own return path, and use ours only to check that they know the sender.
	out.verp = r.Kind == "custom"
	switch r.ReturnPath {
	case "":
	case "verp", "sender":
		out.verp = r.ReturnPath == "verp"
	default:
		return nil, fmt.Errorf("relay %s: return_path is %q, not sender or verp", r.Name, r.ReturnPath)
	}
	if err := checkControlHeaders(r.ControlHeaders); err != nil {
		return nil, fmt.Errorf("relay %s: %w", r.Name, err)
	}
	if !slices.Contains(RelayKinds(), r.Kind) {
		return nil, fmt.Errorf("relay %s: kind is %q, not one of %s", r.Name, r.Kind, strings.Join(RelayKinds(), ", "))
	}
	if r.AccessKeyFile != "" && r.Kind != "ses" {
		return nil, fmt.Errorf("relay %s: access_key_file is only for kind ses", r.Name)
	}
	switch r.Kind {
	case "ses":
		if err := out.readAccessKey(); err != nil {
			return nil, fmt.Errorf("relay %s: %w", r.Name, err)
		}
		out.idPattern, err = regexp.Compile(sesAnswerPattern)
		out.template = "<{1}@" + SESHost(r) + ">"
	case "postmark":
		out.fields = "X-PM-KeepID: true\r\n"
	case "custom":
		out.template = r.IDTemplate
		if (r.IDPattern == "") != (r.IDTemplate == "") {
			return nil, fmt.Errorf("relay %s: id_pattern and id_template go together", r.Name)
		}
		if r.IDPattern != "" {
			out.idPattern, err = regexp.Compile(r.IDPattern)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("relay %s: id_pattern: %w", r.Name, err)
	}
	return out, nil
}

// readAccessKey reads the access key that creates the topic of the relay's notices, if one is
// configured.
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

// SESHost returns the domain of the Message-IDs that SES assigns in the relay's region.
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

// replacesID reports whether the relay replaces the Message-ID, so that a signature must not cover
// it.
func (r *Relay) replacesID() bool { return r != nil && r.idPattern != nil }

// maxAssignedID is the maximum length of a Message-ID that a relay assigns (RFC 5322 section
// 2.1.1).
const maxAssignedID = 900

// assignedID returns the Message-ID that recipients see, from the relay's answer to the message; ""
// if the relay assigned none.
func (r *Relay) assignedID(answer string) string {
	if !r.replacesID() {
		return ""
	}
	groups := r.idPattern.FindStringSubmatch(answer)
	if groups == nil {
		return ""
	}
	pairs := make([]string, 0, 2*len(groups))
	for i, g := range groups {
		pairs = append(pairs, "{"+strconv.Itoa(i)+"}", g)
	}
	id := core.Bracketed(strings.NewReplacer(pairs...).Replace(r.template))
	inner := id[1 : len(id)-1]
	if inner == "" || len(id) > maxAssignedID || strings.ContainsFunc(inner, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '<' || c == '>' }) {
		return ""
	}
	return id
}

// newRelays makes the relays, and logs and skips those with an invalid configuration.
func newRelays(list []core.Relay, log *slog.Logger) []*Relay {
	var out []*Relay
	for _, r := range list {
		made, err := newRelay(r)
		if err != nil {
			log.Error("skip a relay with an invalid configuration", "error", err)
			continue
		}
		out = append(out, made)
	}
	return out
}

// Relays returns the usable relays in the order of the configuration.
func (s *Service) Relays() []*Relay { return s.plan.Load().relays }
