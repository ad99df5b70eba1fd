package service

import (
	"errors"

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
	relay     *relay // of viaRelay; nil if none is configured
}

// route decides how mail that the domain d (nil: one that is gone) sends gets to a recipient: to domains of ours it stays
// here; else capture wins over everything, then the domain's sending mode counts, then the installation's.
func (s *Service) route(tx *store.Tx, d *store.Domain, recipient string) (route, error) {
	to, err := store.DomainByName.Read(tx, domainOfAddress(recipient))
	switch {
	case err == nil && to.Status == "complete" && to.DNSProvider != "external":
		return route{transport: viaLocal}, nil
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return route{}, err
	case s.Config.Outbound == viaCapture:
		return route{transport: viaCapture}, nil
	}
	mode := s.Config.Outbound
	if d != nil && d.SendingMode != "" {
		mode = d.SendingMode
	}
	relay := s.relays.first()
	if mode == viaRelay || mode == "" && relay != nil {
		return route{viaRelay, relay}, nil
	}
	return route{transport: viaDirect}, nil
}

// Kinds of delivery jobs. They differ in how many of one lane, that is to one next hop, run at a time, and in how many of
// the queue's workers they may have: what waits for others must not keep mail from its mailbox.
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

// job is the delivery of a row on this route. Its lane is the next hop, so that a slow one holds up nobody else; which
// way it goes is decided again at each attempt.
func (r route) job(row *store.Outgoing) jobs.New {
	n := jobs.New{AccountID: row.AccountID, Kind: kindDeliver, Lane: "here", Args: deliverArgs{row.ID}}
	switch r.transport {
	case viaRelay:
		n.Kind, n.Lane = kindRelay, "relay"
		if r.relay != nil {
			n.Lane = "relay " + r.relay.Name
		}
	case viaDirect:
		n.Kind, n.Lane = kindDirect, "mx "+domainOfAddress(row.Recipient)
	}
	return n
}

// domainOfAddress is what follows the @.
func domainOfAddress(email string) string {
	_, domain, _ := msg.SplitEmail(email)
	return domain
}
