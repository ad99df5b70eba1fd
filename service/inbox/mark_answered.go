package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	KindRemoteAnswer = "remote_answer"

	answerTries  = 8   // about two hours
	answeredMost = 500 // messages of a conversation in one mailbox that are looked at, the newest
)

// FindAnswered gives the messages of the mailbox's INBOX that a message which is being sent
// answers: those of the Message-ID. They are found by their conversation.
func (s *Service) FindAnswered(mb *store.Mailbox, id string) (uids []uint32, err error) {
	if id == "" {
		return nil, nil
	}
	id = core.Bracketed(id)
	err = s.Store.View(func(tx *store.Tx) error {
		uids = nil
		root, _, err := tx.Thread(mb.AccountNum, threadNode(id))
		if err != nil {
			return err
		}
		found, err := inThread(tx, mb, threadText(root))
		if err != nil {
			return err
		}
		for _, at := range found {
			meta, err := tx.Meta(mb.Num, store.InboxID, at.UID)
			if err != nil {
				return err
			}
			part, err := msg.DecodePart(meta.Structure)
			if err != nil {
				return fmt.Errorf("structure of message %d of %s: %w", at.UID, mb.Email, err)
			}
			if part.Envelope != nil && part.Envelope.MessageID == id {
				uids = append(uids, at.UID)
			}
		}
		return nil
	})
	if errors.Is(err, store.ErrTextDamaged) { // a mark is not worth a message that is not sent
		s.rebuildText()
		return nil, nil
	}
	return uids, err
}

// inThread gives the newest messages of a conversation in the mailbox's INBOX, newest first: those
// that the text index has under the thread's names, and among those that are not indexed yet the
// ones that were filed under them. Of the latter there may be too many, while an old store is
// indexed: then the newest of the INBOX are looked at instead.
func inThread(tx *store.Tx, mb *store.Mailbox, thread string) (found []store.InboxPos, err error) {
	names, err := threadNames(tx, mb.AccountNum, thread)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	query := store.InboxQuery{Account: mb.AccountNum, Folders: []uint32{mb.Num}}
	var waiting []store.InboxPos
	scanned := 0
	for m := range tx.TextWaiting(mb.AccountNum, []uint32{mb.Num}) {
		if scanned++; scanned > inboxScan {
			break
		}
		waiting = append(waiting, placeOf(&m))
	}
	if scanned > inboxScan {
		waiting = waiting[:0]
		for at := range tx.Inbox(query) {
			if len(waiting) == inboxScan {
				break
			}
			waiting = append(waiting, at)
		}
	} else {
		var words []store.TextTerm
		for _, name := range names {
			words = append(words, store.TextTerm{Word: threadWord(name)})
		}
		index, err := tx.SearchInbox(query, [][]store.TextTerm{words}, searchCost)
		if err != nil {
			return nil, err
		}
		for at, _, ok, err := index.Next(); ok || err != nil; at, _, ok, err = index.Next() {
			if err != nil {
				return nil, err
			}
			if found = append(found, at); len(found) == answeredMost {
				break
			}
		}
	}
	for _, at := range waiting {
		meta, err := tx.Meta(mb.Num, store.InboxID, at.UID)
		if err != nil {
			return nil, err
		}
		if slices.Contains(names, meta.ThreadID) {
			found = append(found, at)
		}
	}
	newestFirst(found)
	found = slices.Compact(found) // one that came to the place of one that was indexed
	return found[:min(len(found), answeredMost)], nil
}

// newestFirst sorts places. The sort of the package slices would be a copy of its own in the
// binary.
func newestFirst(places []store.InboxPos) {
	sort.Slice(places, func(i, j int) bool { return comparePlaces(places[j], places[i]) < 0 })
}

// MarkAnswered marks messages of the mailbox's INBOX as answered by the one that is sent in this
// transaction. Those of an external mailbox are marked on its server first, by a job.
func (s *Service) MarkAnswered(tx *store.Tx, mb *store.Mailbox, uids []uint32) error {
	var open []uint32
	for _, uid := range uids {
		m, err := tx.Message(mb.Num, store.InboxID, uid)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if m.Flags&FlagAnswered != 0 {
			continue
		}
		open = append(open, uid)
		if mb.External != nil {
			continue
		}
		if err := tx.SetFlags(m, m.Flags|FlagAnswered, m.Keywords); err != nil {
			return err
		}
	}
	switch {
	case len(open) == 0:
		return nil
	case mb.External == nil:
		s.changed(tx, mb.Num)
		return nil
	}
	box, err := remoteBox(tx, mb)
	if err != nil {
		return err
	}
	_, err = s.Queue.Add(tx, jobs.New{
		AccountID: mb.AccountID, Kind: KindRemoteAnswer, Lane: "answer " + mb.External.IMAP.Host, Args: answerArgs{mb.ID, box.UIDValidity, open},
	})
	return err
}

// answerArgs is the job of marking messages as answered on the server of an external mailbox.
type answerArgs struct {
	UserID      string   `json:"user_id"`
	UIDValidity uint32   `json:"uid_validity"`
	UIDs        []uint32 `json:"uids"`
}

func (s *Service) answerKind() jobs.Kind {
	return jobs.Kind{
		Name: KindRemoteAnswer, Work: s.answerRemote, Max: answerTries, Timeout: changeTimeout + 10*time.Second, Lanes: PullsPerHost,
		Most: CopiesMost, MostEach: CopiesEach, Backoff: FailureWait,
	}
}

func (s *Service) answerRemote(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[answerArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var mb *store.Mailbox
	err = s.Store.View(func(tx *store.Tx) (err error) {
		if mb, err = core.LiveMailbox(tx, args.UserID); err != nil || mb == nil || mb.External == nil {
			return err
		}
		box, err := remoteBox(tx, mb)
		if err == nil && box.UIDValidity != args.UIDValidity {
			mb = nil // the messages have other numbers now
		}
		return err
	})
	if err != nil || mb == nil || mb.External == nil {
		return nil, err
	}
	_, err = s.markRemote(ctx, mb, slices.Clone(args.UIDs), pull.FlagChange{Answered: new(true)})
	switch {
	case IsNotFound(err):
		return nil, nil
	case errors.Is(err, pull.ErrLogin), errors.Is(err, pull.ErrRefused):
		return nil, jobs.Permanent(err)
	}
	return nil, err
}
