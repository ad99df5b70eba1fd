package inbound_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/rules"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// spamText is a message about one of two topics, worded by n.
func spamText(n int, about string) string {
	words := map[string]string{
		"garden": "tulips compost trellis seedlings hedges mulch pruning rakes",
		"berths": "berth harbour mooring tide ferry pilot quay schedule",
	}[about]
	list := strings.Fields(words)
	rand.New(rand.NewPCG(uint64(n), 7)).Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
	return fmt.Sprintf("From: %s <a%d@%s.test>\r\nTo: ann@example.test\r\nSubject: %s %s number%d\r\nMessage-ID: <%s%d@far.test>\r\n\r\nThe %s of today, and more.\r\n",
		about, n, about, list[0], list[1], n, about, n, strings.Join(list, " and "))
}

// taught waits until the classifier has learned from all that was done so far, and returns what it
// has counted: messages that were moved, and examples of wanted mail.
func taught(t *testing.T, i *servicetest.Installation, boxes ...*store.Mailbox) (spam, ham, examples, tokens int) {
	t.Helper()
	servicetest.Eventually(t, "nothing is left to learn", func() bool {
		left := 0
		_ = i.St.View(func(tx *store.Tx) error {
			spam, ham, examples, tokens, left = 0, 0, 0, 0, 0
			for j := range store.Jobs.All(tx) {
				if j.Kind == "learn_spam" && !j.Ended() {
					left++
				}
			}
			for m := range store.SpamModels.All(tx) {
				spam, ham = int(m.Spam), int(m.Ham)
			}
			a, err := store.Accounts.Read(tx, i.Account.AccountID)
			if err != nil {
				return err
			}
			for range tx.SpamTokens(a.Num) {
				tokens++
			}
			for _, mb := range boxes {
				folders, err := tx.Folders(mb.Num)
				if err != nil {
					return err
				}
				for _, f := range folders {
					for m := range tx.Messages(mb.Num, f.ID, 1, 1<<31) {
						if m.Bits&store.BitTaughtSpam != 0 && m.Bits&store.BitTaughtHam != 0 {
							examples++
						}
					}
				}
			}
			return nil
		})
		return left == 0
	})
	return spam, ham - examples, examples, tokens
}

// makeFolders creates the folders that mail is moved to.
func makeFolders(i *servicetest.Installation, mb *store.Mailbox) {
	i.Update(func(tx *store.Tx) error {
		for _, role := range []string{"archive", "junk", "trash"} {
			if _, err := inbox.FolderID(tx, mb, role); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestClassifierLearnsFromMoves: a message that people move to Junk counts as spam, once, by any
// way of moving; a message that is moved out of Junk counts as wanted, unless it goes to Trash; and
// a move back undoes the count.
func TestClassifierLearnsFromMoves(t *testing.T) {
	i := servicetest.Install(t, core.Config{Sandbox: true, Settings: core.Settings{Spam: core.Spam{Classifier: true, JunkScore: 0.9}}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	makeFolders(i, ann)
	i.Run()
	for n := range 6 {
		if err := i.Receive("a@garden.test", spamText(n, "garden"), ann.Email); err != nil {
			t.Fatal(err)
		}
	}
	servicetest.Eventually(t, "the messages are there", func() bool { return len(i.Folder(ann, "INBOX")) == 6 })
	who := servicetest.Actor(i.Account)
	user := core.MailboxUser{AccountID: ann.AccountID, AccountNum: ann.AccountNum, MailboxID: ann.ID, Mailbox: ann.Num, Email: ann.Email}
	folder := func(name string) uint32 {
		t.Helper()
		folders, err := i.Svc.Inbox.Folders(t.Context(), user)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range folders {
			if f.Name == name {
				return f.ID
			}
		}
		t.Fatal(name)
		return 0
	}
	imap := func(from, to string, uid uint32) uint32 {
		t.Helper()
		moved, err := i.Svc.Inbox.MoveMessages(t.Context(), user, folder(from), []uint32{uid}, to)
		if err != nil {
			t.Fatal(err)
		}
		return moved.To[0]
	}
	api := func(from, to, uid string) string {
		t.Helper()
		moved, err := i.Svc.Inbox.BulkMoveMessages(t.Context(), who, inbox.BulkMoveMessagesIn{Messages: []inbox.MessageRef{{Mailbox: ann.Email, UID: uid, Folder: from}}, To: to})
		if err != nil || moved.Moved != 1 {
			t.Fatal(moved, err)
		}
		return moved.Results[0].NewUID
	}
	counts := func(when string, spam, ham int) {
		t.Helper()
		s, h, examples, tokens := taught(t, i, ann)
		if s != spam || h != ham || tokens == 0 {
			t.Errorf("%s: counted as spam %d, as wanted %d and %d examples, %d tokens; want %d and %d", when, s, h, examples, tokens, spam, ham)
		}
	}

	// To Junk by IMAP, by the API, by a mark of the dashboard, and by COPY and EXPUNGE.
	one := imap("INBOX", "Junk", 1)
	counts("by IMAP", 1, 0)
	two := api("inbox", "junk", "2")
	counts("by the API", 2, 0)
	yes := true
	marked, err := i.Svc.Inbox.BulkMarkMessages(t.Context(), who, inbox.BulkMarkMessagesIn{Messages: []inbox.MessageRef{{Mailbox: ann.Email, UID: "3"}}, Junk: &yes})
	if err != nil || marked.Marked != 1 {
		t.Fatal(marked, err)
	}
	counts("by a mark", 3, 0)
	if _, err := i.Svc.Inbox.CopyMessages(t.Context(), user, folder("INBOX"), []uint32{4}, "Junk"); err != nil {
		t.Fatal(err)
	}
	counts("by a copy", 4, 0)
	imap("INBOX", "Junk", 4) // the original, which has been counted
	counts("what was copied before", 4, 0)

	// Moves between other folders, within Junk and to Trash count nothing.
	five := imap("INBOX", "Archive", 5)
	counts("to Archive", 4, 0)
	five = imap("Archive", "Junk", five)
	counts("from Archive", 5, 0)
	trashed := imap("Junk", "Trash", five)
	counts("to Trash", 5, 0)
	imap("Trash", "INBOX", trashed)
	counts("from Trash", 5, 0)

	// A move back, which undoes the count, and another move to Junk.
	back := imap("Junk", "INBOX", one)
	counts("back by IMAP", 4, 0)
	api("junk", "inbox", two)
	counts("back by the API", 3, 0)
	back = imap("INBOX", "Junk", back)
	counts("once more", 4, 0)
	imap("Junk", "INBOX", back)
	counts("back again", 3, 0)

	// A message that a rule moved to Junk was not counted; moved out it counts as wanted, and moved
	// back it does not.
	addRule(i, ann, "berth", "move junk")
	if err := i.Receive("a@berths.test", strings.Replace(spamText(1, "berths"), "Subject: ", "Subject: berth ", 1), ann.Email); err != nil {
		t.Fatal(err)
	}
	var lies uint32
	servicetest.Eventually(t, "the rule has filed it", func() bool {
		for _, m := range i.Folder(ann, "Junk") {
			if strings.Contains(string(m.Raw), "berths.test") {
				lies = m.UID
			}
		}
		return lies != 0
	})
	counts("by a rule", 3, 0)
	out := imap("Junk", "Archive", lies)
	counts("out of Junk", 3, 1)
	lies = imap("Archive", "Junk", out)
	counts("and back", 3, 0)
	imap("Junk", "INBOX", lies)
	counts("and out again", 3, 1)

	// The counts survive a restart, and the deletion of the messages.
	i.Reopen()
	i.Run()
	counts("after a restart", 3, 1)
	gone, err := i.Svc.Inbox.MoveMessages(t.Context(), user, folder("INBOX"), []uint32{6}, "Junk")
	if err != nil {
		t.Fatal(err)
	}
	if err := i.St.Update(func(tx *store.Tx) error { return tx.DeleteMessage(ann.Num, folder("Junk"), gone.To[0]) }); err != nil {
		t.Fatal(err)
	}
	counts("deleted at once", 4, 1)
	if damage := i.St.Check(); damage != nil {
		t.Error(damage)
	}
}

// TestLearningFitsATransaction: many messages of all sizes that wait to be learned, in an account
// whose model is full, are learned in transactions within the limits. A transaction over the limits
// fails in a test.
func TestLearningFitsATransaction(t *testing.T) {
	const full = 200_000
	i := servicetest.Install(t, core.Config{Sandbox: true, Settings: core.Settings{Spam: core.Spam{Classifier: true, JunkScore: 0.9}}})
	ann := i.AddMailbox(i.AddDomain(i.Account, "example.test", nil), "ann", nil)
	makeFolders(i, ann)
	r := rand.New(rand.NewPCG(1, 60))
	for n := range full / 4000 {
		i.Update(func(tx *store.Tx) error {
			for k := range uint64(4000) {
				if err := tx.PutSpamToken(ann.AccountNum, uint64(n)<<48|(k+1), store.SpamCount{Spam: 1, Day: 1}); err != nil {
					return err
				}
			}
			return store.SpamModels.Put(tx, &store.SpamModel{AccountID: ann.AccountID, Spam: 1})
		})
	}
	const each = 12
	var wanted, spam []inbox.MessageRef
	for n := range each * 2 {
		var text strings.Builder
		for range 1300 >> r.IntN(8) {
			fmt.Fprintf(&text, "%c%x ", 'g'+r.IntN(20), r.Uint32())
		}
		if err := i.Receive("a@garden.test", spamText(n, "garden")+text.String()+"\r\n", ann.Email); err != nil {
			t.Fatal(err)
		}
		ref := inbox.MessageRef{Mailbox: ann.Email, UID: core.UIDText(uint32(n + 1))}
		if n%2 == 0 {
			wanted = append(wanted, ref)
		} else {
			spam = append(spam, ref)
		}
	}
	who, yes := servicetest.Actor(i.Account), true
	if out, err := i.Svc.Inbox.BulkMarkMessages(t.Context(), who, inbox.BulkMarkMessagesIn{Messages: wanted, MessageMarks: inbox.MessageMarks{IsRead: &yes}}); err != nil || out.Marked != each {
		t.Fatal(out, err)
	}
	if out, err := i.Svc.Inbox.BulkMoveMessages(t.Context(), who, inbox.BulkMoveMessagesIn{Messages: spam, To: "junk"}); err != nil || out.Moved != each {
		t.Fatal(out, err)
	}
	i.Run()
	var examples, tokens int
	servicetest.Eventually(t, "all are learned", func() bool {
		_, _, examples, tokens = taught(t, i, ann)
		return examples == each
	})
	if tokens > full {
		t.Errorf("%d tokens are kept", tokens)
	}
}

// TestClassifierFilesMail: after some dozen messages were moved, similar ones go to Junk without an
// event, with reasons; a rule that moves a message comes first; wanted mail stays. Another account
// has learned nothing.
func TestClassifierFilesMail(t *testing.T) {
	i := servicetest.Install(t, core.Config{Sandbox: true, Settings: core.Settings{Spam: core.Spam{Classifier: true, JunkScore: 0.9}}})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann, bob := i.AddMailbox(d, "ann", nil), i.AddMailbox(d, "bob", nil)
	other := i.AddAccount("owner@other.test")
	eve := i.AddMailbox(i.AddDomain(other, "other.test", nil), "eve", nil)
	i.Run()
	who, yes := servicetest.Actor(i.Account), true
	for n := range 25 {
		for _, about := range []string{"garden", "berths"} {
			if err := i.Receive("a@"+about+".test", spamText(n, about), ann.Email); err != nil {
				t.Fatal(err)
			}
		}
	}
	var refs, read []inbox.MessageRef
	servicetest.Eventually(t, "the messages are there", func() bool { return len(i.Folder(ann, "INBOX")) == 50 })
	for _, m := range i.Folder(ann, "INBOX") {
		if strings.Contains(string(m.Raw), "garden.test") {
			refs = append(refs, inbox.MessageRef{Mailbox: ann.Email, UID: core.UIDText(m.UID)})
		} else {
			read = append(read, inbox.MessageRef{Mailbox: ann.Email, UID: core.UIDText(m.UID)})
		}
	}
	if _, err := i.Svc.Inbox.BulkMarkMessages(t.Context(), who, inbox.BulkMarkMessagesIn{Messages: read, MessageMarks: inbox.MessageMarks{IsRead: &yes}}); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Svc.Inbox.BulkMoveMessages(t.Context(), who, inbox.BulkMoveMessagesIn{Messages: refs, To: "junk"}); err != nil {
		t.Fatal(err)
	}
	if spam, ham, examples, _ := taught(t, i, ann); spam != 25 || ham != 0 || examples != 25 {
		t.Fatalf("counted as spam %d, as wanted %d, and %d examples", spam, ham, examples)
	}
	before := len(i.Events("email.received"))
	addRule(i, bob, "clearance", "move archive")
	if _, err := i.Svc.Rules.CreateRule(t.Context(), who, rules.CreateRuleIn{
		UserID: ann.ID, Name: "sure", Conditions: []rules.Condition{{Field: "spam_score", Op: "above", Value: &rules.Value{Text: "0.5", Number: true}}},
		Actions: []rules.Action{{Type: "flag"}},
	}); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(spamText(100, "garden"), "Subject: ", "Subject: clearance ", 1)
	if err := i.Receive("a@garden.test", text, ann.Email, bob.Email, eve.Email); err != nil {
		t.Fatal(err)
	}
	if err := i.Receive("a@berths.test", spamText(100, "berths"), ann.Email); err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "it is filed", func() bool {
		return len(i.Folder(ann, "Junk")) == 26 && len(i.Folder(bob, "Archive")) == 1 && len(i.Folder(eve, "INBOX")) == 1 && len(i.Folder(ann, "INBOX")) == 26
	})
	if n := len(i.Events("email.received")) - before; n != 3 {
		t.Errorf("%d events, want those of bob, eve and the wanted one", n)
	}
	junk := i.Folder(ann, "Junk")
	if last := junk[len(junk)-1]; last.Flags&store.FlagFlagged == 0 {
		t.Error("the rule about the score was not asked")
	}
	shown, err := i.Svc.Inbox.GetMessage(t.Context(), who, inbox.MessageIn{UserID: ann.ID, MessageID: core.UIDText(junk[len(junk)-1].UID), Folder: "junk"})
	if err != nil {
		t.Fatal(err)
	}
	v := shown.Spam
	if v == nil || v.Verdict != "spam" || v.Score < 0.9 || len(v.Reasons) == 0 || len(v.Reasons) > 10 || v.Reasons[0].Weight <= 0 || v.Reasons[0].Text == "" {
		t.Fatalf("spam: %+v", v)
	}
	for n := range v.Reasons[1:] {
		if max(v.Reasons[n].Weight, -v.Reasons[n].Weight) < max(v.Reasons[n+1].Weight, -v.Reasons[n+1].Weight) {
			t.Errorf("reasons are not by weight: %+v", v.Reasons)
		}
	}
	tried, err := i.Svc.Rules.TestRules(t.Context(), who, rules.TestRulesIn{UserID: ann.ID, MessageID: shown.UID, Folder: "junk"})
	if err != nil || tried.Folder == nil || *tried.Folder != "Junk" || len(tried.Matched) != 1 {
		t.Errorf("trial: %+v %v", tried, err)
	}

	// Mail from a mailbox of the same account stays wanted; sent mail has no verdict.
	if _, err := i.Send(bob, submit.SendEmailIn{To: submit.Texts{ann.Email}, Subject: "Re: the ferry", Text: "The quay at eight."}); err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "it is filed", func() bool { return len(i.Folder(ann, "INBOX")) == 27 })
	list, err := i.Svc.Inbox.ListEmailUserInbox(t.Context(), who, inbox.ListEmailUserInboxIn{UserID: ann.ID})
	if err != nil || list.Data[0].Spam == nil || list.Data[0].Spam.Verdict == "spam" {
		t.Errorf("a neighbour's: %+v %v", list, err)
	}
	sent, err := i.Svc.Inbox.ListEmailUserInbox(t.Context(), who, inbox.ListEmailUserInboxIn{UserID: bob.ID, InboxFilter: inbox.InboxFilter{Folder: "sent"}})
	if err != nil || len(sent.Data) != 1 || sent.Data[0].Spam != nil {
		t.Errorf("what was sent: %+v %v", sent, err)
	}
}
