package mta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

const (
	JudgeWithin = 15 * time.Second // all that DNS may take to judge one message
	junkUse     = `\Junk`          // RFC 6154
)

// A RecipientQuery is what SMTP knows when a recipient is named.
type RecipientQuery struct {
	From     string // "" for the null sender
	To       string
	Size     int64 // as declared; 0 where nothing was
	RemoteIP netip.Addr
}

// A Recipient is an address that we take mail for.
type Recipient struct {
	address string // in its one form
}

// String is the address.
func (r Recipient) String() string { return r.address }

// Accepts says whether mail to an address is taken. If not, the error is an SMTPError: 550 5.1.1
// for nobody, 550 5.7.1 for a domain that is not ours, 550 5.2.1 and 450 4.2.1 for a mailbox that
// takes no mail, 452 4.2.2 for a full one.
func (s *Service) Accepts(_ context.Context, in RecipientQuery) (Recipient, error) {
	address, err := msg.NormalizeEmail(in.To)
	if err != nil {
		return Recipient{}, core.SMTPErrorf(550, "5.1.3", "Invalid recipient address")
	}
	err = s.Store.View(func(tx *store.Tx) error {
		to, err := s.receiver(tx, address)
		if err != nil {
			return err
		}
		if err := to.admits(in.From); err != nil {
			return err
		}
		return to.takes(tx, max(in.Size, 1))
	})
	return Recipient{address}, core.OverStore(err)
}

// receiver says where mail to an address goes that comes from outside.
func (s *Service) receiver(tx *store.Tx, address string) (*destination, error) {
	to, err := s.findDestination(tx, address)
	if errors.Is(err, errNotHosted) {
		return s.notHosted(tx, address)
	}
	if err != nil {
		return nil, err
	}
	a, err := store.Accounts.Read(tx, to.domain.AccountID)
	if err != nil {
		return nil, err
	}
	if !core.MayAct(a) {
		return nil, core.SMTPErrorf(550, "5.2.1", "Mailbox disabled, not accepting messages")
	}
	return to, nil
}

// notHosted takes mail for the host's own postmaster, to whom RFC 5321 section 4.5.1 lets anybody
// write, and for feedback@, the address to give to those who send complaints about this host, and
// refuses the rest: for now if the domain is about to be ours.
func (s *Service) notHosted(tx *store.Tx, address string) (*destination, error) {
	local, name, _ := msg.SplitEmail(address)
	if (local == "postmaster" || local == "feedback") && strings.EqualFold(name, s.Config.Hostname) {
		return s.hostPostmaster(tx)
	}
	for _, d := range store.DomainsByName.Asc(tx, store.ClaimsKey(name), "") {
		if d.DNSProvider != core.ProviderExternal && d.Status != core.DomainDeleting && !core.ClaimEnded(d) {
			return nil, core.SMTPErrorf(450, "4.2.1", "Domain is being set up, try again later")
		}
	}
	return nil, core.SMTPErrorf(550, "5.7.1", "Relay access denied")
}

// hostPostmaster is the owner of the oldest account, who set this server up.
func (s *Service) hostPostmaster(tx *store.Tx) (*destination, error) {
	for a := range store.Accounts.All(tx) {
		mb, err := store.MailboxByEmail.Read(tx, a.Email)
		if err == nil && mb.Type != "external" {
			d, err := store.Domains.Read(tx, mb.DomainID)
			return &destination{domain: d, Mailbox: mb, Forward: mb.ForwardTo}, errors.Join(err, accepting(mb))
		}
		for _, d := range store.DomainsByAccount.Asc(tx, a.ID, "") {
			return &destination{domain: d, Forward: a.Email}, nil
		}
		break
	}
	return nil, core.SMTPErrorf(550, "5.1.1", "User unknown")
}

// A Client is who hands us a message, and how.
type Client struct {
	IP            netip.Addr
	Helo          string
	Extended      bool   // EHLO
	UTF8          bool   // SMTPUTF8 was asked for
	TLS           string // version and cipher; "" without
	Authenticated bool
}

// Incoming is a message from outside.
type Incoming struct {
	Client     Client
	From       string // reverse path, "" for the null sender
	Recipients []Recipient
	Body       *core.Spool // as Spool made it; the caller closes it
}

// Spool reads a message with CRLF line ends to its end, without what it claims that we said of it
// (RFC 8601 section 5). The error is that of r, or an SMTPError: 552 5.3.4 for more than MaxMessage
// bytes, 452 4.3.1 for a full disk.
func (s *Service) Spool(r io.Reader) (*core.Spool, error) {
	body := s.Store.NewSpool(core.MaxMessage)
	if err := auth.StripResults(body, r, s.Hostname()); err != nil {
		return nil, errors.Join(core.OverStore(err), body.Close())
	}
	return body, nil
}

// Receive judges a message and files it for all its recipients at once, or for none: when it
// returns nil, message, rows, events and forwards are on disk. A mailbox that several of the
// recipients lead to gets the message once. It gives the name under which the message stands in its
// Received field. Errors are SMTPErrors.
func (s *Service) Receive(ctx context.Context, in Incoming) (string, error) {
	head, err := readHead(in.Body)
	if err != nil {
		return "", err
	}
	if head.hops >= maxHops {
		return "", core.SMTPErrorf(554, "5.4.6", "Mail loop: the message has passed %d servers", head.hops)
	}
	trace, id := s.Trace(in.Client, onlyOne(in.Recipients))
	f, err := s.screen(ctx, in, head, id)
	if err != nil {
		return "", core.OverStore(err)
	}
	if s.Config.Spam.Milter != nil {
		clean, err := s.stripped(io.NewSectionReader(in.Body, 0, in.Body.Size()), filterFields)
		if err != nil {
			return "", core.OverStore(err)
		}
		if clean != nil {
			defer clean.Close()
			in.Body = clean
		}
	}
	in.Body.Prepend(slices.Concat(finalFields(in), []byte(f.Verdict.Header), f.fields, trace))
	d, err := s.inbox.Prepare(in.Body, inbox.Envelope{From: in.From, To: addressesOf(in.Recipients), Received: s.Now()})
	if err != nil {
		return "", core.OverStore(err)
	}
	defer s.inbox.Release(d) // does nothing where it is referred to
	if err := s.readProof(d.Tiding); err != nil {
		return "", core.OverStore(err)
	}
	d.Meta.SPF, d.Meta.DKIM, d.Meta.DMARC = string(f.Verdict.SPF), string(f.Verdict.DKIM), string(f.Verdict.DMARC)
	to, err := s.places(in, head, d)
	if err == nil {
		err = s.Store.Update(func(tx *store.Tx) error { return s.deliver(tx, in, to, d, f) })
	}
	return id, core.OverStore(err)
}

// filterFields are how header fields begin that say what a filter thinks of a message. Where there
// is a filter here, only its own count: mail programs sort by them, so that a sender must not write
// them.
var filterFields = []string{"x-spam", "received-spf"}

// places gives one address for each place that the recipients lead to, in a snapshot. What one of
// them does not take refuses the message.
func (s *Service) places(in Incoming, head *head, d *inbox.Draft) (to []string, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		seen := map[string]bool{}
		for _, r := range in.Recipients {
			dest, err := s.destinationFor(tx, in.From, r.address, d)
			if err != nil {
				return err
			}
			if p := dest.place(); !seen[p] {
				seen[p] = true
				to = append(to, r.address)
			}
			if dest.Forward != "" && head.delivered[r.address] {
				return core.SMTPErrorf(554, "5.4.6", "Mail loop: the message has been at %s before", r.address)
			}
		}
		return nil
	})
	return to, err
}

// destinationFor gives where mail from outside goes, if the address takes this message of this
// sender.
func (s *Service) destinationFor(tx *store.Tx, from, address string, d *inbox.Draft) (*destination, error) {
	to, err := s.receiver(tx, address)
	if err != nil {
		return nil, err
	}
	if err := to.admits(from); err != nil {
		return nil, err
	}
	if err := to.takes(tx, int64(d.Blob.Length)); err != nil {
		return nil, err
	}
	return to, to.takesTiding(tx, d)
}

// deliver places a message at the destinations of the addresses, each of another place: all of them
// if one transaction can, else the first, and a job goes on with the others. What they take may
// have changed since they were looked up.
func (s *Service) deliver(tx *store.Tx, in Incoming, to []string, d *inbox.Draft, f *Finding) error {
	a := &store.Arrival{
		Blob: d.Blob, Sender: in.From, Genuine: f.Verdict.GenuinePath(in.From), Junk: f.Junk,
		SPF: d.Meta.SPF, DKIM: d.Meta.DKIM, DMARC: d.Meta.DMARC, From: f.Verdict.FromDomain, Authentic: f.Verdict.Authentic(),
		Placed: map[string]bool{}, ReceivedAt: tx.Now(),
	}
	for n := 0; len(to) > 0 && n < placesAtATime && !tx.Large(); n++ {
		address := to[0]
		to = to[1:]
		dest, err := s.destinationFor(tx, in.From, address, d)
		if err != nil {
			return err
		}
		if err := s.placeArrival(tx, a, address, dest, d); err != nil {
			return err
		}
	}
	if a.To = to; len(a.To) > 0 {
		if err := s.addArrival(tx, a); err != nil {
			return err
		}
	}
	if mayHoldReport(d.Summary) { // else reports about reports would never end
		return nil
	}
	return s.Hooks.CountDMARC(tx, in, f)
}

// folderFor is INBOX, or Junk for what is set aside. A mailbox whose user has deleted Junk gets it
// in INBOX.
func folderFor(tx *store.Tx, mb *store.Mailbox, junk bool) (uint32, error) {
	if !junk {
		return store.InboxID, nil
	}
	folders, err := tx.Folders(mb.Num)
	if err != nil {
		return 0, err
	}
	for _, f := range folders {
		if f.SpecialUse == junkUse {
			return f.ID, nil
		}
	}
	return store.InboxID, nil
}

// judge finds out whether the message comes from whom it names. DNS that does not answer is no
// reason to refuse it.
func (s *Service) judge(ctx context.Context, in Incoming, h *head) (*auth.Verdict, error) {
	v := auth.Verifier{Resolver: s.Resolver, Now: s.Now, Timeout: JudgeWithin, Health: s.screener.pulse}
	verdict, err := v.Verify(ctx, auth.Request{
		IP: in.Client.IP, Helo: in.Client.Helo, MailFrom: in.From, AuthservID: s.Hostname(),
		Message: in.Body, Size: in.Body.Size(), HeaderFrom: h.from,
	})
	if err != nil {
		return nil, fmt.Errorf("authenticate message: %w", err)
	}
	return verdict, nil
}

// A head is what is decided by before a message is stored.
type head struct {
	from      []string // addresses, as they are shown here
	authors   []string // the same, as every program reads them; nil where programs differ
	hops      int
	delivered map[string]bool // where it has been, by its Delivered-To fields
}

// readHead reads the header of a message.
func readHead(body *core.Spool) (*head, error) {
	block, err := headerBlock(body)
	if err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	r := bytes.NewReader(block)
	root, err := msg.Scan(r)
	if err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	h := &head{delivered: map[string]bool{}}
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
	marks, err := msg.HeaderFields(r, root, []string{"Received", "Delivered-To"}, false)
	if err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	h.read(marks)
	return h, nil
}

// headerBlock gives the message up to its empty line, at most MaxHeader bytes.
func headerBlock(body *core.Spool) ([]byte, error) {
	block := make([]byte, min(body.Size(), 16<<10))
	for {
		n, err := body.ReadAt(block, 0)
		if err != nil && err != io.EOF {
			return nil, err
		}
		if i := bytes.Index(block[:n], []byte("\r\n\r\n")); i >= 0 {
			return block[:i+4], nil
		}
		if int64(n) >= min(body.Size(), msg.MaxHeader) {
			return block[:n], nil
		}
		block = make([]byte, min(body.Size(), msg.MaxHeader))
	}
}

func (h *head) read(fields []byte) {
	for line := range bytes.SplitSeq(fields, []byte("\r\n")) {
		name, value, _ := strings.Cut(string(line), ":")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "received":
			h.hops++
		case "delivered-to":
			if email, err := msg.NormalizeEmail(strings.TrimSpace(value)); err == nil {
				h.delivered[email] = true
			}
		}
	}
}

// finalFields are those that only a final delivery writes: Return-Path (RFC 5321 section 4.4), and
// Delivered-To, by which a message that comes back is known. With several recipients that would
// tell each of the others, and what comes back from a forward has one.
func finalFields(in Incoming) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Return-Path: <%s>\r\n", in.From)
	if one := onlyOne(in.Recipients); one != "" {
		fmt.Fprintf(&b, "Delivered-To: %s\r\n", one)
	}
	return b.Bytes()
}

func addressesOf(list []Recipient) []string {
	out := make([]string, 0, len(list))
	for _, r := range list {
		out = append(out, r.address)
	}
	return out
}

func onlyOne(list []Recipient) string {
	if len(list) != 1 {
		return ""
	}
	return list[0].address
}
