package external

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

const (
	windowRows       = 250       // messages that are compared in one step
	messagesPerBatch = 40        // messages that are fetched and filed in one step
	maxNewMessages   = 100_000   // if there are more than twice as many new messages, a sync fetches the oldest ones, about this number, and the next sync continues
	walkInterval     = time.Hour // time between two comparisons of all messages, if the server has no mod-sequences
)

// errNotSynced is returned by a sync if the mailbox was closed or deleted, or its background sync
// was switched off, while the sync was running.
var errNotSynced = errors.New("sync mailbox: it was closed, deleted or switched off")

// A syncRun is one sync of a mailbox's INBOX on its server.
//
// New mail has UIDs above box.Seen. It is filed in ascending order of UIDs. The transaction that
// files a batch also writes the new Seen, so that each message causes one event, even after a
// crash. Older mail that is not stored here, such as that before the first sync, is filed newest
// first and without events. It is found by a walk over all messages, which also finds changed flags
// and deleted messages.
type syncRun struct {
	s          *Service
	id         string
	background bool // the sync ends if the universal inbox is switched off
	mb         *store.Mailbox
	box        *store.RemoteBox
	session    *pull.Session
	remote     pull.FolderState      // the state of INBOX on the server
	progress   func(done, total int) // may be nil
	found      int                   // new messages that were filed
}

// run syncs the mailbox over an open session. An error of the server becomes a *serverError.
func (v *syncRun) run(ctx context.Context) error {
	err := v.runSteps(ctx)
	if _, ours := core.AsError(err); err == nil || ours || errors.Is(err, errNotSynced) || core.IsStoreError(err) {
		return err
	}
	return explainServerError(v.mb.External.IMAP.Host, err)
}

// runSteps runs the steps of a sync.
func (v *syncRun) runSteps(ctx context.Context) (err error) {
	v.remote, err = v.session.Select(ctx)
	if err != nil {
		return err
	}
	if v.box.UIDValidity != v.remote.UIDValidity {
		if err := v.adoptUIDValidity(ctx); err != nil {
			return err
		}
	}
	if err := v.fileNew(ctx); err != nil {
		return err
	}
	return v.compare(ctx)
}

// adoptUIDValidity handles a new UIDVALIDITY: it deletes all stored messages, and treats the
// messages on the server as old mail.
func (v *syncRun) adoptUIDValidity(ctx context.Context) error {
	top := v.remote.UIDNext
	if top > 0 {
		top--
	} else if n := v.remote.Messages; n > 0 {
		rows, _, err := v.session.FetchWindow(ctx, n, n)
		if err != nil {
			return err
		}
		for _, r := range rows {
			top = r.UID
		}
	}
	for done := false; !done; {
		err := v.update(func(tx *store.Tx, mb *store.Mailbox) (err error) {
			done, err = v.deleteOldMessages(tx, mb, top)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteOldMessages deletes some stored messages. When none is left, it stores the new UIDVALIDITY.
// top is the highest UID on the server.
func (v *syncRun) deleteOldMessages(tx *store.Tx, mb *store.Mailbox, top uint32) (done bool, err error) {
	box := &store.RemoteBox{MailboxID: mb.ID, AccountID: mb.AccountID, ActiveAt: v.box.ActiveAt, Wait: v.box.Wait}
	n := 0
	for m := range tx.Messages(mb.Num, store.InboxID, 1, math.MaxUint32) {
		if n++; n > inbox.PerWrite {
			return false, store.RemoteBoxes.Put(tx, box)
		}
		if err := tx.DeleteMessage(m.Mailbox, m.Folder, m.UID); err != nil {
			return false, err
		}
	}
	if err := tx.AdoptUIDValidity(mb.Num, store.InboxID, v.remote.UIDValidity); err != nil {
		return false, err
	}
	box.UIDValidity, box.Seen = v.remote.UIDValidity, top
	v.box = box
	return true, store.RemoteBoxes.Put(tx, box)
}

// update runs a transaction of the sync and notifies watchers of the mailbox. It returns
// errNotSynced if the mailbox must not be synced any more.
func (v *syncRun) update(fn func(tx *store.Tx, mb *store.Mailbox) error) error {
	return v.s.Store.Update(func(tx *store.Tx) error {
		mb, err := v.currentMailbox(tx)
		if err != nil {
			return err
		}
		if mb == nil {
			return errNotSynced
		}
		tx.After(func() { v.s.Hub.Changed(mb.Num) })
		return fn(tx, mb)
	})
}

// fileNew files the mail that has arrived since the last sync, in the order of arrival.
func (v *syncRun) fileNew(ctx context.Context) error {
	if v.remote.UIDNext != 0 && v.remote.UIDNext-1 <= v.box.Seen {
		return nil
	}
	uids, whole, err := v.listNew(ctx)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(uids, messagesPerBatch) {
		filed, err := v.fetchAndFile(ctx, batch, true)
		if err != nil {
			return err
		}
		v.found += filed
	}
	if whole && v.remote.UIDNext > 0 {
		v.box.Seen = max(v.box.Seen, v.remote.UIDNext-1)
	}
	return nil
}

// listNew returns the UIDs above Seen in ascending order. whole is true if the list is complete.
func (v *syncRun) listNew(ctx context.Context) (uids []uint32, whole bool, err error) {
	whole = true
	for hi, more := v.remote.Messages, true; more && hi > 0; {
		lo := hi - min(hi-1, windowRows-1)
		rows, all, err := v.session.FetchWindow(ctx, lo, hi)
		if err != nil {
			return nil, false, err
		}
		whole = whole && all
		for _, r := range slices.Backward(rows) {
			if r.UID <= v.box.Seen {
				more = false
				break
			}
			if len(uids) == 0 || r.UID < uids[len(uids)-1] {
				uids = append(uids, r.UID)
			}
		}
		if len(uids) > 2*maxNewMessages {
			uids, whole = slices.Clone(uids[len(uids)-maxNewMessages:]), false
		}
		hi = lo - 1
	}
	slices.Reverse(uids)
	return uids, whole, nil
}

// compare finds changed flags and deleted messages, with as few commands as the server allows.
func (v *syncRun) compare(ctx context.Context) error {
	if v.box.Done && v.box.ModSeq > 0 && v.remote.ModSeq > 0 && v.remote.ModSeq != v.box.ModSeq {
		if err := v.syncFlags(ctx); err != nil {
			return err
		}
	}
	lost, err := v.missingCount()
	if err != nil {
		return err
	}
	now := v.s.Now()
	counted := v.remote.ModSeq > 0 && v.box.ModSeq > 0
	switch {
	case !v.box.Done || lost != int64(v.box.Lost) || !counted && now.Sub(v.box.WalkedAt) >= walkInterval:
		if err := v.compareDownTo(ctx, 1); err != nil {
			return err
		}
		lost, err = v.missingCount()
		if err != nil {
			return err
		}
		v.box.Done, v.box.Lost, v.box.WalkedAt = true, uint32(max(lost, 0)), now
	case !counted:
		if err := v.compareDownTo(ctx, v.remote.Messages-min(v.remote.Messages, windowRows)+1); err != nil {
			return err
		}
	}
	v.box.ModSeq = v.remote.ModSeq
	return nil
}

// missingCount returns how many more messages the server has than are stored here.
func (v *syncRun) missingCount() (n int64, err error) {
	err = v.s.Store.View(func(tx *store.Tx) error {
		f, err := tx.Folder(v.mb.Num, store.InboxID)
		if err == nil {
			n = int64(v.remote.Messages) - int64(f.Messages)
		}
		return err
	})
	return n, err
}

// syncFlags updates the flags that have changed since the last sync, which the server finds by
// their mod-sequences (RFC 7162).
func (v *syncRun) syncFlags(ctx context.Context) error {
	done, err := v.s.changeLocks.Lock(ctx, v.id)
	if err != nil {
		return err
	}
	defer done()
	return v.session.FetchChanged(ctx, v.box.ModSeq, v.box.Seen, v.remote.Messages, func(rows []pull.Row) error {
		return v.update(func(tx *store.Tx, mb *store.Mailbox) error {
			for _, r := range rows {
				if err := setRemoteFlags(tx, mb, r); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// setRemoteFlags sets the flags of a stored message to those that it has on the server.
func setRemoteFlags(tx *store.Tx, mb *store.Mailbox, r pull.Row) error {
	m, err := tx.Message(mb.Num, store.InboxID, r.UID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	flags, keywords := remoteFlags(r.Flags)
	return tx.SetFlags(m, flags, keywords)
}

// remoteFlags converts the flags that a server has sent to those that are stored here. It keeps at
// most MaxKeywords keywords.
func remoteFlags(f pull.Flags) (inbox.Flags, []string) {
	var flags inbox.Flags
	for flag, set := range map[inbox.Flags]bool{
		inbox.FlagSeen: f.Seen, inbox.FlagAnswered: f.Answered, inbox.FlagFlagged: f.Flagged, inbox.FlagDeleted: f.Deleted, inbox.FlagDraft: f.Draft,
	} {
		if set {
			flags |= flag
		}
	}
	var keywords []string
	for _, k := range inbox.DistinctKeywords(f.Keywords) {
		if k != "" && len(k) <= inbox.MaxKeyword && len(keywords) < inbox.MaxKeywords {
			keywords = append(keywords, k)
		}
	}
	return flags, keywords
}

// compareDownTo compares all messages from the newest to the one with the sequence number last, and
// files missing messages.
func (v *syncRun) compareDownTo(ctx context.Context, last uint32) error {
	total := int(v.remote.Messages)
	above := uint64(v.box.Seen) + 1 // messages with smaller UIDs must be compared
	if total == 0 {
		return v.comparePageLocked(ctx, nil, 1, above, true)
	}
	for hi := v.remote.Messages; hi >= last && hi > 0; {
		lo := max(hi-min(hi-1, windowRows-1), last)
		next, err := v.compareWindow(ctx, lo, hi, above)
		if err != nil {
			return err
		}
		above, hi = next, lo-1
		if v.progress != nil {
			v.progress(total-int(hi), total)
		}
	}
	return nil
}

// compareWindow compares the messages with the sequence numbers from lo to hi, if their UIDs are
// below above. It files missing messages. next is the value of above for the next window.
func (v *syncRun) compareWindow(ctx context.Context, lo, hi uint32, above uint64) (next uint64, err error) {
	done, err := v.s.changeLocks.Lock(ctx, v.id)
	if err != nil {
		return 0, err
	}
	rows, whole, err := v.session.FetchWindow(ctx, lo, hi)
	if err != nil {
		done()
		return 0, err
	}
	for len(rows) > 0 && uint64(rows[len(rows)-1].UID) >= above { // a new message, or one that was in the previous window
		rows = rows[:len(rows)-1]
	}
	from := above
	if len(rows) > 0 {
		from = uint64(rows[0].UID)
	}
	if lo == 1 {
		from = 1
	}
	missing, err := v.comparePage(rows, from, above, whole)
	done()
	if err != nil {
		return 0, err
	}
	slices.Reverse(missing)
	for batch := range slices.Chunk(missing, messagesPerBatch) {
		if _, err := v.fetchAndFile(ctx, batch, false); err != nil {
			return 0, err
		}
	}
	return from, nil
}

// comparePageLocked is like comparePage, but takes the change lock.
func (v *syncRun) comparePageLocked(ctx context.Context, rows []pull.Row, from, above uint64, whole bool) error {
	done, err := v.s.changeLocks.Lock(ctx, v.id)
	if err != nil {
		return err
	}
	defer done()
	_, err = v.comparePage(rows, from, above, whole)
	return err
}

// comparePage compares the server's messages with the stored ones that have UIDs from `from` to
// below `above`. It updates flags and returns the UIDs that are not stored. whole means that rows
// is complete: then it also deletes stored messages that the server does not have.
func (v *syncRun) comparePage(rows []pull.Row, from, above uint64, whole bool) (missing []uint32, err error) {
	if above <= from {
		return nil, nil
	}
	var changed []pull.Row
	var gone []uint32
	err = v.s.Store.View(func(tx *store.Tx) error {
		next := rows
		for m := range tx.Messages(v.mb.Num, store.InboxID, uint32(from), uint32(above-1)) {
			for len(next) > 0 && next[0].UID < m.UID {
				missing, next = append(missing, next[0].UID), next[1:]
			}
			if len(next) == 0 || next[0].UID > m.UID {
				gone = append(gone, m.UID)
				continue
			}
			if flags, keywords := remoteFlags(next[0].Flags); flags != m.Flags || !slices.Equal(keywords, m.Keywords) {
				changed = append(changed, next[0])
			}
			next = next[1:]
		}
		for _, r := range next {
			missing = append(missing, r.UID)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !whole {
		gone = nil
	}
	return missing, v.applyDifferences(changed, gone)
}

// applyDifferences changes flags and deletes messages, at most PerWrite of each in one transaction.
func (v *syncRun) applyDifferences(changed []pull.Row, gone []uint32) error {
	for len(changed) > 0 || len(gone) > 0 {
		rows := changed[:min(len(changed), inbox.PerWrite)]
		uids := gone[:min(len(gone), inbox.PerWrite)]
		err := v.update(func(tx *store.Tx, mb *store.Mailbox) error {
			for _, r := range rows {
				if err := setRemoteFlags(tx, mb, r); err != nil {
					return err
				}
			}
			return removeUIDs(tx, mb, uids)
		})
		if err != nil {
			return err
		}
		changed, gone = changed[len(rows):], gone[len(uids):]
	}
	return nil
}

// removeUIDs deletes stored messages. It ignores messages that do not exist.
func removeUIDs(tx *store.Tx, mb *store.Mailbox, uids []uint32) error {
	for _, uid := range uids {
		if err := tx.DeleteMessage(mb.Num, store.InboxID, uid); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return nil
}

// A fetchedMessage is a message that was fetched and will be filed.
type fetchedMessage struct {
	row      pull.Row
	received time.Time
	stored   *inbox.StoredMessage
}

// fetchAndFile fetches messages and files them in one transaction. It skips messages that the
// server does not return. arrived says that they are new mail: then the transaction also writes the
// new Seen. filed is how many messages were filed.
func (v *syncRun) fetchAndFile(ctx context.Context, uids []uint32, arrived bool) (filed int, err error) {
	messages, err := v.fetch(ctx, uids)
	defer func() {
		for _, c := range messages {
			v.s.inbox.Release(c.stored) // does nothing if the message was filed
		}
	}()
	if err != nil {
		return 0, err
	}
	sort.Slice(messages, func(i, j int) bool { return messages[i].row.UID < messages[j].row.UID })
	box := *v.box
	err = v.update(func(tx *store.Tx, mb *store.Mailbox) error {
		filed, box = 0, *v.box
		if err := v.checkQuota(tx, mb, messages); err != nil {
			return err
		}
		for _, c := range messages {
			done, err := v.fileUnlessStored(tx, mb, c, arrived)
			if err != nil {
				return err
			}
			if done {
				filed++
			}
		}
		if arrived {
			box.Seen = max(box.Seen, slices.Max(uids))
		}
		return store.RemoteBoxes.Put(tx, &box)
	})
	if err != nil {
		return 0, err
	}
	v.box = &box
	return filed, nil
}

// checkQuota returns the error quota_exceeded if the messages do not fit into the mailbox.
func (v *syncRun) checkQuota(tx *store.Tx, mb *store.Mailbox, messages []fetchedMessage) error {
	size := int64(0)
	for _, c := range messages {
		size += int64(c.stored.Blob.Length)
	}
	return core.CheckQuota(tx, mb, size)
}

// fileUnlessStored files a message unless it is stored already. It reports whether it has filed the
// message.
func (v *syncRun) fileUnlessStored(tx *store.Tx, mb *store.Mailbox, c fetchedMessage, arrived bool) (filed bool, err error) {
	_, err = tx.Message(mb.Num, store.InboxID, c.row.UID)
	if err == nil || !errors.Is(err, store.ErrNotFound) {
		return false, err
	}
	flags, keywords := remoteFlags(c.row.Flags)
	_, err = v.s.inbox.File(tx, mb, c.stored, inbox.Filing{
		Folder: store.InboxID, UID: c.row.UID, Received: c.received, Flags: flags, Keywords: keywords, Arrived: arrived,
	})
	return err == nil, err
}

// fetch fetches messages and stores their bytes. The caller must release them, even after an error.
func (v *syncRun) fetch(ctx context.Context, uids []uint32) (out []fetchedMessage, err error) {
	var long []pull.Message // messages that must be fetched in pieces, without their content
	err = v.session.Fetch(ctx, uids, func(m pull.Message) error {
		if m.More || m.Size > core.MaxMessage {
			m.Content = nil
			long = append(long, m)
			return nil
		}
		if len(m.Content) == 0 {
			return nil
		}
		spool := v.s.Store.NewSpool(core.MaxMessage)
		defer spool.Close()
		if _, err := spool.Write(m.Content); err != nil {
			return err
		}
		c, err := v.prepare(m, spool)
		if err == nil {
			out = append(out, c)
		}
		return err
	})
	for _, m := range long {
		if err != nil {
			break
		}
		var c fetchedMessage
		c, err = v.fetchLong(ctx, m)
		if err == nil && c.stored != nil {
			out = append(out, c)
		}
	}
	return out, err
}

// prepare parses a message in a spool and stores its bytes.
func (v *syncRun) prepare(m pull.Message, spool *store.Spool) (fetchedMessage, error) {
	c := fetchedMessage{row: m.Row, received: m.Received}
	if now := v.s.Now(); c.received.IsZero() || c.received.After(now) {
		c.received = now
	}
	var err error
	c.stored, err = v.s.inbox.Prepare(spool, inbox.Envelope{To: []string{v.mb.Email}, Received: c.received, Mailbox: v.mb.Num})
	if err != nil {
		return fetchedMessage{}, fmt.Errorf("store message %d of mailbox %s: %w", m.UID, v.mb.Email, err)
	}
	return c, nil
}

// fetchLong fetches a long message in pieces. If it exceeds MaxMessage, fetchLong fetches only the
// header and returns a stub. If the message does not exist any more, the result has no stored
// message.
func (v *syncRun) fetchLong(ctx context.Context, m pull.Message) (fetchedMessage, error) {
	spool := v.s.Store.NewSpool(core.MaxMessage)
	defer func() { _ = spool.Close() }()
	if m.Size <= core.MaxMessage {
		n, err := v.session.Content(ctx, m.UID, spool)
		switch {
		case err == nil && n == 0:
			return fetchedMessage{}, nil
		case err == nil:
			return v.prepare(m, spool)
		case !errors.Is(err, store.ErrTooLarge):
			return fetchedMessage{}, err
		}
	}
	_ = spool.Close()
	spool = v.s.Store.NewSpool(core.MaxMessage)
	if n, err := v.session.Header(ctx, m.UID, spool); err != nil || n == 0 {
		return fetchedMessage{}, err
	}
	stub, err := v.newStub(m, spool)
	if err != nil {
		return fetchedMessage{}, err
	}
	defer stub.Close()
	return v.prepare(m, stub)
}

// newStub returns a replacement for a message that is too long: its header, and a text that says
// where to read it. The caller must close it.
func (v *syncRun) newStub(m pull.Message, header *store.Spool) (*store.Spool, error) {
	root, err := msg.Scan(header.Reader())
	if err != nil {
		return nil, fmt.Errorf("parse message header: %w", err)
	}
	fields, err := msg.HeaderFields(header, root, []string{"Content-Type", "Content-Transfer-Encoding", "Content-Disposition", "MIME-Version"}, true)
	if err != nil {
		return nil, fmt.Errorf("parse message header: %w", err)
	}
	fields = bytes.TrimSuffix(fields, []byte("\r\n")) // remove the empty line after the header
	out := v.s.Store.NewSpool(core.MaxMessage)
	_, err = fmt.Fprintf(out, "%sMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"+
		"This message has %d bytes, more than the limit of %d, so it was not fetched. Read it on %s.\r\n", fields, m.Size, core.MaxMessage, v.mb.External.IMAP.Host)
	if err != nil {
		_ = out.Close()
		return nil, err
	}
	return out, nil
}
