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

// ConversationPeople gives the people of all messages of a conversation that arrived in the mailbox
// and are not in Junk, but for those that came to it by their subject alone.
func (s *Service) ConversationPeople(mb *store.Mailbox, thread string) (people []string, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		arrived, err := arrivedInThread(tx, mb, thread)
		for _, e := range arrived {
			if bySubject(e, thread) {
				continue
			}
			for _, email := range peopleOf(e) {
				if !slices.Contains(people, email) {
					people = append(people, email)
				}
			}
		}
		return err
	})
	return people, s.withoutIndex(err)
}

// withoutIndex has a damaged index built anew; until then nobody is found.
func (s *Service) withoutIndex(err error) error {
	if errors.Is(err, store.ErrTextDamaged) {
		s.rebuildText()
		return nil
	}
	return err
}

// bySubject tells whether a message names no other one, and is in a conversation that another one
// began: only its subject has put it there, which anybody may write.
func bySubject(e *msg.Envelope, thread string) bool {
	return len(e.InReplyTo)+len(e.References) == 0 && (e.MessageID == "" || threadText(threadNode(e.MessageID)) != thread)
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
		meta, err := tx.Meta(mb.Num, ids[at.Num], at.UID)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if meta.Arrived == "" && meta.SPF == "" && meta.DMARC == "" { // the others were filed by an older release
			continue
		}
		part, err := msg.DecodePart(meta.Structure)
		if err != nil {
			return nil, fmt.Errorf("structure of message %d of %s: %w", at.UID, mb.Email, err)
		}
		if part.Envelope != nil {
			out = append(out, part.Envelope)
		}
	}
	return out, nil
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
