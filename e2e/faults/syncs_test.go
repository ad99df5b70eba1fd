package faults

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/mailstead/mailstead/e2e/rig"
)

// A syscallTrace is what strace has written down of a server.
type syscallTrace struct {
	t   *testing.T
	out string
	cmd *exec.Cmd
}

// trace begins to write down the server's reads, writes and syncs.
func trace(i *rig.Instance, strace string) *syscallTrace {
	i.T.Helper()
	tr := &syscallTrace{t: i.T, out: filepath.Join(i.T.TempDir(), "trace")}
	tr.cmd = exec.Command(strace, "-f", "-y", "-s", "48", "-e", "trace=fsync,fdatasync,write,sync_file_range,msync", "-o", tr.out, "-p", strconv.Itoa(i.Cmd.Process.Pid))
	said, err := tr.cmd.StderrPipe()
	if err != nil {
		i.T.Fatal(err)
	}
	if err := tr.cmd.Start(); err != nil {
		i.T.Fatal(err)
	}
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil || !strings.Contains(line, "attached") {
		if os.Getenv("CI") == "true" {
			i.T.Fatalf("strace: %q, %v", line, err)
		}
		i.T.Skipf("strace: %q, %v", line, err)
	}
	return tr
}

var syncCall = regexp.MustCompile(`^(\d+) +f(?:data)?sync\(\d+<([^>]*)>`)

// syncsBefore gives the files whose syncs have ended between a write that begins with `from`, and
// the next one that begins with `to`, and those whose syncs had begun but not ended.
func syncsBefore(text, from, to string) (files []string, running int, found bool) {
	open := map[string]string{} // by thread
	begun := from == ""
	for line := range strings.Lines(text) {
		if from != "" && strings.Contains(line, ` write(`) && strings.Contains(line, `"`+from) {
			begun, files = true, nil
			continue
		}
		if m := syncCall.FindStringSubmatch(line); m != nil {
			if strings.Contains(line, "unfinished") {
				open[m[1]] = m[2]
			} else if strings.Contains(line, "= 0") {
				files = append(files, filepath.Base(m[2]))
			}
		}
		if thread, _, _ := strings.Cut(line, " "); strings.Contains(line, "sync resumed>") && strings.Contains(line, "= 0") {
			files = append(files, filepath.Base(open[thread]))
			delete(open, thread)
		}
		if begun && strings.Contains(line, ` write(`) && strings.Contains(line, `"`+to) {
			return files, len(open), true
		}
	}
	return files, len(open), false
}

// TestNothingIsAcknowledgedBeforeItsSync reads what the kernel saw: mail from outside needs one
// sync, of its segment; whatever else is acknowledged, one of the database.
func TestNothingIsAcknowledgedBeforeItsSync(t *testing.T) {
	strace := rig.Peer(t, "strace")
	i, box := rig.StartWithMailbox(t)
	c := i.ReadMail("ann@example.test", "correct horse")
	traced := func(do func()) string {
		t.Helper()
		time.Sleep(300 * time.Millisecond) // so that the work begun before has ended
		tr := trace(i, strace)
		do()
		time.Sleep(200 * time.Millisecond) // so that its work after the answer is in the trace
		if err := tr.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		_ = tr.cmd.Wait() // by the signal
		text, err := os.ReadFile(tr.out)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	// Mail from outside, of which a connection brings one at a time. A segment's first message also
	// needs the syncs that make the file.
	if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("first")); err != nil {
		t.Fatal(err)
	}
	// The rows are made beside it, and now and then are faster than the answer: of ten messages one
	// at least has had no other sync before it.
	alone := false
	for n := 0; n < 10 && !alone; n++ {
		text := traced(func() {
			if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter(fmt.Sprint("one", n))); err != nil {
				t.Fatal(err)
			}
		})
		files, running, found := syncsBefore(text, "354 ", "250 2.0.0 OK: queued as")
		segments := 0
		for _, name := range files {
			if strings.HasSuffix(name, ".seg") {
				segments++
			}
		}
		if !found || segments != 1 {
			t.Errorf("message %d: before its 250 there were syncs of %q, and %d were running\n%s", n, files, running, text)
		}
		alone = len(files)+running == 1
	}
	if !alone {
		t.Error("no message was acknowledged after one sync alone")
	}

	for name, test := range map[string]struct {
		to string
		do func()
	}{
		"send_email": {"HTTP/1.1 200", func() {
			i.Want(200, "POST", "/v1/email-users/"+box+"/inbox/send", map[string]any{"to": []string{"bob@elsewhere.test"}, "subject": "s", "body": "b"}, nil)
		}},
		"a mailbox": {"HTTP/1.1 201", func() { i.AddMailbox("bea@example.test", "correct horse") }},
		"a change": {"HTTP/1.1 200", func() {
			i.Want(200, "PATCH", "/v1/email-users/"+box, map[string]any{"name": "Ann"}, nil)
		}},
		"APPEND": {"T", func() { appendMail(t, c, "a draft") }},
	} {
		text := traced(test.do)
		files, _, found := syncsBefore(text, "", test.to)
		if !found || !strings.Contains(strings.Join(files, " "), "mailstead.db") {
			t.Errorf("%s: before %q there were syncs of %q\n%s", name, test.to, files, text)
		}
	}
}

func appendMail(t *testing.T, c *imapclient.Client, subject string) {
	t.Helper()
	text := rig.Letter(subject)
	cmd := c.Append("INBOX", int64(len(text)), nil)
	if _, err := cmd.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}
