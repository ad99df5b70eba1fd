package inbox

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const referencesAsked = 20 // ids of a message's References, the last ones

// PeopleAnswered gives the people of the message that one answers with the ids, which are in
// brackets: the message that In-Reply-To names, else the last of References, as far as it arrived
// in the mailbox and is not in Junk. Its people are the addresses in its From, Reply-To, To and Cc.
// found is false where there is no such message.
func (s *Service) PeopleAnswered(mb *store.Mailbox, inReplyTo string, references []string) (people []string, found bool, err error) {
	ids := slices.Clone(references[max(0, len(references)-referencesAsked):])
	slices.Reverse(ids)
	if inReplyTo != "" {
		ids = slices.Insert(ids, 0, inReplyTo)
	}
	err = s.Store.View(func(tx *store.Tx) error {
		for _, id := range ids {
			root, _, err := tx.Thread(mb.AccountNum, threadNode(id))
			if err != nil {
				return err
			}
			arrived, err := arrivedInThread(tx, mb, threadText(root))
			if err != nil {
				return err
			}
			for _, e := range arrived { // the oldest: nobody can name an id before there is one
				if e.MessageID == id {
					people, found = peopleOf(e), true
				}
			}
			if found {
				return nil
			}
		}
		return nil
	})
	return people, found, s.withoutIndex(err)
}

// PeopleSent gives the people of a message that a mailbox sent, by its copies in the folder of sent
// mail; none where there is none. If there are several, which others can have put there, it gives
// those who are the people of each.
func (s *Service) PeopleSent(tx *store.Tx, mb *store.Mailbox, id string) (people []string, err error) {
	sent, err := findFolder(tx, mb, roleSent)
	if IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	root, _, err := tx.Thread(mb.AccountNum, threadNode(id))
	if err != nil {
		return nil, err
	}
	found, err := inThread(tx, mb, []uint32{sent.Num}, threadText(root))
	if err != nil {
		return nil, s.withoutIndex(err)
	}
	first := true
	for _, at := range found {
		e, _, err := envelopeAt(tx, mb, sent.ID, at.UID)
		if err != nil {
			return nil, err
		}
		if e == nil || e.MessageID != id {
			continue
		}
		of := peopleOf(e)
		if first {
			people, first = of, false
		}
		people = slices.DeleteFunc(people, func(email string) bool { return !slices.Contains(of, email) })
	}
	return people, nil
}

// withoutIndex has a damaged index built again; until then nobody is found.
func (s *Service) withoutIndex(err error) error {
	if errors.Is(err, store.ErrTextDamaged) {
		s.rebuildText()
		return nil
	}
	return err
}

// arrivedInThread gives the envelopes of the messages of a conversation that arrived in a mailbox,
// the newest first, but for those in Junk.
func arrivedInThread(tx *store.Tx, mb *store.Mailbox, thread string) (out []*msg.Envelope, err error) {
	folders, err := tx.Folders(mb.Num)
	if err != nil {
		return nil, err
	}
	ids, nums := map[uint32]uint32{}, []uint32{}
	for _, f := range folders {
		if roleOf(f) != roleJunk {
			ids[f.Num], nums = f.ID, append(nums, f.Num)
		}
	}
	found, err := inThread(tx, mb, nums, thread)
	if err != nil {
		return nil, err
	}
	for _, at := range found {
		e, meta, err := envelopeAt(tx, mb, ids[at.Num], at.UID)
		if err != nil {
			return nil, err
		}
		// Others were put there, unless an older release filed them.
		if e != nil && (meta.Arrived != "" || meta.SPF != "" || meta.DMARC != "") {
			out = append(out, e)
		}
	}
	return out, nil
}

// envelopeAt gives the envelope of a message; nil where it is gone, or has none.
func envelopeAt(tx *store.Tx, mb *store.Mailbox, folder, uid uint32) (*msg.Envelope, *store.Meta, error) {
	meta, err := tx.Meta(mb.Num, folder, uid)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	part, err := msg.DecodePart(meta.Structure)
	if err != nil {
		return nil, nil, fmt.Errorf("structure of message %d of %s: %w", uid, mb.Email, err)
	}
	return part.Envelope, meta, nil
}

// peopleOf gives the addresses of a message's From, Reply-To, To and Cc in their one form.
func peopleOf(e *msg.Envelope) (people []string) {
	for _, a := range slices.Concat(e.From, e.ReplyTo, e.To, e.Cc) {
		email, err := core.NormalizeEmail("to", a.Email())
		if err == nil && !slices.Contains(people, email) {
			people = append(people, email)
		}
	}
	return people
}
