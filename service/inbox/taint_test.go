package inbox_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/rules"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/service/transfer"
	"github.com/mailstead/mailstead/store"
)

// words waits for a message with a subject in a folder, and returns its origin and its verified
// domain.
func (r *waitRig) words(mb *store.Mailbox, folder, subject string) string {
	r.T.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		for _, m := range r.Folder(mb, folder) {
			if isAbout(m.Raw, subject) {
				return m.Meta.Origin + " " + strings.TrimPrefix(m.Meta.Arrived, "=")
			}
		}
		if time.Now().After(end) {
			r.T.Fatalf("no %q in %s of %s", subject, folder, mb.Email)
		}
	}
}

// isAbout reports whether a message has the subject, or is a report that quotes it.
func isAbout(raw []byte, subject string) bool {
	header, _, _ := strings.Cut(string(raw), "\r\n\r\n")
	return strings.Contains(header+"\r\n", "\nSubject: "+subject+"\r\n")
}

func letterAbout(from, to, subject string, fields ...string) string {
	return "From: " + from + "\r\nTo: " + to + "\r\nSubject: " + subject + "\r\nMessage-ID: <" + strings.ReplaceAll(subject, " ", ".") + "@id.test>\r\n" + strings.Join(append(fields, "\r\n"), "") + "Hello.\r\n"
}

// TestWhoseWords sends mail in every way and checks its origin on arrival.
func TestWhoseWords(t *testing.T) {
	h := (&servicetest.Host{}).Start(t)
	r := newWaitRig(t, core.Config{Settings: core.Settings{Relays: []core.Relay{h.Relay("custom")}}})
	r.DNS.Txt["_dmarc.example.test"] = "v=DMARC1; p=none"
	owner := r.who
	d2 := r.AddDomain(r.AddAccount("second@elsewhere.test"), "second.test", nil)
	sam := r.AddMailbox(d2, "sam", nil)
	group, err := r.Svc.Mailboxes.CreateGroup(t.Context(), owner, mailboxes.CreateGroupIn{Email: "all@example.test", Members: []mailboxes.NewMember{{UserID: r.bob.ID}}})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(mb *store.Mailbox, folder, subject, want string) {
		t.Helper()
		if got := r.words(mb, folder, subject); got != want {
			t.Errorf("%s in %s of %s: %q, want %q", subject, folder, mb.Email, got, want)
		}
	}
	receive := func(path, from, subject string, fields ...string) {
		t.Helper()
		if err := r.Receive(path, letterAbout(from, "ann@example.test", subject, fields...), "ann@example.test"); err != nil {
			t.Fatal(err)
		}
	}

	// A message whose sender becomes tainted while the message is queued.
	r.MustSend(r.bob, submit.SendEmailIn{To: submit.Texts{"ann@example.test", "sam@second.test"}, Subject: "tainted", Text: "x"})
	r.Update(func(tx *store.Tx) error {
		for sub := range store.Submissions.All(tx) {
			sub.Tainted = true
			if err := store.Submissions.Put(tx, sub); err != nil {
				return err
			}
		}
		return nil
	})
	r.Run()
	expect(r.ann, "INBOX", "tainted", "tainted example.test")
	expect(sam, "INBOX", "tainted", "tainted example.test")

	// Mail from other servers.
	receive("x@far.test", "x@far.test", "from far")
	expect(r.ann, "INBOX", "from far", "author far.test")
	receive("x@near.test", "boss@example.test", "forged")
	expect(r.ann, "INBOX", "forged", "author .")
	receive("", "x@far.test", "of a machine")
	expect(r.ann, "INBOX", "of a machine", " far.test")
	receive("x@far.test", "x@far.test", "automatic", "Auto-Submitted: auto-replied\r\n")
	expect(r.ann, "INBOX", "automatic", " far.test")
	receive("x@far.test", "x@far.test", "made by a machine", "Auto-Submitted: auto-generated\r\n")
	expect(r.ann, "INBOX", "made by a machine", " far.test")
	receive("x@far.test", "x@far.test", "by a person", "Auto-Submitted: no\r\n")
	expect(r.ann, "INBOX", "by a person", "author far.test")
	receive("x@far.test", "x@far.test", "a report", "MIME-Version: 1.0\r\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n--b\r\n\r\nx\r\n--b\r\n"+
		"Content-Type: message/delivery-status\r\n\r\nReporting-MTA: dns;far.test\r\n\r\nFinal-Recipient: rfc822;y@far.test\r\nAction: failed\r\nStatus: 5.1.1\r\n\r\n--b--\r\n")
	expect(r.ann, "INBOX", "a report", " far.test")

	// Mail from here: of the same account, of another account, by a group, by a mail client.
	r.MustSend(r.bob, submit.SendEmailIn{To: submit.Texts{"ann@example.test"}, Subject: "from bob", Text: "x"})
	expect(r.ann, "INBOX", "from bob", "own example.test")
	expect(r.bob, "Sent", "from bob", "own ")
	// A program's mail has no known author, unless a person has declared that the program speaks
	// for the account.
	for _, own := range []bool{false, true} {
		who := owner
		who.TokenKind, who.OwnWords = "api", own
		subject := fmt.Sprint("by a program ", own)
		if _, err := r.Svc.Submit.SendEmail(t.Context(), who, submit.SendEmailIn{UserID: r.bob.ID, To: submit.Texts{"ann@example.test"}, Subject: subject, Text: "x"}); err != nil {
			t.Fatal(err)
		}
		expect(r.ann, "INBOX", subject, map[bool]string{true: "own", false: "author"}[own]+" example.test")
		expect(r.bob, "Sent", subject, map[bool]string{true: "own", false: "author"}[own]+" ")
		_, err := r.Svc.Submit.CreateDraft(t.Context(), who, submit.CreateDraftIn{SendEmailIn: submit.SendEmailIn{UserID: r.ann.ID, Subject: "drafted " + subject, Text: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		expect(r.ann, "Drafts", "drafted "+subject, map[bool]string{true: "own", false: "program"}[own]+" ")
	}
	r.MustSubmit(r.bob, letterAbout("bob@example.test", "ann@example.test", "by smtp"), "ann@example.test")
	expect(r.ann, "INBOX", "by smtp", "own example.test")
	r.MustSend(sam, submit.SendEmailIn{To: submit.Texts{"ann@example.test"}, Subject: "from sam", Text: "x"})
	expect(r.ann, "INBOX", "from sam", "author second.test")
	r.MustSend(r.ann, submit.SendEmailIn{To: submit.Texts{group.Email}, Subject: "to all", Text: "x"})
	expect(r.bob, "INBOX", "to all", "own example.test")
	if err := r.Receive("x@far.test", letterAbout("x@far.test", group.Email, "far to all"), group.Email); err != nil {
		t.Fatal(err)
	}
	expect(r.bob, "INBOX", "far to all", "author far.test")
	r.MustSubmit(r.bob, letterAbout("bob@example.test", "ann@example.test", "notice", "Auto-Submitted: auto-generated\r\n"), "ann@example.test")
	expect(r.ann, "INBOX", "notice", " example.test")

	// Copies and moves keep the origin.
	u := core.MailboxUser{AccountID: r.ann.AccountID, MailboxID: r.ann.ID, Mailbox: r.ann.Num, PasswordAt: r.ann.PasswordAt}
	sel, err := r.Svc.Inbox.SelectFolder(t.Context(), u, "INBOX")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Svc.Inbox.CopyMessages(t.Context(), u, store.InboxID, sel.UIDs, "Archive"); err != nil {
		t.Fatal(err)
	}
	expect(r.ann, "Archive", "from bob", "own example.test")
	expect(r.ann, "Archive", "from far", "author far.test")
	expect(r.ann, "Archive", "automatic", " far.test")

	// Messages added by clients.
	if _, _, err := r.Svc.Inbox.AppendMessages(t.Context(), u, "INBOX", inbox.Append{Body: r.Spool(letterAbout("bob@example.test", "ann@example.test", "appended"))}); err != nil {
		t.Fatal(err)
	}
	expect(r.ann, "INBOX", "appended", " ")
	if _, err := r.Svc.Transfer.ImportMessages(t.Context(), u, "INBOX", []transfer.ImportMessage{{Body: r.Spool(letterAbout("bob@example.test", "ann@example.test", "imported"))}}); err != nil {
		t.Fatal(err)
	}
	expect(r.ann, "INBOX", "imported", " ")
	person := owner
	person.TokenKind = core.SessionKind
	if _, err := r.Svc.Submit.CreateDraft(t.Context(), person, submit.CreateDraftIn{SendEmailIn: submit.SendEmailIn{UserID: r.ann.ID, Subject: "drafted", Text: "x"}}); err != nil {
		t.Fatal(err)
	}
	expect(r.ann, "Drafts", "drafted", "own ")

	// A draft of unknown origin, sent by a program and by a person.
	for _, kind := range []string{"api", core.SessionKind} {
		if _, _, err := r.Svc.Inbox.AppendMessages(t.Context(), u, "Drafts", inbox.Append{Body: r.Spool(letterAbout("ann@example.test", "bob@example.test", "put there, sent by "+kind))}); err != nil {
			t.Fatal(err)
		}
		who, drafts := owner, r.Folder(r.ann, "Drafts")
		who.TokenKind = kind
		if _, err := r.Svc.Submit.SendDraft(t.Context(), who, submit.DraftIn{UserID: r.ann.ID, UID: core.UIDText(drafts[len(drafts)-1].UID)}); err != nil {
			t.Fatal(err)
		}
	}
	expect(r.bob, "INBOX", "put there, sent by api", "tainted example.test")
	expect(r.ann, "Sent", "put there, sent by api", "tainted ")
	expect(r.bob, "INBOX", "put there, sent by "+core.SessionKind, "own example.test")

	// Forwards, automatic replies, and bounces.
	if _, err := r.Svc.Rules.SetVacation(t.Context(), owner, rules.SetVacationIn{UserID: r.ann.ID, Enabled: true, Text: "I am away."}); err != nil {
		t.Fatal(err)
	}
	onward := "sam@second.test"
	if _, err := r.Svc.Rules.CreateRule(t.Context(), owner, rules.CreateRuleIn{
		UserID: r.ann.ID, Name: "on", Conditions: []rules.Condition{{Field: "subject", Op: "contains", Value: &rules.Value{Text: "onward"}}},
		Actions: []rules.Action{{Type: "forward", Value: &onward}, {Type: "copy", Value: new("archive")}},
	}); err != nil {
		t.Fatal(err)
	}
	receive("x@far.test", "x@far.test", "onward")
	expect(r.ann, "INBOX", "onward", "author far.test")
	expect(r.ann, "Archive", "onward", "author far.test")
	expect(sam, "INBOX", "onward", " .")
	r.MustSubmit(r.bob, letterAbout("bob@example.test", "ann@example.test", "are you there"), "ann@example.test")
	expect(r.bob, "INBOX", "Auto: are you there", " .")

	// A recipient resends our message: its signature proves nothing to others.
	r.MustSend(r.bob, submit.SendEmailIn{To: submit.Texts{"y@far.test"}, Subject: "there and back", Text: "x"})
	r.Becomes("y@far.test", store.OutgoingRelayed)
	for _, m := range h.Mails() {
		if strings.Contains(m.Data, "there and back") {
			if err := r.ComeIn(netip.MustParseAddr("192.0.2.1"), "x@far.test", "ann@example.test", m.Data); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect(r.ann, "INBOX", "there and back", " .neither To nor Cc names this mailbox")
}

// TestPeopleOfReading: a holder that has read messages may write only to people of every one of
// them, in any folder and thread.
func TestPeopleOfReading(t *testing.T) {
	r := newWaitRig(t, core.Config{})
	r.Run()
	a := r.agent(agents.Policy{Taint: true})
	read := func(folder, subject string) *store.Reading {
		t.Helper()
		r.words(r.ann, folder, subject)
		for _, m := range r.Folder(r.ann, folder) {
			if isAbout(m.Raw, subject) {
				if _, err := r.Svc.Inbox.GetMessage(t.Context(), a, inbox.MessageIn{UserID: r.ann.ID, MessageID: core.UIDText(m.UID), Folder: folder}); err != nil {
					t.Fatal(err)
				}
			}
		}
		return r.reading(a)
	}
	receive := func(from, subject string, fields ...string) {
		t.Helper()
		if err := r.Receive(from, letterAbout(from, "ann@example.test", subject, fields...), "ann@example.test"); err != nil {
			t.Fatal(err)
		}
	}
	has := func(got *store.Reading, people ...string) {
		t.Helper()
		if got == nil || !slices.Equal(got.People, people) {
			t.Errorf("%+v, want %q", got, people)
		}
	}
	r.MustSend(r.bob, submit.SendEmailIn{To: submit.Texts{"ann@example.test", "x@far.test", "y@far.test"}, Subject: "Plans", Text: "x"})
	got := read("INBOX", "Plans")
	has(got, "bob@example.test", "ann@example.test", "x@far.test", "y@far.test")
	if got.Taint != nil {
		t.Errorf("a person's words taint: %+v", got.Taint)
	}
	receive("x@far.test", "Berths", "Cc: Y <y@far.test>, z@far.test\r\nReply-To: X <x+r@far.test>\r\n")
	got = read("INBOX", "Berths")
	has(got, "ann@example.test", "x@far.test", "y@far.test")
	if got.Taint == nil || got.Taint.MailboxID != r.ann.ID || got.Taint.ThreadID == "" || got.Taint.Folder != "INBOX" {
		t.Errorf("%+v", got.Taint)
	}

	// The same thread or another one makes no difference: only people count.
	receive("x@far.test", "And more", "References: <Berths@id.test>\r\n")
	has(read("INBOX", "And more"), "ann@example.test", "x@far.test")
	receive("q@far.test", "Re: Berths")
	has(read("INBOX", "Re: Berths"), "ann@example.test")
}

// agent is a holder with a new token for ann's mailbox.
func (r *waitRig) agent(p agents.Policy) core.Actor {
	r.T.Helper()
	p.Send = "allow"
	c, err := r.Svc.Mailboxes.CreateCredential(r.T.Context(), r.who, mailboxes.CreateCredentialIn{UserID: r.ann.ID, Name: "agent", Protocols: &[]string{"imap", "api"}, Policy: &p})
	if err != nil {
		r.T.Fatal(err)
	}
	return r.authenticate(*c.Token)
}

func (r *waitRig) authenticate(token string) core.Actor {
	r.T.Helper()
	who, err := r.Svc.Accounts.Authenticate(r.T.Context(), token, "192.0.2.7")
	if err != nil {
		r.T.Fatal(err)
	}
	return who
}

// reading returns the recorded readings of a token's holder.
func (r *waitRig) reading(who core.Actor) (out *store.Reading) {
	r.T.Helper()
	err := r.St.View(func(tx *store.Tx) error {
		t, err := store.Tokens.Get(tx, who.TokenID)
		if err == nil {
			out = t.Reading
		}
		return err
	})
	if err != nil {
		r.T.Fatal(err)
	}
	return out
}

// TestSubjectsOfProgramsAreWithheld: the sending log hides from a tainting reader the subjects of
// programs that do not speak for the account, such as a web form that sends a stranger's text.
func TestSubjectsOfProgramsAreWithheld(t *testing.T) {
	r := newWaitRig(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	token := func(in accounts.CreateTokenIn) core.Actor {
		made, err := r.Svc.Accounts.CreateToken(t.Context(), r.who, in)
		if err != nil {
			t.Fatal(err)
		}
		return r.authenticate(made.Value)
	}
	form := token(accounts.CreateTokenIn{Name: "form"})
	agent := token(accounts.CreateTokenIn{Name: "agent", Policy: &agents.Policy{Taint: true}})
	person := r.who
	person.TokenKind, person.TokenID = core.SessionKind, "tok_session"
	for who, subject := range map[*core.Actor]string{&form: "ZEBRA", &person: "plan"} {
		if _, err := r.Svc.Submit.SendEmail(t.Context(), *who, submit.SendEmailIn{UserID: r.ann.ID, To: submit.Texts{strings.ToLower(subject) + "@far.test"}, Subject: subject, Text: "t", Tags: outbound.TagMap{"a": subject}}); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := r.Svc.Outbound.ListMessages(t.Context(), agent, outbound.ListMessagesIn{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, row := range rows.Data {
		got[row.Recipient] = row.Subject + row.Tags["a"]
	}
	if len(got) != 2 || got["zebra@far.test"] != "" || got["plan@far.test"] != "planplan" {
		t.Errorf("the log gives %q", got)
	}
	if read := r.reading(agent); read != nil && read.Taint != nil {
		t.Error("and taints")
	}
}
