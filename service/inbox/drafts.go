package inbox

import (
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// draftPicker finds a message in the Drafts folder by its UID.
func draftPicker(who core.Actor, userID, uid string) messagePicker {
	return messagePicker{byUserID(who, userID), roleDrafts, uid}
}

// FileDraft files a draft in the Drafts folder of a mailbox. Unless old is "", it replaces the
// draft with the UID old. The error is not_found if there is no such draft, quota_exceeded if the
// mailbox is full, or that of agents.CheckDraft.
func (s *Service) FileDraft(tx *store.Tx, who core.Actor, mb *store.Mailbox, d *StoredMessage, old string) (*InboxMessage, error) {
	if old != "" {
		if err := s.DeleteDraft(tx, who, mb.ID, old); err != nil {
			return nil, err
		}
	}
	if err := core.CheckQuota(tx, mb, int64(d.Blob.Length)); err != nil {
		return nil, err
	}
	taint, err := agents.HolderOf(who).Taint(tx)
	if err == nil {
		err = agents.CheckDraft(tx, agents.HolderOf(who), mb.ID)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case taint != nil:
		d.Origin = agents.OriginTainted
	case who.SpeaksForAccount():
		d.Origin = agents.OriginOwn
	default:
		d.Origin = agents.OriginProgram
	}
	f, err := ensureRoleFolder(tx, mb, roleDrafts)
	if err != nil {
		return nil, err
	}
	m, err := s.File(tx, mb, d, Filing{Folder: f.ID, Received: tx.Now(), Flags: store.FlagSeen | store.FlagDraft})
	if err != nil {
		return nil, err
	}
	w := s.newMessageView(tx)
	defer s.freeMessageView(w)
	b, err := w.folder(f.Num)
	if err != nil {
		return nil, err
	}
	out, err := w.show(b, m)
	return &out, err
}

// OpenDraft opens a message of the Drafts folder. It also returns the message's origin: who wrote
// it. The caller closes the blob.
func (s *Service) OpenDraft(who core.Actor, userID, uid string) (root *msg.Part, blob *store.Blob, origin string, err error) {
	o, err := s.openMessage(draftPicker(who, userID, uid))
	if err != nil {
		return nil, nil, "", err
	}
	return o.root, o.blob, o.source.Origin, nil
}

// DeleteDraft deletes a message of the Drafts folder.
func (s *Service) DeleteDraft(tx *store.Tx, who core.Actor, userID, uid string) error {
	mb, _, m, err := draftPicker(who, userID, uid).find(tx)
	if err != nil {
		return err
	}
	s.notifyWatchers(tx, mb.Num)
	return tx.DeleteMessage(m.Mailbox, m.Folder, m.UID)
}
