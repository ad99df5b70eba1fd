package inbound_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/classify"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// A postbag makes mail in an invented language, so that the initial training set knows none of its
// words. All mail shares greetings and small words. Wanted mail has a few topics, one for each
// message; spam has another topic, and borrows words from all.
type postbag struct {
	r      *rand.Rand
	n      int
	common []string
	wanted [][]string
	spam   []string
}

func newPostbag(seed uint64) *postbag {
	p := &postbag{r: rand.New(rand.NewPCG(seed, 37))}
	p.common = p.words(80)
	for range 6 {
		p.wanted = append(p.wanted, p.words(60))
	}
	p.spam = p.words(90)
	return p
}

// words makes n words of three to five syllables.
func (p *postbag) words(n int) (out []string) {
	for range n {
		word := ""
		for range 3 + p.r.IntN(3) {
			word += string("bdfgklmnprstvz"[p.r.IntN(14)]) + string("aeiou"[p.r.IntN(5)])
		}
		out = append(out, word)
	}
	return out
}

func (p *postbag) some(from []string, n int) string {
	var out []string
	for range n {
		out = append(out, from[p.r.IntN(len(from))])
	}
	return strings.Join(out, " ")
}

// message makes a message for ann. Its envelope sender and its words differ each time.
func (p *postbag) message(spam bool) (from, text string) {
	p.n++
	topic := p.spam
	host := fmt.Sprintf("h%d.test", p.r.IntN(60))
	if !spam {
		topic = p.wanted[p.r.IntN(len(p.wanted))]
		host = fmt.Sprintf("friends%d.test", p.r.IntN(12))
	}
	body := p.some(p.common, 25) + ". " + p.some(topic, 18) + ". " + p.some(p.wanted[p.r.IntN(len(p.wanted))], 2)
	from = fmt.Sprintf("a%d@%s", p.r.IntN(3), host)
	return from, fmt.Sprintf("From: %s <%s>\r\nTo: ann@example.test\r\nSubject: %s\r\nMessage-ID: <%d@%s>\r\nDate: Mon, 2 Nov 2026 10:00:00 +0000\r\n\r\n%s, Ann!\r\n\r\n%s\r\n",
		p.some(p.common, 1), from, p.some(topic, 3), p.n, host, p.common[0], body)
}

// A person is ann, who has her own account.
type person struct {
	*testing.T
	i   *servicetest.Installation
	ann *store.Mailbox
	bag *postbag
}

func newPerson(t *testing.T, seed uint64) *person {
	i := servicetest.Install(t, core.Config{Sandbox: true, Settings: core.Settings{Spam: core.Spam{Classifier: true, JunkScore: 0.9}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	makeFolders(i, ann)
	i.Run()
	return &person{t, i, ann, newPostbag(seed)}
}

// get delivers a message, and returns its folder and UID.
func (p *person) get(spam bool) (folder string, uid uint32) {
	p.Helper()
	next := func() (uids map[string]uint32) {
		uids = map[string]uint32{}
		err := p.i.St.View(func(tx *store.Tx) error {
			for _, name := range []string{"INBOX", "Junk"} {
				f, err := tx.FolderByName(p.ann.Num, name)
				if err != nil {
					return err
				}
				uids[name] = f.UIDNext
			}
			return nil
		})
		if err != nil {
			p.Fatal(err)
		}
		return uids
	}
	before := next()
	from, text := p.bag.message(spam)
	if err := p.i.Receive(from, text, p.ann.Email); err != nil {
		p.Fatal(err)
	}
	for name, uid := range next() {
		if uid > before[name] {
			return name, before[name]
		}
	}
	p.Fatal("the message is nowhere")
	return "", 0
}

func (p *person) read(uid uint32) {
	p.Helper()
	yes := true
	out, err := p.i.Svc.Inbox.BulkMarkMessages(p.Context(), servicetest.Actor(p.i.Account), inbox.BulkMarkMessagesIn{
		Messages: []inbox.MessageRef{{Mailbox: p.ann.Email, UID: core.UIDText(uid)}}, MessageMarks: inbox.MessageMarks{IsRead: &yes},
	})
	if err != nil || out.Marked != 1 {
		p.Fatal(out, err)
	}
}

func (p *person) move(from string, uid uint32, to string) uint32 {
	p.Helper()
	out, err := p.i.Svc.Inbox.BulkMoveMessages(p.Context(), servicetest.Actor(p.i.Account), inbox.BulkMoveMessagesIn{
		Messages: []inbox.MessageRef{{Mailbox: p.ann.Email, UID: core.UIDText(uid), Folder: from}}, To: to,
	})
	if err != nil || out.Moved != 1 {
		p.Fatal(out, err)
	}
	var moved uint32
	if _, err := fmt.Sscan(out.Results[0].NewUID, &moved); err != nil {
		p.Fatal(err)
	}
	return moved
}

// TestHabitsOfPeople: whatever people do with wanted mail, the classifier then sends none of it to
// Junk, and where they show what they want, it finds their spam. The history is 60 messages of
// either kind; then 60 more of either are classified.
func TestHabitsOfPeople(t *testing.T) {
	archive := func(p *person, uid uint32) { p.read(uid); p.move("inbox", uid, "archive") }
	junk := func(p *person, uid uint32, _ int) { p.move("inbox", uid, "junk") }
	for _, tc := range []struct {
		name   string
		wanted func(p *person, uid uint32)
		spam   func(p *person, uid uint32, n int)
		found  int // minimum of 60 spam messages
	}{
		{"reads", func(p *person, uid uint32) { p.read(uid) }, junk, 50},
		{"archives at once", archive, junk, 50},
		{"leaves a third of the spam unread", func(p *person, uid uint32) { p.read(uid) }, func(p *person, uid uint32, n int) {
			if n%3 != 0 {
				junk(p, uid, n)
			}
		}, 50},
		{"archives, and leaves a third of the spam unread", archive, func(p *person, uid uint32, n int) {
			if n%3 != 0 {
				junk(p, uid, n)
			}
		}, 50},
		{"reads and deletes", func(p *person, uid uint32) { p.read(uid); p.move("inbox", uid, "trash") }, junk, 0},
		{"reads nothing", func(*person, uint32) {}, junk, 0},
		{"archives unread", func(p *person, uid uint32) { p.move("inbox", uid, "archive") }, junk, 0},
		{"deletes most of the spam", archive, func(p *person, uid uint32, n int) {
			taught(t, p.i) // otherwise what is read could be taken as an example before it is deleted
			p.read(uid)
			p.move("inbox", uid, map[bool]string{true: "junk", false: "trash"}[n%3 == 0])
		}, 30},
		{"moves one in five back from Junk", func(p *person, uid uint32) {
			if p.read(uid); uid%5 == 0 {
				p.move("junk", p.move("inbox", uid, "junk"), "inbox")
			}
		}, junk, 50},
		{"has moved but three spams", archive, func(p *person, uid uint32, n int) {
			if n < 3 {
				junk(p, uid, n)
			}
		}, 0},
		{"keeps two messages that were read", func(p *person, uid uint32) {
			if uid < 5 {
				p.read(uid)
			} else {
				p.move("inbox", uid, "trash")
			}
		}, junk, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPerson(t, 11)
			for n := range 60 {
				if in, uid := p.get(false); in == "INBOX" {
					tc.wanted(p, uid)
				}
				if in, uid := p.get(true); in == "INBOX" {
					tc.spam(p, uid, n)
				}
			}
			spam, ham, examples, _ := taught(t, p.i, p.ann)
			hidden, found := 0, 0
			for range 60 {
				if in, _ := p.get(false); in == "Junk" {
					hidden++
				}
				if in, _ := p.get(true); in == "Junk" {
					found++
				}
			}
			t.Logf("learned %d spam, %d wanted and %d examples; hides %d of 60 wanted, finds %d of 60 spam", spam, ham, examples, hidden, found)
			if hidden > 0 {
				t.Errorf("hides %d of 60 wanted messages", hidden)
			}
			if found < tc.found {
				t.Errorf("finds %d of 60 spam", found)
			}
		})
	}
}

// TestFewLessonsHideNothing: while an account has shown only a few wanted messages, and many spam
// messages, the classifier sends no wanted mail to Junk. What the few do not have is mostly chance.
func TestFewLessonsHideNothing(t *testing.T) {
	for wanted := 3; wanted <= 7; wanted++ {
		for seed := range uint64(12) {
			bag, model := newPostbag(seed), classify.NewModel()
			read := func(spam bool) *classify.Reading {
				_, text := bag.message(spam)
				r := strings.NewReader(text)
				root, err := msg.Scan(r)
				if err != nil {
					t.Fatal(err)
				}
				reading, err := classify.Read(r, root, classify.Evidence{})
				if err != nil {
					t.Fatal(err)
				}
				return reading
			}
			for range 51 {
				model.Train(read(true).Tokens(), true, false, 1)
			}
			for range wanted {
				model.Train(read(false).Tokens(), false, false, 1)
			}
			for range 60 {
				if v := read(false).Score(model); v.Score >= 0.9 {
					t.Errorf("after %d wanted messages, seed %d: a wanted message has the score %v", wanted, seed, v.Score)
				}
			}
		}
	}
}

// stored adds messages to ann's mailbox as if they had arrived, each in a folder, at a time.
func (p *person) stored(count int, one func(n int) (text string, m store.Message, meta store.Meta)) {
	p.Helper()
	for from := 0; from < count; from += 100 {
		var messages []store.Message
		var metas []store.Meta
		for n := from; n < min(count, from+100); n++ {
			text, m, meta := one(n)
			root, err := msg.Scan(strings.NewReader(text))
			if err != nil {
				p.Fatal(err)
			}
			meta.Structure = root.AppendBinary(nil)
			spool := p.i.Spool(text)
			m.Blob, err = p.i.St.Append(nil, spool)
			spool.Close()
			if err != nil {
				p.Fatal(err)
			}
			m.Account, m.Mailbox = p.ann.AccountNum, p.ann.Num
			messages, metas = append(messages, m), append(metas, meta)
		}
		p.i.Update(func(tx *store.Tx) error {
			for n := range messages {
				if err := tx.AddMessage(&messages[n], &metas[n]); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// examples returns the messages that the classifier has chosen as examples.
func (p *person) examples() (out []store.Message) {
	p.Helper()
	taught(p.T, p.i, p.ann)
	_ = p.i.St.View(func(tx *store.Tx) error {
		out = nil
		folders, err := tx.Folders(p.ann.Num)
		for _, f := range folders {
			for m := range tx.Messages(p.ann.Num, f.ID, 1, 1<<31) {
				if m.Bits&store.BitTaughtSpam != 0 && m.Bits&store.BitTaughtHam != 0 {
					out = append(out, m)
				}
			}
		}
		return err
	})
	return out
}

func (p *person) folder(name string) (f *store.Folder) {
	p.Helper()
	if err := p.i.St.View(func(tx *store.Tx) (err error) { f, err = tx.FolderByName(p.ann.Num, name); return err }); err != nil {
		p.Fatal(err)
	}
	return f
}

// TestExamplesAreSpread: from a year's mail, nine tenths of it by one program, the examples are
// from nearly as many days as there are examples, and have all authors; whether they are chosen at
// once or one at a time. They include no message in Junk, Trash, Drafts or Sent, and none that is
// unread, did not arrive, was moved by a rule, or was classified as spam.
func TestExamplesAreSpread(t *testing.T) {
	for _, atOnce := range []bool{true, false} {
		p := newPerson(t, 5)
		trash, junk, archive := p.folder("Trash").ID, p.folder("Junk").ID, p.folder("Archive").ID
		const arrived = "0.2 ham"
		author := map[uint32]int{}
		p.stored(2000, func(n int) (string, store.Message, store.Meta) {
			from := 0
			if n%10 == 0 {
				from = 1 + n/10%12
			}
			m := store.Message{
				Folder: store.InboxID, Received: p.i.Svc.Core.Now().Add(-time.Duration(2000-n) * 4 * time.Hour), Flags: store.FlagSeen, Bits: store.BitMoved,
			}
			meta := store.Meta{Spam: arrived}
			switch n % 7 { // 2, 5 and 6 are good
			case 0:
				m.Flags = 0
			case 1:
				m.Folder = []uint32{trash, junk}[n%2]
			case 2:
				m.Folder = archive
			case 3:
				m.Folder, m.Bits = archive, 0
			case 4:
				meta.Spam = []string{"", "0.95 spam"}[n%2]
			case 5:
				m.Bits = 0
			}
			author[uint32(n)+1000] = from
			return fmt.Sprintf("From: <a%d@x%d.test>\r\nSubject: %d\r\n\r\n%s\r\n", from, from, n+1000, p.bag.some(p.bag.common, 3)), m, meta
		})
		good := func(m store.Message) int { return int(2000 - p.i.Svc.Core.Now().Sub(m.Received)/(4*time.Hour)) }
		const spam = 36
		for range spam {
			from, text := p.bag.message(true)
			if err := p.i.Receive(from, text, p.ann.Email); err != nil {
				t.Fatal(err)
			}
		}
		end := p.folder("INBOX").UIDNext
		if atOnce {
			var refs []inbox.MessageRef
			for uid := end - spam; uid < end; uid++ {
				refs = append(refs, inbox.MessageRef{Mailbox: p.ann.Email, UID: core.UIDText(uid)})
			}
			if out, err := p.i.Svc.Inbox.BulkMoveMessages(t.Context(), servicetest.Actor(p.i.Account), inbox.BulkMoveMessagesIn{Messages: refs, To: "junk"}); err != nil || out.Moved != spam {
				t.Fatal(out, err)
			}
		} else {
			for uid := end - spam; uid < end; uid++ {
				p.move("inbox", uid, "junk")
				taught(t, p.i, p.ann)
			}
		}
		days, authors := map[int]bool{}, map[int]int{}
		chosen := p.examples()
		for _, m := range chosen {
			n := good(m)
			if kind := n % 7; kind != 2 && kind != 5 && kind != 6 {
				t.Errorf("message %d is an example, which is one of those of kind %d", n, kind)
			}
			days[store.DayNumber(m.Received)] = true
			authors[author[uint32(n)+1000]]++
		}
		t.Logf("%d examples of %d days and authors %v", len(chosen), len(days), authors)
		if len(chosen) != spam || len(days) < spam*3/4 || len(authors) < 8 || authors[0] > spam/3 {
			t.Errorf("at once: %v: %d examples of %d days and authors %v", atOnce, len(chosen), len(days), authors)
		}
	}
}

// TestExamplesFollowTheMessages: a message counts once, wherever it is moved; an example that turns
// out to be spam is replaced by another; if none was found, a read message becomes one when it is
// archived.
func TestExamplesFollowTheMessages(t *testing.T) {
	p := newPerson(t, 6)
	counts := func(when string, spam, wanted, examples int) {
		t.Helper()
		servicetest.Eventually(t, when, func() bool {
			s, w, e, _ := taught(t, p.i, p.ann)
			return s == spam && w == wanted && e == examples
		})
	}
	_, first := p.get(true)
	p.move("inbox", first, "junk")
	counts("nothing was read", 1, 0, 0)
	_, wanted := p.get(false)
	unread := p.move("inbox", wanted, "archive")
	counts("what is archived unread", 1, 0, 0)
	_, wanted = p.get(false)
	p.read(wanted)
	kept := p.move("inbox", wanted, "archive")
	counts("what is archived after it was read", 1, 0, 1)
	kept = p.move("archive", kept, "inbox")
	_, another := p.get(false)
	p.read(another)
	p.move("inbox", another, "archive")
	counts("one spam, one example", 1, 0, 1)

	// The example turns out to be spam.
	p.move("inbox", kept, "junk")
	counts("another is taken for it", 2, 0, 1)
	third := p.move("archive", unread, "inbox")
	p.read(third)
	p.move("inbox", third, "archive")
	counts("and one for the second spam", 2, 0, 2)
}

// TestLearningInALargeMailbox: with 12 000 messages in 60 folders, training finds its examples, and
// no transaction exceeds its bounds, which the store enforces here.
func TestLearningInALargeMailbox(t *testing.T) {
	p := newPerson(t, 7)
	var folders []uint32
	p.i.Update(func(tx *store.Tx) error {
		for n := range 60 {
			f := &store.Folder{Mailbox: p.ann.Num, Name: fmt.Sprint("F", n)}
			if err := tx.CreateFolder(f); err != nil {
				return err
			}
			folders = append(folders, f.ID)
		}
		return nil
	})
	p.stored(12_000, func(n int) (string, store.Message, store.Meta) {
		folder := uint32(store.InboxID)
		if n%2 == 0 {
			folder = folders[n/2%len(folders)]
		}
		return fmt.Sprintf("From: <a%d@x.test>\r\n\r\n%s %d\r\n", n%500, p.bag.some(p.bag.words(40), 200), n),
			store.Message{Folder: folder, Received: p.i.Svc.Core.Now().Add(-time.Duration(n) * time.Hour), Flags: store.FlagSeen, Bits: store.BitMoved}, store.Meta{Spam: "0.2 ham"}
	})
	began := time.Now()
	for range 60 {
		if in, uid := p.get(true); in == "INBOX" {
			p.move("inbox", uid, "junk")
		}
	}
	spam, _, examples, _ := taught(t, p.i, p.ann)
	if spam == 0 || spam != examples {
		t.Errorf("learned %d spam and %d examples", spam, examples)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("60 messages took %s", took)
	}
}
