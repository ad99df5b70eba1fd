package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/mailstead/mailstead/e2e/rig"
)

// newBucket is an S3 server with the bucket "mail", and a file with a key for it.
func newBucket(t *testing.T) (url, keyFile string) {
	t.Helper()
	return newBucketThat(t, func() bool { return true })
}

// newBucketThat answers while it works.
func newBucketThat(t *testing.T, works func() bool) (url, keyFile string) {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("mail"); err != nil {
		t.Fatal(err)
	}
	s3 := gofakes3.New(backend).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !works() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		s3.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	keyFile = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte("id\nsecret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL, keyFile
}

// subjects are those of an inbox, newest first.
func subjects(i *rig.Instance, box string) string {
	i.T.Helper()
	var list []string
	for _, row := range i.Inbox(box) {
		list = append(list, row.Subject)
	}
	return strings.Join(list, " ")
}

// failed runs a command that must end with exit code 1, and gives what it says.
func failed(t *testing.T, args ...string) string {
	t.Helper()
	path, err := rig.Binary()
	if err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command(path, args...).CombinedOutput()
	if e := new(exec.ExitError); !errors.As(err, &e) || e.ExitCode() != 1 {
		t.Errorf("%v: %v, %s", args, err, said)
	}
	return string(said)
}

// TestBackupToASecond backs a server up to a bucket, encrypted, kills it, and restores it on a bare
// machine, as it was at a chosen second and as it was at last.
func TestBackupToASecond(t *testing.T) {
	t.Parallel()
	url, key := newBucket(t)
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	identity := filepath.Join(t.TempDir(), "identity")
	if err := os.WriteFile(identity, []byte(id.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := rig.Start(t, rig.GenerousLimits+fmt.Sprintf(`
[s3]
endpoint = %q
access_key_file = %q
[backup]
to = "s3://mail/host"
every = "1m"
age_recipients = [%q]
`, url, key, id.Recipient().String()))
	i.AddDomain("example.test")
	box := i.AddMailbox("ann@example.test", "correct horse")
	send := func(subject string) {
		t.Helper()
		if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter(subject)); err != nil {
			t.Fatal(err)
		}
	}
	from := []string{"--from", "s3://mail/host", "--s3-endpoint", url, "--s3-access-key-file", key}
	lastAt := func() time.Time {
		out, code := rig.Run(t, append([]string{"backup", "list", "--json"}, from...)...)
		var list struct {
			LastAt *time.Time `json:"last_at"`
		}
		if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || list.LastAt == nil {
			return time.Time{}
		}
		return *list.LastAt
	}
	i.Until("there is a backup", func() bool { return !lastAt().IsZero() })
	for n := range 4 {
		send(fmt.Sprint("early", n))
	}
	c := i.ReadMail("ann@example.test", "correct horse")
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		t.Fatal(err)
	}
	setFlag(t, c, 2, imap.FlagFlagged)
	time.Sleep(5 * time.Millisecond) // so that middle is between two entries, which have times in milliseconds
	middle := time.Now().UTC()
	time.Sleep(5 * time.Millisecond)
	setFlag(t, c, 1, imap.FlagDeleted)
	if err := c.Expunge().Close(); err != nil {
		t.Fatal(err)
	}
	send("late0")
	send("late1")
	last := time.Now()
	i.Until("the last second is in the backup", func() bool { return time.Since(last) > 2*time.Second && lastAt().After(last.Add(-time.Second)) })
	want := subjects(i, box)
	i.Kill()

	if said := failed(t, append([]string{"restore", "--data", filepath.Join(t.TempDir(), "x")}, from...)...); !strings.Contains(said, "--age-identity") {
		t.Errorf("without the identity: %s", said)
	}
	for at, inbox := range map[string]string{"": want, middle.Format(time.RFC3339Nano): "early3 early2 early1 early0"} {
		dir := filepath.Join(t.TempDir(), "restored")
		args := append([]string{"restore", "--data", dir, "--age-identity", identity, "--json"}, from...)
		if at != "" {
			args = append(args, "--at", at)
		}
		out, code := rig.Run(t, args...)
		var made struct {
			Messages int
			At       time.Time
		}
		if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 || made.Messages != len(strings.Fields(inbox)) {
			t.Fatalf("restore at %q: exit %d, %s", at, code, out)
		}
		if at != "" && made.At.After(middle) {
			t.Errorf("restored to %s, which is after %s", made.At, middle)
		}
		if out, code := rig.Run(t, "check", "--data", dir); code != 0 {
			t.Errorf("check at %q: %s", at, out)
		}
		// The settings come back too; here the copy is not to write to the place of the original.
		if err := os.WriteFile(filepath.Join(dir, "mailstead.toml"), []byte(rig.GenerousLimits), 0o600); err != nil {
			t.Fatal(err)
		}
		j := rig.StartExisting(t, dir, i.Token)
		if got := subjects(j, box); got != inbox {
			t.Errorf("at %q the inbox has %q, not %q", at, got, inbox)
		}
		c := j.ReadMail("ann@example.test", "correct horse")
		if _, err := c.Select("INBOX", nil).Wait(); err != nil {
			t.Fatal(err)
		}
		flagged, err := c.Search(&imap.SearchCriteria{Flag: []imap.Flag{imap.FlagFlagged}}, nil).Wait()
		if err != nil || len(flagged.AllSeqNums()) != 1 {
			t.Errorf("at %q: %v messages are flagged, %v", at, flagged, err)
		}
		j.Stop()
	}
}

func setFlag(t *testing.T, c *imapclient.Client, number uint32, name imap.Flag) {
	t.Helper()
	err := c.Store(imap.SeqSetNum(number), &imap.StoreFlags{Op: imap.StoreFlagsAdd, Flags: []imap.Flag{name}}, nil).Close()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRestoreMailbox brings back what somebody has deleted, into the running server.
func TestRestoreMailbox(t *testing.T) {
	t.Parallel()
	i, _ := rig.StartWithMailbox(t)
	place := filepath.Join(t.TempDir(), "backups") + "/"
	backUp := func(more ...string) (at time.Time, kind string) {
		t.Helper()
		out, code := rig.Run(t, append([]string{"backup", "--data", i.Dir, "--to", place, "--json"}, more...)...)
		var made struct {
			At       time.Time
			Kind     string
			Verified bool
		}
		if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 || !made.Verified {
			t.Fatalf("backup: exit %d, %s", code, out)
		}
		return made.At, made.Kind
	}
	for n := range 5 {
		if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter(fmt.Sprint("m", n))); err != nil {
			t.Fatal(err)
		}
	}
	c := i.ReadMail("ann@example.test", "correct horse")
	if err := c.Create("Work", nil).Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		t.Fatal(err)
	}
	setFlag(t, c, 3, imap.FlagFlagged)
	if _, err := c.Move(imap.SeqSetNum(5), "Work").Wait(); err != nil {
		t.Fatal(err)
	}
	if _, kind := backUp(); kind != "full" {
		t.Errorf("the first is %s", kind)
	}
	if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("m5")); err != nil {
		t.Fatal(err)
	}
	at, kind := backUp()
	if kind != "incremental" {
		t.Errorf("the second is %s", kind)
	}
	if err := c.Noop().Wait(); err != nil {
		t.Fatal(err)
	}
	if err := c.Store(imap.SeqSet{{Start: 1, Stop: 0}}, &imap.StoreFlags{Op: imap.StoreFlagsAdd, Flags: []imap.Flag{imap.FlagDeleted}}, nil).Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Expunge().Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete("Work").Wait(); err != nil {
		t.Fatal(err)
	}
	backUp()
	args := []string{"restore", "--data", i.Dir, "--mailbox", "ann@example.test", "--at", at.Format(time.RFC3339Nano), "--from", place, "--json"}
	out, code := rig.Run(t, append(args, "--into", "Rescued")...)
	if code != 0 || !strings.HasPrefix(out, `{"messages":6,`) {
		t.Fatalf("exit %d, %s", code, out)
	}
	for folder, want := range map[string]int{"Rescued": 5, "Rescued/Work": 1, "INBOX": 0} {
		data, err := c.Select(folder, nil).Wait()
		if err != nil || int(data.NumMessages) != want {
			t.Errorf("%s has %+v, %v", folder, data, err)
		}
		if folder != "Rescued" {
			continue
		}
		found, err := c.Search(&imap.SearchCriteria{Flag: []imap.Flag{imap.FlagFlagged}}, nil).Wait()
		if err != nil || fmt.Sprint(found.AllSeqNums()) != "[3]" {
			t.Errorf("flagged: %v, %v", found, err)
		}
	}
	for name, change := range map[string][]string{
		"not empty":                            append(args, "--into", "Rescued"),
		"Create it first":                      {"restore", "--data", i.Dir, "--mailbox", "bob@example.test", "--from", place, "--into", "R"},
		"nothing is kept":                      {"restore", "--data", i.Dir, "--mailbox", "ann@example.test", "--at", "2020-01-01T00:00:00Z", "--from", place, "--into", "R"},
		"the place of the backups with --from": {"restore", "--data", i.Dir, "--mailbox", "ann@example.test", "--into", "R"},
		"start it first":                       {"restore", "--data", t.TempDir(), "--mailbox", "ann@example.test", "--from", place, "--into", "R"},
	} {
		if name == "Create it first" {
			continue // it was not there then either
		}
		if said := failed(t, change...); !strings.Contains(said, name) {
			t.Errorf("%v should say %q: %s", change, name, said)
		}
	}
	left, err := filepath.Glob(filepath.Join(i.Dir, "restore-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("it leaves %q, %v", left, err)
	}
	i.Check()
}

// TestBackupFile makes one file of a stopped server, encrypted, and starts another of it.
func TestBackupFile(t *testing.T) {
	t.Parallel()
	i, box := rig.StartWithMailbox(t)
	if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("kept")); err != nil {
		t.Fatal(err)
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	identity, file := filepath.Join(dir, "identity"), filepath.Join(dir, "mail.age")
	if err := os.WriteFile(identity, []byte(id.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := rig.Run(t, "backup", "--data", i.Dir, "--to", filepath.Join(dir, "running")); code != 0 {
		t.Fatal(out)
	}
	i.Stop()
	if out, code := rig.Run(t, "backup", "--data", i.Dir, "--to", file, "--age-recipient", id.Recipient().String()); code != 0 {
		t.Fatal(out)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(text), "age-encryption.org/") {
		t.Errorf("it is not encrypted: %v", err)
	}
	if said := failed(t, "backup", "verify", "--from", file); !strings.Contains(said, "--age-identity") {
		t.Error(said)
	}
	if out, code := rig.Run(t, "backup", "verify", "--from", file, "--age-identity", identity); code != 0 {
		t.Error(out)
	}
	if said := failed(t, "restore", "--from", file, "--data", i.Dir, "--age-identity", identity); !strings.Contains(said, "not empty") {
		t.Error(said)
	}
	data := filepath.Join(dir, "data")
	if out, code := rig.Run(t, "restore", "--from", file, "--data", data, "--age-identity", identity); code != 0 {
		t.Fatal(out)
	}
	j := rig.StartExisting(t, data, i.Token)
	if got := subjects(j, box); got != "kept" {
		t.Errorf("the inbox has %q", got)
	}
	j.ReadMail("ann@example.test", "correct horse")
	j.Check()
}

// TestBackupInStep: with sync nothing is acknowledged before it is in the backup. While that cannot
// be reached the sender waits, and the server stops all the same.
func TestBackupInStep(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	var refused atomic.Int64
	url, key := newBucketThat(t, func() bool {
		if away.Load() {
			refused.Add(1)
			return false
		}
		return true
	})
	i := rig.Start(t, rig.GenerousLimits+fmt.Sprintf("[s3]\nendpoint = %q\naccess_key_file = %q\n[backup]\nto = 's3://mail/host'\nsync = true\n", url, key))
	i.AddDomain("example.test")
	box := i.AddMailbox("ann@example.test", "correct horse")
	from := []string{"--from", "s3://mail/host", "--s3-endpoint", url, "--s3-access-key-file", key}
	i.Until("there is a backup", func() bool {
		out, code := rig.Run(t, append([]string{"backup", "list"}, from...)...)
		return code == 0 && strings.Contains(out, "full")
	})
	if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("first")); err != nil {
		t.Fatal(err)
	}
	i.Kill() // whatever was acknowledged is elsewhere
	dir := filepath.Join(t.TempDir(), "restored")
	if out, code := rig.Run(t, append([]string{"restore", "--data", dir}, from...)...); code != 0 {
		t.Fatal(out)
	}
	if err := os.WriteFile(filepath.Join(dir, "mailstead.toml"), []byte(rig.GenerousLimits), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := subjects(rig.StartExisting(t, dir, i.Token), box); got != "first" {
		t.Errorf("the restored inbox has %q", got)
	}

	i.Start()
	if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("second")); err != nil {
		t.Fatal(err)
	}
	away.Store(true)
	sent := make(chan error, 1)
	go func() { sent <- rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("third")) }()
	select {
	case err := <-sent:
		t.Fatalf("answered while the backup was away: %v", err)
	case <-time.After(2 * time.Second):
	}
	away.Store(false)
	if err := <-sent; err != nil {
		t.Errorf("once it was back: %v", err)
	}
	refused.Store(0)
	away.Store(true)
	go func() { sent <- rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("fourth")) }()
	i.Until("the fourth waits for the backup", func() bool { return refused.Load() > 0 })
	i.Stop() // within 30 seconds
	if err := <-sent; err == nil {
		t.Error("acknowledged though it is nowhere else")
	}
	away.Store(false)
	i.Start()
	got := subjects(i, box)
	for _, subject := range []string{"first", "second", "third", "fourth"} {
		if strings.Count(got, subject) > 1 || subject != "fourth" && strings.Count(got, subject) != 1 {
			t.Errorf("the inbox has %q", got)
		}
	}
	i.Check()
}
