package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/codes"
	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/reply"
	"github.com/mailstead/mailstead/mail/tokenize"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	defaultWait = 30        // seconds
	maxWaitRows = 2000      // rows that are examined in one snapshot
	waitBatch   = 20        // messages that one snapshot selects; their bodies are read after it has ended
	maxWaitBody = 256 << 10 // bytes of a message's text that are searched for codes and links
)

// WaitFilter says for which message a request waits, and for how long.
type WaitFilter struct {
	Timeout *int `query:"timeout"` // Seconds, from 1 to 60; 30 by default.
	// Only messages that arrived after this time; by default, after the request. Pass the `now` of
	// the previous answer.
	Since      core.Time `query:"since"`
	From       string    `query:"from" max:"200"`               // Words of the author's name and address, as in lists.
	To         string    `query:"to" max:"254" example:"trash"` // The recipient, with its +tag.
	FromDomain string    `query:"from_domain" max:"253"`        // Only mail whose verified_domain is this one or below it.
	Subject    string    `query:"subject" max:"200"`            // Text that the subject contains, in any case.
	Kind       string    `query:"kind" enum:"code|link"`        // Only mail with a code, or with a link.
	// Leave out what a stranger has written, except the code and, with from_domain, links of the
	// same domain.
	Withhold bool `query:"withhold"`
}

// WaitForMessageIn is the query of wait_for_message.
type WaitForMessageIn struct {
	UserID string `path:"user_id"`
	WaitFilter
}

// WaitForAnyMessageIn is the query of wait_for_any_message.
type WaitForAnyMessageIn struct {
	WaitFilter
}

// A WaitAnswer has a message that has arrived, with its code and links. Message is null if none
// arrived in time. Now is the value of Since for the next request.
type WaitAnswer struct {
	Message *WaitedMessage `json:"message"`
	// The one-time code in it; null if there is none or it is not clear which. Dashes are kept.
	Code  *string       `json:"code" words:"theirs" example:"482913"`
	Links []MessageLink `json:"links"` // At most 20 web addresses in their order, without images and links that only unsubscribe.
	// The author's domain, if DMARC passed for it when the message arrived here. Null for all other
	// mail, whatever its header says.
	VerifiedDomain *string `json:"verified_domain" words:"theirs" example:"example.net"`
	// Pass it as `since` of the next call. It is the `received_at` of the message; without one,
	// nothing that arrives later has an earlier time.
	Now core.Time `json:"now"`
}

// A WaitedMessage is a message that a request waited for, with the text that its author wrote.
type WaitedMessage struct {
	InboxMessage
	// What the author wrote, without quoted messages, the lines that introduce them, and the
	// signature; from the HTML if there is no text. Null if the author wrote nothing. It is as
	// little to be trusted as `text`.
	ReplyText *string `json:"reply_text" words:"theirs"`
}

// A MessageLink is a link in a message. SameDomain says that it belongs to the proven author's
// organisation.
type MessageLink struct {
	URL  string `json:"url" words:"theirs" example:"https://example.net/confirm?token=9c41"`
	Text string `json:"text" words:"theirs" example:"Confirm your address"` // What people read there. With `withhold`, empty for a stranger's mail.
	// Whether it leads to `verified_domain`, below it, or to the same organisation.
	SameDomain bool `json:"same_domain" example:"true"`
}

// WaitForMessage waits for a message that arrives in a mailbox.
func (s *Service) WaitForMessage(ctx context.Context, who core.Actor, in WaitForMessageIn) (*WaitAnswer, error) {
	return s.wait(ctx, who, in.UserID, in.WaitFilter)
}

// WaitForAnyMessage waits for a message that arrives in one of the mailboxes that the actor sees.
func (s *Service) WaitForAnyMessage(ctx context.Context, who core.Actor, in WaitForAnyMessageIn) (*WaitAnswer, error) {
	return s.wait(ctx, who, "", in.WaitFilter)
}

// EndWaiting makes all requests that wait, now or later, return at once.
func (s *Service) EndWaiting() { s.arrivals.endWaits() }

// A messageWait is a request that waits for a message. It has examined all arrivals up to the time
// at.
type messageWait struct {
	s       *Service
	who     core.Actor
	userID  string // ID of the mailbox; "": any mailbox
	mailbox uint32 // number of the mailbox; 0: any mailbox
	filter  WaitFilter
	author  *tokenize.Matcher // nil: any author
	subject string
	waiter  *waiter
	at      time.Time
}

// An arrivedMessage is a message that matches the filter, except that its body is not compared yet.
type arrivedMessage struct {
	shown    InboxMessage
	source   agents.Source
	verified bool // the author is verified, so nothing is withheld
	root     *msg.Part
	blob     store.BlobRef
}

// wait answers a request that waits for a message in the mailbox userID; if userID is "", in any
// mailbox.
func (s *Service) wait(ctx context.Context, who core.Actor, userID string, f WaitFilter) (*WaitAnswer, error) {
	w, timeout, err := s.newWait(who, userID, f)
	if err != nil {
		return nil, err
	}
	return w.wait(ctx, timeout)
}

func (w *messageWait) wait(ctx context.Context, timeout time.Duration) (*WaitAnswer, error) {
	s, who := w.s, w.who
	// Without since, the request waits for messages that arrive after this snapshot. So the result
	// does not depend on the clock.
	err := s.Store.View(func(tx *store.Tx) error {
		if w.userID != "" {
			mb, err := core.ReadMailbox(tx, who, w.userID)
			if err != nil {
				return err
			}
			w.mailbox = mb.Num
		}
		last, err := tx.LastArrived(who.AccountNum)
		w.at = last
		if !w.filter.Since.IsZero() {
			w.at = w.filter.Since.Time
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	w.waiter, err = s.arrivals.join(who.AccountNum, w.mailbox, s.Now())
	if err != nil {
		return nil, err
	}
	defer func() { s.arrivals.leave(w.waiter, s.Now()) }()

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for ended := s.arrivals.waitsEnded(); !ended; {
		if out, err := w.nextAnswer(ctx); out != nil || err != nil {
			return out, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			ended = true
		case <-w.waiter.wake:
			ended = s.arrivals.waitsEnded()
		}
	}

	// The answer's now promises that every later arrival has a later time. But a transaction that
	// is running may still file a message with an earlier time. So wait until it has ended, and
	// search again.
	now := s.Now().Truncate(time.Millisecond)
	s.arrivals.promise(w.waiter, now)
	if s.Store.Update(func(*store.Tx) error { return nil }) != nil { // the store is closed, so no transaction is running
		now = w.at
	}
	out, err := w.nextAnswer(ctx)
	if out != nil || err != nil {
		return out, err
	}

	// The newest arrival may have a time after now. The next request must not return it again.
	err = s.Store.View(func(tx *store.Tx) error {
		last, err := tx.LastArrived(who.AccountNum)
		if w.at.Before(last) {
			last = w.at
		}
		if last.After(now) {
			now = last
		}
		return err
	})
	if err == nil {
		out = &WaitAnswer{Links: []MessageLink{}, Now: core.Time{Time: now}}
	}
	return out, err
}

// newWait validates the filter of a request.
func (s *Service) newWait(who core.Actor, userID string, f WaitFilter) (w *messageWait, timeout time.Duration, err error) {
	w = &messageWait{s: s, who: who, userID: userID, filter: f, subject: strings.ToLower(f.Subject)}
	timeout = defaultWait * time.Second
	if f.Timeout != nil {
		if *f.Timeout < 1 || *f.Timeout > 60 {
			return nil, 0, core.Invalid("timeout", "out_of_range", "must be from 1 to 60 seconds")
		}
		timeout = time.Duration(*f.Timeout) * time.Second
	}
	if f.FromDomain != "" {
		w.filter.FromDomain, _, err = idn.Registrable(f.FromDomain)
		if err != nil {
			return nil, 0, core.Invalid("from_domain", "invalid", "%s", err)
		}
	}
	if f.To != "" {
		w.filter.To, err = core.NormalizeEmail("to", f.To)
		if err != nil {
			return nil, 0, err
		}
	}
	if f.From != "" {
		q := tokenize.Parse(f.From)
		if len(q.Terms) == 0 {
			return nil, 0, core.Invalid("from", "invalid", "has no word that could be found")
		}
		w.author = tokenize.NewMatcher(q)
	}
	return w, timeout, nil
}

// nextAnswer returns the answer for the oldest matching message that was not examined before; nil
// if there is none.
func (w *messageWait) nextAnswer(ctx context.Context) (*WaitAnswer, error) {
	for {
		matches, more, err := w.nextMatches()
		if err != nil {
			return nil, err
		}
		for _, a := range matches {
			out, err := w.answer(a)
			if out != nil || err != nil {
				return out, err
			}
		}
		if !more {
			return nil, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// nextMatches returns the next messages that match the filter. Their bodies are not compared yet.
// It uses one snapshot of the store. more is true if there are more messages to examine.
func (w *messageWait) nextMatches() (matches []*arrivedMessage, more bool, err error) {
	notes, noted := w.s.arrivals.notesAfter(w.waiter, w.at)
	if noted && len(notes) == 0 {
		return nil, false, nil
	}
	err = w.s.Store.View(func(tx *store.Tx) error {
		last, err := tx.LastArrived(w.who.AccountNum)
		if err != nil {
			return err
		}
		view := w.s.newMessageView(tx)
		defer w.s.freeMessageView(view)
		account, folders := uint32(0), []uint32(nil)
		if !noted {
			if w.at.Before(last) {
				account, folders, err = w.folders(tx)
			}
			if err == nil {
				matches, more, err = w.walk(view, account, folders, last)
			}
			if err == nil && !more {
				w.s.arrivals.startNotes(w.waiter, last)
			}
			return err
		}
		for _, n := range notes {
			if len(matches) >= waitBatch && n.at > w.at.UnixMilli() { // but copies of one message, which have the same time, stay together
				more = true
				return nil
			}
			a, gone, err := w.message(view, n.mailbox, n.folder, n.uid, n.at)
			if gone { // another session has moved or deleted the message
				a, err = w.findMoved(view, n)
			}
			if err != nil {
				return err
			}
			if a != nil {
				matches = append(matches, a)
			}
			w.at = time.UnixMilli(n.at)
		}
		return nil
	})
	return matches, more, err
}

// folders returns where arrived mail may be: in the folders with the returned numbers and, if
// account is not 0, in the INBOX of every mailbox of this account.
func (w *messageWait) folders(tx *store.Tx) (account uint32, folders []uint32, err error) {
	add := func(mb *store.Mailbox) error {
		all, err := foldersToList(tx, mb, allMail)
		for _, f := range all {
			if f.Messages > 0 && (f.ID != store.InboxID || account == 0) {
				folders = append(folders, f.Num)
			}
		}
		return err
	}
	if w.userID != "" {
		mb, err := core.ReadMailbox(tx, w.who, w.userID)
		if err == nil {
			err = add(mb)
		}
		return 0, folders, err
	}
	if w.who.SeesAll() {
		account = w.who.AccountNum
	}
	for _, mb := range store.MailboxesByAccount.Asc(tx, w.who.AccountID, "") {
		if w.who.Sees(mb.ID) && !mb.Gone() {
			if err := add(mb); err != nil {
				return 0, nil, err
			}
		}
	}
	return account, folders, nil
}

// walk examines the arrivals after w.at in the rows of the store. last is the time of the newest
// arrival.
func (w *messageWait) walk(view *messageView, account uint32, folders []uint32, last time.Time) (matches []*arrivedMessage, more bool, err error) {
	rows := 0
	for place := range view.tx.ReceivedAfter(account, folders, w.at) {
		if place.Received.After(last) {
			break
		}
		if place.Received.After(w.at) && rows > 0 && (rows >= maxWaitRows || len(matches) >= waitBatch) {
			return matches, true, nil // but copies of one message, which have the same time, stay together
		}
		rows++
		mailbox, folder := view.tx.FolderOfNum(place.Num)
		a, _, err := w.message(view, mailbox, folder, place.UID, place.Received.UnixMilli())
		if err != nil {
			return nil, false, err
		}
		if a != nil {
			matches = append(matches, a)
		}
		w.at = place.Received
	}
	if last.After(w.at) {
		w.at = last
	}
	return matches, false, nil
}

// findMoved searches the other folders for a message that is no longer in the folder in which it
// was filed. It returns nil if the message was deleted or does not match.
func (w *messageWait) findMoved(view *messageView, n arrivalNote) (*arrivedMessage, error) {
	mb, err := store.MailboxByNum.Find(view.tx, store.NumKey(n.mailbox))
	if mb == nil || err != nil || mb.AccountID != w.who.AccountID || mb.Gone() {
		return nil, err
	}
	all, err := foldersToList(view.tx, mb, allMail)
	if err != nil {
		return nil, err
	}
	var folders []uint32
	for _, f := range all {
		folders = append(folders, f.Num)
	}
	for place := range view.tx.ReceivedAfter(0, folders, time.UnixMilli(n.at-1)) {
		if place.Received.UnixMilli() != n.at {
			break
		}
		mailbox, folder := view.tx.FolderOfNum(place.Num)
		a, _, err := w.message(view, mailbox, folder, place.UID, n.at)
		if a != nil || err != nil {
			return a, err
		}
	}
	return nil, nil
}

// message returns a message if it matches the filter (its body is not compared yet) and arrived at
// the time at, in Unix milliseconds. gone is true if the message does not exist.
func (w *messageWait) message(view *messageView, mailbox, folder, uid uint32, at int64) (a *arrivedMessage, gone bool, err error) {
	tx := view.tx
	m, err := tx.Message(mailbox, folder, uid)
	if errors.Is(err, store.ErrNotFound) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	var meta store.Meta
	if err := tx.ReadMeta(&meta, m); err != nil {
		return nil, false, err
	}
	if meta.Arrived == "" || m.Received.UnixMilli() != at {
		return nil, false, nil
	}
	verified := verifiedOf(&meta)
	if d := w.filter.FromDomain; d != "" && verified != d && !strings.HasSuffix(verified, "."+d) {
		return nil, false, nil
	}
	f, err := tx.Folder(mailbox, folder)
	if err != nil {
		return nil, false, err
	}
	b, err := view.folder(f.Num)
	if err != nil {
		return nil, false, err
	}
	role := roleOf(f)
	if b.mailbox.AccountID != w.who.AccountID || !w.who.Sees(b.mailbox.ID) || b.mailbox.Gone() || role == roleJunk || role == roleTrash {
		return nil, false, nil
	}
	a = &arrivedMessage{blob: m.Blob}
	a.shown, err = view.show(b, m)
	if err != nil {
		return nil, false, err
	}
	a.source = view.source(b, m, a.shown.ThreadID)
	a.verified, err = agents.Verified(&w.who.Policy, &a.source, agents.OwnDomain(tx, w.who.AccountID))
	if err != nil {
		return nil, false, err
	}
	subject, author := strings.ToLower(a.shown.Subject), a.shown.From
	if w.who.Policy.Taint && w.withholds(a) { // a search must not match texts that are withheld
		subject, author = "", bareAddress(a.shown.FromEmail)
	}
	switch {
	case w.filter.To != "" && !strings.EqualFold(a.shown.Recipient, w.filter.To),
		w.subject != "" && !strings.Contains(subject, w.subject),
		w.author != nil && !w.author.Matches(author):
		return nil, false, nil
	}
	a.root, err = msg.DecodePart(meta.Structure)
	return a, false, err
}

// answer reads the body of a message and returns the answer; nil if the message does not match.
func (w *messageWait) answer(a *arrivedMessage) (*WaitAnswer, error) {
	read := w.s.arrivals.sharedTextOf(a.blob)
	read.once.Do(func() { read.text, read.err = w.s.readCodes(a) })
	found, err := read.text, read.err
	if err != nil {
		w.s.arrivals.dropText(read)
		return nil, fmt.Errorf("read message %s of %s: %w", a.shown.UID, a.shown.Mailbox, err)
	}
	if w.filter.Kind == "code" && found.Code == "" || w.filter.Kind == "link" && len(found.Links) == 0 {
		return nil, nil
	}
	out := &WaitAnswer{
		Message: &WaitedMessage{a.shown, core.OrNull(found.reply)}, Code: core.OrNull(found.Code), Links: make([]MessageLink, 0, len(found.Links)), VerifiedDomain: core.OrNull(a.source.Verified), Now: a.shown.ReceivedAt,
	}
	withheld := w.withholds(a)
	if withheld {
		withholdTexts(&out.Message.InboxMessage, a.root)
		out.Message.ReplyText = nil
	}
	for _, l := range found.Links {
		link := MessageLink{URL: l.URL, Text: l.Text, SameDomain: codes.SameOrganisation(l.Host, a.source.Verified)}
		if withheld {
			link.Text = ""
		}
		if !w.filter.Withhold || link.SameDomain && w.filter.FromDomain != "" { // a stranger could write a sentence into the path of another link
			out.Links = append(out.Links, link)
		}
	}
	source := a.source
	if withheld {
		if out.Code == nil && len(out.Links) == 0 {
			return out, nil
		}
		source.Harmless = true
	}
	if err := w.s.agents.Read(w.who.AccountID, agents.HolderOf(w.who), &w.who.Policy, source); err != nil {
		return nil, err
	}
	return out, nil
}

// withholds reports whether the texts of the message are withheld from the answer.
func (w *messageWait) withholds(a *arrivedMessage) bool { return w.filter.Withhold && !a.verified }

// readCodes finds the code, the links and the reply text of a message. The result is empty if the
// bytes of the message are damaged.
func (s *Service) readCodes(a *arrivedMessage) (parsedText, error) {
	blob, err := s.Store.OpenBlob(a.blob)
	if errors.Is(err, store.ErrDamaged) {
		return parsedText{}, nil
	}
	if err != nil {
		return parsedText{}, err
	}
	defer blob.Close()
	body, err := msg.ReadRawBody(blob, a.root, maxWaitBody)
	if err != nil {
		return parsedText{}, err
	}
	return parsedText{codes.Find(a.shown.Subject, body.Text, body.HTML), reply.Of(body)}, nil
}
