package mta

import (
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// addForward sends a message that arrives on to the destination's other address. It goes out as it
// came: not signed by us, so that its author's signature stays what counts, but sealed (RFC 8617),
// so that what we found out about where it came from goes with it, and with a rewritten return path
// where another server will look at that (see srsForward). Failures are told to the sender only if
// it is known to be genuine, since a report to a forged one hits a stranger.
func (s *Service) addForward(tx *store.Tx, to *destination, d *inbox.Draft, a arrival) error {
	sub := &store.Submission{
		AccountID: to.domain.AccountID, DomainID: to.domain.ID, MessageID: d.Summary.MessageID, Sender: a.sender,
		Subject: d.Summary.Subject, Blob: d.Blob, Forward: true, EightBit: true,
	}
	if to.Mailbox != nil {
		sub.MailboxID = to.Mailbox.ID
	}
	if a.genuine {
		sub.ReportTo = a.sender
	}
	_, err := s.Enqueue(tx, sub, to.domain, []Rcpt{{Address: to.Forward}})
	return err
}
