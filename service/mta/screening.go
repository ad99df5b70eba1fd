package mta

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/milter"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A finding is what is known of a message from outside, and decided about it, before it is filed.
type Finding struct {
	Verdict *auth.Verdict
	Policy  string // what is done for DMARC: verdict.Policy, unless the operator trusts who has forwarded the message
	Trusted bool   // that is so
	Junk    bool
	fields  []byte // that a filter wants added
	id      string // the message's name in its Received field
}

// screen judges a message and decides whether it is taken. The error of one that is not is an
// SMTPError.
func (s *Service) screen(ctx context.Context, in Incoming, h *head, id string) (*Finding, error) {
	listed := make(chan auth.Listing, 1)
	go func() {
		l, _ := auth.CheckDNSBL(ctx, s.Resolver, s.Config.Spam.DNSBL, in.Client.IP)
		listed <- l
	}()
	verdict, err := s.judge(ctx, in, h)
	list := <-listed
	if err != nil {
		return nil, err
	}
	f := &Finding{Verdict: verdict, Policy: verdict.Policy, id: id}
	if s.trusts(verdict) {
		f.Policy, f.Trusted = "", true
	}
	if f.Policy == dmarc.PolicyReject {
		if err := s.noteRejected(in, f); err != nil {
			return nil, err
		}
		if verdict.TooManyAuthors {
			return nil, core.SMTPErrorf(550, "5.7.1", "DMARC cannot be checked: the From field names too many domains")
		}
		return nil, core.SMTPErrorf(550, "5.7.1", "Rejected by the DMARC policy of %s", verdict.FromDomain)
	}
	f.Junk = f.Policy == dmarc.PolicyQuarantine
	for _, step := range []func() error{
		func() error { return s.screenListed(in, f, list) },
		func() error { return s.screenUnknown(ctx, in, f) },
		func() error { return s.screenFiltered(ctx, in, f) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// trusts tells whether the message came by way of somebody whom the operator believes that it was
// authentic before he had to change it (RFC 8617 section 7.2.1).
func (s *Service) trusts(v *auth.Verdict) bool {
	asked := v.Policy == dmarc.PolicyReject || v.Policy == dmarc.PolicyQuarantine
	return asked && v.DMARC == auth.Fail && v.ARC.Result == auth.Pass && slices.Contains(s.Config.Spam.TrustedSealers, v.ARC.Sealer) &&
		v.ARC.AttestsDMARC(v.FromDomain)
}

// screenListed refuses who is in one of the operator's lists. Postmasters hear from everybody (RFC
// 5321 section 4.5.1), so that one who is listed can ask why.
func (s *Service) screenListed(in Incoming, f *Finding, l auth.Listing) error {
	if l.Zone == "" {
		return nil
	}
	if s.Config.Spam.DNSBLJunk || toPostmasters(in.Recipients) {
		f.Junk = true
		return nil
	}
	s.Log.Info("mail refused: the client is in a list", "ip", in.Client.IP, "list", l.Zone)
	if l.Reason == "" {
		return core.SMTPErrorf(550, "5.7.1", "%s is listed by %s", in.Client.IP, l.Zone)
	}
	return core.SMTPErrorf(550, "5.7.1", "%s is listed by %s: %s", in.Client.IP, l.Zone, l.Reason)
}

func toPostmasters(list []Recipient) bool {
	return !slices.ContainsFunc(list, func(r Recipient) bool {
		local, _, _ := msg.SplitEmail(r.address)
		return local != "postmaster" && local != "abuse"
	})
}

// screenUnknown has senders wait, or come again, of whom nobody among the recipients has had
// authentic mail.
func (s *Service) screenUnknown(ctx context.Context, in Incoming, f *Finding) error {
	c := s.Config.Spam
	if !c.Greylisting && c.FirstDelay <= 0 {
		return nil
	}
	known, err := s.knowsSender(in, f.Verdict)
	if known || err != nil {
		return err
	}
	if c.Greylisting {
		if err := s.greylist(in); err != nil {
			return err
		}
	}
	s.delay(ctx, min(c.FirstDelay, maxFirstDelay))
	return nil
}

// delay waits, unless too many wait already.
func (s *Service) delay(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case s.screener.Delayed <- struct{}{}:
	default:
		return
	}
	defer func() { <-s.screener.Delayed }()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// screenFiltered asks the operator's filter. One that cannot be asked stops no mail.
func (s *Service) screenFiltered(ctx context.Context, in Incoming, f *Finding) error {
	filter := s.Config.Spam.Milter
	if filter == nil {
		return nil
	}
	v, err := filter.Check(ctx, &milter.Message{
		Hostname: s.Hostname(), IP: in.Client.IP, Helo: in.Client.Helo, TLS: in.Client.TLS, QueueID: f.id, From: in.From,
		To: addressesOf(in.Recipients), Body: in.Body, Size: in.Body.Size(), MaxHeader: msg.MaxHeader,
	})
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.Log.Warn("mail was taken without being filtered", "error", err)
		return nil
	}
	if len(v.Ignored) > 0 {
		s.Log.Debug("the filter asked for what is not done", "changes", v.Ignored)
	}
	return s.follow(f, v)
}

// follow does what the filter has decided.
func (s *Service) follow(f *Finding, v *milter.Verdict) error {
	switch v.Action {
	case milter.Reject, milter.TempFail:
		return filterAnswer(v)
	case milter.Discard:
		// A message is not taken and then dropped: who sent it is told.
		return core.SMTPErrorf(550, "5.7.1", "Message rejected by policy")
	}
	f.Junk = f.Junk || v.Quarantine != ""
	for _, field := range v.Fields {
		f.fields = fmt.Appendf(f.fields, "%s: %s\r\n", field.Name, field.Value)
		name, value := strings.ToLower(field.Name), strings.ToLower(field.Value)
		if (name == "x-spam" || name == "x-spam-flag") && strings.HasPrefix(value, "yes") {
			f.Junk = true
		}
	}
	return nil
}

// filterAnswer is the filter's own reply, where it is one: "554 5.7.1 text", with or without the
// status in the middle.
func filterAnswer(v *milter.Verdict) *core.SMTPError {
	e := core.SMTPErrorf(550, "5.7.1", "Message rejected by policy")
	if v.Action == milter.TempFail {
		e = core.SMTPErrorf(451, "4.7.1", "Try again later")
	}
	code, text, _ := strings.Cut(v.Reply, " ")
	if len(code) != 3 || code[0] != e.Enhanced[0] || strings.Trim(code, "0123456789") != "" || code == "421" {
		return e
	}
	e.Code = int(code[0]-'0')*100 + int(code[1]-'0')*10 + int(code[2]-'0')
	if status, rest, ok := strings.Cut(text, " "); ok && strings.Count(status, ".") == 2 && status[0] == code[0] && strings.Trim(status, "0123456789.") == "" {
		e.Enhanced, text = status, rest
	}
	if text != "" {
		e.Message = text
	}
	return e
}

// noteRejected counts a message that is rejected for its policy, for the report about it.
func (s *Service) noteRejected(in Incoming, f *Finding) error {
	if !s.Hooks.CountsForDMARC(f.Verdict) {
		return nil
	}
	return s.Store.Update(func(tx *store.Tx) error { return s.Hooks.CountDMARC(tx, in, f) })
}
