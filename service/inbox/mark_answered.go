package inbox

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox/indexer"
	"github.com/mailstead/mailstead/store"
)

// KindRemoteAnswer is the kind of jobs that mark messages as answered on external servers.
const KindRemoteAnswer = "remote_answer"

// An AnsweredMessage is the folder and UID of a message to which an outgoing message replies.
type AnsweredMessage struct{ Folder, UID uint32 }

// FindAnswered returns the messages that an outgoing message of the mailbox answers: those with the
// Message-ID id. It searches their thread in all folders except Junk and Trash; in an external
// mailbox, only in INBOX.
func (s *Service) FindAnswered(mb *store.Mailbox, id string) (list []AnsweredMessage, err error) {
	if id == "" {
		return nil, nil
	}
	id = core.Bracketed(id)
	err = s.Store.View(func(tx *store.Tx) error {
		list = nil
		root, _, err := tx.Thread(mb.AccountNum, threadNode(id))
		if err != nil {
			return err
		}
		which := "all"
		if mb.External != nil {
			which = roleInbox
		}
		folders, err := foldersToList(tx, mb, which)
		if err != nil {
			return err
		}
		var nums []uint32
		ids := map[uint32]uint32{}
		for _, f := range folders {
			nums = append(nums, f.Num)
			ids[f.Num] = f.ID
		}
		found, err := newestInThread(tx, mb, nums, threadIDOf(root))
		if err != nil {
			return err
		}
		for _, at := range found {
			meta, err := tx.Meta(mb.Num, ids[at.Num], at.UID)
			if err != nil {
				return err
			}
			part, err := msg.DecodePart(meta.Structure)
			if err != nil {
				return fmt.Errorf("decode structure of message %d of %s: %w", at.UID, mb.Email, err)
			}
			if part.Envelope != nil && part.Envelope.MessageID == id {
				list = append(list, AnsweredMessage{ids[at.Num], at.UID})
			}
		}
		return nil
	})
	if errors.Is(err, store.ErrTextDamaged) { // the reply is sent even if no message can be marked as answered
		s.index.RequestRebuild()
		return nil, nil
	}
	return list, err
}

// newestInThread returns the newest messages of a thread in the given folders of a mailbox, newest
// first. It finds indexed messages in the text index, and reads the messages that are not indexed
// yet. If too many messages are not indexed, it returns the newest messages of the folders instead.
func newestInThread(tx *store.Tx, mb *store.Mailbox, folders []uint32, thread string) (found []store.InboxPos, err error) {
	names, err := threadAliases(tx, mb.AccountNum, thread)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	query := store.InboxQuery{Account: mb.AccountNum, Folders: folders}
	var waiting []store.InboxPos
	scanned := 0
	for m := range tx.UnindexedMessages(mb.AccountNum, folders) {
		if scanned++; scanned > maxScanned {
			break
		}
		waiting = append(waiting, positionOf(&m))
	}
	if scanned > maxScanned {
		waiting = waiting[:0]
		for at := range tx.Inbox(query) {
			if len(waiting) == maxScanned {
				break
			}
			waiting = append(waiting, at)
		}
	} else {
		var words []store.TextTerm
		for _, name := range names {
			words = append(words, store.TextTerm{Word: indexer.ThreadWord(name)})
		}
		index, err := tx.SearchInbox(query, [][]store.TextTerm{words}, maxIndexBytes)
		if err != nil {
			return nil, err
		}
		for at, _, ok, err := index.Next(); ok || err != nil; at, _, ok, err = index.Next() {
			if err != nil {
				return nil, err
			}
			found = append(found, at)
			if len(found) == maxThreadMessages {
				break
			}
		}
	}
	for _, at := range waiting {
		mailbox, id := tx.FolderOfNum(at.Num)
		meta, err := tx.Meta(mailbox, id, at.UID)
		if err != nil {
			return nil, err
		}
		if slices.Contains(names, meta.ThreadID) {
			found = append(found, at)
		}
	}
	sortNewestFirst(found)
	found = slices.Compact(found) // a position occurs twice if it was reused after an indexed message had left it
	return found[:min(len(found), maxThreadMessages)], nil
}

// MarkAnswered marks messages of the mailbox as answered in the transaction that sends the answer.
// by is the Text of the Answerer. Messages of an external mailbox are marked by a job, on their
// server first.
func (s *Service) MarkAnswered(tx *store.Tx, mb *store.Mailbox, list []AnsweredMessage, by string) error {
	var open []uint32
	changed := false
	for _, at := range list {
		m, err := tx.Message(mb.Num, at.Folder, at.UID)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err == nil && by != "" {
			changed, err = true, tx.SetAnsweredBy(m, by)
		}
		if err != nil {
			return err
		}
		if m.Flags&FlagAnswered != 0 {
			continue
		}
		if mb.External != nil {
			open = append(open, at.UID)
			continue
		}
		changed = true
		if err := tx.SetFlags(m, m.Flags|FlagAnswered, m.Keywords); err != nil {
			return err
		}
	}
	if changed {
		s.notifyWatchers(tx, mb.Num)
	}
	if len(open) == 0 {
		return nil
	}
	box, err := core.RemoteBox(tx, mb)
	if err != nil {
		return err
	}
	_, err = s.Queue.Add(tx, jobs.New{
		AccountID: mb.AccountID, Kind: KindRemoteAnswer, Lane: "answer " + mb.External.IMAP.Host, Args: AnswerArgs{mb.ID, box.UIDValidity, open},
	})
	return err
}

// AnswerArgs are the arguments of a KindRemoteAnswer job. The job marks messages as answered on the
// server of an external mailbox.
type AnswerArgs struct {
	UserID      string   `json:"user_id"`
	UIDValidity uint32   `json:"uid_validity"`
	UIDs        []uint32 `json:"uids"`
}
