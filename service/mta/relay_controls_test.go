package mta_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/auth"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// commands are header fields that some relay obeys, as a user may write them.
var commands = []string{
	"X-SMTPAPI: {\"to\": [\"more@far.test\"], \"filters\": {\"bypass_list_management\": {\"settings\": {\"enable\": 1}}}}\r\n",
	"x-smtpapi \t: {\r\n \"to\": [\"more@far.test\"]}\r\n", "X-SES-CONFIGURATION-SET: theirs\r\n", "x-ses-message-tags: a=b\r\n", "X-SES-SOURCE-ARN: arn\r\n",
	"X-Mailgun-Variables: {}\r\n", "X-Mailgun-Drop-Message:\r\n yes\r\n", "X-PM-Message-Stream: broadcast\r\n", "X-PM-KeepID: false\r\n",
	"X-PM-Metadata-mailstead-id: forged\r\n", "X-MC-BccAddress: more@far.test\r\n", "X-SG-EID: 1\r\n",
}

// holdsCommand gives the first of the commands that the header of a message holds.
func holdsCommand(data string) string {
	head, _, _ := strings.Cut(strings.ToLower(data), "\r\n\r\n")
	for _, name := range []string{"x-smtpapi", "x-ses-", "x-mailgun-", "x-pm-", "x-mc-", "x-sg-", "more@"} {
		if strings.Contains(head, name) {
			return name
		}
	}
	return ""
}

// TestRelayCommandsOfUsersAreDropped: on submission for every kind of relay, whatever the route.
func TestRelayCommandsOfUsersAreDropped(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	r := h.Relay("custom")
	r.ControlHeaders = []string{"X-MC-"}
	i := servicetest.Install(t, core.Config{Relays: []core.Relay{r}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	i.Run()
	text := "X-Mine: kept\r\n" + strings.Join(commands, "") + "X-SM: kept\r\n" + servicetest.PlainMessage
	i.MustSubmit(ann, text, "x@far.test", "bob@example.test")
	i.Becomes("x@far.test", store.OutgoingRelayed)
	i.Becomes("bob@example.test", store.OutgoingDelivered)
	for _, data := range []string{h.Mails()[0].Data, string(i.Folder(bob, "INBOX")[0].Raw)} {
		if found := holdsCommand(data); found != "" || !strings.Contains(data, "X-Mine: kept\r\n") || !strings.Contains(data, "X-SM: kept\r\n") {
			t.Errorf("%q is in\n%s", found, data)
		}
		if v := i.Verify([]byte(data)); v.DKIM != auth.Pass {
			t.Errorf("DKIM is %s", v.DKIM)
		}
	}
	for _, field := range commands {
		name, _, _ := strings.Cut(field, ":")
		in := mta.SendEmailIn{To: mta.Texts{"y@far.test"}, Subject: "s", Text: "t", Headers: map[string]string{name: "v"}}
		if _, err := i.Send(ann, in); !servicetest.HasCode(err, "validation_error") || !strings.Contains(err.Error(), "provider") {
			t.Errorf("%q over the API: %v", name, err)
		}
	}
}

// TestRelayCommandsOfStrangersAreDropped: of what is forwarded, for the relay that it goes through,
// though a signature covers them. What the relay is told by us follows.
func TestRelayCommandsOfStrangersAreDropped(t *testing.T) {
	for kind, own := range map[string][]string{
		"ses": {"x-ses-", "return-path:"}, "postmark": {"x-pm-message", "keepid: false", "forged"}, "mailgun": {"x-mailgun-"}, "sendgrid": {"x-smtpapi", "x-sg-"}, "custom": {"x-mc-"},
	} {
		t.Run(kind, func(t *testing.T) {
			h := (&servicetest.Host{}).Start(t)
			r := h.Relay(kind)
			if kind == "custom" {
				r.ControlHeaders = []string{"X-MC-"}
			}
			i := servicetest.Install(t, core.Config{Relays: []core.Relay{r}})
			d := i.AddDomain(i.Account, "example.test", nil)
			i.AddMailbox(d, "ann", func(mb *store.Mailbox) { mb.ForwardTo = "away@far.test" })
			i.Run()
			long := "X-Long: " + strings.Repeat("a ", 200<<10) + "\r\n" // commands behind a header that is long
			i.MustArrive("pat@sender.test", "ann@example.test", long+"Return-Path: <victim@far.test>\r\n"+strings.Join(commands, "")+servicetest.LetterFrom("pat@sender.test"))
			i.Becomes("away@far.test", store.OutgoingRelayed)
			data := h.Mails()[0].Data
			head, body, _ := strings.Cut(data, "\r\n\r\n")
			for _, name := range own {
				if strings.Contains(strings.ToLower(head), "\r\n"+name) || strings.Contains(head, name) {
					t.Errorf("%s is in\n%.3000s", name, head)
				}
			}
			if n := strings.Count(head, "X-PM-KeepID: true"); (n == 1) != (kind == "postmark") || strings.Contains(head, feedbackTag) != (kind == "postmark") {
				t.Errorf("our own fields are missing:\n%.3000s", head)
			}
			if body != "hello\r\n" || !strings.HasSuffix(head, "\r\nSubject: hello") {
				t.Errorf("the body is %.300q, %d", body, len(head))
			}
			other := "X-Mailgun-Variables"
			if kind == "mailgun" {
				other = "X-SMTPAPI"
			}
			if !strings.Contains(head, other) {
				t.Errorf("%s is no command to %s and was dropped", other, kind)
			}
		})
	}
}

const feedbackTag = "X-PM-Metadata-mailstead-id: 0"
