package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// A hostJob is what the API shows of a backup or a drill.
type hostJob struct {
	ID     string `json:"job_id"`
	Status string
	Error  *struct{ Code, Message string }
	Result struct {
		OK, Verified, Decrypted bool
		Messages                int
		Problems                []string
	}
}

// callJob calls an operation as the operator on the host, and gives its job.
func callJob(t *testing.T, dir string, args ...string) (job hostJob) {
	t.Helper()
	out, code := rig.Run(t, append([]string{"call", "--data", dir}, args...)...)
	if err := json.Unmarshal([]byte(out), &job); err != nil || code != 0 {
		t.Fatalf("%v: exit %d, %s", args, code, out)
	}
	return job
}

// endedJob waits until a job has ended.
func endedJob(i *rig.Instance, id string) (job hostJob) {
	i.T.Helper()
	i.Until("the job "+id+" has ended", func() bool {
		i.Want(200, "GET", "/v1/jobs/"+id, nil, &job)
		return job.Status == "completed" || job.Status == "error"
	})
	return job
}

// drill kills a drill. The next start makes it again, and removes its directory.
func (w *killWorld) drill(t *testing.T, name string, n int) bool {
	w.prepare(t)
	dir, backups := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backups")
	for to, from := range map[string]string{dir: w.base, backups: w.backups} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "mailstead.toml"), []byte(w.config(backups)), 0o600); err != nil {
		t.Fatal(err)
	}
	i := w.instance(t, dir)
	i.Env = []string{fmt.Sprintf("MAILSTEAD_KILL_AT=%s:%d", name, n)}
	i.Start()
	_, _ = rig.Run(t, "call", "--data", dir, "drill_backup") // the kill may come before the answer
	for began := time.Now(); !i.Died(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > killAgainWait {
			i.Stop()
			return false
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "drill")); err != nil {
		t.Errorf("nothing was left to remove: %v", err)
	}
	_ = i.Cmd.Wait()
	i.Cmd, i.Env = nil, nil
	i.Start()
	var jobs struct{ Data []hostJob }
	i.Want(200, "GET", "/v1/jobs?type=backup_drill", nil, &jobs)
	if len(jobs.Data) != 1 {
		t.Fatalf("the jobs are %+v", jobs.Data)
	}
	if got := endedJob(i, jobs.Data[0].ID); got.Status != "completed" || !got.Result.OK || len(got.Result.Problems) > 0 {
		t.Errorf("after the kill: %+v", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "drill")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of the drill is still there: %v", err)
	}
	i.Check()
	return true
}

// TestDrillOfABucket: a drill of a backup in a bucket finds nothing wrong, then a changed object. A
// server that is killed during a backup or a drill makes it again.
func TestDrillOfABucket(t *testing.T) {
	t.Parallel()
	url, key := newBucket(t)
	i := rig.Start(t, rig.GenerousLimits+fmt.Sprintf("[s3]\nendpoint = %q\naccess_key_file = %q\n[backup]\nto = 's3://mail/host'\ndrill = '30d'\n", url, key))
	i.AddDomain("example.test")
	i.AddMailbox("ann@example.test", "correct horse")
	for n := range 20 {
		if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter(fmt.Sprint("before ", n))); err != nil {
			t.Fatal(err)
		}
	}
	backedUp := func() bool {
		var health struct {
			Backup struct {
				LastSuccessAt     *string `json:"last_success_at"`
				FirstRestorableAt *string `json:"first_restorable_at"`
			}
		}
		i.Want(200, "GET", "/v1/health", nil, &health)
		return health.Backup.LastSuccessAt != nil && health.Backup.FirstRestorableAt != nil
	}
	i.Until("there is a backup", backedUp)
	if out, code := rig.Run(t, "call", "--data", i.Dir, "advance_clock", `{"seconds":61}`); code != 0 {
		t.Fatal(out)
	}
	var jobs struct{ Data []hostJob }
	i.Until("the first drill is made by itself", func() bool {
		i.Want(200, "GET", "/v1/jobs?type=backup_drill&status=completed", nil, &jobs)
		return len(jobs.Data) == 1
	})
	if !jobs.Data[0].Result.OK {
		t.Errorf("the drill by itself: %+v", jobs.Data[0])
	}
	got := endedJob(i, callJob(t, i.Dir, "create_backup").ID)
	if got.Status != "completed" || !got.Result.Verified {
		t.Errorf("the backup: %+v", got)
	}
	got = endedJob(i, callJob(t, i.Dir, "drill_backup").ID)
	if got.Status != "completed" || !got.Result.OK || !got.Result.Decrypted || got.Result.Messages != 20 {
		t.Errorf("the drill: %+v", got)
	}
	for _, operation := range []string{"create_backup", "drill_backup"} {
		job := callJob(t, i.Dir, operation)
		i.Kill()
		i.Start()
		if got := endedJob(i, job.ID); got.Status != "completed" {
			t.Errorf("%s, after a kill: %+v", operation, got)
		}
		if _, err := os.Stat(filepath.Join(i.Dir, "drill")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the directory of the drill is still there: %v", err)
		}
	}
	out, code := rig.Run(t, "call", "--data", i.Dir, "check_health", `{"code":"backup_drill"}`)
	if code != 0 || !strings.Contains(out, "found nothing wrong") {
		t.Errorf("check_health: exit %d, %s", code, out)
	}
	i.Check()
}
