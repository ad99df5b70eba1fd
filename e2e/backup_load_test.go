package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/store"
)

// TestBackupUnderLoad backs up a store while mail comes in, to a directory and to a bucket, and
// compares all that it holds with what is restored: at last, and as it was at a second in between.
// make soak-backup does it with 100 000 messages, and shows sizes and times.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	messages := numberFrom(t, "MAILSTEAD_MESSAGES", 320)
	for _, place := range []string{"directory", "bucket"} {
		t.Run(place, func(t *testing.T) {
			to, more := filepath.Join(t.TempDir(), "backups")+"/", []string{}
			if place == "bucket" {
				url, key := newBucket(t)
				to, more = "s3://mail/load", []string{"--s3-endpoint", url, "--s3-access-key-file", key}
			}
			i, _ := alone(t)
			backUp := func(kind string) {
				t.Helper()
				began := time.Now()
				out, code := mailstead(t, append([]string{"backup", "--data", i.dir, "--to", to, "--json"}, more...)...)
				var made struct {
					Kind       string
					Messages   int
					Bytes      int64
					BytesAdded int64 `json:"bytes_added"`
					Verified   bool
				}
				if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 || made.Kind != kind || !made.Verified {
					t.Fatalf("backup: exit %d, %s", code, out)
				}
				t.Logf("%s backup of %d messages: %d bytes (%d new) in %s", made.Kind, made.Messages, made.Bytes, made.BytesAdded, time.Since(began).Round(time.Millisecond))
			}

			// Half of the mail, then the rate at which it comes in.
			i.bring(messages / 2)
			idle := i.bring(messages / 8)

			// A full backup while more comes in.
			var busy float64
			var both sync.WaitGroup
			both.Go(func() { busy = i.bring(messages / 8) })
			backUp("full")
			both.Wait()
			i.bring(messages / 8)
			// What is acknowledged is filed soon, and not at once.
			i.until("all messages are filed", func() bool { return i.filed() == messages/2+3*(messages/8) })
			time.Sleep(20 * time.Millisecond)
			middle := time.Now().UTC()
			then := contents(t, rehearse(t, i.dir).Path)
			both.Go(func() { i.bring(messages / 8) })
			backUp("incremental")
			both.Wait()
			i.stop()
			backUp("incremental") // of the stopped store
			t.Logf("%d messages: %.0f a second, %.0f while a full backup ran (%.2f)", messages, idle, busy, busy/idle)

			for at, want := range map[string]map[string]string{"": contents(t, i.dir), middle.Format(time.RFC3339Nano): then} {
				dir := filepath.Join(t.TempDir(), "restored")
				args := append([]string{"restore", "--data", dir, "--from", to}, more...)
				if at != "" {
					args = append(args, "--at", at)
				}
				began := time.Now()
				if out, code := mailstead(t, args...); code != 0 {
					t.Fatal(out)
				}
				t.Logf("restored at %q in %s", at, time.Since(began).Round(time.Millisecond))
				have := contents(t, dir)
				for _, name := range slices.Sorted(maps.Keys(want)) {
					if have[name] != want[name] {
						t.Errorf("at %q: %s differs", at, name)
					}
				}
				if out, code := mailstead(t, "check", "--data", dir); code != 0 {
					t.Errorf("check at %q: %s", at, out)
				}
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// filed counts the messages of ann@example.test that are in a folder.
func (i *instance) filed() (n int) {
	c := i.readMail("ann@example.test", "correct horse")
	defer c.Close()
	for _, folder := range []string{"INBOX", "Junk"} {
		got, err := c.Status(folder, &imap.StatusOptions{NumMessages: true}).Wait()
		if err != nil {
			i.t.Fatal(err)
		}
		n += int(*got.NumMessages)
	}
	return n
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	c, err := store.Contents(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bring hands the server so many messages over eight connections, and gives how many it took in a
// second.
func (i *instance) bring(n int) (rate float64) {
	i.t.Helper()
	began := time.Now()
	var left, refused atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	for range 8 {
		c := talkTo(i.t, i.ready.SMTP)
		all.Go(func() {
			for k := left.Add(-1); k >= 0; k = left.Add(-1) {
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				c.say("MAIL FROM:<bob@elsewhere.test>")
				c.say("RCPT TO:<ann@example.test>")
				c.say("DATA")
				if code, _ := c.say(bulk(fmt.Sprint("load", k), int(500+k%7*700)) + "."); code != 250 {
					refused.Add(1)
				}
			}
			c.say("QUIT")
		})
	}
	all.Wait()
	if refused.Load() > 0 {
		i.t.Errorf("%d of %d messages were refused", refused.Load(), n)
	}
	return float64(n) / time.Since(began).Seconds()
}
