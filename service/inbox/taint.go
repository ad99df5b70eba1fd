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

// source returns the agents.Source of the message that the view converted last.
func (w *messageView) source(b viewedFolder, m *store.Message, thread string) agents.Source {
	return sourceOf(b.mailbox, b.folder, m, &w.meta, thread, w.envelope)
}

// withhold clears the texts of the message that the view converted last, if a stranger may have
// written them and they would taint the reader. Otherwise it records that the message is shown to
// the reader.
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
		withholdTexts(out, root)
	}
	return err
}

// withholdTexts clears all fields of a message in which a stranger could have written text.
func withholdTexts(m *InboxMessage, root *msg.Part) {
	bare := func(list []msg.Address) []string {
		out := []string{}
		for _, a := range list {
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

// bareAddress returns an address as withheld messages show it. It returns "" if the address could
// contain a sentence: if its local part is quoted, or the address is invalid.
func bareAddress(email string) string {
	if _, err := msg.NormalizeEmail(email); err != nil || strings.HasPrefix(email, `"`) {
		return ""
	}
	return email
}

// matchesShown reports whether a search finds a withheld message by what is shown of it. A search
// must not match texts that are withheld from the reader, nor may they exclude a message.
func (x *inboxSearch) matchesShown(m *InboxMessage) bool {
	texts := slices.Concat([]string{m.FromEmail, m.Recipient}, m.To, m.CC, m.ReplyTo)
	return x.match.HasWords(texts...) && !x.match.HasExcluded(texts...)
}

// recordReading records that the messages of a page are shown to the reader, which may taint the
// reader.
func (l *inboxList) recordReading(page []InboxMessage) error {
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

// openToRead is like openMessage, for a reader who gets the message's content. It records the
// reading, which may taint the reader.
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

// readsAsProven reports whether a reader whose policy has taint can read a message from outside
// without being tainted, because a proof covers the message. Such a reader gets only the header
// fields that the proof covers, because anyone who resends a signed message can add other fields.
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

// ThreadOf returns the ID of the thread that has a message with the given Message-ID.
func (s *Service) ThreadOf(tx *store.Tx, account uint32, messageID string) (threadID string, err error) {
	root, _, err := tx.Thread(account, threadNode(messageID))
	return threadIDOf(root), err
}

// ReadMessages records that a mail client is about to get the content of messages, which may taint
// it. uids must ascend.
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
					thread, failed = currentThreadID(tx, m.Account, meta.ThreadID)
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

// ReadFolder is like ReadMessages, for an answer that depends on the content of messages but does
// not contain it, such as the result of a search.
func (s *Service) ReadFolder(ctx context.Context, u core.MailboxUser, folder uint32, uids []uint32) error {
	if len(uids) <= maxRows {
		return s.ReadMessages(ctx, u, folder, uids)
	}
	return s.agents.Read(u.AccountID, agents.HolderOfLogin(u), &u.Policy, agents.Source{MailboxID: u.MailboxID})
}

// CheckUntainted returns an error if a mail client is tainted. It is called before actions that a
// tainted client must not do.
func (s *Service) CheckUntainted(u core.MailboxUser) error {
	if !u.Policy.Taint {
		return nil
	}
	return s.Store.View(func(tx *store.Tx) error { return agents.CheckUntainted(tx, agents.HolderOfLogin(u)) })
}

// taintOf returns the taint of a mail client; nil if it is not tainted.
func taintOf(tx *store.Tx, u core.MailboxUser) (*store.Taint, error) {
	if !u.Policy.Taint {
		return nil, nil
	}
	return agents.HolderOfLogin(u).Taint(tx)
}

// setOrigin sets the origin of a message that a mail client adds. The origin is tainted if the
// client is tainted, and otherwise unknown. The error is that of checkTaintedKeywords.
func setOrigin(tx *store.Tx, u core.MailboxUser, d *StoredMessage, keywords []string) error {
	taint, err := taintOf(tx, u)
	d.Origin = ""
	if taint != nil {
		d.Origin = agents.OriginTainted
	}
	return errors.Join(err, checkTaintedKeywords(taint, keywords, nil))
}

// harmlessKeywords are keywords whose text no stranger can have chosen: registered keywords (RFC
// 5788), and those of Thunderbird for junk and labels.
var harmlessKeywords = []string{
	"$Forwarded", "$MDNSent", "$Junk", "$NotJunk", "$Phishing", "$Important", "$SubmitPending", "$Submitted", "$Ignored", "$Followed", "$Muted",
	"Junk", "NonJunk", "NotJunk", "Forwarded", "$label1", "$label2", "$label3", "$label4", "$label5",
}

// checkTaintedKeywords returns an error if a tainted mail client adds a keyword that is not
// harmless. Such a keyword could pass a stranger's text on to readers whom keywords do not taint.
// had are the keywords that the message has already.
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

// checkTaintedMove returns an error if a tainted token or mail client must not move or copy a
// message to another folder. It must not take messages out of Junk. It may put other messages into
// Trash. It must not put a message into any other folder if the message has been in Drafts or a
// tainted sender wrote it. taint is nil if the caller is not tainted.
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

// checkTaintedAppend returns an error if a tainted mail client appends a message to a folder other
// than Drafts.
func checkTaintedAppend(tx *store.Tx, u core.MailboxUser, f *Folder) error {
	if !u.Policy.Taint || roleOf(f) == roleDrafts {
		return nil
	}
	return agents.CheckUntainted(tx, agents.HolderOfLogin(u))
}
