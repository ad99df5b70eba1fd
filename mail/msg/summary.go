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
	previewText  = 16 << 10  // bytes of plain text looked at for a preview
	previewHTML  = 256 << 10 // of HTML, which has its style sheets first
)

// Summary is what a message's row in a list shows and what rules decide by.
type Summary struct {
	MessageID             string // ids with their brackets
	InReplyTo             string
	References            []string
	From, To, Cc, ReplyTo []Address // without group markers
	ToCount, CcCount      int       // how many the fields name, also those past MaxAddresses
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
	s.ToCount, s.CcCount = len(s.To), len(s.Cc)
	if len(env.From)+len(env.Sender)+len(env.ReplyTo)+len(env.To)+len(env.Cc)+len(env.Bcc) >= MaxAddresses {
		s.ToCount, s.CcCount = countRecipients(header)
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

// countRecipients counts the addresses of To and Cc, of a field that is repeated those of the
// lowest.
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
	var name []byte
	for f := range fields(header) {
		name = appendLower(name[:0], f.name)
		value := func() string { return strings.ToLower(decodeText(f.value, "", 256)) }
		switch string(name) {
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
	if plain := p.plain(); plain != nil {
		text, _, err := readText(r, plain, previewText)
		text = foldText(text)
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
		text = foldText(text)
		if err != nil || text != "" {
			return text, err
		}
	}
	return "", nil
}

// foldText puts text on one line of at most previewRunes characters, without the
// invisible ones that newsletters pad their previews with.
func foldText(s string) string {
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

// ShownName gives the display name of an address as people are shown it: without characters that
// turn the reading direction or have no width, by which a name looks like another. Raw header
// fields keep them.
func ShownName[T string | []byte](name T) T {
	for i := range len(name) {
		if name[i] >= utf8.RuneSelf {
			return T(strings.TrimSpace(visible.WithoutInvisible(string(name))))
		}
	}
	return name
}

// isAbsence reports whether a subject is one that the large mail services and programs give to
// answers that they send for people who are away. Not all of them say so in the header.
func isAbsence(subject string) bool {
	s := strings.Join(strings.Fields(strings.ToLower(norm.NFKC.String(cut(subject, MaxText)))), " ")
	if absences[strings.TrimRight(s, " .!")] {
		return true
	}
	head, _, ok := strings.Cut(s, ":")
	return ok && absences[strings.TrimSpace(head)]
}

// absences are the words in front of the colon, or the whole subject.
var absences = wordSet(
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
	searchText = 64 << 10  // bytes of a message's text that it is found by
	searchHTML = 512 << 10 // of HTML that are read for it
	stubText   = 200       // characters; plain text that is shorter may only say that there is HTML
)

// SearchTexts returns the texts that a message is found by: those of HeadTexts, and what people
// read, without markup, at most 64 KiB of that.
func SearchTexts(r io.ReaderAt, root *Part) ([]string, error) {
	out, left := HeadTexts(root), searchText
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

// HeadTexts returns the texts that a message is found by without those that people read: the
// subject, each person with name and address, and the names of attachments.
func HeadTexts(root *Part) (out []string) {
	if e := root.Envelope; e != nil {
		out = append(out, e.Subject)
		for _, list := range [][]Address{e.From, e.Sender, e.ReplyTo, e.To, e.Cc, e.Bcc} {
			for _, a := range people(list) {
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

// pieceTexts returns the plain text, or that of the HTML, or both where the first says little.
func pieceTexts(r io.ReaderAt, p bodyPiece, limit int) (out []string, err error) {
	add := func(part *Part) error {
		most := limit
		if isHTML(part) {
			most = searchHTML
		}
		text, _, err := readText(r, part, int64(most))
		if err != nil {
			return fmt.Errorf("text of message: %w", err)
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
