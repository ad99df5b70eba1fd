package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/mailrow"
)

// A removal is a removed UID that the twin remembers.
type removal struct {
	modSeq uint64
	uid    uint32
	at     time.Time
}

// TestExpungedAgreesWithTwin removes messages at random, over restarts, and asks which UIDs were
// removed since earlier states. The answers of a store are exact. It may only not know what is long
// ago, what came before too many others, and what an old program removed without a record.
func TestExpungedAgreesWithTwin(t *testing.T) {
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("MAILSTEAD_SEED"), "7162"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d", seed)
	rnd, now, dir := rand.New(rand.NewPCG(seed, 1)), second(1), t.TempDir()
	const most, atOnce = 60, 12
	o := Options{noSync: true, MaxExpunged: most, Now: func() time.Time { return now }}
	s := openDir(t, dir, o)
	addMailbox(t, s, 1, 2)
	ref := appendTest(t, s, "x")
	type place struct{ mailbox, folder uint32 }
	places := []place{{1, InboxID}, {1, 2}, {2, InboxID}}
	removed, lost := map[place][]removal{}, map[place]uint64{} // lost: from which mod-sequence on all was noted
	states := map[place][]uint64{}                             // mod-sequences that a client can know
	known, unknown := 0, 0
	for n := range 3000 {
		at := places[rnd.IntN(len(places))]
		switch k := rnd.IntN(20); {
		case k < 8:
			update(t, s, func(tx *Tx) error {
				for range 1 + rnd.IntN(8) {
					if err := tx.AddMessage(&Message{Account: 1, Mailbox: at.mailbox, Folder: at.folder, Blob: ref}, nil); err != nil {
						return err
					}
				}
				return nil
			})
		case k < 16:
			var gone []removal
			before := folderModSeq(t, s, at.mailbox, at.folder)
			update(t, s, func(tx *Tx) error {
				gone = nil
				for m := range tx.Messages(at.mailbox, at.folder, 1, 1<<32-1) {
					if rnd.IntN(3) > 0 {
						continue
					}
					if err := tx.DeleteMessage(m.Mailbox, m.Folder, m.UID); err != nil {
						return err
					}
					f, err := tx.Folder(at.mailbox, at.folder)
					if err != nil {
						return err
					}
					gone = append(gone, removal{f.ModSeq, m.UID, now})
					if len(gone) == atOnce {
						break
					}
				}
				return nil
			})
			removed[at] = append(removed[at], gone...)
			if lost[at] == math.MaxUint64 && len(gone) > 0 { // the next row begins anew
				lost[at] = before
			}
		case k == 16:
			now = now.Add(time.Duration(rnd.IntN(5*24)) * time.Hour)
		case k == 17 && rnd.IntN(4) == 0:
			closeTest(t, s)
			s = openDir(t, dir, o)
		case k == 18 && rnd.IntN(25) == 0:
			update(t, s, func(tx *Tx) error { // as a program from before does
				for m := range tx.Messages(at.mailbox, at.folder, 1, 1<<32-1) {
					err := tx.DeleteMessage(at.mailbox, at.folder, m.UID)
					tx.AtEnd(func() error { // deletes the row, which that program does not write
						f, err := tx.Folder(at.mailbox, at.folder)
						return errors.Join(err, tx.DeleteRow(mailrow.BucketExpunged, mailrow.ExpungedKey(at.mailbox, at.folder, f.ModSeq)))
					})
					return err
				}
				return nil
			})
			lost[at] = math.MaxUint64
		case k == 19 && rnd.IntN(60) == 0:
			update(t, s, func(tx *Tx) error { return tx.EmptyBucket(mailrow.BucketExpunged) }) // as a new database has it
			for _, p := range places {
				lost[p] = math.MaxUint64
			}
		}
		if n%5 > 0 {
			continue
		}
		view(t, s, func(tx *Tx) error {
			f, err := tx.Folder(at.mailbox, at.folder)
			if err != nil {
				return err
			}
			states[at] = append(states[at], f.ModSeq)
			since := states[at][max(0, len(states[at])-1-rnd.IntN(30))]
			var want []uint32
			oldest := now
			for _, r := range removed[at] {
				if r.modSeq > since {
					want, oldest = append(want, r.uid), earlier(oldest, r.at)
				}
			}
			ranges, ok, err := tx.Expunged(f, since)
			if err != nil {
				return err
			}
			if !ok {
				unknown++
				if since >= lost[at] && len(want) <= most-atOnce && now.Sub(oldest) < 29*24*time.Hour {
					t.Errorf("%v since %d of %d: unknown, though only %d have left since; lost %d", at, since, f.ModSeq, len(want), lost[at])
				}
				return nil
			}
			known++
			got := expand(ranges)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%v since %d of %d: %v, want %v", at, since, f.ModSeq, got, want)
			}
			if _, ok, _ := tx.Expunged(f, f.ModSeq+1); ok {
				t.Error("what comes later is known")
			}
			return nil
		})
		view(t, s, func(tx *Tx) error {
			for _, p := range places {
				kept, key := uint32(0), mailrow.FolderKey(p.mailbox, p.folder)
				for k, row := range tx.Ascend(mailrow.BucketExpunged, key[:]) {
					if !bytes.HasPrefix(k, key[:]) {
						break
					}
					var r mailrow.ExpungedRow
					if err := r.Decode(k, row); err != nil {
						return err
					}
					kept += r.Count()
				}
				if kept > most+atOnce { // rows from before a row that begins anew go with the next ones
					t.Fatalf("%v keeps %d UIDs", p, kept)
				}
			}
			return nil
		})
		if t.Failed() {
			t.Fatalf("at step %d", n)
		}
	}
	if known < 100 || unknown < 50 {
		t.Errorf("%d answers were known, %d were not", known, unknown)
	}
	for mailbox := range uint32(2) {
		for done := false; !done; {
			update(t, s, func(tx *Tx) (err error) { done, err = tx.DropMailbox(1, mailbox+1, 100); return err })
		}
	}
	view(t, s, func(tx *Tx) error {
		if n := tx.Bucket(mailrow.BucketExpunged).Stats().KeyN; n > 0 {
			t.Errorf("%d rows outlive their mailboxes", n)
		}
		return nil
	})
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func expand(ranges []UIDRange) (uids []uint32) {
	for _, r := range ranges {
		for uid := r.First; uid <= r.Last; uid++ {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

func folderModSeq(t *testing.T, s *Store, mailbox, folder uint32) (n uint64) {
	t.Helper()
	view(t, s, func(tx *Tx) error {
		f, err := tx.Folder(mailbox, folder)
		n = f.ModSeq
		return err
	})
	return n
}

// TestExpungedOfDeletedFolder: what has left a folder goes with it, and a removal before, in the
// same transaction, leaves nothing.
func TestExpungedOfDeletedFolder(t *testing.T) {
	s := openTest(t, Options{})
	addMailbox(t, s, 1)
	for range 2500 / 500 {
		ref := appendTest(t, s, "x")
		update(t, s, func(tx *Tx) error {
			for range 500 {
				if err := tx.AddMessage(&Message{Account: 1, Mailbox: 1, Folder: 2, Blob: ref}, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for uid := range uint32(2400) {
		update(t, s, func(tx *Tx) error { return tx.DeleteMessage(1, 2, uid+1) })
	}
	calls := 0
	for done := false; !done; calls++ {
		update(t, s, func(tx *Tx) (err error) {
			if calls == 0 {
				if err := tx.DeleteMessage(1, 2, 2401); err != nil {
					return err
				}
			}
			done, err = tx.DeleteFolder(1, 2, 500)
			return err
		})
	}
	if calls != 3 { // a thousand rows a call
		t.Errorf("the folder was deleted in %d calls", calls)
	}
	view(t, s, func(tx *Tx) error {
		if n := tx.Bucket(mailrow.BucketExpunged).Stats().KeyN; n > 0 {
			t.Errorf("%d rows outlive their folder", n)
		}
		return nil
	})
}

// TestOldExpungedAreForgotten: what has left a folder is forgotten 30 days after the last message
// has, in pieces, and nothing wrong is said meanwhile or later.
func TestOldExpungedAreForgotten(t *testing.T) {
	now := second(1)
	s := openTest(t, Options{Now: func() time.Time { return now }})
	addMailbox(t, s, 1, 2, 3)
	remove := func(mailbox uint32, n int) {
		t.Helper()
		for range n {
			deleteTest(t, s, addTest(t, s, Message{Account: 1, Mailbox: mailbox, Folder: InboxID}, "x"))
		}
	}
	remove(1, 10)
	remove(3, 3)
	since := folderModSeq(t, s, 1, InboxID)
	now = now.AddDate(0, 0, 20)
	remove(2, 4)
	now = now.AddDate(0, 0, 15)
	look := func() (folders int) {
		var next []byte
		for {
			var old [][]byte
			view(t, s, func(tx *Tx) (err error) { old, next, err = tx.FoldersWithOldExpunged(next, 2); return err })
			for _, folder := range old {
				folders++
				update(t, s, func(tx *Tx) error { _, err := tx.DropOldExpunged(folder, 4); return err })
			}
			if next == nil {
				return folders
			}
		}
	}
	known := func(mailbox uint32, since uint64) (known bool) {
		view(t, s, func(tx *Tx) error {
			f, err := tx.Folder(mailbox, InboxID)
			if err == nil {
				_, known, err = tx.Expunged(f, since)
			}
			return err
		})
		return known
	}
	if n := look(); n != 2 || known(1, since) || known(3, 1) || !known(2, folderModSeq(t, s, 2, InboxID)) {
		t.Errorf("%d folders are old; known: %v %v %v", n, known(1, since), known(3, 1), known(2, folderModSeq(t, s, 2, InboxID)))
	}
	if n := look(); n != 1 { // mailbox 1 has ten rows
		t.Errorf("%d folders have old rows left", n)
	}
	remove(1, 1)
	if n := look(); n != 0 || known(1, since) || !known(1, folderModSeq(t, s, 1, InboxID)-1) {
		t.Errorf("after one more: %d old, known %v and %v", n, known(1, since), known(1, folderModSeq(t, s, 1, InboxID)-1))
	}
}

func FuzzExpungedRow(f *testing.F) {
	r := &mailrow.ExpungedRow{ModSeq: 9, Floor: 4, Day: 20_000, Gaps: 12, UIDs: []UIDRange{{First: 1, Last: 1}, {First: 3, Last: 4}, {First: 6, Last: 1<<32 - 1}}}
	key := mailrow.ExpungedKey(1, 2, r.ModSeq)
	f.Add(r.Row(key))
	f.Add((&mailrow.ExpungedRow{ModSeq: 9, Floor: 9, UIDs: []UIDRange{{First: 7, Last: 7}}}).Row(key))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, row []byte) {
		row = sealed(mailrow.BucketExpunged, key, row)
		checkCodec(t, row, func(row []byte) (*codedExpunged, error) {
			r := new(codedExpunged)
			return r, r.Decode(key, row)
		})
	})
}

// A codedExpunged is an expungedRow that knows its key.
type codedExpunged struct{ mailrow.ExpungedRow }

func (r *codedExpunged) Row() []byte { return r.ExpungedRow.Row(mailrow.ExpungedKey(1, 2, r.ModSeq)) }

// BenchmarkRemove measures the removal of messages: one a transaction, and 300.
func BenchmarkRemove(b *testing.B) {
	for _, each := range []int{1, 300} {
		b.Run(fmt.Sprint("each=", each), func(b *testing.B) {
			s := openTest(b, Options{noSync: true})
			addMailbox(b, s, 1)
			ref := appendTest(b, s, "x")
			for done := 0; done < b.N; done += 10_000 {
				addMany(b, s, ref, done, min(10_000, b.N-done))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for uid := uint32(1); int(uid) <= b.N; {
				update(b, s, func(tx *Tx) error {
					for range each {
						if int(uid) > b.N {
							break
						}
						if err := tx.DeleteMessage(1, InboxID, uid); err != nil {
							return err
						}
						uid++
					}
					return nil
				})
			}
		})
	}
}
