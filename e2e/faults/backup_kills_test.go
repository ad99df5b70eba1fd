package faults

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// sizeAndSeed reads how large a test is to be, and its seed.
func sizeAndSeed(t *testing.T, variable string, inCI int) (int, *rand.Rand) {
	t.Helper()
	inCI = rig.NumberFrom(t, variable, inCI)
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("MAILSTEAD_SEED"), "2026"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s=%d MAILSTEAD_SEED=%d", variable, inCI, seed)
	return inCI, rand.New(rand.NewPCG(seed, 14))
}

// noise is a message whose bytes do not get smaller when they are compressed.
func noise(rnd *rand.Rand, subject string, size int) string {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(rnd.Uint32())
	}
	text := rig.Letter(subject)
	for line := range slices.Chunk(data, 54) {
		text += base64.StdEncoding.EncodeToString(line) + "\r\n"
	}
	return text
}

// made is what `mailstead backup --json` prints.
type made struct {
	Kind     string
	Number   uint64
	Messages int
	Verified bool
	Duration int `json:"duration_ms"`
}

// killedBackups is a server whose backups are killed, and a place on a disk of its own.
type killedBackups struct {
	*rig.Instance
	rnd   *rand.Rand
	disk  *smallDisk
	place string
	box   string
	acked []string
	takes time.Duration // a backup
}

// TestKilledBackups: a backup of a stopped store, and a server that sends entries and makes one,
// are killed at random moments, and the disk of the backups is full at others. The next backup
// succeeds by itself each time, is clean, and has all that was acknowledged. make
// soak-backup-kills does 50 of each.
func TestKilledBackups(t *testing.T) {
	t.Parallel()
	kills, rnd := sizeAndSeed(t, "MAILSTEAD_KILLS", 3)
	disk := newSmallDisk(t, "tmpfs")
	k := &killedBackups{rnd: rnd, disk: disk, place: filepath.Join(disk.dir, "backups")}
	k.Instance = rig.Start(t, rig.GenerousLimits+fmt.Sprintf("[backup]\nto = %q\nevery = '1m'\n", k.place))
	k.AddDomain("example.test")
	k.box = k.AddMailbox("ann@example.test", "correct horse")
	for n := range 10 {
		k.send(t, fmt.Sprint("before", n), 100<<10)
	}
	k.next(t, -1)
	began := time.Now()
	for n := range kills {
		k.Stop()
		k.killCommand(t)
		k.next(t, n)
		k.Start()
		k.killServer(t, n)
		k.Start()
		k.next(t, n)
		k.fillDisk(t, n)
		k.next(t, n)
	}
	t.Logf("%d kills of a backup, %d of a server and %d full disks in %s: %d messages acknowledged", kills, kills, kills, time.Since(began).Round(time.Second), len(k.acked))
	k.restored(t)
	k.Check()
}

// send has one message acknowledged.
func (k *killedBackups) send(t *testing.T, subject string, size int) {
	t.Helper()
	if err := rig.Transmit(k.Ready.SMTP, "ann@example.test", noise(k.rnd, subject, size)); err != nil {
		t.Fatal(err)
	}
	k.acked = append(k.acked, subject)
}

// killCommand kills a full backup of the stopped store.
func (k *killedBackups) killCommand(t *testing.T) {
	t.Helper()
	path, err := rig.Binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "backup", "--data", k.Dir, "--to", k.place, "--full")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Duration(k.rnd.Int64N(int64(k.takes)))) // the kill comes at any moment of the backup
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// killServer kills the server while it takes mail, sends entries and makes a backup.
func (k *killedBackups) killServer(t *testing.T, n int) {
	t.Helper()
	var work sync.WaitGroup
	work.Go(func() {
		path, _ := rig.Binary()
		_ = exec.Command(path, "backup", "--data", k.Dir, "--to", k.place).Run() // ends with the server
	})
	smtp := k.Ready.SMTP
	work.Go(func() {
		for m := range 1000 {
			subject := fmt.Sprintf("k%d-%d", n, m)
			if rig.Transmit(smtp, "ann@example.test", rig.Letter(subject)) != nil {
				return
			}
			k.acked = append(k.acked, subject)
		}
	})
	time.Sleep(time.Duration(k.rnd.Int64N(int64(2 * k.takes)))) // the kill comes at any moment
	k.Kill()
	work.Wait()
}

// fillDisk has a backup and the entries fail for want of room.
func (k *killedBackups) fillDisk(t *testing.T, n int) {
	t.Helper()
	k.disk.fill(k.rnd.Int64N(2) * 4096)
	k.send(t, fmt.Sprint("full", n), 1<<10)
	if said := failed(t, "backup", "--data", k.Dir, "--to", k.place); !strings.Contains(said, "no space left") {
		t.Errorf("on a full disk a backup says %q", said)
	}
	var health struct {
		Backup struct{ Error *string }
	}
	k.Want(200, "GET", "/v1/health", nil, &health)
	if e := health.Backup.Error; e == nil || !strings.Contains(*e, "no space left") {
		t.Errorf("health says %+v", health)
	}
	k.disk.empty()
	k.Until("what was accepted has its rows", func() bool {
		var health struct{ Store struct{ Messages int } }
		k.Want(200, "GET", "/v1/health", nil, &health)
		return health.Store.Messages >= len(k.acked)
	})
}

// next makes the next backup, which nobody has made room for, and looks at what it has.
func (k *killedBackups) next(t *testing.T, n int) {
	t.Helper()
	began := time.Now()
	out, code := rig.Run(t, "backup", "--data", k.Dir, "--to", k.place, "--json")
	var got made
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || !got.Verified || got.Messages < len(k.acked) {
		t.Fatalf("round %d: the next backup: exit %d, %s; %d are acknowledged", n, code, out, len(k.acked))
	}
	k.takes = max(time.Since(began), 50*time.Millisecond)
	if out, code := rig.Run(t, "backup", "verify", "--from", k.place); code != 0 {
		t.Fatalf("round %d: verify: %s", n, out)
	}
	if n < 0 || n%10 != 0 { // each takes as long as the test has messages
		return
	}
	dir := filepath.Join(t.TempDir(), "data")
	out, code = rig.Run(t, "restore", "--from", k.place, "--data", dir, "--json")
	var back made
	if err := json.Unmarshal([]byte(out), &back); err != nil || code != 0 || back.Messages < got.Messages || back.Number < got.Number {
		t.Fatalf("round %d: restored %s of %+v", n, out, got)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// restored starts a server of the last backup, which has all that was acknowledged.
func (k *killedBackups) restored(t *testing.T) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if out, code := rig.Run(t, "restore", "--from", k.place, "--data", dir); code != 0 {
		t.Fatal(out)
	}
	if err := os.WriteFile(filepath.Join(dir, "mailstead.toml"), []byte(rig.GenerousLimits), 0o600); err != nil {
		t.Fatal(err)
	}
	j := rig.StartExisting(t, dir, k.Token)
	have := map[string]int{}
	j.Pages("/v1/inbox?limit=200", func(_, subject string) { have[subject]++ })
	for _, subject := range k.acked {
		if have[subject] != 1 {
			t.Errorf("%s is there %d times", subject, have[subject])
		}
	}
	j.Check()
}

// TestLateBackup: while the last backup is older than two intervals, health is an error; the server
// says so and goes on. (The interval is at least a minute, so the backup is made older here.)
func TestLateBackup(t *testing.T) {
	t.Parallel()
	disk := newSmallDisk(t, "tmpfs")
	place := filepath.Join(disk.dir, "backups")
	i := rig.Start(t, rig.GenerousLimits+fmt.Sprintf("[backup]\nto = %q\n", place))
	health := func() (status, backup, message string) {
		var out struct {
			Status string
			Checks []struct{ Code, Status, Message string }
		}
		i.Want(200, "GET", "/v1/health", nil, &out)
		for _, c := range out.Checks {
			if c.Code == "backup" {
				return out.Status, c.Status, c.Message
			}
		}
		return out.Status, "", ""
	}
	i.Until("there is a backup", func() bool { _, backup, _ := health(); return backup == "ok" })
	i.Stop()
	list, err := filepath.Glob(filepath.Join(place, "manifests", "*"))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	text, err := os.ReadFile(list[0])
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(filepath.Base(list[0]), "Z")
	older := time.Now().Add(-2*time.Hour-time.Minute).UTC().Format("20060102T150405.000Z") + rest
	text = []byte(strings.Replace(string(text), filepath.Base(list[0]), older, 1))
	if err := os.WriteFile(filepath.Join(place, "manifests", older), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(list[0]); err != nil {
		t.Fatal(err)
	}
	disk.fill(0)
	i.Start()
	i.Until("health says that the backup is late", func() bool {
		status, backup, message := health()
		return status == "error" && backup == "error" && strings.Contains(message, "more than two intervals of 1h0m0s") && strings.Contains(message, "no space left")
	})
	if out, code := rig.Run(t, "call", "--data", i.Dir, "get_health"); code != 0 || !strings.Contains(out, `"last_success_at"`) {
		t.Errorf("call get_health: exit %d, %s", code, out)
	}
	if got := i.GetText("/readyz"); got != "ok\n" { // it serves all the same
		t.Errorf("readyz: %q", got)
	}
	disk.empty()
	if out, code := rig.Run(t, "backup", "--data", i.Dir, "--to", place); code != 0 {
		t.Fatal(out)
	}
	if status, backup, message := health(); backup != "ok" {
		t.Errorf("after a backup: %s, %s: %s", status, backup, message)
	}
}
