package faults

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/mailstead/mailstead/e2e/rig"
)

// TestMessagesThatDoNotEnd: what is cut, endless or too large is not stored, and the server goes
// on.
func TestMessagesThatDoNotEnd(t *testing.T) {
	t.Parallel()
	i, box := rig.StartWithMailbox(t)
	t.Run("endless command", func(t *testing.T) {
		c := rig.TalkTo(t, i.Ready.SMTP)
		go func() { _, _ = io.CopyN(c, zeros{}, 8<<20) }()
		if code, text := c.Hear(); code != 421 && code != 500 {
			t.Errorf("%d %s", code, text)
		}
	})
	t.Run("endless line", func(t *testing.T) {
		c := rig.TalkTo(t, i.Ready.SMTP)
		c.Envelope(t, "ann@example.test")
		c.Say("DATA")
		go func() {
			_, _ = io.CopyN(c, zeros{}, 8<<20)
			_, _ = io.WriteString(c, "\r\n.\r\n")
		}()
		if code, text := c.Hear(); code < 500 {
			t.Errorf("%d %s", code, text)
		}
	})
	t.Run("40 MB", func(t *testing.T) {
		c := rig.TalkTo(t, i.Ready.SMTP)
		if code, text := c.Say("MAIL FROM:<bob@elsewhere.test> SIZE=40000000"); code != 552 {
			t.Errorf("MAIL with SIZE: %d %s", code, text)
		}
		c.Envelope(t, "ann@example.test")
		c.Say("DATA")
		if code, text := c.Say(bulk("too large", 40e6) + "."); code != 552 {
			t.Errorf("message: %d %s", code, text)
		}
		if code, text := c.Say("NOOP"); code != 250 && code != 0 && code != 421 {
			t.Errorf("afterwards: %d %s", code, text)
		}
	})
	for name, begin := range map[string]string{"DATA": "DATA\r\n", "BDAT": "BDAT 5000\r\n", "BDAT LAST": "BDAT 5000 LAST\r\n"} {
		t.Run("half-closed in "+name, func(t *testing.T) {
			c := rig.TalkTo(t, i.Ready.SMTP)
			c.Envelope(t, "ann@example.test")
			_, _ = io.WriteString(c, begin)
			if name == "DATA" {
				c.Hear()
			}
			_, _ = io.WriteString(c, rig.Letter("cut in "+name))
			_ = c.Conn.(*net.TCPConn).CloseWrite()
			if code, text := c.Hear(); code == 250 {
				t.Errorf("a message that was cut: %s", text)
			}
		})
	}
	if rows := i.Inbox(box); len(rows) != 0 {
		t.Errorf("stored: %+v", rows)
	}
	if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("well")); err != nil {
		t.Error(err)
	}
	if rows := i.Inbox(box); len(rows) != 1 || rows[0].Subject != "well" {
		t.Errorf("the inbox: %+v", rows)
	}
}

// zeros is an endless line.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// TestNothingIsSmuggled: whatever looks like the end of a message to some servers does not end it
// here.
func TestNothingIsSmuggled(t *testing.T) {
	t.Parallel()
	i, box := rig.StartWithMailbox(t)
	ends := []string{"\n.\n", "\r\n.\n", "\n.\r\n", "\r.\r", "\r\n.\r", "\r.\r\n", "\r\n\x00.\r\n", "\r\n.\x00\r\n", "\r\n.\r\r\n", "\r\r\n.\r\r\n", "\n\n.\n\n", "\r\n.\v\n"}
	for n, end := range ends {
		c := rig.TalkTo(t, i.Ready.SMTP)
		c.Envelope(t, "ann@example.test")
		c.Say("DATA")
		hidden := "MAIL FROM:<admin@example.test>\r\nRCPT TO:<ann@example.test>\r\nDATA\r\nSubject: smuggled\r\n\r\nhello\r\n.\r\n"
		_, _ = io.WriteString(c, rig.Letter(fmt.Sprintf("outer %d", n))+"text"+end+hidden)
		code, text := c.Hear()
		if code != 250 {
			t.Logf("%q is refused: %s", end, text)
		}
		c.Close()
	}
	for _, r := range i.Inbox(box) {
		if !strings.HasPrefix(r.Subject, "outer") {
			t.Errorf("%+v was smuggled in", r)
		}
	}
	i.Check()
}

// TestTooManyOfEverything: recipients, guesses, connections.
func TestTooManyOfEverything(t *testing.T) {
	t.Parallel()
	i, box := rig.StartWithMailbox(t)
	t.Run("2000 recipients", func(t *testing.T) {
		c := rig.TalkTo(t, i.Ready.SMTP)
		c.Say("MAIL FROM:<bob@elsewhere.test>")
		taken := 0
		for n := range 2000 {
			code, text := c.Say(fmt.Sprintf("RCPT TO:<ann+%d@example.test>", n))
			if code == 250 {
				taken++
			} else if code != 452 {
				t.Fatalf("recipient %d: %d %s", n, code, text)
			}
			if code != 250 && n > 1100 {
				break
			}
		}
		c.Say("DATA")
		if code, text := c.Say(rig.Letter("to many") + "."); code != 250 || taken != 1000 {
			t.Errorf("%d recipients: %s", taken, text)
		}
		if rows := i.Inbox(box); len(rows) != 1 {
			t.Errorf("a mailbox got it %d times", len(rows))
		}
	})
	t.Run("guesses", func(t *testing.T) {
		c := rig.TalkTo(t, i.Ready.SMTP)
		c.Say("MAIL FROM:<bob@elsewhere.test>")
		for n := range 100 {
			code, text := c.Say(fmt.Sprintf("RCPT TO:<nobody%d@example.test>", n))
			if code == 421 {
				return
			}
			if code != 550 {
				t.Fatalf("guess %d: %d %s", n, code, text)
			}
		}
		t.Error("a hundred guesses were answered")
	})
	t.Run("STARTTLS without certificate", func(t *testing.T) {
		c := rig.TalkTo(t, i.Ready.SMTP)
		if _, text := c.Say("EHLO x.test"); strings.Contains(text, "STARTTLS") {
			t.Errorf("offered: %s", text)
		}
		if code, text := c.Say("STARTTLS"); code < 500 && code != 454 {
			t.Errorf("%d %s", code, text)
		}
		if code, text := c.Say("NOOP"); code != 250 {
			t.Errorf("afterwards: %d %s", code, text)
		}
	})
	t.Run("idle and slow connections", func(t *testing.T) {
		before := i.Memory("VmRSS")
		for n := range 600 {
			c := rig.Dial(t, i.Ready.SMTP)
			if n%10 != 0 {
				continue
			}
			c.Hear()
			go func() { // a slow one: a byte at a time of a message
				c.Say("EHLO slow.test")
				c.Say("MAIL FROM:<slow@elsewhere.test>")
				c.Say("RCPT TO:<ann@example.test>")
				c.Say("DATA")
				for k := 0; ; k++ {
					if _, err := io.WriteString(c, "x"); err != nil || k > 100 {
						return
					}
					time.Sleep(50 * time.Millisecond) // a slow client
				}
			}()
		}
		start := time.Now()
		if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", rig.Letter("beside them")); err != nil {
			t.Fatal(err)
		}
		t.Logf("beside 600 connections a message took %s, memory went from %d to %d MiB", time.Since(start), before, i.Memory("VmRSS"))
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("it took %s", took)
		}
	})
	if rows := i.Inbox(box); len(rows) != 2 {
		t.Errorf("the inbox: %+v", rows)
	}
}

// bombs are messages that parsers break on.
func bombs() map[string]string {
	nest := func(n int, kind string) string {
		var b strings.Builder
		b.WriteString("From: a@b.test\r\nMIME-Version: 1.0\r\n")
		for k := range n {
			if kind == "rfc822" {
				b.WriteString("Content-Type: message/rfc822\r\n\r\n")
				continue
			}
			fmt.Fprintf(&b, "Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n", k, k)
		}
		return b.String() + "\r\ndeep\r\n"
	}
	head := "From: a@b.test\r\nMIME-Version: 1.0\r\n"
	return map[string]string{
		"deep multipart":      nest(20_000, "multipart"),
		"deep rfc822":         nest(20_000, "rfc822"),
		"many parts":          head + "Content-Type: multipart/mixed; boundary=b\r\n\r\n" + strings.Repeat("--b\r\n\r\nx\r\n", 200_000) + "--b--\r\n",
		"empty boundary":      head + "Content-Type: multipart/mixed; boundary=\"\"\r\n\r\n" + strings.Repeat("--\r\n", 100_000),
		"long header":         head + "X: " + strings.Repeat("y", 60_000) + "\r\n" + strings.Repeat("Z: "+strings.Repeat("y", 900)+"\r\n", 3000) + "\r\nx\r\n",
		"many headers":        head + strings.Repeat("Received: x\r\n", 20) + strings.Repeat("A: b\r\n", 200_000) + "\r\nx\r\n",
		"no header":           strings.Repeat("not a header\r\n", 1000),
		"only CRLF":           "\r\n",
		"huge address list":   "From: a@b.test\r\nTo: " + strings.Repeat("a@b.test,\r\n ", 100_000) + "c@d.test\r\n\r\nx\r\n",
		"nested comments":     "From: " + strings.Repeat("(", 30_000) + "a@b.test\r\n\r\nx\r\n",
		"encoded words":       "From: a@b.test\r\nSubject: " + strings.Repeat("=?utf-8?q?=e2=82?=\r\n ", 20_000) + "\r\n\r\nx\r\n",
		"split parameters":    head + "Content-Disposition: attachment" + strings.Repeat(";\r\n filename*0*=utf-8''x", 20_000) + "\r\n\r\nx\r\n",
		"bad base64":          head + "Content-Type: text/html\r\nContent-Transfer-Encoding: base64\r\n\r\n" + strings.Repeat("!!!!====AAAA\r\n", 50_000),
		"unknown charset":     head + "Content-Type: text/plain; charset=klingon\r\n\r\n\xff\xfe\x00\x80\r\n",
		"html that is nested": head + "Content-Type: text/html\r\n\r\n" + strings.Repeat(strings.Repeat("<div>", 200)+"\r\n", 1000),
		"bytes":               "\xff\xfe: \x80\r\nFrom: \x80@\xff\r\nSubject: \x80\xff\r\n\r\n\x80\xff\r\n",
	}
}

// TestBrokenMail: mail of any form is taken, and served by the API and by IMAP without an error and
// in little processor time.
func TestBrokenMail(t *testing.T) {
	t.Parallel()
	i, box := rig.StartWithMailbox(t)
	for name, text := range bombs() {
		start := processorTime(i)
		if err := rig.Transmit(i.Ready.SMTP, "ann@example.test", text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if took := processorTime(i) - start; took > 2*time.Second {
			t.Errorf("%s took %s to be received", name, took)
		}
	}
	served := 0
	c := i.ReadMail("ann@example.test", "correct horse")
	for _, folder := range []string{"INBOX", "Junk"} { // where mail goes whose author cannot be made out
		s, err := c.Select(folder, nil).Wait()
		if err != nil {
			t.Fatal(err)
		}
		for n := range s.NumMessages {
			readBroken(i, c, n+1)
			served++
		}
	}
	if served != len(bombs()) {
		t.Errorf("%d of %d are stored", served, len(bombs()))
	}
	for _, r := range i.Inbox(box) {
		i.Want(200, "GET", "/v1/email-users/"+box+"/inbox/"+r.UID, nil, nil)
		i.Want(200, "PATCH", "/v1/email-users/"+box+"/inbox/"+r.UID, map[string]any{"is_read": true}, nil)
	}
	t.Logf("%d broken messages, at most %d MiB", served, i.Memory("VmHWM"))
	i.Check()
}

// readBroken fetches all that IMAP can tell of a message, and searches it.
func readBroken(i *rig.Instance, c *imapclient.Client, n uint32) {
	t := i.T
	t.Helper()
	start := processorTime(i)
	got, err := c.Fetch(imap.SeqSetNum(n), &imap.FetchOptions{
		Envelope: true, BodyStructure: &imap.FetchItemBodyStructure{Extended: true}, RFC822Size: true,
		BodySection: []*imap.FetchItemBodySection{{Peek: true}, {Peek: true, Part: []int{1}}, {Peek: true, Specifier: imap.PartSpecifierHeader}},
	}).Collect()
	if err != nil || len(got) != 1 {
		t.Fatalf("message %d: FETCH: %v, %d answers", n, err, len(got))
	}
	body := got[0].FindBodySection(&imap.FetchItemBodySection{Peek: true})
	if size := int64(len(body)); size != got[0].RFC822Size {
		t.Errorf("message %d: %d bytes, RFC822.SIZE %d", n, size, got[0].RFC822Size)
	}
	if _, err := c.Search(&imap.SearchCriteria{Text: []string{"hello"}}, nil).Wait(); err != nil {
		t.Errorf("message %d: SEARCH: %v", n, err)
	}
	if took := processorTime(i) - start; took > 2*time.Second {
		t.Errorf("message %d of %d bytes took %s to be served: %.200q", n, len(body), took, body)
	}
}

// TestLargeMailTakesLittleMemory: messages pass through, and are not held.
func TestLargeMailTakesLittleMemory(t *testing.T) {
	t.Parallel()
	if rig.Race {
		t.Skip("the race detector takes memory of its own")
	}
	i, box := rig.StartWithMailbox(t)
	before := i.Memory("VmHWM")
	message := bulk("large", 30<<20)
	all := func(n int, do func(n int) error) {
		var wg sync.WaitGroup
		for k := range n {
			wg.Go(func() {
				if err := do(k); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	all(20, func(int) error { return rig.Transmit(i.Ready.SMTP, "ann@example.test", message) })
	received := i.Memory("VmHWM")
	rows := i.Inbox(box)
	if len(rows) != 20 {
		t.Fatalf("%d messages", len(rows))
	}
	all(10, func(n int) error {
		c := i.ReadMail("ann@example.test", "correct horse")
		if _, err := c.Select("INBOX", nil).Wait(); err != nil {
			return err
		}
		f := c.Fetch(imap.SeqSetNum(uint32(n+1)), &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{{Peek: true}}})
		for m := f.Next(); m != nil; m = f.Next() {
			for item := m.Next(); item != nil; item = m.Next() {
				if s, ok := item.(interface{ Discard() }); ok {
					s.Discard()
				}
			}
		}
		return f.Close()
	})
	fetched := i.Memory("VmHWM")
	all(10, func(n int) error {
		i.Want(200, "GET", "/v1/email-users/"+box+"/inbox/"+rows[n].UID, nil, nil)
		return nil
	})
	t.Logf("memory at most: %d MiB at first, %d after 20 of 30 MiB came, %d after 10 were fetched, %d after the API showed 10", before, received, fetched, i.Memory("VmHWM"))
	if most := i.Memory("VmHWM"); most > 200 {
		t.Errorf("the process had %d MiB", most)
	}
}

// TestConnectionsLeaveNothing: connections that come and go leave no descriptors and no memory
// behind.
func TestConnectionsLeaveNothing(t *testing.T) {
	t.Parallel()
	i, _ := rig.StartWithMailbox(t)
	ports := []string{i.Ready.HTTP, i.Ready.SMTP, i.Ready.Submission, i.Ready.IMAP, i.Ready.DNS}
	visit := func(addr string, n int) {
		var wg sync.WaitGroup
		for k := range n {
			wg.Go(func() {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				if k%2 == 0 && addr != i.Ready.DNS { // which would wait for a message of that length
					_ = c.SetDeadline(time.Now().Add(5 * time.Second))
					_, _ = io.WriteString(c, "GET / x\r\n\r\n")
					_, _ = c.Read(make([]byte, 100)) // whatever it makes of that
				}
				c.Close()
			})
			if k%100 == 99 {
				wg.Wait()
			}
		}
		wg.Wait()
	}
	for _, addr := range ports {
		visit(addr, 10)
	}
	files, memory := i.OpenFiles(), i.Memory("VmRSS")
	for _, addr := range ports {
		visit(addr, 500)
	}
	i.Until("the descriptors are closed", func() bool { return i.OpenFiles() <= files+5 })
	t.Logf("descriptors: %d, then %d; memory: %d MiB, then %d", files, i.OpenFiles(), memory, i.Memory("VmRSS"))
	if now := i.Memory("VmRSS"); !rig.Race && now > memory+40 {
		t.Errorf("memory went from %d to %d MiB", memory, now)
	}
}

// TestLargeSendsTakeLittleMemory: requests that carry large files are not all held at once.
func TestLargeSendsTakeLittleMemory(t *testing.T) {
	t.Parallel()
	if rig.Race {
		t.Skip("the race detector takes memory of its own")
	}
	i, ann := rig.StartWithMailbox(t)
	file := base64.StdEncoding.EncodeToString(make([]byte, 24<<20))
	body, err := json.Marshal(map[string]any{"to": "x@far.test", "subject": "s", "text": "t", "attachments": []any{map[string]any{"filename": "f", "content": file}}})
	if err != nil {
		t.Fatal(err)
	}
	url, token := "http://"+i.Ready.HTTP+"/v1/email-users/"+ann+"/inbox/send", i.Token
	client := &http.Client{Timeout: 5 * time.Minute} // they wait for each other, and the machine may be busy
	var wg sync.WaitGroup
	start := time.Now()
	for range 8 {
		wg.Go(func() {
			for {
				req, err := http.NewRequest("POST", url, bytes.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+token)
				req.Header.Set("Content-Type", "application/json")
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				if resp.StatusCode == http.StatusTooManyRequests { // on a busy machine the others take longer than one may wait
					continue
				}
				if resp.StatusCode != 200 {
					t.Errorf("a large send: %s", resp.Status)
				}
				return
			}
		})
	}
	wg.Wait()
	t.Logf("8 sends of 24 MiB took %s and at most %d MiB", time.Since(start), i.Memory("VmHWM"))
	if most := i.Memory("VmHWM"); most > 450 {
		t.Errorf("the process had %d MiB", most)
	}
}
