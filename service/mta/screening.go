package mta

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/milter"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A ScreeningResult is what is known of a message from outside, and decided about it, before it is filed.
type ScreeningResult struct {
	Verdict *auth.Verdict
	Policy  string // what is done for DMARC: verdict.Policy, unless the operator trusts who has forwarded the message
	Trusted bool   // that is so
	Junk    bool
	fields  []byte // that a filter wants added
	id      string // the message's name in its Received field
}

// screen judges a message and decides whether it is taken. The error of one that is not is an
// SMTPError.
func (s *Service) screen(ctx context.Context, in Incoming, h *head, id string) (*ScreeningResult, error) {
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
	f := &ScreeningResult{Verdict: verdict, Policy: verdict.Policy, id: id}
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
func (s *Service) screenListed(in Incoming, f *ScreeningResult, l auth.Listing) error {
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
func (s *Service) screenUnknown(ctx context.Context, in Incoming, f *ScreeningResult) error {
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
func (s *Service) screenFiltered(ctx context.Context, in Incoming, f *ScreeningResult) error {
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
func (s *Service) follow(f *ScreeningResult, v *milter.Verdict) error {
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
func (s *Service) noteRejected(in Incoming, f *ScreeningResult) error {
	if !s.Hooks.CountsForDMARC(f.Verdict) {
		return nil
	}
	return s.Store.Update(func(tx *store.Tx) error { return s.Hooks.CountDMARC(tx, in, f) })
}

// Greylisting (RFC 6647): how long a sender has to wait, and how long is remembered that it has,
// and that it has not.
const (
	greyWait   = 5 * time.Minute
	greyWithin = 48 * time.Hour
	greyKept   = 36 * 24 * time.Hour
	knownKept  = 180 * 24 * time.Hour
	touchEvery = 24 * time.Hour // a row's time is not written more often

	maxGreyTuples   = 100_000
	maxKnownSenders = 200_000
)

// greylist tells a sender to come again in some minutes, unless it has.
func (s *Service) greylist(in Incoming) error {
	wait := time.Duration(0)
	for some := range slices.Chunk(in.Recipients, placesAtATime) {
		longest := time.Duration(0)
		err := s.Store.Update(func(tx *store.Tx) error {
			longest = 0
			for _, r := range some {
				left, err := s.greyWait(tx, greyKey(in.Client.IP, in.From, r.address))
				if err != nil {
					return err
				}
				longest = max(longest, left)
			}
			return nil
		})
		if err != nil {
			return err
		}
		wait = max(wait, longest)
	}
	if wait == 0 {
		return nil
	}
	return core.SMTPErrorf(451, "4.7.1", "Greylisted, try again in %d minutes", int(wait/time.Minute)+1)
}

// greyWait is how long a tuple has still to wait. The first time makes its row.
func (s *Service) greyWait(tx *store.Tx, id string) (time.Duration, error) {
	now := tx.Now()
	g, err := store.GreyTuples.Get(tx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		if err := makeRoom(tx, &s.screener.Grey, store.GreyTuples, store.GreyTuplesByTime); err != nil {
			return 0, err
		}
		return greyWait, store.GreyTuples.Put(tx, &store.GreyTuple{ID: id, FirstAt: now, Expires: now.Add(greyWithin)})
	case err != nil:
		return 0, err
	case !g.Expires.After(now): // it begins anew
		g.FirstAt, g.Expires, g.Passed = now, now.Add(greyWithin), false
		return greyWait, store.GreyTuples.Put(tx, g)
	case !g.Passed && now.Sub(g.FirstAt) < greyWait:
		return greyWait - now.Sub(g.FirstAt), nil
	case g.Passed && g.Expires.Sub(now) > greyKept-touchEvery:
		return 0, nil
	}
	g.Passed, g.Expires = true, now.Add(greyKept)
	return 0, store.GreyTuples.Put(tx, g)
}

// greyKey names network, sender and recipient. Large senders come from many addresses of a network.
func greyKey(ip netip.Addr, from, to string) string {
	bits := 64
	if ip.Is4() {
		bits = 24
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		network = netip.Prefix{} // no address at all
	}
	return core.TextHash(network.String() + "\x00" + from + "\x00" + to)[:32]
}

// knowsSender tells whether all accounts that get a message have had authentic mail from its
// author's domain before. A message that is not authentic itself is from nobody whom they know.
func (s *Service) knowsSender(in Incoming, v *auth.Verdict) (bool, error) {
	if !v.Authentic() {
		return false, nil
	}
	known := true
	err := s.Store.View(func(tx *store.Tx) error {
		for _, r := range in.Recipients {
			to, err := s.receiver(tx, r.address)
			if err != nil {
				return err
			}
			k, err := store.KnownSenders.Get(tx, to.domain.AccountID+v.FromDomain)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			known = known && err == nil && k.Expires.After(tx.Now())
		}
		return nil
	})
	return known, err
}

// noteSender remembers whom an account has authentic mail from. It is in the transaction that files
// the mail.
func (s *Service) noteSender(tx *store.Tx, accountID string, a *store.Arrival) error {
	c := s.Config.Spam
	if !c.Greylisting && c.FirstDelay <= 0 || a.Junk || !a.Authentic {
		return nil
	}
	k, err := store.KnownSenders.Get(tx, accountID+a.From)
	switch {
	case errors.Is(err, store.ErrNotFound):
		if err := makeRoom(tx, &s.screener.known, store.KnownSenders, store.KnownSendersByTime); err != nil {
			return err
		}
		k = &store.KnownSender{AccountID: accountID, Domain: a.From}
	case err != nil:
		return err
	case k.Expires.Sub(tx.Now()) > knownKept-touchEvery:
		return nil
	}
	k.Expires = tx.Now().Add(knownKept)
	return store.KnownSenders.Put(tx, k)
}

// A rowQuota counts the rows of a table that is bounded.
type rowQuota struct {
	Most  int
	mu    sync.Mutex
	begun bool
	rows  int
}

// makeRoom counts a row that will be added, and deletes the one that would be forgotten first where
// there are too many.
func makeRoom[T any](tx *store.Tx, c *rowQuota, table *store.Table[T], byTime *store.Index[T]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun {
		c.begun, c.rows = true, byTime.Count(tx, "", 0)
	}
	if c.rows < c.Most {
		tx.After(func() { c.add(1) })
		return nil
	}
	for _, id := range byTime.Keys(tx, "", "") {
		return table.Delete(tx, id)
	}
	return nil
}

// countRows counts in a snapshot what is there at a start: there may be more rows than a
// transaction may walk over.
func countRows[T any](st *store.Store, c *rowQuota, byTime *store.Index[T]) error {
	return st.View(func(tx *store.Tx) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.begun {
			c.begun, c.rows = true, byTime.Count(tx, "", 0)
		}
		return nil
	})
}

func (c *rowQuota) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows += n
}

// pruneScreened deletes the tuples and senders that are forgotten.
func (s *Service) PruneScreened(tx *store.Tx) (int, error) {
	grey, err := pruneExpired(tx, &s.screener.Grey, store.GreyTuples, store.GreyTuplesByTime)
	if err != nil {
		return 0, err
	}
	known, err := pruneExpired(tx, &s.screener.known, store.KnownSenders, store.KnownSendersByTime)
	return max(grey, known), err
}

// pruneExpired deletes the records whose time in the index is over.
func pruneExpired[T any](tx *store.Tx, c *rowQuota, table *store.Table[T], byTime *store.Index[T]) (int, error) {
	var ids []string
	for key, id := range byTime.Keys(tx, "", "") {
		if len(ids) == core.PruneAtATime || store.KeyTime(key).After(tx.Now()) {
			break
		}
		ids = append(ids, id)
	}
	tx.After(func() { c.add(-len(ids)) })
	return len(ids), core.DeleteAll(tx, table, ids)
}

// Bounds of the first-sender delay: longer than a minute is more than some senders wait, and each
// that waits holds a connection.
const (
	maxFirstDelay = time.Minute
	mostDelayed   = 200
)

// A screener holds what screening needs over messages.
type screener struct {
	pulse   *auth.ResolverHealth
	Delayed chan struct{} // one place for each message that is delayed
	Grey    rowQuota      // rows of GreyTuples
	known   rowQuota      // rows of KnownSenders
}

func newScreener(r core.Resolver, now func() time.Time) *screener {
	return &screener{
		pulse:   &auth.ResolverHealth{Probe: func(ctx context.Context) error { return probe(ctx, r) }, Now: now},
		Delayed: make(chan struct{}, mostDelayed),
		Grey:    rowQuota{Most: maxGreyTuples}, known: rowQuota{Most: maxKnownSenders},
	}
}

// probe asks the resolver for the servers of the root, which everybody has and no sender has a hand
// in. That it knows of none, or that they do not answer it, is an answer too.
func probe(ctx context.Context, r core.Resolver) error {
	_, err := r.LookupNS(ctx, ".")
	var dns *net.DNSError
	answers := []string{"server misbehaving", "lame referral"} // as package net calls them
	if errors.As(err, &dns) && (dns.IsNotFound || slices.Contains(answers, dns.Err)) && ctx.Err() == nil {
		return nil
	}
	return err
}
