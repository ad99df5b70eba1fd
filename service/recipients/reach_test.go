package recipients_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/submit"
	"github.com/mailstead/mailstead/store"
)

// TestRefusalsNameNoForwards: a refusal names the addresses in the message, and not those that they
// forward to, which another account must not learn.
func TestRefusalsNameNoForwards(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
	mine := i.AddMailbox(i.AddDomain(i.Account, "mine.test", nil), "ann", func(mb *store.Mailbox) {
		mb.SendPolicy = store.Policy{Send: store.SendReplyOnly}
	})
	theirs := i.AddAccount("owner@theirs.test")
	d := i.AddDomain(theirs, "theirs.test", nil)
	vic := i.AddMailbox(d, "vic", func(mb *store.Mailbox) { mb.ForwardTo = "private@home.test" })
	i.Update(func(tx *store.Tx) error {
		return store.Rules.Put(tx, &store.Rule{
			ID: tx.NewID("rule"), AccountID: vic.AccountID, MailboxID: vic.ID, Name: "r", Enabled: true, Match: "all",
			Actions: []store.RuleAction{{Type: "forward", Value: "lawyer@home.test"}},
		})
	})
	if _, err := i.Svc.Mailboxes.CreateGroup(t.Context(), servicetest.Actor(theirs), mailboxes.CreateGroupIn{
		Email: "board@theirs.test", Members: []mailboxes.NewMember{{UserID: vic.ID}, {Email: "director@home.test"}},
	}); err != nil {
		t.Fatal(err)
	}
	agent := servicetest.Actor(i.Account)
	agent.TokenKind, agent.TokenID = "api", "tok_none"
	_, err := i.Svc.Submit.SendEmail(t.Context(), agent, submit.SendEmailIn{UserID: mine.ID, To: submit.Texts{"vic@theirs.test", "board@theirs.test"}, Subject: "s", Text: "t"})
	e, _ := core.AsError(err)
	if e == nil || e.Code != "recipient_not_allowed" {
		t.Fatal(err)
	}
	var named []string
	for _, detail := range e.Details {
		named = append(named, detail.Message)
	}
	if slices.Sort(named); !slices.Equal(named, []string{"board@theirs.test", "vic@theirs.test"}) {
		t.Errorf("the refusal names %q", named)
	}
}

// TestRulesOfOthersHoldNoWriterUp: what a mailbox with a policy sends may reach the forwards of all
// members of a group. Their rules are read, however many there are, but not in a write transaction.
func TestRulesOfOthersHoldNoWriterUp(t *testing.T) {
	const members, each = 40, 25
	reports := t.TempDir()
	t.Setenv("MAILSTEAD_TX_REPORT", reports)
	t.Run("world", func(t *testing.T) {
		i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: "capture"}})
		d := i.AddDomain(i.Account, "example.test", nil)
		var list []mailboxes.NewMember
		for n := range members {
			mb := i.AddMailbox(d, fmt.Sprint("m", n), nil)
			list = append(list, mailboxes.NewMember{UserID: mb.ID})
			i.Update(func(tx *store.Tx) error {
				var err error
				for k := range each {
					err = errors.Join(err, store.Rules.Put(tx, &store.Rule{
						ID: tx.NewID("rule"), AccountID: mb.AccountID, MailboxID: mb.ID, Name: "r", Enabled: true, Match: "all", Position: k,
						Conditions: []store.RuleCondition{{Field: "subject", Op: "is", Value: "never"}},
						Actions:    []store.RuleAction{{Type: "forward", Value: fmt.Sprintf("%d.%d@far.test", n, k)}},
					}))
				}
				return err
			})
		}
		if _, err := i.Svc.Mailboxes.CreateGroup(t.Context(), servicetest.Actor(i.Account), mailboxes.CreateGroupIn{Email: "all@example.test", Members: list}); err != nil {
			t.Fatal(err)
		}
		i.AddMailbox(d, "ann", func(mb *store.Mailbox) {
			mb.ForwardTo, mb.SendPolicy = "all@example.test", store.Policy{Send: store.SendApproval}
		})
		i.Run()
		if err := i.Receive("p@far.test", "From: p@far.test\r\nTo: ann@example.test\r\nMessage-ID: <1@far.test>\r\nSubject: s\r\n\r\nHello.\r\n", "ann@example.test"); err != nil {
			t.Fatal(err)
		}
		i.Becomes("all@example.test", store.OutgoingHeld)
	})
	files, err := filepath.Glob(filepath.Join(reports, "*.tsv"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Split(line, "\t"); fields[0] == "steps" {
				if n, err := strconv.Atoi(fields[1]); err != nil || n >= members*each {
					t.Errorf("a transaction read the rules of others: %s", line)
				}
			}
		}
	}
}
