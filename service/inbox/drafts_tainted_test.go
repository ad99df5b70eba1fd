package inbox_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/submit"
)

// TestDraftsOfTheTaintedAreMadeAnew: a person who sends a draft of a tainted key sees its text.
// Everything they do not see is removed: reply and receipt addresses, and remote content of the
// HTML.
func TestDraftsOfTheTaintedAreMadeAnew(t *testing.T) {
	r := newGateRig(t)
	uid := r.arrives(r.ann, "thief@evil.test", "mate@far.test")
	person := r.who
	person.TokenKind, person.TokenID = core.SessionKind, "tok_session"
	hidden := map[string]string{"Disposition-Notification-To": "drop@evil.test", "List-Unsubscribe": "<https://evil.test/>"}
	in := submit.SendEmailIn{
		UserID: r.ann.ID, To: submit.Texts{"mate@far.test"}, ReplyTo: submit.Texts{"drop@evil.test"}, Subject: "s", Text: "words",
		HTML: submit.HTMLText{Text: `<p>words <img src="https://evil.test/p.png"></p>`}, Headers: hidden,
	}
	check := func(how, draft string, want bool) {
		t.Helper()
		if _, err := r.Svc.Submit.SendDraft(t.Context(), person, submit.DraftIn{UserID: r.ann.ID, UID: draft}); err != nil {
			t.Fatal(how, err)
		}
		sent := r.Folder(r.ann, "Sent")
		text := string(sent[len(sent)-1].Raw)
		if !strings.Contains(text, "words") || strings.Contains(text, "evil.test") != want {
			t.Errorf("%s: what left is\n%s", how, text)
		}
	}
	for _, k := range r.keys {
		if !k.reads() {
			continue
		}
		if err := r.read(k, r.ann, "INBOX", uid); err != nil {
			t.Fatal(err)
		}
		if k.api() {
			draft, err := r.Svc.Submit.CreateDraft(t.Context(), k.who, submit.CreateDraftIn{SendEmailIn: in})
			if err != nil {
				t.Fatal(k.name, err)
			}
			check(k.name, draft.UID, false)
			continue
		}
		body := r.Spool("From: ann@example.test\r\nTo: mate@far.test\r\nReply-To: drop@evil.test\r\nSubject: s\r\nMIME-Version: 1.0\r\n" +
			"Content-Type: text/html\r\n\r\n<p>words <img src=\"https://evil.test/p.png\"></p>\r\n")
		defer body.Close()
		_, uids, err := r.Svc.Inbox.AppendMessages(t.Context(), k.user, "Drafts", inbox.Append{Body: body})
		if err != nil {
			t.Fatal(k.name, err)
		}
		check(k.name, core.UIDText(uids[0]), false)
	}

	// A person's own draft is not rewritten.
	draft, err := r.Svc.Submit.CreateDraft(t.Context(), person, submit.CreateDraftIn{SendEmailIn: in})
	if err != nil {
		t.Fatal(err)
	}
	check("a person", draft.UID, true)
}
