package mta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/buffers"
	"github.com/mailstead/mailstead/internal/killpoint"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// attemptLocal makes mail of a mailbox here mail that arrives at another. It is delivered, exactly
// once, with the end of the job.
func (s *Service) attemptLocal(ctx context.Context, d *delivery, head []byte, content *io.SectionReader) (*attemptResult, error) {
	if s.Config.Spam.Milter != nil && !d.sub.Forward {
		clean, err := s.withoutFields(content, filterFields)
		if err != nil {
			return nil, err
		}
		if clean != nil {
			defer clean.Close()
			content = io.NewSectionReader(clean, 0, clean.Size())
		}
	}

	// Copy the message without what its sender claims that we said of it. What goes on after it
	// arrived here has been freed of that already, and what it says of us is true.
	spool := s.Store.NewSpool(content.Size())
	defer spool.Close()
	var err error
	if d.sub.Forward {
		_, err = buffers.Copy(spool, content)
	} else {
		err = auth.StripResults(spool, content, s.Hostname())
	}
	if err != nil {
		return nil, fmt.Errorf("copy message: %w", err)
	}
	passed, err := readHead(spool)
	if err != nil {
		return nil, err
	}
	if passed.checkLoop(d.to, d.row.Recipient) != nil {
		return refused(core.SMTPErrorf(554, "5.4.6", "Mail loop")), nil
	}

	// Store it with what a final delivery puts on top.
	spool.Prepend(head)
	spool.Prepend(fmt.Appendf(finalFields(d.sub.Sender, d.row.Recipient), "Received: by %s (Mailstead) id %s\r\n\tfor <%s>;\r\n\t%s\r\n",
		s.Hostname(), d.row.ID, d.row.Recipient, d.now.Format(time.RFC1123Z)))
	stored, err := s.inbox.Prepare(spool, inbox.Envelope{From: d.sub.Sender, To: []string{d.row.Recipient}, Received: d.now})
	if err != nil {
		return nil, err
	}
	d.stored = append(d.stored, stored)
	killpoint.At("delivery.local")
	if err := s.readReport(stored, spool, d.sub.Sender, []string{d.row.Recipient}); err != nil {
		return nil, err
	}
	if err := s.Store.View(func(tx *store.Tx) error { return d.to.takesReport(tx, stored) }); err != nil {
		if e := new(core.SMTPError); errors.As(err, &e) {
			return refused(e), nil
		}
		return nil, err
	}
	if !d.sub.Forward { // we know who sent it
		stored.Meta.SPF, stored.Meta.DKIM, stored.Meta.DMARC = "pass", "none", string(localDMARC(d.sub, passed))
		if len(head) > 0 {
			stored.Meta.DKIM = "pass"
		}
	}

	if stored.Meta.DMARC == string(auth.Pass) {
		stored.Verified, err = s.ownAuthor(d.sub, passed)
		if err != nil {
			return nil, err
		}
	}

	// Ask the classifier and the rules of the mailboxes that it goes to.
	judged, err := s.judge([]*destination{d.to}, stored, spool, func(accountID string) bool {
		return !d.sub.Forward && (d.sub.AccountID == accountID || d.sub.Sender == "")
	})
	if err != nil {
		return nil, err
	}
	automatic, err := s.automationsOf(d.sub.Sender, []string{d.row.Recipient}, []*destination{d.to}, judged, false)
	if err != nil {
		return nil, err
	}
	r := localResult(store.OutgoingDelivered, deliver.Delivered, "2.0.0", "250 2.0.0 delivered on this server")
	r.result.Code, r.arrived, r.decisions = 250, stored, judged
	if len(automatic) == 0 {
		return r, nil
	}
	r.decisions, err = s.decide(ctx, automatic, stored, spool, spool.Size(), d.sub.Sender, judged)
	if err != nil {
		return nil, err
	}
	alone, err := s.onlyRecipient(d)
	if err != nil {
		return nil, err
	}
	if refusal := r.decisions.refusal(alone, automatic); refusal != nil {
		return refused(refusal), nil
	}
	return r, nil
}

// ownAuthor gives the domain of the author of a message that was submitted here, if it is one that
// the account has proven to hold; "" for what nobody submitted, such as automatic answers.
func (s *Service) ownAuthor(sub *store.Submission, h *head) (domain string, err error) {
	if sub.Sender == "" || len(h.authors) == 0 {
		return "", nil
	}
	domain = core.DomainOfAddress(h.authors[0])
	for _, email := range h.authors {
		if core.DomainOfAddress(email) != domain {
			return "", nil
		}
	}
	domain, err = msg.NormalizeDomain(domain)
	if err != nil {
		return "", nil // none that is hosted here
	}
	err = s.Store.View(func(tx *store.Tx) error {
		d, err := store.DomainByName.Read(tx, domain)
		if core.IsGone(err) || err == nil && d.AccountID != sub.AccountID {
			domain = ""
			return nil
		}
		return err
	})
	return domain, err
}

// wordsFor says whose words a message that was sent here has for an account that gets it.
func wordsFor(accountID string, sub *store.Submission) string {
	switch {
	case sub.Forward || !sub.Checked || sub.Sender == "":
		return ""
	case sub.Tainted:
		return agents.WordsTainted
	case sub.AccountID == accountID && sub.OwnWords:
		return agents.WordsOwn
	}
	return agents.WordsAuthor
}

// sentBy is the id of the mailbox here that wrote the message; "" for what is passed on.
func (d *delivery) sentBy() string {
	if d.sub.Forward || d.sub.Sender == "" {
		return ""
	}
	return d.sub.MailboxID
}

// localDMARC says whether the author of a message that was sent here is who sent it, as submission
// wants it: what lay in the queue when an older release ended may be otherwise. What has no sender
// we wrote ourselves.
func localDMARC(sub *store.Submission, h *head) auth.Result {
	if sub.Sender == "" {
		return auth.Pass
	}
	if h.authors == nil {
		return auth.PermError
	}
	local, domain, _ := msg.SplitEmail(sub.Sender)
	mailbox, _, _ := strings.Cut(local, "+")
	as := core.Senders{Addresses: []string{mailbox + "@" + domain}}
	for _, email := range h.authors {
		if _, err := ownAddress(as, email); err != nil && !sub.Checked {
			return auth.Fail
		}
	}
	return auth.Pass
}
