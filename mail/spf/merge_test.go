package spf_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/mail/spf"
	"github.com/mailstead/mailstead/mail/spf/spftest"
)

const ourTerms = "mx ip4:192.0.2.1 ip6:2001:db8::1"

// ourAddresses are those of our terms, and then those of our MX host.
var ourAddresses = []string{"192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"}

func TestMerge(t *testing.T) {
	if len(spftest.Cases) < 30 {
		t.Fatalf("%d cases", len(spftest.Cases))
	}
	for _, tc := range spftest.Cases {
		got, err := spf.Merge(t.Context(), spftest.NewWorld(t, spftest.MXHosts), spftest.Domain, strings.Fields(ourTerms), tc.Old, spftest.MXHosts)
		lookups := 0
		for _, n := range got.Lookups {
			lookups += n
		}
		if want := "v=spf1 " + ourTerms + " " + tc.Want; err != nil || got.Text != want || lookups != tc.Lookups {
			t.Errorf("%q: %q with %d lookups, %v\nwant %q with %d", tc.Old, got.Text, lookups, err, want, tc.Lookups)
		}
	}
}

// TestWithoutMX: only an mx of the domain itself is replaced, and a record without one stays as it
// is.
func TestWithoutMX(t *testing.T) {
	hosts := []string{"MX1.else.test.", "mx2.else.test", "."}
	for _, tc := range []struct {
		text  string
		hosts []string
		want  string
	}{
		{"v=spf1 mx -all", hosts, "v=spf1 a:mx1.else.test a:mx2.else.test -all"},
		{"v=spf1 ?mx:a.test/24//64 ~mx:%{d} -all", hosts, "v=spf1 ?a:mx1.else.test/24//64 ?a:mx2.else.test/24//64 ~a:mx1.else.test ~a:mx2.else.test -all"},
		{"V=SPF1  +a mx:other.test  redirect=x.test", hosts, "V=SPF1  +a mx:other.test  redirect=x.test"},
		{"v=spf1 mx -all", nil, "v=spf1 mx -all"},
		{"v=spf1 mx -all", []string{"."}, "v=spf1 -all"},
		{"v=spf1 mx mx=x -all", []string{"mx1.else.test"}, "v=spf1 a:mx1.else.test mx=x -all"},
	} {
		if got := spf.WithoutMX(tc.text, "a.test", tc.hosts); got != tc.want {
			t.Errorf("%q with %q:\n got %q\nwant %q", tc.text, tc.hosts, got, tc.want)
		}
	}
}

// TestMergedRecordsPermitBothSides evaluates each record before and after the merge, by our own
// evaluation and by another implementation: our addresses pass, and every other address has the
// result that it had. Of several records, those addresses pass that passed by one of them.
func TestMergedRecordsPermitBothSides(t *testing.T) {
	other := spftest.StartPyspf(t)
	for _, tc := range spftest.Cases {
		merged, err := spf.Merge(t.Context(), spftest.NewWorld(t, spftest.MXHosts), spftest.Domain, strings.Fields(ourTerms), tc.Old, spftest.MXHosts)
		if err != nil {
			t.Error(err)
			continue
		}
		after := spftest.NewWorld(t, []string{"mail.ours.test"}, merged.Text)
		for i, theirs := range other.Evaluate(t, after, ourAddresses) {
			if ours := after.Evaluate(t, ourAddresses[i]); ours != "pass" || theirs != "pass" {
				t.Errorf("%q: our address %s has %s, and by pyspf %s", merged.Text, ourAddresses[i], ours, theirs)
			}
		}
		records := slices.DeleteFunc(slices.Clone(tc.Old), func(text string) bool { return !spf.IsRecord(text) })
		for i, theirs := range other.Evaluate(t, after, spftest.Addresses) {
			address, ours := spftest.Addresses[i], after.Evaluate(t, spftest.Addresses[i])
			if ours != theirs {
				t.Errorf("%q: %s has %s, and by pyspf %s", merged.Text, address, ours, theirs)
			}
			var had []string
			for _, text := range records {
				had = append(had, spftest.NewWorld(t, spftest.MXHosts, text).Evaluate(t, address))
			}
			passed := slices.Contains(had, "pass")
			hasEnd := len(records) == 1 && (strings.Contains(strings.ToLower(records[0]), "all") || strings.Contains(records[0], "redirect="))
			switch {
			case passed != (ours == "pass") && !slices.Contains(had, "permerror"): // a malformed term is left out, and the others count
				t.Errorf("%q became %q: %s had %q and has %s", tc.Old, merged.Text, address, had, ours)
			case hasEnd && had[0] != ours && had[0] != "permerror":
				t.Errorf("%q became %q: %s had %s and has %s", tc.Old, merged.Text, address, had[0], ours)
			}
		}
	}
}

func TestMergeRefusesTooManyLookups(t *testing.T) {
	for _, tc := range []struct {
		old  string
		want map[string]int
	}{
		{
			"v=spf1 include:_spf.large.test include:spf.offices.test a exists:%{i}._spf.macro.test a:out.sender.test mx -all",
			map[string]int{"mx": 1, "include:_spf.large.test": 4, "include:spf.offices.test": 1, "a": 1, "exists:%{i}._spf.macro.test": 1, "a:out.sender.test": 1, "a:mx1.old.test": 1, "a:mx2.old.test": 1},
		},
		{"v=spf1 redirect=loop.test", nil},
		{"v=spf1 include:round.test ~all", nil},
	} {
		merged, err := spf.Merge(t.Context(), spftest.NewWorld(t, spftest.MXHosts), spftest.Domain, strings.Fields(ourTerms), []string{tc.old}, spftest.MXHosts)
		var many *spf.TooManyLookups
		if !errors.As(err, &many) || merged.Text != "" || tc.want != nil && !maps.Equal(many.Lookups, tc.want) {
			t.Errorf("%q: %+v, %v", tc.old, merged, err)
		}
		if tc.want != nil && (!strings.Contains(err.Error(), "11 DNS lookups") || !strings.Contains(err.Error(), "include:_spf.large.test needs 4")) {
			t.Error(err)
		}
	}
}

// slowWorld counts questions, and answers them after a while, or never if none is set.
type slowWorld struct {
	delay time.Duration
	asked int
	text  func(name string) string
}

func (s *slowWorld) LookupTXT(ctx context.Context, name string) ([]string, error) {
	s.asked++
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(s.delay):
		return []string{s.text(name)}, nil
	}
}

// TestMergeIsBounded: neither many names nor slow servers keep it busy.
func TestMergeIsBounded(t *testing.T) {
	merge := func(t *testing.T, s *slowWorld) error {
		_, err := spf.Merge(t.Context(), s, spftest.Domain, strings.Fields(ourTerms), []string{"v=spf1 include:0.test -all"}, nil)
		return err
	}
	synctest.Test(t, func(t *testing.T) {
		wide := &slowWorld{text: func(name string) string {
			text := "v=spf1"
			for i := range 30 {
				text += fmt.Sprintf(" include:%d.%s", i, name)
			}
			return text + " -all"
		}}
		var many *spf.TooManyLookups
		if err := merge(t, wide); !errors.As(err, &many) || wide.asked > 60 {
			t.Errorf("%v after %d questions", err, wide.asked)
		}
		start := time.Now()
		slow := &slowWorld{delay: time.Hour}
		if err := merge(t, slow); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 21*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// FuzzMerge: whatever was there before, the result is one well-formed record that begins with our
// terms, has what was there, and stays as it is when it is merged again.
func FuzzMerge(f *testing.F) {
	for _, tc := range spftest.Cases {
		f.Add(strings.Join(tc.Old, "\n"))
	}
	const ours = "ip4:192.0.2.1 ip6:2001:db8::1" // no mx, which would be replaced in the second merge
	f.Fuzz(func(t *testing.T, texts string) {
		old := strings.Split(texts, "\n")
		w := spftest.NewWorld(t, spftest.MXHosts)
		merged, err := spf.Merge(t.Context(), w, spftest.Domain, strings.Fields(ours), old, spftest.MXHosts)
		if err != nil {
			return
		}
		record := spf.Parse(merged.Text)
		if !strings.HasPrefix(merged.Text, "v=spf1 "+ours+" ") || !record.WellFormed || len(merged.Lookups) > spf.MaxLookups {
			t.Fatalf("%q became %q, %v", old, merged.Text, merged.Lookups)
		}
		terms, end := record.Split()
		if len(terms)+1 != len(record.Terms) || end.Name != "all" && end.Name != "redirect" || end != record.Terms[len(terms)] {
			t.Fatalf("%q became %q, which does not end in its ending", old, merged.Text)
		}
		has := map[string]bool{}
		for _, term := range terms {
			if has[term.Key()] {
				t.Fatalf("%q became %q, which has a term twice", old, merged.Text)
			}
			has[term.Key()] = true
		}
		for _, text := range old {
			if !spf.IsRecord(text) {
				continue
			}
			had, _ := spf.Parse(text).Split()
			for _, term := range had {
				if term.Name != "mx" && !has[term.Key()] {
					t.Fatalf("%q became %q, without %s", old, merged.Text, term)
				}
			}
		}
		again, err := spf.Merge(t.Context(), w, spftest.Domain, strings.Fields(ours), []string{merged.Text}, spftest.MXHosts)
		if err != nil || again.Text != merged.Text {
			t.Fatalf("%q became %q, then %q, %v", old, merged.Text, again.Text, err)
		}
	})
}
