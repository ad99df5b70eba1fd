package msg

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/visible"
	"golang.org/x/text/unicode/norm"
)

const (
	previewRunes = 200
	previewText  = 16 << 10  // bytes of plain text that are read for a preview
	previewHTML  = 256 << 10 // bytes of HTML that are read for a preview; more than of plain text, since style sheets come first
)

// Summary holds what a message list shows about a message, and what rules test.
type Summary struct {
	MessageID             string // with its brackets, like InReplyTo and References
	InReplyTo             string
	References            []string
	From, To, Cc, ReplyTo []Address // without group markers
	ToCount, CcCount      int       // number of addresses in To and Cc, including those beyond MaxAddresses
	Subject               string
	Preview               string // at most 200 characters of the displayed text, in one line
	Date                  time.Time
	Attachments           []Attachment
	XFields               []Header // see xFields

	AutoReply bool // written by a machine (RFC 3834): send no automatic reply
	List      bool // from a mailing list or bulk mail (List-*, Precedence): send no automatic reply
	Bounce    bool // a report on the delivery of another message
}

// Summarize returns the summary of a message. It reads the header of the root and the beginning of
// the text.
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
		From: withoutGroupMarkers(env.From), To: withoutGroupMarkers(env.To), Cc: withoutGroupMarkers(env.Cc), ReplyTo: withoutGroupMarkers(env.ReplyTo),
		Attachments: Attachments(root), XFields: xFields(header),
	}
	if len(env.InReplyTo) > 0 {
		s.InReplyTo = env.InReplyTo[0]
	}
	s.ToCount, s.CcCount = len(s.To), len(s.Cc)
	if len(env.From)+len(env.Sender)+len(env.ReplyTo)+len(env.To)+len(env.Cc)+len(env.Bcc) >= MaxAddresses {
		s.ToCount, s.CcCount = countRecipients(header)
	}
	var marks automaticSigns
	marks.readHeader(header)
	s.List = marks.list
	s.Bounce = marks.isBounce(root, s)
	isReport := root.IsMultipart() && root.Subtype == "report"
	s.AutoReply = marks.auto || marks.precedence && !marks.list || marks.nullPath || s.Bounce || isReport || isAwaySubject(s.Subject)
	s.Preview, err = preview(r, root)
	return s, err
}

// Limits of Summary.XFields.
const (
	maxXFields = 100
	maxXField  = 1 << 10  // bytes of a name or value that are kept
	maxXBytes  = 16 << 10 // bytes of all names and values
)

// xFields returns the header fields whose names begin with X-, unfolded but not decoded.
func xFields(header []byte) (out []Header) {
	size := 0
	for f := range fields(header) {
		if len(f.name) < 3 || !bytes.EqualFold(f.name[:2], []byte("x-")) {
			continue
		}
		value := unfold(f.value)
		h := Header{Name: string(f.name[:min(len(f.name), maxXField)]), Value: string(value[:min(len(value), maxXField)])}
		size += len(h.Name) + len(h.Value)
		if len(out) == maxXFields || size > maxXBytes {
			break
		}
		out = append(out, h)
	}
	return out
}

// countRecipients counts the addresses in To and Cc. If a field is repeated, the last one counts.
func countRecipients(header []byte) (to, cc int) {
	for f := range fields(header) {
		switch {
		case bytes.EqualFold(f.name, []byte("to")):
			to = countAddresses(string(unfold(f.value)))
		case bytes.EqualFold(f.name, []byte("cc")):
			cc = countAddresses(string(unfold(f.value)))
		}
	}
	return to, cc
}

func withoutGroupMarkers(list []Address) []Address {
	out := make([]Address, 0, len(list))
	for _, a := range list {
		if !a.IsGroupMarker() {
			out = append(out, a)
		}
	}
	return out
}

// automaticSigns holds what the header says about automatic and list mail.
type automaticSigns struct {
	auto, precedence, list bool
	nullPath, failed       bool // Return-Path: <>; exim's X-Failed-Recipients
	generated              bool // Auto-Submitted: auto-generated, which is no answer to a message (RFC 3834, section 5)
}

// readHeader fills m from a raw header.
func (m *automaticSigns) readHeader(header []byte) {
	var name []byte
	for f := range fields(header) {
		name = appendLower(name[:0], f.name)
		value := func() string { return strings.ToLower(decodeText(f.value, "", 256)) }
		switch string(name) {
		case "auto-submitted":
			word := firstWord(strings.ReplaceAll(value(), ";", " "))
			m.auto = m.auto || word != "" && word != "no"
			m.generated = m.generated || strings.TrimSpace(value()) == "auto-generated"
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

// isBounce reports whether the message is a delivery report or was sent by a mail system.
func (m *automaticSigns) isBounce(root *Part, s *Summary) bool {
	if deliveryStatusPart(root) != nil || m.failed {
		return true
	}
	if len(s.From) == 0 || root.IsMultipart() && root.Subtype == "report" {
		return false
	}
	from := strings.ToLower(s.From[0].Mailbox)
	if from == "mailer-daemon" {
		return true
	}
	return from == "postmaster" && m.nullPath && !m.generated && !strings.HasPrefix(strings.ToLower(s.Subject), "auto")
}

// preview returns the beginning of the first text that is not blank.
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
	if plain := p.plainPart(); plain != nil {
		text, _, err := readText(r, plain, previewText)
		text = previewLine(text)
		if err != nil || text != "" {
			return text, err
		}
	}
	for i, part := range p.html {
		if i == 3 {
			break
		}
		text, _, err := readText(r, part, previewHTML)
		if isHTML(part) {
			text = visible.HTMLWords(text, 8*previewRunes)
		}
		text = previewLine(text)
		if err != nil || text != "" {
			return text, err
		}
	}
	return "", nil
}

// previewLine returns the text as one line of at most previewRunes characters. It drops invisible
// characters, since newsletters pad their texts with them.
func previewLine(s string) string {
	var out strings.Builder
	out.Grow(min(len(s), previewRunes))
	space, n := false, 0
	for _, c := range s {
		switch {
		case unicode.IsSpace(c) || visible.IsControl(c):
			space = true
			continue
		case visible.IsInvisible(c):
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

// ShownName returns a display name as it is shown to people: without invisible characters and those
// that reverse the reading direction, since these make one name look like another.
func ShownName[T string | []byte](name T) T {
	for i := range len(name) {
		if name[i] >= utf8.RuneSelf {
			return T(strings.TrimSpace(visible.WithoutInvisible(string(name))))
		}
	}
	return name
}

// isAwaySubject reports whether the subject is that of a vacation notice by a common mail service
// or program. Some of these do not mark the notice in the header.
func isAwaySubject(subject string) bool {
	s := strings.Join(strings.Fields(strings.ToLower(norm.NFKC.String(cut(subject, MaxText)))), " ")
	if awaySubjects[strings.TrimRight(s, " .!")] {
		return true
	}
	head, _, ok := strings.Cut(s, ":")
	return ok && awaySubjects[strings.TrimSpace(head)]
}

// awaySubjects are the subjects of vacation notices, in lower case. The subject of a notice may
// continue with a colon and more text.
var awaySubjects = wordSet(
	// Exchange, Outlook and Microsoft 365
	"automatic reply", "automatische antwort", "réponse automatique", "respuesta automática", "risposta automatica",
	"resposta automática", "automatisch antwoord", "automatiskt svar", "automatisk svar", "automatisk svar på", "automaattinen vastaus",
	"automatyczna odpowiedź", "odpowiedź automatyczna", "automatická odpověď", "automatická odpoveď", "automatikus válasz", "răspuns automat",
	"автоматический ответ", "автоматична відповідь", "αυτόματη απάντηση", "otomatik yanıt", "자동 회신", "自動応答", "自動回覆", "自动答复", "自动回复",
	"תשובה אוטומטית", "رد تلقائي", "out of office", "out of office autoreply", "out of office auto-reply", "out of the office",
	"abwesenheitsnotiz", "abwesend", "abwesenheit", "absence du bureau", "absent du bureau", "absence", "fuera de la oficina", "ausente de la oficina",
	"fuori sede", "fuori ufficio", "assente", "fora do escritório", "afwezig", "afwezigheidsbericht", "niet aanwezig", "frånvaro", "ikke til stede",
	"fravær", "poissa", "nieobecny", "poza biurem", "mimo kancelář", "нет на месте", "вне офиса", "ofis dışında", "不在", "不在通知", "외출 중", "부재중",
	// Gmail, Yahoo, Zoho, GroupWise, Notes, sieve and vacation(1)
	"auto", "autoreply", "auto-reply", "auto reply", "autoresponse", "auto-response", "auto response", "automated reply", "automated response",
	"automatic response", "autosvar", "auto-svar", "autoantwort", "auto-antwort", "auto-réponse", "autorespuesta", "away from my mail",
	"away from the office", "away from my email", "vacation", "vacation reply", "vacation message", "vacation response", "on vacation", "on holiday", "on leave",
	"annual leave", "maternity leave", "parental leave", "ooo", "urlaub", "im urlaub", "en vacances", "en congé", "de vacaciones", "in vacanza", "de férias",
)

func wordSet(words ...string) map[string]bool {
	set := make(map[string]bool, len(words))
	for _, w := range words {
		set[w] = true
	}
	return set
}

const (
	searchText = 64 << 10  // bytes of the displayed text that are indexed for search
	searchHTML = 512 << 10 // bytes of HTML that are read to get the displayed text
	stubText   = 200       // characters; a shorter plain text may only say that the message is in HTML
)

// SearchTexts returns the texts by which a message can be found: the texts of TextsOutsideBody, and
// at most 64 KiB of the displayed text without markup.
func SearchTexts(r io.ReaderAt, root *Part) ([]string, error) {
	out, left := TextsOutsideBody(root), searchText
	for _, piece := range bodyPieces(root) {
		texts, err := pieceTexts(r, piece, left)
		if err != nil {
			return nil, err
		}
		for _, text := range texts {
			left -= len(text)
			out = append(out, text)
		}
		if left <= 0 {
			break
		}
	}
	return out, nil
}

// TextsOutsideBody returns the searchable texts of a message that are not in its body: the subject,
// the names and addresses of all people, and the file names of attachments.
func TextsOutsideBody(root *Part) (out []string) {
	if e := root.Envelope; e != nil {
		out = append(out, e.Subject)
		for _, list := range [][]Address{e.From, e.Sender, e.ReplyTo, e.To, e.Cc, e.Bcc} {
			for _, a := range withoutGroupMarkers(list) {
				out = append(out, a.Name+" "+a.Email())
			}
		}
	}
	for _, a := range Attachments(root) {
		if a.Part.filename() != "" {
			out = append(out, a.Filename)
		}
	}
	return out
}

// pieceTexts returns the plain texts of a section, one for each part. If they have at most stubText
// characters together, the texts of the HTML follow.
func pieceTexts(r io.ReaderAt, p bodyPiece, limit int) (out []string, err error) {
	add := func(part *Part) error {
		most := limit
		if isHTML(part) {
			most = searchHTML
		}
		text, _, err := readText(r, part, int64(most))
		if err != nil {
			return fmt.Errorf("read text of message: %w", err)
		}
		if isHTML(part) {
			text = cut(visible.HTMLWords(text, limit), limit)
		}
		limit -= len(text)
		out = append(out, text)
		return nil
	}
	length := 0
	for _, part := range p.text {
		if limit <= 0 {
			return out, nil
		}
		if err := add(part); err != nil {
			return nil, err
		}
		length += utf8.RuneCountInString(out[len(out)-1])
	}
	if length > stubText {
		return out, nil
	}
	for _, part := range p.html {
		if limit <= 0 {
			break
		}
		if err := add(part); err != nil {
			return nil, err
		}
	}
	return out, nil
}
