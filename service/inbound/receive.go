package inbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/otlp"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/reportfile"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/feedback"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/recipients"
	"github.com/mailstead/mailstead/store"
)

const junkUse = `\Junk` // RFC 6154

// A RecipientQuery is the state of an SMTP transaction at RCPT.
type RecipientQuery struct {
	From     string // "" for the null sender
	To       string
	Size     int64 // as declared with SIZE; 0 if not declared
	RemoteIP netip.Addr
}

// A Recipient is an address for which we accept mail.
type Recipient struct {
	address string // normalized
}

// String returns the address.
func (r Recipient) String() string { return r.address }

// Accepts reports whether mail to an address is accepted. If not, the error is an SMTPError: 550
// 5.1.1 for an unknown address, 550 5.7.1 for a domain that is not hosted here, 550 5.2.1 or 450
// 4.2.1 for a mailbox that takes no mail, 452 4.2.2 for a full mailbox.
func (s *Service) Accepts(_ context.Context, in RecipientQuery) (Recipient, error) {
	address, err := msg.NormalizeEmail(in.To)
	if err != nil {
		return Recipient{}, core.SMTPErrorf(550, "5.1.3", "Invalid recipient address")
	}
	err = s.Store.View(func(tx *store.Tx) error {
		_, err := s.rooms.Recipients.Resolve(tx, in.From, address, max(in.Size, 1))
		return err
	})
	return Recipient{address}, core.StoreErrorOverSMTP(err)
}

// A Client is the SMTP client that sends a message, and its session.
type Client struct {
	IP            netip.Addr
	Helo          string
	Extended      bool   // EHLO
	UTF8          bool   // SMTPUTF8 was asked for
	TLS           string // version and cipher; "" without TLS
	RequireTLS    bool   // REQUIRETLS was given (RFC 8689)
	Authenticated bool
}

// Incoming is a message from outside.
type Incoming struct {
	Client     Client
	From       string // reverse path, "" for the null sender
	Recipients []Recipient
	Body       *core.Spool // from Spool; the caller closes it
}

// Spool reads a message with CRLF line ends to its end, and removes Authentication-Results fields
// that claim to be ours (RFC 8601 section 5). The error is that of r, or an SMTPError: 552 5.3.4
// for more than MaxMessage bytes, 452 4.3.1 for a full disk.
func (s *Service) Spool(r io.Reader) (*core.Spool, error) {
	body := s.Store.NewSpool(core.MaxMessage)
	if err := auth.StripResults(body, r, s.Hostname()); err != nil {
		return nil, errors.Join(core.StoreErrorOverSMTP(err), body.Close())
	}
	return body, nil
}

// Receive authenticates and screens a message and accepts it for all its recipients, or for none.
// When it returns without an error, the message is on disk with its facts; it will be filed and
// forwarded even if the process ends. A mailbox to which several recipients lead gets the message
// once. Receive returns the message's ID in its Received field. Errors are SMTPErrors.
func (s *Service) Receive(ctx context.Context, in Incoming) (string, error) {
	id, err := s.receive(ctx, in)
	if err == nil {
		otlp.SpanOf(ctx).Set("message_id", id)
		if s.Log.Enabled(ctx, slog.LevelInfo) {
			s.LogMessage(ctx, "message accepted", id, slog.String("ip", in.Client.IP.String()), slog.String("from", core.DomainOfAddress(in.From)),
				slog.Int("recipients", len(in.Recipients)), slog.Int64("size", in.Body.Size()))
		}
	}
	return id, core.StoreErrorOverSMTP(err)
}

func (s *Service) receive(ctx context.Context, in Incoming) (id string, err error) {
	// Authenticate and screen what the client sent.
	head, err := readHead(in.Body)
	if err != nil {
		return "", err
	}
	if err := head.checkLoop(nil, ""); err != nil {
		return "", err
	}
	only := "" // the recipient if there is only one: recipients must not learn of each other
	if len(in.Recipients) == 1 {
		only = in.Recipients[0].address
	}
	trace, id := s.Trace(in.Client, only)
	result, err := s.screen(ctx, in, head, id)
	if err != nil {
		return "", err
	}

	// Store the message with our own fields on top. If a filter is configured here, remove the
	// fields that only this filter may write.
	if s.Settings().Spam.Milter != nil {
		clean, err := s.WithoutFields(io.NewSectionReader(in.Body, 0, in.Body.Size()), filterFields)
		if err != nil {
			return "", err
		}
		if clean != nil {
			defer clean.Close()
			in.Body = clean
		}
	}
	in.Body.Prepend(slices.Concat(finalDeliveryFields(in.From, only), []byte(result.Verdict.Header), result.fields, trace))
	stored, err := inbox.ReadMessage(in.Body, in.Body.Size(), in.From)
	if err != nil {
		return "", err
	}
	if err := s.rooms.Feedback.ReadReport(stored, in.Body, in.From, addressesOf(in.Recipients)); err != nil {
		return "", err
	}
	v := result.Verdict
	proof := v.Proof()
	origin, err := s.originFromOutside(ctx, in, v, proof.Domain, stored.Summary.MessageID)
	if err != nil {
		return "", err
	}
	stored.Facts = store.Facts{
		SPF: string(v.SPF), DKIM: string(v.DKIM), DMARC: string(v.DMARC), Judged: inbox.JudgedText(v.Policy, string(v.Former.Result), v.Former.Policy),
		Genuine: v.ProvesReturnPath(in.From), Junk: result.Junk, Authentic: v.IsAuthentic(), Proven: proof.Domain, Signed: proof.Signed, Lacks: proof.Missing, Origin: origin,
	}
	env := acceptedEnvelope{
		Version: acceptedVersion, Envelope: inbox.Envelope{From: in.From, To: addressesOf(in.Recipients), Received: s.Now()},
		Facts: stored.Facts, Author: v.FromDomain, RequireTLS: in.Client.RequireTLS,
	}
	if !mayContainReport(stored.Summary) { // otherwise reports about reports would never end
		env.Count, err = s.rooms.Reports.DMARCCount(in, result)
		if err != nil {
			return "", err
		}
	}
	return id, s.accept(ctx, id, in, head, stored, env)
}

// filterFields are prefixes of header fields with a spam filter's result. If a filter is configured
// here, the sender's own fields are removed: mail programs sort by them.
var filterFields = []string{"x-spam", "received-spf"}

// deliverNext removes the first entry of a.To and delivers the message to it, unless its
// destination already has the message; a group adds its members to a.To. Reports in the message are
// read once for each account. size is the free space that the mailbox must have.
func (s *Service) deliverNext(tx *store.Tx, a *store.Arrival, stored *inbox.StoredMessage, decided decisions, size int64) error {
	entry := a.To[0]
	address := recipients.EntryAddress(entry)
	a.To = a.To[1:]
	to, err := s.rooms.Recipients.ResolveArrivalEntry(tx, a.Sender, entry, size)
	if err == nil && to != nil {
		err = feedback.CheckRowAddress(tx, to, stored)
	}
	if err != nil || to == nil || a.Placed[to.PlaceKey()] {
		return err
	}
	if to.Group != nil {
		a.Placed[to.PlaceKey()] = true
		return recipients.ExpandGroup(tx, a, to.Group, address)
	}
	account := "account " + to.Domain.AccountID
	first := !a.Placed[account]
	a.Placed[to.PlaceKey()], a.Placed[account] = true, true
	stored, err = s.messageForMailbox(tx, stored, to.Mailbox, address)
	if err != nil {
		return err
	}
	err = s.deliver(tx, arrival{
		stored: stored, to: to, address: address, sender: a.Sender, read: first, from: a.From, sentBy: a.SentBy, requireTLS: a.RequireTLS, decisions: decided,
	})
	if err != nil || !first {
		return err
	}
	return s.recordSender(tx, to.Domain.AccountID, a)
}

// An arrival is a message that arrives at one destination.
type arrival struct {
	stored  *inbox.StoredMessage
	to      *recipients.Destination
	address string // recipient in the envelope
	sender  string // return path, "" for a report
	sentBy  string // ID of the mailbox here that sent it; "" if it is from elsewhere

	read bool   // reports in the message are to be read
	from string // the author's domain

	requireTLS bool // a forward requires TLS (RFC 8689)

	decisions decisions // for the mailboxes at which it arrives
}

// deliver files a message from outside or from a mailbox here, and forwards it, as the destination
// says.
func (s *Service) deliver(tx *store.Tx, a arrival) error {
	to, stored := a.to, a.stored
	junk := stored.Junk
	done, err := s.rooms.Feedback.Apply(tx, to, stored, a.sender)
	if err != nil {
		return err
	}

	// A message that the classifier considers spam goes to Junk, unless a rule moves it.
	judged := a.decisions[to.Domain.AccountID]
	if judged != nil && judged.Junk && to.Mailbox != nil && to.Mailbox.External == nil {
		d := a.decisions[to.Mailbox.ID]
		junk = junk || d == nil || d.Folder == ""
	}

	// Warm-up mail that is no junk goes to its own folder, whatever the mailbox's rules and forward
	// say.
	if to.Mailbox != nil && !done && !junk && (judged == nil || !judged.Junk) {
		done, err = s.rooms.Inbox.FileWarmup(tx, to.Mailbox, stored, arrivalFiling(a, judged))
		if err != nil {
			return err
		}
	}

	// File the message in INBOX or Junk, in INBOX if the mailbox has no Junk folder. A mailbox that
	// forwards its mail without keeping a copy still keeps junk, and does not forward it.
	if to.Mailbox != nil && !done && (!to.Only || junk) {
		folder := uint32(store.InboxID)
		if junk {
			folders, err := tx.Folders(to.Mailbox.Num)
			if err != nil {
				return err
			}
			if i := slices.IndexFunc(folders, func(f *store.Folder) bool { return f.SpecialUse == junkUse }); i >= 0 {
				folder = folders[i].ID
			}
		}
		filing := arrivalFiling(a, judged)
		filing.Folder = folder
		if err := s.fileWithRules(tx, a, filing, junk); err != nil {
			return err
		}
	}
	if authors := stored.Summary.From; len(authors) == 1 && !junk && stored.Authentic {
		if err := s.rooms.Correspondents.RecordAuthor(tx, to.Domain.AccountID, strings.ToLower(authors[0].Email())); err != nil {
			return err
		}
	}

	// Forward the message unchanged, so that its author's signature stays valid. It is not signed
	// but sealed (RFC 8617), so that our authentication results go with it. Its return path is
	// rewritten if another server will check it (see SRSForward). Failures are reported only to a
	// genuine sender, since a report to a forged one goes to a stranger.
	if to.Forward != "" && !done && (!to.Only || !junk) {
		sub := &store.Submission{
			AccountID: to.Domain.AccountID, DomainID: to.Domain.ID, MessageID: stored.Summary.MessageID, Sender: a.sender,
			Subject: stored.Summary.Subject, Blob: stored.Blob, Forward: true, EightBit: true,
			RequireTLS: a.requireTLS, ListID: to.ListID, Required: to.Must,
		}
		if to.Mailbox != nil {
			sub.MailboxID = to.Mailbox.ID
		}
		if stored.Genuine {
			sub.ReportTo = a.sender
		}
		if err := s.rooms.Sender.SendAutoMessage(tx, to.Mailbox, outbound.AutoMessage{Sub: sub, Domain: to.Domain, To: outbound.Rcpt{Address: to.Forward}}); err != nil {
			return err
		}
	}

	// Keep the message for reading if it may contain a DMARC or TLS report about a domain of the
	// account.
	if a.read && mayContainReport(stored.Summary) {
		return s.rooms.Reports.KeepForReading(tx, to.Domain.AccountID, stored, a.from, stored.Authentic)
	}
	return nil
}

// arrivalFiling returns how a message is filed in the mailbox at which it arrives, without the
// folder. judged is the result of the account's classifier; nil if there is none.
func arrivalFiling(a arrival, judged *decision) inbox.Filing {
	f := inbox.Filing{Arrived: true, Own: a.sentBy == a.to.Mailbox.ID, Recipient: a.address}
	if judged != nil && a.to.Mailbox.External == nil {
		f.Spam = judged.Spam
	}
	return f
}

// A head has what the header of a message says, as far as it is needed before the message is
// stored.
type head struct {
	from      []string // the author addresses as they are shown here
	authors   []string // the author addresses on which all mail programs agree; nil if they may differ
	hops      int
	delivered map[string]bool // addresses in its Delivered-To fields
	lists     map[string]bool // IDs in its List-Id fields
}

// readHead reads the header of a message.
func readHead(body *core.Spool) (*head, error) {
	// Read the message up to its empty line, at most MaxHeader bytes.
	block := make([]byte, min(body.Size(), 16<<10))
	for {
		n, err := body.ReadAt(block, 0)
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("read message header: %w", err)
		}
		if i := bytes.Index(block[:n], []byte("\r\n\r\n")); i >= 0 {
			block = block[:i+4]
			break
		}
		if int64(n) >= min(body.Size(), msg.MaxHeader) {
			block = block[:n]
			break
		}
		block = make([]byte, min(body.Size(), msg.MaxHeader))
	}

	// Read its authors.
	r := bytes.NewReader(block)
	root, err := msg.Scan(r)
	if err != nil {
		return nil, fmt.Errorf("read message header: %w", err)
	}
	h := &head{delivered: map[string]bool{}, lists: map[string]bool{}}
	if len(block) < msg.MaxHeader {
		h.authors = msg.ReadPossibleAuthors(block).Emails
	}
	if root.Envelope != nil {
		for _, a := range root.Envelope.From {
			if email := a.Email(); email != "" {
				h.from = append(h.from, email)
			}
		}
	}

	// Read the fields that show where the message has been.
	fields, err := msg.HeaderFields(r, root, []string{"Received", "Delivered-To", "List-Id"}, false)
	if err != nil {
		return nil, fmt.Errorf("read message header: %w", err)
	}
	for line := range bytes.SplitSeq(fields, []byte("\r\n")) {
		name, value, _ := strings.Cut(string(line), ":")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "received":
			h.hops++
		case "delivered-to":
			if email, err := msg.NormalizeEmail(strings.TrimSpace(value)); err == nil {
				h.delivered[email] = true
			}
		case "list-id":
			_, id, _ := strings.Cut(value, "<")
			id, _, _ = strings.Cut(id, ">")
			h.lists[strings.ToLower(strings.TrimSpace(id))] = true
		}
	}
	return h, nil
}

// maxHops is the number of Received fields from which a message counts as looping (RFC 5321 section
// 6.3).
const maxHops = 50

// checkLoop refuses a message with too many hops, or one that has been at the forwarding address or
// group before. to is nil before the destination is known.
func (h *head) checkLoop(to *recipients.Destination, address string) error {
	if h.hops >= maxHops {
		return core.SMTPErrorf(554, "5.4.6", "Mail loop: the message has passed %d servers", h.hops)
	}
	if to != nil && (to.Forward != "" || to.Group != nil) && h.delivered[address] || to != nil && to.Group != nil && h.lists[recipients.ListID(to.Group)] {
		return core.SMTPErrorf(554, "5.4.6", "Mail loop: the message has been at %s before", address)
	}
	return nil
}

// finalDeliveryFields returns the fields that only a final delivery writes: Return-Path (RFC 5321
// section 4.4), and Delivered-To, which detects loops. only is the recipient; it is "" if there are
// several, since Delivered-To would reveal them to each other. A message that returns from a
// forward has only one recipient.
func finalDeliveryFields(sender, only string) []byte {
	fields := "Return-Path: <" + sender + ">\r\n"
	if only != "" {
		fields += "Delivered-To: " + only + "\r\n"
	}
	return []byte(fields)
}

func addressesOf(list []Recipient) []string {
	out := make([]string, 0, len(list))
	for _, r := range list {
		out = append(out, r.address)
	}
	return out
}

// Trace returns the Received field (RFC 5321 section 4.4) of a message from a client, and the ID in
// it. forWhom is "" if the field must not name the recipient. For a logged-in user the field leaves
// out the client's address and HELO name, which are private.
func (s *Service) Trace(c Client, forWhom string) (field []byte, id string) {
	now := s.Now()
	id = s.Store.NewID("rcv")
	text := "Received: "
	if !c.Authenticated {
		text += "from " + cleanHELO(c.Helo) + " (" + addressLiteral(c.IP) + ")\r\n\t"
	}
	text += "by " + s.Hostname()
	if c.TLS != "" {
		text += " (" + c.TLS + ")"
	}
	text += "\r\n\twith " + protocolName(c) + " id " + id
	if forWhom != "" {
		text += "\r\n\tfor <" + forWhom + ">"
	}
	field = now.AppendFormat(append([]byte(text), ";\r\n\t"...), time.RFC1123Z)
	return append(field, "\r\n"...), id
}

// cleanHELO returns the HELO name without characters that could break the field.
func cleanHELO(helo string) string {
	word := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r > 0x7f && r != 0xfffd, strings.ContainsRune(".-_[]:", r):
			return r
		}
		return -1
	}, helo)
	if word == "" {
		return "unknown"
	}
	return strings.ToValidUTF8(word[:min(len(word), 255)], "")
}

// addressLiteral formats an address as in RFC 5321 section 4.1.3.
func addressLiteral(ip netip.Addr) string {
	switch {
	case !ip.IsValid():
		return "unknown"
	case ip.Is4():
		return "[" + ip.String() + "]"
	}
	return "[IPv6:" + ip.String() + "]"
}

// protocolName returns the protocol name of RFC 3848 and RFC 6531 section 4.3.
func protocolName(c Client) string {
	if !c.Extended {
		return "SMTP"
	}
	word := "ESMTP"
	if c.UTF8 {
		word = "UTF8SMTP"
	}
	if c.TLS != "" {
		word += "S"
	}
	if c.Authenticated {
		word += "A"
	}
	return word
}

const (
	kindArrival           = "arrival"
	recipientsPerJobWrite = 25 // recipients in each transaction of the job: nobody waits for it, and two may share a commit
)

// arrivalArgs are the arguments of a job that files a message for its remaining recipients.
type arrivalArgs struct {
	ArrivalID string `json:"arrival_id"`
}

// arrivalKind is the job that files messages with more recipients than one transaction serves.
func (s *Service) arrivalKind() jobs.Kind {
	return jobs.Kind{
		Name: kindArrival, Work: s.fileArrival, Max: outbound.MaxAttempts, Timeout: time.Hour, Most: inbox.MaxFilingJobs, Backoff: outbound.RetryWait,
		Failed: func(tx *store.Tx, j *store.Job, cause error) error {
			args, err := jobs.Args[arrivalArgs](j)
			if err != nil {
				return nil // invalid arguments: no message to drop
			}
			s.Log.Error("a message was not filed for all its recipients", "job_id", j.ID, "arrival", args.ArrivalID, "error", cause)
			return dropArrival(tx, args.ArrivalID)
		},
	}
}

func dropArrival(tx *store.Tx, id string) error {
	a, err := store.Arrivals.Get(tx, id)
	if core.IsGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := store.ArrivalBlobs.Unref(tx, a.Blob, a.ID); err != nil {
		return err
	}
	return store.Arrivals.Delete(tx, id)
}

// fileArrival files a message for its remaining recipients, some in each transaction, so that other
// writers get their turn. Each transaction updates the list, so that the job continues after a
// crash.
func (s *Service) fileArrival(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[arrivalArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	a, err := s.readArrival(args.ArrivalID)
	if core.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	giveUp := a.ReceivedAt.Add(outbound.GiveUpAfter)
	d, err := s.rereadArrival(a)
	for err == nil && len(a.To) > 0 {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		began := time.Now()
		a, err = s.fileNextBatch(args.ArrivalID, d, !s.Now().Before(giveUp))
		core.Sleep(ctx, time.Since(began)) // let other writers go first
	}
	switch {
	case core.IsGone(err):
		return nil, nil // another attempt has finished it
	case err != nil && !s.Now().Before(giveUp):
		return nil, jobs.Permanent(err)
	case err != nil:
		return nil, err
	}
	if len(a.Refused) > 0 {
		if err := s.reportRefused(a); err != nil {
			return nil, err
		}
	}
	return s.endArrival(a.ID, float64(j.Jitter)/(1<<16))
}

// endArrival deletes an arrival when all recipients have the message. Otherwise it reschedules the
// job for the recipients that could not take the message yet.
func (s *Service) endArrival(id string, jitter float64) (jobs.Writes, error) {
	a, err := s.readArrival(id)
	if core.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(a.Later) == 0 {
		return func(tx *store.Tx, _ *store.Job) error { return dropArrival(tx, id) }, nil
	}
	next := s.Now().Add(outbound.RetryWait(a.Tries+1, jitter))
	if end := a.ReceivedAt.Add(outbound.GiveUpAfter); next.After(end) {
		next = end
	}
	return func(tx *store.Tx, _ *store.Job) error {
		a, err := store.Arrivals.Get(tx, id)
		if err != nil {
			return err
		}
		a.To, a.Later = append(a.To, a.Later...), nil
		a.Tries++
		return store.Arrivals.Put(tx, a)
	}, jobs.RetryAt(next, errors.New("some recipients cannot take the message now"))
}

func (s *Service) readArrival(id string) (a *store.Arrival, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		a, err = store.Arrivals.Get(tx, id)
		return err
	})
	return a, err
}

// rereadArrival parses a stored message that was already parsed on arrival.
func (s *Service) rereadArrival(a *store.Arrival) (*inbox.StoredMessage, error) {
	blob, err := s.Store.OpenBlob(a.Blob)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	d, err := inbox.ReadMessage(blob, blob.Size(), a.Sender)
	if err != nil {
		return nil, err
	}
	var to []string
	for _, entry := range slices.Concat(a.To, a.Later) {
		to = append(to, recipients.EntryAddress(entry))
	}
	if err := s.rooms.Feedback.ReadReport(d, blob, a.Sender, to); err != nil {
		return nil, err
	}
	d.Blob = a.Blob
	d.Facts = a.Facts
	return d, nil
}

// fileNextBatch delivers an arrival to its next addresses in one transaction, and returns its
// updated row. On the last try, temporary failures are final.
func (s *Service) fileNextBatch(id string, read *inbox.StoredMessage, lastTry bool) (a *store.Arrival, err error) {
	err = s.Store.Update(func(tx *store.Tx) error {
		a, err = store.Arrivals.Get(tx, id)
		if err != nil {
			return err
		}
		if a.Placed == nil {
			a.Placed = map[string]bool{}
		}
		stored := *read
		stored.Blob = a.Blob // compaction may have moved the message since it was read
		if err := s.fileNext(tx, a, &stored, int64(stored.Blob.Length), recipientsPerJobWrite, lastTry); err != nil {
			return err
		}
		return store.Arrivals.Put(tx, a)
	})
	return a, err
}

// reportRefused reports the refused recipients to the sender in one report (RFC 5321 section 6.1,
// RFC 3464), if the sender is genuine.
func (s *Service) reportRefused(a *store.Arrival) error {
	var report *inbox.StoredMessage // nil if nobody is to be notified
	if a.Genuine && a.Sender != "" {
		blob, err := s.Store.OpenBlob(a.Blob)
		if err != nil {
			return err
		}
		defer blob.Close()
		var list []msg.DSNRecipient
		for _, r := range a.Refused {
			status := r.Enhanced
			if status[0] == '4' {
				status = "4.4.7" // expired (RFC 3463)
			}
			list = append(list, msg.DSNRecipient{Final: r.Address, Action: msg.ActionFailed, Status: status, Diagnostic: r.Text})
		}
		report, err = s.rooms.Outbound.WriteReport(outbound.ReportedMessage{ID: a.ID, To: a.Sender, QueuedAt: a.ReceivedAt, Original: blob}, list...)
		if err != nil {
			return err
		}
		if report != nil {
			defer s.rooms.Inbox.Release(report) // no effect if the report was queued
		}
	}
	return s.Store.Update(func(tx *store.Tx) error {
		now, err := store.Arrivals.Get(tx, a.ID)
		if err != nil {
			return err
		}
		if len(now.Refused) != len(a.Refused) { // another attempt has reported them
			return nil
		}
		now.Refused = nil
		if err := store.Arrivals.Put(tx, now); err != nil || report == nil {
			return err
		}
		d, err := store.DomainByName.Read(tx, core.DomainOfAddress(a.Refused[0].Address))
		if core.IsGone(err) {
			return nil // no domain is left to report from
		}
		if err != nil {
			return err
		}
		return s.rooms.Outbound.QueueReport(tx, d.AccountID, d.ID, a.Sender, report)
	})
}

// mayContainReport reports whether a message may contain a DMARC or TLS report, by the types and
// names of its attachments.
func mayContainReport(sum *msg.Summary) bool {
	for _, a := range sum.Attachments {
		if ReportFile(&a) != "" {
			return true
		}
	}
	return false
}

// ReportFile returns which kind of report an attachment may be; "" for none.
func ReportFile(a *msg.Attachment) string {
	if a.Size > 2*reportfile.MaxPacked {
		return ""
	}
	if a.ContentType == "application/tlsrpt+gzip" || a.ContentType == "application/tlsrpt+json" {
		return store.ReportTLS
	}
	name, packed := strings.CutSuffix(strings.ToLower(a.Filename), ".gz")
	// A report's file name is receiver "!" domain "!" begin "!" end (RFC 9990 section 3.5.2, RFC
	// 8460 section 5.1).
	if strings.Count(name, "!") < 3 {
		return ""
	}
	switch ext := path.Ext(name); {
	case ext == ".json":
		return store.ReportTLS
	case ext == ".xml", ext == ".zip", packed:
		return store.ReportDMARC
	}
	return ""
}
