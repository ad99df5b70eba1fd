// Package query parses the search language of mail lists: words, phrases, and operators such as
// from:ann or larger:10MB. It does not know where messages are stored, nor which of their texts a
// reader may see.
package query

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mailstead/mailstead/mail/tokenize"
)

// A Field is a header field in which an operator searches.
type Field int

// The fields, each with the operator of its name.
const (
	From Field = iota
	To
	Cc
	Subject
)

// A FieldQuery matches a message if the field has the words or, with Not, if it lacks them.
type FieldQuery struct {
	Field Field
	Words tokenize.Query
	Not   bool
}

// A Query is a parsed search. A message matches if all of its conditions hold. The zero Query
// matches every message.
type Query struct {
	Words   tokenize.Query   // the texts of the message must have these words and phrases
	Without []tokenize.Query // the texts must not have all words and phrases of any of these
	Fields  []FieldQuery

	In    []string // the message must be in each of these folders, which have the names that lists take
	NotIn []string // it must be in none of these folders

	Seen, Flagged, Answered, Attachments *bool // nil: either

	After, Before time.Time // received from After until before Before; zero: no limit
	MinSize       int64     // the size in bytes must be at least this
	SizeLimit     int64     // the size in bytes must be below this; 0: no limit

	// MatchesNothing says that no message can match, because two conditions exclude each other, or
	// because there is nothing to look for.
	MatchesNothing bool
}

// Parse parses a search. Its parts are separated by blanks, and a message must satisfy all of them:
//
//   - words and phrases, see [tokenize.Parse];
//   - from: to: cc: subject: with words, which the header field must have;
//   - has:attachment is:unread is:read is:starred is:answered;
//   - in: with the name of a folder;
//   - before: and after: with a day of the form 2026-11-30 in UTC, which belongs to after: alone;
//   - larger: and smaller: with a number of bytes, or of KB, MB or GB, which are powers of ten.
//
// A value that has blanks is in double quotes. A leading "-" negates a part; a word that is negated
// must be whole, while the last of other words may be the beginning of one. An operator that is
// unknown or has no value, and an unknown value of is: and has:, are text. A text that has neither
// a word nor an operator matches nothing, but the empty text matches everything. The error names an
// operator with an invalid date or size.
func Parse(text string) (*Query, error) {
	q, conditions := &Query{}, 0
	var words []string
	for _, part := range split(tokenize.StraightQuotes(text)) {
		rest, not := strings.CutPrefix(part, "-")
		isOperator, err := q.addOperator(rest, not)
		if err != nil {
			return nil, err
		}
		switch {
		case isOperator:
			conditions++
		case !not:
			words = append(words, part)
		default:
			if without := tokenize.ParseWhole(rest); len(without.Terms) > 0 {
				q.Without = append(q.Without, without)
				conditions++
			}
		}
	}
	q.Words = tokenize.Parse(strings.Join(words, " "))
	if text != "" && conditions == 0 && len(q.Words.Terms) == 0 {
		q.MatchesNothing = true
	}
	return q, nil
}

// split returns the parts of a search. Blanks between double quotes do not separate parts.
func split(text string) (parts []string) {
	begin, quoted := -1, false // begin is where the current part begins; -1: between parts
	for i, r := range text {
		blank := !quoted && unicode.IsSpace(r)
		if blank && begin >= 0 {
			parts, begin = append(parts, text[begin:i]), -1
		}
		if !blank && begin < 0 {
			begin = i
		}
		if r == '"' {
			quoted = !quoted
		}
	}
	if begin >= 0 {
		parts = append(parts, text[begin:])
	}
	return parts
}

// addOperator adds the condition of a part that is an operator with its value. It returns false if
// the part is text.
func (q *Query) addOperator(part string, not bool) (isOperator bool, err error) {
	name, value, _ := strings.Cut(part, ":")
	name = strings.ToLower(name)
	plain := strings.TrimSpace(strings.ReplaceAll(value, `"`, ""))
	if plain == "" {
		return false, nil
	}
	switch name {
	case "from":
		q.AddField(From, value, not)
	case "to":
		q.AddField(To, value, not)
	case "cc":
		q.AddField(Cc, value, not)
	case "subject":
		q.AddField(Subject, value, not)
	case "in":
		if not {
			q.NotIn = append(q.NotIn, plain)
		} else {
			q.In = append(q.In, plain)
		}
	case "has", "is":
		return q.addState(name+":"+strings.ToLower(plain), not), nil
	case "before", "after":
		day, err := time.Parse(time.DateOnly, plain)
		if err != nil || day.Year() < 1970 {
			return false, fmt.Errorf("%s: must be followed by a date of the form 2026-11-30, not by %.40q", name, plain)
		}
		if (name == "after") != not {
			q.ReceivedFrom(day)
		} else {
			q.ReceivedBefore(day)
		}
	case "larger", "smaller":
		size, ok := parseSize(plain)
		if !ok {
			return false, fmt.Errorf("%s: must be followed by a size such as 500KB or 10MB, not by %.40q", name, plain)
		}
		q.limitSize(name == "larger", not, size)
	default:
		return false, nil
	}
	return true, nil
}

// AddField adds the condition that a field has words or, with not, that it lacks them.
func (q *Query) AddField(field Field, words string, not bool) {
	parse := tokenize.Parse
	if not {
		parse = tokenize.ParseWhole
	}
	f := FieldQuery{Field: field, Words: parse(words), Not: not}
	if len(f.Words.Terms) > 0 {
		q.Fields = append(q.Fields, f)
	} else if !not {
		q.MatchesNothing = true
	}
}

// addState adds the condition of is: and has:. It returns false if the operator has no such value.
func (q *Query) addState(state string, not bool) (known bool) {
	switch state {
	case "is:unread":
		q.Require(&q.Seen, not)
	case "is:read":
		q.Require(&q.Seen, !not)
	case "is:starred":
		q.Require(&q.Flagged, !not)
	case "is:answered":
		q.Require(&q.Answered, !not)
	case "has:attachment":
		q.Require(&q.Attachments, !not)
	default:
		return false
	}
	return true
}

// Require adds a condition to one of the choices of q, such as &q.Seen.
func (q *Query) Require(choice **bool, value bool) {
	if *choice != nil && **choice != value {
		q.MatchesNothing = true
	}
	*choice = &value
}

// ReceivedFrom adds the condition that a message was received at or after a time.
func (q *Query) ReceivedFrom(at time.Time) {
	if at.After(q.After) {
		q.After = at
	}
}

// ReceivedBefore adds the condition that a message was received before a time.
func (q *Query) ReceivedBefore(at time.Time) {
	if q.Before.IsZero() || at.Before(q.Before) {
		q.Before = at
	}
}

// limitSize adds the condition of larger: or smaller:, neither of which includes the size itself.
func (q *Query) limitSize(larger, not bool, size int64) {
	switch {
	case larger && !not:
		q.MinSize = max(q.MinSize, size+1)
		return
	case !larger && not:
		q.MinSize = max(q.MinSize, size)
		return
	case larger:
		size++
	}
	if size == 0 {
		q.MatchesNothing = true
	} else if q.SizeLimit == 0 || size < q.SizeLimit {
		q.SizeLimit = size
	}
}

// parseSize parses a number of bytes, or of KB, MB or GB.
func parseSize(text string) (size int64, ok bool) {
	digits, unit := strings.ToUpper(text), int64(1)
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}} {
		if number, found := strings.CutSuffix(digits, u.name); found {
			digits, unit = number, u.bytes
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || int64(n) >= math.MaxInt64/unit {
		return 0, false
	}
	return int64(n) * unit, true
}

// Terms returns the words that the texts of every matching message have.
func (q *Query) Terms() []tokenize.Term {
	all := q.Words.Terms
	for _, f := range q.Fields {
		if !f.Not {
			all = append(all[:len(all):len(all)], f.Words.Terms...)
		}
	}
	return all
}

// MatchesSize reports whether the size of a message, in bytes, satisfies the query.
func (q *Query) MatchesSize(size int64) bool {
	return size >= q.MinSize && (q.SizeLimit == 0 || size < q.SizeLimit)
}

// A Header has the fields of a message that operators search in, as a reader may see them.
type Header struct {
	From    string
	To, Cc  []string
	Subject string
}

// A Matcher compares the texts of messages with a Query. Only one goroutine may use it at a time.
type Matcher struct {
	words   *tokenize.Matcher // nil: no words are searched for
	without []*tokenize.Matcher
	fields  []fieldMatcher
}

type fieldMatcher struct {
	field Field
	words *tokenize.Matcher
	not   bool
}

// NewMatcher returns a Matcher for the query.
func (q *Query) NewMatcher() *Matcher {
	m := &Matcher{}
	if len(q.Words.Terms) > 0 {
		m.words = tokenize.NewMatcher(q.Words)
	}
	for _, w := range q.Without {
		m.without = append(m.without, tokenize.NewMatcher(w))
	}
	for _, f := range q.Fields {
		m.fields = append(m.fields, fieldMatcher{f.Field, tokenize.NewMatcher(f.Words), f.Not})
	}
	return m
}

// HasWords reports whether the texts of a message have the query's words and phrases.
func (m *Matcher) HasWords(texts ...string) bool { return m.words == nil || m.words.Matches(texts...) }

// HasExcluded reports whether the texts of a message have what the query excludes.
func (m *Matcher) HasExcluded(texts ...string) bool {
	for _, w := range m.without {
		if w.Matches(texts...) {
			return true
		}
	}
	return false
}

// MatchesHeader reports whether the header of a message satisfies the conditions on single fields.
func (m *Matcher) MatchesHeader(h *Header) bool {
	for _, f := range m.fields {
		texts := h.To
		switch f.field {
		case From:
			texts = []string{h.From}
		case Cc:
			texts = h.Cc
		case Subject:
			texts = []string{h.Subject}
		}
		if f.words.Matches(texts...) == f.not {
			return false
		}
	}
	return true
}
