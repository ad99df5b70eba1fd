package inbound

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/store"
)

// A ScreeningResult is the result of authenticating and screening a message from outside, before it
// is filed.
type ScreeningResult struct {
	Verdict *auth.Verdict
	Policy  string // the DMARC policy that is applied: Verdict.Policy, or "" if Trusted
	Trusted bool   // a trusted forwarder attests that DMARC passed before it
	Junk    bool
	fields  []byte // header fields that the filter adds
	id      string // the message's ID in its Received field
}

// screen authenticates a message and decides whether to accept it. If it refuses the message, the
// error is an SMTPError.
func (s *Service) screen(ctx context.Context, in Incoming, h *head, id string) (*ScreeningResult, error) {
	// Check SPF, DKIM, ARC and DMARC, and the DNS blocklists at the same time. DNS that does not
	// answer is no reason to refuse a message.
	spam := s.Settings().Spam
	var listed auth.Listing
	var lists sync.WaitGroup
	if len(spam.DNSBL) > 0 {
		lists.Go(func() { listed, _ = auth.CheckDNSBL(ctx, s.Resolver, spam.DNSBL, in.Client.IP) })
	}
	verifier := s.Verifier()
	verdict, err := verifier.Verify(ctx, auth.Request{
		IP: in.Client.IP, Helo: in.Client.Helo, MailFrom: in.From, AuthservID: s.Hostname(),
		Message: in.Body, Size: in.Body.Size(), HeaderFrom: h.from,
	})
	lists.Wait()
	if err != nil {
		return nil, fmt.Errorf("authenticate message: %w", err)
	}
	result := &ScreeningResult{Verdict: verdict, Policy: verdict.Policy, id: id}

	// Apply the DMARC policy of the author's domain. It does not apply if a trusted forwarder
	// attests that the message was authentic before the forwarder changed it (RFC 8617 section
	// 7.2.1).
	strict := verdict.Policy == dmarc.PolicyReject || verdict.Policy == dmarc.PolicyQuarantine
	if strict && verdict.DMARC == auth.Fail && verdict.ARC.Result == auth.Pass &&
		slices.Contains(spam.TrustedSealers, verdict.ARC.Sealer) && verdict.ARC.AttestsDMARC(verdict.FromDomain) {
		result.Policy, result.Trusted = "", true
	}
	if result.Policy == dmarc.PolicyReject {
		count, err := s.rooms.Reports.DMARCCount(in, result) // for the DMARC report
		if err == nil && count != nil {
			err = s.Store.Update(func(tx *store.Tx) error { return s.rooms.Reports.CountDMARC(tx, count) })
		}
		if err != nil {
			return nil, err
		}
		if verdict.TooManyAuthors {
			return nil, core.SMTPErrorf(550, "5.7.1", "DMARC cannot be checked: the From field names too many domains")
		}
		return nil, core.SMTPErrorf(550, "5.7.1", "Rejected by the DMARC policy of %s", verdict.FromDomain)
	}
	result.Junk = result.Policy == dmarc.PolicyQuarantine

	// Apply the blocklists. Mail to postmaster and abuse is accepted from everybody (RFC 5321
	// section 4.5.1), so that a listed client can ask why.
	if listed.Zone != "" {
		others := slices.ContainsFunc(in.Recipients, func(r Recipient) bool {
			local, _, _ := msg.SplitEmail(r.address)
			return local != "postmaster" && local != "abuse"
		})
		if others && !spam.DNSBLJunk {
			s.Log.Info("mail refused: the client is on a blocklist", "message_id", id, "ip", in.Client.IP, "list", listed.Zone)
			if listed.Reason == "" {
				return nil, core.SMTPErrorf(550, "5.7.1", "%s is listed by %s", in.Client.IP, listed.Zone)
			}
			return nil, core.SMTPErrorf(550, "5.7.1", "%s is listed by %s: %s", in.Client.IP, listed.Zone, listed.Reason)
		}
		result.Junk = true
	}

	if err := s.screenUnknown(ctx, in, verdict); err != nil {
		return nil, err
	}
	return result, s.askMilter(ctx, in, result)
}

// screenUnknown delays or greylists a sender, unless every recipient's account has had authentic
// mail from that sender.
func (s *Service) screenUnknown(ctx context.Context, in Incoming, v *auth.Verdict) error {
	c := s.Settings().Spam
	if !c.Greylisting && c.FirstDelay <= 0 {
		return nil
	}
	known, err := s.knowsSender(in, v)
	if known || err != nil {
		return err
	}

	// Greylisting: the sender must retry after some minutes, unless it has already done so.
	if c.Greylisting {
		wait := time.Duration(0)
		for some := range slices.Chunk(in.Recipients, outbound.RecipientsAtATime) {
			longest := time.Duration(0)
			err := s.Store.Update(func(tx *store.Tx) error {
				longest = 0
				for _, r := range some {
					left, err := s.greylistWait(tx, greyKey(in.Client.IP, in.From, r.address))
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
		if wait > 0 {
			return core.SMTPErrorf(451, "4.7.1", "Greylisted, try again in %d minutes", int(wait/time.Minute)+1)
		}
	}

	// Delay first senders, unless too many connections are delayed already.
	if c.FirstDelay <= 0 {
		return nil
	}
	select {
	case s.screener.Delayed <- struct{}{}:
		defer func() { <-s.screener.Delayed }()
		core.Sleep(ctx, min(c.FirstDelay, maxFirstDelay))
	default:
	}
	return nil
}

// askMilter asks the operator's milter and applies its decision. If the milter does not answer, the
// mail is accepted.
func (s *Service) askMilter(ctx context.Context, in Incoming, result *ScreeningResult) error {
	milterClient := s.Settings().Spam.Milter
	if milterClient == nil {
		return nil
	}
	v, err := milterClient.Check(ctx, &milter.Message{
		Hostname: s.Hostname(), IP: in.Client.IP, Helo: in.Client.Helo, TLS: in.Client.TLS, QueueID: result.id, From: in.From,
		To: addressesOf(in.Recipients), Body: in.Body, Size: in.Body.Size(), MaxHeader: msg.MaxHeader,
	})
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.Log.Warn("mail was accepted without being filtered", "message_id", result.id, "error", err)
		return nil
	}
	if len(v.Ignored) > 0 {
		s.Log.Debug("the filter asked for changes that are not supported", "message_id", result.id, "changes", v.Ignored)
	}
	return result.applyVerdict(v)
}

// applyVerdict applies the milter's decision. If the milter refuses the message, the error is an
// SMTPError. Otherwise r gets the milter's header fields, and whether it considers the message
// junk.
func (r *ScreeningResult) applyVerdict(v *milter.Verdict) error {
	switch v.Action {
	case milter.Reject, milter.TempFail:
		return filterAnswer(v)
	case milter.Discard:
		// A message is refused rather than dropped, so that its sender learns why.
		return core.SMTPErrorf(550, "5.7.1", "Message rejected by policy")
	}
	r.Junk = r.Junk || v.Quarantine != ""
	for _, field := range v.Fields {
		r.fields = fmt.Appendf(r.fields, "%s: %s\r\n", field.Name, field.Value)
		name, value := strings.ToLower(field.Name), strings.ToLower(field.Value)
		if (name == "x-spam" || name == "x-spam-flag") && strings.HasPrefix(value, "yes") {
			r.Junk = true
		}
	}
	return nil
}

// filterAnswer returns the filter's own reply if it has one: "554 5.7.1 text", with or without the
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

// Periods and limits of greylisting (RFC 6647). A tuple is the key of greyKey: network, sender and
// recipient.
const (
	greyWait        = 5 * time.Minute      // how long a new tuple must wait
	greyRetryWindow = 48 * time.Hour       // how long a waiting tuple is kept
	greyKept        = 36 * 24 * time.Hour  // how long a tuple that has passed is kept
	knownKept       = 180 * 24 * time.Hour // how long a known sender is kept
	touchInterval   = 24 * time.Hour       // minimum interval between updates of a row's time

	maxGreyTuples   = 100_000
	maxKnownSenders = 200_000
)

// greylistWait returns how long a message with the greylisting tuple id (see greyKey) still has to
// wait; 0 if it may pass. The first call creates the tuple's row.
func (s *Service) greylistWait(tx *store.Tx, id string) (time.Duration, error) {
	now := tx.Now()
	g, err := store.GreyTuples.Get(tx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		if err := makeRoom(tx, &s.screener.Grey, store.GreyTuples, store.GreyTuplesByTime); err != nil {
			return 0, err
		}
		return greyWait, store.GreyTuples.Put(tx, &store.GreyTuple{ID: id, FirstAt: now, Expires: now.Add(greyRetryWindow)})
	case err != nil:
		return 0, err
	case !g.Expires.After(now) || g.FirstAt.After(now): // it starts again, also if the clock was set back
		g.FirstAt, g.Expires, g.Passed = now, now.Add(greyRetryWindow), false
		return greyWait, store.GreyTuples.Put(tx, g)
	case !g.Passed && now.Sub(g.FirstAt) < greyWait:
		return greyWait - now.Sub(g.FirstAt), nil
	case g.Passed && g.Expires.Sub(now) > greyKept-touchInterval:
		return 0, nil
	}
	g.Passed, g.Expires = true, now.Add(greyKept)
	return 0, store.GreyTuples.Put(tx, g)
}

// greyKey returns the key of network, sender and recipient. It has the client's network, not its
// address, since large senders use many addresses of a network.
func greyKey(ip netip.Addr, from, to string) string {
	bits := 64
	if ip.Is4() {
		bits = 24
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		network = netip.Prefix{} // no IP address
	}
	return core.TextHash(network.String() + "\x00" + from + "\x00" + to)[:32]
}

// knowsSender reports whether all accounts that get a message have had authentic mail from its
// author's domain before. For a message that is not authentic it returns false.
func (s *Service) knowsSender(in Incoming, v *auth.Verdict) (bool, error) {
	if !v.IsAuthentic() {
		return false, nil
	}
	known := true
	err := s.Store.View(func(tx *store.Tx) error {
		for _, r := range in.Recipients {
			to, err := s.rooms.Recipients.Receiver(tx, r.address)
			if err != nil {
				return err
			}
			k, err := store.KnownSenders.Get(tx, to.Domain.AccountID+v.FromDomain)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			known = known && err == nil && k.Expires.After(tx.Now())
		}
		return nil
	})
	return known, err
}

// recordSender records, in the transaction that files the mail, that an account has authentic mail
// from the author's domain.
func (s *Service) recordSender(tx *store.Tx, accountID string, a *store.Arrival) error {
	c := s.Settings().Spam
	if !c.Greylisting && c.FirstDelay <= 0 || a.Junk || !a.Authentic {
		return nil
	}
	k, err := store.KnownSenders.Get(tx, accountID+a.From)
	switch {
	case errors.Is(err, store.ErrNotFound):
		if err := makeRoom(tx, &s.screener.knownSenders, store.KnownSenders, store.KnownSendersByTime); err != nil {
			return err
		}
		k = &store.KnownSender{AccountID: accountID, Domain: a.From}
	case err != nil:
		return err
	case k.Expires.Sub(tx.Now()) > knownKept-touchInterval:
		return nil
	}
	k.Expires = tx.Now().Add(knownKept)
	return store.KnownSenders.Put(tx, k)
}

// A rowQuota counts the rows of a table that has a maximum size.
type rowQuota struct {
	MaxRows int
	mu      sync.Mutex
	counted bool
	rows    int
}

// makeRoom counts a row that will be added. If the table is full, it deletes the row that expires
// first.
func makeRoom[T any](tx *store.Tx, c *rowQuota, table *store.Table[T], byTime *store.Index[T]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.counted {
		c.counted, c.rows = true, byTime.Count(tx, "", 0)
	}
	if c.rows < c.MaxRows {
		tx.After(func() { c.add(1) })
		return nil
	}
	for _, id := range byTime.Keys(tx, "", "") {
		return table.Delete(tx, id)
	}
	return nil
}

// countRows counts the rows of a table when the server starts. It reads them in a view, since a
// write transaction may not read so many.
func countRows[T any](st *store.Store, c *rowQuota, byTime *store.Index[T]) error {
	return st.View(func(tx *store.Tx) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.counted {
			c.counted, c.rows = true, byTime.Count(tx, "", 0)
		}
		return nil
	})
}

func (c *rowQuota) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows += n
}

// PruneScreened deletes expired tuples and known senders.
func (s *Service) PruneScreened(tx *store.Tx) (int, error) {
	grey, err := pruneExpired(tx, &s.screener.Grey, store.GreyTuples, store.GreyTuplesByTime)
	if err != nil {
		return 0, err
	}
	known, err := pruneExpired(tx, &s.screener.knownSenders, store.KnownSenders, store.KnownSendersByTime)
	return max(grey, known), err
}

// pruneExpired deletes the rows that have expired according to the index.
func pruneExpired[T any](tx *store.Tx, c *rowQuota, table *store.Table[T], byTime *store.Index[T]) (int, error) {
	n, err := core.DeleteExpired(tx, table, byTime)
	tx.After(func() { c.add(-n) })
	return n, err
}

// Limits of the first-sender delay: some senders do not wait longer than a minute, and each delayed
// sender holds a connection.
const (
	maxFirstDelay = time.Minute
	maxDelayed    = 200
)

// A screener holds the state that screening shares between messages.
type screener struct {
	Delayed      chan struct{} // holds a value for each delayed message
	Grey         rowQuota      // rows of GreyTuples
	knownSenders rowQuota      // rows of KnownSenders
}

func newScreener() *screener {
	return &screener{
		Delayed: make(chan struct{}, maxDelayed),
		Grey:    rowQuota{MaxRows: maxGreyTuples}, knownSenders: rowQuota{MaxRows: maxKnownSenders},
	}
}
