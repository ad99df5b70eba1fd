package outbound

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/netguard"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/deliver"
	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/external"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/store"
)

// headFields returns the header fields that are prepended to the stored message on this route.
func (s *Service) headFields(d *delivery, content *io.SectionReader) (fields []byte, err error) {
	relay := d.route.relay
	relaySigns := relay != nil && relay.NoDKIM
	switch {
	case d.route.own: // the mailbox's own server signs, with keys that this server does not have
	case !d.sub.Forward || d.sub.ApprovalID != "": // a message from here: sign it, with the unsubscribe fields of this recipient
		extra, id := s.unsubscribeFields(d), d.sub.ID
		if len(extra) > 0 {
			id = d.row.ID
		}
		if d.encoded {
			id += " encoded"
		}
		if !relaySigns {
			message := io.MultiReader(bytes.NewReader(extra), msg.Again(content))
			fields, err = s.signer.sign(d.domain, id, message, relay.replacesID())
			if err != nil {
				return nil, err
			}
		}
		fields = slices.Concat(fields, extra)
	default:
		var extra []byte // List-Id of the group, unless another list already set one (RFC 2919 section 8)
		if d.sub.ListID != "" {
			listed, err := msg.HasFields(msg.Again(content), []string{"list-id"})
			if err != nil {
				return nil, err
			}
			if !listed {
				extra = fmt.Appendf(nil, "List-Id: <%s>\r\n", d.sub.ListID)
			}
		}
		if !relaySigns && d.route.Transport != core.ViaLocal {
			o := auth.SealOptions{AuthservID: s.Hostname(), OmitMessageID: relay.replacesID(), Now: d.now}
			fields, err = s.signer.seal(d.domain, io.MultiReader(bytes.NewReader(extra), msg.Again(content)), o)
			if err != nil {
				return nil, err
			}
		}
		fields = slices.Concat(fields, extra)
	}
	if relay != nil {
		own := relay.fields
		if relay.Kind == "postmark" {
			own += fmt.Sprintf("%s: %s\r\n", feedback.PostmarkTag, s.recipients.RowLocal(recipients.RelayTag, d.row.ID, "")[2:])
		}
		fields = append([]byte(own), fields...)
	}
	return fields, nil
}

// sendToHost sends the message to another host: to a relay, or to the MX hosts of the recipient's
// domain, according to the domain's TLS policies.
func (s *Service) sendToHost(ctx context.Context, d *delivery, head []byte, content *io.SectionReader, smtpUTF8 bool) *attemptResult {
	env := deliver.Envelope{
		From: s.returnPath(d), To: d.row.Recipient, SMTPUTF8: smtpUTF8, EightBit: d.sub.EightBit,
		EnvelopeID: d.sub.EnvelopeID, Notify: d.row.Notify, Ret: d.sub.Ret, ORCPT: d.row.ORCPT,
		RequireTLS: d.sub.RequireTLS, TLSOptional: d.sub.TLSOptional && !d.sub.RequireTLS,
		VerifyTLS: d.domain != nil && d.domain.TLSPolicy == store.TLSRequired && !d.sub.TLSOptional,
	}
	message := deliver.Message{
		Size: int64(len(head)) + content.Size(),
		Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(head), msg.Again(content))), nil
		},
		HandOver: func() (func(), error) { return core.HandOver(ctx) },
	}

	direct := s.plan.Load().direct
	if relay := d.route.relay; relay != nil {
		client := s.relayed
		if relay.Guarded {
			client = s.guarded
		}
		if d.route.own {
			client = direct // a tenant, not the operator, chose the server
			if relay.TLS == "none" {
				client = s.plain
			}
		}
		r := &attemptResult{result: client.Relay(ctx, relay.Hop(), env, message), status: store.OutgoingRelayed}
		if client == s.plain && slices.ContainsFunc(r.result.Attempts, func(a deliver.Attempt) bool { return errors.Is(a.Err, netguard.ErrBlocked) }) {
			return localResult("", deliver.Permanent, "5.7.10", relay.Host+" was not logged in to: smtp.security "+external.PlainRefused) // RFC 5248: encryption needed
		}
		if r.result.Status == deliver.Delivered {
			r.assignedMessageID = relay.assignedID(r.result.Reply)
		}
		return r
	}

	domain := core.DomainOfAddress(d.row.Recipient)
	if d.sub.TLSReport {
		env.TLSOptional = true
		r := &attemptResult{result: direct.Direct(ctx, domain, env, message), status: store.OutgoingSent}
		r.result.Sessions = nil // TLS reports are excluded from TLS reporting (RFC 8460 section 3)
		return r
	}
	policy, failed, err := s.policies.Of(ctx, domain)
	if err != nil {
		return localResult("", deliver.Temporary, "4.4.3", "the MTA-STS policy could not be looked up: "+err.Error())
	}
	env.STS = policy
	r := &attemptResult{result: direct.Direct(ctx, domain, env, message), status: store.OutgoingSent}
	if failed != nil {
		r.result.Sessions = append(r.result.Sessions, *failed)
	}
	return r
}

// lacksUTF8 reports whether a message was not sent because the next hop does not offer SMTPUTF8.
func lacksUTF8(r deliver.Result) bool {
	return r.Status == deliver.Permanent && r.Code == 0 && r.Enhanced == "5.6.7"
}

// sendEncoded sends a message with a UTF-8 header to a next hop without SMTPUTF8: it encodes the
// header and signs the message again. It returns refused, the result of the first try, if the
// addresses cannot be encoded.
func (s *Service) sendEncoded(ctx context.Context, d *delivery, refused *attemptResult, content *io.SectionReader) (*attemptResult, error) {
	root, err := msg.Scan(msg.Again(content))
	if err != nil {
		return nil, fmt.Errorf("encode header: parse message: %w", err)
	}
	c, err := msg.NewRecoder(content, root, msg.RecodeOptions{EncodeHeaders: true})
	if err != nil {
		return nil, fmt.Errorf("encode header: parse message: %w", err)
	}
	if c.HeaderFault() != nil || !c.HasChanges() {
		return refused, nil
	}
	spool := s.Store.NewSpool(core.MaxMessage + msg.MaxHeader + c.Growth())
	defer spool.Close()
	if _, err := c.WriteTo(spool); err != nil {
		return nil, fmt.Errorf("write encoded message: %w", err)
	}
	content, d.encoded = io.NewSectionReader(spool, 0, spool.Size()), true
	head, err := s.headFields(d, content)
	if err != nil {
		return nil, err
	}
	d.sub.EightBit = !c.IsClean()
	r := s.sendToHost(ctx, d, head, content, false)
	if lacksUTF8(r.result) {
		return refused, nil
	}
	r.result.Attempts = append(refused.result.Attempts, r.result.Attempts...)
	r.result.Sessions = append(refused.result.Sessions, r.result.Sessions...)
	return r, nil
}

// returnPath returns the envelope sender of a message on its route.
func (s *Service) returnPath(m *delivery) string {
	switch {
	case m.sub.Forward:
		path := s.recipients.SRSForward(m.sub.Sender, m.row.Domain)
		if m.sub.ListID != "" && path != "" && path == m.sub.Sender { // a group may be its own envelope sender; its bounces come to this server, not to its members
			path = cmp.Or(s.recipients.RowAddress(recipients.BounceAddress, m.row), path)
		}
		return path
	case m.sub.Sender == "" || m.route.relay != nil && !m.route.relay.verp:
		return m.sub.Sender
	}
	if path := s.recipients.RowAddress(recipients.BounceAddress, m.row); path != "" {
		return path
	}
	return m.sub.Sender
}

// unsubscribeFields returns fields that let the recipient unsubscribe (RFC 2369, RFC 8058), if the
// sending domain has that enabled. Mail within the domain, replies, automatic mail, and messages
// with unsubscribe fields of their own get none. The link requires that this host is reached over
// HTTPS (RFC 8058). A mail address for unsubscribing is offered without HTTPS too.
func (s *Service) unsubscribeFields(m *delivery) []byte {
	d := m.domain
	if d == nil || !d.ListUnsub || !m.sub.Starts || m.sub.Sender == "" || core.DomainOfAddress(m.row.Recipient) == d.Name {
		return nil
	}
	way := ""
	if address := s.recipients.RowAddress(recipients.UnsubscribeAddress, m.row); address != "" {
		way = "<mailto:" + address + "?subject=unsubscribe>"
	}
	if !strings.HasPrefix(s.Config.BaseURL, "https://") {
		if way == "" {
			return nil
		}
		return fmt.Appendf(nil, "List-Unsubscribe: %s\r\n", way)
	}
	link := "<" + s.Config.BaseURL + recipients.UnsubscribePath + s.recipients.UnsubscribeToken(d, m.row.Recipient) + ">"
	if way != "" {
		link += ",\r\n " + way
	}
	return fmt.Appendf(nil, "List-Unsubscribe: %s\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n", link)
}
