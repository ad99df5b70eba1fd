package accounts_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// letters are the messages that wait to be sent, by recipient.
func (c *sessionCase) letters(t *testing.T) map[string]string {
	t.Helper()
	out, subs := map[string]string{}, map[string]*store.Submission{}
	err := c.Store.View(func(tx *store.Tx) error {
		for o := range store.Outgoings.All(tx) {
			sub, err := store.Submissions.Get(tx, o.SubmissionID)
			if err != nil {
				return err
			}
			subs[o.Recipient] = sub
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for to, sub := range subs {
		blob, err := c.Store.OpenBlob(sub.Blob)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(io.NewSectionReader(blob, 0, blob.Size()))
		if err != nil {
			t.Fatal(err)
		}
		blob.Close()
		out[to] = strings.ReplaceAll(strings.ReplaceAll(string(text), "=\r\n", ""), "=3D", "=")
	}
	return out
}

// forget asks for a link from the network, and runs the job that sends it, if there is one.
func (c *sessionCase) forget(t *testing.T, ip, email string) (jobsAdded int) {
	t.Helper()
	said, err := c.ForgotPassword(t.Context(), accounts.Visitor{IP: ip}, accounts.ForgotIn{Email: email})
	if err != nil || said.Message == "" {
		t.Fatalf("%s: %v", email, err)
	}
	var waiting []*store.Job
	servicetest.Update(t, c.Service, func(tx *store.Tx) error {
		waiting = nil
		for j := range store.Jobs.All(tx) {
			if j.Kind == "password_mail" {
				waiting = append(waiting, j)
			}
		}
		for _, j := range waiting {
			if err := store.Jobs.Delete(tx, j.ID); err != nil {
				return err
			}
		}
		return nil
	})
	for _, j := range waiting {
		if _, err := c.SendForgot(context.Background(), j); err != nil {
			t.Fatal(err)
		}
	}
	return len(waiting)
}

func TestForgottenPassword(t *testing.T) {
	c := newSessionCase(t)
	c.Config.BaseURL = "https://mail.example.com"
	in := c.here(t)
	invited, err := c.InviteTeamUser(t.Context(), core.Actor{AccountID: in.Account.ID, UserID: in.User.ID, Role: "owner", Permissions: []string{"admin"}}, accounts.InviteTeamUserIn{Email: "ann@team.test"})
	if err != nil {
		t.Fatal(err)
	}
	if known, unknown := c.forget(t, "192.0.2.1", "Ann@team.test"), c.forget(t, "192.0.2.1", "nobody@team.test"); known != 1 || unknown != 1 {
		t.Errorf("%d and %d jobs: it shows who is known", known, unknown)
	}
	letters := c.letters(t)
	if len(letters) != 1 {
		t.Fatalf("letters to %v", letters)
	}
	letter := letters["ann@team.test"]
	_, rest, _ := strings.Cut(letter, "https://mail.example.com/reset?token=")
	token, _, _ := strings.Cut(rest, "\r\n")
	if len(token) != 43 || !strings.Contains(letter, "postmaster@mail.example.com") || !strings.Contains(letter, "192.0.2.1") {
		t.Fatalf("the letter is\n%s", letter)
	}
	_, invitation, _ := strings.Cut(invited.ResetLink, "token=")
	for _, link := range []string{token, invitation} {
		if w, err := c.CheckWelcome(t.Context(), core.Actor{}, accounts.LinkIn{Token: link}); err != nil || w.Email != "ann@team.test" || w.MayChangeEmail {
			t.Errorf("a link: %+v, %v", w, err)
		}
	}
	if err := c.CompleteReset(t.Context(), token, "a new horse"); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{token, invitation} {
		if _, err := c.CheckReset(t.Context(), link); code(err) != "not_found" {
			t.Errorf("a link after it: %v", err)
		}
	}
}

func TestForgottenLinkExpires(t *testing.T) {
	c := newSessionCase(t)
	c.forget(t, "192.0.2.1", "owner@example.test")
	_, rest, _ := strings.Cut(c.letters(t)["owner@example.test"], "token=")
	token, _, _ := strings.Cut(rest, "\r\n")
	if _, err := c.CheckReset(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(accounts.ForgotFor)
	if _, err := c.CheckReset(t.Context(), token); code(err) != "not_found" {
		t.Errorf("after its time: %v", err)
	}
}

func TestForgottenPasswordsAreThrottled(t *testing.T) {
	c := newSessionCase(t)
	sent := 0
	for range 2 * accounts.ForgotAddress {
		sent += c.forget(t, "192.0.2.1", "owner@example.test")
	}
	if sent != accounts.ForgotAddress {
		t.Errorf("%d letters to one address", sent)
	}
	sent = 0
	for i := range 2 * accounts.ForgotNetwork {
		sent += c.forget(t, "192.0.2.2", fmt.Sprintf("user%d@example.test", i))
	}
	if sent != accounts.ForgotNetwork {
		t.Errorf("%d questions from one network were looked at", sent)
	}
	if c.forget(t, "192.0.2.3", "victim@example.test") != 1 {
		t.Error("another network is held off")
	}
	for range 2 * accounts.ForgotAddress {
		c.forget(t, "192.0.2.2", "ann@example.test")
	}
	if c.forget(t, "192.0.2.3", "ann@example.test") != 1 {
		t.Error("who may not ask any more keeps others from their letters")
	}
	c.now = c.now.Add(2 * accounts.ForgotWindow)
	if c.forget(t, "192.0.2.1", "owner@example.test") != 1 {
		t.Error("it stays closed")
	}
}
