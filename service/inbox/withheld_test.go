package inbox_test

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/attachments"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// strange is a message every part of which holds the word ZEBRA, as a stranger may write it.
const strange = "From: \"ZEBRA name\" <x@far.test>\r\nTo: \"ZEBRA to\" <ann@example.test>, ZEBRA without a host\r\nCc: \"ZEBRA quoted\"@far.test, Cat <cat@far.test>\r\n" +
	"Reply-To: ZEBRA reply <y@far.test>\r\nSubject: ZEBRA subject\r\nMessage-ID: <ZEBRA.%[1]d@far.test>\r\nIn-Reply-To: <ZEBRA.before@far.test>\r\nReferences: <ZEBRA.first@far.test> <ZEBRA.before@far.test>\r\n" +
	"X-ZEBRA: ZEBRA\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nZEBRA text: your code is 48291%[1]d, see https://far.test/ZEBRA\r\n" +
	"--b\r\nContent-Type: text/plain; name=\"ZEBRA.txt\"\r\nContent-Disposition: attachment; filename=\"ZEBRA.txt\"\r\n\r\nZEBRA file\r\n--b--\r\n"

// list returns the rows of INBOX that a reader gets, newest first.
func (r *waitRig) list(who core.Actor, f inbox.InboxFilter) []inbox.InboxMessage {
	r.T.Helper()
	page, err := r.Svc.Inbox.ListEmailUserInbox(r.T.Context(), who, inbox.ListEmailUserInboxIn{UserID: r.ann.ID, InboxFilter: f})
	if err != nil {
		r.T.Fatal(err)
	}
	all, err := r.Svc.Inbox.ListInbox(r.T.Context(), who, inbox.ListInboxIn{InboxFilter: f, Mailbox: r.ann.Email})
	if err != nil {
		r.T.Fatal(err)
	}
	if fmt.Sprintf("%+v", text(r.T, page.Data)) != fmt.Sprintf("%+v", text(r.T, all.Data)) {
		r.T.Errorf("two lists of one folder differ")
	}
	return page.Data
}

func text(t interface{ Fatal(...any) }, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func subjects(list []inbox.InboxMessage) (out []string) {
	for _, m := range list {
		out = append(out, m.Subject)
	}
	return out
}

// TestListsWithhold: no list shows a stranger's texts to a reader whom they would taint, no filter
// matches them, and no list taints.
func TestListsWithhold(t *testing.T) {
	r := newWaitRig(t, core.Config{})
	r.Run()
	if err := r.Receive("x@far.test", fmt.Sprintf(strange, 1), "ann+tag@example.test"); err != nil {
		t.Fatal(err)
	}
	r.MustSend(r.bob, submit.SendEmailIn{From: "Bob Cobb <bob@example.test>", To: submit.Texts{"ann@example.test"}, Subject: "HORSE subject", Text: "HORSE text"})
	r.words(r.ann, "INBOX", "HORSE subject")
	a, trusting, plain := r.agent(agents.Policy{Taint: true}), r.agent(agents.Policy{Taint: true, TrustedSenders: []string{"@far.test"}}), r.agent(agents.Policy{})
	for _, indexed := range []bool{false, true} {
		if indexed {
			index(r.Installation)
		}
		for _, who := range []core.Actor{plain, trusting, r.who} {
			for _, m := range r.list(who, inbox.InboxFilter{}) {
				if m.Withheld || m.Subject == "" || m.BodyPreview == "" || m.MessageID == "" {
					t.Errorf("withheld from others: %+v", m)
				}
			}
			if got := r.list(who, inbox.InboxFilter{Q: "zebra text"}); len(got) != 1 {
				t.Errorf("others find %v", subjects(got))
			}
		}
		rows := r.list(a, inbox.InboxFilter{})
		if len(rows) != 2 || rows[0].Withheld || rows[0].Subject != "HORSE subject" || rows[0].BodyPreview != "HORSE text" || rows[0].FromName == nil {
			t.Fatalf("%+v", rows)
		}
		m := rows[1]
		if got := text(t, m); strings.Contains(got, "ZEBRA") {
			t.Errorf("a stranger's words: %s", got)
		}
		if !m.Withheld || m.Subject != "" || m.BodyPreview != "" || m.MessageID != "" || m.FromName != nil || m.InReplyTo != nil || m.References == nil || len(m.References) > 0 ||
			m.Attachments == nil || len(m.Attachments) > 0 || m.From != "x@far.test" || m.FromEmail != "x@far.test" || !slices.Equal(m.To, []string{"ann@example.test"}) ||
			!slices.Equal(m.CC, []string{"cat@far.test"}) || !slices.Equal(m.ReplyTo, []string{"y@far.test"}) || m.Recipient != "ann+tag@example.test" || !m.HasAttachments || m.Auth.DMARC != "pass" {
			t.Errorf("withheld: %+v", m)
		}
		for q, want := range map[string]int{
			"zebra": 0, "ZEBRA subject": 0, `"zebra text"`: 0, "zebra.txt": 0, "zebra horse": 0, "code 482911": 0, "horse": 1, `"horse text"`: 1, "x@far.test": 1, "@far.test": 1, "x@far.test zebra": 0,
			"cat@far.test": 1, "Cat cat@far.test": 1,
		} {
			if got := r.list(a, inbox.InboxFilter{Q: q}); len(got) != want {
				t.Errorf("q=%s (indexed %t): %d rows, want %d", q, indexed, len(got), want)
			}
		}
		for from, want := range map[string]int{"zebra": 0, "name": 0, "x@far.test": 1, "far.test": 1, "cobb": 1} {
			if got := r.list(a, inbox.InboxFilter{From: from}); len(got) != want {
				t.Errorf("from=%s (indexed %t): %d rows, want %d", from, indexed, len(got), want)
			}
		}
		if got := r.list(a, inbox.InboxFilter{ThreadID: m.ThreadID}); len(got) != 1 || !got[0].Withheld {
			t.Errorf("by the conversation: %+v", got)
		}
		threads := r.list(a, inbox.InboxFilter{Threads: true})
		if got := text(t, threads); len(threads) != 2 || strings.Contains(got, "ZEBRA") || !slices.Equal(threads[0].Thread.From, []string{"Bob Cobb"}) || !slices.Equal(threads[1].Thread.From, []string{"x@far.test"}) {
			t.Errorf("conversations: %s", got)
		}
		if got := r.list(plain, inbox.InboxFilter{Threads: true}); got[1].Thread.From[0] != "ZEBRA name" {
			t.Errorf("conversations of others: %+v", got[1].Thread)
		}
	}

	// It has read bob's message, and is not tainted by any of this.
	if got := r.reading(a); got == nil || got.Taint != nil || !slices.Equal(got.People, []string{"ann@example.test"}) {
		t.Errorf("the reader of lists: %+v", got)
	}
	if r.reading(plain) != nil {
		t.Error("what somebody reads whom nothing taints is noted")
	}
}

// TestReadingTaints: an answer with a stranger's texts taints its reader before it is returned, and
// others who share the mailbox; texts of the account and of trusted senders taint nobody.
func TestReadingTaints(t *testing.T) {
	r := newWaitRig(t, core.Config{})
	r.Run()
	for n := range 2 {
		if err := r.Receive("x@far.test", fmt.Sprintf(strange, n), "ann@example.test"); err != nil {
			t.Fatal(err)
		}
	}
	r.MustSend(r.bob, submit.SendEmailIn{To: submit.Texts{"ann@example.test"}, Subject: "HORSE", Text: "x"})
	r.words(r.ann, "INBOX", "HORSE")
	uids := map[bool]string{}
	for _, m := range r.list(r.who, inbox.InboxFilter{}) {
		uids[m.Subject == "HORSE"] = m.UID
	}
	ctx := t.Context()
	reads := map[string]func(who core.Actor, uid string) error{
		"get_message": func(who core.Actor, uid string) error {
			_, err := r.Svc.Inbox.GetMessage(ctx, who, inbox.MessageIn{UserID: r.ann.ID, MessageID: uid})
			return err
		},
		"get_inbox_message": func(who core.Actor, uid string) error {
			_, err := r.Svc.Inbox.GetInboxMessage(ctx, who, inbox.InboxMessageIn{Mailbox: r.ann.Email, MessageID: uid})
			return err
		},
		"get_message_raw": func(who core.Actor, uid string) error {
			f, err := r.Svc.Inbox.GetMessageRaw(ctx, who, inbox.MessageIn{UserID: r.ann.ID, MessageID: uid})
			if err != nil {
				return err
			}
			if _, err := io.ReadAll(f.Body); err != nil {
				return err
			}
			return f.Body.Close()
		},
		"get_message_attachment": func(who core.Actor, uid string) error {
			f, err := r.Svc.Attachments.GetMessageAttachment(ctx, who, attachments.FileIn{MessageIn: inbox.MessageIn{UserID: r.ann.ID, MessageID: uid}, Index: "0"})
			if e, ours := core.AsError(err); ours && e.Code == "not_found" {
				return nil
			}
			if err != nil {
				return err
			}
			return f.Body.Close()
		},
		"get_message_attachments": func(who core.Actor, uid string) error {
			f, err := r.Svc.Attachments.GetMessageAttachments(ctx, who, inbox.MessageIn{UserID: r.ann.ID, MessageID: uid})
			if e, ours := core.AsError(err); ours && e.Code == "not_found" {
				return nil
			}
			if err != nil {
				return err
			}
			return f.Body.Close()
		},
		"wait": func(who core.Actor, uid string) error {
			f := inbox.WaitFilter{Since: ever, Subject: "zebra"}
			if uid == uids[true] {
				f.Subject = "horse"
			}
			a, err := r.Svc.Inbox.WaitFor(ctx, who, r.ann.ID, f, time.Second)
			if err == nil && (a.Message == nil || a.Message.Withheld) {
				t.Errorf("waited for %s: %+v", f.Subject, a)
			}
			return err
		},
	}
	for name, read := range reads {
		a, sibling, free := r.agent(agents.Policy{Taint: true}), r.agent(agents.Policy{Taint: true}), r.agent(agents.Policy{})
		trusting := r.agent(agents.Policy{Taint: true, TrustedSenders: []string{"x@far.test"}})
		try := func(who core.Actor, uid string) *store.Reading {
			t.Helper()
			if err := read(who, uid); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return r.reading(who)
		}
		if got := try(a, uids[true]); got == nil || got.Taint != nil || !slices.Contains(got.People, "bob@example.test") {
			t.Errorf("%s of a neighbour's words: %+v", name, got)
		}
		if got := try(trusting, uids[false]); got == nil || got.Taint != nil {
			t.Errorf("%s of a trusted sender's words: %+v", name, got)
		}
		if got := try(free, uids[false]); got != nil {
			t.Errorf("%s by one whom nothing taints: %+v", name, got)
		}
		if got := r.reading(sibling); got == nil || got.Taint != nil || slices.Contains(got.People, "x@far.test") {
			t.Errorf("%s: tainted too early: %+v", name, got)
		}
		got := try(a, uids[false])
		if got == nil || got.Taint == nil || got.Taint.MailboxID != r.ann.ID || got.Taint.UID == 0 || slices.Contains(got.People, "bob@example.test") {
			t.Errorf("%s of a stranger's words: %+v", name, got)
		}
		if got := r.reading(sibling); got == nil || got.Taint == nil || slices.Contains(got.People, "bob@example.test") {
			t.Errorf("%s: who shares the mailbox: %+v", name, got)
		}
	}
}

// TestSentSubjectsAreRead: a reader that is shown subjects of the sending log counts as having read
// those messages.
func TestSentSubjectsAreRead(t *testing.T) {
	r := newWaitRig(t, core.Config{})
	r.Run()
	if err := r.Receive("x@far.test", letterAbout("x@far.test", "ann@example.test", "Berths"), "ann@example.test"); err != nil {
		t.Fatal(err)
	}
	send := func(in submit.SendEmailIn) {
		t.Helper()
		in.UserID, in.Text = r.ann.ID, "x"
		who := r.who
		who.TokenKind = core.SessionKind
		if _, err := r.Svc.Submit.SendEmail(t.Context(), who, in); err != nil {
			t.Fatal(err)
		}
	}
	a := r.agent(agents.Policy{Taint: true})
	look := func() *store.Reading {
		t.Helper()
		page, err := r.Svc.Outbound.ListMessages(t.Context(), a, outbound.ListMessagesIn{})
		if err != nil || len(page.Data) == 0 || page.Data[0].Subject == "" {
			t.Fatalf("%+v %v", page, err)
		}
		if _, err := r.Svc.Outbound.GetSentMessage(t.Context(), a, outbound.SentMessageIn{ID: page.Data[0].ID}); err != nil {
			t.Fatal(err)
		}
		return r.reading(a)
	}
	if _, err := r.Svc.Inbox.GetMessage(t.Context(), a, inbox.MessageIn{UserID: r.ann.ID, MessageID: "1"}); err != nil {
		t.Fatal(err)
	}
	send(submit.SendEmailIn{Subject: "Re: Berths", To: submit.Texts{"x@far.test"}, Cc: submit.Texts{"bob@example.test"}})
	if got := look(); got.Taint == nil || !slices.Equal(got.People, []string{"x@far.test", "ann@example.test"}) {
		t.Errorf("to the same people: %+v", got)
	}
	send(submit.SendEmailIn{Subject: "Other", To: submit.Texts{"bob@example.test"}})
	if got := look(); !slices.Equal(got.People, []string{"ann@example.test"}) || got.Taint.ThreadID == "" {
		t.Errorf("to others: %+v", got)
	}
}

// TestWithheldWait: with withhold, a reader gets the code without being tainted, but counts as
// having read the message; its filters do not match withheld texts.
func TestWithheldWait(t *testing.T) {
	r := newWaitRig(t, core.Config{})
	r.Run()
	if err := r.Receive("x@far.test", fmt.Sprintf(strange, 1), "ann@example.test"); err != nil {
		t.Fatal(err)
	}
	if err := r.Receive("x@far.test", letterAbout("x@far.test", "ann@example.test", "nothing in it"), "ann@example.test"); err != nil {
		t.Fatal(err)
	}
	wait := func(who core.Actor, f inbox.WaitFilter) *inbox.WaitAnswer {
		t.Helper()
		f.Withhold = true
		out, err := r.Svc.Inbox.WaitFor(t.Context(), who, r.ann.ID, f, 50*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	a := r.agent(agents.Policy{Taint: true})
	for name, f := range map[string]inbox.WaitFilter{"subject": {Subject: "zebra"}, "from": {From: "zebra"}} {
		f.Since = ever
		if got := wait(a, f); got.Message != nil {
			t.Errorf("%s finds what is withheld: %+v", name, got)
		}
		if got := wait(r.who, f); got.Message == nil || !got.Message.Withheld {
			t.Errorf("%s, for others: %+v", name, got)
		}
	}
	first := wait(a, inbox.WaitFilter{Since: ever, From: "x@far.test", FromDomain: "far.test"})
	if m := first.Message; m == nil || !m.Withheld || first.Code == nil || *first.Code != "482911" || strings.Contains(text(t, m), "ZEBRA") || m.ReplyText != nil {
		t.Fatalf("%+v", first)
	}
	got := r.reading(a)
	if got == nil || got.Taint != nil || !slices.Contains(got.People, "cat@far.test") {
		t.Errorf("the reader: %+v", got)
	}
	if second := wait(a, inbox.WaitFilter{Since: first.Now}); second.Message == nil || second.Code != nil || second.Message.Subject != "" {
		t.Errorf("%+v", second)
	}
	if again := r.reading(a); !slices.Equal(again.People, got.People) || again.Taint != nil {
		t.Errorf("a message of which nothing was given counts: %+v", again)
	}
	// Without from_domain anybody can write a sentence into the path of a link.
	if got := wait(a, inbox.WaitFilter{Since: ever}); got.Message == nil || len(got.Links) > 0 {
		t.Errorf("links without from_domain: %+v", got)
	}
	if len(first.Links) != 1 || !first.Links[0].SameDomain || first.Links[0].Text != "" {
		t.Errorf("links with from_domain: %+v", first.Links)
	}
	trusting := r.agent(agents.Policy{Taint: true, TrustedSenders: []string{"x@far.test"}})
	if got := wait(trusting, inbox.WaitFilter{Since: ever, Subject: "zebra"}); got.Message == nil || got.Message.Withheld {
		t.Errorf("a trusted sender: %+v", got)
	}
}

// TestFieldsThatNoProofCovers: a reader whom a proven message does not taint gets only the header
// fields that the proof covers, since others can be added to a signed message. Other readers get
// all.
func TestFieldsThatNoProofCovers(t *testing.T) {
	r := newWaitRig(t, core.Config{})
	r.Run()
	if err := r.Receive("x@far.test", fmt.Sprintf(strange, 1), "ann@example.test"); err != nil {
		t.Fatal(err)
	}
	trusting := r.agent(agents.Policy{Taint: true, TrustedSenders: []string{"x@far.test"}})
	for _, c := range []struct {
		who     core.Actor
		all     bool
		tainted bool
	}{
		{trusting, false, false},
		{r.agent(agents.Policy{TrustedSenders: []string{"x@far.test"}}), true, false},
		{r.agent(agents.Policy{}), true, false},
		{r.agent(agents.Policy{Taint: true}), true, true},
		{trusting, false, true},
	} {
		m, err := r.Svc.Inbox.GetMessage(t.Context(), c.who, inbox.MessageIn{UserID: r.ann.ID, MessageID: "1"})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, h := range m.Headers {
			names = append(names, h.Name)
		}
		has := func(name string) bool { return slices.Contains(names, name) }
		if !has("Subject") || !has("Content-Type") || has("X-ZEBRA") != c.all || has("Received") != c.all {
			t.Errorf("all %v: %q", c.all, names)
		}
		if got := r.reading(c.who); (got != nil && got.Taint != nil) != c.tainted {
			t.Errorf("all %v: %+v", c.all, got)
		}
	}
}

// TestTaintedDeletes: a tainted token can move messages to Trash but delete none.
func TestTaintedDeletes(t *testing.T) {
	r := newWaitRig(t, core.Config{})
	r.Run()
	for n := range 2 {
		if err := r.Receive("x@far.test", fmt.Sprintf(strange, n), "ann@example.test"); err != nil {
			t.Fatal(err)
		}
	}
	a := r.agent(agents.Policy{Taint: true})
	one := inbox.MessageIn{UserID: r.ann.ID, MessageID: "1"}
	if _, err := r.Svc.Inbox.GetMessage(t.Context(), a, one); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if e, ours := core.AsError(err); !ours || e.Code != "tainted" {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := r.Svc.Inbox.DeleteMessage(t.Context(), a, inbox.DeleteMessageIn{MessageIn: one})
	refused("for good", err)
	_, err = r.Svc.Inbox.DeleteInboxMessage(t.Context(), a, inbox.DeleteInboxMessageIn{InboxMessageIn: inbox.InboxMessageIn{Mailbox: r.ann.Email, MessageID: "1"}})
	refused("for good by address", err)
	moved, err := r.Svc.Inbox.DeleteMessage(t.Context(), a, inbox.DeleteMessageIn{MessageIn: one, To: "trash"})
	if err != nil || moved.NewUID == nil {
		t.Fatalf("to Trash: %+v %v", moved, err)
	}
	inTrash := inbox.MessageIn{UserID: r.ann.ID, MessageID: *moved.NewUID, Folder: "trash"}
	_, err = r.Svc.Inbox.DeleteMessage(t.Context(), a, inbox.DeleteMessageIn{MessageIn: inTrash, To: "trash"})
	refused("out of Trash", err)
	if got := len(r.Folder(r.ann, "Trash")); got != 1 {
		t.Errorf("%d messages in Trash", got)
	}
	clean := r.agent(agents.Policy{Taint: true})
	if _, err := r.Svc.Inbox.DeleteMessage(t.Context(), clean, inbox.DeleteMessageIn{MessageIn: inTrash}); err != nil {
		t.Errorf("by one that is not tainted: %v", err)
	}

	// Its drafts have no known origin for the next reader.
	draft, err := r.Svc.Submit.CreateDraft(t.Context(), a, submit.CreateDraftIn{SendEmailIn: submit.SendEmailIn{UserID: r.ann.ID, Subject: "by a tainted one", Text: "x"}})
	if err != nil || draft.Withheld || draft.Subject == "" {
		t.Fatalf("%+v %v", draft, err)
	}
	if got := r.list(clean, inbox.InboxFilter{Folder: "drafts"}); len(got) != 1 || !got[0].Withheld {
		t.Errorf("its draft: %+v", got)
	}
}

// TestTaintLasts: neither parallel requests nor a restart lose a recorded reading.
func TestTaintLasts(t *testing.T) {
	r := newWaitRig(t, core.Config{})
	const n = 12
	for k := range n {
		if err := r.Receive("x@far.test", letterAbout("x@far.test", "ann@example.test", fmt.Sprint("letter ", k)), "ann@example.test"); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 5 {
		a, sibling := r.agent(agents.Policy{Taint: true}), r.agent(agents.Policy{Taint: true})
		begin := make(chan struct{})
		var wg sync.WaitGroup
		for k := range n {
			wg.Go(func() {
				<-begin
				if _, err := r.Svc.Inbox.GetMessage(t.Context(), a, inbox.MessageIn{UserID: r.ann.ID, MessageID: fmt.Sprint(k%2 + 1)}); err != nil {
					t.Error(err)
				}
				if got := r.reading(a); got == nil || got.Taint == nil { // whoever has its answer is tainted
					t.Errorf("%+v", got)
				}
			})
		}
		close(begin)
		wg.Wait()
		got := r.reading(a)
		if !slices.Equal(got.People, []string{"x@far.test", "ann@example.test"}) || got.Taint.ThreadID != "" || got.Taint.UID == 0 || r.reading(sibling).Taint == nil {
			t.Errorf("round %d: %+v", round, got)
		}
		r.Reopen()
		if again := r.reading(a); *again.Taint != *got.Taint || !slices.Equal(again.People, got.People) {
			t.Errorf("after a restart: %+v, want %+v", again, got)
		}
		if _, err := r.Svc.Inbox.DeleteMessage(t.Context(), a, inbox.DeleteMessageIn{MessageIn: inbox.MessageIn{UserID: r.ann.ID, MessageID: "1"}}); err == nil {
			t.Error("a restart has ended the taint")
		}
	}
}

// TestNamesOfConversationsAreRead: a thread's row names the authors of its other messages, so that
// these count as read, with their people.
func TestNamesOfConversationsAreRead(t *testing.T) {
	r := newGateRig(t)
	for i, cc := range []string{"mate@far.test", "other@far.test"} {
		text := fmt.Sprintf("From: Boss <boss@far.test>\r\nTo: ann@example.test\r\nCc: %s\r\nMessage-ID: <n%d@far.test>\r\nReferences: <n0@far.test>\r\nSubject: Re: plan\r\n\r\nHello.\r\n", cc, i)
		if err := r.Receive("boss@far.test", text, r.ann.Email); err != nil {
			t.Fatal(err)
		}
	}
	r.WaitFiled([]*store.Mailbox{r.ann}, 2)
	agent := r.keys[0].who
	rows := r.list(agent, inbox.InboxFilter{Threads: true})
	if len(rows) != 1 || rows[0].Withheld || !slices.Equal(rows[0].Thread.From, []string{"Boss"}) {
		t.Fatalf("%+v", rows)
	}
	if got := r.reading(agent); got == nil || got.Taint != nil || slices.Contains(got.People, "other@far.test") || !slices.Contains(got.People, "boss@far.test") {
		t.Errorf("it has read %+v", got)
	}
}
