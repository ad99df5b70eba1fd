package faults

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

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/store/digest"
)

// TestBackupUnderLoad backs up a store while mail comes in, to a directory and to a bucket, and
// compares all that it holds with what is restored: at last, and as it was at a second in between.
// make soak-backup does it with 100 000 messages, and shows sizes and times.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	messages := rig.NumberFrom(t, "MAILSTEAD_MESSAGES", 320)
	for _, place := range []string{"directory", "bucket"} {
		t.Run(place, func(t *testing.T) {
			to, more := filepath.Join(t.TempDir(), "backups")+"/", []string{}
			if place == "bucket" {
				url, key := newBucket(t)
				to, more = "s3://mail/load", []string{"--s3-endpoint", url, "--s3-access-key-file", key}
			}
			i, _ := rig.StartWithMailbox(t)
			backUp := func(kind string) {
				t.Helper()
				began := time.Now()
				out, code := rig.Run(t, append([]string{"backup", "--data", i.Dir, "--to", to, "--json"}, more...)...)
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
			bring(i, messages/2)
			idle := bring(i, messages/8)

			// A full backup while more comes in.
			var busy float64
			var both sync.WaitGroup
			both.Go(func() { busy = bring(i, messages/8) })
			backUp("full")
			both.Wait()
			bring(i, messages/8)
			// What is acknowledged is filed soon, and not at once.
			i.Until("all messages are filed", func() bool { return filed(i) == messages/2+3*(messages/8) })
			time.Sleep(20 * time.Millisecond) // so that the clock is past the last entry
			middle := time.Now().UTC()
			then := contents(t, rehearse(t, i.Dir).Path)
			both.Go(func() { bring(i, messages/8) })
			backUp("incremental")
			both.Wait()
			i.Stop()
			backUp("incremental") // of the stopped store
			t.Logf("%d messages: %.0f a second, %.0f while a full backup ran (%.2f)", messages, idle, busy, busy/idle)

			for at, want := range map[string]map[string]string{"": contents(t, i.Dir), middle.Format(time.RFC3339Nano): then} {
				dir := filepath.Join(t.TempDir(), "restored")
				args := append([]string{"restore", "--data", dir, "--from", to}, more...)
				if at != "" {
					args = append(args, "--at", at)
				}
				began := time.Now()
				if out, code := rig.Run(t, args...); code != 0 {
					t.Fatal(out)
				}
				t.Logf("restored at %q in %s", at, time.Since(began).Round(time.Millisecond))
				have := contents(t, dir)
				for _, name := range slices.Sorted(maps.Keys(want)) {
					if have[name] != want[name] {
						t.Errorf("at %q: %s differs", at, name)
					}
				}
				if out, code := rig.Run(t, "check", "--data", dir); code != 0 {
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
func filed(i *rig.Instance) (n int) {
	c := i.ReadMail("ann@example.test", "correct horse")
	defer c.Close()
	for _, folder := range []string{"INBOX", "Junk"} {
		got, err := c.Status(folder, &imap.StatusOptions{NumMessages: true}).Wait()
		if err != nil {
			i.T.Fatal(err)
		}
		n += int(*got.NumMessages)
	}
	return n
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	c, err := digest.Contents(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bring hands the server so many messages over eight connections, and gives how many it took in a
// second.
func bring(i *rig.Instance, n int) (rate float64) {
	i.T.Helper()
	began := time.Now()
	var left, refused atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	for range 8 {
		c := rig.TalkTo(i.T, i.Ready.SMTP)
		all.Go(func() {
			for k := left.Add(-1); k >= 0; k = left.Add(-1) {
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				c.Say("MAIL FROM:<bob@elsewhere.test>")
				c.Say("RCPT TO:<ann@example.test>")
				c.Say("DATA")
				if code, _ := c.Say(bulk(fmt.Sprint("load", k), int(500+k%7*700)) + "."); code != 250 {
					refused.Add(1)
				}
			}
			c.Say("QUIT")
		})
	}
	all.Wait()
	if refused.Load() > 0 {
		i.T.Errorf("%d of %d messages were refused", refused.Load(), n)
	}
	return float64(n) / time.Since(began).Seconds()
}
