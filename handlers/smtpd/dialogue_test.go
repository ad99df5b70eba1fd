package smtpd_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/handlers/smtpd"
)

// TestDialogues plays every file of testdata. Its lines are
//
//	# words for people
//	C text        send the text and CRLF
//	C "text"      send exactly what Go reads between the quotes
//	S prefix      read a reply, which must begin like this
//	S+ words      the newest reply must hold the words
//	S- words      the newest reply must not hold the words
//	STARTTLS      shake hands
//	END           the connection must have been closed
//	= n address   so many messages are in the INBOX of the address
//
// The name of a file begins with its mode: mx, mxtls, sub, subtls, subs.
func TestDialogues(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no dialogues", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			play(t, name, string(text))
		})
	}
}

func play(t *testing.T, name, text string) {
	kind, _, _ := strings.Cut(name, "-")
	change := production(t)
	if kind == "mx" || kind == "sub" {
		change = nil
	}
	h := open(t, change)
	mode := map[string]smtpd.Mode{"mx": smtpd.MX, "mxtls": smtpd.MX, "sub": smtpd.Submission, "subtls": smtpd.Submission, "subs": smtpd.Submissions}[kind]
	c := connect(t, h.addr[mode])
	if mode == smtpd.Submissions {
		c.shake()
	}
	last := ""
	for i, line := range strings.Split(text, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "", "#":
		case "C":
			if exact, err := strconv.Unquote(rest); err == nil {
				c.send(exact)
			} else {
				c.send(rest + "\r\n")
			}
		case "S":
			got, err := c.reply()
			if err != nil || !strings.HasPrefix(got, rest) {
				t.Fatalf("line %d: reply %q, %v; want %q", i+1, got, err, rest)
			}
			last = got
		case "S+", "S-":
			if strings.Contains(last, rest) != (word == "S+") {
				t.Fatalf("line %d: %s %q in %q", i+1, word, rest, last)
			}
		case "STARTTLS":
			c.shake()
		case "END":
			c.ended()
		case "=":
			n, address, _ := strings.Cut(rest, " ")
			if got := h.count(t, address); strconv.Itoa(got) != n {
				t.Fatalf("line %d: %d messages for %s, want %s", i+1, got, address, n)
			}
		default:
			t.Fatalf("line %d: what is %q?", i+1, word)
		}
	}
}
