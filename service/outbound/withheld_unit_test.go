package outbound

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

func TestCodesOf(t *testing.T) {
	for reply, want := range map[string]string{
		"550 5.1.1 No such user, so send it to y@far.test": "550 5.1.1", "550-5.1.1 a\n550 5.1.1 b": "550 5.1.1", "250 Ok": "250", "250": "250", "421-4.7.0": "421 4.7.0",
		"450 4.2.1": "450 4.2.1", "550 5.1.1234 x": "550", "550 5.1.1x": "550", "5501 x": "", "550x": "", "ignore 550 5.1.1": "", "": "", "999 x": "", "given up: anything": "",
	} {
		if got := codesOf(reply); got != want {
			t.Errorf("%q: %q, want %q", reply, got, want)
		}
	}
}

// TestSentRowsWithhold: a reader whom strangers' words taint sees only texts that the account has
// written, and only the codes of servers' answers.
func TestSentRowsWithhold(t *testing.T) {
	row := func(checked, tainted, own bool) *store.Outgoing {
		return &store.Outgoing{
			MessageID: "<1@far.test>", Sender: "a@example.test", Recipient: "b@far.test", Subject: "words", LastResponse: "550 5.1.1 words", Checked: checked, Tainted: tainted, OwnWords: own,
			Tags: []store.Tag{{Name: "words", Value: "words"}},
		}
	}
	reader := core.Actor{Policy: store.Policy{Taint: true}}
	for _, c := range []struct {
		row             *store.Outgoing
		subject, id     string
		tags            int
		response, whole string
	}{
		{row(true, false, true), "words", "<1@far.test>", 1, "550 5.1.1", "550 5.1.1 words"},
		{row(true, false, false), "", "<1@far.test>", 0, "550 5.1.1", "550 5.1.1 words"}, // a web form, perhaps
		{row(true, true, true), "", "", 0, "550 5.1.1", "550 5.1.1 words"},               // a sender chooses the Message-ID, too
		{row(true, true, false), "", "", 0, "550 5.1.1", "550 5.1.1 words"},
		{row(false, false, false), "", "", 0, "550 5.1.1", "550 5.1.1 words"},
	} {
		if got := sentMessageOut(reader, c.row, time.Now()); got.Subject != c.subject || got.MessageID != c.id || len(got.Tags) != c.tags || *got.LastResponse != c.response || got.Recipient != "b@far.test" {
			t.Errorf("checked %t, tainted %t: %+v", c.row.Checked, c.row.Tainted, got)
		}
		if got := sentMessageOut(core.Actor{}, c.row, time.Now()); got.Subject != "words" || got.MessageID == "" || len(got.Tags) != 1 || *got.LastResponse != c.whole {
			t.Errorf("for others: %+v", got)
		}
	}
}
