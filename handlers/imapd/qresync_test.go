package imapd

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/servicetest"
)

// A cachedMessage is a message in the cache of a client.
type cachedMessage struct {
	flags  string
	modSeq uint64
}

// A cache is the state of a folder that a client keeps between its connections.
type cache struct {
	validity uint32
	modSeq   uint64 // up to which it knows all
	messages map[uint32]cachedMessage
	seqs     []uint32 // of the open connection: the UID of each number, 0 if it is not known yet
}

var (
	fetchUID    = regexp.MustCompile(`UID (\d+)`)
	fetchFlags  = regexp.MustCompile(`FLAGS \(([^)]*)\)`)
	fetchModSeq = regexp.MustCompile(`MODSEQ \((\d+)\)`)
	fetchSeq    = regexp.MustCompile(`^\* (\d+) FETCH `)
	highest     = regexp.MustCompile(`\[HIGHESTMODSEQ (\d+)\]`)
	validityIs  = regexp.MustCompile(`\[UIDVALIDITY (\d+)\]`)
	vanished    = regexp.MustCompile(`^\* VANISHED (\(EARLIER\) )?(\S+)$`)
)

func numberIn(pattern *regexp.Regexp, line string) (n uint64, ok bool) {
	m := pattern.FindStringSubmatch(line)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	return n, err == nil
}

// read applies the answer of one command, once it is whole. learns says that it lists every message
// that the cache may lack.
func (c *cache) read(t *testing.T, lines []string, learns bool) {
	t.Helper()
	fetched, told := c.modSeq, uint64(0)
	for _, l := range lines {
		if n, ok := numberIn(highest, l); ok {
			told = n
		}
		var n int
		if m := vanished.FindStringSubmatch(l); m != nil {
			c.vanish(t, l, m[2], m[1] != "")
		} else if scan(l, "* %d EXISTS", &n) {
			if n < len(c.seqs) {
				t.Fatalf("%s, but there were %d", l, len(c.seqs))
			}
			c.seqs = append(c.seqs, make([]uint32, n-len(c.seqs))...)
		} else if strings.HasSuffix(l, " EXPUNGE") {
			t.Fatalf("%s after ENABLE QRESYNC", l)
		} else if seq, ok := numberIn(fetchSeq, l); ok {
			uid, hasUID := numberIn(fetchUID, l)
			modSeq, hasModSeq := numberIn(fetchModSeq, l)
			if !hasUID || !hasModSeq || seq < 1 || int(seq) > len(c.seqs) || c.seqs[seq-1] != 0 && c.seqs[seq-1] != uint32(uid) {
				t.Fatalf("%s, of %v", l, c.seqs)
			}
			c.seqs[seq-1] = uint32(uid)
			fetched = max(fetched, modSeq)
			now, known := c.messages[uint32(uid)]
			if !known && !learns {
				continue
			}
			if flags := fetchFlags.FindStringSubmatch(l); flags != nil {
				now.flags = flags[1]
			}
			now.modSeq = modSeq
			c.messages[uint32(uid)] = now
		}
	}
	c.modSeq = fetched
	if told > 0 {
		c.modSeq = told
	}
}

// vanish forgets the UIDs of a VANISHED answer, which moves numbers unless it is of earlier.
func (c *cache) vanish(t *testing.T, line, set string, earlier bool) {
	t.Helper()
	for _, r := range rangesOf(t, set) {
		for uid := r.First; uid <= r.Last; uid++ {
			delete(c.messages, uid)
			if earlier {
				if slices.Contains(c.seqs, uid) {
					t.Fatalf("%s, but the client has %d now", line, uid)
				}
				continue
			}
			i := slices.Index(c.seqs, uid)
			if i < 0 {
				i = c.unknown(uid)
			}
			if i < 0 {
				t.Fatalf("%s, but the client has %v", line, c.seqs)
			}
			c.seqs = slices.Delete(c.seqs, i, i+1)
		}
	}
}

// unknown returns the index of a message whose UID the client does not know and that could be uid:
// it is between messages with a lower and a higher UID. It returns -1 if there is none.
func (c *cache) unknown(uid uint32) int {
	at := -1
	for i, one := range c.seqs {
		switch {
		case one > uid:
			return at
		case one > 0:
			at = -1
		case at < 0:
			at = i
		}
	}
	return at
}

// param is the QRESYNC parameter of SELECT in one of its forms.
func (c *cache) param(rnd *rand.Rand) string {
	uids := slices.Sorted(maps.Keys(c.messages))
	out := fmt.Sprintf("QRESYNC (%d %d", c.validity, c.modSeq)
	form := rnd.IntN(3)
	if form > 0 && len(uids) > 0 {
		out += " " + uidSet(uids).String()
	}
	if form > 1 && len(uids) > 0 {
		var seqs, some []uint32
		for i := rnd.IntN(4); i < len(uids); i += 1 + rnd.IntN(1+len(uids)/4) {
			seqs, some = append(seqs, uint32(i+1)), append(some, uids[i])
		}
		if len(seqs) > 0 {
			out += fmt.Sprintf(" (%s %s)", seqSet(seqs), uidSet(some))
		}
	}
	return out + ")"
}

// TestResyncAgainstModel has three connections change folders as they like, while a fourth client
// comes and goes. Whenever it has come back, and whenever it has had a look, what it keeps is what
// is stored: UIDs, flags and mod-sequences. The server is restarted now and then, and keeps so few
// UIDs of removed messages that it often cannot tell which they are. make soak-qresync is the full
// size.
func TestResyncAgainstModel(t *testing.T) {
	steps := 1500
	if testing.Short() {
		steps = 200
	}
	if n, err := strconv.Atoi(os.Getenv("MAILSTEAD_STEPS")); err == nil {
		steps = n
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("MAILSTEAD_SEED"), "7162"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d", seed)
	r := &resyncRun{T: t, rnd: rand.New(rand.NewPCG(seed, 1)), caches: map[string]*cache{}}
	box, restart := servicetest.NewRestarting(t, 6, nil)
	box.Domain(t, box.Owner.AccountID, "example.test", "manual", "complete")
	r.h = &host{Sandbox: box}
	start := func() {
		r.h.server = New(box.Service)
		r.h.server.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
		r.h.addr, r.h.stop = r.h.run(t, false)
		r.workers = nil
		for i := range 3 {
			w := &worker{talker: r.h.login(t)}
			w.conn.SetDeadline(time.Now().Add(10 * time.Minute))
			if i > 0 {
				w.ok("ENABLE QRESYNC")
			}
			w.folder = []string{"INBOX", "INBOX", "Archive"}[i]
			w.ok("SELECT %s", w.folder)
			r.workers = append(r.workers, w)
		}
	}
	r.h.user = r.h.mailbox(t, "ann")
	start()
	r.workers[0].ok("CREATE Work")
	for n := range steps {
		r.step = n
		switch k := r.rnd.IntN(40); {
		case k < 36:
			r.work()
		case k == 36 && r.rnd.IntN(3) == 0:
			for _, w := range r.workers {
				w.conn.Close()
			}
			if err := r.h.stop(); err != nil {
				t.Fatal(err)
			}
			restart()
			start()
			r.restarts++
		default:
			r.comeBack([]string{"INBOX", "INBOX", "Archive", "Work"}[r.rnd.IntN(4)])
		}
	}
	t.Logf("%d restarts, %d returns, of these %d below the floor, %d to another UIDVALIDITY", r.restarts, r.exact+r.below+r.others, r.below, r.others)
	if steps >= 1500 && (r.restarts == 0 || r.exact < 50 || r.below < 20 || r.others == 0) {
		t.Error("the run was too short to show anything")
	}
}

type resyncRun struct {
	*testing.T
	h       *host
	rnd     *rand.Rand
	workers []*worker
	caches  map[string]*cache
	step    int
	open    string // what the fourth client has open

	restarts, exact, below, others int
}

// A worker is a connection that changes things.
type worker struct {
	*talker
	folder string
}

// work has one of the connections do something.
func (r *resyncRun) work() {
	r.Helper()
	w := r.workers[r.rnd.IntN(len(r.workers))]
	folder := []string{"INBOX", "Archive", "Work"}[r.rnd.IntN(3)]
	one := 1 + r.rnd.IntN(12)
	set := fmt.Sprintf("%d:%d", one, one+r.rnd.IntN(4))
	switch r.rnd.IntN(14) {
	case 0, 1, 2:
		for range 1 + r.rnd.IntN(4) {
			r.h.put(r, folder, letter("x"), inbox.Flags(r.rnd.IntN(16)))
		}
	case 3, 4:
		w.ok(`STORE %s +FLAGS (\Deleted)`, set)
	case 5:
		w.ok(`STORE %s FLAGS (%s)`, set, []string{`\Seen`, `\Flagged Work`, `$Later`, ``}[r.rnd.IntN(4)])
	case 6:
		w.ok(`UID STORE 1:* +FLAGS.SILENT (\Answered)`)
	case 7, 8:
		w.ok("EXPUNGE")
	case 9:
		w.ok("COPY %s %s", set, folder)
	case 10:
		w.ok("MOVE %s %s", set, folder)
	case 11:
		w.ok("NOOP")
	case 12:
		w.folder = []string{"INBOX", "Archive"}[r.rnd.IntN(2)]
		if r.rnd.IntN(2) == 0 {
			w.ok("CLOSE")
		}
		w.ok("SELECT %s", w.folder)
	case 13:
		if r.open != "Work" && r.rnd.IntN(4) == 0 { // a connection that has it open would end
			w.ok("DELETE Work")
			w.ok("CREATE Work")
		}
	}
}

// comeBack has the fourth client connect, bring its cache up to date, and stay for a while.
func (r *resyncRun) comeBack(folder string) {
	r.Helper()
	c := r.caches[folder]
	if c == nil {
		c = &cache{messages: map[uint32]cachedMessage{}}
		r.caches[folder] = c
	}
	r.open = folder
	defer func() { r.open = "" }()
	t := r.h.login(r)
	defer t.conn.Close()
	t.ok("ENABLE QRESYNC")
	if r.rnd.IntN(3) == 0 { // from another folder
		t.ok("SELECT Archive")
	}
	f, err := r.h.Inbox.SelectFolder(context.Background(), r.h.user, folder)
	if err != nil {
		r.Fatal(err)
	}
	_, known, err := r.h.Inbox.Expunged(context.Background(), r.h.user, f.Folder.ID, c.modSeq)
	switch {
	case err != nil:
		r.Fatal(err)
	case c.validity != f.Folder.UIDValidity:
		r.others++
	case known:
		r.exact++
	default:
		r.below++
	}
	c.seqs = nil
	var lines []string
	byFetch := c.validity == 0 || r.rnd.IntN(4) == 0
	if byFetch {
		lines = t.ok("SELECT %s", folder)
	} else {
		lines = t.ok("SELECT %s (%s)", folder, c.param(r.rnd))
	}
	since := c.modSeq
	validity, _ := numberIn(validityIs, strings.Join(lines, "\n"))
	if uint32(validity) != c.validity {
		if strings.Contains(strings.Join(lines, "\n"), "VANISHED") {
			r.Fatalf("another UIDVALIDITY, and yet %q", lines)
		}
		c.validity, c.messages, byFetch = uint32(validity), map[uint32]cachedMessage{}, false
	}
	c.read(r.T, lines, false)
	if highest := c.modSeq; byFetch {
		c.read(r.T, t.ok("UID FETCH 1:* (FLAGS) (CHANGEDSINCE %d VANISHED)", since), false)
		c.modSeq = max(c.modSeq, highest)
	}
	r.lookForNew(t, c)
	r.compare(folder, c)
	for range r.rnd.IntN(6) {
		for range r.rnd.IntN(4) {
			r.work()
		}
		one := 1 + r.rnd.IntN(12)
		switch r.rnd.IntN(9) {
		case 0, 1:
			c.read(r.T, t.ok("NOOP"), false)
		case 2:
			c.read(r.T, t.ok("FETCH 1:* (FLAGS MODSEQ)"), false)
			if r.rnd.IntN(2) == 0 {
				return // while an expunge may not have been reported yet
			}
		case 3:
			c.read(r.T, t.ok(`STORE %d +FLAGS (\Flagged)`, one), false)
			if r.rnd.IntN(2) == 0 {
				return
			}
		case 4:
			c.read(r.T, t.ok(`UID STORE 1:* +FLAGS (\Deleted)`), false)
			c.read(r.T, r.whole(t, "EXPUNGE"), false)
		case 5:
			c.read(r.T, r.whole(t, "MOVE %d Archive", one), false)
		case 6:
			r.lookForNew(t, c)
		case 7:
			r.idle(t, c)
		case 8:
			if r.rnd.IntN(3) > 0 {
				continue
			}
			c.read(r.T, t.ok("NOOP"), false)
			c.read(r.T, t.ok(`STORE %d +FLAGS (\Deleted)`, one), false)
			lines := r.whole(t, "CLOSE")
			c.read(r.T, lines, false)
			for uid, m := range c.messages { // those that it has marked are gone, and it knows
				if strings.Contains(m.flags, `\Deleted`) {
					delete(c.messages, uid)
				}
			}
			return
		}
	}
}

// whole is ok with the tagged line.
func (r *resyncRun) whole(t *talker, format string, args ...any) []string {
	r.Helper()
	lines := t.do(format, args...)
	if !strings.HasPrefix(lines[len(lines)-1], "OK") {
		r.Fatalf("%s: %q", format, lines)
	}
	return lines
}

// idle has others work while the client idles.
func (r *resyncRun) idle(t *talker, c *cache) {
	r.Helper()
	t.send("i IDLE\r\n")
	t.line()
	r.work()
	r.work()
	t.send("DONE\r\n")
	c.read(r.T, t.until("i"), false)
}

// lookForNew reads the messages that the client does not know.
func (r *resyncRun) lookForNew(t *talker, c *cache) {
	r.Helper()
	newest := uint32(0)
	for uid := range c.messages {
		newest = max(newest, uid)
	}
	c.read(r.T, t.ok("UID FETCH %d:* (FLAGS MODSEQ)", newest+1), true)
}

// compare compares the cache of the client with the store.
func (r *resyncRun) compare(folder string, c *cache) {
	r.Helper()
	ctx := context.Background()
	f, err := r.h.Inbox.SelectFolder(ctx, r.h.user, folder)
	if err != nil {
		r.Fatal(err)
	}
	stored := map[uint32]cachedMessage{}
	for uids := f.UIDs; len(uids) > 0; {
		rows, rest, err := r.h.Inbox.MessageRows(ctx, r.h.user, f.Folder.ID, uids, inbox.RowQuery{})
		if err != nil {
			r.Fatal(err)
		}
		for _, row := range rows {
			var flags []string
			for _, f := range flagsOf(&row) {
				flags = append(flags, string(f))
			}
			stored[row.UID] = cachedMessage{strings.Join(flags, " "), row.ModSeq}
		}
		uids = rest
	}
	if !maps.Equal(stored, c.messages) {
		r.Fatalf("step %d: of %s the client keeps\n%v, stored is\n%v", r.step, folder, c.messages, stored)
	}
}

// TestViewMatching compares what matching finds with a search through all pairs.
func TestViewMatching(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	found := 0
	for range 20_000 {
		var v view
		for uid := uint32(1); len(v) < rnd.IntN(12); uid += 1 + rnd.Uint32N(3) {
			v = append(v, uid)
		}
		var seqs, uids []uint32
		for seq, uid := uint32(1), uint32(1); seq < 15; seq, uid = seq+1, uid+1+rnd.Uint32N(3) {
			if rnd.IntN(3) > 0 {
				seqs, uids = append(seqs, seq), append(uids, uid)
			}
		}
		want := uint32(0)
		for i, seq := range seqs {
			if int(seq) <= len(v) && v[seq-1] == uids[i] {
				want = uids[i]
			}
		}
		ranges := func(list []uint32) uidRanges {
			if len(list) == 0 {
				return nil
			}
			return rangesOf(t, seqSet(list).String())
		}
		if got := v.unchangedUpTo(ranges(seqs), ranges(uids)); got != want {
			t.Fatalf("%v with %v as %v: %d, want %d", v, seqs, uids, got, want)
		}
		if want > 0 {
			found++
		}
	}
	if found < 1000 {
		t.Errorf("only %d had a match", found)
	}
}

func rangesOf(t *testing.T, set string) uidRanges {
	t.Helper()
	p := parse(t, "a x "+set)
	p.Space()
	list := parseRanges(p)
	if err := p.End(); err != nil {
		t.Fatalf("%q: %v", set, err)
	}
	return list
}

// TestVanishedInPieces: a set of thousands of UIDs comes in several answers, each of bounded
// length, whether the messages leave now or have left.
func TestVanishedInPieces(t *testing.T) {
	h := serve(t, nil)
	for range 40 {
		h.put(t, "INBOX", letter("x"), 0)
	}
	c := h.login(t)
	c.ok("ENABLE QRESYNC")
	lines := c.ok("SELECT INBOX")
	validity, _ := numberIn(validityIs, strings.Join(lines, "\n"))
	for range 7 {
		c.ok("COPY 1:* INBOX")
	}
	modSeq := modSeqOf(t, c.ok("STATUS INBOX (HIGHESTMODSEQ)"))
	var odd []uint32
	for uid := uint32(1); uid < 40<<7; uid += 2 {
		odd = append(odd, uid)
	}
	c.ok(`UID STORE %s +FLAGS.SILENT (\Deleted)`, uidSet(odd))
	for what, lines := range map[string][]string{
		"EXPUNGE": c.ok("EXPUNGE"), "SELECT": c.ok("SELECT INBOX (QRESYNC (%d %d))", validity, modSeq), "unknown": c.ok("SELECT INBOX (QRESYNC (%d %d))", validity, 1<<40),
	} {
		var got []uint32
		pieces := 0
		for _, l := range lines {
			m := vanished.FindStringSubmatch(l)
			if m == nil {
				continue
			}
			pieces++
			if len(l) > maxVanishedBytes+50 || (m[1] == "") != (what == "EXPUNGE") {
				t.Errorf("%s: %.60s… of %d bytes", what, l, len(l))
			}
			for _, r := range rangesOf(t, m[2]) {
				for uid := r.First; uid <= r.Last; uid++ {
					got = append(got, uid)
				}
			}
		}
		if pieces < 2 || !slices.Equal(got, odd) {
			t.Errorf("%s: %d UIDs in %d pieces, want %d", what, len(got), pieces, len(odd))
		}
	}
}

// TestQResyncIsOffered: after log-in, as CONDSTORE and ENABLE are (RFC 7162 section 3.2.2).
func TestQResyncIsOffered(t *testing.T) {
	h := serve(t, nil)
	c := dial(t, h.addr)
	if got := c.line() + " "; strings.Contains(got, " QRESYNC ") {
		t.Errorf("before log-in: %q", got)
	}
	c.ok("LOGIN %s %q", email, password)
	offered := strings.Fields(strings.Join(c.ok("CAPABILITY"), " "))
	for _, name := range []string{"QRESYNC", "CONDSTORE", "ENABLE"} {
		if !slices.Contains(offered, name) {
			t.Errorf("%s is not in %q", name, offered)
		}
	}
	c.has(c.ok("ENABLE QRESYNC CONDSTORE"), "* ENABLED QRESYNC CONDSTORE")
}
