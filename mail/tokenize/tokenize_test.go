package tokenize

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func split(text string) (out []string) {
	var s Splitter
	s.Split(text, func(word []byte, _ bool) { out = append(out, string(word)) })
	return out
}

func TestSplit(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "",
		"Hello, World!":                   "hello world",
		"ÀÉÎ naïve Ångström":              "aei naive angstrom",
		"Straße STRASSE GROẞ":             "strasse strasse gross",
		"ΟΔΟΣ οδός":                       "οδοσ οδοσ",
		"İstanbul ılık":                   "istanbul ilik",
		"e\u0301tude":                     "etude",
		"ﬁne ＦＵＬＬ ½":                      "fine full 12",
		"don't re-use snake_case 3.14":    "don t re use snake case 3 14",
		"Привет, ёлка":                    "привет елка",
		"東京都":                             "東京 京都 都",
		"本":                               "本",
		"iPhone用ケース":                      "iphone 用ケ ケー ース ス",
		"ｶﾞｰﾄﾞ":                           "ガー ード ド",
		"한국어 입니다":                         "한국 국어 어 입니 니다 다",
		"ไทย":                             "ไท ทย ย",
		"write to Ann.Lee+x@Mail.Ex.COM":  "write to ann lee x ann.lee+x@mail.ex.com @mail.ex.com mail ex com",
		"<bob@x.test>, me@":               "bob bob@x.test @x.test x test me",
		"@channel a@b":                    "channel a a@b @b b",
		strings.Repeat("x", 100):          strings.Repeat("x", MaxWord),
		"\xff\xfeabc\xc3":                 "abc",
		"https://a.test/p?q=1&r=Zwölf":    "https a test p q 1 r zwolf",
		"\u200bzero\u200bwidth\u00adsoft": "zero width soft",
	} {
		if got := strings.Join(split(text), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestMatches(t *testing.T) {
	letter := []string{"Grüße aus München", "Ann Lee ann.lee@mail.example.com", "The quarterly report, 東京都の天気。 Numbers: 42"}
	for query, want := range map[string]bool{
		"":                                   false,
		"!!! ...":                            false,
		"report":                             true,
		"REPORT quarterly":                   true,
		"rep":                                true,
		"rep quarterly":                      false, // only the last word may be a beginning
		"quarterly rep":                      true,
		"r":                                  true,
		"gruesse":                            false,
		"grusse munchen":                     true,
		"GRÜSSE":                             true,
		"ann.lee@mail.example.com":           true,
		"ann.lee@":                           true,
		"ann.lee@mail":                       true,
		"lee@mail.example.com":               false,
		"@mail.example.com":                  true,
		"@example.com":                       false,
		"example.com":                        true,
		"ann.lee":                            true,
		"<ann.lee@mail.example.com>, report": true,
		`"quarterly report"`:                 true,
		`"report quarterly"`:                 false,
		`“the quarterly” numbers`:            true,
		`"lee the"`:                          false, // two texts
		"東京":                                 true,
		"京都":                                 true,
		"都":                                  true,
		"京":                                  true,
		"東都":                                 false,
		"東京都の天気":                             true,
		`"東京都の"`:                             true,
		`"京都の天"`:                             true,
		`"都東"`:                               false,
		`"天気 numbers"`:                       true,
		"42":                                 true,
		"a@b@c":                              false,
		"@":                                  false,
		"report @":                           true,
	} {
		if got := NewMatcher(Parse(query)).Matches(letter...); got != want {
			t.Errorf("%q: %v, want %v (%+v)", query, got, want, Parse(query))
		}
	}
}

func FuzzSplit(f *testing.F) {
	for _, text := range []string{"a b", "ann@x.test", "東京都", "ﬁ\u0301", "\xff", "@@@", "a@-.", strings.Repeat("é", 100)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s Splitter
		var all []string
		s.Split(text, func(word []byte, whole bool) {
			if len(word) == 0 || !whole && len(word) > MaxWord || len(word) > MaxAddress {
				t.Fatalf("word %q of %q", word, text)
			}
			if utf8.ValidString(text) && !utf8.Valid(word) {
				t.Fatalf("word %q of %q is no text", word, text)
			}
			all = append(all, string(word))
		})
		if again := split(text); !slices.Equal(again, all) {
			t.Fatalf("%q splits into %q and %q", text, all, again)
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, text := range []string{`a "b c" d`, `"`, "@x", "x@", `"東京"`, "«a» b@c.d"} {
		f.Add(text, "a b c d b@c.d 東京")
	}
	f.Fuzz(func(t *testing.T, query, text string) {
		q := Parse(query)
		if len(q.Terms) > maxTerms || len(q.Phrases) > maxPhrases {
			t.Fatalf("%q is %+v", query, q)
		}
		for _, term := range q.Terms {
			if term.Text == "" {
				t.Fatalf("%q is %+v", query, q)
			}
		}
		if NewMatcher(q).Matches(text) && len(q.Terms) == 0 {
			t.Fatalf("%q matches %q", query, text)
		}
	})
}

func BenchmarkSplit(b *testing.B) {
	for name, text := range map[string]string{
		"english": strings.Repeat("The quick brown fox jumps over the lazy dog, and Ann.Lee@example.com watches it. ", 26),
		"german":  strings.Repeat("Der schöne Brief über größere Übungen für Männer und Frauen äußert sich höflich. ", 26),
		"chinese": strings.Repeat("敏捷的棕色狐狸跳过了懒狗。", 54),
	} {
		b.Run(name, func(b *testing.B) {
			var s Splitter
			n := 0
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				s.Split(text, func(word []byte, _ bool) { n += len(word) })
			}
		})
	}
}
