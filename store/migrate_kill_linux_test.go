package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/engine"
)

// migrateDir names the directory that TestMigrateInAChild opens.
const migrateDir = "MAILSTEAD_MIGRATE"

// TestMigrateInAChild is the process that TestUpgradeKilled kills.
func TestMigrateInAChild(t *testing.T) {
	dir := os.Getenv(migrateDir)
	if dir == "" {
		t.Skip("it is run by TestUpgradeKilled")
	}
	runtime.LockOSThread() // strace counts the calls of each thread
	s, err := Open(dir, Options{Now: func() time.Time { return second(1) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestUpgradeKilled migrates a store of the first format, with a full queue, set-ups that are half
// done and deliveries that are tried again, and kills the program before a random one of its writes
// and syncs, once or more, until it is through. The store then has what it had before, and is in
// every bucket as one that nobody has killed. make soak-upgrade does it 200 times.
func TestUpgradeKilled(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("strace is missing; run .ci/peers")
		}
		t.Skip("strace is not installed")
	}
	kills, messages := 4, 600
	if n, err := strconv.Atoi(os.Getenv("MAILSTEAD_KILLS")); err == nil {
		kills, messages = n, 6000 // more than one transaction of a migration
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("MAILSTEAD_SEED"), "2026"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(seed, 14))
	old := t.TempDir()
	makeOldStore(t, old, messages)
	before, err := Contents(old)
	if err != nil {
		t.Fatal(err)
	}
	calls := "pwrite64,fdatasync,fsync,ftruncate"
	child := func(dir string, args ...string) error {
		cmd := exec.Command(strace, append(args, os.Args[0], "-test.run=^TestMigrateInAChild$")...)
		cmd.Env = append(os.Environ(), migrateDir+"="+dir)
		out, err := cmd.CombinedOutput()
		if e := new(exec.ExitError); errors.As(err, &e) && e.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			return errChildKilled
		} else if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}

	whole, trace := copyOfStore(t, old), filepath.Join(t.TempDir(), "trace")
	if err := child(whole, "-f", "--seccomp-bpf", "-qq", "-o", trace, "-e", "trace="+calls); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{} // of each call, by the thread that writes
	for _, m := range regexp.MustCompile(`(?m)^\d+ +(\w+)\(`).FindAllStringSubmatch(string(text), -1) {
		counts[m[1]]++
	}
	want := digestOf(t, whole)
	names := slices.Sorted(maps.Keys(counts))
	began, done, more := time.Now(), 0, 0
	for tries := 0; done < kills; tries++ {
		if tries > 20+2*done {
			t.Fatalf("of %d migrations %d were killed", tries, done)
		}
		dir := copyOfStore(t, old)
		// Of one sort each time, so that the few syncs have their turn beside the many writes. With
		// --seccomp-bpf strace 6.1 would not kill.
		for killed := false; ; killed = true {
			name := names[rnd.IntN(len(names))]
			at := 1 + rnd.IntN(counts[name])
			err := child(dir, "-f", "-qq", "-o", os.DevNull, "-e", "trace="+name, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", name, at))
			if err == nil {
				break
			}
			if !errors.Is(err, errChildKilled) {
				t.Fatal(err)
			}
			if more++; !killed {
				done++
			}
		}
		if after, err := Contents(dir); err != nil || !maps.Equal(after, before) {
			t.Fatalf("after kill %d the store has other contents: %v", done, err)
		}
		if got := digestOf(t, dir); !maps.Equal(got, want) {
			for name := range want {
				if got[name] != want[name] {
					t.Errorf("after kill %d bucket %s differs", done, name)
				}
			}
			t.FailNow()
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("MAILSTEAD_KILLS=%d MAILSTEAD_SEED=%d: %d migrations of %d messages killed, %d times in all, of %v calls, in %s",
		kills, seed, done, messages, more, counts, time.Since(began).Round(time.Second))
}

var errChildKilled = errors.New("the process was killed")

func copyOfStore(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// digestOf opens a store, checks it and gives the digests of its buckets.
func digestOf(t *testing.T, dir string) (out map[string][32]byte) {
	t.Helper()
	s := openDir(t, dir, Options{})
	view(t, s, func(tx *Tx) (err error) {
		out, err = tx.Digest()
		return err
	})
	closeTest(t, s) // which checks
	return out
}

// makeOldStore makes a store as a program of the first format left it: rows without checksums, and
// inboxes that are not sorted by class.
func makeOldStore(t *testing.T, dir string, messages int) {
	t.Helper()
	s, err := Open(dir, Options{noSync: true, lenient: true, Now: func() time.Time { return second(1) }})
	if err != nil {
		t.Fatal(err)
	}
	const boxes = 5
	for box := range uint32(boxes) {
		addMailbox(t, s, box+1)
	}
	ref := appendTest(t, s, "message")
	for from := 0; from < messages; from += 500 {
		update(t, s, func(tx *Tx) error {
			for n := from; n < min(messages, from+500); n++ {
				m := &Message{
					Account: 1, Mailbox: 1 + uint32(n%boxes), Folder: InboxID, Blob: ref, Received: second(int64(n)), Flags: Flags(n % 32), Bits: Bits(n % 16),
				}
				if err := tx.AddMessage(m, &Meta{Preview: "message"}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	s.Release(ref)
	for from := 0; from < messages; from += 200 {
		update(t, s, func(tx *Tx) (err error) {
			for n := from; n < min(messages, from+200); n++ {
				id := func(prefix string) string { return fmt.Sprintf("%s_%06d", prefix, n) }
				status := []string{OutgoingQueued, OutgoingDeferred}[n%2]
				err = errors.Join(err,
					Jobs.Put(tx, &Job{
						ID: id("job"), AccountID: "acc_1", Kind: "send", Key: id("key"), Lane: fmt.Sprint("mx", n%50), Args: json.RawMessage(`{"ID":"x"}`),
						State: []string{JobQueued, JobRunning}[n%10/9], Due: second(int64(n % 999)), Attempt: n % 7, Jitter: uint16(n), Err: "451 4.7.1 later", CreatedAt: second(1),
					}),
					Outgoings.Put(tx, &Outgoing{
						ID: id("msg"), AccountID: "acc_1", Status: status, Recipient: "bob@elsewhere.test", Attempts: n % 7, NextAt: second(int64(n)),
						Log: []Attempt{{At: second(2), Host: "mx.elsewhere.test", Code: 451, Reply: "later"}},
					}),
					Deliveries.Put(tx, &Delivery{ID: id("dlv"), WebhookID: "wh_1", AccountID: "acc_1", EventID: id("evt"), Attempt: 1 + n%7, At: second(2), NextAt: second(int64(n))}))
				if n%20 == 0 { // set-ups that wait for one thing or another
					err = errors.Join(err, Domains.Put(tx, &Domain{
						ID: id("dom"), AccountID: "acc_1", Name: fmt.Sprintf("d%d.test", n), Claim: ClaimOpen, ClaimedAt: second(1), Status: DomainPending,
						DNSProvider: DomainProviderCloudflare, NSAwaited: second(int64(n)), JobID: id("job"),
						EdgeRecords: map[string]string{id("mx"): "mx", id("spf"): "spf"},
					}), Purchases.Put(tx, &Purchase{ID: id("pur"), AccountID: "acc_1", Domain: fmt.Sprintf("d%d.test", n)}))
				}
			}
			return err
		})
	}
	err = s.setup(func(tx *Tx) error {
		b := engine.Bolt(tx)
		err := errors.Join(asJSON(tx, Jobs), asJSON(tx, Outgoings), asJSON(tx, Deliveries), asJSON(tx, Domains), asJSON(tx, Purchases))
		for _, name := range []string{"inbox_class", "inbox_mbx_class", "inbox", "inbox_mbx"} {
			if b.Bucket([]byte(name)) != nil {
				err = errors.Join(err, b.DeleteBucket([]byte(name)))
			}
			_, errMake := b.CreateBucket([]byte(name))
			err = errors.Join(err, errMake)
		}
		for n := range messages { // the old indexes, which the migration deletes
			key := fmt.Appendf(nil, "%021d", n)
			err = errors.Join(err, b.Bucket([]byte("inbox")).Put(key, []byte{0, 0}), b.Bucket([]byte("inbox_mbx")).Put(key, []byte{0, 0}))
		}
		return errors.Join(err, b.DeleteBucket([]byte(bucketMeta)))
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}

// asJSON writes the rows of a table as all rows were before there were forms.
func asJSON[T any](tx *Tx, table *Table[T]) error {
	rows := map[string][]byte{}
	for rec := range table.All(tx) {
		text, err := json.Marshal(rec)
		if err != nil {
			return err
		}
		rows[table.ID(rec)] = text
	}
	for id, text := range rows {
		if err := engine.NamedBucket(tx, table.Name()).Put([]byte(id), text); err != nil {
			return err
		}
	}
	return tx.Err()
}
