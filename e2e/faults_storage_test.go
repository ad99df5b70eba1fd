package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
)

// inject has system calls of the running server fail or wait, as strace's -e inject says, until
// the function that it returns is called. If paths are given, only calls that concern these files.
func (i *instance) inject(strace, calls, fault string, paths ...string) (end func()) {
	i.t.Helper()
	args := []string{"-f", "-o", "/dev/null", "-e", "trace=" + calls, "-e", "inject=" + calls + ":" + fault}
	for _, path := range paths {
		args = append(args, "-P", path)
	}
	cmd := exec.Command(strace, append(args, "-p", strconv.Itoa(i.cmd.Process.Pid))...)
	said, err := cmd.StderrPipe()
	if err != nil {
		i.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		i.t.Fatal(err)
	}
	in := bufio.NewReader(said)
	for {
		line, err := in.ReadString('\n')
		if strings.Contains(line, "attached") {
			break
		}
		if err != nil && os.Getenv("CI") == "true" {
			i.t.Fatalf("strace does not attach: %s %v", line, err)
		} else if err != nil {
			i.t.Skipf("strace does not attach: %s %v", line, err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, in) }()
	return sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait() // by the signal
	})
}

// A faultReply is what somebody was told while something did not work.
type faultReply struct {
	Error struct {
		Code       string
		RetryAfter int `json:"retry_after"`
	}
}

// refusedByStorage demands that changes are refused for now, whichever way they come.
func (i *instance) refusedByStorage(box, smtpCodes, code string) {
	i.t.Helper()
	err := transmit(i.ready.SMTP, "ann@example.test", letter("refused"))
	if err == nil || !regexp.MustCompile(`: (?:`+strings.ReplaceAll(smtpCodes, " ", "|")+`) 4\.`).MatchString(err.Error()) {
		i.t.Errorf("mail from outside: %v, want one of %s", err, smtpCodes)
	}
	i.changeRefused(box, code)
}

// changeRefused is refusedByStorage for the API and IMAP.
func (i *instance) changeRefused(box, code string) {
	i.t.Helper()
	text, _ := json.Marshal(map[string]any{"to": "bob@far.test", "subject": "refused", "text": "t"})
	req, err := http.NewRequest("POST", "http://"+i.ready.HTTP+"/v1/email-users/"+box+"/inbox/send", bytes.NewReader(text))
	if err != nil {
		i.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+i.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := i.http.Do(req)
	if err != nil {
		i.t.Fatal(err)
	}
	defer resp.Body.Close()
	var told faultReply
	err = json.NewDecoder(resp.Body).Decode(&told)
	status := map[string]int{"storage_unavailable": 503, "storage_full": 507}[code]
	if seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || resp.StatusCode != status || told.Error.Code != code || seconds == 0 || told.Error.RetryAfter != seconds {
		i.t.Errorf("a send: %d %+v, Retry-After %q, %v; want %d %s", resp.StatusCode, told, resp.Header.Get("Retry-After"), err, status, code)
	}
	c := i.readMail("ann@example.test", "correct horse")
	defer c.Close()
	mail := letter("refused")
	a := c.Append("INBOX", int64(len(mail)), nil)
	_, _ = a.Write([]byte(mail))
	_ = a.Close()
	if _, err := a.Wait(); err == nil || !strings.Contains(err.Error(), string(imap.ResponseCodeUnavailable)) {
		i.t.Errorf("APPEND: %v, want NO [UNAVAILABLE]", err)
	}
}

// busyQueue has a job under way: a webhook whose receiver does not answer until answer is called.
func (i *instance) busyQueue() (answer func()) {
	i.t.Helper()
	receiver, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		i.t.Fatal(err)
	}
	asked, release := make(chan struct{}, 1), make(chan struct{})
	go func() {
		for {
			c, err := receiver.Accept()
			if err != nil {
				return
			}
			select {
			case asked <- struct{}{}:
			default:
			}
			<-release
			c.Close()
		}
	}()
	answer = sync.OnceFunc(func() { close(release) })
	i.t.Cleanup(func() {
		answer()
		receiver.Close()
	})
	i.want(201, "POST", "/v1/webhooks", map[string]any{"url": "https://" + receiver.Addr().String(), "events": []string{"email.received"}}, nil)
	if err := transmit(i.ready.SMTP, "ann@example.test", letter("told")); err != nil {
		i.t.Fatal(err)
	}
	select {
	case <-asked:
	case <-time.After(time.Minute):
		i.t.Fatal("the webhook was not called")
	}
	return answer
}

// outlivesItsQueue has a job end whose end cannot be stored, so that the queue ends.
func (i *instance) outlivesItsQueue(answer func()) {
	i.t.Helper()
	answer()
	i.until("the queue has ended", func() bool {
		text, err := os.ReadFile(i.log.Name())
		return err == nil && bytes.Contains(text, []byte("a part of the server has ended"))
	})
}

// readable demands that a message can be read by IMAP and the API, as it was.
func (i *instance) readable(box, subject string) {
	i.t.Helper()
	if got := i.subjects(box); !strings.Contains(" "+got+" ", " "+subject+" ") {
		i.t.Errorf("the API shows %q", got)
	}
	c := i.readMail("ann@example.test", "correct horse")
	defer c.Close()
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		i.t.Fatal(err)
	}
	section := &imap.FetchItemBodySection{Peek: true}
	list, err := c.Fetch(imap.SeqSetNum(1), &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{section}}).Collect()
	if err != nil || len(list) != 1 || !bytes.HasSuffix(list[0].FindBodySection(section), []byte(letter(subject))) {
		i.t.Errorf("FETCH: %v, %d messages", err, len(list))
	}
}

// worksAgain demands that everything is taken, that nothing refused is there, and that the store is
// whole.
func (i *instance) worksAgain(box string, want ...string) {
	i.t.Helper()
	if err := transmit(i.ready.SMTP, "ann@example.test", letter("again")); err != nil {
		i.t.Errorf("after the fault: %v", err)
	}
	i.want(200, "POST", "/v1/email-users/"+box+"/inbox/send", map[string]any{"to": "ann@example.test", "subject": "local", "text": "t"}, nil)
	i.until("local mail arrives", func() bool { return strings.Contains(i.subjects(box), "local") })
	have := map[string]int{}
	for _, r := range i.inbox(box) {
		have[r.Subject]++
	}
	for _, subject := range append(want, "again", "local") {
		if have[subject] != 1 {
			i.t.Errorf("%s is there %d times", subject, have[subject])
		}
	}
	i.check()
}

// TestFailedSync: after a sync that failed nothing is acknowledged until a restart, what is there
// can be read, and the health says so.
func TestFailedSync(t *testing.T) {
	t.Parallel()
	strace := peer(t, "strace")
	for name, file := range map[string]string{"segment": "segments/00000001.seg", "database": "mailstead.db"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, box := alone(t)
			if err := transmit(i.ready.SMTP, "ann@example.test", letter("before")); err != nil {
				t.Fatal(err)
			}
			i.readable(box, "before")
			answer := i.busyQueue()
			end := i.inject(strace, "fdatasync,fsync", "error=EIO:when=1", filepath.Join(i.dir, file))
			_ = transmit(i.ready.SMTP, "ann@example.test", letter("doubtful")) // may be acknowledged, if only its rows meet the fault
			i.until("the store has failed", func() bool { return i.do("GET", "/healthz", nil, nil) == 503 })
			end()
			i.refusedByStorage(box, "421 451", "storage_unavailable")
			i.outlivesItsQueue(answer)
			i.readable(box, "before")
			i.kill()
			i.start()
			i.readable(box, "before")
			i.worksAgain(box, "before")
		})
	}
}

// TestFailedWrite: a write that fails refuses what it was for, for now. Where it was one of a
// segment, the next one succeeds without a restart.
func TestFailedWrite(t *testing.T) {
	t.Parallel()
	strace := peer(t, "strace")
	for _, fault := range []string{"EIO", "EROFS"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			i, box := alone(t)
			if err := transmit(i.ready.SMTP, "ann@example.test", letter("before")); err != nil {
				t.Fatal(err)
			}
			i.readable(box, "before")
			end := i.inject(strace, "pwrite64", "error="+fault, filepath.Join(i.dir, "segments/00000001.seg"))
			i.refusedByStorage(box, "451 452", "storage_unavailable")
			i.readable(box, "before")
			end()
			i.worksAgain(box, "before")
			i.start()
			answer := i.busyQueue()
			end = i.inject(strace, "pwrite64", "error="+fault, filepath.Join(i.dir, "mailstead.db"))
			i.changeRefused(box, "storage_unavailable")
			end()
			i.outlivesItsQueue(answer)
			i.readable(box, "before")
			i.kill()
			i.start()
			if got := i.subjects(box); strings.Contains(got, "refused") {
				t.Errorf("what was refused is there: %s", got)
			}
			i.check()
		})
	}
}

// TestReadOnlyDisk: a file system that turns read-only under the server lets what is there be read
// and refuses changes for now. A start on one says what is wrong.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	disk := newSmallDisk(t, "ext4")
	i := newInstanceIn(t, disk.dir, generousLimits)
	i.addDomain("example.test")
	box := i.addMailbox("ann@example.test", "correct horse")
	if err := transmit(i.ready.SMTP, "ann@example.test", letter("before")); err != nil {
		t.Fatal(err)
	}
	i.readable(box, "before")
	if out, err := exec.Command("mount", "-o", "remount,abort", disk.dir).CombinedOutput(); err != nil {
		t.Logf("remount: %v %s", err, out) // it is aborted all the same
	}
	i.refusedByStorage(box, "421 451 452", "storage_unavailable")
	i.readable(box, "before")
	i.kill()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "serve", "--data", i.dir, "--http", "127.0.0.1:0").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "read-only file system") && !strings.Contains(string(out), "input/output error") {
		t.Errorf("serve on a disk that is read-only: %v, %s", err, out)
	}
	if err := syscall.Unmount(disk.dir, 0); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-o", "loop", disk.image, disk.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	i.start()
	i.readable(box, "before")
	i.worksAgain(box, "before")
}

// TestSlowDisk: while each sync takes long, mail is taken all the same, and who reads does not
// wait. make soak-faults has syncs of two seconds too.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	strace := peer(t, "strace")
	delays := []time.Duration{50 * time.Millisecond}
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		delays = append(delays, 2*time.Second)
	}
	for _, delay := range delays {
		t.Run(delay.String(), func(t *testing.T) {
			t.Parallel()
			i, box := alone(t)
			if err := transmit(i.ready.SMTP, "ann@example.test", letter("before")); err != nil {
				t.Fatal(err)
			}
			i.readable(box, "before")
			end := i.inject(strace, "fdatasync,fsync", fmt.Sprintf("delay_enter=%d", delay.Microseconds()))
			var senders sync.WaitGroup
			var want []string
			start := time.Now()
			for n := range 8 {
				subject := fmt.Sprint("slow", n)
				want = append(want, subject)
				senders.Go(func() {
					if err := transmit(i.ready.SMTP, "ann@example.test", letter(subject)); err != nil {
						t.Errorf("%s: %v", subject, err)
					}
				})
			}
			i.want(200, "POST", "/v1/email-users/"+box+"/inbox/send", map[string]any{"to": "x@far.test", "subject": "s", "text": "t"}, nil)
			senders.Wait()
			t.Logf("8 messages and a send took %s with syncs of %s", time.Since(start), delay)
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("they took %s", took)
			}
			i.until("all are there", func() bool { return len(i.inbox(box)) == 9 })
			end()
			i.worksAgain(box, append(want, "before")...)
		})
	}
}

// TestTooFewFiles: a server that may open only a few files refuses or keeps waiting whom it cannot
// serve, and serves again when others have gone.
func TestTooFewFiles(t *testing.T) {
	t.Parallel()
	i, box := alone(t)
	i.stop()
	i.before = []string{"sh", "-c", `ulimit -n 64; exec "$@"`, "sh"}
	i.start()
	if err := transmit(i.ready.SMTP, "ann@example.test", letter("before")); err != nil {
		t.Fatal(err)
	}
	held := talkTo(t, i.ready.SMTP)
	var crowd []net.Conn
	for range 100 {
		c, err := net.Dial("tcp", i.ready.IMAP)
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, c)
	}
	i.until("no file is left", func() bool { return i.files() >= 63 })

	// Who is connected already is served, or told to come again.
	subject, acked := "within", false
	held.envelope(t, "ann@example.test")
	held.say("DATA")
	switch code, text := held.say(bulk(subject, 1<<20) + "."); {
	case code == 250:
		acked = true
	case code/100 != 4:
		t.Errorf("with no file left: %d %s", code, text)
	}
	for _, c := range crowd {
		c.Close()
	}
	held.Close()
	i.until("files are free", func() bool { return i.files() < 50 })
	want := []string{"before"}
	if acked {
		want = append(want, subject)
	}
	i.until("it serves again", func() bool { return strings.Contains(i.subjects(box), "before") })
	i.worksAgain(box, want...)
}

// TestLittleMemory: a server with a limit of its memory takes large messages on many connections,
// or puts them off, and is not ended for it.
func TestLittleMemory(t *testing.T) {
	t.Parallel()
	if len(buildArgs) > 0 {
		t.Skip("the race detector takes memory of its own")
	}
	group := newMemoryGroup(t, 192<<20)
	dir, err := os.MkdirTemp("/var/tmp", "mailstead-test-") // files in memory would count
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	i := newInstanceIn(t, dir, generousLimits)
	i.addDomain("example.test")
	box := i.addMailbox("ann@example.test", "correct horse")
	i.stop()
	i.before = []string{"sh", "-c", `echo $$ >` + group + `/cgroup.procs; exec "$@"`, "sh"}
	i.env = []string{"GOMEMLIMIT=128MiB"}
	i.start()
	crowd, messages := 100, 6
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		crowd, messages = 1000, 40
	}
	for range crowd {
		c, err := net.Dial("tcp", i.ready.IMAP)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	var mu sync.Mutex
	var senders sync.WaitGroup
	var want []string
	put := 0
	for n := range messages {
		subject := fmt.Sprint("large", n)
		senders.Go(func() {
			err := transmit(i.ready.SMTP, "ann@example.test", bulk(subject, 20<<20))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				want = append(want, subject)
			case strings.HasPrefix(err.Error(), "message: 4"):
				put++
			default:
				t.Errorf("%s: %v", subject, err)
			}
		})
	}
	senders.Wait()
	t.Logf("%d messages of 20 MiB were taken, %d put off, memory at most %d MiB", len(want), put, i.memory("VmHWM"))
	if i.died() {
		t.Fatal("the server has ended")
	}
	i.worksAgain(box, want...)
}

// newMemoryGroup makes a control group that may have so many bytes.
func newMemoryGroup(t *testing.T, most int64) string {
	t.Helper()
	root, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(root); err != nil {
		root, file = "/sys/fs/cgroup", "memory.max"
	}
	group, err := os.MkdirTemp(root, "mailstead-test-")
	if err == nil {
		t.Cleanup(func() { _ = os.Remove(group) })
		err = os.WriteFile(filepath.Join(group, file), []byte(strconv.FormatInt(most, 10)), 0o600)
	}
	if err != nil {
		t.Skipf("no memory group can be made here: %v", err)
	}
	return group
}
