package api

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/store"
)

// longLists is an account with long lists, for the walk that measures them. Its JSON is for
// web/test/lists.test.mjs.
type longLists struct {
	Email, Password              string // of its owner
	Domains, Mailboxes, Messages int
	Troubled                     int // how many of the domains need attention
	Bounced                      int // how many of the messages in the sending log bounced; it has as many as the inbox
}

const (
	longSpan  = 25 * 24 * time.Hour // how far back mail and logs go; logs are kept for 30 days
	longBoxes = 200                 // mailboxes that have mail
	perUpdate = 5000                // rows in one transaction
)

// addLongLists adds the account. The program makes one domain, one mailbox, one message and one row
// of the sending log; the others are copies of them, written straight into the stopped store.
// MAILSTEAD_LISTS=full is the size that is measured.
func addLongLists(i *rig.Instance) string {
	l := &longLists{Email: "owner@long-lists.test", Password: "a sentence that nobody guesses", Domains: 120, Mailboxes: 600, Messages: 2000}
	if os.Getenv("MAILSTEAD_LISTS") == "full" {
		l.Domains, l.Mailboxes, l.Messages = 5000, 100_000, 1_000_000
	}
	out, code := rig.Run(i.T, "account", "create", "--data", i.Dir, "--owner-email", l.Email, "--owner-password", l.Password, "--plan", "enterprise", "--json")
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 {
		i.T.Fatalf("account create: %d %s", code, out)
	}
	a := i.As(made.Token)
	a.AddDomain("d00000.lists.test")
	box := a.AddMailbox(longAddress(0, l.Domains), "correct horse")
	rig.DeliverFrom(i.T, i.Ready.SMTP, "stranger@far.test", longAddress(0, l.Domains), "From: Stranger <stranger@far.test>\r\nTo: b0@lists.test\r\nSubject: One of very many\r\n\r\nHello.\r\n")
	i.Until("the message is there", func() bool { return len(a.Inbox(box)) == 1 })
	a.Want(200, "POST", "/v1/email-users/"+box+"/inbox/send", map[string]any{"to": []string{"x@far.test"}, "subject": "Report for the meeting", "text": "Hello."}, nil)
	i.Until("the message is captured", func() bool {
		rows := a.SendingRows()
		return len(rows) == 1 && rows[0].Status == store.OutgoingCaptured
	})
	i.Stop()
	began, most := time.Now(), 1<<40
	st, err := store.Open(i.Dir, store.Options{Unsynced: true, MaxBytes: most, MaxWrites: most, MaxSteps: most})
	if err != nil {
		i.T.Fatal(err)
	}
	c := &listCopies{longLists: l, st: st, began: time.Now().UTC().Add(-longSpan).Truncate(time.Millisecond), entropy: ulid.Monotonic(rand.NewChaCha8([32]byte{1}), 1<<16)}
	err = c.copy(box)
	if err == nil {
		err = st.TidyText(i.T.Context(), c.message.Account)
	}
	if err := errors.Join(err, st.Close()); err != nil {
		i.T.Fatal(err)
	}
	i.T.Logf("%d domains, %d mailboxes and twice %d messages were written in %s", l.Domains, l.Mailboxes, l.Messages, time.Since(began))
	i.Start()
	text, err := json.Marshal(l)
	if err != nil {
		i.T.Fatal(err)
	}
	return string(text)
}

// longAddress returns the address of a mailbox by its number, from 0.
func longAddress(box, domains int) string {
	return fmt.Sprintf("b%05d@d%05d.lists.test", box, box%domains)
}

// listCopies writes the copies.
type listCopies struct {
	*longLists
	st      *store.Store
	began   time.Time // when the oldest message came
	entropy *ulid.MonotonicEntropy

	domain  *store.Domain
	mailbox *store.Mailbox
	folders []*store.Folder
	message *store.Message
	meta    *store.Meta
	sent    *store.Outgoing

	domains []*store.Domain
	boxes   []*store.Mailbox
}

func (c *listCopies) id(prefix string, at time.Time) string {
	return prefix + "_" + strings.ToLower(ulid.MustNew(ulid.Timestamp(at), c.entropy).String())
}

func (c *listCopies) copy(box string) error {
	err := c.st.View(func(tx *store.Tx) (err error) {
		c.mailbox, err = store.Mailboxes.Get(tx, box)
		if err != nil {
			return err
		}
		c.domain, err = store.Domains.Get(tx, c.mailbox.DomainID)
		if err != nil {
			return err
		}
		c.folders, err = tx.Folders(c.mailbox.Num)
		if err != nil {
			return err
		}
		c.message, err = tx.Message(c.mailbox.Num, store.InboxID, 1)
		if err != nil {
			return err
		}
		c.meta, err = tx.Meta(c.mailbox.Num, store.InboxID, 1)
		for _, c.sent = range store.OutgoingsByAccount.Desc(tx, c.mailbox.AccountID, "") {
			break
		}
		return err
	})
	if err != nil {
		return err
	}
	c.domains, c.boxes = []*store.Domain{c.domain}, []*store.Mailbox{c.mailbox}
	for _, step := range []struct {
		rows int
		add  func(tx *store.Tx, n int) error
	}{{c.Domains - 1, c.addDomain}, {c.Mailboxes - 1, c.addMailbox}, {c.Messages - 1, c.addMessage}, {c.Messages - 1, c.addSent}} {
		for from := 0; from < step.rows; from += perUpdate {
			domains, boxes := len(c.domains), len(c.boxes)
			err := c.st.Update(func(tx *store.Tx) error {
				c.domains, c.boxes = c.domains[:domains], c.boxes[:boxes]
				for n := from; n < min(from+perUpdate, step.rows); n++ {
					if err := step.add(tx, n); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return c.index()
}

// addDomain adds a domain; one of fifty needs attention.
func (c *listCopies) addDomain(tx *store.Tx, n int) error {
	d := *c.domain
	d.ID, d.Name, d.DKIM, d.DNSSEC, d.JobID = c.id("dom", c.began), fmt.Sprintf("d%05d.lists.test", n+1), nil, nil, ""
	d.CreatedAt = c.began.Add(time.Duration(n) * time.Second)
	switch n % 50 {
	case 7:
		d.Status, d.ErrorCode, d.ErrorMessage = store.DomainError, "upstream_error", "The registry did not answer."
	case 32:
		d.NSStatus, d.CheckedAt = store.DomainNSLost, c.began
	}
	c.domains = append(c.domains, &d)
	return store.Domains.Put(tx, &d)
}

func (c *listCopies) addMailbox(tx *store.Tx, n int) (err error) {
	m := *c.mailbox
	d := c.domains[(n+1)%len(c.domains)]
	m.ID, m.DomainID, m.Email, m.Name = c.id("eu", c.began), d.ID, longAddress(n+1, c.Domains), fmt.Sprintf("Person %d", n+1)
	m.CreatedAt = c.began.Add(time.Duration(n) * time.Second)
	m.PasswordSealed, m.SCRAM = nil, nil // are sealed under the id
	m.Num, err = tx.NextMailboxNum()
	if err != nil {
		return err
	}
	for _, f := range c.folders {
		if err := tx.CreateFolder(&store.Folder{Mailbox: m.Num, Name: f.Name, SpecialUse: f.SpecialUse, Subscribed: f.Subscribed}); err != nil {
			return err
		}
	}
	c.boxes = append(c.boxes, &m)
	return store.Mailboxes.Put(tx, &m)
}

// place returns which message of which mailbox the message with the number n is, when it came, and
// its thread. It is never in the first mailbox, which has a message already.
func (c *listCopies) place(n int) (box *store.Mailbox, uid uint32, at time.Time, thread store.ThreadNode) {
	boxes := min(longBoxes, len(c.boxes)-1)
	sum := sha256.Sum256(fmt.Append(nil, "message ", n))
	copy(thread[:], sum[:])
	return c.boxes[1+n%boxes], uint32(n/boxes + 1), c.began.Add(time.Duration(n) * (longSpan / time.Duration(c.Messages))).Truncate(time.Millisecond), thread
}

func (c *listCopies) addMessage(tx *store.Tx, n int) error {
	box, _, at, thread := c.place(n)
	m, meta := *c.message, *c.meta
	m.Mailbox, m.UID, m.ModSeq, m.Received = box.Num, 0, 0, at
	meta.ThreadID = "thr_" + hex.EncodeToString(thread[:])
	meta.Preview = fmt.Sprintf("This is message %d. %s", n, meta.Preview)
	return tx.AddMessage(&m, &meta)
}

// addSent adds a row of the sending log; two of a thousand bounced.
func (c *listCopies) addSent(tx *store.Tx, n int) error {
	box, _, at, _ := c.place(n)
	o := *c.sent
	o.ID, o.MailboxID, o.Sender, o.Domain = c.id("msg", at), box.ID, box.Email, box.Email[strings.IndexByte(box.Email, '@')+1:]
	o.Recipient, o.Subject, o.QueuedAt, o.UpdatedAt = fmt.Sprintf("r%d@far%d.test", n%5000, n%50), fmt.Sprintf("Report %d for the meeting", n), at, at
	o.MessageID = fmt.Sprintf("<%d@%s>", n, o.Domain)
	switch {
	case n%500 == 3:
		o.Status, o.BouncedAt, o.LastResponse = store.OutgoingBounced, at, "550 5.1.1 no such user"
	case n%3 == 0:
		o.Status = store.OutgoingDelivered
	}
	return store.Outgoings.Put(tx, &o)
}

// index adds the messages to the text index, oldest first, as the server would, and counts.
func (c *listCopies) index() error {
	account := c.message.Account
	var numbers []int
	for n := range c.Messages - 1 {
		numbers = append(numbers, n)
	}
	for some := range slices.Chunk(numbers, 30_000) {
		b := store.NewTextBatch(account)
		for _, n := range slices.Backward(some) {
			box, uid, at, thread := c.place(n)
			b.AddMessage(store.InboxPos{Received: at, UID: uid, Num: box.Num})
			b.AddWord([]byte("\x01thr_" + hex.EncodeToString(thread[:])))
			b.AddWord([]byte("hello"))
		}
		if err := c.st.AddText(b, nil, nil); err != nil {
			return err
		}
	}
	err := c.st.Update(func(tx *store.Tx) error {
		for _, box := range c.boxes[1:] {
			if err := tx.MarkIndexed(store.TextTodo{Account: account, Num: box.Num, UID: uint32(c.Messages)}); err != nil {
				return err
			}
		}
		return nil
	})
	for _, d := range c.domains {
		if d.Troubled() {
			c.Troubled++
		}
	}
	for n := range c.Messages - 1 {
		if n%500 == 3 {
			c.Bounced++
		}
	}
	return err
}
