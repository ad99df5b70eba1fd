package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/segment"
	"github.com/mailstead/mailstead/store/textindex"
)

// A folderSum holds the counts of the messages that a folder has.
type folderSum struct {
	mailrow.FolderCounts
	lost uint32 // number of further messages, whose rows are still to be made
}

func (r *rebuilder) folderSumOf(mailbox, folder uint32) *folderSum {
	at := [2]uint32{mailbox, folder}
	if r.folders[at] == nil {
		r.folders[at] = &folderSum{}
	}
	return r.folders[at]
}

// makeLostFolders makes the rows of lost folders. Their names come from the bucket folder_name; a
// folder without a valid name there gets a new one.
func (r *rebuilder) makeLostFolders() error {
	var lost []Folder
	err := r.eachRow(bucketRebuild.Name(), func(tx *Tx, key, name []byte) error {
		if key[0] != rebuildFolder {
			return nil
		}
		lost = append(lost, Folder{Mailbox: binary.BigEndian.Uint32(key[1:]), ID: binary.BigEndian.Uint32(key[5:]), Name: string(name)})
		return tx.DeleteRow(bucketRebuild, key)
	})
	if err != nil {
		return err
	}
	return r.update(func(tx *Tx) error {
		there := map[[2]uint32]bool{}
		for k := range tx.Ascend(mailrow.BucketFolder, nil) {
			there[[2]uint32{binary.BigEndian.Uint32(k), binary.BigEndian.Uint32(k[4:])}] = true
		}
		for k := range tx.Ascend(mailrow.BucketMailbox, nil) { // a mailbox with folders has an INBOX
			r.folderSumOf(binary.BigEndian.Uint32(k), InboxID)
		}
		for at := range there {
			r.folderSumOf(at[0], InboxID)
		}
		for at := range r.folders {
			r.folderSumOf(at[0], InboxID)
		}
		for at := range r.folders {
			lost = append(lost, Folder{Mailbox: at[0], ID: at[1]})
		}
		for _, f := range lost {
			at := [2]uint32{f.Mailbox, f.ID}
			if there[at] || f.Mailbox == 0 || f.ID == 0 {
				continue
			}
			there[at] = true
			switch {
			case f.ID == InboxID:
				f.Name = mailrow.InboxName
			case f.Name == "" || strings.EqualFold(f.Name, mailrow.InboxName) || len(f.Name) > mailindex.MaxFolderName || strings.ToValidUTF8(f.Name, "") != f.Name:
				f.Name = fmt.Sprintf("Folder %d", f.ID)
			}
			// A new UIDVALIDITY makes clients read the folder again.
			f.UIDValidity, f.UIDNext, f.Subscribed = uint32(tx.Now().Unix()), 1, true
			key := mailrow.FolderKey(f.Mailbox, f.ID)
			if err := tx.PutRow(mailrow.BucketFolder, key[:], f.Row()); err != nil {
				return err
			}
			r.out.Folders++
			if err := tx.PutRow(bucketRebuild, append([]byte{rebuildMissing}, key[:4]...), nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// countFolders writes the counters and names of folders. If the row of a folder counts more
// messages than the folder has, messages are missing: the mailbox is then recorded in bucketRebuild
// as one that lacks messages.
func (r *rebuilder) countFolders() error {
	err := r.eachRow(mailrow.BucketFolder.Name(), func(tx *Tx, key, row []byte) error {
		var f Folder
		if err := f.Decode(key, row); err != nil {
			return err
		}
		sum := r.folderSumOf(f.Mailbox, f.ID)
		if f.Messages > sum.Messages+sum.lost {
			if err := tx.PutRow(bucketRebuild, append([]byte{rebuildMissing}, key[:4]...), nil); err != nil {
				return err
			}
		}
		f.Messages, f.Unseen, f.Bytes = sum.Messages, sum.Unseen, sum.Bytes
		f.UIDNext, f.ModSeq = max(f.UIDNext, sum.UIDNext), max(f.ModSeq, sum.ModSeq)
		if tx.GetRow(mailrow.BucketFolderName, mailrow.FolderNameKey(f.Mailbox, f.Name)) != nil {
			f.Name = fmt.Sprintf("Folder %d", f.ID)
		}
		box := r.mailboxes[f.Mailbox]
		if box == nil {
			box = &mailrow.MailboxCounts{}
			r.mailboxes[f.Mailbox] = box
		}
		box.NextFolder, box.Validity, box.ModSeq = max(box.NextFolder, f.ID+1), max(box.Validity, f.UIDValidity), max(box.ModSeq, f.ModSeq)
		box.Messages += int64(f.Messages)
		box.Bytes += f.Bytes
		return mailindex.PutFolder(&tx.Tx, &f)
	})
	if err != nil {
		return err
	}
	return r.update(func(tx *Tx) error {
		for mailbox, sum := range r.mailboxes {
			r.sequences[Mailboxes.Name()] = max(r.sequences[Mailboxes.Name()], uint64(mailbox))
			old, err := mailindex.MailboxCounts(&tx.Tx, mailbox)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
			sum.NextFolder, sum.Validity, sum.ModSeq = max(sum.NextFolder, old.NextFolder), max(sum.Validity, old.Validity), max(sum.ModSeq, old.ModSeq)
			if err := mailindex.PutMailboxCounts(&tx.Tx, mailbox, *sum); err != nil {
				return err
			}
		}
		return nil
	})
}

// listFolders gives numbers to the folders other than INBOX, and adds their messages to lists.
func (r *rebuilder) listFolders() error {
	most := uint32(mailrow.FirstFolderNum)
	err := r.eachRow(mailrow.BucketFolder.Name(), func(_ *Tx, key, row []byte) error {
		var f Folder
		err := f.Decode(key, row)
		if f.Num >= mailrow.FirstFolderNum {
			most = max(most, f.Num)
		}
		return err
	})
	if err != nil {
		return err
	}
	most = max(most, mailrow.FirstFolderNum+uint32(r.sequences[mailrow.BucketFolderNum.Name()]))
	err = r.eachRow(mailrow.BucketFolder.Name(), func(tx *Tx, key, row []byte) error {
		var f Folder
		if err := f.Decode(key, row); err != nil || f.ID == InboxID {
			return err
		}
		if of, _ := tx.FolderOfNum(f.Num); f.Num < mailrow.FirstFolderNum || of != 0 {
			most++
			f.Num = most
			if err := mailindex.PutFolder(&tx.Tx, &f); err != nil {
				return err
			}
		}
		return mailindex.PutFolderNum(&tx.Tx, &f)
	})
	if err != nil {
		return err
	}
	r.sequences[mailrow.BucketFolderNum.Name()] = uint64(most - mailrow.FirstFolderNum)
	return r.eachRow(mailrow.BucketMessage.Name(), func(tx *Tx, key, row []byte) error {
		var m Message
		if err := m.Decode(key, row); err != nil || m.Folder == InboxID {
			return err
		}
		f, err := tx.Folder(m.Mailbox, m.Folder)
		if err != nil {
			return err
		}
		return mailindex.AddToLists(&tx.Tx, &m, f.Num)
	})
}

// writeCounts writes the counts of accounts and the live bytes of segments.
func (r *rebuilder) writeCounts() error {
	return r.update(func(tx *Tx) (err error) {
		for account, u := range r.accounts {
			r.sequences[Accounts.Name()] = max(r.sequences[Accounts.Name()], uint64(account))
			err = errors.Join(err, mailindex.AddAccountUsage(&tx.Tx, account, u.Messages, u.Bytes))
		}
		for segment, bytes := range r.live {
			err = errors.Join(err, mailindex.AddLiveBytes(&tx.Tx, segment, bytes))
		}
		return err
	})
}

// dropLeftovers deletes meta rows whose messages are lost for good, and MIME structures of bytes
// that nothing refers to.
func (r *rebuilder) dropLeftovers() error {
	err := r.eachRow(mailrow.BucketMeta.Name(), func(tx *Tx, key, _ []byte) error {
		if tx.GetRow(mailrow.BucketMessage, key) != nil || tx.Bucket(bucketRebuild).Get(append([]byte{rebuildMessage}, key...)) != nil {
			return nil
		}
		return tx.DeleteRow(mailrow.BucketMeta, key)
	})
	if err != nil {
		return err
	}
	return r.eachRow(mailrow.BucketStructure.Name(), func(tx *Tx, key, _ []byte) error {
		if k, _ := tx.Seek(mailrow.BucketRef, key); bytes.HasPrefix(k, key) {
			return nil
		}
		return tx.DeleteRow(mailrow.BucketStructure, key)
	})
}

// joinThreads writes the bucket thread_joined, which names the threads that were joined to each
// thread. If the row of the older thread is lost, it makes that row again.
func (r *rebuilder) joinThreads() error {
	return r.eachRow(mailrow.BucketThread.Name(), func(tx *Tx, key, _ []byte) error {
		up, _, _, err := mailindex.ThreadRow(&tx.Tx, key)
		account, n := binary.BigEndian.Uint32(key), ThreadNode(key[4:])
		if err != nil || up == n {
			return err
		}
		if _, _, found, err := mailindex.ThreadRow(&tx.Tx, mailrow.ThreadKey(account, up)); err != nil || !found {
			if err = errors.Join(err, mailindex.PutThread(&tx.Tx, account, up, up)); err != nil {
				return err
			}
		}
		return tx.PutRow(mailrow.BucketThreadJoined, mailrow.ThreadKey(account, up, n), nil)
	})
}

// resetText marks all messages as not indexed, so that the server makes the text index again.
func (r *rebuilder) resetText() error {
	var after []byte
	for more := true; more; more = after != nil {
		err := r.update(func(tx *Tx) (err error) {
			after, err = mailindex.MarkAllUnindexed(&tx.Tx, after, textindex.ResetFoldersPerTx)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// setSequences sets the sequences of the buckets. If a sequence could not be read, it becomes the
// highest number in use. Entries are not kept, so that the next backup is a full one.
func (r *rebuilder) setSequences() error {
	r.sequences[mailrow.BucketInbox.Name()] = flaggedClassSequence
	r.sequences[mailrow.BucketTextTodo.Name()], r.sequences[mailrow.BucketTextRun.Name()] = 0, 0
	return r.s.Setup(func(tx *engine.Tx) error {
		b := engine.Bolt(tx)
		for name, n := range r.sequences {
			at := b.Bucket([]byte(name))
			if at == nil || n > maxSequence(name) {
				continue
			}
			if err := at.SetSequence(n); err != nil {
				return err
			}
		}
		return nil
	})
}

// markFiled restores a lost mark of filed messages. It marks all accepted messages up to the last
// one that a row refers to as filed.
func (r *rebuilder) markFiled() error {
	return r.update(func(tx *Tx) error {
		if tx.Bucket(bucketAccepted).Get([]byte(filedRowKey)) != nil {
			return nil
		}
		mark := segment.FiledMark{From: segment.Position{Segment: r.last.Segment, Offset: uint32(min(int64(r.last.Offset)+r.last.Size(), math.MaxUint32))}}
		return tx.PutRow(bucketAccepted, []byte(filedRowKey), bucketAccepted.Sum().Seal([]byte(filedRowKey), mark.Row()))
	})
}
