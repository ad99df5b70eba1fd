package mta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/reportfile"
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
	if err := s.readProof(d.Report); err != nil {
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
func (s *Service) places(in Incoming, head *head, d *inbox.StoredMessage) (to []string, err error) {
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
func (s *Service) destinationFor(tx *store.Tx, from, address string, d *inbox.StoredMessage) (*destination, error) {
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
	return to, to.takesReport(tx, d)
}

// deliver places a message at the destinations of the addresses, each of another place: all of them
// if one transaction can, else the first, and a job goes on with the others. What they take may
// have changed since they were looked up.
func (s *Service) deliver(tx *store.Tx, in Incoming, to []string, d *inbox.StoredMessage, f *ScreeningResult) error {
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

// Trace makes the Received field (RFC 5321 section 4.4) of a message that a client hands us, and
// the name that the message has in it. forWhom is "" where the field must not tell. Of a user who
// has logged in it says neither the address nor what the user's machine calls itself, which are
// nobody's business outside.
func (s *Service) Trace(c Client, forWhom string) (field []byte, id string) {
	now := s.Now()
	id = s.Store.NewID("rcv")
	var b strings.Builder
	b.WriteString("Received: ")
	if !c.Authenticated {
		fmt.Fprintf(&b, "from %s (%s)\r\n\t", heloWord(c.Helo), addressLiteral(c.IP))
	}
	fmt.Fprintf(&b, "by %s", s.Hostname())
	if c.TLS != "" {
		fmt.Fprintf(&b, " (%s)", c.TLS)
	}
	fmt.Fprintf(&b, "\r\n\twith %s id %s", protocol(c), id)
	if forWhom != "" {
		fmt.Fprintf(&b, "\r\n\tfor <%s>", forWhom)
	}
	fmt.Fprintf(&b, ";\r\n\t%s\r\n", now.Format(time.RFC1123Z))
	return []byte(b.String()), id
}

// heloWord keeps of what a client calls itself what cannot be mistaken for anything else in the
// field.
func heloWord(helo string) string {
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

// addressLiteral writes an address as RFC 5321 section 4.1.3 has it.
func addressLiteral(ip netip.Addr) string {
	switch {
	case !ip.IsValid():
		return "unknown"
	case ip.Is4():
		return "[" + ip.String() + "]"
	}
	return "[IPv6:" + ip.String() + "]"
}

// protocol is the word of RFC 3848 and RFC 6531 section 4.3.
func protocol(c Client) string {
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
	kindArrival   = "arrival"
	placesAtATime = 50 // places of one message that one transaction serves: others wait for it
	placesInAJob  = 25 // of each of the others: nobody waits for these, and two of them may share a commit
)

// arrivalArgs is the job of filing one message where it is not yet.
type arrivalArgs struct {
	ArrivalID string `json:"arrival_id"`
}

// arrivalKind files messages that were taken for more places than one transaction serves.
func (s *Service) arrivalKind() jobs.Kind {
	return jobs.Kind{
		Name: kindArrival, Work: s.fileArrival, Max: maxAttempts, Timeout: time.Hour, Most: inbox.ArrivalsMost, Backoff: retryWait,
		Failed: func(tx *store.Tx, j *store.Job, cause error) error {
			args, err := jobs.Args[arrivalArgs](j)
			if err != nil {
				return nil // there is no message that it could be about
			}
			s.Log.Error("a message is not filed for all its recipients", "arrival", args.ArrivalID, "error", cause)
			return dropArrival(tx, args.ArrivalID)
		},
	}
}

// addArrival has a job go on with the addresses that are left.
func (s *Service) addArrival(tx *store.Tx, a *store.Arrival) error {
	a.ID = tx.NewID("arr")
	if err := tx.RefArrival(a.Blob, a.ID); err != nil {
		return err
	}
	if err := store.Arrivals.Put(tx, a); err != nil {
		return err
	}
	_, err := s.Queue.Add(tx, jobs.New{Kind: kindArrival, Lane: "arrival " + a.ID, Args: arrivalArgs{a.ID}})
	return err
}

func dropArrival(tx *store.Tx, id string) error {
	a, err := store.Arrivals.Get(tx, id)
	if core.IsGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := tx.UnrefArrival(a.Blob, a.ID); err != nil {
		return err
	}
	return store.Arrivals.Delete(tx, id)
}

// place names where a destination is, so that a message is there once.
func (d *destination) place() string {
	row := ""
	if d.row != nil {
		row = d.row.ID
	}
	if d.Mailbox != nil {
		return fmt.Sprintf("mailbox %d %s", d.Mailbox.Num, row)
	}
	if d.reports { // each account reads what comes to it
		return "reports " + d.domain.AccountID
	}
	return "forward " + d.Forward + " " + row
}

// placeArrival places a message at the destination of an address, unless it is there, and once for
// each account does what follows: a report that it may hold is read, or its author is known from
// now on.
func (s *Service) placeArrival(tx *store.Tx, a *store.Arrival, address string, to *destination, d *inbox.StoredMessage) (err error) {
	if a.Placed[to.place()] {
		return nil
	}
	a.Placed[to.place()] = true
	how := arrival{sender: a.Sender, to: address, folder: store.InboxID, received: tx.Now(), genuine: a.Genuine}
	if to.Mailbox != nil {
		if how.folder, err = folderFor(tx, to.Mailbox, a.Junk); err != nil {
			return err
		}
	}
	if err := s.place(tx, to, d, how); err != nil {
		return err
	}
	account := "account " + to.domain.AccountID
	if a.Placed[account] {
		return nil
	}
	a.Placed[account] = true
	if mayHoldReport(d.Summary) {
		if err := s.Hooks.KeepForReading(tx, to.domain.AccountID, d, a.From, a.Authentic); err != nil {
			return err
		}
	}
	return s.noteSender(tx, to.domain.AccountID, a)
}

// fileArrival files a message for those who have not had it, some in each transaction, so that
// other mail goes between. What is left to do changes with what is done: after a crash it goes on
// there.
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
	giveUp := a.ReceivedAt.Add(giveUpAfter)
	d, err := s.rereadArrival(a)
	for err == nil && len(a.To) > 0 {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		began := time.Now()
		a, err = s.fileSome(args.ArrivalID, d, !s.Now().Before(giveUp))
		core.Sleep(ctx, time.Since(began)) // others go first
	}
	switch {
	case core.IsGone(err):
		return nil, nil // another attempt was faster
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

// endArrival lets a message go that everybody has, or has the job come again for those who could
// not take it.
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
	next := s.Now().Add(retryWait(a.Tries+1, jitter))
	if end := a.ReceivedAt.Add(giveUpAfter); next.After(end) {
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

// rereadArrival reads a message again that was read when it came.
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
	if err := s.readProof(d.Report); err != nil {
		return nil, err
	}
	d.Blob = a.Blob
	d.Meta.SPF, d.Meta.DKIM, d.Meta.DMARC = a.SPF, a.DKIM, a.DMARC
	return d, nil
}

// fileSome serves the next addresses in one transaction, and gives the record as it is then. last
// says that nobody is left for later any more.
func (s *Service) fileSome(id string, read *inbox.StoredMessage, last bool) (a *store.Arrival, err error) {
	err = s.Store.Update(func(tx *store.Tx) error {
		if a, err = store.Arrivals.Get(tx, id); err != nil {
			return err
		}
		if a.Placed == nil {
			a.Placed = map[string]bool{}
		}
		d := *read
		d.Blob = a.Blob // compaction may have moved it
		for n := 0; len(a.To) > 0 && n < placesInAJob && !tx.Large(); n++ {
			address := a.To[0]
			a.To = a.To[1:]
			to, err := s.destinationFor(tx, a.Sender, address, &d)
			if e := new(core.SMTPError); errors.As(err, &e) {
				if e.Temporary() && !last {
					a.Later = append(a.Later, address)
				} else {
					a.Refused = append(a.Refused, store.RefusedRcpt{Address: address, Enhanced: e.Enhanced, Text: e.Error()})
				}
				continue
			}
			if err != nil {
				return err
			}
			if err := s.placeArrival(tx, a, address, to, &d); err != nil {
				return err
			}
		}
		return store.Arrivals.Put(tx, a)
	})
	return a, err
}

// reportRefused tells the sender of those who could not be served, in one report (RFC 5321 section
// 6.1, RFC 3464), if the sender is known to be genuine.
func (s *Service) reportRefused(a *store.Arrival) error {
	about := slices.Clone(a.Refused)
	report, err := s.composeRefused(a, about)
	if err != nil {
		return err
	}
	if report != nil {
		defer s.inbox.Release(report) // does nothing where it is referred to
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		now, err := store.Arrivals.Get(tx, a.ID)
		if err != nil {
			return err
		}
		if len(now.Refused) != len(about) { // another attempt was faster
			return nil
		}
		now.Refused = nil
		if err := store.Arrivals.Put(tx, now); err != nil || report == nil {
			return err
		}
		d, err := store.DomainByName.Read(tx, core.DomainOfAddress(about[0].Address))
		if core.IsGone(err) {
			return nil // nobody is left who could tell
		}
		if err != nil {
			return err
		}
		return s.queueReport(tx, &store.Submission{AccountID: d.AccountID, DomainID: d.ID, ReportTo: a.Sender}, report)
	})
	return err
}

// composeRefused writes the report; nil if it has no reader.
func (s *Service) composeRefused(a *store.Arrival, about []store.RefusedRcpt) (*inbox.StoredMessage, error) {
	if !a.Genuine || a.Sender == "" {
		return nil, nil
	}
	blob, err := s.Store.OpenBlob(a.Blob)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	var list []msg.DSNRecipient
	for _, r := range about {
		status := r.Enhanced
		if status[0] == '4' {
			status = "4.4.7" // it lasted too long (RFC 3463)
		}
		list = append(list, msg.DSNRecipient{Final: r.Address, Action: msg.ActionFailed, Status: status, Diagnostic: r.Text})
	}
	m := &delivery{
		row: &store.Outgoing{ID: a.ID, QueuedAt: a.ReceivedAt}, sub: &store.Submission{Sender: a.Sender, Forward: true, ReportTo: a.Sender},
		blob: blob, now: s.Now(),
	}
	return s.writeReport(m, list...)
}

// mayHoldReport tells whether a message looks like one that brings a report: by the type or name of
// what is attached.
func mayHoldReport(sum *msg.Summary) bool {
	for _, a := range sum.Attachments {
		if ReportFile(&a) != "" {
			return true
		}
	}
	return false
}

// reportFile says what kind of a report an attachment may be; "" for none.
func ReportFile(a *msg.Attachment) string {
	if a.Size > 2*reportfile.MaxPacked {
		return ""
	}
	if a.ContentType == "application/tlsrpt+gzip" || a.ContentType == "application/tlsrpt+json" {
		return store.ReportTLS
	}
	name, packed := strings.CutSuffix(strings.ToLower(a.Filename), ".gz")
	// receiver "!" domain "!" begin "!" end (RFC 7489 section 7.2.1.1, RFC 8460 section 5.1)
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
