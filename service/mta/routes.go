package mta

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
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
	to, err := store.DomainByName.Read(tx, core.DomainOfAddress(recipient))
	switch {
	case err == nil && core.TakesMail(to):
		return route{transport: core.ViaLocal}, nil
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return route{}, err
	case s.Config.Outbound == core.ViaCapture:
		return route{transport: core.ViaCapture}, nil
	}
	mode, wants, err := s.chosen(tx, d, mailboxID)
	if err != nil {
		return route{}, err
	}
	relay := s.relays.first()
	if wants != "" {
		relay = s.relays.named(wants)
	}
	if mode == core.ViaRelay || mode == "" && relay != nil {
		return route{transport: core.ViaRelay, relay: relay, wants: wants}, nil
	}
	return route{transport: core.ViaDirect}, nil
}

// chosen is the sending mode ("": relay where there is one) and the relay ("": the first) that a
// mailbox and its domain ask for.
func (s *Service) chosen(tx *store.Tx, d *store.Domain, mailboxID string) (mode, relay string, err error) {
	if mailboxID != "" {
		mb, err := store.Mailboxes.Get(tx, mailboxID)
		if err != nil && !core.IsGone(err) {
			return "", "", err
		}
		if err == nil && mb.Relay != "" {
			return core.ViaRelay, mb.Relay, nil
		}
	}
	mode = s.Config.Outbound
	switch {
	case d == nil:
	case d.SendingMode != "":
		mode, relay = d.SendingMode, d.Relay
	case d.Relay != "":
		mode, relay = core.ViaRelay, d.Relay
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
	KindDeliver = "deliver" // to mailboxes here, and to nowhere
	KindDirect  = "direct"  // to strangers' hosts, which are to be treated gently
	KindRelay   = "relay"   // through a relay, which is there to take much
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
	kinds := map[string]string{core.ViaRelay: KindRelay, core.ViaDirect: KindDirect}
	if r.own { // a tenant named the host
		kinds[core.ViaRelay] = KindDirect
	}
	return jobs.New{AccountID: row.AccountID, Kind: cmp.Or(kinds[r.transport], KindDeliver), Lane: r.lane(row.Recipient), Args: deliverArgs{row.ID}}
}

// lane names the next hop of a recipient's mail.
func (r route) lane(recipient string) string {
	switch {
	case r.transport == core.ViaDirect:
		return "mx " + core.DomainOfAddress(recipient)
	case r.transport != core.ViaRelay:
		return "here"
	case r.own:
		return "own " + r.relay.Host
	case r.relay != nil:
		return "relay " + r.relay.Name
	}
	return "relay"
}
