package api

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
)

// blocks finds the pieces of a page: commands, and what they print.
var blocks = regexp.MustCompile("(?s)```(sh|text)\n(.*?)```")

// TestExamplePages runs the commands of each page, one after the other, and compares what they
// print with what the page says.
func TestExamplePages(t *testing.T) {
	t.Parallel()
	rig.Peer(t, "curl")
	rig.Peer(t, "jq")
	for _, page := range []string{"password-reset", "newsletter", "answer", "assistant", "webhook"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			i := rig.Start(t, rig.GenerousLimits, "--ca-file", rig.NewWebhookReceiver(t).CAFile)
			mailbox := i.AddMailbox("hello@"+i.AddDomainNamed("example.test"), "correct horse")
			if page == "answer" || page == "assistant" {
				message := "From: Bob <bob@customer.example>\r\nTo: hello@example.test\r\nSubject: Where is my order?\r\nMessage-ID: <1@customer.example>\r\n\r\nIt is number 1002.\r\n"
				if err := rig.Transmit(i.Ready.SMTP, "hello@example.test", message); err != nil {
					t.Fatal(err)
				}
				i.Until("the question is there", func() bool { return len(i.Inbox(mailbox)) == 1 })
			}
			text, err := os.ReadFile(rig.FromRoot("docs/examples/" + page + ".md"))
			if err != nil {
				t.Fatal(err)
			}
			var commands, want strings.Builder
			for _, b := range blocks.FindAllStringSubmatch(string(text), -1) {
				if b[1] == "sh" {
					commands.WriteString(b[2])
				} else {
					want.WriteString(b[2])
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", commands.String())
			cmd.Env = append(os.Environ(), "MAILSTEAD_URL=http://"+i.Ready.HTTP, "MAILSTEAD_TOKEN="+i.Token, "MAILBOX="+mailbox, "ENDPOINT="+newTaker(t).URL)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if err != nil || strings.TrimRight(string(out), "\n") != strings.TrimRight(want.String(), "\n") || want.Len() == 0 {
				t.Errorf("%v: it printed\n%s\nwant\n%s\n%s", err, out, want.String(), errs.String())
			}
		})
	}
}
