package inbound_test

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/rules"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// readCases reads a table with the given number of rows.
func readCases[T any](t *testing.T, path string, rows int) (list []T) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list) != rows {
		t.Fatal(path, err, len(list))
	}
	return list
}

var wantedSubtype = regexp.MustCompile(`bounce_subtype (\w+)`)

// TestAnswersThatSuppress: a host refuses with each answer, at RCPT and after the message.
func TestAnswersThatSuppress(t *testing.T) {
	for _, row := range readCases[struct {
		Answer   string
		Suppress any
	}](t, "testdata/cases/36-answers-that-suppress.json", 11) {
		want, rest, _ := strings.Cut(fmt.Sprint(row.Suppress), ",")
		if want != "true" && want != "false" {
			t.Fatalf("%+v", row)
		}
		for _, stage := range []string{"RCPT", "DATA"} {
			t.Run(stage+" "+row.Answer, func(t *testing.T) {
				t.Parallel()
				h := &servicetest.Host{Rcpt: func(string) string { return row.Answer }}
				if stage == "DATA" {
					h = &servicetest.Host{Answer: func(int, servicetest.Taken) string { return row.Answer }}
				}
				i := servicetest.Install(t, core.Config{MXPort: h.Start(t).Port})
				i.DNS.MX["far.test"] = "mx.far.test"
				ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
				i.Run()
				i.MustSubmit(ann, servicetest.PlainMessage, "u@far.test")
				i.Becomes("u@far.test", store.OutgoingBounced)
				e := i.Events(events.EventEmailBounced)[0]
				if fmt.Sprint(e["suppressed"]) != want || e["bounce_type"] != "hard" {
					t.Errorf("event %v", e)
				}
				if m := wantedSubtype.FindStringSubmatch(rest); m != nil && e["bounce_subtype"] != m[1] {
					t.Errorf("bounce_subtype is %v, want %s", e["bounce_subtype"], m[1])
				}
				again := i.MustSend(ann, submit.SendEmailIn{To: submit.Texts{"u@far.test"}, Subject: "again"})
				if suppressed := again.Recipients[0].Status == store.OutgoingSuppressed; fmt.Sprint(suppressed) != want {
					t.Errorf("the second message is %s", again.Recipients[0].Status)
				}
			})
		}
	}
}

// TestVacationAnswersNoRobots sends mail from each kind of robot to a mailbox with a vacation
// reply.
func TestVacationAnswersNoRobots(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	i.DNS.Txt["v.test"] = "v=spf1 ip4:192.0.2.1 -all"
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	if _, err := i.Svc.Rules.SetVacation(t.Context(), servicetest.Actor(i.Account), rules.SetVacationIn{UserID: ann.ID, Enabled: true, Text: "I am away."}); err != nil {
		t.Fatal(err)
	}
	i.Run()
	type row struct{ Sender, Header, Expect string }
	rows := append(readCases[row](t, "../rules/testdata/vacation-robots.json", 10),
		row{Sender: "eve@v.test", Expect: "an answer"}, row{Header: "Precedence: first-class", Expect: "an answer"})
	for n, row := range rows {
		sender, before := cmp.Or(row.Sender, fmt.Sprintf("p%d@v.test", n)), len(h.Mails())
		head := fmt.Sprintf("From: %s\r\nTo: %s\r\nMessage-ID: <r%d@v.test>\r\n", sender, ann.Email, n)
		if row.Header != "" {
			head += row.Header + "\r\n"
		}
		if err := i.Receive(sender, head+"\r\nHello.\r\n", ann.Email); err != nil {
			t.Fatal(err)
		}
		servicetest.Eventually(t, sender+" is filed", func() bool { return len(i.Folder(ann, "INBOX")) == n+1 })
		settled(t, i)
		got := "no answer"
		if len(h.Mails()) > before {
			got = "an answer"
		}
		if got != row.Expect {
			t.Errorf("%+v gets %s", row, got)
		}
	}
}

// TestFileNamesAreQuotedInWhatIsSent sends a file with each name, which must be quoted everywhere.
func TestFileNamesAreQuotedInWhatIsSent(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	i.Run()
	for n, row := range readCases[struct{ Filename, Expect string }](t, "testdata/cases/42-attachment-name-quoting.json", 2) {
		var in submit.SendEmailIn
		to := fmt.Sprintf("x%d@far.test", n)
		content := base64.StdEncoding.EncodeToString([]byte("attached"))
		body, err := json.Marshal(map[string]any{"to": to, "subject": "a file", "attachments": []any{map[string]any{"filename": row.Filename, "content": content}}})
		if err == nil {
			err = json.Unmarshal(body, &in)
		}
		if err != nil {
			t.Fatal(err)
		}
		i.MustSend(ann, in)
		i.Becomes(to, store.OutgoingRelayed)
		sent := h.Mails()[n].Data
		want, _, _ := strings.Cut(row.Expect, " (")
		unfolded := strings.ReplaceAll(sent, "\r\n ", " ")
		if !strings.Contains(unfolded, want) || strings.Count(unfolded, row.Filename) != strings.Count(unfolded, `"`+row.Filename+`"`) {
			t.Errorf("no %s in\n%s", want, sent)
		}
	}
}

// TestBadLinesOfHeadersHideNoAuthor: a message with a malformed header line is accepted, and is
// refused if its author's domain has a DMARC policy that it fails.
func TestBadLinesOfHeadersHideNoAuthor(t *testing.T) {
	for policy, want := range map[string]int{"": 250, "v=DMARC1; p=reject": 550} {
		i := servicetest.Install(t, core.Config{})
		i.DNS.Txt["far.test"] = "v=spf1 ip4:192.0.2.1 -all"
		if policy != "" {
			i.DNS.Txt["_dmarc.other.test"] = policy
		}
		ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
		i.Run()
		for _, name := range []string{"line-without-field", "line-without-colon", "begins-with-mbox-line", "begins-with-bom"} {
			raw, err := os.ReadFile("../../mail/msg/testdata/reading/header-" + name + ".eml")
			if err != nil {
				t.Fatal(err)
			}
			if err := i.ComeIn(servicetest.Stranger, "x@far.test", ann.Email, string(raw)); servicetest.CodeOf(err) != want {
				t.Errorf("%s with the policy %q: %v", name, policy, err)
			}
		}
	}
}
