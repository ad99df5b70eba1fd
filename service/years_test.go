package service_test

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mailstead/mailstead/internal/clock"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/feedback"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/signin"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/backup"
	"github.com/mailstead/mailstead/store/objects"
)

const (
	mailKept = 30 // days
	day      = 24 * time.Hour
)

// A longRun is a working installation with a clock that the test advances.
type longRun struct {
	*servicetest.Installation
	t       *testing.T
	rand    *rand.Rand
	clock   *clock.Clock
	boxes   []*store.Mailbox
	hook    *httptest.Server
	backups *backup.Schedule
	target  string // of backups
	replies []string
	later   []letter // refused temporarily, to be sent again
	sent    int
}

func envInt(name string, otherwise int) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return otherwise
	}
	return n
}

// TestYearsReachAPlateau: an installation that receives, sends and deletes mail for years is not
// larger in its last year than in the second half of the first (of the second for records that are
// kept for two years), in any bucket or directory. When nothing happens any more, records that are
// kept for a limited time are deleted. The full test is three years with 100 messages a day.
func TestYearsReachAPlateau(t *testing.T) {
	years, perDay, days := envInt("MAILSTEAD_YEARS", 0), 5, 100
	if years > 0 {
		perDay, days = envInt("MAILSTEAD_PER_DAY", 100), 365*years
	}
	seed := uint64(envInt("MAILSTEAD_SEED", int(time.Now().UnixNano()&0xffffff)))
	t.Logf("seed %d: %d days with %d messages each", seed, days, perDay)
	r := newLongRun(t, seed)
	r.settle()
	before := r.sizes()
	var first, second, last map[string]int64 // the highest counts of months 7 to 12, of months 19 to 24, and of the last year
	for d := 1; d <= days; d++ {
		r.live(d, perDay)
		if (d%10 > 0 || years == 0) && d != days {
			continue
		}
		r.settle()
		now := r.sizes()
		switch {
		case d > days-365 && d > 365 || days <= 365:
			last = larger(last, now)
		case d > 182 && d <= 365:
			first = larger(first, now)
		case d > 365+182 && d <= 2*365:
			second = larger(second, now)
		}
		if d%60 == 0 || d == days {
			t.Logf("day %d: %d bytes of segments, %d of backups, %d rows", d, now["segments"], now["backups"], now["rows"])
		}
	}
	if years > 1 {
		for name, was := range first {
			if laterThanAYear[name] {
				was = second[name]
				if second == nil {
					continue
				}
			}
			if most := was + was*15/100 + slackOf(name); last[name] > most {
				t.Errorf("%s: %d in the last year, %d in the second half of the first or second", name, last[name], was)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		t.Logf("%-28s %9d %9d %9d", name, first[name], second[name], last[name])
	}
	r.deleteOld(0)
	for range 16 { // longer than any limited retention
		r.pass(50 * day)
	}
	for range 3 { // messages in a backup can be compacted, and then leave the backups
		r.settle()
		r.pass(50 * day)
	}
	r.settle()
	after := r.sizes()
	for name, n := range after {
		if name == "database" { // the file does not shrink
			before[name] = last[name]
		}
		if most := before[name] + slackOf(name); n > most {
			t.Errorf("%s: %d when nothing has happened for 950 days, %d at first", name, n, before[name])
		}
	}
}

// laterThanAYear lists what is kept for more than a year, and the totals that include it: these
// grow for two years, and shrink when nothing happens any more.
var laterThanAYear = map[string]bool{
	"bucket thread": true, "bytes of thread": true, "pages of thread": true,
	"bucket thread_joined": true, "bytes of thread_joined": true, "pages of thread_joined": true,
	"rows": true, "pages": true, "database": true, "copies of the database": true,
}

// slackOf returns how much something may grow for other reasons than time.
func slackOf(name string) int64 {
	switch name {
	case "segments", "backups":
		return 4 << 20 // segments are compacted when half of their bytes are deleted
	case "database":
		return 16 << 20 // the step by which it grows
	case "copies of the database":
		return 40 << 20 // three full backups, compressed, with their free pages
	case "rows":
		return 200
	}
	if strings.HasPrefix(name, "bytes of ") || strings.HasPrefix(name, "pages") {
		return 64 << 10
	}
	return 30
}

func larger(most, now map[string]int64) map[string]int64 {
	if most == nil {
		most = map[string]int64{}
	}
	for name, n := range now {
		most[name] = max(most[name], n)
	}
	return most
}

func newLongRun(t *testing.T, seed uint64) *longRun {
	r := &longRun{t: t, rand: rand.New(rand.NewPCG(seed, 1)), clock: clock.New(nil, 0), target: filepath.Join(t.TempDir(), "backups")}
	r.hook = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		if r.clock.Now().Hour() < 6 { // the other server is down at night, so that deliveries are retried
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(r.hook.Close)
	roots := x509.NewCertPool()
	roots.AddCert(r.hook.Certificate())
	c := core.Config{
		Sandbox: true, Settings: core.Settings{Outbound: "capture", Limits: core.Limits{Plan: "startup", Domains: 500, TeamUsers: 25, MailboxesPerDomain: 100, RatePerMinute: 1 << 30, BurstPerMinute: 1 << 30}, Spam: core.Spam{Reports: true, Greylisting: true}}, BaseURL: "http://127.0.0.1", SubmissionPort: 2587, RootCAs: roots,
	}
	r.Installation = servicetest.InstallWith(t, c, store.Options{Clock: r.clock, Unsynced: true, SegmentSize: 1 << 20})
	r.DNS.Txt["_dmarc.far.test"] = "v=DMARC1; p=none; rua=mailto:dmarc@far.test"
	d := r.AddDomain(r.Account, "home.test", nil)
	for _, name := range []string{"ann", "bob", "cy"} {
		r.boxes = append(r.boxes, r.AddMailbox(d, name, nil))
	}
	_, err := r.Svc.Events.CreateWebhook(t.Context(), r.who(), events.CreateWebhookIn{URL: r.hook.URL, Events: []string{"email.received", "email.bounced"}})
	if err != nil {
		t.Fatal(err)
	}
	r.Run()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Svc.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	place, err := objects.At(r.target, objects.S3{})
	if err != nil {
		t.Fatal(err)
	}
	r.backups = &backup.Schedule{
		Target: &backup.Target{Place: place, Temp: r.St.Dir()}, Source: backup.Source{Store: r.St, Program: "test", Log: slog.New(slog.DiscardHandler)},
		Every: day, FullEvery: 7 * day, Keep: 30 * day,
	}
	running.Go(func() {
		if err := r.backups.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

func (r *longRun) who() core.Actor { return servicetest.Actor(r.Account) }

// live simulates one day.
func (r *longRun) live(d, perDay int) {
	r.t.Helper()
	for quarter := range 4 {
		again := r.later
		r.later = nil
		for _, l := range again {
			r.bring(l)
		}
		for n := quarter; n < perDay; n += 4 {
			r.receive(d, n)
		}
		if quarter == 2 {
			r.work(d, perDay)
			r.deleteOld(mailKept * day)
		}
		r.pass(6 * time.Hour)
	}
}

// receive delivers a message: a new one, an answer, or one from a new domain.
func (r *longRun) receive(d, n int) {
	r.t.Helper()
	id := fmt.Sprintf("<%d.%d.%d@far.test>", d, n, r.rand.Uint32())
	from := "friend@far.test"
	if n%5 == 4 {
		from = fmt.Sprintf("x@new%d-%d.test", d, n)
	}
	text := fmt.Sprintf("From: %s\r\nTo: ann@home.test\r\nMessage-ID: %s\r\nSubject: About %d\r\n", from, id, r.rand.IntN(1e6))
	if len(r.replies) > 0 && n%3 == 0 {
		text += "In-Reply-To: " + r.replies[r.rand.IntN(len(r.replies))] + "\r\n"
	}
	r.replies = append(r.replies, id)
	if len(r.replies) > 100 {
		r.replies = r.replies[1:]
	}
	text += "\r\n"
	for range 20 + r.rand.IntN(200) {
		text += fmt.Sprintf("word%d ", r.rand.IntN(5000))
	}
	r.bring(letter{from, text + "\r\n", r.boxes[r.rand.IntN(len(r.boxes))].Email})
}

// A letter is a message on its way to us.
type letter struct{ from, text, to string }

// bring delivers a message, or keeps it for later if it is refused temporarily.
func (r *longRun) bring(l letter) {
	r.t.Helper()
	err := r.Receive(l.from, l.text, l.to)
	if code := servicetest.CodeOf(err); code/100 == 4 {
		r.later = append(r.later, l)
	} else if err != nil {
		r.t.Fatal(err)
	}
}

// work simulates what people and programs do in a day besides receiving mail.
func (r *longRun) work(d, perDay int) {
	r.t.Helper()
	ctx := r.t.Context()
	try := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatalf("day %d: %v", d, err)
		}
	}
	for range max(1, perDay/20) {
		r.sent++
		r.MustSend(r.boxes[0], submit.SendEmailIn{To: submit.Texts{fmt.Sprintf("x%d@away.test", r.sent)}, Subject: "s", Text: "hello"})
		out := r.MustSend(r.boxes[0], submit.SendEmailIn{To: submit.Texts{"bob@home.test"}, Subject: "s", Text: "hello"})
		r.Update(func(tx *store.Tx) error {
			return store.Mappings.Put(tx, &store.MessageIDMapping{ID: tx.NewID("map"), AccountID: r.Account.AccountID, Original: out.MessageID, Provided: "<" + tx.NewID("x") + "@relay.test>", RelayedAt: tx.Now()})
		})
	}
	address := fmt.Sprintf("s%d@away.test", d)
	_, err := r.Svc.Feedback.CreateSuppression(ctx, r.who(), feedback.CreateSuppressionIn{Email: address})
	try(err)
	_, err = r.Svc.Feedback.DeleteSuppression(ctx, r.who(), feedback.DeleteSuppressionIn{Email: address})
	try(err)
	in := signin.SignInIn{Email: r.Account.OwnerEmail, Password: r.Account.OwnerPassword}
	v := signin.Visitor{IP: fmt.Sprintf("198.51.100.%d", d%250), UserAgent: "test"}
	_, err = r.Svc.Signin.SignIn(ctx, v, in)
	try(err)
	in.Password = "wrong"
	if _, err := r.Svc.Signin.SignIn(ctx, v, in); err == nil {
		r.t.Fatal("a wrong password was taken")
	}
	_, err = r.Svc.Accounts.CreateToken(ctx, r.who(), accounts.CreateTokenIn{Name: "short", Permissions: &[]string{"read"}, ExpiresInDays: core.Opt[int]{Set: true, Value: 1}})
	try(err)
	try(once.KeepIfUnstored(r.Svc.Core, once.New(fmt.Sprint("key", d), nil, nil), once.Answer{Status: 200, Body: []byte("{}")}))
	if d%5 == 0 {
		_, err = r.Svc.Mailboxes.CreateExport(ctx, r.who(), mailboxes.CreateExportIn{All: true})
		try(err)
	}
	r.Update(func(tx *store.Tx) error {
		date := tx.Now().Format(time.DateOnly)
		return store.TLSCounts.Put(tx, &store.TLSCount{Day: date, Domain: "away.test"})
	})
}

// deleteOld deletes messages older than a time, in every folder: half of them as IMAP does, and
// half of those in INBOX by the API.
func (r *longRun) deleteOld(age time.Duration) {
	r.t.Helper()
	end := r.St.Now().Add(-age)
	for _, mb := range r.boxes {
		u := core.MailboxUser{AccountID: mb.AccountID, AccountNum: mb.AccountNum, MailboxID: mb.ID, Mailbox: mb.Num, Email: mb.Email}
		var folders []*store.Folder
		old := map[uint32][]uint32{}
		err := r.St.View(func(tx *store.Tx) (err error) {
			folders, err = tx.Folders(mb.Num)
			if err != nil {
				return err
			}
			for _, f := range folders {
				for m := range tx.Messages(mb.Num, f.ID, 1, 1<<32-1) {
					if !m.Received.After(end) {
						old[f.ID] = append(old[f.ID], m.UID)
					}
				}
			}
			return nil
		})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, f := range folders {
			uids := old[f.ID]
			if f.ID == store.InboxID && age > 0 {
				var refs []inbox.MessageRef
				for _, uid := range uids[:len(uids)/2] {
					refs = append(refs, inbox.MessageRef{UID: fmt.Sprint(uid), Mailbox: mb.Email})
				}
				for some := range slices.Chunk(refs, 200) {
					if out, err := r.Svc.Inbox.BulkDeleteMessages(r.t.Context(), r.who(), inbox.BulkDeleteMessagesIn{Messages: some}); err != nil || out.Failed > 0 {
						r.t.Fatalf("delete by the API: %+v, %v", out, err)
					}
				}
				uids = uids[len(uids)/2:]
			}
			if len(uids) == 0 {
				continue
			}
			if _, err := r.Svc.Inbox.ChangeFlags(r.t.Context(), u, f.ID, uids, inbox.FlagChange{Op: inbox.AddFlags, Flags: inbox.FlagDeleted}); err != nil {
				r.t.Fatal(err)
			}
			if gone, err := r.Svc.Inbox.ExpungeMessages(r.t.Context(), u, f.ID, uids); err != nil || len(gone) != len(uids) {
				r.t.Fatalf("%d of %d messages were expunged: %v", len(gone), len(uids), err)
			}
		}
	}
}

// pass advances the clock, and waits until everything that is due then has run.
func (r *longRun) pass(by time.Duration) {
	r.t.Helper()
	r.clock.Advance(by)
	end := time.Now().Add(2 * time.Minute)
	for idle := false; !idle; time.Sleep(time.Millisecond) {
		now := store.TimeKey(r.St.Now())
		err := r.St.View(func(tx *store.Tx) error {
			idle = true
			for key, id := range store.JobsDue.Keys(tx, "", "") {
				if key <= now || store.DueLane(key, id) == store.RunningLane {
					idle = false
					break
				}
				if key > now+"\xff" {
					break
				}
			}
			for range store.JobsByLane.Keys(tx, store.RunningLane+"\x00", "") {
				idle = false
				break
			}
			return nil
		})
		if err != nil {
			r.t.Fatal(err)
		}
		if time.Now().After(end) {
			r.t.Fatal("what is due is not done within two minutes")
		}
	}
}

// settle waits for background work, and advances the clock by a few hours in which the queue
// compacts the rest.
func (r *longRun) settle() {
	r.t.Helper()
	for range 3 {
		r.pass(2 * time.Hour)
	}
	end := time.Now().Add(2 * time.Minute)
	for todo := 1; todo > 0; time.Sleep(5 * time.Millisecond) {
		err := r.St.View(func(tx *store.Tx) error {
			todo = 0
			for range tx.TextTodos(0) {
				todo++
			}
			return nil
		})
		if err != nil || time.Now().After(end) {
			r.t.Fatalf("%d messages are not indexed: %v", todo, err)
		}
	}
	r.pass(day) // index words of deleted messages may stay for a day
	if err := r.St.PurgeText(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.backups.Backup(r.t.Context(), false, true); err != nil {
		r.t.Fatal(err)
	}
}

// sizes returns the number of rows in each bucket and in all, and the bytes of segments, of the
// database, of its copies in backups, and of everything else in backups.
func (r *longRun) sizes() map[string]int64 {
	r.t.Helper()
	snap, err := r.St.Snapshot()
	if err != nil {
		r.t.Fatal(err)
	}
	path := filepath.Join(r.t.TempDir(), "copy.db")
	f, err := os.Create(path)
	if err == nil {
		err = cmp.Or(snap.WriteDatabase(f), f.Close())
	}
	if err = cmp.Or(err, snap.Close()); err != nil {
		r.t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]int64{"segments": r.bytesIn(filepath.Join(r.St.Dir(), store.SegmentDir)), "copies of the database": r.bytesIn(filepath.Join(r.target, "db"))}
	out["database"] = r.bytesIn(filepath.Join(r.St.Dir(), store.DatabaseFile))
	out["backups"] = r.bytesIn(r.target) - out["copies of the database"]
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			stats := b.Stats()
			out["bucket "+string(name)] = int64(stats.KeyN)
			out["bytes of "+string(name)] = int64(stats.LeafInuse)
			out["pages of "+string(name)] = int64(stats.LeafAlloc + stats.BranchAlloc)
			out["rows"] += int64(stats.KeyN)
			out["pages"] += int64(stats.LeafAlloc + stats.BranchAlloc)
			return nil
		})
	})
	if err = cmp.Or(err, db.Close(), os.Remove(path)); err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *longRun) bytesIn(dir string) (n int64) {
	r.t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return n
}
