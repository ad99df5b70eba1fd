package scale

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/mail/tokenize"
	"github.com/mailstead/mailstead/store"
)

// scaleSpan is how far back the mail and the logs of a large store go. Logs are kept for 30 days.
const scaleSpan = 25 * 24 * time.Hour

// scaleUse is how long after it was made a large store may be used: then the server begins to
// delete its logs.
const scaleUse = 4 * 24 * time.Hour

const (
	scalePassword = "correct horse"
	scaleSender   = "b0@scale.test" // whose mailbox the program made, with the messages that others are copied from
	scaleBoxes    = 20_000          // at five million messages
	scaleDomains  = 1_000
	scaleFull     = 5_000_000
	firstCopy     = 1000 // the letters have marks of numbers below
)

// A scale is a large store of one account, and a second account with a few messages.
type scale struct {
	Messages, Mailboxes, Domains    int
	Events, Outgoings, Deliveries   int
	Token, Second, Webhook, Account string
	Heaviest, Light                 string // ids of mailboxes: number 0, and one with few messages
	FilledAt                        time.Time

	dir  string
	data string // the server's data directory
}

// address is that of a mailbox by its number, from 0. The first have the most messages.
func (s *scale) address(box int) string {
	return fmt.Sprintf("m%05d@%s", box, scaleDomain(box%s.Domains))
}

func scaleDomain(n int) string { return fmt.Sprintf("d%04d.scale.test", n) }

// besideOthers has a test run beside others where the store is small. A large one, which tests may
// share, has the machine alone.
func besideOthers(t *testing.T) {
	if os.Getenv("MAILSTEAD_SCALE")+os.Getenv("MAILSTEAD_SCALE_DIR")+os.Getenv("MAILSTEAD_MINUTES") == "" {
		t.Parallel()
	}
}

// largeStore gives a store of about so many messages, with as many domains, mailboxes and rows of
// logs as go with them. The real program makes one domain, one mailbox and some messages; those are
// copied by package store. What is sealed under an id, DKIM and DNSSEC keys and passwords for
// exports, copies cannot use. MAILSTEAD_SCALE_DIR keeps it for other tests, which use it one after
// the other.
func largeStore(t *testing.T, messages int) *scale {
	t.Helper()
	dir := os.Getenv("MAILSTEAD_SCALE_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	s := &scale{dir: dir, data: filepath.Join(dir, "data")}
	text, err := os.ReadFile(filepath.Join(dir, "scale.json"))
	switch {
	case err == nil:
		if err := json.Unmarshal(text, s); err != nil {
			t.Fatal(err)
		}
		if time.Since(s.FilledAt) > scaleUse || s.Messages != messages {
			t.Fatalf("%s has %d messages from %s: delete it, and it is filled again", dir, s.Messages, s.FilledAt)
		}
		return s
	case !errors.Is(err, fs.ErrNotExist):
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(s.data, 0o700); err != nil {
		t.Fatalf("%v: it was not filled to its end; delete it", err)
	}
	s.Messages, s.FilledAt = messages, time.Now().UTC()
	s.Domains = max(3, messages*scaleDomains/scaleFull)
	s.Mailboxes = max(12, messages*scaleBoxes/scaleFull)
	f := &filling{t: t, scale: s, random: rand.New(rand.NewPCG(2026, 11)), began: time.Now()}
	f.prepare()
	f.fill()
	text, err = json.Marshal(s)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "scale.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A filling makes a large store.
type filling struct {
	*scale
	t        *testing.T
	random   *rand.Rand
	began    time.Time
	st       *store.Store
	splitter tokenize.Splitter
	letters  []*scaleLetter // by number
	number   int            // of the newest message

	// Records that the program made.
	account  *store.Account
	domain   *store.Domain
	mailbox  *store.Mailbox
	folders  []*store.Folder
	job      *store.Job
	outgoing *store.Outgoing
	delivery *store.Delivery

	domains []*store.Domain
	boxes   []*filledBox
}

// A filledBox is a mailbox and how many messages it is to have.
type filledBox struct {
	id, email string
	num       uint32
	messages  int
}

// A scaleLetter is a message that others are copied from. They differ in its mark, which is in its
// subject, its Message-ID and its text.
type scaleLetter struct {
	mark      string
	body      []byte
	meta      store.Meta
	bits      store.Bits
	words     [][]byte // without the mark
	texts     []string // that it is found by, as the sender knows them
	event     []byte   // the data of email.received
	eventUID  string   // as its data have it
	eventTime string
}

// A filedCopy is a copy of a letter in a mailbox.
type filedCopy struct {
	at     time.Time
	number int
	uid    uint32
	box    int
	letter int
	thread [sha256.Size]byte
	bits   store.Bits
	size   uint32
}

func scaleMark(number int) string { return fmt.Sprintf("n%010d", number) }

// prepare has the program make what is copied, and the second account.
func (f *filling) prepare() {
	t := f.t
	endpoint, ca := rig.ServeHTTPS(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	i := rig.StartIn(t, f.data, rig.GenerousLimits, "--ca-file", ca, "--allow-private-destinations")
	f.Token = i.Token
	i.AddDomain("scale.test")
	box := i.AddMailbox(scaleSender, scalePassword)
	var hook struct{ ID string }
	i.Want(201, "POST", "/v1/webhooks", map[string]any{"url": endpoint, "events": []string{"email.complained"}}, &hook)
	i.Want(200, "POST", "/v1/webhooks/"+hook.ID+"/test", nil, nil)
	f.Webhook = hook.ID
	c := &courier{addr: i.Ready.SMTP, longest: 100}
	for n := range min(400, max(40, f.Messages/1000)) {
		l, from, text := f.write(n)
		f.letters = append(f.letters, l)
		if err := c.send(from, []string{scaleSender}, text); err != nil {
			t.Fatal(err)
		}
	}
	c.leave()
	i.Until("all are filed", func() bool { return len(i.Inbox(box)) == len(f.letters) })
	i.Want(200, "POST", "/v1/email-users/"+box+"/inbox/send", map[string]any{"to": []string{"x@far.test"}, "subject": "report for the meeting", "text": "hello"}, nil)
	i.Until("the message is sent", func() bool {
		var page struct{ Data []struct{ Status string } }
		i.Want(200, "GET", "/v1/messages", nil, &page)
		return len(page.Data) == 1 && page.Data[0].Status != store.OutgoingQueued
	})

	out, code := rig.Run(t, "account", "create", "--data", i.Dir, "--owner-email", "second@example.org", "--json")
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 {
		t.Fatalf("account create: %d %s", code, out)
	}
	first := i.Token
	i.Token, f.Second = made.Token, made.Token
	i.AddDomain("small.test")
	i.AddMailbox("s0@small.test", scalePassword)
	for n := range 20 {
		_, from, text := f.write(n)
		if err := c.send(from, []string{"s0@small.test"}, text); err != nil {
			t.Fatal(err)
		}
	}
	c.leave()
	i.Token = first
	i.Stop()
}

const scaleWords = `account again agenda amount answer approve archive attach balance before board branch bridge budget build bundle calendar
	cancel capital carbon careful change charge claim client close coffee column common compare confirm contract copper credit current
	customer date deadline debit decide deliver design detail discount document draft early edit effort engine enough estimate event
	example expense export factor family figure final finance follow forecast forward freight garden general guide half harbor header
	holiday hotel import improve include index inform invoice island item January journal journey kitchen label large launch lawyer
	layer leader ledger letter level library limit local machine manager margin market material matter measure meeting member memory
	message method minute mobile model money monthly morning network notice number object office online order owner packet panel paper
	parcel partner payment pending people period phone picture place planning plastic please policy portal position postal price
	print private process product profile project promise proposal public quality quarter question quick quote railway random rate
	reason receipt record reduce refund region release remind rental repair reply report request reserve result return review
	river route sample saving schedule school season second section secure select seller senior service session settle share sheet
	shipment signal silver simple single small source special spring standard station status stock store street student submit summer
	supply survey switch system table target team tender ticket timber topic total tower track trade train transfer travel treat
	trial update urgent value vendor version village visit volume wait warehouse water weather website weekly window winter wire work`

// write makes a letter and its text for SMTP.
func (f *filling) write(n int) (l *scaleLetter, from, text string) {
	all := strings.Fields(scaleWords)
	words := func(n int) string {
		var b strings.Builder
		for k := range n {
			if b.WriteString(all[f.random.IntN(len(all))]); k%11 == 10 {
				b.WriteString("\r\n")
			} else {
				b.WriteByte(' ')
			}
		}
		return b.String()
	}
	l = &scaleLetter{mark: scaleMark(n)}
	from = fmt.Sprintf("s%d@elsewhere.test", n%97)
	name := fmt.Sprintf("Sender Number%d", n%97)
	subject := strings.TrimSpace(words(3)) + " " + l.mark
	body := fmt.Sprintf("Reference %s\r\n%s\r\n", l.mark, words(60+f.random.IntN(100)))
	l.texts = []string{subject, name + " " + from, " " + scaleSender, body}
	header := fmt.Sprintf("From: %s <%s>\r\nTo: <%s>\r\nSubject: %s\r\nMessage-ID: <%s@elsewhere.test>\r\nDate: Tue, 24 Nov 2026 10:00:00 +0000\r\nMIME-Version: 1.0\r\n",
		name, from, scaleSender, subject, l.mark)
	switch {
	case n%8 == 3: // with an attachment
		l.texts = append(l.texts, "report.csv")
		text = header + "Content-Type: multipart/mixed; boundary=xx\r\n\r\n--xx\r\nContent-Type: text/plain\r\n\r\n" + body +
			"\r\n--xx\r\nContent-Type: text/csv\r\nContent-Disposition: attachment; filename=report.csv\r\n\r\n1,2,3\r\n4,5,6\r\n\r\n--xx--\r\n"
	case n%8 < 3:
		text = header + "Content-Type: multipart/alternative; boundary=xx\r\n\r\n--xx\r\nContent-Type: text/plain\r\n\r\n" + body +
			"\r\n--xx\r\nContent-Type: text/html\r\n\r\n<p>" + body + "</p>\r\n--xx--\r\n"
	default:
		text = header + "\r\n" + body
	}
	seen := map[string]bool{}
	for _, text := range l.texts {
		f.splitter.Split(text, func(word []byte, _ bool) {
			if !seen[string(word)] && string(word) != l.mark {
				l.words = append(l.words, bytes.Clone(word))
			}
			seen[string(word)] = true
		})
	}
	if !seen[l.mark] {
		f.t.Fatalf("%s is no word", l.mark)
	}
	return l, from, text
}

// fill copies what the program made.
func (f *filling) fill() {
	var err error
	most := 1 << 40
	f.st, err = store.Open(f.data, store.Options{Unsynced: true, MaxBytes: most, MaxWrites: most, MaxSteps: most})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.st.View(f.read); err != nil {
		f.t.Fatal(err)
	}
	f.addMailboxes()
	f.addMail()
	if err := f.st.Close(); err != nil {
		f.t.Fatal(err)
	}
	syncAll(f.t, f.data)
	f.say("filled, %d MiB of database, %d MiB of segments", sizeOf(f.t, f.data, "mailstead.db")>>20, sizeOf(f.t, f.data, store.SegmentDir)>>20)
}

func (f *filling) say(format string, args ...any) {
	f.t.Logf("%6.0f s: "+format, append([]any{time.Since(f.began).Seconds()}, args...)...)
}

// read reads what the program made.
func (f *filling) read(tx *store.Tx) (err error) {
	f.mailbox, err = store.MailboxByEmail.Get(tx, scaleSender)
	if err != nil {
		return err
	}
	f.domain, err = store.Domains.Get(tx, f.mailbox.DomainID)
	if err != nil {
		return err
	}
	f.account, err = store.Accounts.Get(tx, f.mailbox.AccountID)
	if err != nil {
		return err
	}
	f.Account = f.account.ID
	f.folders, err = tx.Folders(f.mailbox.Num)
	if err != nil {
		return err
	}
	for _, f.job = range store.JobsByAccount.Desc(tx, f.account.ID, "") {
		if f.job.Ended() {
			break
		}
	}
	for _, f.outgoing = range store.OutgoingsByAccount.Desc(tx, f.account.ID, "") {
		break
	}
	for _, f.delivery = range store.DeliveriesByWebhook.Desc(tx, f.Webhook, "") {
		break
	}
	if f.job == nil || f.outgoing == nil || f.delivery == nil {
		return fmt.Errorf("job %v, row of the sending log %v, delivery %v", f.job, f.outgoing, f.delivery)
	}
	for n, l := range f.letters {
		if err := f.readLetter(tx, l, uint32(n+1)); err != nil {
			return fmt.Errorf("message %d: %w", n, err)
		}
	}
	for _, e := range store.EventsByAccount.Asc(tx, f.account.ID, "") {
		var data struct {
			Subject    string
			UID        string
			ReceivedAt string `json:"received_at"`
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return err
		}
		if e.Type != "email.received" || data.UID == "" {
			continue
		}
		for _, l := range f.letters {
			if strings.HasSuffix(data.Subject, l.mark) {
				l.event, l.eventUID, l.eventTime = e.Data, fmt.Sprintf("%q:%q", "uid", data.UID), data.ReceivedAt
			}
		}
	}
	for _, l := range f.letters {
		if l.event == nil || !bytes.Contains(l.event, []byte(l.eventUID)) {
			return fmt.Errorf("the event of %s is not there: %s", l.mark, l.event)
		}
	}
	return nil
}

// readLetter reads the message with the UID, and tells of which letter it is.
func (f *filling) readLetter(tx *store.Tx, l *scaleLetter, uid uint32) error {
	m, err := tx.Message(f.mailbox.Num, store.InboxID, uid)
	if err != nil {
		return err
	}
	meta, err := tx.Meta(f.mailbox.Num, store.InboxID, uid)
	if err != nil {
		return err
	}
	blob, err := f.st.OpenBlob(m.Blob)
	if err != nil {
		return err
	}
	defer blob.Close()
	l.body = make([]byte, blob.Size())
	if _, err := blob.ReadAt(l.body, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	l.meta, l.bits = *meta, m.Bits
	mark := []byte(l.mark)
	thread := sha256.Sum256([]byte("<" + l.mark + "@elsewhere.test>"))
	if !bytes.Contains(l.body, mark) || !bytes.Contains(meta.Structure, mark) || meta.ThreadID != threadOf(thread) {
		return fmt.Errorf("%s is not where it is looked for: %+v, thread %s", l.mark, meta, threadOf(thread))
	}
	return nil
}

// threadOf is the thread of a message that begins one, by the SHA-256 of its Message-ID.
func threadOf(sum [sha256.Size]byte) string {
	return "thr_" + hex.EncodeToString(sum[:len(store.ThreadNode{})])
}

// update runs one transaction.
func (f *filling) update(fn func(tx *store.Tx) error) {
	if err := f.st.Update(fn); err != nil {
		f.t.Fatal(err)
	}
}

// ids makes ids of one time after the other.
type scaleIDs struct {
	entropy *ulid.MonotonicEntropy
	last    uint64
}

func (f *filling) ids() *scaleIDs {
	return &scaleIDs{entropy: ulid.Monotonic(rand.NewChaCha8([32]byte{byte(f.number)}), 1<<16)}
}

func (s *scaleIDs) next(prefix string, at time.Time) string {
	s.last = max(s.last, ulid.Timestamp(at))
	return prefix + "_" + strings.ToLower(ulid.MustNew(s.last, s.entropy).String())
}

// addMailboxes makes the domains, each with a job that set it up, and the mailboxes. Mailboxes 0 to
// 9, or fewer in a small store, have a fiftieth of all messages each, the others up to twice their
// share of the rest.
func (f *filling) addMailboxes() {
	ids := f.ids()
	at := f.FilledAt.Add(-scaleSpan - time.Hour)
	f.update(func(tx *store.Tx) error {
		f.domains = nil
		for n := range f.Domains {
			d := *f.domain
			d.ID, d.Name, d.DNSSEC = ids.next("dom", at), scaleDomain(n), nil
			d.CreatedAt, d.ClaimedAt, d.ProvenAt, d.CompletedAt = at, at, at, at
			d.Tags = []string{fmt.Sprintf("tag%d", n%10)}
			j := *f.job
			j.ID, j.Resource.ID, j.Resource.Name, j.Key, j.CreatedAt, j.EndedAt = ids.next("job", at), d.ID, d.Name, "", at, at
			d.JobID = j.ID
			f.domains = append(f.domains, &d)
			if err := errors.Join(store.Domains.Put(tx, &d), store.Jobs.Put(tx, &j)); err != nil {
				return err
			}
		}
		for n := range max(20, f.Messages/500) {
			s := &store.Suppression{AccountID: f.account.ID, Email: fmt.Sprintf("gone%06d@far%d.test", n, n%50), Reason: []string{store.SuppressionBounce, store.SuppressionManual}[n%2], CreatedAt: at.Add(time.Duration(n) * time.Second)}
			if err := store.Suppressions.Put(tx, s); err != nil {
				return err
			}
		}
		for n := range int(scaleSpan / (24 * time.Hour)) {
			day := f.FilledAt.Add(-time.Duration(n+1) * 24 * time.Hour)
			s := &store.DayStat{AccountID: f.account.ID, Date: day.Format(time.DateOnly), Received: int64(f.Messages / 25), Sent: int64(f.Messages / 50)}
			if err := store.DayStats.Put(tx, s); err != nil {
				return err
			}
		}
		return nil
	})
	heavy := max(1, min(10, f.Mailboxes/2000))
	left := f.Messages - heavy*(f.Messages/50)
	weights := make([]float64, f.Mailboxes)
	sum := 0.0
	for n := heavy; n < f.Mailboxes; n++ {
		weights[n] = 0.05 + f.random.Float64()
		sum += weights[n]
	}
	f.boxes = make([]*filledBox, f.Mailboxes)
	given := 0
	for n := range f.boxes {
		b := &filledBox{email: f.address(n), messages: f.Messages / 50}
		if n >= heavy {
			b.messages = int(weights[n] / sum * float64(left))
		}
		given += b.messages
		f.boxes[n] = b
	}
	f.boxes[0].messages += f.Messages - given // what rounding left
	for from := 0; from < len(f.boxes); from += 2000 {
		f.update(func(tx *store.Tx) error {
			for n := from; n < min(from+2000, len(f.boxes)); n++ {
				if err := f.addMailbox(tx, f.boxes[n], f.domains[n%len(f.domains)], ids.next("eu", at), at); err != nil {
					return err
				}
			}
			return nil
		})
	}
	f.Heaviest, f.Light = f.boxes[0].id, f.boxes[len(f.boxes)-1].id
	f.say("%d domains, %d mailboxes", len(f.domains), len(f.boxes))
}

func (f *filling) addMailbox(tx *store.Tx, b *filledBox, d *store.Domain, id string, at time.Time) (err error) {
	m := *f.mailbox
	m.ID, m.DomainID, m.Email, m.CreatedAt, m.UpdatedAt = id, d.ID, b.email, at, at
	m.Name = "Mailbox " + b.email[:6]
	m.Num, err = tx.NextMailboxNum()
	if err != nil {
		return err
	}
	b.id, b.num = m.ID, m.Num
	for _, folder := range f.folders {
		if err := tx.CreateFolder(&store.Folder{Mailbox: m.Num, Name: folder.Name, SpecialUse: folder.SpecialUse, Subscribed: folder.Subscribed}); err != nil {
			return err
		}
	}
	return store.Mailboxes.Put(tx, &m)
}

// addMail adds the messages and the rows of the logs, one stretch of time after the other, as they
// would have come; within a stretch it goes from mailbox to mailbox, so that keys are neighbours.
func (f *filling) addMail() {
	const stretches = 25
	f.number = firstCopy
	ids := map[string]*scaleIDs{"evt": f.ids(), "msg": f.ids(), "sub": f.ids(), "dlv": f.ids()}
	for n := range stretches {
		var copies []filedCopy
		var some []int // mailboxes
		size := 0
		for box, b := range f.boxes {
			some = append(some, box)
			size += b.messages*(n+1)/stretches - b.messages*n/stretches
			if size >= 10_000 || box == len(f.boxes)-1 {
				copies = append(copies, f.file(some, n, stretches)...)
				some, size = nil, 0
			}
		}
		slices.SortFunc(copies, func(a, b filedCopy) int {
			return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.uid, b.uid), cmp.Compare(f.boxes[a.box].num, f.boxes[b.box].num))
		})
		for some := range slices.Chunk(copies, 10_000) {
			f.log(some, ids)
		}
		for some := range slices.Chunk(copies, 30_000) {
			f.index(some)
		}
		if n == stretches-1 {
			f.indexed()
		}
		if err := f.st.TidyText(f.t.Context(), f.account.Num); err != nil {
			f.t.Fatal(err)
		}
		if f.Messages >= 100_000 {
			f.say("%d messages", f.number-firstCopy)
		}
	}
}

// file adds the messages of a stretch of time to some mailboxes.
func (f *filling) file(some []int, stretch, stretches int) (copies []filedCopy) {
	length := scaleSpan / time.Duration(stretches)
	begin := f.FilledAt.Add(-scaleSpan + time.Duration(stretch)*length).Truncate(time.Millisecond)
	var messages []*store.Message
	var metas []*store.Meta
	var bodies scaleBody
	for _, box := range some {
		b := f.boxes[box]
		from, to := b.messages*stretch/stretches, b.messages*(stretch+1)/stretches
		for k := from; k < to; k++ {
			f.number++
			n := f.random.IntN(len(f.letters))
			l := f.letters[n]
			mark, old := []byte(scaleMark(f.number)), []byte(l.mark)
			at := begin.Add(time.Duration((float64(k-from) + f.random.Float64()) / float64(to-from) * float64(length))).Truncate(time.Millisecond)
			thread := sha256.Sum256(fmt.Appendf(nil, "<%s@elsewhere.test>", mark))
			envelope := fmt.Appendf(nil, `{"from":%q,"to":[%q],"received":%q}`, l.meta.ReturnPath, b.email, at.Format(time.RFC3339Nano))
			bodies.Reader.Reset(bytes.ReplaceAll(l.body, old, mark))
			ref, err := f.st.Append(envelope, &bodies)
			if err != nil {
				f.t.Fatal(err)
			}
			m := &store.Message{Account: f.account.Num, Mailbox: b.num, Folder: store.InboxID, Blob: ref, Received: at, Bits: l.bits}
			if f.random.IntN(3) > 0 {
				m.Flags |= store.FlagSeen
			}
			if f.random.IntN(25) == 0 {
				m.Flags |= store.FlagFlagged
			}
			if f.random.IntN(200) == 0 {
				m.Bits |= store.BitWarmup
			}
			meta := l.meta
			meta.Structure = bytes.ReplaceAll(meta.Structure, old, mark)
			meta.Preview = strings.ReplaceAll(meta.Preview, l.mark, string(mark))
			meta.ThreadID = threadOf(thread)
			messages, metas = append(messages, m), append(metas, &meta)
			copies = append(copies, filedCopy{at: at, number: f.number, box: box, letter: n, thread: thread, bits: m.Bits, size: ref.Length})
		}
	}
	f.update(func(tx *store.Tx) error {
		for n, m := range messages {
			if err := tx.AddMessage(m, metas[n]); err != nil {
				return err
			}
		}
		return nil
	})
	for n := range copies {
		copies[n].uid = messages[n].UID
	}
	return copies
}

// scaleBody is a message in memory.
type scaleBody struct{ bytes.Reader }

// log adds two rows of logs for each message: its event, and of each five messages three rows of
// the sending log and two deliveries.
func (f *filling) log(copies []filedCopy, ids map[string]*scaleIDs) {
	f.update(func(tx *store.Tx) error {
		for _, c := range copies {
			l, b := f.letters[c.letter], f.boxes[c.box]
			mark := scaleMark(c.number)
			data := bytes.ReplaceAll(l.event, []byte(l.mark), []byte(mark))
			for _, change := range [][2]string{
				{f.mailbox.ID, b.id}, {f.mailbox.Email, b.email}, {l.meta.ThreadID, threadOf(c.thread)},
				{l.eventUID, fmt.Sprintf(`"uid":"%d"`, c.uid)}, {l.eventTime, c.at.Format("2006-01-02T15:04:05.000Z")},
			} {
				data = bytes.ReplaceAll(data, []byte(change[0]), []byte(change[1]))
			}
			e := &store.Event{ID: ids["evt"].next("evt", c.at), AccountID: f.account.ID, Type: "email.received", Created: c.at, Data: data}
			if c.number%500 == 0 {
				e.Type = "email.bounced"
			}
			if err := store.Events.Put(tx, e); err != nil {
				return err
			}
			if c.number%5 >= 3 {
				d := *f.delivery
				d.ID, d.EventID, d.EventType, d.At, d.Trigger = ids["dlv"].next("dlv", c.at), e.ID, e.Type, c.at, store.DeliveryTriggerEvent
				if c.number%1000 == 3 {
					d.Outcome, d.HTTPStatus, d.Error = store.DeliveryFailed, 503, "the endpoint answered 503"
				}
				f.Deliveries++
				if err := store.Deliveries.Put(tx, &d); err != nil {
					return err
				}
				continue
			}
			o := *f.outgoing
			o.ID, o.SubmissionID, o.MailboxID, o.Sender = ids["msg"].next("msg", c.at), ids["sub"].next("sub", c.at), b.id, b.email
			o.Domain = b.email[strings.IndexByte(b.email, '@')+1:]
			o.MessageID, o.Recipient = "<"+mark+"@"+o.Domain+">", fmt.Sprintf("r%d@far%d.test", c.number%5000, c.number%50)
			o.QueuedAt, o.UpdatedAt = c.at, c.at
			switch {
			case c.number%200 == 0:
				o.Status, o.BouncedAt = store.OutgoingBounced, c.at
			case c.number%7 == 0:
				o.Status = store.OutgoingDelivered
			}
			f.Outgoings++
			if err := store.Outgoings.Put(tx, &o); err != nil {
				return err
			}
		}
		return nil
	})
	f.Events += len(copies)
}

// index adds messages, oldest first, to the text index, and what the program remembers of subjects.
func (f *filling) index(copies []filedCopy) {
	b := store.NewTextBatch(f.account.Num)
	for _, c := range slices.Backward(copies) {
		b.AddMessage(store.InboxPos{Received: c.at, UID: c.uid, Num: f.boxes[c.box].num})
		for _, word := range f.letters[c.letter].words {
			b.AddWord(word)
		}
		b.AddWord([]byte(scaleMark(c.number)))
		b.AddWord([]byte("\x01" + threadOf(c.thread)))
	}
	err := f.st.AddText(b, nil, func(tx *store.Tx) error {
		for _, c := range copies {
			if err := tx.PutSubject(f.account.Num, store.SubjectKey(c.thread[16:24]), c.at, store.ThreadNode(c.thread[:len(store.ThreadNode{})])); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// indexed notes that all messages of the copied mailboxes are in the text index.
func (f *filling) indexed() {
	f.update(func(tx *store.Tx) error {
		for _, b := range f.boxes {
			if err := tx.MarkIndexed(store.TextTodo{Account: f.account.Num, Num: b.num, UID: uint32(b.messages) + 1}); err != nil {
				return err
			}
		}
		return nil
	})
}

// sizeOf is the bytes of a file, or of the files in a directory.
func sizeOf(t *testing.T, path ...string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(path...), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// syncAll has the disk keep every file of a directory.
func syncAll(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// scaleSize is how many messages a test of a large store has.
func scaleSize(t *testing.T, few int) int {
	t.Helper()
	text := os.Getenv("MAILSTEAD_SCALE")
	if text == "" {
		return few
	}
	var n int
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatalf("MAILSTEAD_SCALE: %v", err)
	}
	return n
}

// TestLargeStore: what is copied is what the program would have made.
func TestLargeStore(t *testing.T) {
	besideOthers(t)
	s := largeStore(t, scaleSize(t, 3000))
	if s.Messages <= 100_000 {
		if out, code := rig.Run(t, "check", "--data", s.data); code != 0 {
			t.Fatalf("check: %s", out)
		}
	}
	i := rig.StartExisting(t, s.data, s.Token)
	number := scaleMark(firstCopy + s.Messages/2)
	var page struct{ Data []rig.InboxRow }
	i.Until("the messages are in the text index", func() bool {
		i.Want(200, "GET", "/v1/inbox?q="+number, nil, &page)
		return len(page.Data) > 0
	})
	if len(page.Data) != 1 || !strings.HasSuffix(page.Data[0].Subject, number) {
		t.Fatalf("%s was searched for: %+v", number, page.Data)
	}
	var email struct{ Email string }
	i.Want(200, "GET", "/v1/email-users/"+s.Light, nil, &email)
	c := i.ReadMail(email.Email, scalePassword)
	defer c.Close()
}
