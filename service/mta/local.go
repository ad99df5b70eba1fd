package mta

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// maxHops is how many servers a message may have passed; more is a loop (RFC 5321 section 6.3).
const maxHops = 50

// deliverHere makes mail of a mailbox here mail that arrives at another. It is filed, exactly once,
// with the end of the job.
func (s *Service) deliverHere(m *mailing, head []byte, content *io.SectionReader) (*outcome, error) {
	spool := s.Store.NewSpool(content.Size())
	defer spool.Close()
	if s.Config.Spam.Milter != nil && !m.sub.Forward {
		clean, err := s.stripped(content, filterFields)
		if err != nil {
			return nil, err
		}
		if clean != nil {
			defer clean.Close()
			content = io.NewSectionReader(clean, 0, clean.Size())
		}
	}
	if err := s.copyHere(spool, m.sub, content); err != nil {
		return nil, fmt.Errorf("copy message: %w", err)
	}
	passed, err := readHead(spool)
	if err != nil {
		return nil, err
	}
	if passed.hops > maxHops || m.to.Forward != "" && passed.delivered[m.row.Recipient] {
		return refused(core.SMTPErrorf(554, "5.4.6", "Mail loop")), nil
	}
	spool.Prepend(head)
	spool.Prepend(s.localTrace(m))
	d, err := s.inbox.Prepare(spool, inbox.Envelope{From: m.sub.Sender, To: []string{m.row.Recipient}, Received: m.now})
	if err != nil {
		return nil, err
	}
	m.drafts = append(m.drafts, d)
	if err := s.readProof(d.Tiding); err != nil {
		return nil, err
	}
	if err := s.Store.View(func(tx *store.Tx) error { return m.to.takesTiding(tx, d) }); err != nil {
		if e := new(core.SMTPError); errors.As(err, &e) {
			return refused(e), nil
		}
		return nil, err
	}
	if !m.sub.Forward { // we know who sent it
		d.Meta.SPF, d.Meta.DKIM, d.Meta.DMARC = "pass", "none", string(localAuthors(m.sub, passed))
		if len(head) > 0 {
			d.Meta.DKIM = "pass"
		}
	}
	o := ours(store.OutgoingDelivered, deliver.Delivered, "2.0.0", "250 2.0.0 delivered on this server")
	o.result.Code, o.arrived = 250, d
	return o, nil
}

// localAuthors says whether the author of a message that was sent here is who sent it, as
// submission wants it: what lay in the queue when an older release ended may be otherwise. What has
// no sender we wrote ourselves.
func localAuthors(sub *store.Submission, h *head) auth.Result {
	if sub.Sender == "" {
		return auth.Pass
	}
	if h.authors == nil {
		return auth.PermError
	}
	local, domain, _ := msg.SplitEmail(sub.Sender)
	mailbox, _, _ := strings.Cut(local, "+")
	for _, email := range h.authors {
		if _, err := ownAddress(mailbox+"@"+domain, email); err != nil {
			return auth.Fail
		}
	}
	return auth.Pass
}

// copyHere copies a message without what its sender claims that we said of it. What goes on after
// it arrived here has been freed of that already, and what it says of us is true.
func (s *Service) copyHere(to io.Writer, sub *store.Submission, content io.Reader) error {
	if sub.Forward {
		_, err := io.Copy(to, content)
		return err
	}
	return auth.StripResults(to, content, s.Hostname())
}

// localTrace is what a final delivery puts on top.
func (s *Service) localTrace(m *mailing) []byte {
	final := finalFields(Incoming{From: m.sub.Sender, Recipients: []Recipient{{m.row.Recipient}}})
	return fmt.Appendf(final, "Received: by %s (Mailstead) id %s\r\n\tfor <%s>;\r\n\t%s\r\n",
		s.Hostname(), m.row.ID, m.row.Recipient, m.now.Format(time.RFC1123Z))
}

// placeHere files a local message where its recipient's mail goes now.
func (s *Service) placeHere(tx *store.Tx, row *store.Outgoing, m *mailing, d *inbox.Draft) error {
	to, err := s.receiver(tx, row.Recipient)
	if err == nil {
		err = s.place(tx, to, d, arrival{
			sender: m.sub.Sender, to: row.Recipient, folder: store.InboxID, received: tx.Now(), genuine: !m.sub.Forward || m.sub.ReportTo != "",
		})
	}
	if err == nil && mayHoldReport(d.Summary) {
		err = s.Hooks.KeepForReading(tx, to.domain.AccountID, d, row.Domain, !m.sub.Forward)
	}
	return err
}
