package classify_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/classify"
	"github.com/mailstead/mailstead/mail/classify/corpus"
	"github.com/mailstead/mailstead/mail/msg"
)

const (
	junkScore   = 0.9 // mail goes to Junk from here on
	unsureScore = 0.5
	corrections = 200

	mostFalsePositives = 0.001
)

// A sample is a message with what it is.
type sample struct {
	name    string
	spam    bool
	reading *classify.Reading
}

func read(t testing.TB, raw []byte, e classify.Evidence) *classify.Reading {
	t.Helper()
	r := bytes.NewReader(raw)
	root, err := msg.Scan(r)
	if err != nil {
		t.Fatal(err)
	}
	reading, err := classify.Read(r, root, e)
	if err != nil {
		t.Fatal(err)
	}
	return reading
}

// A tally counts what became of messages.
type tally struct{ ham, spam, falsePositives, misses int }

func (c *tally) add(s sample, v classify.Verdict) {
	junk := v.Score >= junkScore
	if s.spam {
		c.spam++
		if !junk {
			c.misses++
		}
		return
	}
	c.ham++
	if junk {
		c.falsePositives++
	}
}

func (c *tally) falsePositiveRate() float64 {
	return float64(c.falsePositives) / float64(max(c.ham, 1))
}
func (c *tally) recall() float64 { return 1 - float64(c.misses)/float64(max(c.spam, 1)) }
func (c *tally) precision() float64 {
	found := c.spam - c.misses
	return float64(found) / float64(max(found+c.falsePositives, 1))
}

func (c *tally) String() string {
	return fmt.Sprintf("%d wanted, %d of them taken for junk (%.3f %%); %d junk, %d missed (%.2f %%); precision %.2f %%, recall %.2f %%",
		c.ham, c.falsePositives, 100*c.falsePositiveRate(), c.spam, c.misses, 100-100*c.recall(), 100*c.precision(), 100*c.recall())
}

// teach has a user correct the first messages that are misfiled or unsure, and says how many
// messages came until then. For each correction of spam, the wanted mail that came last is an
// example.
func teach(samples []sample) (model *classify.Model, seen int) {
	model = classify.NewModel()
	var wanted []*classify.Reading // that counts for nothing yet
	for taught := 0; seen < len(samples) && taught < corrections; seen++ {
		s := samples[seen]
		v := s.reading.Score(model)
		if junk := v.Score >= junkScore; junk != s.spam || v.Score >= unsureScore && !junk {
			model.Train(s.reading.Tokens(), s.spam, false, 20000)
			taught++
		} else if !s.spam {
			wanted = append(wanted, s.reading)
		}
		if model.Spam > model.Ham && len(wanted) > 0 {
			model.Train(wanted[len(wanted)-1].Tokens(), false, false, 20000)
			wanted = wanted[:len(wanted)-1]
		}
	}
	return model, seen
}

func tallyOf(samples []sample, model *classify.Model) *tally {
	c := &tally{}
	for _, s := range samples {
		c.add(s, s.reading.Score(model))
	}
	return c
}

// TestPublicCorpus measures messages of others: MAILSTEAD_CORPUS names a folder with folders of
// messages, one a file, those of junk named spam… and the others ham….
func TestPublicCorpus(t *testing.T) {
	top := os.Getenv("MAILSTEAD_CORPUS")
	if top == "" {
		t.Skip("MAILSTEAD_CORPUS names no folder")
	}
	var samples []sample
	for _, class := range []string{"ham", "spam"} {
		files, err := filepath.Glob(filepath.Join(top, class+"*", "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no messages in %s…: %v", top, class, err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(raw, []byte("\nFrom: ")) && !bytes.HasPrefix(raw, []byte("From")) {
				// The corpus has no headers; the same one for all speaks for nobody.
				raw = append([]byte(strings.Replace(header, "Subject: about the meeting next week\r\n", "", 1)), raw...)
			}
			samples = append(samples, sample{strings.TrimPrefix(file, top), class == "spam", read(t, raw, classify.Evidence{})})
		}
	}
	r := rand.New(rand.NewPCG(seed(t), 1))
	r.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
	before := tallyOf(samples, nil)
	model, seen := teach(samples)
	after := tallyOf(samples[seen:], model)
	t.Logf("the start set alone: %s", before)
	t.Logf("after corrections of %d junk and %d wanted mails: %s", model.Spam, model.Ham, after)
	if before.falsePositiveRate() > mostFalsePositives {
		t.Error("the start set alone takes too much wanted mail for junk")
	}
}

// TestHeldBackTemplates measures messages of templates that the start set was not made from. The
// full size is `make soak-classifier`.
func TestHeldBackTemplates(t *testing.T) {
	n := 3000
	if count, err := strconv.Atoi(os.Getenv("MAILSTEAD_CLASSIFIED")); err == nil {
		n = count
	}
	set := func(seed uint64) (samples []sample) {
		for m := range corpus.Messages(seed, true, n) {
			samples = append(samples, sample{fmt.Sprint(m.Kind, " ", m.Language, " ", m.Template), m.Spam, read(t, m.Raw, m.Evidence)})
		}
		return samples
	}
	samples := set(seed(t))
	model, _ := teach(set(seed(t) + 1))
	before, after := tallyOf(samples, nil), tallyOf(samples, model)
	t.Logf("the start set alone: %s", before)
	t.Logf("after corrections of %d junk and %d wanted mails: %s", model.Spam, model.Ham, after)
	if before.falsePositiveRate() > mostFalsePositives || after.falsePositiveRate() > mostFalsePositives {
		t.Error("too much wanted mail is taken for junk")
	}
	if before.recall() < 0.25 || after.recall() < 0.97 {
		t.Error("too little junk is found")
	}
}
