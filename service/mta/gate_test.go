package mta_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mta"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestProgramsSendThroughTheGate: mail is queued by a person's submission and by the gate alone.
func TestProgramsSendThroughTheGate(t *testing.T) {
	files, err := filepath.Glob("../*/*.go")
	if err != nil || len(files) < 50 {
		t.Fatal(len(files), err)
	}
	call := regexp.MustCompile(`\.(Enqueue|addDelivery)\(`)
	var got []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			m := call.FindStringSubmatch(line)
			if m != nil && !strings.Contains(name, "/events/") { // whose deliveries are those of webhooks
				got = append(got, filepath.Base(name)+" "+m[1])
			}
		}
	}
	slices.Sort(got)
	want := []string{"enqueue.go addDelivery", "enqueue.go addDelivery", "gate.go Enqueue", "submit.go Enqueue"}
	if !slices.Equal(got, want) {
		t.Errorf("mail is queued by %q, want %q: what a program starts goes through start", got, want)
	}
}

// TestManyForwardsOfRules: rules that ask for very many forwards send 20, in transactions within
// their bounds, and what comes back is not sent on again.
func TestManyForwardsOfRules(t *testing.T) {
	i := servicetest.Install(t, core.Config{Outbound: core.ViaCapture})
	d := i.AddDomain(i.Account, "example.test", nil)
	ann := i.AddMailbox(d, "ann", nil)
	i.Update(func(tx *store.Tx) error {
		for n := range 100 {
			r := &store.Rule{ID: tx.NewID("rule"), AccountID: ann.AccountID, MailboxID: ann.ID, Name: "on", Enabled: true, Position: n, Match: "all"}
			for k := range 10 {
				r.Actions = append(r.Actions, store.RuleAction{Type: "forward", Value: fmt.Sprintf("f%d-%d@else.test", n, k)})
			}
			if err := store.Rules.Put(tx, r); err != nil {
				return err
			}
		}
		return nil
	})
	i.Run()
	for range 2 {
		if err := i.Receive("far@far.test", fmt.Sprintf(ruled, ann.Email, "s", "same"), ann.Email); err != nil {
			t.Fatal(err)
		}
		settled(t, i)
	}
	i.Becomes("f1-9@else.test", store.OutgoingCaptured)
	if rows := forwarded(i, "else.test"); rows != 20 {
		t.Errorf("%d forwards, want 20", rows)
	}
}

// forwarded counts the rows of the sending log for a domain.
func forwarded(i *servicetest.Installation, domain string) (rows int) {
	i.T.Helper()
	err := i.St.View(func(tx *store.Tx) error {
		rows = 0
		for o := range store.Outgoings.All(tx) {
			if _, of, _ := msg.SplitEmail(o.Recipient); of == domain {
				rows++
			}
		}
		return nil
	})
	if err != nil {
		i.T.Fatal(err)
	}
	return rows
}

// TestOneAddressGetsFewLetters: letters to one address end at a number a day.
func TestOneAddressGetsFewLetters(t *testing.T) {
	i := servicetest.Install(t, core.Config{Outbound: core.ViaCapture})
	i.AddDomain(i.Account, "example.test", nil)
	i.Run()
	for range 40 {
		i.Update(func(tx *store.Tx) error {
			return i.Svc.PlanLetter(tx, mta.Letter{To: "victim@else.test", Subject: "s", Text: "t"})
		})
	}
	settled(t, i)
	eventually(t, "30 letters are sent", func() bool { return forwarded(i, "else.test") == 30 })
}
