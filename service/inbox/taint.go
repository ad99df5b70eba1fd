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

// source is sourceOf for the message shown last.
func (w *messageView) source(b viewedFolder, m *store.Message, thread string) agents.Source {
	return sourceOf(b.mailbox, b.folder, m, &w.meta, thread, w.envelope)
}

// withhold removes a stranger's texts from the message shown last, if they would taint its reader.
// For a message that is not withheld it records the source as shown to the reader.
func (w *messageView) withhold(b viewedFolder, m *store.Message, out *InboxMessage) error {
	if w.withholds == nil {
		return nil
	}
	source := w.source(b, m, out.ThreadID)
	withheld, err := w.withholds(&source)
	if err != nil {
		return err
	}
	if !withheld {
		w.shownSources[out.ID] = source
		return nil
	}
	root, err := msg.DecodePart(w.meta.Structure)
	if err == nil {
		withholdWords(out, root)
	}
	return err
}

// withholdWords removes every field of a message into which a stranger could have written text.
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

// bareAddress returns the address as withheld messages show it; "" for an address that could
// contain a sentence: a quoted local part, or an invalid address.
func bareAddress(email string) string {
	if _, err := msg.NormalizeEmail(email); err != nil || strings.HasPrefix(email, `"`) {
		return ""
	}
	return email
}

// matchesShown reports whether a search may return the message: texts that are withheld from the
// reader must not match.
func (x *inboxSearch) matchesShown(m *InboxMessage) bool {
	if !m.Withheld || x.matcher == nil {
		return true
	}
	return x.matcher.Matches(slices.Concat([]string{m.FromEmail, m.Recipient}, m.To, m.CC, m.ReplyTo)...)
}

// read records which sources of a page its reader is shown.
func (l *inboxList) read(page []InboxMessage) error {
	if l.shownSources == nil {
		return nil
	}
	var sources []agents.Source
	for i := range page {
		if w, ok := l.shownSources[page[i].ID]; ok {
			sources = append(sources, w)
		}
		sources = append(sources, l.namedSources[page[i].Thread]...)
	}
	return l.s.agents.Read(l.who.AccountID, agents.HolderOf(l.who), &l.who.Policy, sources...)
}

// openToRead is openMessage for a reader who gets the content: it records the reading, which may
// taint the reader.
func (s *Service) openToRead(who core.Actor, p messagePicker) (*openedMessage, error) {
	o, err := s.openMessage(p)
	if err != nil {
		return nil, err
	}
	if err := s.agents.Read(who.AccountID, agents.HolderOf(who), &who.Policy, o.source); err != nil {
		o.blob.Close()
		return nil, err
	}
	return o, nil
}

// readsAsProven reports whether a proof covers a message from outside, so that it does not taint a
// reader whom strangers' words taint. Such a reader gets only the header fields that the proof
// covers: anyone who resends a signed message can add others.
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

// ThreadOf returns the thread ID for a Message-ID.
func (s *Service) ThreadOf(tx *store.Tx, account uint32, messageID string) (string, error) {
	root, _, err := tx.Thread(account, threadNode(messageID))
	return threadText(root), err
}

// ReadMessages records that a mail client is about to get the content of messages (uids must
// ascend).
func (s *Service) ReadMessages(_ context.Context, u core.MailboxUser, folder uint32, uids []uint32) error {
	if !u.Policy.Taint {
		return nil
	}
	for batch := range slices.Chunk(uids, maxRows) {
		var sources []agents.Source
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
					sources = append(sources, sourceOf(mb, f, m, &meta, thread, e))
				}
				return failed == nil
			})
			if failed != nil {
				return failed
			}
			return err
		})
		if err == nil {
			err = s.agents.Read(u.AccountID, agents.HolderOfLogin(u), &u.Policy, sources...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ReadFolder is ReadMessages for an answer that depends on the content of a folder's messages
// without showing which.
func (s *Service) ReadFolder(ctx context.Context, u core.MailboxUser, folder uint32, uids []uint32) error {
	if len(uids) <= maxRows {
		return s.ReadMessages(ctx, u, folder, uids)
	}
	return s.agents.Read(u.AccountID, agents.HolderOfLogin(u), &u.Policy, agents.Source{MailboxID: u.MailboxID})
}

// CheckUntainted refuses an action that a mail client may not do once it has read a stranger's
// words.
func (s *Service) CheckUntainted(u core.MailboxUser) error {
	if !u.Policy.Taint {
		return nil
	}
	return s.Store.View(func(tx *store.Tx) error { return agents.CheckUntainted(tx, agents.HolderOfLogin(u)) })
}

// taintOf returns what has tainted a mail client; nil if it is not tainted.
func taintOf(tx *store.Tx, u core.MailboxUser) (*store.Taint, error) {
	if !u.Policy.Taint {
		return nil, nil
	}
	return agents.HolderOfLogin(u).Taint(tx)
}

// setOrigin sets the origin of a message that a mail client adds: tainted if the client is, else
// unknown. The error is that of checkTaintedKeywords.
func setOrigin(tx *store.Tx, u core.MailboxUser, d *StoredMessage, keywords []string) error {
	taint, err := taintOf(tx, u)
	d.Origin = ""
	if taint != nil {
		d.Origin = agents.OriginTainted
	}
	return errors.Join(err, checkTaintedKeywords(taint, keywords, nil))
}

// harmlessKeywords are keywords that a stranger cannot have made up: registered ones (RFC 5788),
// and those that Thunderbird uses for junk and labels.
var harmlessKeywords = []string{
	"$Forwarded", "$MDNSent", "$Junk", "$NotJunk", "$Phishing", "$Important", "$SubmitPending", "$Submitted", "$Ignored", "$Followed", "$Muted",
	"Junk", "NonJunk", "NotJunk", "Forwarded", "$label1", "$label2", "$label3", "$label4", "$label5",
}

// checkTaintedKeywords refuses new keywords from a tainted mail client: keywords are text, which
// others read without being tainted.
func checkTaintedKeywords(taint *store.Taint, keywords, had []string) error {
	if taint == nil {
		return nil
	}
	for _, k := range keywords {
		if !HasKeyword(had, k) && !HasKeyword(harmlessKeywords, k) {
			return core.OverSMTP(550, "5.7.1", agents.TaintedError(taint))
		}
	}
	return nil
}

// checkTaintedMove refuses moves and copies to another folder that a tainted token or mail client
// may not make. It may take nothing out of Junk. A message that has been in Drafts, or that a
// tainted sender wrote, may only go to Trash, and stays there. taint is nil for untainted callers.
func checkTaintedMove(tx *store.Tx, taint *store.Taint, m *store.Message, from, to *Folder) error {
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
	if roleOf(from) == roleDrafts || meta.Drafted != "" || meta.Origin == agents.OriginTainted {
		return refused
	}
	return nil
}

// checkTaintedAppend refuses an append by a tainted mail client to any folder but Drafts.
func checkTaintedAppend(tx *store.Tx, u core.MailboxUser, f *Folder) error {
	if !u.Policy.Taint || roleOf(f) == roleDrafts {
		return nil
	}
	return agents.CheckUntainted(tx, agents.HolderOfLogin(u))
}
