package milter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const header = "From: a@b.test\r\nSubject: two\r\n  lines\r\nno field\r\n  of it\r\nX-Odd:no space\r\n"

func message(text string) *Message {
	return &Message{
		Hostname: "mx.test", IP: netip.MustParseAddr("192.0.2.1"), Port: 4711, Helo: "client.test", TLS: "TLS 1.3 X", QueueID: "rcv_1", From: "a@b.test",
		To: []string{"x@y.test", "z@y.test"}, Body: strings.NewReader(text), Size: int64(len(text)), MaxHeader: 1 << 20,
	}
}

// packet is one of the protocol.
func packet(kind byte, body string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)+1))) + string(kind) + body
}

func options(without uint32) string {
	b := binary.BigEndian.AppendUint32(nil, protocolVersion)
	b = binary.BigEndian.AppendUint32(b, allActions)
	return packet('O', string(binary.BigEndian.AppendUint32(b, without)))
}

// filter listens and lets serve have each connection.
func filter(t *testing.T, serve func(net.Conn)) *Client {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serve(c)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-ended
	})
	return &Client{Network: "tcp", Address: ln.Addr().String(), Timeout: 5 * time.Second}
}

// scripted answers every packet that wants an answer: c to all but the last, then the end's.
func scripted(without uint32, at byte, answer string, seen *[]string) func(net.Conn) {
	return func(c net.Conn) {
		for {
			var head [5]byte
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return
			}
			body := make([]byte, binary.BigEndian.Uint32(head[:])-1)
			if _, err := io.ReadFull(c, body); err != nil {
				return
			}
			kind := head[4]
			if seen != nil {
				*seen = append(*seen, string(kind)+strings.ReplaceAll(string(body), "\x00", "|"))
			}
			switch {
			case kind == 'Q':
				return
			case kind == 'O':
				io.WriteString(c, options(without))
			case kind == at:
				io.WriteString(c, answer)
			case kind != 'D' && without == 0:
				io.WriteString(c, packet('c', ""))
			}
		}
	}
}

// TestConversation shows all of a message, in order.
func TestConversation(t *testing.T) {
	var seen []string
	text := header + "\r\n" + strings.Repeat("body\r\n", 20_000)
	done := make(chan struct{})
	c := filter(t, func(c net.Conn) {
		defer close(done)
		scripted(0, 'E', packet('c', ""), &seen)(c)
	})
	v, err := c.Check(t.Context(), message(text))
	<-done
	if err != nil || v.Action != Accept {
		t.Fatalf("%+v, %v", v, err)
	}
	var kinds strings.Builder
	body := 0
	for _, s := range seen {
		kinds.WriteByte(s[0])
		if s[0] == 'B' {
			body += len(s) - 1
		}
	}
	if kinds.String() != "ODCDHDMDRDRTLLLNBBDEQ" || body != 120_000 {
		t.Errorf("%s, %d bytes of body", kinds.String(), body)
	}
	for _, want := range []string{"C[192.0.2.1]|4\x12g192.0.2.1|", "Hclient.test|", "M<a@b.test>|", "R<z@y.test>|", "LSubject|two\n  lines|", "LX-Odd|no space|", "DMi|rcv_1|{mail_addr}|a@b.test|"} {
		if !strings.Contains(strings.Join(seen, "\n"), want) {
			t.Errorf("it was not told %q: %.600q", want, seen)
		}
	}
}

// TestVerdicts takes what filters decide, whenever they do.
func TestVerdicts(t *testing.T) {
	for name, tc := range map[string]struct {
		without uint32
		at      byte
		answer  string
		want    Verdict
	}{
		"accept at once":    {0, 'C', packet('a', ""), Verdict{Action: Accept}},
		"reject at helo":    {0, 'H', packet('r', ""), Verdict{Action: Reject}},
		"later at mail":     {0, 'M', packet('t', ""), Verdict{Action: TempFail}},
		"recipient refused": {0, 'R', packet('r', ""), Verdict{Action: Accept, Ignored: []string{"a recipient refused"}}},
		"reply code":        {0, 'E', packet('y', "554 5.7.1 We\r\ndo not\x00"), Verdict{Action: Reject, Reply: "554 5.7.1 We  do not"}},
		"reply code, later": {0, 'N', packet('y', "451 4.7.1 Later\x00"), Verdict{Action: TempFail, Reply: "451 4.7.1 Later"}},
		"discard":           {0, 'E', packet('d', ""), Verdict{Action: Discard}},
		"enough of it":      {0, 'B', packet('s', ""), Verdict{Action: Accept}},
		"signs of life":     {0, 'E', packet('p', "") + packet('p', "") + packet('a', ""), Verdict{Action: Accept}},
		"few steps":         {allSteps &^ noBody, 'E', packet('a', ""), Verdict{Action: Accept}},
		"fields": {0, 'E', packet('h', "X-Spam\x00Yes\x00") + packet('i', "\x00\x00\x00\x01X-Score\x00 9\n\tof 10\nBcc: x\r\n\r\nbody\x00") + packet('c', ""),
			Verdict{Action: Accept, Fields: []Field{{"X-Spam", "Yes"}, {"X-Score", "9\r\n\tof 10\r\n\tBcc: x\r\n\tbody"}}}},
		"quarantine":      {0, 'E', packet('q', "looks bad\x00") + packet('a', ""), Verdict{Action: Accept, Quarantine: "looks bad"}},
		"no reason given": {0, 'E', packet('q', "") + packet('a', ""), Verdict{Action: Accept, Quarantine: "quarantine"}},
		"other changes": {0, 'E', packet('b', "new body") + packet('+', "<z@y>\x00") + packet('m', "\x00\x00\x00\x01Subject\x00x\x00") + packet('b', "more") + packet('c', ""),
			Verdict{Action: Accept, Ignored: []string{"another body", "another recipient", "a field changed"}}},
	} {
		v, err := filter(t, scripted(tc.without, tc.at, tc.answer, nil)).Check(t.Context(), message(header+"\r\nbody\r\n"))
		if err != nil || !reflect.DeepEqual(*v, tc.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, v, err, tc.want)
		}
	}
}

// TestBadFilters bounds those that do not keep to the protocol.
func TestBadFilters(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"hangs up":          func(net.Conn) {},
		"http":              func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") },
		"no bytes":          func(c net.Conn) { io.WriteString(c, "\x00\x00\x00\x00") },
		"huge":              func(c net.Conn) { io.WriteString(c, "\xff\xff\xff\xffO") },
		"announces much":    func(c net.Conn) { io.WriteString(c, "\x00\x03\xff\xffO") },
		"version 1":         func(c net.Conn) { io.WriteString(c, packet('O', "\x00\x00\x00\x01"+strings.Repeat("\x00", 8))) },
		"short negotiation": func(c net.Conn) { io.WriteString(c, packet('O', "\x00\x00\x00\x06")) },
		"unknown answer":    scripted(0, 'M', packet('Z', ""), nil),
		"many fields":       scripted(0, 'E', strings.Repeat(packet('h', "X\x00y\x00"), maxFields+1), nil),
		"long field":        scripted(0, 'E', packet('h', "X\x00"+strings.Repeat("y", maxValue+1)+"\x00"), nil),
		"field for two":     scripted(0, 'E', packet('h', "X: y\r\nBcc\x00y\x00"), nil),
		"field cut":         scripted(0, 'E', packet('h', "X\x00y"), nil),
		"place cut":         scripted(0, 'E', packet('i', "\x00"), nil),
	} {
		c := filter(t, serve)
		c.Timeout = 2 * time.Second
		if v, err := c.Check(t.Context(), message(header+"\r\nbody\r\n")); err == nil {
			t.Errorf("%s: %+v", name, v)
		}
	}
	for name, serve := range map[string]func(net.Conn){
		"silence":             func(c net.Conn) { io.Copy(io.Discard, c) },
		"signs of life alone": scripted(0, 'E', strings.Repeat(packet('p', ""), 1000), nil),
	} {
		c := filter(t, serve)
		c.Timeout = 300 * time.Millisecond
		began := time.Now()
		if v, err := c.Check(t.Context(), message(header+"\r\nbody\r\n")); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 5*time.Second {
			t.Errorf("%s: %+v, %v after %v", name, v, err, time.Since(began))
		}
	}
	if _, err := (&Client{Network: "tcp", Address: "127.0.0.1:1"}).Check(t.Context(), message("x")); err == nil {
		t.Error("nobody was there, and answered")
	}
}

// libmilter is a filter built on Sendmail's own library.
const libmilter = `
import sys, Milter
class Filter(Milter.Base):
    def envfrom(self, f, *rest):
        self.seen = ["from " + f, "id " + str(self.getsymval("i"))]
        return Milter.CONTINUE
    def envrcpt(self, to, *rest):
        self.seen.append("to " + to)
        return Milter.CONTINUE
    def header(self, name, value):
        self.seen.append(name + ":" + value.replace("\n", "~"))
        return Milter.CONTINUE
    def body(self, chunk):
        self.seen.append(str(len(chunk)))
        self.bad = b"EVIL" in chunk
        self.late = b"LATER" in chunk
        return Milter.CONTINUE
    def eom(self):
        if self.bad:
            self.setreply("550", "5.7.1", "evil")
            return Milter.REJECT
        if self.late:
            return Milter.TEMPFAIL
        self.addheader("X-Seen", " ".join(self.seen))
        self.addheader("X-First", "1", 0)
        self.quarantine("to be looked at")
        return Milter.ACCEPT
Milter.factory = Filter
Milter.set_flags(Milter.ADDHDRS + Milter.QUARANTINE)
Milter.runmilter("test", sys.argv[1], 30)
`

// TestLibmilter speaks with Sendmail's library.
func TestLibmilter(t *testing.T) {
	dir := t.TempDir()
	sock := filepath.Join(dir, "s")
	cmd := exec.Command("/usr/bin/python3", "-c", libmilter, "unix:"+sock)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := exec.Command("/usr/bin/python3", "-c", "import Milter").Run(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("python3-milter is not there: %v", err)
		}
		t.Skip(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for range 200 {
		if _, err := os.Stat(sock); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	c := &Client{Network: "unix", Address: sock}
	check := func(text string) *Verdict {
		t.Helper()
		v, err := c.Check(t.Context(), message(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr.String())
		}
		return v
	}
	v := check(header + "\r\nhello\r\n")
	want := "from <a@b.test> id rcv_1 to <x@y.test> to <z@y.test> From:a@b.test Subject:two~  lines X-Odd:no space 7"
	if v.Action != Accept || v.Quarantine != "to be looked at" || !reflect.DeepEqual(v.Fields, []Field{{"X-Seen", want}, {"X-First", "1"}}) {
		t.Errorf("%+v", v)
	}
	if v := check(header + "\r\nEVIL\r\n"); v.Action != Reject || v.Reply != "550 5.7.1 evil" {
		t.Errorf("%+v", v)
	}
	if v := check(header + "\r\nLATER\r\n"); v.Action != TempFail {
		t.Errorf("%+v", v)
	}
	if v := check(header + "\r\n" + strings.Repeat("x", 200_000) + "\r\n"); !strings.HasSuffix(v.Fields[0].Value, " 65535 65535 65535 3397") {
		t.Errorf("%+v", v)
	}
}

// FuzzAnswers holds the answers of a filter to what may come of them.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(options(0)+strings.Repeat(packet('c', ""), 12)+packet('h', "X\x00y\x00")+packet('a', "")), header+"\r\nx\r\n")
	f.Add([]byte(options(allSteps)+packet('y', "550 no\x00")), "\r\nx")
	f.Fuzz(func(t *testing.T, answers []byte, text string) {
		c := &Client{Timeout: 2 * time.Second, Dial: func(context.Context, string, string) (net.Conn, error) {
			return &replay{r: bytes.NewReader(answers)}, nil
		}}
		v, err := c.Check(t.Context(), message(text))
		if err != nil {
			return
		}
		for _, field := range v.Fields {
			for i, line := range strings.Split(field.Value, "\r\n") {
				if strings.ContainsAny(line, "\r\n\x00") || i > 0 && line[0] != ' ' && line[0] != '\t' {
					t.Errorf("a field that is more than one: %q", field)
				}
			}
		}
		if !strings.Contains("accept reject tempfail discard", v.Action) || strings.ContainsAny(v.Reply, "\r\n\x00") {
			t.Errorf("%+v", v)
		}
	})
}

// replay is a connection that has answered already.
type replay struct {
	net.Conn
	r io.Reader
}

func (r *replay) Read(p []byte) (int, error)  { return r.r.Read(p) }
func (r *replay) Write(p []byte) (int, error) { return len(p), nil }
func (r *replay) Close() error                { return nil }
