package inbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	windowRows = 250     // rows that are compared at a time
	batchSize  = 40      // messages that are fetched and filed at a time
	maxNew     = 100_000 // new messages that one sync takes, or up to twice as many; the next one goes on
	walkEvery  = time.Hour
)

// errUnwanted ends a sync of a mailbox that has been closed, deleted or switched off meanwhile.
var errUnwanted = errors.New("the mailbox is not to be looked at any more")

// A syncRun is one sync of a remote INBOX.
//
// New mail, with UIDs above box.Seen, is filed upwards, each batch with the new Seen in one
// transaction: so each message is told of once, whatever dies in between. What was there at the
// first sync, or is missing for another reason, is filed newest first and without events. One walk
// over the rows serves for that, for flags and for what is gone.
type syncRun struct {
	s          *Service
	id         string
	background bool // it ends when the universal inbox is switched off
	mb         *store.Mailbox
	box        *store.RemoteBox
	session    *pull.Session
	remote     pull.Box
	progress   func(done, total int) // may be nil
	found      int                   // new messages
}

func (v *syncRun) run(ctx context.Context) error {
	err := v.steps(ctx)
	if _, ours := core.AsError(err); err == nil || ours || errors.Is(err, errUnwanted) || isStoreError(err) {
		return err
	}
	return explainPull(v.mb.External.IMAP.Host, err)
}

func isStoreError(err error) bool {
	return errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrFailed) || errors.Is(err, store.ErrClosed)
}

func (v *syncRun) steps(ctx context.Context) (err error) {
	if v.remote, err = v.session.Select(ctx); err != nil {
		return err
	}
	if v.box.UIDValidity != v.remote.UIDValidity {
		if err := v.adopt(ctx); err != nil {
			return err
		}
	}
	if err := v.fileNew(ctx); err != nil {
		return err
	}
	return v.compare(ctx)
}

// adopt begins with a UIDVALIDITY that is new: what is stored under another one goes, and what is
// there is no news.
func (v *syncRun) adopt(ctx context.Context) error {
	top := v.remote.UIDNext
	if top > 0 {
		top--
	} else if n := v.remote.Messages; n > 0 {
		rows, _, err := v.session.Window(ctx, n, n)
		if err != nil {
			return err
		}
		for _, r := range rows {
			top = r.UID
		}
	}
	for done := false; !done; {
		err := v.update(func(tx *store.Tx, mb *store.Mailbox) (err error) {
			done, err = v.adoptStep(tx, mb, top)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// adoptStep removes some of what is stored, and with the last of it takes the new UIDVALIDITY over.
func (v *syncRun) adoptStep(tx *store.Tx, mb *store.Mailbox, top uint32) (done bool, err error) {
	box := &store.RemoteBox{MailboxID: mb.ID, AccountID: mb.AccountID, ActiveAt: v.box.ActiveAt, Wait: v.box.Wait}
	n := 0
	for m := range tx.Messages(mb.Num, store.InboxID, 1, maxUID) {
		if n++; n > perWrite {
			return false, store.RemoteBoxes.Put(tx, box)
		}
		if err := tx.DeleteMessage(m.Mailbox, m.Folder, m.UID); err != nil {
			return false, err
		}
	}
	if err := tx.AdoptUIDs(mb.Num, store.InboxID, v.remote.UIDValidity); err != nil {
		return false, err
	}
	box.UIDValidity, box.Seen = v.remote.UIDValidity, top
	v.box = box
	return true, store.RemoteBoxes.Put(tx, box)
}

// update runs a transaction of the sync, unless the mailbox is not to be synced any more, and
// wakes who watches it.
func (v *syncRun) update(fn func(tx *store.Tx, mb *store.Mailbox) error) error {
	return v.s.Store.Update(func(tx *store.Tx) error {
		mb, err := v.open(tx)
		if err != nil {
			return err
		}
		if mb == nil {
			return errUnwanted
		}
		tx.After(func() { v.s.Hub.Changed(mb.Num) })
		return fn(tx, mb)
	})
}

// fileNew files what came since the last sync, in the order in which it came.
func (v *syncRun) fileNew(ctx context.Context) error {
	if v.remote.UIDNext != 0 && v.remote.UIDNext-1 <= v.box.Seen {
		return nil
	}
	uids, whole, err := v.listNew(ctx)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(uids, batchSize) {
		filed, err := v.file(ctx, batch, true)
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

// listNew lists the UIDs above Seen, upwards; whole says that there are no others.
func (v *syncRun) listNew(ctx context.Context) (uids []uint32, whole bool, err error) {
	whole = true
	for hi, more := v.remote.Messages, true; more && hi > 0; {
		lo := hi - min(hi-1, windowRows-1)
		rows, all, err := v.session.Window(ctx, lo, hi)
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
		if len(uids) > 2*maxNew {
			uids, whole = slices.Clone(uids[len(uids)-maxNew:]), false
		}
		hi = lo - 1
	}
	slices.Reverse(uids)
	return uids, whole, nil
}

// compare brings flags and deletions in line, with as little traffic as the server allows.
func (v *syncRun) compare(ctx context.Context) error {
	if v.box.Done && v.box.ModSeq > 0 && v.remote.ModSeq > 0 && v.remote.ModSeq != v.box.ModSeq {
		if err := v.changes(ctx); err != nil {
			return err
		}
	}
	lost, err := v.shortfall()
	if err != nil {
		return err
	}
	now := v.s.Now()
	counted := v.remote.ModSeq > 0 && v.box.ModSeq > 0
	switch {
	case !v.box.Done || lost != int64(v.box.Lost) || !counted && now.Sub(v.box.WalkedAt) >= walkEvery:
		if err := v.walk(ctx, 1); err != nil {
			return err
		}
		if lost, err = v.shortfall(); err != nil {
			return err
		}
		v.box.Done, v.box.Lost, v.box.WalkedAt = true, uint32(max(lost, 0)), now
	case !counted:
		if err := v.walk(ctx, v.remote.Messages-min(v.remote.Messages, windowRows)+1); err != nil {
			return err
		}
	}
	v.box.ModSeq = v.remote.ModSeq
	return nil
}

// shortfall is how many more messages the server counts than are stored.
func (v *syncRun) shortfall() (n int64, err error) {
	err = v.s.Store.View(func(tx *store.Tx) error {
		f, err := tx.Folder(v.mb.Num, store.InboxID)
		if err == nil {
			n = int64(v.remote.Messages) - int64(f.Messages)
		}
		return err
	})
	return n, err
}

// changes takes over the flags that have changed since the last sync (RFC 7162).
func (v *syncRun) changes(ctx context.Context) error {
	done, err := v.s.externals.changeLocks.Lock(ctx, v.id)
	if err != nil {
		return err
	}
	defer done()
	return v.session.Changed(ctx, v.box.ModSeq, v.box.Seen, v.remote.Messages, func(rows []pull.Row) error {
		return v.update(func(tx *store.Tx, mb *store.Mailbox) error {
			for _, r := range rows {
				if err := setRow(tx, mb, r); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// setRow gives a stored message the flags that the server says.
func setRow(tx *store.Tx, mb *store.Mailbox, r pull.Row) error {
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

// remoteFlags are a server's flags as they are kept: no more keywords than any message has here.
func remoteFlags(f pull.Flags) (Flags, []string) {
	var flags Flags
	for flag, set := range map[Flags]bool{
		FlagSeen: f.Seen, FlagAnswered: f.Answered, FlagFlagged: f.Flagged, FlagDeleted: f.Deleted, FlagDraft: f.Draft,
	} {
		if set {
			flags |= flag
		}
	}
	var keywords []string
	for _, k := range distinctKeywords(f.Keywords) {
		if k != "" && len(k) <= maxKeyword && len(keywords) < maxKeywords {
			keywords = append(keywords, k)
		}
	}
	return flags, keywords
}

// walk compares every row from the newest down to the sequence number `last`, and files what is
// missing.
func (v *syncRun) walk(ctx context.Context, last uint32) error {
	total := int(v.remote.Messages)
	above := uint64(v.box.Seen) + 1 // what is below is to be compared
	if total == 0 {
		return v.window(ctx, nil, 1, above, true)
	}
	for hi := v.remote.Messages; hi >= last && hi > 0; {
		lo := max(hi-min(hi-1, windowRows-1), last)
		next, err := v.walkWindow(ctx, lo, hi, above)
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

// walkWindow compares the rows of one window, and gives the UID that the next one stays below.
func (v *syncRun) walkWindow(ctx context.Context, lo, hi uint32, above uint64) (uint64, error) {
	done, err := v.s.externals.changeLocks.Lock(ctx, v.id)
	if err != nil {
		return 0, err
	}
	rows, whole, err := v.session.Window(ctx, lo, hi)
	if err != nil {
		done()
		return 0, err
	}
	for len(rows) > 0 && uint64(rows[len(rows)-1].UID) >= above { // new, or seen in the window before
		rows = rows[:len(rows)-1]
	}
	from := above
	if len(rows) > 0 {
		from = uint64(rows[0].UID)
	}
	if lo == 1 {
		from = 1
	}
	missing, err := v.plan(rows, from, above, whole)
	done()
	if err != nil {
		return 0, err
	}
	slices.Reverse(missing)
	for batch := range slices.Chunk(missing, batchSize) {
		if _, err := v.file(ctx, batch, false); err != nil {
			return 0, err
		}
	}
	return from, nil
}

// window is plan for rows that need no fetching.
func (v *syncRun) window(ctx context.Context, rows []pull.Row, from, above uint64, whole bool) error {
	done, err := v.s.externals.changeLocks.Lock(ctx, v.id)
	if err != nil {
		return err
	}
	defer done()
	_, err = v.plan(rows, from, above, whole)
	return err
}

// plan compares the server's rows with what is stored with UIDs from `from` to below `above`: flags
// are taken over, what the server does not have goes if it showed all it has, and what is not
// stored is given back.
func (v *syncRun) plan(rows []pull.Row, from, above uint64, whole bool) (missing []uint32, err error) {
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
	return missing, v.apply(changed, gone)
}

// apply changes flags and removes messages, a bounded number in each transaction.
func (v *syncRun) apply(changed []pull.Row, gone []uint32) error {
	for len(changed) > 0 || len(gone) > 0 {
		rows := changed[:min(len(changed), perWrite)]
		uids := gone[:min(len(gone), perWrite)]
		err := v.update(func(tx *store.Tx, mb *store.Mailbox) error {
			for _, r := range rows {
				if err := setRow(tx, mb, r); err != nil {
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

// removeUIDs removes messages that may be gone already.
func removeUIDs(tx *store.Tx, mb *store.Mailbox, uids []uint32) error {
	for _, uid := range uids {
		if err := tx.DeleteMessage(mb.Num, store.InboxID, uid); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return nil
}
