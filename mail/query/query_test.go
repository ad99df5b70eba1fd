package query

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/tokenize"
)

func is(value bool) *bool { return &value }

func day(text string) time.Time {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		panic(err)
	}
	return t
}

// TestParse: what each operator means, alone, negated and together.
func TestParse(t *testing.T) {
	whole, begins := tokenize.ParseWhole, tokenize.Parse
	for text, want := range map[string]Query{
		"":                        {},
		"red apple":               {Words: begins("red apple")},
		`red "green apple" blue`:  {Words: begins(`red "green apple" blue`)},
		"red is:read apple":       {Words: begins("red apple"), Seen: is(true)},
		"from:ann":                {Fields: []FieldQuery{{From, begins("ann"), false}}},
		"FROM:Ann":                {Fields: []FieldQuery{{From, begins("Ann"), false}}},
		`to:"Ann Lee"`:            {Fields: []FieldQuery{{To, begins(`"Ann Lee"`), false}}},
		"to:“Ann Lee”":            {Fields: []FieldQuery{{To, begins(`"Ann Lee"`), false}}},
		`to:"Ann Lee`:             {Fields: []FieldQuery{{To, begins(`"Ann Lee`), false}}},
		"-cc:@far.test":           {Fields: []FieldQuery{{Cc, whole("@far.test"), true}}},
		"subject:a:b":             {Fields: []FieldQuery{{Subject, begins("a:b"), false}}},
		"from:...":                {MatchesNothing: true},
		"-from:...":               {},
		"-apple":                  {Without: []tokenize.Query{whole("apple")}},
		`-"green apple" red`:      {Words: begins("red"), Without: []tokenize.Query{whole(`"green apple"`)}},
		"well-known":              {Words: begins("well-known")},
		"--apple":                 {Without: []tokenize.Query{whole("apple")}},
		"has:attachment":          {Attachments: is(true)},
		"-has:attachment":         {Attachments: is(false)},
		"has:image":               {Words: begins("has:image")},
		"-has:image":              {Without: []tokenize.Query{whole("has:image")}},
		"is:unread":               {Seen: is(false)},
		"-is:unread":              {Seen: is(true)},
		"is:starred is:answered":  {Flagged: is(true), Answered: is(true)},
		"is:unread -is:read":      {Seen: is(false)},
		"is:unread is:read":       {Seen: is(true), MatchesNothing: true},
		"in:Sent":                 {In: []string{"Sent"}},
		`in:"My Bills" -in:trash`: {In: []string{"My Bills"}, NotIn: []string{"trash"}},
		"before:2026-02-03":       {Before: day("2026-02-03")},
		"-before:2026-02-03":      {After: day("2026-02-03")},
		"after:2026-02-03":        {After: day("2026-02-03")},
		"-after:2026-02-03":       {Before: day("2026-02-03")},
		"after:2026-02-03 after:2026-02-01 before:2026-03-01 before:2026-04-01": {After: day("2026-02-03"), Before: day("2026-03-01")},
		"larger:10MB":                         {MinSize: 10_000_001},
		"larger:2KB larger:1kb":               {MinSize: 2001},
		"-smaller:1GB":                        {MinSize: 1_000_000_000},
		"smaller:10":                          {SizeLimit: 10},
		"-larger:10":                          {SizeLimit: 11},
		"smaller:20 -larger:10":               {SizeLimit: 11},
		"smaller:0":                           {MatchesNothing: true},
		"-larger:0":                           {SizeLimit: 1},
		"note:this unknown:":                  {Words: begins("note:this unknown:")},
		"from: ann":                           {Words: begins("from: ann")},
		`"from:ann"`:                          {Words: begins(`"from:ann"`)},
		"...":                                 {MatchesNothing: true},
		" ":                                   {MatchesNothing: true},
		"-":                                   {MatchesNothing: true},
		"... is:read -":                       {Seen: is(true)},
		"\u00a0ann\u2003is:read\u3000\tapple": {Words: begins("ann apple"), Seen: is(true)},
	} {
		got, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", text, *got, want)
		}
	}
}

// TestWrongValues: a bad date or size is an error that names the operator and a form that is right.
func TestWrongValues(t *testing.T) {
	for text, says := range map[string]string{
		"before:tomorrow": "2026-11-30", "after:2026-02-30": "2026-11-30", "-before:2026-1-1": "2026-11-30", "after:1969-12-31": "2026-11-30", "before:0": "2026-11-30",
		"larger:big": "10MB", "smaller:-1": "10MB", "larger:1.5MB": "10MB", "-larger:10TB": "10MB", "larger:MB": "10MB", "smaller:9223372036854775807": "10MB", "larger:9999999999GB": "10MB",
	} {
		_, err := Parse("apple " + text)
		name, value, _ := strings.Cut(strings.TrimPrefix(text, "-"), ":")
		if err == nil || !strings.HasPrefix(err.Error(), name+":") || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestMatchers: a Matcher compares texts and single fields; fields that lack the words satisfy "-".
func TestMatchers(t *testing.T) {
	h := &Header{From: "Ann Lee <ann@far.test>", To: []string{"bob@x.test", "Cat <cat@y.test>"}, Subject: "Green apples"}
	for text, want := range map[string]bool{
		"from:ann": true, "from:bob": false, "-from:bob": true, "-from:ann": false, "to:cat to:bob": true, `to:"bob cat"`: false, "cc:ann": false, "-cc:ann": true,
		"subject:green": true, "subject:app": true, "-subject:app": true, "from:@far.test -subject:red": true, "is:read": true,
	} {
		q, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		m := q.NewMatcher()
		for range 2 { // a Matcher can be used again
			if got := m.MatchesHeader(h); got != want {
				t.Errorf("%s: %v", text, got)
			}
		}
	}
	q, err := Parse(`green "red plum" -pear -"blue sky"`)
	if err != nil {
		t.Fatal(err)
	}
	m := q.NewMatcher()
	if !m.HasWords("a red plum", "green") || m.HasWords("plum red green") || m.HasExcluded("pears", "sky blue") || !m.HasExcluded("x", "the blue sky") {
		t.Error("words are compared wrongly")
	}
	if got := len(q.Terms()); got != 3 {
		t.Errorf("%d terms", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{`from:ann -"a b" in:"x y"`, "before:2026-01-01 larger:10MB", "-", `"`, "is:READ -is:unread", "subject:\xff", "“a” to:b", "smaller:18446744073709551615GB"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := Parse(text)
		if err != nil {
			return
		}
		parts := split(tokenize.StraightQuotes(text))
		if n := len(q.Without) + len(q.Fields) + len(q.In) + len(q.NotIn); n > len(parts) {
			t.Fatalf("%d conditions of %d parts", n, len(parts))
		}
		for _, part := range parts {
			if part == "" || strings.TrimSpace(part) == "" && !strings.Contains(part, `"`) {
				t.Fatalf("part %q of %q", part, text)
			}
		}
		if !strings.ContainsAny(text, ":-") && !reflect.DeepEqual(q.Words, tokenize.Parse(text)) { // as before there were operators
			t.Fatalf("%q: %+v, want %+v", text, q.Words, tokenize.Parse(text))
		}
		m := q.NewMatcher()
		m.MatchesHeader(&Header{From: text, To: parts, Subject: text})
		if m.HasWords() && len(q.Words.Terms) > 0 || m.HasExcluded() {
			t.Fatalf("%q matches no texts", text)
		}
		if q.MinSize < 0 || q.SizeLimit < 0 {
			t.Fatalf("%q: sizes from %d to %d", text, q.MinSize, q.SizeLimit)
		}
	})
}
