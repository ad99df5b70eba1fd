package service

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

// maxHops is how many servers a message may have passed; more is a loop (RFC 5321 section 6.3).
const maxHops = 50

// deliverHere makes mail of a mailbox here mail that arrives at another. It is filed, exactly once, with the end of the
// job.
func (s *Service) deliverHere(m *mailing, head []byte, blob *store.Blob) (*outcome, error) {
	if hops(whole(blob)) > maxHops {
		return refused(smtpErrorf(554, "5.4.6", "The message goes round in circles.")), nil
	}
	trace := fmt.Sprintf("Received: by %s (Mailstead) id %s\r\n\tfor <%s>; %s\r\n",
		s.Config.Hostname, m.row.ID, m.row.Recipient, m.now.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	spool := s.Store.NewSpool(blob.Size())
	defer spool.Close()
	if _, err := io.Copy(spool, whole(blob)); err != nil {
		return nil, fmt.Errorf("copy message: %w", err)
	}
	spool.Prepend(head)
	spool.Prepend([]byte(trace))
	d, err := s.prepare(spool, Envelope{From: m.sub.Sender, To: []string{m.row.Recipient}, Received: m.now})
	if err != nil {
		return nil, err
	}
	if !m.sub.Forward { // we know who sent it, and that From is its address
		d.meta.SPF, d.meta.DKIM, d.meta.DMARC = "pass", "none", "pass"
		if len(head) > 0 {
			d.meta.DKIM = "pass"
		}
	}
	o := ours(store.OutgoingDelivered, deliver.Delivered, "2.0.0", "250 2.0.0 delivered on this server")
	o.result.Code, o.arrived = 250, d
	return o, nil
}

// placeHere files a local message where its recipient's mail goes now.
func (s *Service) placeHere(tx *store.Tx, row *store.Outgoing, m *mailing, d *draft) error {
	to, err := s.findDestination(tx, row.Recipient)
	if err == nil {
		err = s.place(tx, to, d, arrival{
			sender: m.sub.Sender, folder: store.InboxID, received: tx.Now(), genuine: !m.sub.Forward || m.sub.ReportTo != "",
		})
	}
	if err != nil {
		s.giveUp(d)
	}
	return err
}

// hops counts the servers that a message has passed, as its header tells.
func hops(message io.Reader) int {
	n := 0
	lines := bufio.NewReader(io.LimitReader(message, msg.MaxHeader))
	for {
		line, _, err := lines.ReadLine()
		if err != nil || len(line) == 0 {
			return n
		}
		if name, _, ok := bytes.Cut(line, []byte(":")); ok && strings.EqualFold(strings.TrimRight(string(name), " \t"), "Received") {
			n++
		}
	}
}
