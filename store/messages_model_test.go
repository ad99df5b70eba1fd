package store

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/mailrow"
)

// A twin is the message index as plain maps, which a store is compared with.
type twin struct {
	boxes map[uint32]*twinBox // by mailbox
	subs  map[string]string   // submission id to body
}

type twinBox struct {
	account, nextFolder, validity uint32
	modSeq                        uint64
	folders                       map[uint32]*twinFolder
}

type twinFolder struct {
	name       string
	subscribed bool
	validity   uint32
	uidNext    uint32
	messages   map[uint32]*twinMessage
}

type twinMessage struct {
	Message
	body string
}

func newTwin() *twin { return &twin{boxes: map[uint32]*twinBox{}, subs: map[string]string{}} }

func (w *twin) box(account, mailbox uint32) *twinBox {
	if w.boxes[mailbox] == nil {
		w.boxes[mailbox] = &twinBox{account: account, nextFolder: 2, folders: map[uint32]*twinFolder{}}
	}
	return w.boxes[mailbox]
}

func (f *twinFolder) unseen() (n uint32) {
	for _, m := range f.messages {
		if m.Flags&FlagSeen == 0 {
			n++
		}
	}
	return n
}

func (f *twinFolder) bytes() (n int64) {
	for _, m := range f.messages {
		n += int64(len(m.body))
	}
	return n
}

// A modelRun drives a store and its twin with the same random operations.
type modelRun struct {
	*testing.T
	rnd   *rand.Rand
	dir   string
	o     Options
	s     *Store
	w     *twin
	clock time.Time
	n     int
}

func (r *modelRun) mailbox() (account, mailbox uint32) {
	mailbox = 1 + r.rnd.Uint32N(4)
	return 1 + mailbox%2, mailbox
}

// folder picks a folder that is there; ok is false if there is none.
func (r *modelRun) folder() (mailbox, id uint32, f *twinFolder, ok bool) {
	_, mailbox = r.mailbox()
	box := r.w.boxes[mailbox]
	if box == nil || len(box.folders) == 0 {
		return 0, 0, nil, false
	}
	ids := slices.Sorted(maps.Keys(box.folders))
	id = ids[r.rnd.IntN(len(ids))]
	if r.rnd.IntN(2) == 0 && box.folders[InboxID] != nil {
		id = InboxID
	}
	return mailbox, id, box.folders[id], true
}

func (r *modelRun) message() (*twinFolder, *twinMessage) {
	_, _, f, ok := r.folder()
	if !ok || len(f.messages) == 0 {
		return nil, nil
	}
	uids := slices.Sorted(maps.Keys(f.messages))
	return f, f.messages[uids[r.rnd.IntN(len(uids))]]
}

func (r *modelRun) text() string {
	r.n++
	return fmt.Sprintf("message %d %s", r.n, strings.Repeat("x", r.rnd.IntN(300)))
}

func (r *modelRun) keywords() (k []string) {
	for range r.rnd.IntN(3) {
		k = append(k, []string{"$Forwarded", "Work", "ü"}[r.rnd.IntN(3)])
	}
	return k
}

// risen records the MODSEQ of a change, which must be higher than any earlier one in the mailbox.
func (r *modelRun) risen(mailbox uint32, modSeq uint64) {
	box := r.w.boxes[mailbox]
	if modSeq <= box.modSeq {
		r.Fatalf("MODSEQ %d of mailbox %d after %d", modSeq, mailbox, box.modSeq)
	}
	box.modSeq = modSeq
}

func (r *modelRun) createFolder() {
	account, mailbox := r.mailbox()
	f := &Folder{Mailbox: mailbox, Name: []string{"INBOX", "inbox", "Sent", "Archive", "Archive/2026"}[r.rnd.IntN(5)], Subscribed: r.rnd.IntN(2) == 0}
	name := f.Name
	if name == "inbox" {
		name = "INBOX"
	}
	box := r.w.box(account, mailbox)
	err := r.s.Update(func(tx *Tx) error { return tx.CreateFolder(f) })
	if slices.ContainsFunc(slices.Collect(maps.Values(box.folders)), func(f *twinFolder) bool { return f.name == name }) {
		if !errors.Is(err, ErrExists) {
			r.Fatalf("create %q twice: %v", name, err)
		}
		return
	}
	want := uint32(InboxID)
	if name != "INBOX" {
		want = box.nextFolder
		box.nextFolder++
	}
	if err != nil || f.ID != want || f.UIDValidity <= box.validity || f.UIDNext != 1 || f.Name != name {
		r.Fatalf("create %q: %+v, %v; want id %d and a UIDVALIDITY over %d", name, f, err, want, box.validity)
	}
	box.validity = f.UIDValidity
	r.risen(mailbox, f.ModSeq)
	box.folders[f.ID] = &twinFolder{name: name, subscribed: f.Subscribed, validity: f.UIDValidity, uidNext: 1, messages: map[uint32]*twinMessage{}}
}

func (r *modelRun) changeFolder() {
	mailbox, id, f, ok := r.folder()
	if !ok {
		return
	}
	name := []string{"Moved", "Moved/2", "INBOX"}[r.rnd.IntN(3)]
	taken := slices.ContainsFunc(slices.Collect(maps.Values(r.w.boxes[mailbox].folders)), func(other *twinFolder) bool {
		return other != f && other.name == name
	})
	err := r.s.Update(func(tx *Tx) error { return tx.RenameFolder(&Folder{Mailbox: mailbox, ID: id}, name) })
	switch {
	case id == InboxID && !errors.Is(err, ErrInbox), id != InboxID && taken && !errors.Is(err, ErrExists), id != InboxID && !taken && err != nil:
		r.Fatalf("rename of %q to %q: %v", f.name, name, err)
	case err == nil:
		f.name = name
	}
	f.subscribed = !f.subscribed
	update(r, r.s, func(tx *Tx) error { return tx.SetSubscribed(&Folder{Mailbox: mailbox, ID: id}, f.subscribed) })
}

func (r *modelRun) deleteFolder() {
	mailbox, id, f, ok := r.folder()
	if !ok {
		return
	}
	if id == InboxID {
		if err := r.s.Update(func(tx *Tx) error { _, err := tx.DeleteFolder(mailbox, id, 10); return err }); !errors.Is(err, ErrInbox) {
			r.Fatalf("deletion of INBOX: %v", err)
		}
		return
	}
	limit := 1 + r.rnd.IntN(5)
	r.untilDone(len(f.messages)/limit+1, func(tx *Tx) (bool, error) { return tx.DeleteFolder(mailbox, id, limit) })
	delete(r.w.boxes[mailbox].folders, id)
}

func (r *modelRun) dropMailbox() {
	account, mailbox := r.mailbox()
	if r.rnd.IntN(10) > 0 || r.w.boxes[mailbox] == nil {
		return
	}
	r.untilDone(1000, func(tx *Tx) (bool, error) { return tx.DropMailbox(account, mailbox, 7) })
	delete(r.w.boxes, mailbox)
}

func (r *modelRun) untilDone(limit int, fn func(tx *Tx) (bool, error)) {
	for n, done := 0, false; !done; n++ {
		if n > limit {
			r.Fatalf("not done after %d calls", n)
		}
		update(r, r.s, func(tx *Tx) (err error) { done, err = fn(tx); return err })
	}
}

// add puts one message into one to three folders, in one transaction.
func (r *modelRun) add() {
	body := r.text()
	ref := appendTest(r, r.s, body)
	defer r.s.Release(ref)
	var added []*Message
	for range 1 + r.rnd.IntN(3) {
		if mailbox, folder, _, ok := r.folder(); ok {
			added = append(added, &Message{
				Account: 1 + mailbox%2, Mailbox: mailbox, Folder: folder, Blob: ref, Keywords: r.keywords(),
				Received: second(r.rnd.Int64N(50)), Flags: Flags(r.rnd.IntN(32)), Bits: Bits(r.rnd.IntN(16)),
			})
		}
	}
	update(r, r.s, func(tx *Tx) error {
		for _, m := range added {
			if err := tx.AddMessage(m, &Meta{Preview: body, Structure: []byte(body)}); err != nil {
				return err
			}
		}
		return nil
	})
	for _, m := range added {
		r.keep(m, body)
	}
}

// keep records a message that the store has added.
func (r *modelRun) keep(m *Message, body string) {
	f := r.w.boxes[m.Mailbox].folders[m.Folder]
	if m.UID != f.uidNext {
		r.Fatalf("UID %d, want %d", m.UID, f.uidNext)
	}
	f.uidNext++
	r.risen(m.Mailbox, m.ModSeq)
	f.messages[m.UID] = &twinMessage{*m, body}
}

func (r *modelRun) change() {
	_, t := r.message()
	if t == nil {
		return
	}
	flags, keywords, bits := Flags(r.rnd.IntN(32)), r.keywords(), Bits(r.rnd.IntN(16))
	got := t.Message
	got.Blob = BlobRef{} // a stale message is as good
	update(r, r.s, func(tx *Tx) error { return errors.Join(tx.SetFlags(&got, flags, keywords), tx.SetBits(&got, bits)) })
	if t.Flags != flags || !slices.Equal(t.Keywords, keywords) || t.Bits != bits {
		r.risen(t.Mailbox, got.ModSeq)
	} else if got.ModSeq != t.ModSeq {
		r.Fatal("MODSEQ rose without a change")
	}
	t.Flags, t.Keywords, t.Bits, t.ModSeq = flags, keywords, bits, got.ModSeq
}

func (r *modelRun) delete() {
	f, t := r.message()
	if t == nil {
		return
	}
	update(r, r.s, func(tx *Tx) error { return tx.DeleteMessage(t.Mailbox, t.Folder, t.UID) })
	if err := r.s.Update(func(tx *Tx) error { return tx.DeleteMessage(t.Mailbox, t.Folder, t.UID) }); !errors.Is(err, ErrNotFound) {
		r.Fatalf("second deletion: %v", err)
	}
	delete(f.messages, t.UID)
}

func (r *modelRun) copy() {
	f, t := r.message()
	if t == nil {
		return
	}
	ids := slices.Sorted(maps.Keys(r.w.boxes[t.Mailbox].folders))
	to, move := ids[r.rnd.IntN(len(ids))], r.rnd.IntN(2) == 0
	var copied *Message
	update(r, r.s, func(tx *Tx) (err error) {
		copied, err = tx.CopyMessage(&t.Message, to)
		if err != nil || !move {
			return err
		}
		return tx.DeleteMessage(t.Mailbox, t.Folder, t.UID)
	})
	if move {
		delete(f.messages, t.UID)
	}
	r.keep(copied, t.body)
}

func (r *modelRun) submit() {
	_, t := r.message()
	for id := range r.w.subs {
		if r.rnd.IntN(2) == 0 {
			break
		}
		update(r, r.s, func(tx *Tx) error {
			sub, err := Submissions.Get(tx, id)
			if err != nil {
				return err
			}
			return errors.Join(SubmissionBlobs.Unref(tx, sub.Blob, id), Submissions.Delete(tx, id))
		})
		delete(r.w.subs, id)
		break
	}
	if t == nil {
		return
	}
	id := r.s.NewID("sub")
	update(r, r.s, func(tx *Tx) error {
		m, err := tx.Message(t.Mailbox, t.Folder, t.UID)
		if err != nil {
			return err
		}
		return errors.Join(SubmissionBlobs.Ref(tx, m.Blob, id), Submissions.Put(tx, &Submission{ID: id, Blob: m.Blob}))
	})
	r.w.subs[id] = t.body
}

// abort makes changes of every kind and then fails.
func (r *modelRun) abort() {
	ref := appendTest(r, r.s, r.text())
	defer r.s.Release(ref)
	_, t := r.message()
	err := r.s.Update(func(tx *Tx) error {
		if t != nil {
			m := t.Message
			m.Blob = ref
			_, copyErr := tx.CopyMessage(&t.Message, t.Folder)
			if err := errors.Join(copyErr, tx.AddMessage(&m, nil), tx.DeleteMessage(t.Mailbox, t.Folder, t.UID)); err != nil {
				return err
			}
		}
		return errTest
	})
	if !errors.Is(err, errTest) {
		r.Fatalf("got %v, want %v", err, errTest)
	}
}

func (r *modelRun) compact() {
	if err := r.s.Compact(r.Context()); err != nil {
		r.Fatal(err)
	}
}

func (r *modelRun) reopen() {
	if r.rnd.IntN(4) == 0 {
		closeTest(r, r.s)
		r.s = openDir(r, r.dir, r.o)
	}
}

// compare reads everything back.
func (r *modelRun) compare() {
	r.Helper()
	view(r, r.s, func(tx *Tx) error {
		usage := map[uint32]Usage{}
		for mailbox := range uint32(5) {
			u := r.compareBox(tx, mailbox)
			account := 1 + mailbox%2
			usage[account] = Usage{Messages: usage[account].Messages + u.Messages, Bytes: usage[account].Bytes + u.Bytes}
		}
		for account, want := range usage {
			if got, err := tx.AccountUsage(account); err != nil || got != want {
				r.Fatalf("account %d: %+v, %v; want %+v", account, got, err, want)
			}
		}
		for range 20 {
			r.compareInbox(tx)
		}
		for id, body := range r.w.subs {
			sub, err := Submissions.Get(tx, id)
			if err != nil || readTest(r, r.s, sub.Blob) != body {
				r.Fatalf("submission %s: %v", id, err)
			}
		}
		return nil
	})
}

func (r *modelRun) compareBox(tx *Tx, mailbox uint32) (sum Usage) {
	box := r.w.boxes[mailbox]
	if box == nil {
		box = newTwin().box(0, mailbox)
	}
	folders, err := tx.Folders(mailbox)
	if err != nil || len(folders) != len(box.folders) {
		r.Fatalf("mailbox %d has %d folders, want %d (%v)", mailbox, len(folders), len(box.folders), err)
	}
	for _, f := range folders {
		want := box.folders[f.ID]
		byName, err := tx.FolderByName(mailbox, want.name)
		if err != nil || *byName != *f {
			r.Fatalf("folder by name %q: %v, %v", want.name, byName, err)
		}
		if f.Name != want.name || f.Subscribed != want.subscribed || f.UIDValidity != want.validity || f.UIDNext != want.uidNext ||
			f.Messages != uint32(len(want.messages)) || f.Unseen != want.unseen() || f.Bytes != want.bytes() {
			r.Fatalf("folder %+v, want %+v with %d messages, %d unseen, %d bytes", f, want, len(want.messages), want.unseen(), want.bytes())
		}
		sum.Messages += int64(f.Messages)
		sum.Bytes += f.Bytes
		if f.ID == InboxID {
			sum.Unseen = int64(f.Unseen)
		}
		r.compareFolder(tx, f, want)
	}
	if got, err := tx.MailboxUsage(mailbox); err != nil || got != sum {
		r.Fatalf("mailbox %d: %+v, %v; want %+v", mailbox, got, err, sum)
	}
	return sum
}

func (r *modelRun) compareFolder(tx *Tx, f *Folder, want *twinFolder) {
	from, to := r.rnd.Uint32N(want.uidNext+1), r.rnd.Uint32N(want.uidNext+3)
	var uids []uint32
	for _, uid := range slices.Sorted(maps.Keys(want.messages)) {
		if uid >= from && uid <= to {
			uids = append(uids, uid)
		}
	}
	for m := range tx.Messages(f.Mailbox, f.ID, from, to) {
		if len(uids) == 0 || m.UID != uids[0] {
			r.Fatalf("walk from %d to %d gives UID %d, want %v", from, to, m.UID, uids)
		}
		uids = uids[1:]
		r.compareMessage(tx, &m, want.messages[m.UID])
	}
	if len(uids) > 0 {
		r.Fatalf("walk from %d to %d misses %v", from, to, uids)
	}
	r.compareEach(tx, f, want)
}

// compareEach asks for some UIDs, there or not, near to each other or not.
func (r *modelRun) compareEach(tx *Tx, f *Folder, want *twinFolder) {
	var asked, there []uint32
	for uid := uint32(1); uid < want.uidNext+3; uid += 1 + r.rnd.Uint32N(3)*r.rnd.Uint32N(20) {
		asked = append(asked, uid)
		if want.messages[uid] != nil {
			there = append(there, uid)
		}
	}
	structures := r.rnd.IntN(2) == 0
	err := tx.EachMessage(f.Mailbox, f.ID, asked, structures, func(m *Message, structure []byte) bool {
		body := ""
		if structures {
			body = want.messages[m.UID].body
		}
		if len(there) == 0 || m.UID != there[0] || string(structure) != body {
			r.Fatalf("of %v comes UID %d with %q, want %v", asked, m.UID, structure, there)
		}
		there = there[1:]
		r.compareMessage(tx, m, want.messages[m.UID])
		return true
	})
	if err != nil || len(there) > 0 {
		r.Fatalf("of %v: %v misses %v", asked, err, there)
	}
}

func (r *modelRun) compareMessage(tx *Tx, m *Message, want *twinMessage) {
	one, err := tx.Message(m.Mailbox, m.Folder, m.UID)
	if err != nil || fmt.Sprint(*one) != fmt.Sprint(*m) {
		r.Fatalf("message %+v, %v; the walk gives %+v", one, err, m)
	}
	expect := want.Message
	expect.Blob = m.Blob
	if fmt.Sprint(expect) != fmt.Sprint(*m) {
		r.Fatalf("message %+v, want %+v", m, expect)
	}
	meta, err := tx.Meta(m.Mailbox, m.Folder, m.UID)
	if err != nil || meta.Preview != want.body || string(meta.Structure) != want.body {
		r.Fatalf("meta %+v, %v; want %q", meta, err, want.body)
	}
	if got := readTest(r, r.s, m.Blob); got != want.body {
		r.Fatalf("bytes %q, want %q", got, want.body)
	}
}

// query makes a query and the positions that answer it.
func (r *modelRun) query() (q InboxQuery, want []InboxPos) {
	account, mailbox := r.mailbox()
	q.Account = account
	switch r.rnd.IntN(3) {
	case 0:
		q.Folders = []uint32{mailbox}
	case 1:
		for other, box := range r.w.boxes {
			if box.account == account && r.rnd.IntN(3) > 0 {
				q.Folders = append(q.Folders, other)
			}
		}
	}
	if r.rnd.IntN(3) == 0 {
		q.Before = InboxPos{Received: second(r.rnd.Int64N(50)), UID: r.rnd.Uint32N(20), Num: mailbox}
	}
	if r.rnd.IntN(3) == 0 {
		q.From, q.To = second(r.rnd.Int64N(30)), second(20+r.rnd.Int64N(40)).Add(-time.Nanosecond)
	}
	for _, choice := range []**bool{&q.Seen, &q.Attachments, &q.Warmup, &q.Flagged} {
		if r.rnd.IntN(3) == 0 {
			yes := r.rnd.IntN(2) == 0
			*choice = &yes
		}
	}
	for mailbox, box := range r.w.boxes {
		if box.folders[InboxID] == nil || box.account != q.Account || len(q.Folders) > 0 && !slices.Contains(q.Folders, mailbox) {
			continue
		}
		for _, m := range box.folders[InboxID].messages {
			if isSelected(&q, &m.Message) {
				want = append(want, InboxPos{Received: m.Received, UID: m.UID, Num: m.Mailbox})
			}
		}
	}
	slices.SortFunc(want, func(a, b InboxPos) int { return mailrow.ComparePos(b, a) })
	return q, want
}

func isSelected(q *InboxQuery, m *Message) bool {
	is := func(choice *bool, have bool) bool { return choice == nil || *choice == have }
	pos := InboxPos{Received: m.Received, UID: m.UID, Num: m.Mailbox}
	return is(q.Seen, m.Flags&FlagSeen != 0) && is(q.Attachments, m.Bits&BitAttachments != 0) && is(q.Warmup, m.Bits&BitWarmup != 0) &&
		is(q.Flagged, m.Flags&FlagFlagged != 0) &&
		(q.From.IsZero() || !m.Received.Before(q.From)) && (q.To.IsZero() || m.Received.Before(q.To)) &&
		(q.Before == InboxPos{} || mailrow.ComparePos(pos, q.Before) < 0)
}

func (r *modelRun) compareInbox(tx *Tx) {
	q, want := r.query()
	var got []InboxPos
	for pos, marks := range tx.Inbox(q) {
		got = append(got, pos)
		m := r.w.boxes[pos.Num].folders[InboxID].messages[pos.UID]
		if m == nil || marks != (Marks{Flags: m.Flags, Bits: m.Bits}) {
			r.Fatalf("inbox gives %+v with %+v, want %+v", pos, marks, m)
		}
	}
	if !slices.Equal(got, want) {
		r.Fatalf("inbox %+v gives\n%v, want\n%v", q, got, want)
	}
}

func TestMessagesAgreeWithTwin(t *testing.T) {
	steps := 1500
	if testing.Short() {
		steps = 300
	}
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := &modelRun{T: t, rnd: rand.New(rand.NewPCG(seed, 7)), dir: t.TempDir(), w: newTwin(), clock: second(0)}
			r.o = Options{SegmentSize: 6000, Grace: -1, noSync: true, Now: func() time.Time { return r.clock }}
			r.s = openDir(t, r.dir, r.o)
			ops := []func(){
				r.createFolder, r.createFolder, r.changeFolder, r.deleteFolder, r.dropMailbox, r.submit, r.abort, r.compact, r.reopen,
				r.add, r.add, r.add, r.add, r.add, r.add, r.change, r.change, r.change, r.delete, r.delete, r.delete, r.copy, r.copy,
			}
			for n := range steps {
				ops[r.rnd.IntN(len(ops))]()
				r.clock = r.clock.Add(time.Duration(r.rnd.IntN(900)-100) * time.Millisecond)
				if n%25 == 0 {
					r.compare()
				}
			}
			r.compare()
			r.compact()
			files, err := os.ReadDir(r.dir + "/segments")
			if err != nil || len(files) > 60 {
				t.Errorf("%d segments after compaction, %v", len(files), err)
			}
		})
	}
}
