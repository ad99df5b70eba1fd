package corpus

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"html"
	"iter"
	"math/rand/v2"
	"mime"
	"mime/quotedprintable"
	"strings"

	"golang.org/x/text/encoding/charmap"

	"github.com/mailstead/mailstead/mail/classify"
)

// A Message is a message generated from a template.
type Message struct {
	Raw            []byte
	Spam           bool
	Kind, Language string
	Template       int // index of the template
	Evidence       classify.Evidence
}

// Messages yields n messages, alternately wanted mail and junk. Their values are random, but
// determined by seed. If forMeasuring is set, they are made from the templates for measuring,
// otherwise from the others.
func Messages(seed uint64, forMeasuring bool, n int) iter.Seq[Message] {
	return func(yield func(Message) bool) {
		r := rand.New(rand.NewPCG(seed, 13))
		var classes [2][]int
		all := templates()
		for i, t := range all {
			if t.forMeasuring == forMeasuring {
				class := 0
				if t.spam {
					class = 1
				}
				classes[class] = append(classes[class], i)
			}
		}
		for i := range n {
			number := pick(r, classes[i%2]...)
			m := makeMessage(r, all, all[number])
			m.Template = number
			if !yield(m) {
				return
			}
		}
	}
}

// A draft is a message before it is encoded in MIME.
type draft struct {
	*template
	subject, body    string
	from, address    string
	sender           string // a person, a service or a list
	header           []string
	messageID, reply string
}

func makeMessage(r *rand.Rand, all []*template, t *template) Message {
	values := map[string]string{}
	d := draft{template: t, subject: fillTemplate(r, t.subject, t.language, values), body: strings.TrimSpace(fillTemplate(r, t.body, t.language, values))}
	d.attachment = fillTemplate(r, t.attachment, t.language, values)
	m := Message{Spam: t.spam, Kind: t.kind, Language: t.language}
	if t.spam {
		makeSpamHeader(r, &d)
		m.Evidence = classify.Evidence{
			SPF:  weightedChoice(r, "pass:60 none:18 softfail:12 fail:7 neutral:2 permerror:1"),
			DKIM: weightedChoice(r, "pass:48 none:46 fail:6"), DMARC: weightedChoice(r, "pass:42 none:44 fail:14"),
			WrittenTo: r.IntN(1000) == 0,
		}
	} else {
		makeHamHeader(r, &d)
		m.Evidence = classify.Evidence{
			SPF:  weightedChoice(r, "pass:88 none:5 softfail:3 fail:1 neutral:2 temperror:1"),
			DKIM: weightedChoice(r, "pass:84 none:13 fail:3"), DMARC: weightedChoice(r, "pass:78 none:18 fail:4"),
		}
		m.Evidence.WrittenTo = m.Evidence.DMARC == "pass" && chance(r, map[string]int{"person": 50, "list": 5, "service": 3}[d.sender])
	}
	m.Raw = d.encodeMIME(r, all)
	return m
}

func makeHamHeader(r *rand.Rand, d *draft) {
	first, last := pick(r, firstNames...), pick(r, lastNames...)
	company := pick(r, companies...)
	domain := plainName(company) + "." + weightedChoice(r, "com:45 org:13 de:14 fr:8 es:6 net:5 it:3 nl:2 pl:2 io:1 info:1")
	switch d.kind {
	case "personal", "club":
		d.sender = "person"
		domain = pick(r, freeMail...)
	case "work", "university", "landlord":
		d.sender = "person"
	case "list":
		d.sender = "list"
		domain = pick(r, freeMail...)
	default:
		d.sender = "service"
	}
	d.from, d.address = first+" "+last, plainName(first)+"."+plainName(last)+"@"+domain
	switch {
	case d.sender == "service":
		d.from, d.address = company, pick(r, "no-reply", "info", "service", "news", "hello")+"@"+domain
		if chance(r, 40) {
			d.header = append(d.header, "Auto-Submitted: auto-generated")
		}
	case chance(r, 15):
		d.from = ""
	}
	if strings.Contains("newsletter social jobs survey", d.kind) {
		d.header = append(d.header, fmt.Sprintf("List-Unsubscribe: <https://%s/u/%x>", domain, r.Uint32()))
		if chance(r, 60) {
			d.header = append(d.header, "List-Unsubscribe-Post: List-Unsubscribe=One-Click", "Precedence: bulk")
		}
	}
	if d.sender == "list" {
		name := pick(r, listIDs...)
		d.header = append(d.header, "List-Id: <"+name+".lists.example.org>", "List-Post: <mailto:"+name+"@lists.example.org>", "Precedence: list")
	}
	if d.sender == "person" && chance(r, 60) {
		d.header = append(d.header, pick(r, "X-Mailer: Apple Mail (2.3774)", "User-Agent: Mozilla Thunderbird", "X-Mailer: Microsoft Outlook 16.0",
			"User-Agent: K-9 Mail for Android", "User-Agent: Mutt/2.2.9", "X-Mailer: iPhone Mail (21A5)"))
	}
	d.messageID = fmt.Sprintf("%x.%x@%s", r.Uint64(), r.Uint32(), domain)
	switch n := r.IntN(100); { // mail services that send for others, and old programs
	case n < 35:
		d.messageID = fmt.Sprintf("%x@%s", r.Uint64(), pick(r, "mail.gmail.com", "sendhub.example", "mailer.example.net", "localhost.localdomain", "outlook.com"))
	case n < 37:
		d.messageID = ""
	}
	if chance(r, 6) {
		d.address = strings.Replace(d.address, "@", fmt.Sprint(1000+r.IntN(9000), "@"), 1)
	}
	if chance(r, 8) {
		d.header = append(d.header, "Reply-To: "+plainName(pick(r, companies...))+"@"+pick(r, "tickets.example.net", "lists.example.org", "helpdesk.example"))
	}
	if chance(r, 4) {
		d.header = append(d.header, "X-Priority: "+pick(r, "1", "3"))
	}
	if answer := strings.HasPrefix(strings.ToLower(d.subject), "re:") || strings.HasPrefix(d.subject, "AW:"); answer || d.sender == "person" && chance(r, 20) {
		if !answer {
			d.subject = "Re: " + d.subject
		}
		if chance(r, 95) {
			d.reply = fmt.Sprintf("%x@mail.example.com", r.Uint64())
		}
	}
}

func makeSpamHeader(r *rand.Rand, d *draft) {
	first, last := pick(r, firstNames...), pick(r, lastNames...)
	domain := badHost(r)
	if strings.Contains("advance loans seo dating ceo invoice extortion", d.kind) && chance(r, 65) {
		domain = pick(r, freeMail...)
	}
	d.from = first + " " + last
	d.address = plainName(first) + pick(r, "", ".", "_") + plainName(last) + pick(r, "", fmt.Sprint(r.IntN(10000))) + "@" + domain
	switch {
	case d.kind == "phishing":
		d.from = pick(r, banks...) + pick(r, "", " Security", " Support", " Service")
		if chance(r, 10) {
			d.from = "security@" + strings.ToLower(pick(r, banks...)) + ".com"
		}
	case chance(r, 20):
		d.from = pick(r, "Best Offers", "Health News", "Customer Reward", "Daily Deal", "Admin", "Notification")
	case chance(r, 12):
		d.from = ""
	}
	if strings.Contains("advance lottery loans", d.kind) && chance(r, 60) {
		d.header = append(d.header, "Reply-To: "+plainName(first)+fmt.Sprint(r.IntN(1000))+"@"+pick(r, freeMail...))
	}
	if chance(r, 15) {
		d.header = append(d.header, "X-Priority: 1")
	}
	if chance(r, 25) {
		d.header = append(d.header, fmt.Sprintf("List-Unsubscribe: <http://%s/%x>", domain, r.Uint32()))
	}
	if chance(r, 30) {
		d.header = append(d.header, pick(r, "X-Mailer: Microsoft Outlook Express 6.00", "X-Mailer: PHPMailer 5.2", "X-Mailer: Microsoft Outlook 16.0", "X-Mailer: The Bat! (v3)"))
	}
	if chance(r, 90) {
		d.messageID = fmt.Sprintf("%x@%s", r.Uint64(), pick(r, domain, domain, badHost(r)))
	}
	if chance(r, 8) {
		d.subject = "Re: " + d.subject
	}
	if chance(r, 6) {
		d.subject = strings.ToUpper(d.subject)
	}
}

// plainName returns a name as it is used in addresses: in lower case, without accents.
func plainName(name string) string {
	return strings.NewReplacer("é", "e", "ü", "u", "ä", "a", "á", "a", "ó", "o", "ñ", "n", "ö", "o", "í", "i", "É", "e").Replace(strings.ToLower(name))
}

// encodeMIME encodes the message as a random common mail program would.
func (d *draft) encodeMIME(r *rand.Rand, all []*template) []byte {
	var b bytes.Buffer
	for n := range 1 + r.IntN(4) {
		fmt.Fprintf(&b, "Received: from %s.example.net (%d.%d.2.1) by mx%d.example.com with ESMTPS; Mon, 2 Nov 2026 10:%02d:00 +0000\r\n",
			pick(r, hosts...), r.IntN(200), r.IntN(200), n, r.IntN(60))
	}
	from := d.address
	if d.from != "" {
		from = mime.QEncoding.Encode("utf-8", d.from) + " <" + d.address + ">"
	}
	fmt.Fprintf(&b, "From: %s\r\n", from)
	if chance(r, 96) && (!d.spam || chance(r, 88)) {
		fmt.Fprintf(&b, "To: %s\r\n", pick(r, "me@example.com", "Me <me@example.com>", "me@example.com, you@example.org"))
	} else {
		b.WriteString(pick(r, "To: undisclosed-recipients:;\r\n", ""))
	}
	subject := mime.QEncoding.Encode("utf-8", d.subject)
	if chance(r, 25) {
		subject = mime.BEncoding.Encode("utf-8", d.subject)
	}
	fmt.Fprintf(&b, "Subject: %s\r\n", subject)
	if chance(r, 99) && (!d.spam || chance(r, 96)) {
		fmt.Fprintf(&b, "Date: Mon, %d Nov 2026 %02d:%02d:00 +0100\r\n", 1+r.IntN(28), r.IntN(24), r.IntN(60))
	}
	if d.messageID != "" {
		fmt.Fprintf(&b, "Message-ID: <%s>\r\n", d.messageID)
	}
	if d.reply != "" {
		fmt.Fprintf(&b, "In-Reply-To: <%s>\r\nReferences: <%s>\r\n", d.reply, d.reply)
	}
	for _, line := range d.header {
		b.WriteString(line + "\r\n")
	}
	b.WriteString("MIME-Version: 1.0\r\n")

	// Choose the forms of the text.
	forms := "plain:75 both:22 html:3"
	switch {
	case d.spam:
		forms = "plain:40 both:28 html:32"
	case d.sender == "service":
		forms = "plain:25 both:55 html:20"
	case d.sender == "list":
		forms = "plain:97 both:3"
	}
	form := weightedChoice(r, forms)
	charset := "utf-8"
	if chance(r, 30) {
		charset = map[string]string{"pl": "iso-8859-2"}[d.language]
		if charset == "" {
			charset = pick(r, "iso-8859-1", "windows-1252")
		}
	}
	plainPart := part{"text/plain", charset, d.body}
	htmlPart := part{"text/html", charset, d.htmlText(r, all)}
	attach := d.attachment != "" || !d.spam && strings.Contains(d.body, "ttach") && chance(r, 80)
	if attach {
		b.WriteString("Content-Type: multipart/mixed; boundary=outer\r\n\r\n--outer\r\n")
	}
	switch form {
	case "plain":
		plainPart.write(r, &b)
	case "html":
		htmlPart.write(r, &b)
	default:
		b.WriteString("Content-Type: multipart/alternative; boundary=inner\r\n\r\n--inner\r\n")
		plainPart.write(r, &b)
		b.WriteString("\r\n--inner\r\n")
		htmlPart.write(r, &b)
		b.WriteString("\r\n--inner--\r\n")
	}
	if attach {
		name := d.attachment
		if name == "" {
			name = pick(r, "document.pdf", "report.docx", "photo.jpg", "table.xlsx", "invoice.pdf", "fix.patch")
		}
		content := make([]byte, 200)
		for i := range content {
			content[i] = byte(r.Uint32())
		}
		fmt.Fprintf(&b, "\r\n--outer\r\nContent-Type: application/octet-stream; name=%q\r\nContent-Disposition: attachment; filename=%q\r\nContent-Transfer-Encoding: base64\r\n\r\n%s\r\n--outer--\r\n",
			name, name, base64.StdEncoding.EncodeToString(content))
	}
	return b.Bytes()
}

type part struct{ mediaType, charset, text string }

func (p part) write(r *rand.Rand, b *bytes.Buffer) {
	text := strings.ReplaceAll(p.text, "\n", "\r\n")
	if single := map[string]*charmap.Charmap{"iso-8859-1": charmap.ISO8859_1, "windows-1252": charmap.Windows1252, "iso-8859-2": charmap.ISO8859_2}[p.charset]; single != nil {
		if coded, err := single.NewEncoder().String(text); err == nil {
			text = coded
		} else {
			p.charset = "utf-8"
		}
	}
	ascii := strings.IndexFunc(text, func(r rune) bool { return r > 0x7e }) < 0
	if ascii && p.charset != "utf-8" {
		p.charset = "us-ascii"
	}
	encoding := weightedChoice(r, "quoted-printable:60 8bit:20 base64:20")
	if ascii {
		encoding = weightedChoice(r, "7bit:50 quoted-printable:35 base64:15")
	}
	fmt.Fprintf(b, "Content-Type: %s; charset=%s\r\nContent-Transfer-Encoding: %s\r\n\r\n", p.mediaType, p.charset, encoding)
	switch encoding {
	case "quoted-printable":
		w := quotedprintable.NewWriter(b)
		_, _ = w.Write([]byte(text)) // writing to a buffer does not fail
		_ = w.Close()
	case "base64":
		for coded := base64.StdEncoding.EncodeToString([]byte(text)); coded != ""; {
			n := min(len(coded), 76)
			b.WriteString(coded[:n] + "\r\n")
			coded = coded[n:]
		}
	default:
		b.WriteString(text)
	}
	b.WriteString("\r\n")
}

// htmlText returns the text with markup as people, services or spammers write it, including the
// tricks of spammers.
func (d *draft) htmlText(r *rand.Rand, all []*template) string {
	var b strings.Builder
	hide := d.spam && chance(r, 15)
	for word := range strings.FieldsSeq(d.body) {
		if strings.HasPrefix(word, "http") {
			label := pick(r, word, "here", "website")
			fmt.Fprintf(&b, `<a href="%s" style="color:#06c">%s</a> `, html.EscapeString(strings.TrimRight(word, ".,:")), html.EscapeString(label))
			continue
		}
		coded := html.EscapeString(word)
		if hide && len(word) > 5 && word[2] < 0x80 && word[3] < 0x80 && !strings.ContainsAny(coded, "&;") && chance(r, 40) {
			coded = word[:3] + pick(r, "<!-- x -->", "&#8203;", "<span></span>", "&zwnj;") + word[3:]
		}
		b.WriteString(coded + " ")
	}
	text := b.String()
	switch {
	case d.sender == "person" || d.sender == "list":
		return "<html><body><div dir=\"ltr\">" + text + "</div></body></html>"
	case d.spam:
		if chance(r, 20) { // hidden words that are typical of wanted mail
			ham := all[r.IntN(len(all)/3)]
			text += `<div style="display:none">` + html.EscapeString(ham.body) + "</div>"
		}
		if chance(r, 30) {
			text = "<center><font size=5 color=red><b>" + text + "</b></font></center>"
		}
		if chance(r, 20) {
			text += fmt.Sprintf(`<img src="http://%s/o.gif" width=1 height=1>`, badHost(r))
		}
		return "<html><body>" + text + "</body></html>"
	}
	return "<!DOCTYPE html><html><head><style>td { font-family: sans-serif } @media screen { .w { width: 600px } }</style></head><body><table width=\"600\"><tr><td>" +
		text + fmt.Sprintf(`</td></tr></table><img src="https://%s/logo.png" alt="Logo"></body></html>`, d.address[strings.IndexByte(d.address, '@')+1:])
}
