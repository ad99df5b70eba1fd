package corpus

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/mailstead/mailstead/mail/classify"
	"github.com/mailstead/mailstead/mail/msg"
)

const (
	startSeed     = 1
	startMessages = 6000
	startTokens   = 4000

	// Smoothing: a token counts as if it occurred in this many more templates of the other class,
	// so that tokens that a few templates have by chance get little weight. smoothOther is for
	// languages other than English. They have so few templates that even common words often occur
	// in one class only.
	smoothEnglish = 0.3
	smoothOther   = 0.8
)

// StartSet builds the start set of the classifier from the templates that are not held out for
// measuring. Each template has the same weight, however many messages were generated from it.
// Tokens about the transport get the same frequency in both classes. So they have no weight at
// first, and not too much after the first corrections by a user.
func StartSet() ([]byte, error) {
	type share struct{ class [2]int64 }        // in millionths; integers, so that the order of additions does not matter
	counts := map[int]map[classify.Token]int{} // by number of the template
	messages := map[int]int{}
	classOf := map[int]int{}
	english := map[classify.Token]bool{}
	neutral := map[classify.Token]bool{}
	for m := range Messages(startSeed, false, startMessages) {
		r := bytes.NewReader(m.Raw)
		root, err := msg.Scan(r)
		if err != nil {
			return nil, err
		}
		reading, err := classify.Read(r, root, m.Evidence)
		if err != nil {
			return nil, fmt.Errorf("read message of template %d: %w", m.Template, err)
		}
		if counts[m.Template] == nil {
			counts[m.Template] = map[classify.Token]int{}
		}
		messages[m.Template]++
		if m.Spam {
			classOf[m.Template] = 1
		}
		said, sent := reading.CommonTokens()
		for _, t := range sent {
			neutral[t] = true
		}
		for _, t := range slices.Concat(said, sent) {
			counts[m.Template][t]++
			if m.Language == "en" {
				english[t] = true
			}
		}
	}
	var perClass [2]int
	for template := range counts {
		perClass[classOf[template]]++
	}
	shares := map[classify.Token]*share{}
	for template, of := range counts {
		class := classOf[template]
		for t, n := range of {
			if shares[t] == nil {
				shares[t] = &share{}
			}
			shares[t].class[class] += int64(n) * 1e6 / int64(messages[template]*perClass[class])
		}
	}
	list := make([]classify.StartToken, 0, len(shares))
	for t, s := range shares {
		smooth := smoothOther
		if english[t] {
			smooth = smoothEnglish
		}
		switch ham, spam := s.class[0], s.class[1]; {
		case neutral[t]:
			s.class[0] = (ham + spam) / 2
			s.class[1] = s.class[0]
		case spam > ham:
			s.class[0] = min(spam, ham+int64(smooth*1e6)/int64(perClass[0]))
		default:
			s.class[1] = min(ham, spam+int64(smooth*1e6)/int64(perClass[1]))
		}
		list = append(list, classify.StartToken{Token: t, Ham: float64(s.class[0]) / 1e6, Spam: float64(s.class[1]) / 1e6})
	}
	// Keep the most frequent tokens, even those that are equally frequent in both classes.
	value := func(t classify.StartToken) int64 { return shares[t.Token].class[0] + shares[t.Token].class[1] }
	slices.SortFunc(list, func(a, b classify.StartToken) int {
		return cmp.Or(cmp.Compare(value(b), value(a)), cmp.Compare(a.Token, b.Token))
	})
	return classify.EncodeStart(list[:min(len(list), startTokens)]), nil
}
