package agents

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// TestDecide tests the order of the rules: deny, reply_only, taint, approval, each with the
// policy's allowed_recipients.
func TestDecide(t *testing.T) {
	const elsewhere = "eu_2"
	const customer, boss, stranger = "customer@example.com", "boss@ours.example", "thief@evil.example"
	allowed := []string{"@ours.example"}
	answer := Message{Answers: true, People: []string{customer}}
	to := func(m Message, emails ...string) *Message {
		m.reached = emails
		return &m
	}
	tainted := func(people ...string) *store.Reading {
		return &store.Reading{People: people, Taint: &store.Taint{Since: time.Unix(1, 0), MailboxID: "eu_1", UID: 7, Folder: "INBOX"}}
	}
	other := tainted(customer)
	other.Taint.MailboxID = elsewhere
	for _, c := range []struct {
		name    string
		send    string
		allowed []string
		read    *store.Reading
		m       *Message
		want    string // "", policy, tainted, or an error's code
	}{
		{"allow sends to anybody", "", nil, nil, to(Message{}, stranger), ""},
		{"allow has no use for allowed_recipients", "allow", allowed, nil, to(Message{}, stranger), ""},
		{"deny refuses those who are allowed too", "deny", allowed, nil, to(answer, boss), "sending_not_allowed"},
		{"deny comes before taint", "deny", nil, tainted(), to(answer, stranger), "sending_not_allowed"},
		{"an answer to its people", "reply_only", nil, nil, to(answer, customer), ""},
		{"an answer to nobody", "reply_only", nil, nil, to(answer), ""},
		{"an answer to another +tag", "reply_only", nil, nil, to(answer, "customer+x@example.com"), "recipient_not_allowed"},
		{"an answer to one stranger of two", "reply_only", nil, nil, to(answer, customer, stranger), "recipient_not_allowed"},
		{"an answer to those who are allowed", "reply_only", allowed, nil, to(answer, customer, boss), ""},
		{"no answer", "reply_only", nil, nil, to(Message{}, customer), "recipient_not_allowed"},
		{"no answer, to those who are allowed", "reply_only", allowed, nil, to(Message{}, boss), "recipient_not_allowed"},
		{"reply_only comes before taint", "reply_only", nil, tainted(stranger), to(answer, stranger), "recipient_not_allowed"},
		{"reply_only, then taint", "reply_only", nil, tainted("other@example.com"), to(answer, customer), "tainted"},
		{"tainted, to the people", "", nil, tainted(customer), to(Message{}, customer), ""},
		{"tainted, to the people, from another mailbox", "", nil, other, to(Message{}, customer), "tainted"},
		{"tainted, to those who are allowed, from another mailbox", "", allowed, other, to(Message{}, boss), "tainted"},
		{"approval, tainted, from another mailbox", "approval", allowed, other, to(Message{}, boss), "tainted:held"},
		{"tainted, to a stranger", "", nil, tainted(customer), to(Message{}, customer, stranger), "tainted"},
		{"tainted, to those who are allowed", "", allowed, tainted(customer), to(Message{}, customer, boss), ""},
		{"tainted, nobody is left", "", allowed, tainted(), to(answer, customer), "tainted"},
		{"tainted, nobody is left, to those who are allowed", "", allowed, tainted(), to(answer, boss), ""},
		{"approval", "approval", nil, nil, to(answer, customer), "policy"},
		{"approval, to those who are allowed alone", "approval", allowed, nil, to(answer, boss), ""},
		{"approval, to one more", "approval", allowed, nil, to(answer, boss, customer), "policy"},
		{"approval, tainted, to the conversation", "approval", nil, tainted(customer), to(answer, customer), "policy"},
		{"approval, tainted, to a stranger", "approval", nil, tainted(customer), to(answer, stranger), "tainted:held"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := store.Policy{Send: c.send, AllowedRecipients: c.allowed, Taint: c.read != nil}
			held, err := applyPolicy(&p, c.read, c.read == other, c.m)
			got := held
			if e, ours := core.AsError(err); ours {
				got = e.Code
				if smtp := core.AsSMTPError(err); smtp.Code != 550 || smtp.Enhanced != "5.7.1" {
					t.Errorf("over SMTP it is %d %s", smtp.Code, smtp.Enhanced)
				}
			} else if held == HeldByTaint {
				got = "tainted:held"
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestErrorsOfTaint: the errors for a tainted holder repeat no text that a stranger could have made
// it send.
func TestErrorsOfTaint(t *testing.T) {
	m := &Message{reached: []string{"secret-word@evil.example"}}
	_, err := applyPolicy(&store.Policy{Taint: true}, &store.Reading{Taint: &store.Taint{MailboxID: "eu_1", Folder: "INBOX", UID: 3}}, false, m)
	e, _ := core.AsError(err)
	if e == nil || e.Code != "tainted" || strings.Contains(e.Message, "secret") || len(e.Details) != 3 {
		t.Fatalf("%+v", e)
	}
	if slices.ContainsFunc(e.Details, func(d core.Detail) bool { return strings.Contains(d.Message, "secret") }) {
		t.Errorf("%+v", e.Details)
	}
	_, err = applyPolicy(&store.Policy{Send: store.SendReplyOnly}, nil, false, m)
	if e, _ := core.AsError(err); e == nil || len(e.Details) != 1 || e.Details[0].Message != "secret-word@evil.example" {
		t.Errorf("recipient_not_allowed names no address: %+v", e)
	}
}
