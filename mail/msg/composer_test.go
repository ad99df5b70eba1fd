package msg

import (
	"bytes"
	"errors"
	"io"
	"net/mail"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/mail/charset"
	"github.com/mailstead/mailstead/mail/visible"
)

var draftDate = time.Date(2026, 11, 20, 21, 0, 0, 0, time.FixedZone("", 3600))

func write(t testing.TB, m io.WriterTo) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := m.WriteTo(&b)
	if err != nil {
		t.Fatal(err)
	}
	if n != int64(b.Len()) {
		t.Fatalf("WriteTo says %d, wrote %d", n, b.Len())
	}
	checkWire(t, b.Bytes())
	return b.Bytes()
}

// checkWire checks line ends, the length of lines, and that the header is folded.
func checkWire(t testing.TB, raw []byte) {
	t.Helper()
	header := true
	for line := range bytes.SplitAfterSeq(raw, []byte("\n")) {
		if len(line) == 0 {
			break
		}
		text, ok := bytes.CutSuffix(line, []byte("\r\n"))
		if !ok || bytes.ContainsAny(text, "\r\n\x00") {
			t.Fatalf("line end of %q", line)
		}
		if len(text) > maxLine || header && len(text) > foldAt && len(bytes.Fields(text)) > 2 {
			t.Errorf("line of %d: %q", len(text), text)
		}
		header = header && len(text) > 0
	}
}

func fullDraft() *Composer {
	return &Composer{
		From:       Address{Name: "Jörg Müller, Köln", Mailbox: "joerg", Host: "example.org"},
		To:         []Address{{Name: "Doe, \"John\"", Mailbox: "john", Host: "example.net"}, {Mailbox: "odd name", Host: "example.net"}},
		Cc:         []Address{{Name: strings.Repeat("长", 60), Mailbox: "x", Host: "example.net"}},
		ReplyTo:    []Address{{Mailbox: "r", Host: "example.org"}},
		Subject:    strings.Repeat("Grüße aus Köln, sehr lang – ", 8) + "Ende",
		Text:       "Grüße\n.\nFrom here\nbare\rcr and a long line " + strings.Repeat("word ", 60) + "\n",
		HTML:       `<p>Grüße <img src="cid:logo"></p>`,
		InReplyTo:  "<a@x.example>",
		References: []string{"<r@x.example>", "a@x.example"},
		Headers:    []Header{{"X-Thing", "value"}, {"List-Unsubscribe", "<https://x.example/" + strings.Repeat("u", 90) + ">, <mailto:u@x.example>"}, {"X-Umlaut", "ä"}},
		Attachments: []AttachedFile{
			{Filename: "logo.png", ContentType: "image/png", ContentID: "logo", Content: []byte("png")},
			{Filename: "Übersicht über sehr viele Dinge mit einem langen Namen 2026.pdf", ContentType: "application/pdf", Content: bytes.Repeat([]byte{0, 1, 2, 255}, 5000)},
			{Filename: `a "b".txt`, ContentType: "text/plain; charset=utf-8", Content: []byte("bare\nlf")},
			{Filename: "m.eml", ContentType: "message/rfc822", Content: []byte("Subject: x\n\ny")},
		},
		MessageID: "<id@example.org>",
		Date:      draftDate,
	}
}

// TestDraftRoundTrip composes everything at once and reads it back.
func TestDraftRoundTrip(t *testing.T) {
	d := fullDraft()
	raw := write(t, d)
	if !charset.IsASCII(string(raw)) {
		t.Error("message is not ASCII")
	}
	root := scanBytes(t, raw)
	s, err := Summarize(bytes.NewReader(raw), root)
	if err != nil {
		t.Fatal(err)
	}
	if s.Subject != d.Subject || !s.Date.Equal(d.Date) || s.MessageID != d.MessageID || s.InReplyTo != "<a@x.example>" {
		t.Errorf("summary %+v", s)
	}
	if !slices.Equal(s.References, []string{"<r@x.example>", "<a@x.example>"}) {
		t.Errorf("references %v", s.References)
	}
	if !slices.Equal(s.From, []Address{d.From}) || !slices.Equal(s.To, d.To) || !slices.Equal(s.Cc, d.Cc) || !slices.Equal(s.ReplyTo, d.ReplyTo) {
		t.Errorf("addresses %v %v %v %v", s.From, s.To, s.Cc, s.ReplyTo)
	}
	body, err := ReadRawBody(bytes.NewReader(raw), root, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.ReplaceAll(d.Text, "\r", "\n"); body.Text != want {
		t.Errorf("text %q, want %q", body.Text, want)
	}
	if html := visible.SanitizeHTML(body.HTML); html != d.HTML {
		t.Errorf("html %q", html)
	}
	checkAttachments(t, d, raw, s.Attachments)
	if m, err := mail.ReadMessage(bytes.NewReader(raw)); err != nil {
		t.Error(err)
	} else if list, err := m.Header.AddressList("To"); err != nil || list[0].Name != d.To[0].Name || list[1].Address != "odd name@example.net" {
		t.Errorf("net/mail reads To as %v, %v", list, err)
	}
}

func checkAttachments(t *testing.T, d *Composer, raw []byte, got []Attachment) {
	t.Helper()
	if len(got) != len(d.Attachments) {
		t.Fatalf("%d attachments", len(got))
	}
	for i, a := range got {
		want := d.Attachments[i]
		content, err := io.ReadAll(Open(bytes.NewReader(raw), a.Part))
		if err != nil || !bytes.Equal(content, want.Content) || a.Size != int64(len(want.Content)) {
			t.Errorf("attachment %d: %d bytes, size %d, %v", i, len(content), a.Size, err)
		}
		if a.Part.filename() != want.Filename || a.ContentID != want.ContentID {
			t.Errorf("attachment %d: %q, %q", i, a.Part.filename(), a.ContentID)
		}
	}
}

// TestDraftShapes checks the structure that each combination of parts gets.
func TestDraftShapes(t *testing.T) {
	file := AttachedFile{Filename: "f", Content: []byte("f")}
	inline := AttachedFile{Filename: "i", ContentType: "image/png", ContentID: "i", Content: []byte("i")}
	for _, tc := range []struct {
		text, html string
		files      []AttachedFile
		want       string
	}{
		{"", "", nil, "text/plain"},
		{"t", "", nil, "text/plain"},
		{"", "h", nil, "text/html"},
		{"t", "h", nil, "multipart/alternative(text/plain text/html)"},
		{"t", "", []AttachedFile{file}, "multipart/mixed(text/plain application/octet-stream)"},
		{"", "h", []AttachedFile{inline}, "multipart/related(text/html image/png)"},
		{"t", "h", []AttachedFile{inline, file}, "multipart/mixed(multipart/alternative(text/plain multipart/related(text/html image/png)) application/octet-stream)"},
		{"t", "", []AttachedFile{inline}, "multipart/mixed(text/plain image/png)"},
	} {
		d := &Composer{From: Address{Mailbox: "a", Host: "x.example"}, Text: tc.text, HTML: tc.html, Attachments: tc.files, MessageID: "<1@x>", Date: draftDate}
		if got := shape(scanBytes(t, write(t, d))); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

func shape(p *Part) string {
	if len(p.Children) == 0 {
		return p.MediaType()
	}
	var inner []string
	for _, c := range p.Children {
		inner = append(inner, shape(c))
	}
	return p.MediaType() + "(" + strings.Join(inner, " ") + ")"
}

// TestDraftRefusesInjection tries to break out of every field.
func TestDraftRefusesInjection(t *testing.T) {
	for name, spoil := range map[string]func(d *Composer){
		"subject":          func(d *Composer) { d.Subject = "a\r\nBcc: evil@x.example" },
		"subject lf":       func(d *Composer) { d.Subject = "a\nb" },
		"subject nel":      func(d *Composer) { d.Subject = "a\u0085b" },
		"subject utf8":     func(d *Composer) { d.Subject = "a\xff" },
		"from name":        func(d *Composer) { d.From.Name = "a\r\nb" },
		"from mailbox":     func(d *Composer) { d.From.Mailbox = "a\r\nb" },
		"from empty":       func(d *Composer) { d.From = Address{} },
		"to host":          func(d *Composer) { d.To = []Address{{Mailbox: "a", Host: "x.example>\r\nBcc: b"}} },
		"to without host":  func(d *Composer) { d.To = []Address{{Mailbox: "a", Host: MissingHost}} },
		"message id":       func(d *Composer) { d.MessageID = "<a\r\nb>" },
		"no message id":    func(d *Composer) { d.MessageID = "" },
		"no date":          func(d *Composer) { d.Date = time.Time{} },
		"in-reply-to":      func(d *Composer) { d.InReplyTo = "<a>\r\nBcc: <b>" },
		"references":       func(d *Composer) { d.References = []string{"<a> <b"} },
		"header name":      func(d *Composer) { d.Headers = []Header{{"X: y\r\nBcc", "b"}} },
		"header no name":   func(d *Composer) { d.Headers = []Header{{"", "b"}} },
		"header space":     func(d *Composer) { d.Headers = []Header{{"X ", "b"}} },
		"header value":     func(d *Composer) { d.Headers = []Header{{"X", "a\r\n\r\nbody"}} },
		"header bcc":       func(d *Composer) { d.Headers = []Header{{"bCC", "b@x.example"}} },
		"header mime":      func(d *Composer) { d.Headers = []Header{{"Content-Type", "text/html"}} },
		"header long word": func(d *Composer) { d.Headers = []Header{{"X", strings.Repeat("x", 1000)}} },
		"filename":         func(d *Composer) { d.Attachments = []AttachedFile{{Filename: "a\r\nb"}} },
		"media type":       func(d *Composer) { d.Attachments = []AttachedFile{{ContentType: "text/plain\r\nX: y"}} },
		"multipart type":   func(d *Composer) { d.Attachments = []AttachedFile{{ContentType: "multipart/mixed; boundary=x"}} },
		"content id":       func(d *Composer) { d.Attachments = []AttachedFile{{ContentID: "a> <b"}} },
	} {
		t.Run(name, func(t *testing.T) {
			d := &Composer{From: Address{Mailbox: "a", Host: "x.example"}, MessageID: "<1@x>", Date: draftDate}
			spoil(d)
			var b bytes.Buffer
			n, err := d.WriteTo(&b)
			if !errors.Is(err, ErrHeader) && !errors.Is(err, ErrAddress) {
				t.Errorf("error %v", err)
			}
			if n != 0 || b.Len() != 0 {
				t.Errorf("wrote %q", b.Bytes())
			}
		})
	}
}

func TestDraftWriteError(t *testing.T) {
	want := errors.New("full")
	if _, err := fullDraft().WriteTo(failingWriter{want}); !errors.Is(err, want) {
		t.Errorf("error %v", err)
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

func TestNewMessageID(t *testing.T) {
	a, b := NewMessageID("x.example"), NewMessageID("x.example")
	if a == b || !strings.HasSuffix(a, "@x.example>") || len(messageIDs([]byte(a))) != 1 {
		t.Errorf("%s %s", a, b)
	}
}

// TestDSNRoundTrip composes a notification and reads it as any other server's.
func TestDSNRoundTrip(t *testing.T) {
	until := time.Date(2026, 11, 25, 21, 0, 0, 0, time.UTC)
	d := &DSN{
		ReportingMTA: "mx.example.org", From: Address{Name: "Mail Delivery System", Mailbox: "mailer-daemon", Host: "example.org"},
		To: "ann@example.org", OriginalEnvelopeID: "QQ314159", MessageID: "<dsn@example.org>", Date: draftDate, ArrivalDate: draftDate,
		Recipients: []DSNRecipient{
			{Final: "nobody@example.com", Original: "rfc822;no+2Bbody@example.com", Action: ActionFailed, Status: "5.1.1", Diagnostic: "550 5.1.1 no\r\nsuch üser " + strings.Repeat("really ", 30), RemoteMTA: "mx.example.com"},
			{Final: "jøran@example.com", Action: ActionDelayed, Status: "4.4.1", WillRetryUntil: until},
		},
		Original: strings.NewReader("From: ann@example.org\nSubject: Grüße\nMessage-ID: <orig@example.org>\n\nsecret body"),
	}
	raw := write(t, d)
	root := scanBytes(t, raw)
	if got := shape(root); got != "multipart/report(text/plain message/delivery-status text/rfc822-headers)" {
		t.Errorf("shape %s", got)
	}
	if bytes.Contains(raw, []byte("secret")) || !charset.IsASCII(string(raw)) {
		t.Error("body returned, or not ASCII")
	}
	report, ok := ParseReport(bytes.NewReader(raw), root)
	if !ok || len(report.Recipients) != 2 {
		t.Fatalf("report %+v, %v", report, ok)
	}
	if report.ReportingMTA != "mx.example.org" || report.OriginalEnvelopeID != "QQ314159" || report.OriginalMessageID != "<orig@example.org>" || !report.ArrivalDate.Equal(draftDate) {
		t.Errorf("report %+v", report)
	}
	first, second := report.Recipients[0], report.Recipients[1]
	if first.Final != "nobody@example.com" || first.Action != ActionFailed || first.Status != "5.1.1" || first.RemoteMTA != "mx.example.com" ||
		!strings.HasPrefix(first.Diagnostic, "550 5.1.1 no such ?ser really") {
		t.Errorf("first %+v", first)
	}
	if second.Final != "jøran@example.com" || second.Action != ActionDelayed || !second.WillRetryUntil.Equal(until) {
		t.Errorf("second %+v", second)
	}
	s, err := Summarize(bytes.NewReader(raw), root)
	if err != nil || !s.Bounce || !s.AutoReply {
		t.Errorf("summary %+v, %v", s, err)
	}
}

func TestDSNRefusals(t *testing.T) {
	for name, spoil := range map[string]func(d *DSN){
		"action":   func(d *DSN) { d.Recipients[0].Action = "expanded" },
		"status":   func(d *DSN) { d.Recipients[0].Status = "no" },
		"to":       func(d *DSN) { d.To = "" },
		"mta":      func(d *DSN) { d.ReportingMTA = "a\r\nb" },
		"original": func(d *DSN) { d.Recipients[0].Original = "rfc822;a\r\n\r\nb" },
	} {
		d := &DSN{ReportingMTA: "mx", From: Address{Mailbox: "d", Host: "x.example"}, To: "a@x.example", MessageID: "<1@x>", Date: draftDate,
			Recipients: []DSNRecipient{{Final: "b@x.example", Action: ActionFailed, Status: "5.0.0"}}}
		write(t, d)
		spoil(d)
		if _, err := d.WriteTo(io.Discard); !errors.Is(err, ErrHeader) && !errors.Is(err, ErrAddress) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestQuotedNamesAreNotFolded: Python's older reader keeps the line end in the name.
func TestQuotedNamesAreNotFolded(t *testing.T) {
	const name = "Quarterly report, (final) version 2 of 3; see  notes.pdf"
	b, err := appendField(nil, "Content-Disposition", "attachment"+encodeParam("filename", name)+"; size=3")
	if want := "Content-Disposition: attachment;\r\n filename=\"" + name + "\"; size=3\r\n"; err != nil || string(b) != want {
		t.Errorf("%q, want %q, %v", b, want, err)
	}
	if got := encodeParam("filename", " a.pdf"); got != "; filename*=utf-8''%20a.pdf" {
		t.Errorf("an outer blank is written %s", got)
	}
}

// TestFileNamesAreQuoted: where RFC 2231 gives a character of a token a meaning, and where an
// encoded word could be read.
func TestFileNamesAreQuoted(t *testing.T) {
	for name, want := range map[string]string{
		"plain.pdf":        "; filename=plain.pdf",
		"a'b.pdf":          `; filename="a'b.pdf"`,
		"Invoice*1.pdf":    `; filename="Invoice*1.pdf"`,
		"100%25.pdf":       `; filename="100%25.pdf"`,
		"a b;c=\"d\\e.pdf": `; filename="a b;c=\"d\\e.pdf"`,
		"=?utf-8?q?x?=":    "; filename*=utf-8''%3D%3Futf-8%3Fq%3Fx%3F%3D",
		"a  b.pdf":         `; filename="a  b.pdf"`,
		"ü'*.pdf":          "; filename*=utf-8''%C3%BC%27%2A.pdf",
	} {
		got := encodeParam("filename", name)
		if got != want {
			t.Errorf("%q is written %s, want %s", name, got, want)
		}
		if _, params := parseParams([]byte("attachment"+got), ""); params["filename"] != name {
			t.Errorf("%q is read as %q", name, params["filename"])
		}
	}
}
