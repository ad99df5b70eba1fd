package peers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/mailstead/mailstead/e2e/rig"
)

// clientVar is the value of a variable without which a test of a large client is skipped.
func clientVar(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Skip(name + " is not set")
	}
	return value
}

// TestMailutilCopiesFolders has c-client's mailutil copy 500 messages of a Dovecot into a folder,
// in one APPEND of all of them, and back. What is there then is what was there before: bytes,
// flags, keywords and dates, in order.
func TestMailutilCopiesFolders(t *testing.T) {
	t.Parallel()
	mailutil, script := rig.Peer(t, "mailutil"), rig.Peer(t, "script")
	c, d := startMailClient(t, "mailutil"), rig.StartDovecot(t, []string{"ann"})
	const messages = 500
	theirs, err := imapclient.DialInsecure(net.JoinHostPort("127.0.0.1", strconv.Itoa(d.Port)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if err := theirs.Login("ann", "secret").Wait(); err != nil {
		t.Fatal(err)
	}
	before := variedLetters(messages)
	for _, m := range before {
		a := theirs.Append("INBOX", int64(len(m.text)), &imap.AppendOptions{Flags: m.flags, Time: m.received})
		_, _ = io.WriteString(a, m.text)
		_ = a.Close()
		if _, err := a.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	ours := fmt.Sprintf("{%s:%s/imap/user=%s/notls}", c.Host, c.Port, rig.AnnsAddress)
	dovecots := fmt.Sprintf("{127.0.0.1:%d/imap/user=ann/notls}", d.Port)
	began := time.Now()
	withPasswords(c, script, mailutil, "copy", "-kw", dovecots+"INBOX", ours+"Copied")
	t.Logf("copying took %v", time.Since(began)) // 40 ms each more where acknowledgements are delayed
	far := c.LogIn()
	defer far.Close()
	sameLetters(t, before, lettersIn(t, far, "Copied"))
	withPasswords(c, script, mailutil, "move", "-kw", ours+"Copied", dovecots+"Back")
	sameLetters(t, before, lettersIn(t, theirs, "Back"))
	if left := mail(c)["Copied"]; len(left) > 0 {
		t.Errorf("%d messages were not moved", len(left))
	}
}

// withPasswords runs a program that asks a terminal for the passwords of ann at Dovecot and of
// ann@example.test.
func withPasswords(c *rig.MailClient, script string, command ...string) {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), 2*time.Minute)
	defer cancel()
	for i, arg := range command {
		command[i] = "'" + arg + "'"
	}
	cmd := exec.CommandContext(ctx, script, "--quiet", "--return", "--flush", "--command", strings.Join(command, " "), "/dev/null")
	cmd.Env = append(os.Environ(), "HOME="+c.T.TempDir(), "TERM=dumb")
	in, err := cmd.StdinPipe()
	if err != nil {
		c.T.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.T.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.T.Fatal(err)
	}
	var said bytes.Buffer
	prompt := regexp.MustCompile(`(?i)user="?(ann[^"} ]*)"?\}?\s*password: *$`)
	for buf := make([]byte, 4096); ; {
		n, err := out.Read(buf)
		said.Write(buf[:n])
		if asked := prompt.FindSubmatch(said.Bytes()); n > 0 && asked != nil {
			password := "secret"
			if string(asked[1]) == rig.AnnsAddress {
				password = rig.AnnsPassword
			}
			if _, err := io.WriteString(in, password+"\n"); err != nil {
				c.T.Fatal(err)
			}
		}
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		c.T.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, said.String())
	}
}

// A variedLetter is a message as a folder holds it.
type variedLetter struct {
	text     string
	flags    []imap.Flag
	received time.Time
}

// variedLetters makes small and large messages, with flags, keywords, dates of their own, and bytes
// above 127.
func variedLetters(n int) (list []variedLetter) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		m := variedLetter{received: time.Date(2020, 1, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(i) * 7001 * time.Second)}
		m.text = fmt.Sprintf("From: Bob <bob@elsewhere.test>\r\nTo: ann@example.test\r\nSubject: message %d\r\nMessage-ID: <%d@elsewhere.test>\r\nDate: %s\r\n\r\nHello %d, gr\u00fc\u00dfe\r\n",
			i, i, m.received.Format(time.RFC1123Z), i)
		for range r.IntN(40) {
			m.text += strings.Repeat("x", r.IntN(200)) + "\r\n"
		}
		if i%50 == 7 {
			m.text += strings.Repeat(strings.Repeat("y", 76)+"\r\n", 8000)
		}
		for k, flag := range []imap.Flag{"$Forwarded", "Work", imap.FlagAnswered, imap.FlagFlagged, imap.FlagSeen} { // sorted
			if i%(k+2) == 0 {
				m.flags = append(m.flags, flag)
			}
		}
		list = append(list, m)
	}
	return list
}

func lettersIn(t *testing.T, c *imapclient.Client, folder string) (list []variedLetter) {
	t.Helper()
	if _, err := c.Select(folder, &imap.SelectOptions{ReadOnly: true}).Wait(); err != nil {
		t.Fatal(err)
	}
	whole := &imap.FetchItemBodySection{Peek: true}
	got, err := c.Fetch(imap.SeqSet{{Start: 1}}, &imap.FetchOptions{Flags: true, InternalDate: true, BodySection: []*imap.FetchItemBodySection{whole}}).Collect()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range got {
		m.Flags = slices.DeleteFunc(m.Flags, func(f imap.Flag) bool { return f == "\\Recent" })
		slices.Sort(m.Flags)
		list = append(list, variedLetter{string(m.FindBodySection(whole)), m.Flags, m.InternalDate})
	}
	return list
}

func sameLetters(t *testing.T, want, got []variedLetter) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d messages, want %d", len(got), len(want))
	}
	for i, m := range got {
		if m.text != want[i].text || !slices.Equal(m.flags, want[i].flags) || !m.received.Equal(want[i].received) {
			t.Fatalf("message %d is %q %v %v, want %q %v %v", i, m.text, m.flags, m.received, want[i].text, want[i].flags, want[i].received)
		}
	}
}

// mboxOf writes messages as imaptest reads them.
func mboxOf(list []variedLetter) []byte {
	var out bytes.Buffer
	for _, m := range list {
		fmt.Fprintf(&out, "From bob@elsewhere.test %s\n%s\n", m.received.Format(time.ANSIC), strings.ReplaceAll(m.text, "\r\n", "\n"))
	}
	return out.Bytes()
}

// TestThunderbirdReadsLargeFolders plays what Thunderbird sends for a folder of 400 messages, once
// UTF8=ACCEPT is enabled: flags of all, headers in one batch, and names in UTF-8.
func TestThunderbirdReadsLargeFolders(t *testing.T) {
	t.Parallel()
	c := startMailClient(t, "Thunderbird")
	var subjects []string
	for i := range 400 {
		subjects = append(subjects, fmt.Sprintf("m%03d", i))
	}
	c.Put("INBOX", subjects...)
	text, err := os.ReadFile("testdata/imap/thunderbird-large.txt")
	if err != nil {
		t.Fatal(err)
	}
	c.Play(string(text))
	if n := len(mail(c)["INBOX"]); n != 301 {
		t.Errorf("INBOX has %d messages", n)
	}
	holds(c, "Trash", append(subjects[1:50:50], subjects[100:150]...)...)
	holds(c, "Eink\u00e4ufe & Post", append([]string{`m000 \Seen`}, subjects[1:10]...)...)
	holds(c, "Sent", `sent $Forwarded \Seen`)
}

// TestImaptestStress runs imaptest's random commands of many clients at once, with and without
// QRESYNC, for MAILSTEAD_MINUTES each. IMAPTEST names the program.
func TestImaptestStress(t *testing.T) {
	program := clientVar(t, "IMAPTEST")
	minutes := 1.0
	if text := os.Getenv("MAILSTEAD_MINUTES"); text != "" {
		var err error
		minutes, err = strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, qresync := range []string{"", "qresync"} {
		t.Run("qresync="+qresync, func(t *testing.T) {
			t.Parallel()
			c := startMailClient(t, "imaptest")
			for i := range 4 {
				c.AddMailbox(fmt.Sprintf("u%d@example.test", i+1), rig.AnnsPassword)
			}
			file := filepath.Join(t.TempDir(), "mbox")
			if err := os.WriteFile(file, mboxOf(variedLetters(200)), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"host=" + c.Host, "port=" + c.Port, "user=u%d@example.test", "users=1-4", "pass=" + rig.AnnsPassword, "mbox=" + file,
				"clients=20", "msgs=60", "copybox=Archive", fmt.Sprintf("secs=%d", int(minutes*60))}
			if qresync != "" {
				args = append(args, qresync)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration((minutes+2)*float64(time.Minute)))
			defer cancel()
			out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
			lines := strings.Split(strings.ReplaceAll(string(out), "\r", "\n"), "\n")
			t.Logf("%s: %v\n%s", strings.Join(args, " "), err, strings.Join(lines[max(0, len(lines)-12):], "\n"))
			wrong := regexp.MustCompile(`^(Error|Warning|Fatal|Panic): |: (Error|Unexpected) `)
			for _, line := range lines {
				if wrong.MatchString(line) {
					t.Error(line)
				}
			}
			if err != nil || !strings.Contains(string(out), "Totals:") {
				t.Errorf("imaptest: %v", err)
			}
		})
	}
}

// TestRoundcube drives the IMAP library of Roundcube. ROUNDCUBE names the directory that has its
// program.
func TestRoundcube(t *testing.T) {
	dir, php := clientVar(t, "ROUNDCUBE"), rig.Peer(t, "php")
	c := startMailClient(t, "Roundcube")
	c.Put("INBOX", "one", "two", "three", "four")
	for _, quota := range []int{0, 10 << 20} {
		if quota > 0 {
			c.Want(200, "PATCH", "/v1/email-users/"+c.Box, map[string]any{"quota_bytes": quota}, nil)
		}
		t.Log(runTool(c, t.TempDir(), php, absolute(t, "testdata/imap/roundcube.php"), dir, c.Host, c.Port, rig.AnnsAddress, rig.AnnsPassword, strconv.Itoa(quota)))
		holds(c, "INBOX", "one", "two", "three", "four")
		holds(c, "Trash")
	}
}

// A deltaChat is Delta Chat's core, which is told by lines of JSON what to do.
type deltaChat struct {
	t     *testing.T
	in    io.Writer
	n     int
	lines chan map[string]json.RawMessage
}

func newDeltaChat(t *testing.T, program string) *deltaChat {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "DC_ACCOUNTS_PATH="+filepath.Join(t.TempDir(), "accounts"), "RUST_LOG=error")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &deltaChat{t: t, in: in, lines: make(chan map[string]json.RawMessage, 100)}
	go func() {
		defer close(d.lines)
		r := bufio.NewReader(out)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			var m map[string]json.RawMessage
			if json.Unmarshal(line, &m) == nil {
				d.lines <- m
			}
		}
	}()
	t.Cleanup(func() {
		in.Close()
		for range d.lines {
		}
		_ = cmd.Wait()
	})
	return d
}

// call calls a method and reads its result into out.
func (d *deltaChat) call(out any, method string, params ...any) {
	d.t.Helper()
	d.n++
	if params == nil {
		params = []any{}
	}
	text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": d.n, "method": method, "params": params})
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.in.Write(append(text, '\n')); err != nil {
		d.t.Fatal(err)
	}
	for deadline := time.After(2 * time.Minute); ; {
		select {
		case m, ok := <-d.lines:
			switch {
			case !ok:
				d.t.Fatalf("%s: Delta Chat has ended", method)
			case string(m["id"]) != strconv.Itoa(d.n):
				continue
			case m["error"] != nil:
				d.t.Fatalf("%s: %s", method, m["error"])
			}
			if out != nil {
				if err := json.Unmarshal(m["result"], out); err != nil {
					d.t.Fatalf("%s: %v: %s", method, err, m["result"])
				}
			}
			return
		case <-deadline:
			d.t.Fatalf("%s: no answer", method)
		}
	}
}

// account makes an account for a mailbox and starts it.
func (d *deltaChat) account(c *rig.MailClient, address string) (id int) {
	d.t.Helper()
	imapPort, _ := strconv.Atoi(c.Port)
	_, submission, _ := strings.Cut(c.Ready.Submission, ":")
	smtpPort, _ := strconv.Atoi(submission)
	d.call(&id, "add_account")
	d.call(nil, "set_config", id, "displayname", strings.Split(address, "@")[0])
	d.call(nil, "add_or_update_transport", id, map[string]any{"addr": address, "password": rig.AnnsPassword, "imapServer": c.Host, "imapPort": imapPort, "imapSecurity": "plain",
		"smtpServer": c.Host, "smtpPort": smtpPort, "smtpSecurity": "plain"})
	d.call(nil, "start_io", id)
	return id
}

type deltaMessage struct {
	ID          int    `json:"id"`
	ChatID      int    `json:"chatId"`
	Text        string `json:"text"`
	ShowPadlock bool   `json:"showPadlock"`
	FileBytes   int    `json:"fileBytes"`
	File        string `json:"file"`
	State       int    `json:"state"`
}

// awaitMessage waits for a message with the text in any chat of an account.
func (d *deltaChat) awaitMessage(account int, text string) (m deltaMessage) {
	d.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		var chats []int
		d.call(&chats, "get_chatlist_entries", account, nil, nil, nil)
		for _, chat := range chats {
			var ids []int
			d.call(&ids, "get_message_ids", account, chat, false, false)
			for _, id := range ids {
				if d.call(&m, "get_message", account, id); m.Text == text {
					return m
				}
			}
		}
	}
	d.t.Fatalf("no message %q has come", text)
	return m
}

// TestDeltaChat has two accounts of Delta Chat's core meet by an invitation and write each other,
// encrypted, with a file, and read receipts go back. DELTACHAT names deltachat-rpc-server.
func TestDeltaChat(t *testing.T) {
	program := clientVar(t, "DELTACHAT")
	c := startMailClient(t, "Delta Chat")
	c.AddMailbox("bob@example.test", rig.AnnsPassword)
	near, far := newDeltaChat(t, program), newDeltaChat(t, program)
	ann, bob := near.account(c, rig.AnnsAddress), far.account(c, "bob@example.test")
	var qr string
	near.call(&qr, "get_chat_securejoin_qr_code", ann, nil)
	var chat int
	far.call(&chat, "secure_join", bob, qr)
	for deadline := time.Now().Add(2 * time.Minute); !far.canSend(bob, chat); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the two have not met")
		}
	}
	far.call(nil, "misc_send_text_message", bob, chat, "hello ann")
	m := near.awaitMessage(ann, "hello ann")
	if !m.ShowPadlock {
		t.Error("the message is not encrypted")
	}
	near.call(nil, "accept_chat", ann, m.ChatID)
	near.call(nil, "markseen_msgs", ann, []int{m.ID})
	file := filepath.Join(t.TempDir(), "file.bin")
	content := make([]byte, 300_000)
	for i := range content {
		content[i] = byte(i * i >> 3)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	near.call(nil, "send_msg", ann, m.ChatID, map[string]any{"text": "a file", "file": file, "viewtype": "File"})
	got := far.awaitMessage(bob, "a file")
	if got.FileBytes != len(content) {
		t.Errorf("a file of %d bytes has come", got.FileBytes)
	}
	if read, err := os.ReadFile(got.File); err != nil || !bytes.Equal(read, content) {
		t.Errorf("another file has come: %v, %s", err, base64.StdEncoding.EncodeToString(read[:min(len(read), 30)]))
	}
	for i := range 20 {
		near.call(nil, "misc_send_text_message", ann, m.ChatID, fmt.Sprint("to bob ", i))
		far.call(nil, "misc_send_text_message", bob, chat, fmt.Sprint("to ann ", i))
	}
	for i := range 20 {
		far.awaitMessage(bob, fmt.Sprint("to bob ", i))
		near.awaitMessage(ann, fmt.Sprint("to ann ", i))
	}
	const mdnReceived = 28
	for deadline := time.Now().Add(time.Minute); far.awaitMessage(bob, "hello ann").State != mdnReceived; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no read receipt has come")
		}
	}
}

// canSend tells whether an account may write into a chat: the handshake is over.
func (d *deltaChat) canSend(account, chat int) bool {
	d.t.Helper()
	var full struct {
		CanSend bool `json:"canSend"`
	}
	d.call(&full, "get_full_chat_by_id", account, chat)
	return full.CanSend
}
