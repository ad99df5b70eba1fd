package page_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/service/domains"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/mailboxes"
	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/store"
)

// TestFilteredListIsBounded looks for the oldest of many events: the first page is short, but leads
// there.
func TestFilteredListIsBounded(t *testing.T) {
	s, who := servicetest.NewBare(t)
	for from := 0; from < page.ListScan+5; from += 1000 {
		servicetest.Update(t, s, func(tx *store.Tx) error {
			for n := from; n < min(from+1000, page.ListScan+5); n++ {
				e := &store.Event{ID: tx.NewID("evt"), AccountID: who.AccountID, Type: "common", Created: tx.Now(), Data: []byte("{}")}
				switch {
				case n == 0:
					e.Type = "rare"
				case n%700 == 1:
					e.Type = "some"
				case n == 2:
					e.Type = "selten ä"
				}
				if err := store.Events.Put(tx, e); err != nil {
					return err
				}
			}
			return nil
		})
	}
	first, err := s.Events.ListEvents(t.Context(), who, events.ListEventsIn{Type: "rare"})
	if err != nil || len(first.Data) != 0 || !first.Pagination.HasMore {
		t.Fatalf("first page %+v, %v", first, err)
	}
	in := events.ListEventsIn{Type: "rare"}
	in.Cursor = *first.Pagination.Cursor
	second, err := s.Events.ListEvents(t.Context(), who, in)
	if err != nil || len(second.Data) != 1 || second.Pagination.HasMore || second.Pagination.Cursor != nil {
		t.Fatalf("second page %+v, %v", second, err)
	}
	for _, c := range []struct {
		kind         string
		events, most int // most is how many pages there are at most
	}{
		{"some", (page.ListScan+5-2)/700 + 1, 10},
		{"selten ä", 1, 10}, // every record is decoded
		{"none", 0, 2},
	} {
		two, pages, last := 2, 0, "evt_~"
		var all []events.EventEnvelope
		for in := (events.ListEventsIn{Query: page.Query{Limit: &two}, Type: c.kind}); ; in.Cursor = *first.Pagination.Cursor {
			first, err = s.Events.ListEvents(t.Context(), who, in)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, first.Data...)
			if pages++; !first.Pagination.HasMore {
				break
			}
		}
		if len(all) != c.events || pages < 2 || pages > c.most {
			t.Errorf("%s: %d events on %d pages", c.kind, len(all), pages)
		}
		for _, e := range all {
			if e.ID >= last || e.Type != c.kind {
				t.Errorf("%s behind %s", e.ID, last)
			}
			last = e.ID
		}
	}
}

// TestPrefiltersKeepWhatKeepKeeps: a prefilter finds a text in every row that has it, whatever its
// JSON escapes and letter case.
func TestPrefiltersKeepWhatKeepKeeps(t *testing.T) {
	for _, c := range []struct {
		row, text   string
		has, folded bool
	}{
		{`{"Name":"ann"}`, "ann", true, true},
		{`{"Name":"ann"}`, "bob", false, false},
		{`{"Name":"ann"}`, "", true, true},
		{`{"Name":"Ann"}`, "aNN", false, true},
		{`{"Name":"a\u0026b"}`, "a&b", true, true},
		{`{"Name":"a\u003cb"}`, "A<B", true, true},
		{`{"Name":"a\"b\\"}`, `a"b`, true, true},
		{`{"Name":"a\"b\\"}`, `b\`, true, true},
		{`{"Name":"a\tb"}`, "a\tb", true, true},
		{`{"Name":"Änn"}`, "änn", true, true},
		{`{"Name":"nobody"}`, "änn", true, true}, // not searched for
		{"\x04\u212aurt", "kurt", false, true},
		{"kurt", "\u212aURT", true, true},
		{"\x04\u017fam", "sam", false, true},
		{"sam", "\u017fam", true, true},
		{"\x04\u0130da", "ida", false, true},
		{"ida", "\u0130da", true, true},
		{"\xffANN\xff", "ann", false, true},
	} {
		has, folded := page.HasTexts("", c.text), page.HasFolded(c.text)
		for range 2 {
			if row := []byte(c.row); has(row) != c.has || folded(row) != c.folded || string(row) != c.row {
				t.Errorf("%q in %q: %v, in any case %v", c.text, c.row, has(row), folded(row))
			}
		}
	}
	if page.HasTexts("ann", "bob")([]byte("ann")) || !page.HasTexts("ann", "bob")([]byte("bobann")) {
		t.Error("two texts are not both looked for")
	}
}

// TestFoldedTextsAreFound compares HasFolded with a simple search, in random rows of few letters.
func TestFoldedTextsAreFound(t *testing.T) {
	random := rand.New(rand.NewPCG(2026, 15))
	letters := "abzAB-"
	text := func(most int) string {
		b := make([]byte, 1+random.IntN(most))
		for n := range b {
			b[n] = letters[random.IntN(len(letters))]
		}
		return string(b)
	}
	found := 0
	for range 20_000 {
		row, want := text(12), text(4)
		has := strings.Contains(strings.ToLower(row), strings.ToLower(want))
		if got := page.HasFolded(want)([]byte(row)); got != has {
			t.Fatalf("%q in %q: %v", want, row, got)
		}
		if has {
			found++
		}
	}
	if found < 2000 || found > 18_000 {
		t.Errorf("%d rows have their text", found)
	}
}

// TestListsFindNamesInEveryForm: the rows have names in another case or form than the query.
func TestListsFindNamesInEveryForm(t *testing.T) {
	i := servicetest.Install(t, core.Config{Settings: core.Settings{Outbound: core.ViaCapture}})
	who := servicetest.Actor(i.Account)
	i.AddDomain(i.Account, "xn--mller-kva.test", func(d *store.Domain) { d.Tags = []string{"R&D", "<a>"} })
	d := i.AddDomain(i.Account, "plain.test", nil)
	i.AddMailbox(d, "kurt", func(mb *store.Mailbox) { mb.Name = "\u212aurt <Chef> \u0130da" })
	i.AddMailbox(d, "ann", func(mb *store.Mailbox) { mb.Status = store.MailboxSuspended })
	i.AddMailbox(d, "far", func(mb *store.Mailbox) { mb.External, mb.ErrorText = &store.External{}, "no" })
	for _, c := range []struct {
		in   domains.ListDomainsIn
		want int
	}{
		{domains.ListDomainsIn{}, 2}, {domains.ListDomainsIn{Q: "Müll"}, 1}, {domains.ListDomainsIn{Q: "ller.test"}, 1}, {domains.ListDomainsIn{Q: "MLLER-k"}, 1},
		{domains.ListDomainsIn{Q: "PLAIN"}, 1}, {domains.ListDomainsIn{Q: "test"}, 2}, {domains.ListDomainsIn{Q: "none"}, 0},
		{domains.ListDomainsIn{Tag: "R&D"}, 1}, {domains.ListDomainsIn{Tag: "<a>"}, 1}, {domains.ListDomainsIn{Tag: "a"}, 0},
	} {
		if out, err := i.Svc.Domains.ListDomains(t.Context(), who, c.in); err != nil || len(out.Data) != c.want {
			t.Errorf("%+v: %+v, %v", c.in, out, err)
		}
	}
	for _, c := range []struct {
		q, status string
		want      int
	}{
		{"", "", 3}, {"KURT", "", 1}, {"urt <c", "", 1}, {"ida", "", 1}, {"plain", "", 3}, {"plain", "active", 1}, {"", "suspended", 1}, {"", "error", 1}, {"FAR", "error", 1}, {"ann", "active", 0},
	} {
		out, err := i.Svc.Mailboxes.ListEmailUsers(t.Context(), who, mailboxes.ListEmailUsersIn{Q: c.q, Status: c.status})
		if err != nil || len(out.Data) != c.want {
			t.Errorf("%q %s: %+v, %v", c.q, c.status, out, err)
		}
	}
}
