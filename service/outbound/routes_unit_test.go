package outbound

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
)

func TestMintedMessageIDs(t *testing.T) {
	for _, c := range []struct {
		relay        core.Relay
		answer, want string
	}{
		{core.Relay{Kind: "ses", Region: "us-east-1"}, "250 Ok 0102018f-abc-000000", "<0102018f-abc-000000@email.amazonses.com>"},
		{core.Relay{Kind: "ses", Region: "eu-west-1"}, "250 2.0.0 Ok 0102018f", "<0102018f@eu-west-1.amazonses.com>"},
		{core.Relay{Kind: "ses", Host: "email-smtp.eu-north-1.amazonaws.com"}, "250 Ok 1", "<1@eu-north-1.amazonses.com>"},
		{core.Relay{Kind: "ses", Host: "email-smtp.us-east-1.amazonaws.com"}, "250 Ok 1", "<1@email.amazonses.com>"},
		{core.Relay{Kind: "ses"}, "250 queued", ""},
		{core.Relay{Kind: "ses"}, "250 Ok <a@b>", ""},
		{core.Relay{Kind: "postmark"}, "250 2.0.0 Ok: queued as abc", ""},
		{core.Relay{Kind: "mailgun"}, "250 Great success", ""},
		{core.Relay{Kind: "sendgrid"}, "250 Ok: queued as abc", ""},
		{core.Relay{Kind: "custom"}, "250 Ok abc", ""},
		{core.Relay{Kind: "custom", IDPattern: `Ok (\S+)`, IDTemplate: "<{1}@relay.example>"}, "250 Ok abc", "<abc@relay.example>"},
		{core.Relay{Kind: "custom", IDPattern: `id=(\w+) h=(\w+)`, IDTemplate: "{1}.{2}@relay.example"}, "250 id=a h=b", "<a.b@relay.example>"},
		{core.Relay{Kind: "custom", IDPattern: `Ok (.+)`, IDTemplate: "<{1}@relay.example>"}, "250 Ok a b", ""},
		{core.Relay{Kind: "custom", IDPattern: `Ok (.+)`, IDTemplate: "<{1}@relay.example>"}, "250 Ok " + strings.Repeat("a", 1000), ""},
	} {
		r, err := newRelay(c.relay)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.assignedID(c.answer); got != c.want {
			t.Errorf("%s, %.40q: %q, want %q", c.relay.Kind, c.answer, got, c.want)
		}
	}
}

func TestBadRelaysAreLeftOut(t *testing.T) {
	good := core.Relay{Name: "good", Kind: "ses"}
	bad := []core.Relay{{Kind: "smtp"}, {Kind: "custom", IDPattern: "(", IDTemplate: "x"}, {Kind: "custom", IDPattern: "x"}, {Kind: "custom", IDTemplate: "x"}}
	for _, r := range bad {
		if _, err := newRelay(r); err == nil {
			t.Errorf("%+v is taken", r)
		}
	}
	if got := newRelays(append(bad, good), slog.New(slog.DiscardHandler)); len(got) != 1 || got[0].Name != "good" {
		t.Errorf("%+v", got)
	}
	if len(newRelays(nil, nil)) != 0 {
		t.Error("a relay out of nothing")
	}
}

func TestBounceWords(t *testing.T) {
	for status, want := range map[string]string{
		"5.1.1": "hard no_such_mailbox", "5.2.2": "hard mailbox_full", "4.4.7": "soft expired", "5.7.26": "hard policy", "5.0.0": "hard general", "": "undetermined general",
	} {
		if got := fmt.Sprint(BounceType(status), " ", bounceSubtype(status, "")); got != want {
			t.Errorf("%s: %s, want %s", status, got, want)
		}
	}
}

func FuzzMint(f *testing.F) {
	ses, err := newRelay(core.Relay{Kind: "ses"})
	if err != nil {
		f.Fatal(err)
	}
	custom, err := newRelay(core.Relay{Kind: "custom", IDPattern: `(?s)Ok(.*)`, IDTemplate: "{1}"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("250 Ok 0102018f-abc")
	f.Add("250 Ok <a@b>")
	f.Fuzz(func(t *testing.T, answer string) {
		for _, r := range []*Relay{ses, custom} {
			id := r.assignedID(answer)
			if id != "" && (len(id) < 3 || len(id) > maxAssignedID || id[0] != '<' || strings.ContainsAny(id[1:len(id)-1], "<> \r\n")) {
				t.Errorf("%q minted %q", answer, id)
			}
		}
	})
}

func TestControlHeadersOfTheConfiguration(t *testing.T) {
	for _, bad := range []string{"", "X:", "X A", "fr", "Content-", "Message-ID", "d", "é-"} {
		if err := CheckRelay(core.Relay{Name: "r", Kind: "custom", ControlHeaders: []string{"X-MC-", bad}}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	r, err := newRelay(core.Relay{Name: "r", Kind: "ses", ControlHeaders: []string{"X-MC-", "Feedback-ID"}})
	if err != nil || fmt.Sprint(r.controlPrefixes()) != "[x-ses- return-path X-MC- Feedback-ID]" {
		t.Errorf("%v, %v", r, err)
	}
}

func TestReturnPathsByRelay(t *testing.T) {
	for kind, verp := range map[string]bool{"custom": true, "ses": false, "postmark": false, "mailgun": false, "sendgrid": false} {
		for _, set := range []string{"", "verp", "sender"} {
			r, err := newRelay(core.Relay{Name: "r", Kind: kind, ReturnPath: set})
			if err != nil || r.verp != (set == "verp" || set == "" && verp) {
				t.Errorf("%s %q: %+v, %v", kind, set, r, err)
			}
		}
	}
	if _, err := newRelay(core.Relay{Name: "r", Kind: "ses", ReturnPath: "x"}); err == nil {
		t.Error("an unknown return_path was taken")
	}
}
