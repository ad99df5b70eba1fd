package backups_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/backups"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/backup"
	"github.com/mailstead/mailstead/store/keyfile"
	"github.com/mailstead/mailstead/store/objects"
)

// A host is an installation with backups, some mail, and a disk that a test controls.
type host struct {
	*servicetest.Sandbox
	t        *testing.T
	dir      string
	place    *gate
	free     atomic.Int64
	operator core.Actor
}

// A gate is a place whose reads a test sees and may refuse.
type gate struct {
	objects.Place
	open atomic.Pointer[func(name string) error] // called before an object is opened; nil: all are
}

func (g *gate) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if see := g.open.Load(); see != nil {
		if err := (*see)(name); err != nil {
			return nil, err
		}
	}
	return g.Place.Open(ctx, name)
}

// see has fn called with the name of each object that is opened.
func (g *gate) see(fn func(name string) error) { g.open.Store(&fn) }

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, dir: t.TempDir()}
	h.free.Store(100 << 30)
	b, end := servicetest.NewIn(t, h.dir, store.Options{Room: func(string) (int64, int64, error) { return h.free.Load(), 200 << 30, nil }}, nil)
	t.Cleanup(end)
	h.Sandbox = b
	b.AddBackups(t)
	h.place = &gate{Place: b.Backups.Schedule.Target.Place}
	b.Backups.Schedule.Target.Place = h.place
	h.operator = core.Actor{AccountID: b.Owner.AccountID, Role: "owner", TokenID: "tok_1", Permissions: []string{"admin"}, Operator: true}
	d := b.Domain(t, b.Owner.AccountID, "boxes.test", "builtin", "complete")
	for _, name := range []string{"ann", "ben"} {
		if _, err := b.Mailboxes.CreateEmailUser(t.Context(), h.operator, mailboxes.CreateEmailUserIn{Username: name, Domain: d.ID}); err != nil {
			t.Fatal(err)
		}
	}
	b.Put(t, "ann@boxes.test", "From: far@far.test\nSubject: one\n\n"+strings.Repeat("hello ", 2000), servicetest.Mail{})
	b.PutCopies(t, 1500, "ben@boxes.test", "From: far@far.test\nSubject: many\n\nhello\n", servicetest.Mail{})
	return h
}

// ended waits until a job has ended.
func (h *host) ended(job *core.JobResponse, err error) *store.Job {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(h.t.Context(), 30*time.Second)
	defer cancel()
	j, err := h.Core.Queue.Wait(ctx, job.JobID)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := os.Stat(h.drillDir()); !errors.Is(err, fs.ErrNotExist) && j.Kind == backups.KindDrill {
		h.t.Errorf("the directory of the drill is still there: %v", err)
	}
	return j
}

func (h *host) drillDir() string { return filepath.Join(h.dir, "drill") }

// backUp makes a backup as a job.
func (h *host) backUp() backups.BackupResult {
	h.t.Helper()
	j := h.ended(h.Backups.CreateBackup(h.t.Context(), h.operator))
	var out backups.BackupResult
	if err := json.Unmarshal(j.Result, &out); err != nil || j.State != store.JobCompleted {
		h.t.Fatalf("%+v, %v", j, err)
	}
	if j.Detail != "the backup, read back" || j.Total == 0 || j.Completed != j.Total {
		h.t.Errorf("the progress at the end: %d of %d, %q", j.Completed, j.Total, j.Detail)
	}
	return out
}

// drill makes a drill that can be carried out.
func (h *host) drill() backups.DrillResult {
	h.t.Helper()
	j := h.ended(h.Backups.DrillBackup(h.t.Context(), h.operator))
	var out backups.DrillResult
	if err := json.Unmarshal(j.Result, &out); err != nil || j.State != store.JobCompleted {
		h.t.Fatalf("%+v, %v", j, err)
	}
	return out
}

// health checks what health says of the last drill.
func (h *host) health(status, part string) {
	h.t.Helper()
	out, err := h.Health.GetHealth(h.t.Context(), h.operator)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, c := range out.Checks {
		if c.Code == "backup_drill" && (c.Status != status || !strings.Contains(c.Message, part)) {
			h.t.Errorf("health says %s: %s, want %s with %q", c.Status, c.Message, status, part)
		}
	}
}

func (h *host) fails(err error, code string) {
	h.t.Helper()
	if !servicetest.HasCode(err, code) {
		h.t.Errorf("%v, want %s", err, code)
	}
}

// TestBackupAndDrillAreJobs: a backup is made, listed and restored for a trial. Nothing is wrong
// with it, and health says so.
func TestBackupAndDrillAreJobs(t *testing.T) {
	h := newHost(t)
	h.health(health.Skipped, "No backup was restored for a trial yet")
	_, err := h.Backups.DrillBackup(t.Context(), h.operator)
	h.fails(err, "not_found")
	if list, err := h.Backups.ListBackups(t.Context(), h.operator); err != nil || list.Count != 0 || !list.FirstAt.IsZero() {
		t.Errorf("before the first backup: %+v, %v", list, err)
	}
	first := h.backUp()
	if first.Kind != backup.Full || !first.Verified || first.Messages != 1501 || first.Bytes == 0 || first.BytesAdded != first.Bytes {
		t.Errorf("the first backup: %+v", first)
	}
	h.Put(t, "ann@boxes.test", "Subject: two\n\nhello\n", servicetest.Mail{})
	second := h.backUp()
	if second.Kind != backup.Incremental || second.Messages != 1502 || second.BytesAdded >= first.Bytes {
		t.Errorf("the second backup: %+v", second)
	}
	list, err := h.Backups.ListBackups(t.Context(), h.operator)
	if err != nil || list.Count != 2 || list.Data[0].ID != second.ID || list.Data[1].ID != first.ID || list.Data[0].Number != second.Number || !list.Data[0].Verified ||
		!list.FirstAt.Equal(first.At.Time) || list.LastAt.Before(second.At.Time) {
		t.Errorf("%+v, %v", list, err)
	}
	if out, err := h.Health.GetHealth(t.Context(), h.operator); err != nil || !out.Backup.FirstRestorableAt.Equal(first.At.Time) {
		t.Errorf("the first time that can be restored: %+v, %v", out.Backup, err)
	}
	res := h.drill()
	if !res.OK || !res.Decrypted || len(res.Problems) != 0 || res.Problems == nil || res.Messages != 1502 || res.Number < second.Number || res.At.Before(second.At.Time) {
		t.Errorf("the drill: %+v", res)
	}
	h.health(health.OK, "with 1502 messages, and found nothing wrong")
}

// TestDrillFindsDamage: what is damaged in the backup is in the result, and an error of health,
// until a drill finds nothing.
func TestDrillFindsDamage(t *testing.T) {
	h := newHost(t)
	h.backUp()
	for _, kind := range []string{"db/", "open/", "files/"} {
		for o, err := range h.place.List(t.Context(), kind) {
			if err != nil {
				t.Fatal(err)
			}
			in, err := h.place.Open(t.Context(), o.Name)
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(in)
			if err := errors.Join(err, in.Close()); err != nil {
				t.Fatal(err)
			}
			hurt := bytes.Clone(data)
			hurt[len(hurt)/2] ^= 4
			if err := h.place.Put(t.Context(), o.Name, bytes.NewReader(hurt), o.Size); err != nil {
				t.Fatal(err)
			}
			if res := h.drill(); res.OK || !strings.Contains(strings.Join(res.Problems, "\n"), o.Name) {
				t.Errorf("%s is hurt: %+v", o.Name, res)
			}
			h.health(health.Error, "found 1 problem in the backup of")
			if err := h.place.Put(t.Context(), o.Name, bytes.NewReader(data), o.Size); err != nil {
				t.Fatal(err)
			}
		}
	}
	if res := h.drill(); !res.OK {
		t.Errorf("%+v", res)
	}
	h.health(health.OK, "found nothing wrong")
}

// TestDrillOpensSecrets: a backup with the master key of another installation is no backup.
func TestDrillOpensSecrets(t *testing.T) {
	h := newHost(t)
	path := filepath.Join(h.dir, keyfile.Name)
	own, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := keyfile.Make(path); err != nil {
		t.Fatal(err)
	}
	h.backUp()
	if err := os.WriteFile(path, own, 0o600); err != nil {
		t.Fatal(err)
	}
	if res := h.drill(); res.OK || !strings.Contains(strings.Join(res.Problems, "\n"), "master key in the backup") {
		t.Errorf("%+v", res)
	}
}

// TestOneBackupJobAtATime: while a job waits or runs, or the schedule makes a backup, another one
// is refused. A drill keeps old backups from being deleted.
func TestOneBackupJobAtATime(t *testing.T) {
	h := newHost(t)
	oldest := h.backUp().ID
	kept := func() bool {
		t.Helper()
		list, err := h.Backups.ListBackups(t.Context(), h.operator)
		if err != nil || list.Count == 0 {
			t.Fatalf("%+v, %v", list, err)
		}
		return list.Data[list.Count-1].ID == oldest
	}
	entered, goOn := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	h.place.see(func(name string) error {
		if strings.HasPrefix(name, "db/") && !once.Swap(true) {
			close(entered)
			<-goOn
		}
		return nil
	})
	job, err := h.Backups.DrillBackup(t.Context(), h.operator)
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	if info, err := os.Stat(h.drillDir()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of the drill: %v, %v", info, err)
	}
	_, err = h.Backups.CreateBackup(t.Context(), h.operator)
	h.fails(err, "backup_running")
	_, err = h.Backups.DrillBackup(t.Context(), h.operator)
	h.fails(err, "backup_running")

	// The schedule goes on, and deletes nothing that the drill reads.
	h.Backups.Schedule.Keep = -time.Hour
	if _, err := h.Backups.Schedule.Backup(t.Context(), true, true); err != nil {
		t.Fatal(err)
	}
	if !kept() {
		t.Error("the oldest backup was deleted during the drill")
	}
	close(goOn)
	if j := h.ended(job, nil); j.State != store.JobCompleted {
		t.Errorf("%+v", j)
	}
	h.backUp()
	if kept() {
		t.Error("the oldest backup is still there after the drill")
	}

	entered, goOn = make(chan struct{}), make(chan struct{})
	once.Store(false)
	h.place.see(func(name string) error {
		if !strings.HasPrefix(name, "manifests/") && !once.Swap(true) {
			close(entered)
			<-goOn
		}
		return nil
	})
	made := make(chan error)
	go func() {
		_, err := h.Backups.Schedule.Backup(context.Background(), true, true)
		made <- err
	}()
	<-entered
	_, err = h.Backups.CreateBackup(t.Context(), h.operator)
	h.fails(err, "backup_running")
	_, err = h.Backups.DrillBackup(t.Context(), h.operator)
	h.fails(err, "backup_running")
	close(goOn)
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	h.backUp()
}

// TestFullDiskDuringADrill: without room no drill begins. When others take the room, it stops, the
// directory is gone, and the store takes mail as soon as there is room again.
func TestFullDiskDuringADrill(t *testing.T) {
	h := newHost(t)
	h.backUp()
	h.free.Store(257 << 20)
	_, err := h.Backups.DrillBackup(t.Context(), h.operator)
	h.fails(err, "storage_full")
	if e, _ := core.AsError(err); e.RetryAfter == 0 || !strings.Contains(e.Message, "has 257 MiB free") {
		t.Errorf("%+v", e)
	}
	h.free.Store(100 << 30)
	h.place.see(func(name string) error {
		if strings.HasPrefix(name, "db/") {
			h.free.Store(100 << 20) // more than what the store keeps for deletions
			time.Sleep(500 * time.Millisecond)
		}
		return nil
	})
	j := h.ended(h.Backups.DrillBackup(t.Context(), h.operator))
	if j.State != store.JobError || j.ErrCode != "storage_full" {
		t.Errorf("%+v", j)
	}
	h.Put(t, "ann@boxes.test", "Subject: taken\n\nhello\n", servicetest.Mail{})
	h.health(health.Error, "became too full")
	h.free.Store(100 << 30)
	h.place.open.Store(nil)
	if res := h.drill(); !res.OK {
		t.Errorf("%+v", res)
	}
}

// TestPlaceOfBackupsThatIsAway: requests and jobs say so, and damage is not what they say.
func TestPlaceOfBackupsThatIsAway(t *testing.T) {
	h := newHost(t)
	h.backUp()
	h.place.see(func(string) error { return errors.New("nobody answers") })
	h.Backups.Schedule.Target = &backup.Target{Place: h.place, Temp: h.dir} // it has read nothing yet
	_, err := h.Backups.ListBackups(t.Context(), h.operator)
	h.fails(err, "storage_unavailable")
	_, err = h.Backups.DrillBackup(t.Context(), h.operator)
	h.fails(err, "storage_unavailable")
	j := h.ended(h.Backups.CreateBackup(t.Context(), h.operator))
	if j.State != store.JobError || j.ErrCode != "backup_failed" || !strings.Contains(j.Err, "nobody answers") {
		t.Errorf("%+v", j)
	}
	h.place.see(func(name string) error {
		if strings.HasPrefix(name, "db/") {
			return errors.New("nobody answers")
		}
		return nil
	})
	j = h.ended(h.Backups.DrillBackup(t.Context(), h.operator))
	if j.State != store.JobError || j.ErrCode != "backup_failed" || !strings.Contains(j.Err, "nobody answers") {
		t.Errorf("%+v", j)
	}
	h.health(health.Error, "nobody answers")
}

// TestListsDoNotWaitForEachOther: a list does not wait for one that the place does not answer.
func TestListsDoNotWaitForEachOther(t *testing.T) {
	h := newHost(t)
	h.backUp()
	h.Backups.Schedule.Target = &backup.Target{Place: h.place, Temp: h.dir} // it has read nothing yet
	asked, answer := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	h.place.see(func(string) error {
		if !once.Swap(true) {
			close(asked)
			<-answer
		}
		return nil
	})
	var first sync.WaitGroup
	first.Go(func() {
		if list, err := h.Backups.ListBackups(t.Context(), h.operator); err != nil || list.Count != 1 {
			t.Errorf("the first list: %+v, %v", list, err)
		}
	})
	<-asked
	done := make(chan struct{})
	go func() {
		defer close(done)
		if list, err := h.Backups.ListBackups(t.Context(), h.operator); err != nil || list.Count != 1 {
			t.Errorf("the second list: %+v, %v", list, err)
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("the second list waits for the first")
	}
	close(answer)
	first.Wait()
	<-done
}

// TestDamagedManifest: a drill of backups of which a manifest cannot be read is a failed job, and
// an error of health. It is not put off as if the place did not answer.
func TestDamagedManifest(t *testing.T) {
	h := newHost(t)
	name := "manifests/" + h.backUp().ID
	in, err := h.place.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(in)
	if err := errors.Join(err, in.Close()); err != nil {
		t.Fatal(err)
	}
	half := int64(len(data) / 2)
	if err := h.place.Put(t.Context(), name, bytes.NewReader(data[:half]), half); err != nil {
		t.Fatal(err)
	}
	j := h.ended(h.Backups.DrillBackup(t.Context(), h.operator))
	if j.State != store.JobError || j.ErrCode != "backup_failed" || !strings.Contains(j.Err, name) {
		t.Errorf("%+v", j)
	}
	h.health(health.Error, name)
	if err := h.place.Put(t.Context(), name, bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
	if res := h.drill(); !res.OK {
		t.Errorf("%+v", res)
	}
}

// TestNoBackupsAreConfigured: the list is empty, and nothing can be made.
func TestNoBackupsAreConfigured(t *testing.T) {
	h := newHost(t)
	h.Backups.Schedule, h.Health.Backups = nil, nil
	if list, err := h.Backups.ListBackups(t.Context(), h.operator); err != nil || list.Count != 0 || list.Data == nil {
		t.Errorf("%+v, %v", list, err)
	}
	_, err := h.Backups.CreateBackup(t.Context(), h.operator)
	h.fails(err, "not_configured")
	_, err = h.Backups.DrillBackup(t.Context(), h.operator)
	h.fails(err, "not_configured")
	h.health(health.Skipped, "no backups")
}

// TestLeftoverOfADrill: a start removes what a server left that was killed during a drill.
func TestLeftoverOfADrill(t *testing.T) {
	h := newHost(t)
	left := filepath.Join(h.drillDir(), "store", store.SegmentDir)
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	h.Backups.RemoveLeftover()
	if _, err := os.Stat(h.drillDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	h.Backups.RemoveLeftover()
}

// TestDrillsByThemselves: with an interval, the first drill is made once there is a backup, and the
// next one when the interval is over, by the clock of the installation. One that could not be
// carried out is tried again after an hour.
func TestDrillsByThemselves(t *testing.T) {
	h := newHost(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.Backups.Run(ctx)
	}()
	defer func() {
		stop()
		<-ended
	}()
	pass := func(by time.Duration) {
		t.Helper()
		if _, err := h.AdvanceClock(t.Context(), service.AdvanceIn{Seconds: int64(by / time.Second)}); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (n int) {
		t.Helper()
		err := h.Core.Store.View(func(tx *store.Tx) error {
			n = 0
			for j := range store.Jobs.All(tx) {
				if j.Kind == backups.KindDrill && j.Ended() {
					if j.CreatedBy != "" || j.AccountID != h.Owner.AccountID || !j.Visible {
						return fmt.Errorf("a drill is %+v", j)
					}
					n++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	// until waits until n drills have ended.
	until := func(n int) {
		t.Helper()
		for began := time.Now(); count() < n; time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("%d drills, not %d", count(), n)
			}
		}
	}
	// none passes time in which no drill may begin.
	none := func(by time.Duration, n int) {
		t.Helper()
		pass(by)
		time.Sleep(100 * time.Millisecond)
		if got := count(); got != n {
			t.Fatalf("%d drills, not %d", got, n)
		}
	}
	h.backUp()
	none(2*time.Hour, 0) // no interval is set
	h.Core.ChangeSettings(func(now *core.Settings) { now.DrillEvery = 7 * 24 * time.Hour })
	pass(2 * time.Minute)
	until(1)
	none(6*24*time.Hour, 1)
	h.place.see(func(name string) error {
		if strings.HasPrefix(name, "db/") {
			return errors.New("nobody answers")
		}
		return nil
	})
	pass(25 * time.Hour)
	until(2)
	h.health(health.Error, "nobody answers")
	h.place.open.Store(nil)
	none(50*time.Minute, 2)
	pass(12 * time.Minute)
	until(3)
	h.health(health.OK, "found nothing wrong")
	h.Core.ChangeSettings(func(now *core.Settings) { now.DrillEvery = 0 })
	none(20*24*time.Hour, 3)
}

// TestOnlyTheOperatorSeesJobsOfTheHost: their results may name mailboxes of any account.
func TestOnlyTheOperatorSeesJobsOfTheHost(t *testing.T) {
	h := newHost(t)
	job, err := h.Backups.CreateBackup(t.Context(), h.operator)
	h.ended(job, err)
	admin, bound, limited := h.operator, h.operator, h.operator
	admin.Operator, bound.Bound, limited.MailboxToken = false, true, true
	for name, who := range map[string]core.Actor{"an operator": h.operator, "an admin": admin, "a bound token": bound, "a limited token": limited} {
		got, err := h.GetJob(t.Context(), who, service.GetJobIn{ID: job.JobID})
		list, listErr := h.ListJobs(t.Context(), who, service.ListJobsIn{})
		if listErr != nil {
			t.Fatal(listErr)
		}
		sees := name == "an operator"
		if (err == nil) != sees || sees && got.JobID != job.JobID || (len(list.Page.Data) == 1) != sees {
			t.Errorf("%s: %v, and %d in the list", name, err, len(list.Page.Data))
		}
		if !sees {
			h.fails(err, "not_found")
		}
	}
}

// TestDrillReadsAThousandMessages: of many, each once and from every mailbox; of few, all.
func TestDrillReadsAThousandMessages(t *testing.T) {
	h := newHost(t)
	h.PutCopies(t, 3000, "ann@boxes.test", "Subject: more\n\nhello\n", servicetest.Mail{})
	seen, boxes := map[string]bool{}, map[uint32]int{}
	list := backups.Sample(t, h.Core.Store)
	for _, m := range list {
		seen[fmt.Sprint(m.Mailbox, " ", m.Folder, " ", m.UID)] = true
		boxes[m.Mailbox]++
	}
	if len(list) < 999 || len(list) > 1001 || len(seen) != len(list) || len(boxes) != 2 {
		t.Errorf("%d messages, %d different ones, by mailbox %v", len(list), len(seen), boxes)
	}
	for _, n := range boxes { // 3001 and 1500
		if n < 300 || n > 700 {
			t.Errorf("by mailbox %v", boxes)
		}
	}
	few := newHost(t)
	if list := backups.Sample(t, few.Core.Store); len(list) < 999 {
		t.Errorf("of 1501: %d", len(list))
	}
}
