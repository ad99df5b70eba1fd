package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2/imapclient"
)

// A talk is a conversation with a server, word by word, for what no client library would say.
type talk struct {
	net.Conn
	r *bufio.Reader
}

// talkTo connects to an SMTP server and says EHLO.
func talkTo(t *testing.T, addr string) *talk {
	t.Helper()
	c := dial(t, addr)
	if code, text := c.hear(); code != 220 {
		t.Fatalf("greeting: %d %s", code, text)
	}
	if code, text := c.say("EHLO client.elsewhere.test"); code != 250 {
		t.Fatalf("EHLO: %d %s", code, text)
	}
	return c
}

func dial(t *testing.T, addr string) *talk {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return newTalk(conn)
}

func newTalk(conn net.Conn) *talk { return &talk{conn, bufio.NewReader(conn)} }

// say sends a line and hears the reply; the code is 0 when the connection has ended.
func (c *talk) say(line string) (code int, text string) {
	_, _ = io.WriteString(c, line+"\r\n") // what it comes to shows in the reply
	return c.hear()
}

// hear reads one reply of any number of lines.
func (c *talk) hear() (code int, text string) {
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return 0, text + err.Error()
		}
		text += line
		if len(line) > 3 && line[3] != '-' {
			code, _ = strconv.Atoi(line[:3])
			return code, text
		}
	}
}

// envelope says MAIL and RCPT and demands that they are taken.
func (c *talk) envelope(t *testing.T, to ...string) {
	t.Helper()
	if code, text := c.say("MAIL FROM:<bob@elsewhere.test>"); code != 250 {
		t.Fatalf("MAIL: %s", text)
	}
	for _, r := range to {
		if code, text := c.say("RCPT TO:<" + r + ">"); code != 250 {
			t.Fatalf("RCPT %s: %s", r, text)
		}
	}
}

// transmit hands a server one message for one recipient; the error tells the reply that refused it.
func transmit(addr, to, message string) error {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	c := newTalk(conn)
	c.hear()
	for _, step := range []struct {
		line string
		want int
	}{{"EHLO client.elsewhere.test", 250}, {"MAIL FROM:<bob@elsewhere.test>", 250}, {"RCPT TO:<" + to + ">", 250}, {"DATA", 354}} {
		if code, text := c.say(step.line); code != step.want {
			return fmt.Errorf("%s: %s", step.line, text)
		}
	}
	if code, text := c.say(message + "."); code != 250 {
		return fmt.Errorf("message: %s", text)
	}
	return nil
}

// letter is a small message with the subject.
func letter(subject string) string {
	return "From: bob@elsewhere.test\r\nSubject: " + subject + "\r\n\r\nhello\r\n"
}

// bulk is a message of about size bytes in lines of 76.
func bulk(subject string, size int) string {
	return letter(subject) + strings.Repeat(strings.Repeat("A", 76)+"\r\n", size/78)
}

// readMail logs in to a mailbox over IMAP.
func (i *instance) readMail(email, password string) *imapclient.Client {
	i.t.Helper()
	c, err := imapclient.DialInsecure(i.ready.IMAP, nil)
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() { c.Close() })
	if err := c.Login(email, password).Wait(); err != nil {
		i.t.Fatal(err)
	}
	return c
}

// memory reads a figure of /proc/PID/status in MiB: VmHWM is the most that the process had, VmRSS
// what it has.
func (i *instance) memory(field string) int {
	i.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", i.cmd.Process.Pid))
	if err != nil {
		i.t.Skip(err)
	}
	_, rest, _ := strings.Cut(string(text), field+":")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		i.t.Fatal(err)
	}
	return kib >> 10
}

// processorTime is what the process has used of the processors so far, in steps of 10 ms. It does
// not depend on what else the machine does.
func (i *instance) processorTime() time.Duration {
	i.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", i.cmd.Process.Pid))
	if err != nil {
		i.t.Skip(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var ticks int
	for _, field := range fields[11:13] { // utime and stime (proc(5)), in hundredths of a second
		n, err := strconv.Atoi(field)
		if err != nil {
			i.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// files counts the file descriptors of the process.
func (i *instance) files() int {
	i.t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", i.cmd.Process.Pid))
	if err != nil {
		i.t.Skip(err)
	}
	return len(list)
}

// check stops the server and demands that its store is whole.
func (i *instance) check() {
	i.t.Helper()
	i.stop()
	if out, code := mailstead(i.t, "check", "--data", i.dir); code != 0 || out != "ok\n" {
		i.t.Errorf("check: %d %s", code, out)
	}
}

// alone is an instance with one domain and one mailbox.
func alone(t *testing.T, args ...string) (i *instance, box string) {
	t.Helper()
	i = newInstance(t, generousLimits, args...)
	i.addDomain("example.test")
	return i, i.addMailbox("ann@example.test", "correct horse")
}
