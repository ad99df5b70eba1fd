package inbox

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// verifiedOf is the domain that the author of a message is from for sure; "" if nobody knows.
func verifiedOf(meta *store.Meta) string {
	domain, ok := strings.CutPrefix(meta.Arrived, arrivedProven)
	if !ok {
		return ""
	}
	return domain
}

// lackingOf says why nothing proves the author of a message for which DMARC passes; "" for others.
func lackingOf(meta *store.Meta) string {
	lacks, ok := strings.CutPrefix(meta.Arrived, arrivedUnverified)
	if !ok {
		return ""
	}
	return lacks
}

// authorship says who wrote a message whose From has an address first.
func authorship(meta *store.Meta, from string) agents.Source {
	w := agents.Source{Origin: meta.Words, Verified: verifiedOf(meta)}
	if email, err := msg.NormalizeEmail(from); err == nil {
		w.Author = email
	}
	return w
}

// sourceOf says whose words a message has and of which conversation. thread is what threadNow
// gives. Where the message lies makes no difference.
func sourceOf(mb *store.Mailbox, f *Folder, m *store.Message, meta *store.Meta, thread string, e *msg.EnvelopeView) agents.Source {
	if e == nil {
		e = &msg.EnvelopeView{}
	}
	from := ""
	if i := slices.IndexFunc(e.From, func(a msg.AddressView) bool { return !a.IsGroupMarker() }); i >= 0 {
		from = string(e.From[i].AppendEmail(nil))
	}
	w := authorship(meta, from)
	w.MailboxID, w.ThreadID, w.Folder, w.UID = mb.ID, thread, f.Name, m.UID
	for _, list := range [][]msg.AddressView{e.From, e.ReplyTo, e.To, e.Cc} {
		for i := range list {
			if email, err := msg.NormalizeEmail(string(list[i].AppendEmail(nil))); err == nil {
				w.People = append(w.People, email)
			}
		}
	}
	return w
}

// source is wordsOf for the message that was shown last.
func (w *messageView) source(b viewedFolder, m *store.Message, thread string) agents.Source {
	return sourceOf(b.mailbox, b.folder, m, &w.meta, thread, w.envelope)
}

// withhold leaves out of the message that was shown last what a stranger may have written, if it is
// for a reader whom that would taint, and notes what such a reader is given.
func (w *messageView) withhold(b viewedFolder, m *store.Message, out *InboxMessage) error {
	if w.withholds == nil {
		return nil
	}
	words := w.source(b, m, out.ThreadID)
	withheld, err := w.withholds(&words)
	if err != nil {
		return err
	}
	if !withheld {
		w.given[out.ID] = words
		return nil
	}
	root, err := msg.DecodePart(w.meta.Structure)
	if err == nil {
		withholdWords(out, root)
	}
	return err
}

// withholdWords leaves of a message what no stranger can have put words into.
func withholdWords(m *InboxMessage, root *msg.Part) {
	bare := func(list []msg.Address) []string {
		out := []string{}
		for _, a := range withoutGroups(list) {
			if email := bareAddress(a.Email()); email != "" {
				out = append(out, email)
			}
		}
		return out
	}
	m.Withheld, m.Subject, m.BodyPreview, m.MessageID, m.FromName, m.InReplyTo = true, "", "", "", nil, nil
	m.References, m.Attachments, m.Spam = []string{}, []InboxAttachment{}, nil
	m.FromEmail = bareAddress(m.FromEmail)
	m.From, m.To, m.CC, m.BCC, m.ReplyTo = m.FromEmail, []string{}, []string{}, []string{}, []string{}
	m.Recipient = bareAddress(m.Recipient)
	if m.Recipient == "" {
		m.Recipient = m.Mailbox
	}
	if e := root.Envelope; e != nil {
		m.To, m.CC, m.ReplyTo = bare(e.To), bare(e.Cc), bare(e.ReplyTo)
	}
}

// bareAddress is an address as it stands in lists of withheld messages, "" for what could hold a
// sentence: quoted text before the @, or text without one.
func bareAddress(email string) string {
	if _, err := msg.NormalizeEmail(email); err != nil || strings.HasPrefix(email, `"`) {
		return ""
	}
	return email
}

// finds reports whether a search of a reader whom strangers' words taint finds a message. Nothing
// that is withheld does.
func (x *inboxSearch) finds(m *InboxMessage) bool {
	if !m.Withheld || x.matcher == nil {
		return true
	}
	return x.matcher.Matches(slices.Concat([]string{m.FromEmail, m.Recipient}, m.To, m.CC, m.ReplyTo)...)
}

// read notes what of a page its reader is given.
func (l *inboxList) read(page []InboxMessage) error {
	if l.given == nil {
		return nil
	}
	var words []agents.Source
	for i := range page {
		if w, ok := l.given[page[i].ID]; ok {
			words = append(words, w)
		}
		words = append(words, l.named[page[i].Thread]...)
	}
	return l.s.agents.Read(l.who.AccountID, agents.HolderOf(l.who), &l.who.Policy, words...)
}

// openFor is openMessage for whoever is given what is in the message.
func (s *Service) openFor(who core.Actor, p messagePicker) (*openedMessage, error) {
	o, err := s.openMessage(p)
	if err != nil {
		return nil, err
	}
	if err := s.agents.Read(who.AccountID, agents.HolderOf(who), &who.Policy, o.words); err != nil {
		o.blob.Close()
		return nil, err
	}
	return o, nil
}

// readsAsProven reports whether a message from outside does not taint a reader whom strangers'
// words taint, since a proof covers it. Such a reader is given no field beside those that it
// covers: whoever sends a signed message again can add others.
func (s *Service) readsAsProven(who core.Actor, w *agents.Source) (proven bool, err error) {
	if !who.Policy.Taint || w.Origin == agents.OriginOwn {
		return false, nil
	}
	err = s.Store.View(func(tx *store.Tx) error {
		withheld, err := s.agents.Withholds(tx, who.AccountID, &who.Policy, w)
		proven = !withheld
		return err
	})
	return proven, err
}

// ThreadOf gives the conversation of a message that is known by its Message-ID.
func (s *Service) ThreadOf(tx *store.Tx, account uint32, messageID string) (string, error) {
	root, _, err := tx.Thread(account, threadNode(messageID))
	return threadText(root), err
}

// ReadMessages notes that a mail client is given what is in messages, whose UIDs ascend, before it
// is.
func (s *Service) ReadMessages(_ context.Context, u core.MailboxUser, folder uint32, uids []uint32) error {
	if !u.Policy.Taint {
		return nil
	}
	for batch := range slices.Chunk(uids, maxRows) {
		var words []agents.Source
		err := s.Store.View(func(tx *store.Tx) error {
			mb, err := core.OpenMailbox(tx, u)
			if err != nil {
				return err
			}
			f, err := folderByID(tx, u.Mailbox, folder)
			if err != nil {
				return err
			}
			var view msg.View
			var meta store.Meta
			var failed error
			err = tx.EachMessage(u.Mailbox, folder, batch, false, func(m *store.Message, _ []byte) bool {
				var thread string
				var e *msg.EnvelopeView
				if failed = tx.ReadMeta(&meta, m); failed == nil {
					thread, failed = threadNow(tx, m.Account, meta.ThreadID)
				}
				if failed == nil {
					e, failed = view.Envelope(meta.Structure)
				}
				if failed == nil {
					words = append(words, sourceOf(mb, f, m, &meta, thread, e))
				}
				return failed == nil
			})
			if failed != nil {
				return failed
			}
			return err
		})
		if err == nil {
			err = s.agents.Read(u.AccountID, agents.HolderOfLogin(u), &u.Policy, words...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ReadFolder is ReadMessages for an answer about a folder that tells something of what is in its
// messages, but not of which.
func (s *Service) ReadFolder(ctx context.Context, u core.MailboxUser, folder uint32, uids []uint32) error {
	if len(uids) <= maxRows {
		return s.ReadMessages(ctx, u, folder, uids)
	}
	return s.agents.Read(u.AccountID, agents.HolderOfLogin(u), &u.Policy, agents.Source{MailboxID: u.MailboxID})
}

// CheckUntainted refuses what a mail client may not do once it has read what a stranger wrote.
func (s *Service) CheckUntainted(u core.MailboxUser) error {
	if !u.Policy.Taint {
		return nil
	}
	return s.Store.View(func(tx *store.Tx) error { return agents.CheckUntainted(tx, agents.HolderOfLogin(u)) })
}

// taintOf gives what has tainted a mail client; nil if nothing has.
func taintOf(tx *store.Tx, u core.MailboxUser) (*store.Taint, error) {
	if !u.Policy.Taint {
		return nil, nil
	}
	return agents.HolderOfLogin(u).Taint(tx)
}

// noteTainted says whose words a message has that a mail client puts into a folder: those of nobody
// who is known, or of somebody tainted. The error is that of mayHave.
func noteTainted(tx *store.Tx, u core.MailboxUser, d *StoredMessage, keywords []string) error {
	taint, err := taintOf(tx, u)
	d.Origin = ""
	if taint != nil {
		d.Origin = agents.OriginTainted
	}
	return errors.Join(err, mayHave(taint, keywords, nil))
}

// plainKeywords are those whose names say nothing that a stranger can have thought of: registered
// ones (RFC 5788), and what Thunderbird marks junk and labels with.
var plainKeywords = []string{
	"$Forwarded", "$MDNSent", "$Junk", "$NotJunk", "$Phishing", "$Important", "$SubmitPending", "$Submitted", "$Ignored", "$Followed", "$Muted",
	"Junk", "NonJunk", "NotJunk", "Forwarded", "$label1", "$label2", "$label3", "$label4", "$label5",
}

// mayHave refuses keywords that a tainted mail client gives a message which it does not have yet:
// their names are text, which others read without reading a message.
func mayHave(taint *store.Taint, keywords, had []string) error {
	if taint == nil {
		return nil
	}
	for _, k := range keywords {
		if !HasKeyword(had, k) && !HasKeyword(plainKeywords, k) {
			return core.OverSMTP(550, "5.7.1", agents.TaintedError(taint))
		}
	}
	return nil
}

// mayMove refuses to move or copy a message into another folder, to where a tainted token or mail
// client may not: nothing leaves Junk, and what has lain in Drafts, or what somebody tainted wrote,
// goes to Trash alone and stays there. taint is nil for all others.
func mayMove(tx *store.Tx, taint *store.Taint, m *store.Message, from, to *Folder) error {
	if taint == nil || from.ID == to.ID {
		return nil
	}
	refused := core.OverSMTP(550, "5.7.1", agents.TaintedError(taint))
	if roleOf(from) == roleJunk {
		return refused
	}
	if roleOf(to) == roleTrash {
		return nil
	}
	var meta store.Meta
	if err := tx.ReadMeta(&meta, m); err != nil {
		return err
	}
	if roleOf(from) == roleDrafts || meta.Drafted != "" || meta.Words == agents.OriginTainted {
		return refused
	}
	return nil
}

// mayPut refuses to put a message into a folder but Drafts for a mail client that has read what a
// stranger wrote.
func mayPut(tx *store.Tx, u core.MailboxUser, f *Folder) error {
	if !u.Policy.Taint || roleOf(f) == roleDrafts {
		return nil
	}
	return agents.CheckUntainted(tx, agents.HolderOfLogin(u))
}
