package faults

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
	"github.com/mailstead/mailstead/e2e/rig"
)

// inject has system calls of the running server fail or wait, as strace's -e inject says, until
// the function that it returns is called. If paths are given, only calls that concern these files.
func inject(i *rig.Instance, strace, calls, fault string, paths ...string) (end func()) {
	i.T.Helper()
	args := []string{"-f", "-o", "/dev/null", "-e", "trace=" + calls, "-e", "inject=" + calls + ":" + fault}
	for _, path := range paths {
		args = append(args, "-P", path)
	}
	cmd := exec.Command(strace, append(args, "-p", strconv.Itoa(i.Cmd.Process.Pid))...)
	said, err := cmd.StderrPipe()
	if err != nil {
		i.T.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		i.T.Fatal(err)
	}
	in := bufio.NewReader(said)
	for {
		line, err := in.ReadString('\n')
		if strings.Contains(line, "attached") {
			break
		}
		if err != nil && os.Getenv("CI") == "true" {
			i.T.Fatalf("strace does not attach: %s %v", line, err)
		} else if err != nil {
			i.T.Skipf("strace does not attach: %s %v", line, err)
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
func refusedByStorage(i *rig.Instance, box, smtpCodes, code string) {
	i.T.Helper()
	err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("refused"))
	if err == nil || !regexp.MustCompile(`: (?:`+strings.ReplaceAll(smtpCodes, " ", "|")+`) 4\.`).MatchString(err.Error()) {
		i.T.Errorf("mail from outside: %v, want one of %s", err, smtpCodes)
	}
	changeRefused(i, box, code)
}

// changeRefused is refusedByStorage for the API and IMAP.
func changeRefused(i *rig.Instance, box, code string) {
	i.T.Helper()
	text, _ := json.Marshal(map[string]any{"to": "bob@far.test", "subject": "refused", "text": "t"})
	req, err := http.NewRequest("POST", "http://"+i.Ready.HTTP+"/v1/email-users/"+box+"/inbox/send", bytes.NewReader(text))
	if err != nil {
		i.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+i.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := i.HTTP.Do(req)
	if err != nil {
		i.T.Fatal(err)
	}
	defer resp.Body.Close()
	var told faultReply
	err = json.NewDecoder(resp.Body).Decode(&told)
	status := map[string]int{"storage_unavailable": 503, "storage_full": 507}[code]
	if seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || resp.StatusCode != status || told.Error.Code != code || seconds == 0 || told.Error.RetryAfter != seconds {
		i.T.Errorf("a send: %d %+v, Retry-After %q, %v; want %d %s", resp.StatusCode, told, resp.Header.Get("Retry-After"), err, status, code)
	}
	c := i.ReadMail("ann@example.test", "correct horse")
	defer c.Close()
	mail := rig.Letter("refused")
	a := c.Append("INBOX", int64(len(mail)), nil)
	_, _ = a.Write([]byte(mail))
	_ = a.Close()
	if _, err := a.Wait(); err == nil || !strings.Contains(err.Error(), string(imap.ResponseCodeUnavailable)) {
		i.T.Errorf("APPEND: %v, want NO [UNAVAILABLE]", err)
	}
}

// busyQueue has a job under way: a webhook whose receiver does not answer until answer is called.
func busyQueue(i *rig.Instance) (answer func()) {
	i.T.Helper()
	receiver, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		i.T.Fatal(err)
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
	i.T.Cleanup(func() {
		answer()
		receiver.Close()
	})
	i.Want(201, "POST", "/v1/webhooks", map[string]any{"url": "https://" + receiver.Addr().String(), "events": []string{"email.received"}}, nil)
	if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("told")); err != nil {
		i.T.Fatal(err)
	}
	select {
	case <-asked:
	case <-time.After(time.Minute):
		i.T.Fatal("the webhook was not called")
	}
	return answer
}

// outlivesItsQueue has a job end whose end cannot be stored, so that the queue ends.
func outlivesItsQueue(i *rig.Instance, answer func()) {
	i.T.Helper()
	answer()
	i.Until("the queue has ended", func() bool {
		text, err := os.ReadFile(i.Log.Name())
		return err == nil && bytes.Contains(text, []byte("a part of the server has ended"))
	})
}

// readable demands that a message can be read by IMAP and the API, as it was.
func readable(i *rig.Instance, box, subject string) {
	i.T.Helper()
	if got := subjects(i, box); !strings.Contains(" "+got+" ", " "+subject+" ") {
		i.T.Errorf("the API shows %q", got)
	}
	c := i.ReadMail("ann@example.test", "correct horse")
	defer c.Close()
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		i.T.Fatal(err)
	}
	section := &imap.FetchItemBodySection{Peek: true}
	list, err := c.Fetch(imap.SeqSetNum(1), &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{section}}).Collect()
	if err != nil || len(list) != 1 || !bytes.HasSuffix(list[0].FindBodySection(section), []byte(rig.Letter(subject))) {
		i.T.Errorf("FETCH: %v, %d messages", err, len(list))
	}
}

// worksAgain demands that everything is taken, that nothing refused is there, and that the store is
// whole.
func worksAgain(i *rig.Instance, box string, want ...string) {
	i.T.Helper()
	if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("again")); err != nil {
		i.T.Errorf("after the fault: %v", err)
	}
	i.Want(200, "POST", "/v1/email-users/"+box+"/inbox/send", map[string]any{"to": "ann@example.test", "subject": "local", "text": "t"}, nil)
	i.Until("local mail arrives", func() bool { return strings.Contains(subjects(i, box), "local") })
	have := map[string]int{}
	for _, r := range i.Inbox(box) {
		have[r.Subject]++
	}
	for _, subject := range append(want, "again", "local") {
		if have[subject] != 1 {
			i.T.Errorf("%s is there %d times", subject, have[subject])
		}
	}
	i.Check()
}

// TestFailedSync: after a sync that failed nothing is acknowledged until a restart, what is there
// can be read, and the health says so.
func TestFailedSync(t *testing.T) {
	t.Parallel()
	strace := rig.Peer(t, "strace")
	for name, file := range map[string]string{"segment": "segments/00000001.seg", "database": "mailstead.db"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, box := rig.StartWithMailbox(t)
			if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("before")); err != nil {
				t.Fatal(err)
			}
			readable(i, box, "before")
			answer := busyQueue(i)
			end := inject(i, strace, "fdatasync,fsync", "error=EIO:when=1", filepath.Join(i.Dir, file))
			_ = rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("doubtful")) // may be acknowledged, if only its rows meet the fault
			i.Until("the store has failed", func() bool { return i.Do("GET", "/healthz", nil, nil) == 503 })
			end()
			refusedByStorage(i, box, "421 451", "storage_unavailable")
			outlivesItsQueue(i, answer)
			readable(i, box, "before")
			i.Kill()
			i.Start()
			readable(i, box, "before")
			worksAgain(i, box, "before")
		})
	}
}

// TestFailedWrite: a write that fails refuses what it was for, for now. Where it was one of a
// segment, the next one succeeds without a restart.
func TestFailedWrite(t *testing.T) {
	t.Parallel()
	strace := rig.Peer(t, "strace")
	for _, fault := range []string{"EIO", "EROFS"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			i, box := rig.StartWithMailbox(t)
			if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("before")); err != nil {
				t.Fatal(err)
			}
			readable(i, box, "before")
			end := inject(i, strace, "pwrite64", "error="+fault, filepath.Join(i.Dir, "segments/00000001.seg"))
			refusedByStorage(i, box, "451 452", "storage_unavailable")
			readable(i, box, "before")
			end()
			worksAgain(i, box, "before")
			i.Start()
			answer := busyQueue(i)
			end = inject(i, strace, "pwrite64", "error="+fault, filepath.Join(i.Dir, "mailstead.db"))
			changeRefused(i, box, "storage_unavailable")
			end()
			outlivesItsQueue(i, answer)
			readable(i, box, "before")
			i.Kill()
			i.Start()
			if got := subjects(i, box); strings.Contains(got, "refused") {
				t.Errorf("what was refused is there: %s", got)
			}
			i.Check()
		})
	}
}

// TestReadOnlyDisk: a file system that turns read-only under the server lets what is there be read
// and refuses changes for now. A start on one says what is wrong.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	disk := newSmallDisk(t, "ext4")
	i := rig.StartIn(t, disk.dir, rig.GenerousLimits)
	i.AddDomain("example.test")
	box := i.AddMailbox("ann@example.test", "correct horse")
	if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("before")); err != nil {
		t.Fatal(err)
	}
	readable(i, box, "before")
	if out, err := exec.Command("mount", "-o", "remount,abort", disk.dir).CombinedOutput(); err != nil {
		t.Logf("remount: %v %s", err, out) // it is aborted all the same
	}
	refusedByStorage(i, box, "421 451 452", "storage_unavailable")
	readable(i, box, "before")
	i.Kill()
	path, err := rig.Binary()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "serve", "--data", i.Dir, "--http", "127.0.0.1:0", "--smtp", "off", "--submission", "off", "--imap", "off", "--dns", "off").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "read-only file system") && !strings.Contains(string(out), "input/output error") {
		t.Errorf("serve on a disk that is read-only: %v, %s", err, out)
	}
	if err := syscall.Unmount(disk.dir, 0); err != nil {
		t.Fatal(err)
	}
	// It is a copy, since the aborted file system is still mounted in the namespaces of tests that
	// have begun meanwhile, and mount would use it again.
	whole := disk.image + "-copy"
	if out, err := exec.Command("sh", "-c", "cp --sparse=always "+disk.image+" "+whole+" && mount -o loop "+whole+" "+disk.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	i.Start()
	readable(i, box, "before")
	worksAgain(i, box, "before")
}

// TestSlowDisk: while each sync takes long, mail is taken all the same, and who reads does not
// wait. make soak-faults has syncs of two seconds too.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	strace := rig.Peer(t, "strace")
	delays := []time.Duration{50 * time.Millisecond}
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		delays = append(delays, 2*time.Second)
	}
	for _, delay := range delays {
		t.Run(delay.String(), func(t *testing.T) {
			t.Parallel()
			i, box := rig.StartWithMailbox(t)
			if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("before")); err != nil {
				t.Fatal(err)
			}
			readable(i, box, "before")
			end := inject(i, strace, "fdatasync,fsync", fmt.Sprintf("delay_enter=%d", delay.Microseconds()))
			var senders sync.WaitGroup
			var want []string
			start := time.Now()
			for n := range 8 {
				subject := fmt.Sprint("slow", n)
				want = append(want, subject)
				senders.Go(func() {
					if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter(subject)); err != nil {
						t.Errorf("%s: %v", subject, err)
					}
				})
			}
			i.Want(200, "POST", "/v1/email-users/"+box+"/inbox/send", map[string]any{"to": "x@far.test", "subject": "s", "text": "t"}, nil)
			senders.Wait()
			t.Logf("8 messages and a send took %s with syncs of %s", time.Since(start), delay)
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("they took %s", took)
			}
			i.Until("all are there", func() bool { return len(i.Inbox(box)) == 9 })
			end()
			worksAgain(i, box, append(want, "before")...)
		})
	}
}

// TestTooFewFiles: a server that may open only a few files refuses or keeps waiting whom it cannot
// serve, and serves again when others have gone.
func TestTooFewFiles(t *testing.T) {
	t.Parallel()
	i, box := rig.StartWithMailbox(t)
	i.Stop()
	i.Wrapper = []string{"sh", "-c", `ulimit -n 64; exec "$@"`, "sh"}
	i.Start()
	if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("before")); err != nil {
		t.Fatal(err)
	}
	held := rig.TalkTo(t, i.Ready.SMTP)
	var crowd []net.Conn
	for range 100 {
		c, err := net.Dial("tcp", i.Ready.IMAP)
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, c)
	}
	i.Until("no file is left", func() bool { return i.OpenFiles() >= 63 })

	// Who is connected already is served, or told to come again.
	subject, acked := "within", false
	held.Envelope(t, "ann@example.test")
	held.Say("DATA")
	switch code, text := held.Say(bulk(subject, 1<<20) + "."); {
	case code == 250:
		acked = true
	case code/100 != 4:
		t.Errorf("with no file left: %d %s", code, text)
	}
	for _, c := range crowd {
		c.Close()
	}
	held.Close()
	i.Until("files are free", func() bool { return i.OpenFiles() < 50 })
	want := []string{"before"}
	if acked {
		want = append(want, subject)
	}
	i.Until("it serves again", func() bool { return strings.Contains(subjects(i, box), "before") })
	worksAgain(i, box, want...)
}

// TestLittleMemory: a server with a limit of its memory takes large messages on many connections,
// or puts them off, and is not ended for it.
func TestLittleMemory(t *testing.T) {
	t.Parallel()
	if rig.Race {
		t.Skip("the race detector takes memory of its own")
	}
	group := newMemoryGroup(t, 192<<20)
	dir, err := os.MkdirTemp("/var/tmp", "mailstead-test-") // files in memory would count
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	i := rig.StartIn(t, dir, rig.GenerousLimits)
	i.AddDomain("example.test")
	box := i.AddMailbox("ann@example.test", "correct horse")
	i.Stop()
	i.Wrapper = []string{"sh", "-c", `echo $$ >` + group + `/cgroup.procs; exec "$@"`, "sh"}
	i.Env = []string{"GOMEMLIMIT=128MiB"}
	i.Start()
	crowd, messages := 100, 6
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		crowd, messages = 1000, 40
	}
	for range crowd {
		c, err := net.Dial("tcp", i.Ready.IMAP)
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
			err := rig.Transmit(i.Ready.SMTP, "ann@example.test", bulk(subject, 20<<20))
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
	t.Logf("%d messages of 20 MiB were taken, %d put off, memory at most %d MiB", len(want), put, i.Memory("VmHWM"))
	if i.Died() {
		t.Fatal("the server has ended")
	}
	worksAgain(i, box, want...)
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
