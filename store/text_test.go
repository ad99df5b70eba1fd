package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/textindex"
)

// A textTwin drives a store and knows which words its messages have.
type textTwin struct {
	*testing.T
	rnd   *rand.Rand
	s     *Store
	clock time.Time
	words map[InboxPos][]string // of what is there
	marks map[InboxPos]*Message
	done  map[InboxPos]bool // indexed
	ever  map[InboxPos][]string
}

const textTestAccount = 7

func (w *textTwin) add() {
	mailbox := 1 + w.rnd.Uint32N(3)
	m := addTest(w, w.s, Message{
		Account: textTestAccount, Mailbox: mailbox, Folder: InboxID, Received: second(w.rnd.Int64N(100)),
		Flags: Flags(w.rnd.IntN(2)), Bits: Bits(w.rnd.IntN(2)),
	}, "x")
	w.note(m)
}

// addAt files a message with a UID of another server, at a place that may have had one before.
func (w *textTwin) addAt() {
	m := &Message{
		Account: textTestAccount, Mailbox: 1 + w.rnd.Uint32N(3), Folder: InboxID, UID: 1 + w.rnd.Uint32N(60), Blob: appendTest(w, w.s, "x"),
	}
	m.Received = second(int64(m.UID))
	err := w.s.Update(func(tx *Tx) error { return tx.AddMessageAt(m, nil) })
	if err == nil {
		w.note(m)
	} else if !errors.Is(err, ErrExists) {
		w.Fatal(err)
	}
}

func (w *textTwin) note(m *Message) {
	at := InboxPos{Received: m.Received, UID: m.UID, Num: m.Mailbox}
	var words []string
	for range 1 + w.rnd.IntN(6) {
		words = append(words, fmt.Sprintf("w%d", int(w.rnd.ExpFloat64()*8)))
	}
	if w.ever[at] != nil {
		words = w.ever[at] // who comes again with its UID and time is the same
	}
	w.words[at], w.marks[at], w.ever[at] = words, m, words
}

func (w *textTwin) delete() {
	if len(w.words) == 0 {
		return
	}
	all := slices.SortedFunc(maps.Keys(w.words), mailrow.ComparePos)
	at := all[w.rnd.IntN(len(all))]
	update(w, w.s, func(tx *Tx) error { return tx.DeleteMessage(at.Num, InboxID, at.UID) })
	delete(w.words, at)
	delete(w.marks, at)
	delete(w.done, at)
}

func (w *textTwin) flag() {
	for at, m := range w.marks {
		update(w, w.s, func(tx *Tx) error { return tx.SetFlags(m, m.Flags^FlagSeen, nil) })
		w.marks[at] = m
		return
	}
}

// index indexes up to limit messages of each mailbox, as a service does.
func (w *textTwin) index(limit int) {
	b := NewTextBatch(textTestAccount)
	var work *TextWork
	err := w.s.View(func(tx *Tx) (err error) {
		work, err = tx.TextWork(textTestAccount, TextLimits{Most: 3 * limit, Each: limit, Bytes: 1 << 40, Message: 1})
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	for _, m := range work.Messages {
		p := InboxPos{Received: m.Received, UID: m.UID, Num: m.Mailbox}
		b.AddMessage(p)
		for _, word := range w.words[p] {
			b.AddWord([]byte(word))
		}
		w.done[p] = true
	}
	if err := w.s.AddText(b, work.Done, nil); err != nil {
		w.Fatal(err)
	}
	if err := w.s.TidyText(context.Background(), textTestAccount); err != nil {
		w.Fatal(err)
	}
}

func (w *textTwin) purge() {
	if err := w.s.PurgeText(context.Background()); err != nil {
		w.Fatal(err)
	}
}

// has reports whether one of the words matches one of the terms.
func has(words []string, list []TextTerm) bool {
	return slices.ContainsFunc(list, func(t TextTerm) bool {
		return slices.ContainsFunc(words, func(word string) bool { return word == t.Word || t.Prefix && strings.HasPrefix(word, t.Word) })
	})
}

// waiting compares the list of messages that are not indexed.
func (w *textTwin) waiting() {
	var want, got []InboxPos
	for at := range w.words {
		if !w.done[at] {
			want = append(want, at)
		}
	}
	_ = w.s.View(func(tx *Tx) error {
		for m := range tx.UnindexedMessages(textTestAccount, nil) {
			got = append(got, InboxPos{Received: m.Received, UID: m.UID, Num: m.Num})
		}
		return nil
	})
	slices.SortFunc(want, mailrow.ComparePos)
	slices.SortFunc(got, mailrow.ComparePos)
	if !slices.Equal(got, want) {
		w.Fatalf("waiting\n%v, want\n%v", got, want)
	}
}

// search compares a random search, page by page, with what the twin finds.
func (w *textTwin) search() {
	w.waiting()
	q := InboxQuery{Account: textTestAccount}
	if w.rnd.IntN(2) == 0 {
		for n := range uint32(3) {
			if w.rnd.IntN(2) == 0 {
				q.Folders = append(q.Folders, n+1)
			}
		}
	}
	if w.rnd.IntN(2) == 0 {
		seen := w.rnd.IntN(2) == 0
		q.Seen = &seen
	}
	if w.rnd.IntN(3) == 0 {
		q.From, q.To = second(w.rnd.Int64N(50)), second(50+w.rnd.Int64N(50))
	}
	var terms [][]TextTerm
	for range 1 + w.rnd.IntN(2) {
		list := []TextTerm{{Word: fmt.Sprintf("w%d", w.rnd.IntN(20)), Prefix: w.rnd.IntN(3) == 0}}
		if w.rnd.IntN(3) == 0 {
			list = append(list, TextTerm{Word: fmt.Sprintf("w%d", w.rnd.IntN(20)), Prefix: false})
		}
		terms = append(terms, list)
	}
	without, watched := w.lists(), w.lists()
	if len(without) > 0 && w.rnd.IntN(3) == 0 {
		terms = nil
	}
	var want []InboxPos
	for at, words := range w.words {
		if w.done[at] && isSelected(&q, w.marks[at]) && (len(q.Folders) == 0 || slices.Contains(q.Folders, at.Num)) &&
			!slices.ContainsFunc(terms, func(list []TextTerm) bool { return !has(words, list) }) && !hasAll(words, without) {
			want = append(want, at)
		}
	}
	slices.SortFunc(want, func(a, b InboxPos) int { return mailrow.ComparePos(b, a) })
	got := w.pages(q, terms, without, watched)
	// What has come again to a place that a run knows may be found there before it is indexed.
	got = slices.DeleteFunc(got, func(at InboxPos) bool { return !w.done[at] })
	if !slices.Equal(got, want) {
		w.Fatalf("%+v %v without %v finds\n%v, want\n%v", q, terms, without, got, want)
	}
}

// lists returns up to two lists of words, of which a message must have all.
func (w *textTwin) lists() (lists [][]TextTerm) {
	for range w.rnd.IntN(3) {
		var list []TextTerm
		for range 1 + w.rnd.IntN(2) {
			list = append(list, TextTerm{Word: fmt.Sprintf("w%d", w.rnd.IntN(20)), Prefix: w.rnd.IntN(4) == 0})
		}
		lists = append(lists, list)
	}
	return lists
}

// hasAll reports whether the words match all terms of one of the lists.
func hasAll(words []string, lists [][]TextTerm) bool {
	return slices.ContainsFunc(lists, func(list []TextTerm) bool {
		return !slices.ContainsFunc(list, func(t TextTerm) bool { return !has(words, []TextTerm{t}) })
	})
}

// pages searches a few messages at a time, each time with little to spend.
func (w *textTwin) pages(q InboxQuery, terms, without, watched [][]TextTerm) (got []InboxPos) {
	for rounds := 0; ; rounds++ {
		if rounds > 10_000 {
			w.Fatal("a search does not end")
		}
		more := false
		err := w.s.View(func(tx *Tx) error {
			s, err := tx.SearchInbox(q, terms, 3000)
			if err != nil {
				return err
			}
			s.Without, s.Watched = without, watched
			for n := 0; n < 5; n++ {
				at, marks, ok, err := s.Next()
				if err != nil {
					return err
				}
				if !ok {
					place, cut := s.Cut()
					more = cut
					if cut {
						q.Before = place
					}
					return nil
				}
				if m := w.marks[at]; m == nil || marks != (Marks{Flags: m.Flags, Bits: m.Bits}) {
					w.Fatalf("%v has %+v, want %+v", at, marks, m)
				}
				if w.done[at] && s.WatchedMatch() != hasAll(w.words[at], watched) {
					w.Fatalf("%v has %v: watched for %v it is %t", at, w.words[at], watched, s.WatchedMatch())
				}
				s.Spend(w.rnd.IntN(2000))
				got = append(got, at)
				q.Before = at
			}
			more = true
			return nil
		})
		if err != nil {
			w.Fatal(err)
		}
		if !more {
			return got
		}
	}
}

func TestTextAgreesWithTwin(t *testing.T) {
	seeds, steps := uint64(1), 1500
	switch {
	case os.Getenv("MAILSTEAD_SOAK") != "":
		seeds = 10
	case testing.Short():
		steps = 300
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := &textTwin{
				T: t, rnd: rand.New(rand.NewPCG(seed, 3)), clock: second(0),
				words: map[InboxPos][]string{}, marks: map[InboxPos]*Message{}, done: map[InboxPos]bool{}, ever: map[InboxPos][]string{},
			}
			w.s = openTest(t, Options{noSync: true, Now: func() time.Time { return w.clock }})
			addMailbox(t, w.s, 1, 2, 3)
			ops := []func(){w.add, w.add, w.addAt, w.addAt, w.addAt, w.add, w.add, w.delete, w.flag, func() { w.index(1 + w.rnd.IntN(3)) }, w.purge, w.search, w.search}
			for n := range steps {
				ops[w.rnd.IntN(len(ops))]()
				w.clock = w.clock.Add(time.Duration(w.rnd.IntN(2000)) * time.Second)
				if n%100 == 0 {
					if err := w.s.Check(); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.finish()
		})
	}
}

// finish deletes everything; a day later the index is empty.
func (w *textTwin) finish() {
	if err := w.s.ResetText(); err != nil {
		w.Fatal(err)
	}
	w.done = map[InboxPos]bool{}
	w.search()
	w.index(1 << 30)
	w.search()
	for len(w.words) > 0 {
		w.delete()
	}
	w.clock = w.clock.Add(25 * time.Hour)
	w.purge()
	_ = w.s.View(func(tx *Tx) error {
		for _, b := range []*engine.Bucket{mailrow.BucketTextTodo, mailrow.BucketTextRun, mailrow.BucketTextPlace, mailrow.BucketTextWord, mailrow.BucketTextGone} {
			if n := tx.Bucket(b).Stats().KeyN; n != 0 {
				w.Errorf("%s has %d rows of an empty store", b.Name(), n)
			}
		}
		return nil
	})
}

// TestTextMergesManyRuns sees to it that runs stay few and messages are not lost when runs are
// full.
func TestTextMergesManyRuns(t *testing.T) {
	oneAtATime(t)
	s := openTest(t, Options{noSync: true})
	addMailbox(t, s, 1)
	ref := appendTest(t, s, "x")
	rounds, each := 90, 200
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		each = 1000
	}
	for i := range rounds {
		b := NewTextBatch(1)
		for n := each; n > 0; n-- {
			b.AddMessage(InboxPos{Received: second(int64(i*each + n)), UID: uint32(i*each + n), Num: 1})
			b.AddWord([]byte("every"))
			b.AddWord(fmt.Appendf(nil, "word%d", n%100))
		}
		for from := 0; from < each; from += 200 {
			update(t, s, func(tx *Tx) error {
				for n := from; n < from+200; n++ {
					m := &Message{Account: 1, Mailbox: 1, Folder: InboxID, Blob: ref, Received: second(int64(i*each + n + 1))}
					if err := tx.AddMessage(m, nil); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err := s.AddText(b, []TextTodo{{Account: 1, Num: 1, UID: uint32((i+1)*each + 1)}}, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.TidyText(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.View(func(tx *Tx) error {
		if n := textRuns(tx); n > 20 {
			t.Errorf("%d runs", n)
		}
		for word, want := range map[string]int{"every": rounds * each, "word7": rounds * each / 100, "nothing": 0} {
			search, err := tx.SearchInbox(InboxQuery{Account: 1}, [][]TextTerm{{{Word: word}}}, 1<<30)
			if err != nil {
				return err
			}
			n := 0
			for _, _, ok, err := search.Next(); ok; _, _, ok, err = search.Next() {
				if n++; err != nil {
					t.Fatal(err)
				}
			}
			if n != want {
				t.Errorf("%s: %d messages, want %d", word, n, want)
			}
		}
		return nil
	})
}

// TestInterruptedMergeIsForgotten ends a merge at every transaction; nothing is lost and the next
// one cleans up. TestNewUIDsAreIndexed: an external mailbox gets another UIDVALIDITY while its
// messages are being indexed.
func TestNewUIDsAreIndexed(t *testing.T) {
	s := openTest(t, Options{})
	addMailbox(t, s, 1)
	var old []*Message
	for range 20 {
		old = append(old, addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID}, "old"))
	}
	var work *TextWork
	view(t, s, func(tx *Tx) (err error) {
		work, err = tx.TextWork(1, TextLimits{Most: 100, Each: 100, Bytes: 1 << 20, Message: 1 << 10})
		return err
	})
	b := NewTextBatch(1)
	for _, m := range work.Messages {
		b.AddMessage(InboxPos{Received: m.Received, UID: m.UID, Num: m.Num})
		b.AddWord([]byte("old"))
	}
	deleteTest(t, s, old...)
	update(t, s, func(tx *Tx) error { return tx.AdoptUIDValidity(1, InboxID, 1_900_000_000) })
	for uid := uint32(1); uid <= 10; uid++ {
		m := &Message{Account: 1, Mailbox: 1, Folder: InboxID, UID: uid, Blob: appendTest(t, s, "new")}
		update(t, s, func(tx *Tx) error { return tx.AddMessageAt(m, &Meta{}) })
	}
	if err := s.AddText(b, work.Done, nil); err != nil {
		t.Fatal(err)
	}
	waiting := 0
	view(t, s, func(tx *Tx) error {
		for range tx.UnindexedMessages(1, nil) {
			waiting++
		}
		return nil
	})
	if waiting != 10 {
		t.Errorf("%d of 10 messages are still to be indexed", waiting)
	}
}

// TestMailboxWithMuchToIndexIsDroppedInSteps drops an external mailbox whose messages, with falling
// UIDs, each have a row of their own.
func TestMailboxWithMuchToIndexIsDroppedInSteps(t *testing.T) {
	s := openTest(t, Options{})
	addMailbox(t, s, 1)
	update(t, s, func(tx *Tx) error {
		for uid := uint32(1); uid <= 2500; uid++ {
			if err := tx.PutRow(mailrow.BucketTextTodo, TextTodo{Account: 1, Num: 1, UID: uid, Single: true}.Key(), nil); err != nil {
				return err
			}
		}
		return nil
	})
	steps, done := 0, false
	for ; !done; steps++ {
		update(t, s, func(tx *Tx) (err error) { done, err = tx.DropMailbox(1, 1, 100); return err })
	}
	if steps != 3 {
		t.Errorf("2500 rows went in %d transactions, want 3", steps)
	}
	view(t, s, func(tx *Tx) error {
		for range tx.TextTodos(1) {
			t.Fatal("rows are left")
		}
		return nil
	})
}

// textRuns counts the runs of the text index.
func textRuns(tx *Tx) (n int) {
	for range tx.Ascend(mailrow.BucketTextRun, nil) {
		n++
	}
	return n
}

func TestInterruptedMergeIsForgotten(t *testing.T) {
	s := openTest(t, Options{noSync: true})
	addMailbox(t, s, 1)
	for i := range uint32(8) { // as many runs of one size become one
		m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID, Received: second(int64(i))}, "x")
		b := NewTextBatch(1)
		b.AddMessage(InboxPos{Received: m.Received, UID: m.UID, Num: 1})
		for n := range 2000 {
			b.AddWord(fmt.Appendf(nil, "word-%d-%d", i, n))
		}
		if err := s.AddText(b, []TextTodo{{Account: 1, Num: 1, UID: m.UID + 1}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for n := int32(1); ; n++ {
		ctx := &countedContext{Context: t.Context(), left: n}
		err := s.TidyText(ctx, 0)
		if check := s.Check(); check != nil {
			t.Fatalf("ended after %d steps: %v", n, check)
		}
		if err == nil {
			break
		}
	}
	_ = s.View(func(tx *Tx) error {
		if n := textRuns(tx); n != 1 {
			t.Errorf("%d runs", n)
		}
		return nil
	})
}

// A countedContext is cancelled after it was asked a number of times.
type countedContext struct {
	context.Context
	left int32
}

func (c *countedContext) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestTextBatchKeepsOrder(t *testing.T) {
	s := openTest(t, Options{})
	b := NewTextBatch(1)
	b.AddMessage(InboxPos{Received: second(1), UID: 1, Num: 1})
	b.AddMessage(InboxPos{Received: second(2), UID: 2, Num: 1})
	if err := s.AddText(b, nil, nil); err != ErrTextOrder {
		t.Errorf("error %v, want %v", err, ErrTextOrder)
	}
}

// TestCheckFindsDamagedText breaks the text index in every way that Check looks for.
func TestCheckFindsDamagedText(t *testing.T) {
	first := func(tx *Tx, b *engine.Bucket) (k, v []byte) {
		k, v = tx.Bucket(b).Cursor().First()
		return bytes.Clone(k), bytes.Clone(v)
	}
	flip := func(b *engine.Bucket, at int) func(*Tx) error {
		return func(tx *Tx) error {
			k, v := first(tx, b)
			if at < 0 {
				at += len(v)
			}
			v[at] ^= 0x40
			return tx.PutRow(b, k, v)
		}
	}
	// change is flip, and mends the checksum.
	change := func(b *engine.Bucket, at int) func(*Tx) error {
		return func(tx *Tx) error {
			k, v := first(tx, b)
			v, err := b.Open(k, v)
			if err != nil {
				return err
			}
			v = bytes.Clone(v)
			v[at] ^= 0x40
			return tx.PutRow(b, k, b.Seal(k, v))
		}
	}
	drop := func(b *engine.Bucket) func(*Tx) error {
		return func(tx *Tx) error {
			k, _ := first(tx, b)
			return tx.DeleteRow(b, k)
		}
	}
	for name, c := range map[string]struct {
		damage func(*Tx) error
		want   string
	}{
		"run gone":    {drop(mailrow.BucketTextRun), "should be in the text index"},
		"run row":     {flip(mailrow.BucketTextRun, 0), "damaged row"},
		"run docs":    {flip(mailrow.BucketTextRun, 5), "damaged row"},
		"run bytes":   {change(mailrow.BucketTextRun, 13), "counts"},
		"run newest":  {change(mailrow.BucketTextRun, 29), "wrong newest or oldest"},
		"places gone": {drop(mailrow.BucketTextPlace), "damaged row"},
		"place":       {change(mailrow.BucketTextPlace, 12), "nothing says that message"},
		"words gone":  {drop(mailrow.BucketTextWord), "counts"},
		"word":        {change(mailrow.BucketTextWord, 3), "ends with"},
		"number":      {flip(mailrow.BucketTextWord, -1), "damaged row"},
		"todo":        {drop(mailrow.BucketTextTodo), "should be in the text index"},
		"todo too far": {func(tx *Tx) error {
			return tx.PutRow(mailrow.BucketTextTodo, TextTodo{Account: 1, Num: 1}.Key(), []byte{0, 0, 0, 9})
		}, "should be in the text index"},
		"gone": {drop(mailrow.BucketTextGone), "nothing says that message"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.TempDir(), Options{noSync: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			addMailbox(t, s, 1)
			var at []InboxPos
			for i := range int64(3) {
				m := addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID, Received: second(i)}, "x")
				at = append(at, InboxPos{Received: m.Received, UID: m.UID, Num: 1})
			}
			b := NewTextBatch(1)
			for _, p := range []InboxPos{at[1], at[0]} {
				b.AddMessage(p)
				b.AddWord([]byte("hello"))
			}
			if err := s.AddText(b, []TextTodo{{Account: 1, Num: 1, UID: 3}}, nil); err != nil {
				t.Fatal(err)
			}
			update(t, s, func(tx *Tx) error { return tx.DeleteMessage(1, InboxID, 1) })
			if err := s.Check(); err != nil {
				t.Fatalf("before the damage: %v", err)
			}
			update(t, s, c.damage)
			if err := s.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("check says %v, want %q", err, c.want)
			}
		})
	}
}

// TestOldStoresGetIndexes takes a store back to what it was before inbox entries had classes and
// texts an index.
func TestOldStoresGetIndexes(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir, Options{})
	addMailbox(t, s, 1)
	for i := range int64(5) {
		addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID, Received: second(i), Flags: Flags(i % 2)}, "x")
	}
	err := s.setup(func(tx *Tx) error {
		for _, name := range []string{"inbox_class", "inbox_mbx_class", "text_todo", "text_run", "text_place", "text_word", "text_gone", bucketMeta} {
			if err := engine.Bolt(tx).DeleteBucket([]byte(name)); err != nil {
				return err
			}
		}
		for _, name := range []string{"inbox", "inbox_mbx"} {
			if _, err := engine.Bolt(tx).CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	s = openDir(t, dir, Options{})
	defer s.Close()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	_ = s.View(func(tx *Tx) error {
		n := 0
		for range tx.Inbox(InboxQuery{Account: 1}) {
			n++
		}
		todo := slices.Collect(tx.TextTodos(0))
		if want := []TextTodo{{Account: 1, Num: 1, UID: 1}}; n != 5 || !slices.Equal(todo, want) {
			t.Errorf("%d messages, to do %v, want 5 and %v", n, todo, want)
		}
		return nil
	})
}

// TestOldStoresFindWhatIsFlagged takes a store back to what it was before flagged messages had a
// class of their own.
func TestOldStoresFindWhatIsFlagged(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir, Options{})
	addMailbox(t, s, 1)
	for i := range int64(6) {
		addTest(t, s, Message{Account: 1, Mailbox: 1, Folder: InboxID, Received: second(i), Flags: FlagFlagged * Flags(i%2), Bits: Bits(i % 3)}, "x")
	}
	update(t, s, func(tx *Tx) error {
		for m := range tx.Messages(1, InboxID, 1, math.MaxUint32) {
			byAccount, byMailbox := mailrow.InboxKey(&m), mailrow.InboxOfKey(&m, m.Mailbox)
			if err := errors.Join(tx.DeleteRow(mailrow.BucketInbox, byAccount[:]), tx.DeleteRow(mailrow.BucketInboxOf, byMailbox[:])); err != nil {
				return err
			}
			byAccount[4] &^= mailrow.ClassFlagged
			byMailbox[4] &^= mailrow.ClassFlagged
			marks := []byte{byte(m.Flags), byte(m.Bits)}
			if err := errors.Join(tx.PutRow(mailrow.BucketInbox, byAccount[:], marks), tx.PutRow(mailrow.BucketInboxOf, byMailbox[:], marks)); err != nil {
				return err
			}
		}
		return errors.Join(tx.Bucket(mailrow.BucketInbox).SetSequence(0), engine.Bolt(tx).DeleteBucket([]byte(bucketMeta)))
	})
	if err := s.Check(); err == nil {
		t.Error("the check finds nothing wrong with entries without the class")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openDir(t, dir, Options{})
	defer s.Close()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	_ = s.View(func(tx *Tx) error {
		var uids []uint32
		for at := range tx.Inbox(InboxQuery{Account: 1, Flagged: new(true)}) {
			uids = append(uids, at.UID)
		}
		if !slices.Equal(uids, []uint32{6, 4, 2}) {
			t.Errorf("flagged are %v", uids)
		}
		return nil
	})
}

// A store may have more mailboxes than one transaction may note for the index.
func TestResetTextNotesAllMailboxesByPages(t *testing.T) {
	oneAtATime(t)
	const mailboxes = 1600
	s := openTest(t, Options{noSync: true, MaxWrites: mailboxes - 50})
	ref := appendTest(t, s, "x")
	for from := uint32(1); from <= mailboxes; from += 100 {
		for m := range uint32(100) {
			addMailbox(t, s, from+m)
		}
		update(t, s, func(tx *Tx) error {
			for m := range uint32(100) {
				if err := tx.AddMessage(&Message{Mailbox: from + m, Account: 1, Folder: InboxID, Blob: ref, Received: second(1)}, &Meta{}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := s.ResetText(); err != nil {
		t.Fatal(err)
	}
	allAwait := func(when string) {
		t.Helper()
		err := s.View(func(tx *Tx) error {
			todo := tx.Bucket(mailrow.BucketTextTodo)
			if n := todo.Stats().KeyN; n != mailboxes || todo.Sequence() != 0 {
				t.Errorf("%s %d of %d mailboxes are to be indexed, sequence %d", when, n, mailboxes, todo.Sequence())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	allAwait("after a reset")
	update(t, s, func(tx *Tx) error { // as a process leaves it that ended after the first page
		if err := tx.EmptyBucket(mailrow.BucketTextTodo); err != nil {
			return err
		}
		if _, err := mailindex.MarkAllUnindexed(&tx.Tx, nil, 500); err != nil {
			return err
		}
		return tx.Bucket(mailrow.BucketTextTodo).SetSequence(textindex.ResettingSequence)
	})
	if err := s.TidyText(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	allAwait("after a reset that was cut short")
}
