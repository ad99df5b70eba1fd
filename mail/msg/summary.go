package msg

import (
	"io"
	"strings"
	"time"
	"unicode"
)

const (
	previewRunes = 200
	previewText  = 16 << 10  // bytes of plain text looked at for a preview
	previewHTML  = 256 << 10 // of HTML, which has its style sheets first
)

// Summary is what a message's row in a list shows and what rules decide by.
type Summary struct {
	MessageID             string // ids with their brackets
	InReplyTo             string
	References            []string
	From, To, Cc, ReplyTo []Address // without group markers
	Subject               string
	Preview               string // at most 200 characters of the text, white space folded
	Date                  time.Time
	Attachments           []Attachment

	AutoReply bool // a machine answered or wrote it (RFC 3834): never answer it automatically
	List      bool // it came through a mailing list or to many (List-*, Precedence): neither
	Bounce    bool // it reports on the delivery of another message
}

// Summarize reads the root's header and the beginning of the text.
func Summarize(r io.ReaderAt, root *Part) (*Summary, error) {
	header, err := RawHeader(r, root)
	if err != nil {
		return nil, err
	}
	env := root.Envelope
	if env == nil {
		env = &Envelope{}
	}
	s := &Summary{
		MessageID: env.MessageID, References: env.References, Subject: env.Subject, Date: env.Date,
		From: people(env.From), To: people(env.To), Cc: people(env.Cc), ReplyTo: people(env.ReplyTo),
		Attachments: Attachments(root),
	}
	if len(env.InReplyTo) > 0 {
		s.InReplyTo = env.InReplyTo[0]
	}
	var marks automation
	marks.read(header)
	s.List = marks.list
	s.Bounce = marks.isBounce(root, s)
	isReport := root.IsMultipart() && root.Subtype == "report"
	s.AutoReply = marks.auto || marks.precedence && !marks.list || marks.nullPath || s.Bounce || isReport || isAbsence(s.Subject)
	s.Preview, err = preview(r, root)
	return s, err
}

func people(list []Address) []Address {
	out := make([]Address, 0, len(list))
	for _, a := range list {
		if !a.IsGroupMarker() {
			out = append(out, a)
		}
	}
	return out
}

// automation is what the header says about whether a person wrote the message.
type automation struct {
	auto, precedence, list bool
	nullPath, failed       bool // Return-Path: <>; exim's X-Failed-Recipients
}

func (m *automation) read(header []byte) {
	for f := range fields(header) {
		name := strings.ToLower(string(f.name))
		value := func() string { return strings.ToLower(decodeText(f.value, 256)) }
		switch name {
		case "auto-submitted":
			word := firstWord(strings.ReplaceAll(value(), ";", " "))
			m.auto = m.auto || word != "" && word != "no"
		case "x-auto-response-suppress":
			v := value()
			m.auto = m.auto || v != "" && v != "none"
		case "x-autoreply", "x-autorespond", "x-autoresponder", "x-auto-reply", "x-auto-responder", "x-autoreply-from":
			v := value()
			m.auto = m.auto || v != "no" && v != "false"
		case "precedence", "x-precedence":
			v := value()
			m.precedence = m.precedence || v == "bulk" || v == "junk"
			m.auto = m.auto || v == "auto_reply"
			m.list = m.list || v == "list"
		case "list-id", "list-post", "list-unsubscribe", "list-help":
			m.list = true
		case "return-path":
			m.nullPath = m.nullPath || value() == "<>"
		case "x-failed-recipients":
			m.failed = true
		}
	}
}

func (m *automation) isBounce(root *Part, s *Summary) bool {
	if deliveryStatus(root) != nil || m.failed {
		return true
	}
	if len(s.From) == 0 || root.IsMultipart() && root.Subtype == "report" {
		return false
	}
	from := strings.ToLower(s.From[0].Mailbox)
	if from == "mailer-daemon" {
		return true
	}
	return from == "postmaster" && m.nullPath && !strings.HasPrefix(strings.ToLower(s.Subject), "auto")
}

// preview takes the beginning of the first text that has any words.
func preview(r io.ReaderAt, root *Part) (string, error) {
	for i, piece := range bodyPieces(root) {
		if i == 3 {
			break
		}
		text, err := previewOf(r, piece)
		if err != nil || text != "" {
			return text, err
		}
	}
	return "", nil
}

func previewOf(r io.ReaderAt, p bodyPiece) (string, error) {
	if p.text != nil {
		text, _, err := readText(r, p.text, previewText)
		if text = foldText(text); err != nil || text != "" {
			return text, err
		}
	}
	if p.html == nil {
		return "", nil
	}
	text, _, err := readText(r, p.html, previewHTML)
	return foldText(htmlWords(text, 8*previewRunes)), err
}

// foldText puts text on one line of at most previewRunes characters, without the
// invisible ones that newsletters pad their previews with.
func foldText(s string) string {
	var out strings.Builder
	space, n := false, 0
	for _, c := range s {
		switch {
		case unicode.IsSpace(c) || isControl(c):
			space = true
			continue
		case isInvisible(c):
			continue
		case space && n > 0:
			out.WriteByte(' ')
			n++
		}
		space = false
		if n >= previewRunes {
			break
		}
		out.WriteRune(c)
		n++
	}
	return strings.TrimSpace(out.String())
}

// isInvisible reports characters without width or that turn the reading direction.
func isInvisible(r rune) bool {
	switch {
	case r == 0xad, r == 0x34f, r == 0x61c, r == 0x180e, r == 0xfeff:
		return true
	case r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x206f:
		return true
	}
	return false
}
