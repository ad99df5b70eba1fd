package health_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/backup"
	"github.com/mailstead/mailstead/store/objects"
)

// A host is an installation with a clock, a disk and a place of backups that a test controls.
type host struct {
	*service.Service
	t     *testing.T
	now   time.Time
	free  int64
	place *brokenPlace
	world *servicetest.World
}

// entriesMost is the most bytes of entries that are kept for a backup.
const entriesMost = 1 << 16

// A brokenPlace refuses everything while err is set.
type brokenPlace struct {
	objects.Place
	err error
}

func (p *brokenPlace) Put(ctx context.Context, name string, r io.ReaderAt, size int64) error {
	if p.err != nil {
		return p.err
	}
	return p.Place.Put(ctx, name, r, size)
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, now: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), free: 100 << 30}
	st, err := store.Open(dir, store.Options{
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return h.now }, MaxEntryBytes: entriesMost,
		Room: func(string) (int64, int64, error) { return h.free, 200 << 30, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	keys, err := core.OpenKeys(st)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	q := jobs.NewQueue(st)
	q.Log = log
	h.world = new(servicetest.World)
	limits := core.SendingLimits()
	limits.Plan = "startup"
	h.Service = service.New(st, q, keys, core.Config{
		Hostname: "mail.example.test", Version: "1.2.3", Settings: core.Settings{Limits: limits}, Log: log, Resolver: h.world,
		Nameservers: []string{"ns1.example.test", "ns2.example.test"},
	})
	servicetest.CheapSecrets(h.Core)
	to := filepath.Join(t.TempDir(), "backups")
	place, err := objects.At(to, objects.S3{})
	if err != nil {
		t.Fatal(err)
	}
	h.place = &brokenPlace{Place: place}
	h.Health.Backups = &backup.Schedule{
		Target: &backup.Target{Place: h.place, Temp: dir}, Source: backup.Source{Store: st, Log: log},
		Every: time.Hour, FullEvery: 24 * time.Hour, Keep: 24 * time.Hour,
	}
	return h
}

// ask returns the health as the operator sees it.
func (h *host) ask() *health.Health {
	h.t.Helper()
	out, err := h.Health.GetHealth(context.Background(), core.Actor{TokenID: core.LocalToken})
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// is checks the status of a code, and that its message contains a text.
func (h *host) is(code, status, part string) {
	h.t.Helper()
	h.has(h.ask().Checks, code, status, part)
}

// finds does the same after all checks have run.
func (h *host) finds(code, status, part string) {
	h.t.Helper()
	report, err := h.Health.Doctor(h.t.Context(), struct{}{})
	if err != nil {
		h.t.Fatal(err)
	}
	h.has(report.Checks, code, status, part)
}

func (h *host) has(all []health.Check, code, status, part string) {
	h.t.Helper()
	for _, c := range all {
		if c.Code != code {
			continue
		}
		if c.Status == status && strings.Contains(c.Message, part) {
			if bad := status == health.Warning || status == health.Error; bad != (c.Mend != nil) {
				h.t.Errorf("%s is %s with the mend %v", code, status, c.Mend)
			}
			return
		}
	}
	h.t.Errorf("%s is not %s with %q: %+v", code, status, part, all)
}

// TestBackupHealth: no backup yet is a warning, one older than two intervals is an error, and one
// that fails says why.
func TestBackupHealth(t *testing.T) {
	h := newHost(t)
	h.is("backup", health.Warning, "No backup was made yet")
	if b := h.ask().Backup; b.LastSuccessAt != (core.Time{}) || b.AgeSeconds != nil || b.Verified != nil || b.Error != nil || b.Target == nil {
		t.Errorf("before the first backup: %+v", b)
	}
	if _, err := h.Health.Backups.Backup(t.Context(), false, true); err != nil {
		t.Fatal(err)
	}
	h.is("backup", health.OK, "0s old")
	h.now = h.now.Add(2 * time.Hour)
	h.is("backup", health.OK, "2h0m0s old")
	h.place.err = errors.New("no space left on device")
	if _, err := h.Health.Backups.Backup(t.Context(), false, true); err == nil {
		t.Fatal("a backup to a full disk was made")
	}
	h.is("backup", health.Warning, "no space left on device")
	h.now = h.now.Add(time.Second)
	h.is("backup", health.Error, "more than two intervals")
	if now := h.ask(); now.Status != health.Error || *now.Backup.AgeSeconds != 7201 || !*now.Backup.Verified || !strings.Contains(*now.Backup.Error, "no space") {
		t.Errorf("with an old backup: %s, %+v", now.Status, now.Backup)
	}
	for range 2 { // more than is kept
		if err := h.Core.Store.Update(func(tx *store.Tx) error {
			return store.Events.Put(tx, &store.Event{ID: tx.NewID("evt"), AccountID: "acc_1", Type: strings.Repeat("t", entriesMost)})
		}); err != nil {
			t.Fatal(err)
		}
	}
	h.is("backup", health.Warning, "the next backup is a full one")
	h.place.err = nil
	if res, err := h.Health.Backups.Backup(t.Context(), false, true); err != nil || res.Kind != backup.Full {
		t.Fatalf("%+v, %v", res, err)
	}
	h.is("backup", health.OK, "0s old")
	if err := h.Core.Store.ForgetEntries(); err != nil { // as a restore does
		t.Fatal(err)
	}
	h.is("backup", health.OK, "0s old")
	// A process that did not make the backup, such as doctor beside a stopped server, sees it too.
	h.Health.Backups = &backup.Schedule{Target: h.Health.Backups.Target, Source: h.Health.Backups.Source, Every: h.Health.Backups.Every}
	h.Health.Host = new(health.Host)
	h.is("backup", health.OK, "0s old")
	h.Health.Backups = nil
	h.is("backup", health.Warning, "no backups")
	h.Core.Config.Sandbox = true
	h.is("backup", health.Skipped, "no backups")
}

// TestLateWithoutABackup: a server whose first backup has failed for two intervals says so.
func TestLateWithoutABackup(t *testing.T) {
	h := newHost(t)
	h.place.err = errors.New("gone")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- h.Health.Backups.Run(ctx) }()
	for h.ask().Backup.Error == nil {
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	h.is("backup", health.Warning, "gone")
	h.now = h.now.Add(2*time.Hour + time.Second)
	h.is("backup", health.Error, "No backup was made in two intervals")
}

// TestQueueHealth names each job that this version cannot run, and the job that is late.
func TestQueueHealth(t *testing.T) {
	h := newHost(t)
	h.is("queue", health.OK, "in time")
	newer := jobs.NewQueue(h.Core.Store) // of a version that knows more kinds
	newer.Handle(jobs.Kind{Name: "of_tomorrow", Work: func(context.Context, *store.Job) (jobs.Writes, error) { return nil, nil }})
	var job *store.Job
	err := h.Core.Store.Update(func(tx *store.Tx) (err error) {
		job, err = newer.Add(tx, jobs.New{Kind: "of_tomorrow"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	h.now = h.now.Add(time.Hour + time.Minute)
	h.is("queue", health.Warning, "due for 1h1m0s")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- h.Core.Queue.Run(ctx) }()
	for len(h.Core.Queue.Unread()) == 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	h.is("queue", health.Error, "This version of Mailstead cannot do the job")
	if !slices.ContainsFunc(h.ask().Checks, func(c health.Check) bool { return c.Code == "queue" && c.Subject == job.ID }) {
		t.Errorf("no check is about %s: %+v", job.ID, h.ask().Checks)
	}
}

// TestParkedHealth names each job during which the server has ended three times. Its operator can
// resume it.
func TestParkedHealth(t *testing.T) {
	h := newHost(t)
	var job *store.Job
	err := h.Core.Store.Update(func(tx *store.Tx) (err error) {
		other := jobs.NewQueue(h.Core.Store)
		other.Handle(jobs.Kind{Name: "deadly", Work: func(context.Context, *store.Job) (jobs.Writes, error) { return nil, nil }})
		job, err = other.Add(tx, jobs.New{Kind: "deadly", Resource: store.JobResource{Type: "email_user", ID: "eu_1", Name: "ann@example.test"}})
		if err != nil {
			return err
		}
		job.Crashes, job.ParkedAt, job.Due = 3, tx.Now(), tx.Now().Add(24*time.Hour)
		return store.Jobs.Put(tx, job)
	})
	if err != nil {
		t.Fatal(err)
	}
	h.is("queue", health.Error, "ended 3 times in a row while the job deadly for ann@example.test ran")
	list, err := h.Health.ListParkedJobs(t.Context(), struct{}{})
	if err != nil || list.Count != 1 || list.Data[0].JobID != job.ID || list.Data[0].Crashes != 3 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := h.Health.ResumeJobs(t.Context(), health.ResumeJobsIn{Job: "job_none"}); core.Explain(err).Code != "not_found" {
		t.Errorf("an unknown job: %v", err)
	}
	if out, err := h.Health.ResumeJobs(t.Context(), health.ResumeJobsIn{All: true}); err != nil || len(out.Jobs) != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	h.is("queue", health.OK, "in time")
	if _, err := h.Health.ResumeJobs(t.Context(), health.ResumeJobsIn{Job: job.ID}); core.Explain(err).Code != "not_queued" {
		t.Errorf("a job that is not parked: %v", err)
	}
}

// TestDiskHealth: a disk that runs out is a warning. One without room for mail is an error, and the
// server is not ready.
func TestDiskHealth(t *testing.T) {
	h := newHost(t)
	h.is("disk_space", health.OK, "102400 MiB of 204800 MiB")
	h.free = 9 << 30
	h.is("disk_space", health.Warning, "running out")
	time.Sleep(30 * time.Millisecond) // until the store checks the disk again
	h.free = 1 << 20
	h.is("disk_space", health.Error, "The disk is full")
	if got := h.Health.NotReady(); len(got) != 1 || got[0] != "storage_full" {
		t.Errorf("not ready because of %v", got)
	}
	h.free = 100 << 30
	if got := h.Health.NotReady(); got != nil {
		t.Errorf("not ready because of %v", got)
	}
}

// TestHealthOfTheInstallation: what get_health says beside its checks.
func TestHealthOfTheInstallation(t *testing.T) {
	h := newHost(t)
	if got := h.ask(); got.Version != "1.2.3" || got.Role != "single" || got.Hostname != "mail.example.test" || got.Objects != nil || got.Standby != nil || got.Store.Bytes == 0 || got.Certificate != nil {
		t.Errorf("%+v", got)
	}
	cert, err := tls.X509KeyPair(selfSigned(t, "mail.example.test", "mail.example.net"))
	if err != nil {
		t.Fatal(err)
	}
	h.Health.Certificates.Host = func() *tls.Certificate { return &cert }
	got := h.ask().Certificate
	if got == nil || !slices.Equal(got.Names, []string{"mail.example.test", "mail.example.net"}) || !got.ExpiresAt.Equal(h.now.Add(time.Hour)) {
		t.Errorf("%+v", got)
	}
}

// selfSigned returns a certificate that ends in an hour, and its key, both as PEM.
func selfSigned(t *testing.T, names ...string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names, NotBefore: start, NotAfter: start.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// TestCheckHealth: all checks are made now, or the one that is named; an unknown one is refused.
func TestCheckHealth(t *testing.T) {
	h := newHost(t)
	operator := core.Actor{TokenID: core.LocalToken}
	check := func(code string) *health.Health {
		t.Helper()
		out, err := h.Health.CheckHealth(t.Context(), operator, health.CheckHealthIn{Code: code})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := check("sending_limits") // nothing is known yet, so all are made
	h.has(first.Checks, "passwords", health.OK, "No mailbox")
	h.has(first.Checks, "sending_limits", health.OK, "limited")
	h.Core.ChangeSettings(func(c *core.Settings) { c.Limits = core.Limits{Plan: "startup"} })
	mb := &store.Mailbox{ID: "eu_1", Num: 1, Email: "m@x.test", PasswordHash: "$6$salt$x", Status: store.MailboxActive}
	if err := h.Core.Store.Update(func(tx *store.Tx) error { return store.Mailboxes.Put(tx, mb) }); err != nil {
		t.Fatal(err)
	}
	h.now = h.now.Add(time.Minute)
	h.has(h.ask().Checks, "sending_limits", health.OK, "limited")
	one := check("sending_limits")
	h.has(one.Checks, "sending_limits", health.Warning, "No limit holds")
	h.has(one.Checks, "passwords", health.OK, "No mailbox")
	if one.CheckedAt != first.CheckedAt || len(one.Checks) != len(first.Checks) {
		t.Errorf("one check: %d checks at %s, all: %d at %s", len(one.Checks), one.CheckedAt, len(first.Checks), first.CheckedAt)
	}
	all := check("")
	h.has(all.Checks, "passwords", health.Warning, "m@x.test")
	if !all.CheckedAt.After(first.CheckedAt.Time) {
		t.Errorf("all checks: at %s, before at %s", all.CheckedAt, first.CheckedAt)
	}
	_, err := h.Health.CheckHealth(t.Context(), operator, health.CheckHealthIn{Code: "sending"})
	if e, _ := core.AsError(err); e == nil || e.Code != "validation_error" || e.Details[0].Field != "code" || !strings.Contains(e.Message, "sending_limits") {
		t.Errorf("an unknown check: %v", err)
	}
}

// TestDrillHealth: the outcome of the last drill is a check and a metric, also after a restart.
func TestDrillHealth(t *testing.T) {
	h := newHost(t)
	at := h.now.Add(-time.Hour)
	for _, c := range []struct {
		drill        *store.BackupDrill
		status, part string
	}{
		{nil, health.Skipped, "the key drill in [backup]"},
		{&store.BackupDrill{Decrypted: true, Messages: 7, FaultlessAt: at}, health.OK, "restored the backup of 2026-11-24T10:00:00Z with 7 messages"},
		{&store.BackupDrill{FaultlessAt: at}, health.OK, "It is encrypted, so nothing more was tried"},
		{&store.BackupDrill{Decrypted: true, Problems: 1, JobID: "job_1"}, health.Error, "found 1 problem in the backup of 2026-11-24T10:00:00Z"},
		{&store.BackupDrill{Decrypted: true, Problems: 2, JobID: "job_1"}, health.Error, "found 2 problems"},
		{&store.BackupDrill{Problems: 2, Failed: "Nobody answers."}, health.Error, "of 2026-11-24T11:00:00Z could not restore the newest backup: Nobody answers."},
	} {
		failed := "0"
		if c.drill != nil {
			c.drill.ID, c.drill.EndedAt, c.drill.BackupAt = store.BackupDrillID, at, at.Add(-time.Hour)
			if err := h.Core.Store.Update(func(tx *store.Tx) error { return store.BackupDrills.Put(tx, c.drill) }); err != nil {
				t.Fatal(err)
			}
			if !c.drill.OK() {
				failed = "1"
			}
		}
		h.is("backup_drill", c.status, c.part)
		var text bytes.Buffer
		if err := h.Core.Metrics.Registry.Write(&text); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), "\nmailstead_backup_drill_failed "+failed+"\n") {
			t.Errorf("%+v: %s", c.drill, text.String())
		}
		since := "0"
		if c.drill != nil && !c.drill.FaultlessAt.IsZero() {
			since = strconv.FormatFloat(float64(at.Unix()), 'g', -1, 64)
		}
		if !strings.Contains(text.String(), "\nmailstead_backup_drill_last_success_timestamp_seconds "+since+"\n") {
			t.Errorf("%+v: %s", c.drill, text.String())
		}
	}
	h.Health.Backups = nil
	h.is("backup_drill", health.Skipped, "no backups")
}

// TestClientsBehindOneAddress: a host that sees only one private client has a warning, until
// another client comes.
func TestClientsBehindOneAddress(t *testing.T) {
	h := newHost(t)
	h.Health.Host = &health.Host{Running: true}
	h.finds("ports", health.OK, "by their own addresses")
	for range 49 {
		h.Core.Clients.Record(netip.MustParseAddr("10.0.0.1"))
	}
	h.finds("ports", health.OK, "by their own addresses")
	h.Core.Clients.Record(netip.MustParseAddr("10.0.0.1"))
	h.finds("ports", health.Warning, "came from 10.0.0.1")
	h.Core.Clients.Record(netip.MustParseAddr("203.0.113.7"))
	h.finds("ports", health.OK, "by their own addresses")
}

// TestMissingLimitsAreTold: a store of an old release has no limits on recipients.
func TestMissingLimitsAreTold(t *testing.T) {
	h := newHost(t)
	h.finds("sending_limits", health.OK, "limited")
	h.Core.ChangeSettings(func(c *core.Settings) { c.Limits = core.Limits{Plan: "startup"} })
	h.finds("sending_limits", health.Warning, "No limit holds")
	h.Core.Config.Sandbox = true
	h.finds("sending_limits", health.Skipped, "sandbox")
}

// TestImportedPasswords: mailboxes with a hash of another server are counted.
func TestImportedPasswords(t *testing.T) {
	h := newHost(t)
	h.is("passwords", health.OK, "No mailbox")
	for n, hash := range []string{"$6$salt$x", "$2y$05$x", "$argon2id$x"} {
		mb := &store.Mailbox{ID: fmt.Sprint("eu_", n), Num: uint32(n + 1), Email: fmt.Sprint("m", n, "@x.test"), PasswordHash: hash, Status: store.MailboxActive}
		if err := h.Core.Store.Update(func(tx *store.Tx) error { return store.Mailboxes.Put(tx, mb) }); err != nil {
			t.Fatal(err)
		}
	}
	again := service.New(h.Core.Store, jobs.NewQueue(h.Core.Store), h.Core.Keys, servicetest.ConfigOf(h.Core)) // it runs the checks again
	h.Service = again
	h.is("passwords", health.Warning, "an imported hash is kept of the passwords of m0@x.test, m1@x.test, m2@x.test; until")
	for n := 3; n < 12; n++ {
		mb := &store.Mailbox{ID: fmt.Sprint("eu_", n), Num: uint32(n + 1), Email: fmt.Sprint("m", n, "@x.test"), PasswordHash: "$6$salt$x", Status: store.MailboxActive}
		if err := h.Core.Store.Update(func(tx *store.Tx) error { return store.Mailboxes.Put(tx, mb) }); err != nil {
			t.Fatal(err)
		}
	}
	h.Service = service.New(h.Core.Store, jobs.NewQueue(h.Core.Store), h.Core.Keys, servicetest.ConfigOf(h.Core))
	h.is("passwords", health.Warning, ", 2 more; until")
}
