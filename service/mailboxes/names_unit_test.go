package mailboxes

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func generate(t *testing.T, in GenerateNamesIn) []SuggestedName {
	t.Helper()
	n, err := newNameGenerator(in)
	if err != nil {
		t.Fatal(err)
	}
	return n.drawNames(*in.Count)
}

// TestNameLists: each list has enough names, no duplicates, and each name has a plain form.
func TestNameLists(t *testing.T) {
	if len(nameLists) < 8 {
		t.Errorf("%d locales", len(nameLists))
	}
	for locale := range nameLists {
		n, err := newNameGenerator(GenerateNamesIn{Locale: locale})
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range [][]namePart{n.first, n.last} {
			if len(list) < 60 {
				t.Errorf("%s has %d names", locale, len(list))
			}
			for i, part := range list {
				if _, err := cleanUsername(part.plain); err != nil || slices.Contains(list[:i], part) {
					t.Errorf("%s: %q: %v, or it is there twice", locale, part.name, err)
				}
				if n.isRude(part.plain) {
					t.Errorf("%s: %q is rude by itself", locale, part.name)
				}
			}
		}
	}
}

// TestNoNameIsRude: rude combinations are not used, unless the given name contains the word.
func TestNoNameIsRude(t *testing.T) {
	n := &nameGenerator{}
	for username, rude := range map[string]bool{
		"s.hitchens": true, "shitchens": true, "f.uckland": true, "mike.rape": true, "t.watson": true, "anna.lee": false, "jan.devries": false,
	} {
		if n.isRude(username) != rude {
			t.Errorf("rude(%q) is %v", username, !rude)
		}
	}
	seed := int64(0)
	count := 100
	for _, pair := range [][2]string{{"Thomas", "Watson"}, {"Steve", "Hitchens"}} {
		seed++
		for _, name := range generate(t, GenerateNamesIn{Count: &count, FirstName: pair[0], LastName: pair[1], Seed: &seed}) {
			if joined := strings.ReplaceAll(name.Username, ".", ""); strings.Contains(joined, "twat") || strings.Contains(joined, "shit") {
				t.Errorf("%s became %s", name.Name, name.Username)
			}
		}
	}
	own := generate(t, GenerateNamesIn{Count: &count, FirstName: "Graham", LastName: "Hancock", Seed: &seed})
	if len(own) != count {
		t.Errorf("%d names for somebody whose own name has a word in it", len(own))
	}
}

// TestNamesOfASeed pins the names of a seed, since clients may store seeds.
func TestNamesOfASeed(t *testing.T) {
	seed, count := int64(7), 5
	for locale, want := range map[string]string{
		"":   "Charles Robinson charles, Nancy Wood nwood, Christine Phillips c.phillips, Deborah Myers deborah.myers, Karen Cook kcook",
		"de": "Marie Braun marie, Paul Lorenz plorenz, Anton König a.koenig, Sabine Ludwig sabine.ludwig, Laura Möller lmoeller",
	} {
		var got []string
		for _, n := range generate(t, GenerateNamesIn{Count: &count, Seed: &seed, Locale: locale}) {
			got = append(got, n.Name+" "+n.Username)
		}
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("%q: %s", locale, s)
		}
	}
}

func TestNamesInPlainLetters(t *testing.T) {
	for _, tc := range []struct{ locale, name, want string }{
		{"de", "Jürgen Weiß", "juergenweiss"}, {"en", "Jürgen", "jurgen"}, {"sv", "Åsa Björk", "asabjork"}, {"pl", "Łukasz Żółć", "lukaszzolc"},
		{"nl", "van der Linden", "vanderlinden"}, {"fr", "Élodie d’Œuvre", "elodiedoeuvre"}, {"en", "O'Brien-Smith", "obriensmith"},
		{"de", "Ju\u0308rgen", "juergen"}, {"en", "Søren Þór", "sorenthor"}, {"en", "李小龍", ""}, {"en", "İpek Işık", "ipekisik"},
	} {
		n, err := newNameGenerator(GenerateNamesIn{Locale: tc.locale})
		if err != nil {
			t.Fatal(err)
		}
		if got := n.plainLettersOf(tc.name); got != tc.want {
			t.Errorf("%s %q is %q, want %q", tc.locale, tc.name, got, tc.want)
		}
	}
}

// FuzzNames: any accepted name results in usernames that mailboxes may have.
func FuzzNames(f *testing.F) {
	f.Add("Ann", "Lee", "en", int64(1))
	f.Add("Jürgen", strings.Repeat("é", 100), "de-AT", int64(-1))
	f.Add("\u202e", "ﷺ", "pl_PL", int64(0))
	f.Fuzz(func(t *testing.T, first, last, locale string, seed int64) {
		count := 3
		n, err := newNameGenerator(GenerateNamesIn{FirstName: first, LastName: last, Locale: locale, Seed: &seed})
		if err != nil {
			return
		}
		names := n.drawNames(count)
		if len(names) != count {
			t.Errorf("%d names", len(names))
		}
		for _, name := range names {
			clean, err := cleanUsername(name.Username)
			if err != nil || clean != name.Username {
				t.Errorf("%q %q became %q: %v", first, last, name.Username, err)
			}
			if utf8.ValidString(first) && utf8.ValidString(last) && checkName(name.Name) != nil {
				t.Errorf("the name %q would be refused", name.Name)
			}
		}
	})
}
