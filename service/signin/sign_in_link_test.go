package signin_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/signin"
)

// TestSignInLinkAlone: the owner is told by a letter that does not hold the link. The link signs in
// once, to its account, as no person.
func TestSignInLinkAlone(t *testing.T) {
	a, ctx, v := newAlone(t), t.Context(), signin.Visitor{IP: "192.0.2.1"}
	var made []*accounts.AccountCreated
	for _, email := range []string{"owner@example.test", "other@example.test"} {
		one, err := a.CreateAccount(ctx, accounts.NewAccount{OwnerEmail: email, OwnerPassword: "correct horse"})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, one)
	}
	who := core.Actor{AccountID: made[0].AccountID, UserID: made[0].UserID, Email: "owner@example.test", TokenKind: core.SessionKind, Operator: true}
	for id, want := range map[string]string{made[0].AccountID: "owner_protected", "acc_none": "not_found"} {
		if _, err := a.in.CreateSignInLink(ctx, who, accounts.HostedAccountIn{AccountID: id}); code(err) != want {
			t.Errorf("%s: %v, want %s", id, err, want)
		}
	}
	link, err := a.in.CreateSignInLink(ctx, who, accounts.HostedAccountIn{AccountID: made[1].AccountID})
	if err != nil {
		t.Fatal(err)
	}
	token, ok := strings.CutPrefix(link.URL, "https://mail.test"+signin.SignInLinkPath)
	_, secret, both := strings.Cut(token, ".")
	if !ok || !both || len(secret) < 40 {
		t.Fatalf("the link is %s", link.URL)
	}
	if len(a.letters) != 1 || a.letters[0].To != "other@example.test" || a.letters[0].About != made[1].AccountID {
		t.Fatalf("letters: %+v", a.letters)
	}
	text := a.letters[0].Subject + a.letters[0].Text
	for _, word := range []string{secret, signin.SignInLinkPath, "owner@example.test"} {
		if strings.Contains(text, word) {
			t.Errorf("the letter has %q:\n%s", word, text)
		}
	}
	for _, word := range []string{"mail.test", "sign in to your account", "UTC", "audit log"} {
		if !strings.Contains(text, word) {
			t.Errorf("the letter lacks %q:\n%s", word, text)
		}
	}

	in, err := a.in.UseSignInLink(ctx, v, token)
	if err != nil || !in.ByOperator || !in.ExpiresAt.Equal(link.ExpiresAt.Time) {
		t.Fatalf("%+v, %v", in, err)
	}
	linked, err := a.in.AuthenticateSession(ctx, in.Cookie, v.IP)
	if err != nil || linked.AccountID != made[1].AccountID || linked.IsPerson() || linked.Operator || linked.LinkedBy != made[0].UserID || linked.Can("purchase") {
		t.Errorf("the session is %+v's: %v", linked, err)
	}
	for _, used := range []string{token, made[1].AccountID + ".", "", made[0].AccountID + "." + secret} {
		if _, err := a.in.UseSignInLink(ctx, v, used); code(err) != "not_found" {
			t.Errorf("%q: %v", used, err)
		}
	}
}
