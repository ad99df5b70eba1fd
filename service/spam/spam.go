// Package spam has the classifier of spam of each account. It says what it holds mail for that
// arrives, and learns from what people move into Junk and out of it. It does not know how a message
// becomes tokens and a score, which is in mail/classify, nor what is done with the message.
//
// Where things stand:
//   - spam.go: verdicts ([Service.Judge]), and how they are kept with messages.
//   - lessons.go: what a move teaches ([Service.Moved]), and the job that learns it.
//   - examples.go: wanted mail that the job takes for examples.
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

// A Service has the classifiers of accounts.
type Service struct {
	*core.Core
	models *models
}

// New puts the room together.
func New(c *core.Core) *Service { return &Service{Core: c, models: newModels(c.Store)} }

// Kinds lists the kinds of jobs of this room.
func (s *Service) Kinds() []jobs.Kind { return []jobs.Kind{s.learnKind()} }

// On reports whether mail is classified.
func (s *Service) On() bool { return s.Config.Spam.Classifier }

// What a message is held for.
const (
	Ham    = "ham" // wanted mail
	Unsure = "unsure"
	IsSpam = "spam"
)

// A Verdict is what the classifier said about a message when it came.
type Verdict struct {
	Score   float64 // from 0, which is wanted mail, to 1, which is spam
	Verdict string  // Ham, Unsure or IsSpam
	Reasons []classify.Reason
	Form    string // in which a message's Meta keeps it, see Keep
}

// Judge says what the classifier of an account thinks of a message, of which facts were found out,
// and that answers one of the account or not.
func (s *Service) Judge(accountID string, r io.ReaderAt, root *msg.Part, facts *store.Facts, answers bool) (*Verdict, error) {
	reading, err := classify.Read(r, root, EvidenceOf(facts.SPF, facts.DKIM, facts.DMARC, answers))
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	model, err := s.models.get(accountID)
	if err != nil { // damaged rows are no reason to take no mail
		s.Log.Error("read the classifier of an account; its start set is used", "account_id", accountID, "error", err)
	}
	scored := reading.Score(model)
	v := &Verdict{Score: scored.Score, Verdict: Unsure, Reasons: scored.Reasons}
	switch {
	case v.Score >= s.Config.Spam.JunkScore:
		v.Verdict = IsSpam
	case v.Score < s.Config.Spam.JunkScore/2:
		v.Verdict = Ham
	}
	v.Form = v.Keep()
	return v, nil
}

// Keep is the form in which a verdict is kept in a message's Meta: a line with score and verdict,
// and one for each reason with code, weight and token.
func (v *Verdict) Keep() string {
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

// Kept gives the verdict that Keep has written; nil for "".
func Kept(text string) *Verdict {
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
