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

// Parameters of scoring. The start set counts as much as a number of training messages, so that an
// account's own training soon outweighs it. The values were found by measurement (measure_test.go).
const (
	startMessages  = 90.0 // training messages of each class that the start set counts as
	startSmoothing = 0.03 // smoothing for tokens of the start set: messages of each class that have the token by chance
	ownSmoothing   = 0.35 // smoothing for tokens that only the account's model has
	fewSmoothing   = 0.7  // further smoothing of the latter, divided by the training messages of each class: few of them agree by chance
	minStrength    = 0.2  // tokens do not count if their probability is closer than this to 0.5
	maxClues       = 150  // tokens that count: those with probabilities furthest from 0.5
	priorClue      = 0.43 // prior probability of spam; the result if no token counts
	priorClues     = 5    // how many tokens the prior counts as, so that a few words of a short message decide nothing
	clueWeight     = 0.7  // weight of each token; below 1, since the tokens of a message depend on each other

	writtenTo    = "the account wrote to the author"
	writtenClues = 8 // how many tokens the fact writtenTo counts as
)

// A Reason is a token that contributes to the score of a message.
type Reason struct {
	Code   string
	Text   string  // the token as people see it: at most 40 characters, no control characters
	Weight float64 // log-odds, rounded to 2 decimals; positive for spam
}

// A Verdict is the result of scoring a message.
type Verdict struct {
	Score   float64  // from 0 (wanted) to 1 (junk), rounded to 4 decimals
	Reasons []Reason // at most 10, the strongest first
}

const maxReasons = 10

// Score scores a message by the start set and the account's model. own is nil if the account has no
// training.
func (r *Reading) Score(own *Model) Verdict {
	start := startSetOnce()
	// In the beginning, a user may correct mostly one class (spam or wanted mail), and all these
	// messages may have come by the same path. So tokens about the transport count as if there were
	// equally many corrections of both classes. For other tokens, spam counts as at most as many
	// messages as wanted mail. Otherwise everything that an account's mail has in common would look
	// like a sign of spam while there is little training in wanted mail.
	var spamTrained, hamTrained, evenly float64
	if own != nil {
		spamTrained, hamTrained = float64(own.Spam), float64(own.Ham)
		evenly = min(spamTrained, hamTrained)
	}
	smoothing := ownSmoothing + fewSmoothing/max(evenly, 1)

	// p is the probability that a message with the token is spam (Graham, Robinson). The term
	// chance keeps p near 0.5 for rare tokens, and while one class has little training.
	probabilities := make([]float64, len(r.tokens))
	var strengths [51]int // number of tokens by the distance of their probability from 0.5, in hundredths
	for i, t := range r.tokens {
		spam, ham := start.get(t)
		spam, ham = spam*startMessages, ham*startMessages
		known := spam + ham
		spamMessages, hamMessages := startMessages+evenly, startMessages+hamTrained
		if own != nil {
			c := own.Get(t)
			spamTimes, hamTimes := evenly/max(spamTrained, 1), 1.0
			if kinds[r.refs[i].kind].use == transport {
				hamMessages, hamTimes = startMessages+evenly, evenly/max(hamTrained, 1)
			}
			spam += float64(c.Spam) * spamTimes
			ham += float64(c.Ham) * hamTimes
		}
		if spam+ham == 0 {
			continue
		}
		// The counts of the start set are smoothed already.
		chance := smoothing + (startSmoothing-smoothing)*known/(spam+ham)
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

	// Fisher's method: the sum of the logarithms of random probabilities has a chi-square
	// distribution. So the sum tells how unlikely these probabilities are by chance. It is computed
	// for spam and for ham.
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
	degrees := max(1, int(math.Round(clueWeight*float64(n))))
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
			Code: kinds[r.refs[i].kind].code, Text: r.readableText(i), Weight: math.Round(math.Log(p/(1-p))*100) / 100,
		})
	}
	return v
}

// chiSquare returns the probability that a chi-square value with 2n degrees of freedom is greater
// than x.
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

// readableText returns the text of a token as people see it.
func (r *Reading) readableText(i int) string {
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

// A startSetUse says what the start set contains about the tokens of a kind.
type startSetUse uint8

const (
	private   startSetUse = iota // nothing, since names, addresses and hosts are specific to an account
	content                      // how frequent each token is in junk mail and in wanted mail
	transport                    // how frequent each token is in all mail; only training gives these tokens weight
)

// kinds has for each kind the code and the sentence of its Reason, and its use.
var kinds = [...]struct {
	code     string
	sentence string
	use      startSetUse
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

// contentFacts are facts that are treated as content: those about hidden content, and writtenTo,
// which no stranger can cause. Other facts, such as a missing date, are also true of mail from
// scripts and devices.
var contentFacts = []string{
	"has invisible characters in words", "has comments in words", "hides text", "has a form", "has a link with a user name in it",
	"has a link to a number in place of a name", "has a file with two endings", writtenTo,
}

// Sentence returns the reason as a sentence in English.
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
