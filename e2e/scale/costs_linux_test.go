package scale

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/mailstead/mailstead/internal/soak"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/segment/disktest"
)

// scaleCosts is what a store of a size costs: the line that mailstead-bench -chart draws.
type scaleCosts struct {
	Messages      int     `json:"messages"`
	Database      float64 `json:"database_mib"`
	Segments      float64 `json:"segments_mib"`
	CleanStart    float64 `json:"start_clean_ms"` // with nothing of it in memory
	KilledStart   float64 `json:"start_killed_ms"`
	Memory        float64 `json:"memory_mib"` // the server's own, after its start
	Received      float64 `json:"smtp_per_s"`
	ReceiveCPU    float64 `json:"smtp_cpu_ms"`
	BesideBackup  float64 `json:"smtp_beside_backup"` // of Received
	BesideCompact float64 `json:"smtp_beside_compaction"`
	Inbox         float64 `json:"inbox_p99_ms"`
	Unread        float64 `json:"inbox_unread_p99_ms"`
	Search        float64 `json:"search_p99_ms"`
	Mailbox       float64 `json:"mailbox_p99_ms"`
	Select        float64 `json:"imap_select_ms"`
	Backup        float64 `json:"backup_s"`
	Check         float64 `json:"check_s"`
	CheckMemory   float64 `json:"check_mib"` // of its own
}

// TestLargeCosts measures what a large store costs: starts with nothing of it in memory, mail that
// comes in, also beside a backup and beside compaction, pages, and a check. make soak-all has a
// small store and demands only that all of it works; make soak-costs has the sizes that
// docs/performance.md draws.
func TestLargeCosts(t *testing.T) {
	l := &load{t: t, seed: 2026, told: map[string]bool{}, done: map[string]*requests{}}
	if !soak.Full() && os.Getenv("MAILSTEAD_SCALE") == "" {
		t.Skip("make soak NAME=costs")
	}
	besideOthers(t)
	whole := os.Getenv("MAILSTEAD_SCALE") != ""
	size, bulk, length := 3000, 400, time.Second
	path, err := rig.BinaryWithKillPoints() // its segments are small, and it compacts them all the time
	if whole {
		size, bulk, length = scaleSize(t, 0), 100_000, 10*time.Second
		path, err = rig.Binary()
	}
	if err != nil {
		t.Fatal(err)
	}
	s := largeStore(t, size)
	costs := scaleCosts{Messages: size}
	l.Instance = rig.Prepare(t, s.data, s.Token)
	l.Program, l.Env = path, []string{"MAILSTEAD_STRICT=0"}
	l.client = &http.Client{Timeout: time.Minute}
	t.Cleanup(l.client.CloseIdleConnections)
	start := func() float64 {
		disktest.Evict(t, s.data)
		began := time.Now()
		l.Start()
		l.api = "http://" + l.Ready.HTTP
		return milliseconds(time.Since(began))
	}

	start() // what filled the store was another program
	l.Stop()
	costs.CleanStart = start()
	time.Sleep(length) // memory is measured at rest
	costs.Memory = l.sample().anonymous
	text := s.letter(rand.New(rand.NewPCG(l.seed, 0)))
	if err := rig.Transmit(l.Ready.SMTP, s.address(0), "Subject: market\r\n\r\n"+text); err != nil {
		t.Fatal(err)
	}
	l.Kill()
	costs.KilledStart = start()

	for name, cost := range map[string]*float64{"": &costs.Inbox, "?is_read=false&is_flagged=true": &costs.Unread, "?q=market": &costs.Search} {
		took, _ := timePage(l.Instance, l.client, "/v1/inbox"+name, 200)
		*cost = milliseconds(took[197])
	}
	took, _ := timePage(l.Instance, l.client, "/v1/email-users/"+s.Light+"/inbox", 200)
	costs.Mailbox = milliseconds(took[197])
	c := l.ReadMail(s.address(s.Mailboxes-1), scalePassword)
	for range 5 {
		began := time.Now()
		if _, err := c.Select("INBOX", nil).Wait(); err != nil {
			t.Fatal(err)
		}
		costs.Select = milliseconds(time.Since(began))
	}

	// The rate at which mail comes in, before and beside a backup.
	l.receive(s, text, func() { time.Sleep(2 * length) })
	spent, came := l.cpu(), l.came.Load()
	costs.Received = l.receive(s, text, func() { time.Sleep(length) })
	costs.ReceiveCPU = milliseconds(l.cpu()-spent) / float64(l.came.Load()-came)
	copied := filepath.Join(s.dir, "copied")
	costs.BesideBackup = l.receive(s, text, func() {
		began := time.Now()
		if out, code := rig.Run(t, "backup", "--data", s.data, "--to", copied+"/"); code != 0 {
			t.Errorf("backup: %s", out)
		}
		costs.Backup = time.Since(began).Seconds()
	}) / costs.Received
	if err := os.RemoveAll(copied); err != nil {
		t.Error(err)
	}

	// Segments of which two thirds are deleted are compacted, once an hour.
	large := strings.Repeat(text, 4)
	segments := 1
	if whole {
		segments = bulk*len(large)/(64<<20) - 1 // that have nothing else
	}
	rate := l.receive(s, text, func() { time.Sleep(length) })
	moved := l.segmentsMoved()
	l.bring(s.address(1), bulk, large)
	l.empty(s.address(1), bulk)
	costs.BesideCompact = l.receive(s, text, func() {
		if whole {
			if out, code := rig.Run(t, "call", "--data", s.data, "advance_clock", `{"seconds": 3700}`); code != 0 {
				t.Errorf("advance_clock: %s", out)
			}
		}
		l.Until("segments are compacted", func() bool { return moved() >= segments })
	}) / rate
	l.report("smtp")
	l.Stop()

	for kind, mib := range map[string]*float64{filepath.Join(store.SegmentDir, "*"): &costs.Segments, "mailstead.db": &costs.Database} {
		for _, file := range rig.Glob(t, filepath.Join(s.data, kind)) {
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			*mib += float64(info.Size()) / (1 << 20)
		}
	}
	began := time.Now()
	check := exec.Command(path, "check", "--data", s.data)
	var out bytes.Buffer
	check.Stdout, check.Stderr = &out, &out
	if err := check.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- check.Wait() }()
	for running := true; running; {
		select {
		case err := <-ended:
			running = false
			if err != nil {
				t.Errorf("check: %v %s", err, out.String())
			}
		case <-time.After(50 * time.Millisecond):
			costs.CheckMemory = max(costs.CheckMemory, rig.ProcStatus(check.Process.Pid)["RssAnon:"]/1024)
		}
	}
	costs.Check = time.Since(began).Seconds()
	line, err := json.Marshal(costs)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("costs %s", line)
	for name, share := range map[string]float64{"a backup": costs.BesideBackup, "compaction": costs.BesideCompact} {
		if whole && share < 0.8 {
			t.Errorf("beside %s mail comes in at %.2f of the rate without, want 0.8", name, share)
		}
	}
}

// receive has mail come in over eight connections, as much as the server takes, until do returns,
// and gives the messages a second.
func (l *load) receive(s *scale, text string, do func()) (rate float64) {
	ctx, cancel := context.WithCancel(l.t.Context())
	l.rate = 1e9
	l.mailIn(ctx, s, text)
	came, began := l.came.Load(), time.Now()
	do()
	rate = float64(l.came.Load()-came) / time.Since(began).Seconds()
	cancel()
	l.all.Wait()
	return rate
}

// bring hands the server n messages for one mailbox.
func (l *load) bring(email string, n int, text string) {
	var all sync.WaitGroup
	for k := range 8 {
		c := &courier{addr: l.Ready.SMTP, longest: 100}
		all.Go(func() {
			defer c.leave()
			for m := k; m < n; m += 8 {
				if err := c.send("s@elsewhere.test", []string{email}, fmt.Sprintf("From: s@elsewhere.test\r\nSubject: bulk %d\r\n\r\n%s", m, text)); err != nil {
					l.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// empty deletes two thirds of the newest n messages of a mailbox.
func (l *load) empty(email string, n int) {
	l.t.Helper()
	c := l.ReadMail(email, scalePassword)
	defer c.Close()
	selected, err := c.Select("INBOX", nil).Wait()
	if err != nil {
		l.t.Fatal(err)
	}
	block := n / 40
	for first := int(selected.NumMessages) - n + 1; first <= int(selected.NumMessages); first += block {
		var gone imap.SeqSet
		gone.AddRange(uint32(first), uint32(min(first+block*2/3, int(selected.NumMessages))))
		if err := c.Store(gone, &imap.StoreFlags{Op: imap.StoreFlagsAdd, Silent: true, Flags: []imap.Flag{imap.FlagDeleted}}, nil).Close(); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := c.Expunge().Close(); err != nil {
		l.t.Fatal(err)
	}
}

// segmentsMoved gives a counter of the segments that the server says it has compacted from now on.
// It reads each line of the log once: the log is large, and who reads it takes processor time.
func (l *load) segmentsMoved() (count func() int) {
	log, err := os.Open(l.Log.Name())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { log.Close() })
	if _, err := log.Seek(0, io.SeekEnd); err != nil {
		l.t.Fatal(err)
	}
	moved, lines, rest := 0, bufio.NewReader(log), ""
	return func() int {
		for {
			line, err := lines.ReadString('\n')
			rest += line
			if err == io.EOF {
				return moved
			}
			if err != nil {
				l.t.Fatal(err)
			}
			if strings.Contains(rest, "live messages were moved out of a segment") {
				moved++
			}
			rest = ""
		}
	}
}

// cpu is how much processor time the server has used.
func (l *load) cpu() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", l.Cmd.Process.Pid))
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	if err != nil || len(fields) < 13 {
		l.t.Fatalf("%v: %s", err, text)
	}
	ticks := 0
	for _, field := range fields[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.Atoi(field)
		if err != nil {
			l.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
