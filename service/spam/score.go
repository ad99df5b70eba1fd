// Package spam decides which mail counts as junk because of its content: it has the spam classifier
// of each account, which learns from mail that people move into Junk and out of it. Package inbound
// decides which mail goes to Junk because of its sender, and files both. Package spam does not know
// how a message becomes tokens and a score: that is mail/classify.
//
// Where things are:
//   - score.go: the score from which a message counts as junk ([Service.Classify]), and how
//     verdicts are stored with messages.
//   - lessons.go: what a move teaches ([Service.Moved]), and the job that learns it.
//   - examples.go: wanted mail that the job learns as examples.
//   - models.go: the models of accounts in memory.
package spam

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/classify"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A Service has the classifiers of all accounts.
type Service struct {
	*core.Core
	models *models
}

// New returns the room.
func New(c *core.Core) *Service { return &Service{Core: c, models: newModels(c.Store)} }

// Kinds lists the job kinds of this room.
func (s *Service) Kinds() []jobs.Kind { return []jobs.Kind{s.learnKind()} }

// On reports whether mail is classified.
func (s *Service) On() bool { return s.Settings().Spam.Classifier }

// Verdicts about a message.
const (
	Ham    = "ham" // wanted mail
	Unsure = "unsure"
	IsSpam = "spam"
)

// A Verdict is the classifier's result for a message when it arrived.
type Verdict struct {
	Score   float64 // from 0, wanted mail, to 1, spam
	Verdict string  // Ham, Unsure or IsSpam
	Reasons []classify.Reason
	Form    string // as Encode returns it
}

// Classify classifies a message for an account. facts are the results of the checks of its sender;
// answers says whether the message answers one of the account.
func (s *Service) Classify(accountID string, r io.ReaderAt, root *msg.Part, facts *store.Facts, answers bool) (*Verdict, error) {
	reading, err := classify.Read(r, root, EvidenceOf(facts.SPF, facts.DKIM, facts.DMARC, answers))
	if err != nil {
		return nil, fmt.Errorf("read the words of a message for the spam classifier: %w", err)
	}
	model, err := s.models.get(accountID)
	if err != nil { // damaged rows must not stop mail
		s.Log.Error("could not read the classifier of an account; the built-in one is used", "account_id", accountID, "error", err)
	}
	scored := reading.Score(model)
	v := &Verdict{Score: scored.Score, Verdict: Unsure, Reasons: scored.Reasons}
	switch junk := s.Settings().Spam.JunkScore; {
	case v.Score >= junk:
		v.Verdict = IsSpam
	case v.Score < junk/2:
		v.Verdict = Ham
	}
	v.Form = v.Encode()
	return v, nil
}

// Encode returns the form in which a verdict is stored in a message's Meta: a line with score and
// verdict, and a line for each reason with code, weight and token. It returns "" for nil.
func (v *Verdict) Encode() string {
	if v == nil {
		return ""
	}
	b := strconv.AppendFloat(nil, v.Score, 'f', -1, 64)
	b = append(append(b, ' '), v.Verdict...)
	for _, r := range v.Reasons {
		b = append(append(b, '\n'), r.Code...)
		b = strconv.AppendFloat(append(b, ' '), r.Weight, 'f', -1, 64)
		b = append(append(b, ' '), r.Text...)
	}
	return string(b)
}

// ParseVerdict parses a verdict that Encode has written. It returns nil for any other text, such as
// "".
func ParseVerdict(text string) *Verdict {
	if text == "" { // an error of ParseFloat takes memory
		return nil
	}
	line, rest, more := strings.Cut(text, "\n")
	score, verdict, ok := strings.Cut(line, " ")
	number, err := strconv.ParseFloat(score, 64)
	if !ok || err != nil {
		return nil
	}
	v := &Verdict{Score: number, Verdict: verdict}
	for more {
		line, rest, more = strings.Cut(rest, "\n")
		code, line, _ := strings.Cut(line, " ")
		weight, token, _ := strings.Cut(line, " ")
		number, err := strconv.ParseFloat(weight, 64)
		if err == nil {
			v.Reasons = append(v.Reasons, classify.Reason{Code: code, Text: token, Weight: number})
		}
	}
	return v
}
