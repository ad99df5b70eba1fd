package service

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

// How a message gets to a recipient.
const (
	viaLocal   = "local"   // into a mailbox of this server
	viaCapture = "capture" // nowhere
	viaRelay   = "relay"
	viaDirect  = "direct" // to the MX hosts of the recipient's domain
)

// A route is the way to one recipient, as things stand.
type route struct {
	transport string
	relay     *relay // of viaRelay; nil if there is none
	own       bool   // the relay is the sending mailbox's own server
	wants     string // the name of the relay that the mailbox or domain chose; "" where it did not
}

// route decides how mail that a mailbox ("": none) of the domain d (nil: one that is gone) sends
// gets to a recipient: to domains of ours it stays here; else capture wins over everything, then
// the relay counts that the mailbox chose, then the domain's sending mode and relay, then what the
// installation does.
func (s *Service) route(tx *store.Tx, d *store.Domain, mailboxID, recipient string) (route, error) {
	to, err := store.DomainByName.Read(tx, domainOfAddress(recipient))
	switch {
	case err == nil && takesMail(to):
		return route{transport: viaLocal}, nil
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return route{}, err
	case s.Config.Outbound == viaCapture:
		return route{transport: viaCapture}, nil
	}
	mode, wants, err := s.chosen(tx, d, mailboxID)
	if err != nil {
		return route{}, err
	}
	relay := s.relays.first()
	if wants != "" {
		relay = s.relays.named(wants)
	}
	if mode == viaRelay || mode == "" && relay != nil {
		return route{transport: viaRelay, relay: relay, wants: wants}, nil
	}
	return route{transport: viaDirect}, nil
}

// chosen is the sending mode ("": relay where there is one) and the relay ("": the first) that a
// mailbox and its domain ask for.
func (s *Service) chosen(tx *store.Tx, d *store.Domain, mailboxID string) (mode, relay string, err error) {
	if mailboxID != "" {
		mb, err := store.Mailboxes.Get(tx, mailboxID)
		if err != nil && !isGone(err) {
			return "", "", err
		}
		if err == nil && mb.Relay != "" {
			return viaRelay, mb.Relay, nil
		}
	}
	mode = s.Config.Outbound
	switch {
	case d == nil:
	case d.SendingMode != "":
		mode, relay = d.SendingMode, d.Relay
	case d.Relay != "":
		mode, relay = viaRelay, d.Relay
	}
	return mode, relay, nil
}

// missing says why a route has no relay.
func (r route) missing() string {
	if r.wants != "" {
		return fmt.Sprintf("the relay %s, which the mailbox or its domain chose, is not configured", r.wants)
	}
	return "no relay is configured, and the domain's sending mode is relay"
}

// Kinds of delivery jobs. They differ in how many of one lane, that is to one next hop, run at a
// time, and in how many of the queue's workers they may have: what waits for others must not keep
// mail from its mailbox.
const (
	kindDeliver = "deliver" // to mailboxes here, and to nowhere
	kindDirect  = "direct"  // to strangers' hosts, which are to be treated gently
	kindRelay   = "relay"   // through a relay, which is there to take much
)

const (
	localLanes  = 32
	directLanes = 5
	relayLanes  = 24

	directMost = 96
	directEach = 64 // of one account
	relayMost  = 48
)

// job is the delivery of a row on this route. Its lane is the next hop, so that a slow one holds up
// nobody else; which way it goes is decided again at each attempt.
func (r route) job(row *store.Outgoing) jobs.New {
	kinds := map[string]string{viaRelay: kindRelay, viaDirect: kindDirect}
	if r.own { // a tenant named the host
		kinds[viaRelay] = kindDirect
	}
	return jobs.New{AccountID: row.AccountID, Kind: cmp.Or(kinds[r.transport], kindDeliver), Lane: r.lane(row.Recipient), Args: deliverArgs{row.ID}}
}

// lane names the next hop of a recipient's mail.
func (r route) lane(recipient string) string {
	switch {
	case r.transport == viaDirect:
		return "mx " + domainOfAddress(recipient)
	case r.transport != viaRelay:
		return "here"
	case r.own:
		return "own " + r.relay.Host
	case r.relay != nil:
		return "relay " + r.relay.Name
	}
	return "relay"
}

// domainOfAddress is what follows the @.
func domainOfAddress(email string) string {
	_, domain, _ := msg.SplitEmail(email)
	return domain
}
