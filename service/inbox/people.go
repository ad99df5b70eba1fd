package inbox

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

const maxReferences = 20 // how many Message-IDs of References are looked up: the last ones

// PeopleAnswered returns the people of the message that a reply answers: the addresses in its From,
// Reply-To, To and Cc. It tries the message that inReplyTo names, and then those in references, the
// last one first; both are Message-IDs in angle brackets. The answered message must have arrived in
// the mailbox and must not be in Junk. found is false if there is no such message.
func (s *Service) PeopleAnswered(mb *store.Mailbox, inReplyTo string, references []string) (people []string, found bool, err error) {
	ids := slices.Clone(references[max(0, len(references)-maxReferences):])
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
			arrived, err := arrivedInThread(tx, mb, threadIDOf(root))
			if err != nil {
				return err
			}
			for _, e := range arrived { // use the oldest: a later message may have copied its Message-ID
				if e.MessageID == id {
					people, found = addressesOf(e), true
				}
			}
			if found {
				return nil
			}
		}
		return nil
	})
	return people, found, s.rebuildDamaged(err)
}

// PeopleSent returns the people of a message that the mailbox has sent. It reads the copy of the
// message in the Sent folder, and returns no people if there is none. Other programs can add copies
// to this folder, so if there are several copies, it returns only the people that all of them have.
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
	found, err := newestInThread(tx, mb, []uint32{sent.Num}, threadIDOf(root))
	if err != nil {
		return nil, s.rebuildDamaged(err)
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
		of := addressesOf(e)
		if first {
			people, first = of, false
		}
		people = slices.DeleteFunc(people, func(email string) bool { return !slices.Contains(of, email) })
	}
	return people, nil
}

// rebuildDamaged starts a rebuild of the text index and returns nil if err says that the index is
// damaged. Until the index is rebuilt, no messages are found in it. Any other error is returned as
// it is.
func (s *Service) rebuildDamaged(err error) error {
	if errors.Is(err, store.ErrTextDamaged) {
		s.index.RequestRebuild()
		return nil
	}
	return err
}

// arrivedInThread returns the envelopes of a thread's messages that arrived in the mailbox and are
// not in Junk, newest first.
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
	found, err := newestInThread(tx, mb, nums, thread)
	if err != nil {
		return nil, err
	}
	for _, at := range found {
		e, meta, err := envelopeAt(tx, mb, ids[at.Num], at.UID)
		if err != nil {
			return nil, err
		}
		// A message without any of these results did not arrive: a mail client has added it. Older
		// releases stored only the results of SPF and DMARC.
		if e != nil && (meta.Arrived != "" || meta.SPF != "" || meta.DMARC != "") {
			out = append(out, e)
		}
	}
	return out, nil
}

// envelopeAt returns the envelope and the Meta of a message. Both are nil if the message does not
// exist; the envelope is also nil if the message has none.
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
		return nil, nil, fmt.Errorf("decode structure of message %d of %s: %w", uid, mb.Email, err)
	}
	return part.Envelope, meta, nil
}
