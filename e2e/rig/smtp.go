package rig

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/smtp"
	"strings"
	"testing"
	"time"
)

// DialFrom connects to addr from the IP address from.
func DialFrom(ctx context.Context, from, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 30 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return d.DialContext(ctx, "tcp", addr)
}

// SendMail sends one message over a connection.
func SendMail(c *smtp.Client, from string, to []string, message string) error {
	if err := c.Mail(from); err != nil {
		return err
	}
	for _, r := range to {
		if err := c.Rcpt(r); err != nil {
			return err
		}
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, message); err != nil {
		return err
	}
	return w.Close()
}

// Deliver is SendMail for one recipient; an error fails the test.
func Deliver(t *testing.T, c *smtp.Client, from, to, message string) {
	t.Helper()
	if err := c.Mail(from); err != nil {
		t.Fatalf("MAIL %s: %v", from, err)
	}
	if err := c.Rcpt(to); err != nil {
		t.Fatalf("RCPT %s: %v", to, err)
	}
	w, err := c.Data()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(message)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatalf("message from %s: %v", from, err)
	}
}

// Speak connects, sends all lines at once and returns the answer up to the end of the connection,
// or what came within five seconds.
func Speak(t *testing.T, addr string, lines ...string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(conn) // what comes until the server or the deadline ends it
	return string(answer)
}

// PlainAuth is AUTH PLAIN without TLS, which the sandbox allows.
type PlainAuth struct{ User, Password string }

func (a PlainAuth) Start(*smtp.ServerInfo) (string, []byte, error) {
	return "PLAIN", []byte("\x00" + a.User + "\x00" + a.Password), nil
}

func (a PlainAuth) Next([]byte, bool) ([]byte, error) { return nil, nil }

// Submit sends a message through the submission server, as a mail client does.
func Submit(t *testing.T, i *Instance, from, password string, to []string, message string) {
	t.Helper()
	c, err := smtp.Dial(i.Ready.Submission)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Auth(PlainAuth{from, password}); err != nil {
		t.Fatal(err)
	}
	if err := c.Mail(from); err != nil {
		t.Fatal(err)
	}
	for _, r := range to {
		if err := c.Rcpt(r); err != nil {
			t.Fatal(err)
		}
	}
	w, err := c.Data()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(w, message)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_ = c.Quit()
}

// DeliverFrom sends a message to an SMTP server, as another mail server does.
func DeliverFrom(t *testing.T, addr, from, to, message string) {
	t.Helper()
	c := TalkTo(t, addr)
	for _, line := range []string{"EHLO author.test", "MAIL FROM:<" + from + ">", "RCPT TO:<" + to + ">"} {
		if code, text := c.Say(line); code != 250 {
			t.Fatalf("%s: %d %s", line, code, text)
		}
	}
	if code, text := c.Say("DATA"); code != 354 {
		t.Fatalf("DATA: %d %s", code, text)
	}
	if code, text := c.Say(strings.ReplaceAll(message, "\r\n.", "\r\n..") + "."); code != 250 {
		t.Fatalf("message: %d %s", code, text)
	}
}

// Transmit sends a message for one recipient to an SMTP server; the error has the reply that
// refused it.
func Transmit(addr, to, message string) error {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	c := NewTalk(conn)
	c.Hear()
	for _, step := range []struct {
		line string
		want int
	}{{"EHLO client.elsewhere.test", 250}, {"MAIL FROM:<bob@elsewhere.test>", 250}, {"RCPT TO:<" + to + ">", 250}, {"DATA", 354}} {
		if code, text := c.Say(step.line); code != step.want {
			return fmt.Errorf("%s: %s", step.line, text)
		}
	}
	if code, text := c.Say(message + "."); code != 250 {
		return fmt.Errorf("message: %s", text)
	}
	return nil
}

// Letter returns a small message with the subject.
func Letter(subject string) string {
	return "From: bob@elsewhere.test\r\nSubject: " + subject + "\r\n\r\nhello\r\n"
}
