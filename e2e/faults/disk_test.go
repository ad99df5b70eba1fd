package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/internal/soak"
)

// A smallDisk is a file system of its own that can be filled and emptied.
type smallDisk struct {
	t     *testing.T
	dir   string
	image string // the file that an ext4 is on
}

// newSmallDisk mounts a disk of 48 MiB in memory, or an ext4 of that size on a file.
func newSmallDisk(t *testing.T, kind string) *smallDisk {
	t.Helper()
	dir := t.TempDir()
	var err error
	image := filepath.Join(t.TempDir(), "image")
	if kind == "tmpfs" {
		err = syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size=48m")
	} else {
		var out []byte
		out, err = exec.Command("sh", "-c", "truncate -s 48M "+image+" && mkfs.ext4 -q -m 0 "+image+" && mount -o loop "+image+" "+dir).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("a small disk cannot be mounted: %v", err)
		}
		t.Skipf("a small disk cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	_ = os.Remove(filepath.Join(dir, "lost+found")) // init wants an empty directory
	return &smallDisk{t, dir, image}
}

// fill leaves about so many bytes free.
func (d *smallDisk) fill(leave int64) {
	d.t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.dir, &s); err != nil {
		d.t.Fatal(err)
	}
	free := int64(s.Bavail)*s.Bsize - leave
	if free <= 0 {
		return
	}
	f, err := os.CreateTemp(d.dir, "ballast-")
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, free)); err != nil && !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatal(err)
	}
}

func (d *smallDisk) empty() {
	d.t.Helper()
	files, err := filepath.Glob(filepath.Join(d.dir, "ballast-*"))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			d.t.Error(err)
		}
	}
}

// TestFullDisk: on a full disk nothing is acknowledged that is not kept, everybody is told, what is
// there can be read, and when there is room again all goes on by itself.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			fillAndEmpty(t, newSmallDisk(t, kind))
		})
	}
}

func fillAndEmpty(t *testing.T, disk *smallDisk) {
	i := rig.StartIn(t, disk.dir, rig.GenerousLimits)
	i.AddDomain("example.test")
	ann, bob := i.AddMailbox("ann@example.test", "correct horse"), i.AddMailbox("bob@example.test", "battery staple")
	acked, listed := map[string]bool{}, 0
	for _, leave := range soak.Size([]int64{4 << 20, 0}, []int64{4 << 20, 400 << 10, 60 << 10, 0}) { // the first is beyond the reserve
		disk.fill(leave)
		fillUp(i, t, acked)
		listed += fillDatabase(i, t)
		whileFull(i, t, ann)
		if leave == 0 {
			restartWhileFull(i, t, ann)
		}
		disk.empty()
		goesOn(i, t, ann, bob, acked)
	}
	stored := map[string]int{}
	for _, r := range i.Inbox(bob) {
		stored[r.Subject]++
	}
	for id := range acked {
		if stored[id] != 1 {
			t.Errorf("%s was acknowledged and is stored %d times", id, stored[id])
		}
	}
	if n := suppressed(i); n != listed {
		t.Errorf("%d addresses were acknowledged and %d are listed", listed, n)
	}
	t.Logf("%d messages and %d addresses acknowledged, %d messages stored", len(acked), listed, len(stored))
	i.Check()
}

// fillUp sends messages of several sizes until none is taken any more. Each refusal must be 452.
func fillUp(i *rig.Instance, t *testing.T, acked map[string]bool) {
	t.Helper()
	var mu sync.Mutex
	var senders sync.WaitGroup
	for n := range 8 {
		senders.Go(func() {
			refused := 0
			for k := 0; refused < 5; k++ {
				mu.Lock()
				id := fmt.Sprintf("message %d of %d, %d before", k, n, len(acked))
				mu.Unlock()
				err := rig.Transmit(i.Ready.SMTP, "bob@example.test", bulk(id, []int{1000, 20_000, 600_000}[n%3]))
				mu.Lock()
				if err == nil {
					acked[id] = true
				} else if refused++; !strings.Contains(err.Error(), "452 4.3.1") {
					t.Errorf("a full disk answers %v", err)
				}
				mu.Unlock()
			}
		})
	}
	senders.Wait()
}

// fillDatabase adds records until there is no room for another, and says how many were
// acknowledged.
func fillDatabase(i *rig.Instance, t *testing.T) (acked int) {
	t.Helper()
	var e struct{ Error struct{ Code string } }
	for n := range 20_000 {
		address := fmt.Sprintf("%s%d-%d@far.test", strings.Repeat("a", 30), n, time.Now().UnixNano())
		switch status := i.Do("POST", "/v1/suppressions", map[string]any{"email": address}, &e); {
		case status == 201:
			acked++
		case status == 507 && e.Error.Code == "storage_full":
			return acked
		default:
			t.Fatalf("a record on a full disk: %d %+v", status, e)
		}
	}
	t.Error("a full disk took 20 000 records")
	return acked
}

// suppressed counts the suppression list.
func suppressed(i *rig.Instance) (n int) {
	i.T.Helper()
	cursor := ""
	for {
		var page struct {
			Data       []any
			Pagination struct {
				Cursor *string
			}
		}
		i.Want(200, "GET", "/v1/suppressions?limit=100"+cursor, nil, &page)
		n += len(page.Data)
		if page.Pagination.Cursor == nil {
			return n
		}
		cursor = "&cursor=" + *page.Pagination.Cursor
	}
}

// whileFull demands that reading works and that changes fail with a clear word.
func whileFull(i *rig.Instance, t *testing.T, ann string) {
	t.Helper()
	var e struct {
		Error struct {
			Code       string
			RetryAfter int `json:"retry_after"`
		}
	}
	status := i.Do("POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{
		"to": "bob@example.test", "subject": "large", "text": strings.Repeat("large\n", 200_000),
	}, &e)
	if status != 507 || e.Error.Code != "storage_full" || e.Error.RetryAfter == 0 {
		t.Errorf("a send on a full disk: %d %+v", status, e)
	}
	i.Want(200, "GET", "/v1/email-users/"+ann+"/inbox", nil, nil)
	i.Want(200, "GET", "/healthz", nil, nil)
	c := i.ReadMail("bob@example.test", "battery staple")
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		t.Errorf("SELECT on a full disk: %v", err)
	}
	got, err := c.Fetch(imap.SeqSetNum(1), &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{{Peek: true}}}).Collect()
	if err != nil || len(got) != 1 {
		t.Errorf("FETCH on a full disk: %v", err)
	}
	a := c.Append("INBOX", 800_000, nil)
	_, _ = a.Write([]byte(bulk("appended", 800_000))[:800_000])
	_ = a.Close()
	if _, err := a.Wait(); err == nil || !strings.Contains(err.Error(), "[UNAVAILABLE]") && !strings.Contains(err.Error(), "full") {
		t.Errorf("APPEND on a full disk: %v", err)
	}
	c.Close()
}

// restartWhileFull demands that a server stops well, starts and can be read on a full disk.
func restartWhileFull(i *rig.Instance, t *testing.T, ann string) {
	t.Helper()
	i.Stop()
	i.Start()
	whileFull(i, t, ann)
	i.Kill()
	i.Start()
	whileFull(i, t, ann)
}

// goesOn demands that everything works again at once.
func goesOn(i *rig.Instance, t *testing.T, ann, bob string, acked map[string]bool) {
	t.Helper()
	id := fmt.Sprintf("there is room again, after %d", len(acked))
	start := time.Now()
	if err := rig.Transmit(i.Ready.SMTP, "bob@example.test", rig.Letter(id)); err != nil {
		t.Errorf("with room again: %v", err)
	}
	acked[id] = true
	id = "sent: " + id
	i.Want(200, "POST", "/v1/email-users/"+ann+"/inbox/send", map[string]any{"to": "bob@example.test", "subject": id, "text": "hello"}, nil)
	acked[id] = true
	i.Until("sent mail arrives", func() bool { return i.Inbox(bob)[0].Subject == id })
	t.Logf("after there was room again it took %s until sent mail arrived", time.Since(start))
}
