package msg

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/visible"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestCorpus reads every message in testdata and compares all that is found with the
// golden file beside it.
func TestCorpus(t *testing.T) {
	names, err := filepath.Glob("testdata/*.eml")
	if err != nil || len(names) < 40 {
		t.Fatalf("corpus has %d messages, %v", len(names), err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".eml"), func(t *testing.T) {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := describe(t, raw)
			golden := strings.TrimSuffix(name, ".eml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// describe prints what every reader finds, and checks the rules that hold for all.
func describe(t *testing.T, raw []byte) string {
	t.Helper()
	root := scanBytes(t, raw)
	r := bytes.NewReader(raw)
	var out strings.Builder
	describePart(&out, root, "")
	s, err := Summarize(r, root)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&out, "summary: id=%s re=%s from=%v subject=%q auto=%v list=%v bounce=%v\npreview: %s\n",
		s.MessageID, s.InReplyTo, s.From, s.Subject, s.AutoReply, s.List, s.Bounce, s.Preview)
	for _, a := range s.Attachments {
		fmt.Fprintf(&out, "attachment %d: %q %s %d cid=%q\n", a.Index, a.Filename, a.ContentType, a.Size, a.ContentID)
	}
	body, err := ReadRawBody(r, root, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if body.HasText {
		fmt.Fprintf(&out, "text: %q\n", body.Text)
	}
	if body.HasHTML {
		fmt.Fprintf(&out, "html: %q\n", visible.SanitizeHTML(body.HTML))
	}
	if report, ok := ParseReport(r, root); ok {
		fmt.Fprintf(&out, "report: %s mta=%s original=%s\n", report.Kind, report.ReportingMTA, report.OriginalMessageID)
		for _, rcpt := range report.Recipients {
			fmt.Fprintf(&out, "  %+v\n", rcpt)
		}
	}
	return out.String()
}

func describePart(out *strings.Builder, p *Part, indent string) {
	fmt.Fprintf(out, "%s%s%s %s header=%d body=%d end=%d lines=%d decoded=%d\n", indent, p.MediaType(), describeParams(p.Params),
		p.Encoding, p.HeaderOffset, p.BodyOffset, p.End, p.Lines, p.DecodedSize)
	if p.Disposition != "" {
		fmt.Fprintf(out, "%s  disposition %s%s\n", indent, p.Disposition, describeParams(p.DispositionParams))
	}
	if p.ID+p.Description+p.Location+p.MD5 != "" || p.Language != nil {
		fmt.Fprintf(out, "%s  id=%s description=%q location=%s md5=%s language=%v\n", indent, p.ID, p.Description, p.Location, p.MD5, p.Language)
	}
	if e := p.Envelope; e != nil && !p.sharesEnvelope() {
		fmt.Fprintf(out, "%s  envelope %s (%q) %q id=%s re=%v refs=%v\n", indent, e.Date.UTC().Format("2006-01-02T15:04:05Z"), e.DateText, e.Subject, e.MessageID, e.InReplyTo, e.References)
		for i, list := range e.addressLists() {
			if *list != nil {
				fmt.Fprintf(out, "%s  %s %q\n", indent, []string{"from", "sender", "reply-to", "to", "cc", "bcc"}[i], *list)
			}
		}
	}
	for _, c := range p.Children {
		describePart(out, c, indent+"  ")
	}
}

func (p *Part) sharesEnvelope() bool {
	return p.IsMessage() && p.Children[0].Envelope == p.Envelope
}

func describeParams(params map[string]string) string {
	var names []string
	for name := range params {
		names = append(names, name)
	}
	slices.Sort(names)
	var out strings.Builder
	for _, name := range names {
		fmt.Fprintf(&out, ";%s=%q", name, params[name])
	}
	return out.String()
}

// scanBytes scans and checks what must hold for any message.
func scanBytes(t testing.TB, raw []byte) *Part {
	t.Helper()
	root, err := Scan(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if root.HeaderOffset != 0 || root.End != int64(len(raw)) || root.Envelope == nil {
		t.Fatalf("root spans %d to %d of %d", root.HeaderOffset, root.End, len(raw))
	}
	checkTree(t, root, 1)
	encoded := root.AppendBinary(nil)
	checkView(t, encoded)
	again, err := DecodePart(encoded)
	if err != nil {
		t.Fatalf("DecodePart of a scanned tree: %v", err)
	}
	if !bytes.Equal(again.AppendBinary(nil), encoded) {
		t.Fatal("a decoded tree encodes otherwise")
	}
	if !reflect.DeepEqual(dates(root), dates(again)) {
		t.Fatalf("decoded tree differs:\n%#v\n%#v", root, again)
	}
	return root
}

// dates sets every date to UTC, so that trees can be compared.
func dates(p *Part) *Part {
	if p.Envelope != nil && !p.Envelope.Date.IsZero() {
		p.Envelope.Date = p.Envelope.Date.UTC()
	}
	for _, c := range p.Children {
		dates(c)
	}
	return p
}

func checkTree(t testing.TB, p *Part, depth int) int {
	t.Helper()
	if p.HeaderOffset > p.BodyOffset || p.BodyOffset > p.End || p.Lines < 0 || p.DecodedSize < 0 || p.DecodedSize > p.Size() {
		t.Fatalf("part at odds with itself: %+v", p)
	}
	if depth > MaxDepth || !p.hasValidShape() {
		t.Fatalf("depth %d, %s with %d children", depth, p.MediaType(), len(p.Children))
	}
	n, last := 1, p.BodyOffset
	for _, c := range p.Children {
		if c.HeaderOffset < last || c.End > p.End {
			t.Fatalf("child [%d %d] outside [%d %d]", c.HeaderOffset, c.End, last, p.End)
		}
		last = c.End
		n += checkTree(t, c, depth+1)
	}
	if n > MaxParts {
		t.Fatalf("%d parts", n)
	}
	return n
}
