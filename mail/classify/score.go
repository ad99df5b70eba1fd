package classify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// How tokens are weighed. The start set counts like messages that the account was taught, so what
// an account teaches outweighs it soon. The numbers were found by measuring (measure_test.go).
const (
	startMessages = 90.0 // of each class
	startDoubt    = 0.03 // messages of each class that have a token of the start set by chance
	doubt         = 0.35 // the same for a token that only the account knows
	minStrength   = 0.2  // how far from 0.5 a probability must be to count
	maxClues      = 150  // tokens that count, those furthest from 0.5
	priorClue     = 0.43 // what counts beside them, and alone where nothing is known
	priorClues    = 5    // how many times, so that a few words of a short message lead to nothing
	worth         = 0.7  // of each clue, since tokens of one message depend on one another

	writtenTo    = "the account wrote to the author"
	writtenClues = 8 // as many clues as writtenTo counts for
)

// A Reason is a token that a score rests on.
type Reason struct {
	Code   string
	Text   string  // the token as a person reads it: at most 40 characters, no control characters
	Weight float64 // log-odds, rounded to 2 decimals; above 0 it speaks for spam
}

// A Verdict is what is thought of a message.
type Verdict struct {
	Score   float64  // from 0, wanted, to 1, junk, rounded to 4 decimals
	Reasons []Reason // at most 10, the heaviest first
}

const maxReasons = 10

// Score weighs a message by what an account was taught; own is nil for one that was taught nothing.
func (r *Reading) Score(own *Model) Verdict {
	start := start()
	// Corrections are mostly of one class at first, and all of these may have come the same way. So
	// what tells how mail came counts as if there were as many corrections of either class. In
	// everything else, spam counts for no more messages than wanted mail does: where little of that
	// is known, all that mail of the account has in common would be held for a sign of spam.
	var spamTaught, hamTaught, evenly float64
	if own != nil {
		spamTaught, hamTaught = float64(own.Spam), float64(own.Ham)
		evenly = min(spamTaught, hamTaught)
	}

	// The probability of spam for a message that has the token (Graham, Robinson), as far as it is
	// known. The chance keeps it near 0.5 for rare tokens, and while one class was taught little.
	probabilities := make([]float64, len(r.tokens))
	var strengths [51]int // how many are so far from 0.5, in hundredths
	for i, t := range r.tokens {
		spam, ham := start.get(t)
		spam, ham = spam*startMessages, ham*startMessages
		known := spam + ham
		spamMessages, hamMessages := startMessages+evenly, startMessages+hamTaught
		if own != nil {
			c := own.Get(t)
			spamTimes, hamTimes := evenly/max(spamTaught, 1), 1.0
			if kinds[r.refs[i].kind].use == transport {
				hamMessages, hamTimes = startMessages+evenly, evenly/max(hamTaught, 1)
			}
			spam += float64(c.Spam) * spamTimes
			ham += float64(c.Ham) * hamTimes
		}
		if spam+ham == 0 {
			continue
		}
		// Counts of the start set were smoothed when it was made.
		chance := doubt + (startDoubt-doubt)*known/(spam+ham)
		chance /= min(spamMessages, hamMessages)
		spam, ham = spam/spamMessages+chance, ham/hamMessages+chance
		p := spam / (spam + ham)
		if strength := math.Abs(p - 0.5); strength >= minStrength {
			probabilities[i] = p
			strengths[int(strength*100)]++
		}
	}
	weakest, room := len(strengths)-1, maxClues
	for weakest > 0 && strengths[weakest] <= room {
		room -= strengths[weakest]
		weakest--
	}

	// Fisher's method: the logarithms of many probabilities that mean nothing are distributed as
	// chi square, so their sum tells how much these mean, once for spam and once for ham.
	var clues [maxClues]int
	count := 0
	spamLog, hamLog, n := priorClues*math.Log(1-priorClue), priorClues*math.Log(priorClue), priorClues
	for i, p := range probabilities {
		if p == 0 {
			continue
		}
		switch at := int(math.Abs(p-0.5) * 100); {
		case at < weakest:
			continue
		case at == weakest:
			if room == 0 {
				continue
			}
			room--
		}
		clues[count] = i
		count++
		times := 1
		if r.refs[i].kind == kindEvidence && string(r.textOf(i)) == writtenTo {
			times = writtenClues
		}
		spamLog += float64(times) * math.Log(1-p)
		hamLog += float64(times) * math.Log(p)
		n += times
	}
	degrees := max(1, int(math.Round(worth*float64(n))))
	share := float64(degrees) / float64(n)
	spam := 1 - chiSquare(-2*share*spamLog, degrees)
	ham := 1 - chiSquare(-2*share*hamLog, degrees)
	v := Verdict{Score: math.Round((spam-ham+1)/2*1e4) / 1e4}

	strongest := clues[:count]
	slices.SortStableFunc(strongest, func(a, b int) int {
		return cmp.Compare(math.Abs(probabilities[b]-0.5), math.Abs(probabilities[a]-0.5))
	})
	for _, i := range strongest[:min(count, maxReasons)] {
		p := probabilities[i]
		v.Reasons = append(v.Reasons, Reason{
			Code: kinds[r.refs[i].kind].code, Text: r.readable(i), Weight: math.Round(math.Log(p/(1-p))*100) / 100,
		})
	}
	return v
}

// chiSquare is the probability that chi square with 2n degrees of freedom is larger than x.
func chiSquare(x float64, n int) float64 {
	half := x / 2
	term := math.Exp(-half)
	sum := term
	for i := 1; i < n; i++ {
		term *= half / float64(i)
		sum += term
	}
	return min(sum, 1)
}

func (r *Reading) textOf(i int) []byte {
	f := r.refs[i]
	return r.text[f.at : f.at+uint32(f.n)]
}

// readable is the text of a token for people.
func (r *Reading) readable(i int) string {
	text := strings.ToValidUTF8(string(r.textOf(i)), "\uFFFD")
	switch r.refs[i].kind {
	case kindLong:
		text += "0 letters or more"
	case kindNumber:
		text += " digits"
	case kindMoney:
		_, size := utf8.DecodeRuneInString(text)
		text = text[:size] + strings.Repeat("0", int(text[size]-'0'))
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return -1
		}
		return r
	}, text)
	if utf8.RuneCountInString(text) > 40 {
		text = string([]rune(text)[:39]) + "…"
	}
	return text
}

// A use says what the start set has of a kind of token.
type use uint8

const (
	private   use = iota // nothing: names, addresses and hosts differ from account to account
	content              // how frequent it is in junk mail and in wanted mail
	transport            // how frequent it is in mail; only what an account teaches makes it say something
)

// kinds says what people are told of each kind: a code, and a sentence around the text.
var kinds = [...]struct {
	code     string
	sentence string
	use      use
}{
	kindWord:       {"word", `The word "%s" is frequent in`, content},
	kindSubject:    {"subject", `The word "%s" in the subject is frequent in`, content},
	kindPhrase:     {"phrase", `The words "%s" are frequent in`, content},
	kindLong:       {"long_word", `A word of %s is frequent in`, transport},
	kindNumber:     {"number", `A number of %s is frequent in`, transport},
	kindMoney:      {"money", `A sum of money like %s is frequent in`, content},
	kindSender:     {"sender", `The author %s is frequent in`, private},
	kindDomain:     {"sender_domain", `The author's domain %s is frequent in`, private},
	kindName:       {"sender_name", `The word "%s" in the author's name is frequent in`, private},
	kindEnding:     {"sender_ending", `An author's domain in %s is frequent in`, transport},
	kindHost:       {"link", `A link to %s is frequent in`, private},
	kindSite:       {"link_site", `A link to the site %s is frequent in`, private},
	kindLinkEnding: {"link_ending", `A link to a site in %s is frequent in`, transport},
	kindFact:       {"fact", `The message %s, as is frequent in`, transport},
	kindEvidence:   {"authentication", `"%s" is frequent for`, transport},
	kindAttachment: {"attachment", `A file that ends in %s is frequent in`, content},
	kindType:       {"content_type", `Content of the type %s is frequent in`, transport},
	kindMailer:     {"mailer", `The word "%s" in the mail program's name is frequent in`, private},
	kindList:       {"list", `The mailing list %s is frequent in`, private},
	kindField:      {"header", `The header field %s is frequent in`, private},
}

// contentFacts are those about what people cannot see, and the one that no stranger can bring
// about. The others, such as a missing date, also hold for the mail of scripts and devices.
var contentFacts = []string{
	"has invisible characters in words", "has comments in words", "hides text", "has a form", "has a link with a user name in it",
	"has a link to a number in place of a name", "has a file with two endings", writtenTo,
}

// Sentence says in plain English what the reason is.
func (r Reason) Sentence() string {
	class := "wanted mail"
	if r.Weight > 0 {
		class = "junk mail"
	}
	for _, k := range kinds {
		if k.code == r.Code && r.Code != "" {
			return fmt.Sprintf(k.sentence, r.Text) + " " + class
		}
	}
	return fmt.Sprintf("%q is frequent in %s", r.Text, class)
}
