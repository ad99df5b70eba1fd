package submit_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/agents"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/outbound"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// heldText is a message with one recipient in To and one in Cc.
const heldText = "From: Ann <ann@example.test>\r\nTo: B <b@far.test>, nobody@far.test\r\nCc: a@far.test\r\nSubject: the secret\r\n" +
	"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: text/html\r\n\r\n<p onclick=\"x()\">the words</p>\r\n" +
	"--x\r\nContent-Type: text/plain\r\nContent-Disposition: attachment; filename=f.txt\r\n\r\nfile\r\n--x--\r\n"

// approvals is a host, and a mailbox that sends to it.
type approvals struct {
	*servicetest.Installation
	host *servicetest.Host
	d    *store.Domain
	ann  *store.Mailbox
	who  core.Actor

	passed atomic.Int64 // since began
}

var began = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func (f *approvals) now() time.Time         { return began.Add(time.Duration(f.passed.Load())) }
func (f *approvals) later(by time.Duration) { f.passed.Add(int64(by)) }

func newApprovals(t *testing.T, change func(*core.Config)) *approvals {
	t.Helper()
	f := &approvals{host: (&servicetest.Host{}).Start(t)}
	c := core.Config{Settings: core.Settings{Relays: []core.Relay{f.host.Relay("custom")}}, BaseURL: "https://mail.mailstead.test"}
	if change != nil {
		change(&c)
	}
	f.Installation = servicetest.InstallWith(t, c, store.Options{Now: f.now})
	f.d = f.AddDomain(f.Account, "example.test", nil)
	f.ann = f.AddMailbox(f.d, "ann", nil)
	f.who = servicetest.Actor(f.Account)
	return f
}

func (f *approvals) hold(via, text string, change func(*submit.Submission), to ...string) *store.Approval {
	f.T.Helper()
	in := submit.Submission{From: "ann@example.test", Body: f.Spool(text)}
	for _, r := range to {
		in.To = append(in.To, outbound.Rcpt{Address: r})
	}
	if change != nil {
		change(&in)
	}
	u := core.MailboxUser{AccountID: f.ann.AccountID, MailboxID: f.ann.ID, Email: f.ann.Email}
	rows, a, err := f.Svc.Submit.SubmitHeld(u, in, submit.HoldDetails{Reason: agents.HeldByPolicy, Via: via, TokenID: "tok_1", TokenName: "agent"})
	if err != nil {
		f.T.Fatal(err)
	}
	if len(rows) != len(to) {
		f.T.Fatalf("%d rows of %d recipients", len(rows), len(to))
	}
	return a
}

// sent returns the messages that were sent, without the server's own letters.
func (f *approvals) sent() []servicetest.Taken {
	return slices.DeleteFunc(f.host.Mails(), func(m servicetest.Taken) bool { return strings.Contains(m.Data, "auto-generated") })
}

func (f *approvals) approve(id string) error {
	shown, err := f.Svc.Submit.GetApproval(context.Background(), f.who, submit.ApprovalIn{ApprovalID: id})
	if err != nil {
		f.T.Fatal(err)
	}
	_, err = f.Svc.Submit.ApproveMessage(context.Background(), f.who, submit.ApproveMessageIn{ApprovalID: id, ContentHash: shown.ContentHash})
	return err
}

func (f *approvals) status(id string) string {
	f.T.Helper()
	out, err := f.Svc.Submit.GetApproval(context.Background(), f.who, submit.ApprovalIn{ApprovalID: id})
	if err != nil {
		f.T.Fatal(err)
	}
	return out.Status
}

// TestApprovedMessageIsSentAsItWasShown: before the approval nothing is sent or looked up; then
// exactly the hashed message is sent, and a copy is in Sent if it came by the API.
func TestApprovedMessageIsSentAsItWasShown(t *testing.T) {
	f := newApprovals(t, nil)
	f.Run()
	f.Update(func(tx *store.Tx) error {
		return store.Suppressions.Put(tx, &store.Suppression{AccountID: f.who.AccountID, Email: "gone@far.test"})
	})
	a := f.hold("api", heldText, nil, "b@far.test", "a@far.test", "c@far.test", "gone@far.test")
	f.later(time.Hour)
	time.Sleep(50 * time.Millisecond)
	if s := servicetest.Statuses(f.Installation); s["held"] != 4 || len(f.sent()) != 0 {
		t.Errorf("held: %v, sent %d", s, len(f.sent()))
	}
	shown, err := f.Svc.Submit.GetApproval(t.Context(), f.who, submit.ApprovalIn{ApprovalID: a.ID})
	if err != nil {
		t.Fatal(err)
	}
	file, err := f.Svc.Submit.GetApprovalRaw(t.Context(), f.who, submit.ApprovalIn{ApprovalID: a.ID})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(file.Body)
	if err != nil || int64(len(raw)) != shown.Size || file.Size != shown.Size {
		t.Errorf("raw has %d bytes, says %d and %d: %v", len(raw), shown.Size, file.Size, err)
	}
	file.Body.Close()
	sum := sha256.Sum256(slices.Concat([]byte("MAIL FROM:<ann@example.test>\r\nRCPT TO:<a@far.test>\r\nRCPT TO:<b@far.test>\r\nRCPT TO:<c@far.test>\r\nRCPT TO:<gone@far.test>\r\n\r\n"), raw))
	if shown.ContentHash != hex.EncodeToString(sum[:]) {
		t.Errorf("hash %s", shown.ContentHash)
	}
	got := fmt.Sprint(shown.To, shown.Cc, shown.Bcc, shown.Subject, *shown.HTML, *shown.Text, shown.BodyComplete, shown.Attachments, *shown.Token, *shown.UserID == f.ann.ID, shown.DecidedBy)
	if got != "[b@far.test] [a@far.test] [c@far.test gone@far.test]the secret<p>the words</p>the words\ntrue [{f.txt text/plain 4}] {tok_1 agent} true <nil>" {
		t.Errorf("shown: %s", got)
	}

	if _, err := f.Svc.Submit.ApproveMessage(t.Context(), f.who, submit.ApproveMessageIn{ApprovalID: a.ID, ContentHash: strings.Repeat("0", 64)}); servicetest.ErrorCode(err) != "content_changed" {
		t.Errorf("another hash: %v", err)
	}
	if f.status(a.ID) != "pending" {
		t.Error("another hash has decided it")
	}
	if err := f.approve(a.ID); err != nil {
		t.Fatal(err)
	}
	f.Becomes("a@far.test", "relayed")
	f.Becomes("b@far.test", "relayed")
	f.Becomes("c@far.test", "relayed")
	f.Becomes("gone@far.test", "suppressed")
	for _, m := range f.sent() {
		if !strings.HasSuffix(m.Data, string(raw)) {
			t.Errorf("sent:\n%s\nwant the end:\n%s", m.Data, raw)
		}
	}
	servicetest.Eventually(t, "a copy in Sent", func() bool { return len(f.Folder(f.ann, "Sent")) == 1 })
	if err := f.approve(a.ID); servicetest.ErrorCode(err) != "already_decided" {
		t.Errorf("approved twice: %v", err)
	}
	if _, err := f.Svc.Submit.RejectMessage(t.Context(), f.who, submit.RejectMessageIn{ApprovalID: a.ID}); servicetest.ErrorCode(err) != "already_decided" {
		t.Errorf("rejected when approved: %v", err)
	}
	for _, event := range []string{"email.held", "email.approved"} {
		data := f.Events(event)
		if len(data) != 1 || data[0]["approval_id"] != a.ID || data[0]["subject"] != nil || data[0]["preview"] != nil {
			t.Errorf("%s: %v", event, data)
		}
	}
	servicetest.Eventually(t, "nothing is left", func() bool { subs, jobs := f.Left(); return subs == 0 && jobs == 0 })

	// It can be read for 30 days.
	for _, days := range []time.Duration{29, 2} {
		f.later(days * 24 * time.Hour)
		if _, err := f.Svc.Prune(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		_, err := f.Svc.Submit.GetApproval(t.Context(), f.who, submit.ApprovalIn{ApprovalID: a.ID})
		if days == 29 && err != nil || days == 2 && servicetest.ErrorCode(err) != "not_found" {
			t.Errorf("%v", err)
		}
	}
}

// TestApprovalsOfOthersAreNotThere: every operation answers not_found for another account's
// approval.
func TestApprovalsOfOthersAreNotThere(t *testing.T) {
	f := newApprovals(t, nil)
	a := f.hold("api", heldText, nil, "b@far.test")
	other, ctx, in := servicetest.Actor(f.AddAccount("x@elsewhere.test")), t.Context(), submit.ApprovalIn{ApprovalID: a.ID}
	_, get := f.Svc.Submit.GetApproval(ctx, other, in)
	_, raw := f.Svc.Submit.GetApprovalRaw(ctx, other, in)
	_, approve := f.Svc.Submit.ApproveMessage(ctx, other, submit.ApproveMessageIn{ApprovalID: a.ID, ContentHash: a.ContentHash})
	_, reject := f.Svc.Submit.RejectMessage(ctx, other, submit.RejectMessageIn{ApprovalID: a.ID})
	for n, err := range []error{get, raw, approve, reject} {
		if servicetest.ErrorCode(err) != "not_found" {
			t.Errorf("%d: %v", n, err)
		}
	}
	for status, want := range map[string]int{"": 1, "pending": 1, "approved": 0} {
		mine, err := f.Svc.Submit.ListApprovals(ctx, f.who, submit.ListApprovalsIn{Status: status})
		theirs, err2 := f.Svc.Submit.ListApprovals(ctx, other, submit.ListApprovalsIn{Status: status})
		if err != nil || err2 != nil || len(mine.Data) != want || len(theirs.Data) != 0 {
			t.Errorf("%q: %+v %+v, %v %v", status, mine, theirs, err, err2)
		}
	}
}

// TestRejectedMessageIsNeverSent: its sender by SMTP gets a report, except for recipients without
// NOTIFY=FAILURE. So does the sender of a message that nobody approves within seven days.
func TestRejectedMessageIsNeverSent(t *testing.T) {
	f := newApprovals(t, nil)
	f.Run()
	quiet := func(in *submit.Submission) { in.To[1].Notify = "NEVER" }
	smtp := f.hold("smtp", heldText, quiet, "b@far.test", "never@far.test")
	api := f.hold("api", heldText, nil, "api@far.test")
	late := f.hold("smtp", heldText, nil, "late@far.test")
	for _, id := range []string{smtp.ID, api.ID} {
		out, err := f.Svc.Submit.RejectMessage(t.Context(), f.who, submit.RejectMessageIn{ApprovalID: id, Note: "no"})
		if err != nil || out.Status != "rejected" || *out.Note != "no" || out.DecidedBy.ID != f.who.UserID || out.DecidedBy.Name == "" {
			t.Fatalf("%+v, %v", out, err)
		}
		if err := f.approve(id); servicetest.ErrorCode(err) != "already_decided" {
			t.Errorf("approved when rejected: %v", err)
		}
	}
	for _, to := range []string{"b@far.test", "never@far.test", "api@far.test"} {
		f.Becomes(to, "rejected")
	}
	reports := f.Folder(f.ann, "INBOX")
	if len(reports) != 1 {
		t.Fatalf("%d reports", len(reports))
	}
	if r := f.Report(reports[0].Raw); len(r.Recipients) != 1 || r.Recipients[0].Status != "5.7.1" || r.Recipients[0].Final != "b@far.test" {
		t.Errorf("report: %+v", r)
	}
	f.later(7*24*time.Hour - time.Second)
	if f.status(late.ID) != "pending" {
		t.Error("it expires too early")
	}
	f.later(time.Second)
	if err := f.approve(late.ID); servicetest.ErrorCode(err) != "approval_expired" {
		t.Errorf("approved after seven days: %v", err)
	}
	f.Stop()
	f.Run()
	f.Becomes("late@far.test", "rejected")
	if f.status(late.ID) != "expired" || servicetest.ErrorCode(f.approve(late.ID)) != "approval_expired" {
		t.Error("it has not expired")
	}
	if n := len(f.Folder(f.ann, "INBOX")); n != 2 {
		t.Errorf("%d reports", n)
	}
	if n := len(f.Events("email.rejected")); n != 3 || len(f.sent()) != 0 {
		t.Errorf("%d events, %d sent", n, len(f.sent()))
	}
	servicetest.Eventually(t, "nothing is left", func() bool { subs, jobs := f.Left(); return subs == 0 && jobs == 0 })
}

// TestLimitsAreJudgedWhenItIsApproved: a held message counts against no limit; one that exceeds a
// limit when it is approved stays held.
func TestLimitsAreJudgedWhenItIsApproved(t *testing.T) {
	f := newApprovals(t, func(c *core.Config) { c.Limits.RecipientsPerMailbox = 2 })
	f.Run()
	for range 3 {
		f.hold("api", heldText, nil, "x@far.test", "y@far.test", "z@far.test")
	}
	two := f.hold("api", heldText, nil, "b@far.test", "a@far.test")
	one := f.hold("api", heldText, nil, "c@far.test")
	if err := f.approve(two.ID); err != nil {
		t.Fatal(err)
	}
	f.Becomes("b@far.test", "relayed")
	if err := f.approve(one.ID); servicetest.ErrorCode(err) != "daily_send_limit_reached" || f.status(one.ID) != "pending" {
		t.Errorf("over the limit: %v, %s", err, f.status(one.ID))
	}
	f.later(24 * time.Hour)
	if err := f.approve(one.ID); err != nil {
		t.Errorf("the next day: %v", err)
	}
}

// TestManyRecipientsAreHeldAndApproved: a message with the maximum number of recipients, some of
// them queued after the transaction that approves it.
func TestManyRecipientsAreHeldAndApproved(t *testing.T) {
	f := newApprovals(t, func(c *core.Config) { c.Outbound = core.ViaCapture })
	var to []string
	for n := range 1000 {
		to = append(to, fmt.Sprintf("r%d@far.test", n))
	}
	approved, rejected := f.hold("smtp", heldText, nil, to...), f.hold("smtp", heldText, nil, to...)
	f.Run()
	if err := f.approve(approved.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Svc.Submit.RejectMessage(t.Context(), f.who, submit.RejectMessageIn{ApprovalID: rejected.ID}); err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "all are settled", func() bool {
		s := servicetest.Statuses(f.Installation)
		return s["captured"] >= 1000 && s["rejected"] == 1000 // a letter may be among them
	})
}

// TestScheduledMessageThatIsApproved: it is sent at its time, or at once if that has passed.
func TestScheduledMessageThatIsApproved(t *testing.T) {
	f := newApprovals(t, nil)
	f.Run()
	tomorrow := func(in *submit.Submission) { in.SendAt = f.now().Add(24 * time.Hour) }
	early := f.hold("api", heldText, tomorrow, "a@far.test")
	late := f.hold("api", heldText, tomorrow, "b@far.test")
	if err := f.approve(early.ID); err != nil {
		t.Fatal(err)
	}
	if row := f.Row("a@far.test"); row.Status != "scheduled" || !row.NextAt.Equal(row.SendAt) {
		t.Errorf("%+v", row)
	}
	f.later(48 * time.Hour)
	if err := f.approve(late.ID); err != nil {
		t.Fatal(err)
	}
	f.Becomes("b@far.test", "relayed")
	f.Stop()
	f.Run()
	f.Becomes("a@far.test", "relayed")
}

// TestApproversAreToldOnceInTenMinutes, even after a restart, without any text of a message.
func TestApproversAreToldOnceInTenMinutes(t *testing.T) {
	f := newApprovals(t, nil)
	f.Update(func(tx *store.Tx) error { // a person who has never signed in is notified too
		for u := range store.Users.All(tx) {
			u.Status = store.UserActive
			if err := store.Users.Put(tx, u); err != nil {
				return err
			}
		}
		admin := &store.User{ID: tx.NewID("usr"), AccountID: f.who.AccountID, Email: "admin@far.test", Role: store.UserRoleAdmin, Status: store.UserActive}
		member := &store.User{ID: tx.NewID("usr"), AccountID: f.who.AccountID, Email: "member@far.test", Role: store.UserRoleMember, Status: store.UserActive}
		if err := store.Users.Put(tx, admin); err != nil {
			return err
		}
		return store.Users.Put(tx, member)
	})
	letters := func() (out []string) {
		for _, m := range f.host.Mails() {
			out = append(out, m.To)
			if strings.Contains(m.Data, "secret") || strings.Contains(m.Data, "b@far.test") || !strings.Contains(m.Data, "/approvals") {
				t.Errorf("a letter:\n%s", m.Data)
			}
		}
		slices.Sort(out)
		return out
	}
	f.Run()
	f.hold("api", heldText, nil, "b@far.test")
	servicetest.Eventually(t, "two letters", func() bool { return len(letters()) == 2 })
	f.hold("api", heldText, nil, "b@far.test")
	f.Stop()
	f.Reopen()
	f.Run()
	f.hold("api", heldText, nil, "b@far.test")
	time.Sleep(100 * time.Millisecond)
	if got := letters(); !slices.Equal(got, []string{"admin@far.test", "owner@elsewhere.test"}) {
		t.Errorf("told: %v", got)
	}
	f.later(10 * time.Minute)
	f.Stop()
	f.Run()
	servicetest.Eventually(t, "two more letters", func() bool { return len(letters()) == 4 })
	if last := f.host.Mails()[3].Data; !strings.Contains(last, "3 messages wait") {
		t.Errorf("the last letter:\n%s", last)
	}
}

// TestHeldMessageOfADeletedMailbox: it is rejected, whether other mail is held or not; so is a
// message of a deleted domain.
func TestHeldMessageOfADeletedMailbox(t *testing.T) {
	for _, hold := range []bool{false, true} {
		f := newApprovals(t, nil)
		a := f.hold("smtp", heldText, nil, "b@far.test")
		if out, err := f.Svc.Outbound.ReleaseHeldMessages(t.Context(), f.who, outbound.ReleaseIn{UserID: f.ann.ID, Action: "release"}); err != nil || *out != (outbound.Released{}) {
			t.Errorf("released: %+v, %v", out, err)
		}
		if _, err := f.Svc.Mailboxes.DeleteEmailUser(t.Context(), f.who, mailboxes.DeleteEmailUserIn{UserID: f.ann.ID, Hold: hold}); err != nil {
			t.Fatal(err)
		}
		if err := f.approve(a.ID); servicetest.ErrorCode(err) != "already_decided" {
			t.Errorf("approved while it is deleted: %v", err)
		}
		f.Run()
		f.Becomes("b@far.test", "rejected")
		if f.status(a.ID) != "rejected" {
			t.Error("the approval is " + f.status(a.ID))
		}
	}
	f := newApprovals(t, nil)
	a := f.hold("smtp", heldText, nil, "b@far.test")
	if err := f.Svc.Submit.CancelMailOf(t.Context(), f.d); err != nil {
		t.Fatal(err)
	}
	if f.status(a.ID) != "rejected" || f.Row("b@far.test").Status != "rejected" {
		t.Errorf("%s, %s", f.status(a.ID), f.Row("b@far.test").Status)
	}
}

// TestApprovedMessageOfASuspendedMailbox: it is held and released like other mail.
func TestApprovedMessageOfASuspendedMailbox(t *testing.T) {
	f := newApprovals(t, nil)
	f.Run()
	a := f.hold("api", heldText, nil, "b@far.test")
	f.later(time.Minute)
	status, yes := "suspended", true
	if _, err := f.Svc.Mailboxes.UpdateEmailUser(t.Context(), f.who, mailboxes.UpdateEmailUserIn{UserID: f.ann.ID, Status: &status, Hold: &yes}); err != nil {
		t.Fatal(err)
	}
	if err := f.approve(a.ID); err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "it is held", func() bool { return !f.Row("b@far.test").HeldAt.IsZero() })
	f.later(time.Minute)
	if out, err := f.Svc.Outbound.ReleaseHeldMessages(t.Context(), f.who, outbound.ReleaseIn{UserID: f.ann.ID, Action: "release"}); err != nil || out.Released != 1 {
		t.Errorf("released: %+v, %v", out, err)
	}
	f.Becomes("b@far.test", "relayed")
}

// TestChangesOfAHeldMessage: it cannot be retried or rescheduled, and cancelling it for one
// recipient rejects it for all.
func TestChangesOfAHeldMessage(t *testing.T) {
	f := newApprovals(t, nil)
	a := f.hold("api", heldText, nil, "b@far.test", "a@far.test")
	id := f.Row("a@far.test").ID
	if _, err := f.Svc.Outbound.RetryMessage(t.Context(), f.who, outbound.SentMessageIn{ID: id}); servicetest.ErrorCode(err) != "not_queued" {
		t.Errorf("retried: %v", err)
	}
	later := core.Time{Time: f.now().Add(time.Hour)}
	if _, err := f.Svc.Outbound.UpdateScheduledMessage(t.Context(), f.who, outbound.UpdateScheduledIn{ID: id, SendAt: &later}); servicetest.ErrorCode(err) != "not_scheduled" {
		t.Errorf("moved: %v", err)
	}
	out, err := f.Svc.Submit.CancelMessage(t.Context(), f.who, outbound.SentMessageIn{ID: id})
	if err != nil || out.Status != "rejected" || f.Row("b@far.test").Status != "rejected" || f.status(a.ID) != "rejected" {
		t.Errorf("%+v, %v; %s", out, err, f.status(a.ID))
	}
}

// TestRejectedMessageOfADomainsProgram: a program that sends for a domain has no mailbox; the
// envelope sender gets the report.
func TestRejectedMessageOfADomainsProgram(t *testing.T) {
	f := newApprovals(t, nil)
	f.Run()
	in := submit.Submission{From: "ann@example.test", Body: f.Spool(heldText), To: []outbound.Rcpt{{Address: "b@far.test"}}}
	_, a, err := f.Svc.Submit.SubmitHeld(core.MailboxUser{AccountID: f.d.AccountID, DomainID: f.d.ID}, in, submit.HoldDetails{Reason: agents.HeldByTaint, Via: store.ApprovalViaSMTP})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := f.Svc.Submit.RejectMessage(t.Context(), f.who, submit.RejectMessageIn{ApprovalID: a.ID}); err != nil || out.UserID != nil || out.Token != nil {
		t.Fatalf("%+v, %v", out, err)
	}
	f.Becomes("b@far.test", "rejected")
	servicetest.Eventually(t, "a report", func() bool { return len(f.Folder(f.ann, "INBOX")) == 1 })
	if r := f.Report(f.Folder(f.ann, "INBOX")[0].Raw); len(r.Recipients) != 1 || r.Recipients[0].Status != "5.7.1" {
		t.Errorf("report: %+v", r)
	}
}

// TestForwardedMessageIsApprovedAsItIsSent: a forward of a mailbox is held under its policy, and
// shown without the Return-Path of the stored copy.
func TestForwardedMessageIsApprovedAsItIsSent(t *testing.T) {
	f := newApprovals(t, nil)
	f.Update(func(tx *store.Tx) error {
		f.ann.ForwardTo, f.ann.SendPolicy = "onward@far.test", store.Policy{Send: store.SendApproval}
		return store.Mailboxes.Put(tx, f.ann)
	})
	f.Run()
	if err := f.ComeIn(netip.MustParseAddr("192.0.2.1"), "pat@away.test", "ann@example.test", "From: pat@away.test\r\nTo: ann@example.test\r\nSubject: on\r\n\r\nhello\r\n"); err != nil {
		t.Fatal(err)
	}
	f.Becomes("onward@far.test", "held")
	list, err := f.Svc.Submit.ListApprovals(t.Context(), f.who, submit.ListApprovalsIn{})
	if err != nil || len(list.Data) != 1 || list.Data[0].Via != "rule" {
		t.Fatalf("%+v, %v", list, err)
	}
	file, err := f.Svc.Submit.GetApprovalRaw(t.Context(), f.who, submit.ApprovalIn{ApprovalID: list.Data[0].ApprovalID})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(file.Body)
	if err != nil || strings.Contains(string(raw), "Return-Path") {
		t.Errorf("%v, %s", err, raw)
	}
	file.Body.Close()
	if err := f.approve(list.Data[0].ApprovalID); err != nil {
		t.Fatal(err)
	}
	f.Becomes("onward@far.test", "relayed")
	if sent := f.sent(); len(sent) != 1 || !strings.HasSuffix(sent[0].Data, string(raw)) {
		t.Errorf("sent: %+v\nwant the end:\n%s", sent, raw)
	}
}

// TestProgramsHoldSoManyMessages: held messages count against no sending limit, so they have their
// own.
func TestProgramsHoldSoManyMessages(t *testing.T) {
	f := newApprovals(t, nil)
	f.Update(func(tx *store.Tx) error {
		f.ann.SendPolicy = store.Policy{Send: store.SendApproval}
		return store.Mailboxes.Put(tx, f.ann)
	})
	put := func(n int, status string) {
		f.Update(func(tx *store.Tx) error {
			for range n {
				if err := store.Approvals.Put(tx, &store.Approval{ID: tx.NewID("apr"), AccountID: f.who.AccountID, Status: status}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	put(999, store.ApprovalPending)
	put(10, store.ApprovalRejected)
	if out := f.MustSend(f.ann, submit.SendEmailIn{To: submit.Texts{"a@far.test"}, Subject: "s", Text: "t"}); out.Status != "held" || out.ApprovalID == nil {
		t.Errorf("the last one: %+v", out)
	}
	if _, err := f.Send(f.ann, submit.SendEmailIn{To: submit.Texts{"b@far.test"}, Subject: "s", Text: "t"}); servicetest.ErrorCode(err) != "rate_limited" {
		t.Errorf("one more: %v", err)
	}
}
