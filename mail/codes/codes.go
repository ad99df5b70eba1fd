// Package codes finds what programs need from a message that lets somebody sign up or sign in: its
// one-time code and its links. It does not know who sent the message.
package codes

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/internal/lazyregexp"
	"github.com/mailstead/mailstead/mail/visible"
)

// Limits on the work for one message, in bytes and lines.
const (
	maxText  = 64 << 10
	maxLines = 2000
	maxLine  = 2000
	maxTries = 300 // candidates for the code that are examined
)

// SignInData holds the one-time code and the links that Find has found in a message.
type SignInData struct {
	Code  string // "" if there is no code, or if it is ambiguous
	Links []Link // at most MaxLinks, in order
}

// Find searches a message for a one-time code and for links. It takes the subject, the text and the
// HTML of the message; each may be empty.
func Find(subject, text, html string) SignInData {
	out := SignInData{Links: findLinks(text, html)}
	if text == "" {
		out.Code = Code(subject, visible.HTMLText(html))
		return out
	}
	out.Code = Code(subject, text)
	if out.Code == "" && html != "" { // the text may only say that the message is in HTML
		out.Code = Code(subject, visible.HTMLText(html))
	}
	return out
}

// Patterns. A code word says that a code is near. A phrase for another kind of code or number
// (otherCode, otherNumber) counts against a candidate near it.
var (
	linkOrEmail = lazyregexp.New(`(?i)(?:https?://|www\.|mailto:)\S+|[^\s@<>]+@[^\s@<>]+`)

	otherCode = lazyregexp.New(`(?i)(?:promo(?:tion(?:al)?)?|discount|coupon|gift|voucher|referral|invite|invitation|zip|post(?:al)?|error|area|country|dial(?:ling)?|bar|qr|source|reference|booking|` +
		`product|tracking|status|dress|swift|sort|tax|color|colour|exit|item)[ -]?codes?|codes? (?:promo(?:tionnel)?|postal|barres?|descuento|de (?:descuento|réduction|parrainage|suivi))|code-?barres?|` +
		`código (?:postal|promocional|de (?:descuento|desconto|barras|seguimiento|rastreio))|codice (?:fiscale|sconto|promozionale)|` +
		`(?:gutschein|rabatt|promo|aktions|fehler|länder|bar|strich|buchungs)-?codes?|kortings-?codes?|kod (?:rabatowy|pocztowy)|промокод|почтовый индекс|код (?:товара|ошибки)|` +
		`優惠碼|优惠码|邮编|郵便番号|クーポンコード|할인 ?코드|우편번호`)

	codeWord = lazyregexp.New(`(?i)\b(?:codes?|otp|2fa|mfa|tan|pin|one[- ]time pass(?:word|code)|passcode|verification (?:number|pin)|temporary password|` +
		`(?:bestätigungs|sicherheits|einmal|anmelde|verifizierungs|login|zugangs|aktivierungs|freischalt|prüf)-?(?:codes?|kennwort|passwort|pin|tan)|` +
		`código|codigo|clave|contraseña (?:temporal|de un solo uso)|codice|wachtwoordcode|(?:verificatie|beveiligings|inlog|bevestigings|toegangs)code|` +
		`kod|kodu|kodunuz|kodun|kód|koda|kode|kodi|vahvistuskoodi|koodi|(?:verifierings|engångs|bekræftelses|engangs|bekreftelses|sikkerheds)ko[dt](?:en?)?|koden|ellenőrzőkód|ma xac (?:minh|nhan)|kodas)\b` +
		`|\bmã |код(?:ом|а|у)?|пароль|κωδικ[όο]ς|κωδικό|(?:רמז|ال)?رمز|كود|קוד|รหัส|कोड|ओटीपी|কোড|验证码|驗證碼|校验码|动态码|认证码|確認コード|認証コード|認証番号|ワンタイムパスワード|コード|인증 ?번호|인증 ?코드|확인 ?코드|보안 ?코드`)

	otherNumber = lazyregexp.New(`(?i)(?:\b(?:order|invoice|receipt|ticket|case|case id|customer|account|member(?:ship)?|reference|ref|tracking|parcel|shipment|flight|serial|policy|contract|transaction|booking|` +
		`confirmation|reservation|vat|tax|iban|bic|card|version|phone|tel|telephone|mobile|fax|call|hotline|room|suite|apt|building|ending in|ends with|` +
		`bestell(?:ung)?|rechnung|kunden?|kundennummer|auftrag|vorgang|sendung|telefon|hrb|ust|commande|facture|client|téléphone|tél|pedido|factura|teléfono|cliente|ordine|fattura|telefono|bestelling|factuur|` +
		`zamówienie|faktura|numer|заказ|счет|телефон|encomenda|fatura|sipariş|ordernr|bestellnr|nr|no|num|number|numéro|número|numero|nummer|id)\b|` +
		`(?:bestell|rechnungs|kunden|auftrags|vorgangs|sendungs|ticket|order|faktura?|kund)-?(?:nummer|nr)|订单号?|訂單|注文番号|電話|电话|주문 ?번호|전화|№|#)(?: (?:is|ist|lautet|est|es|è|é))?[\s.:#№-]*$`)

	// Candidates for a code: groups of digits and capital letters with dashes between them
	// (candidate), or groups of digits of equal length with spaces between them (spaced).
	candidate    = lazyregexp.New(`[A-Z0-9]+(?:-[A-Z0-9]+)*`)
	spacedDigits = lazyregexp.New(`\d{2,4}(?: \d{2,4}){1,4}`)

	moneyBefore = lazyregexp.New(`(?i)(?:[$€£¥₹₽₩₺฿]|\b(?:usd|eur|gbp|chf|jpy|cny|inr|rub|pln|sek|nok|dkk|czk|huf|try|brl|aud|cad|rs|kr|r\$))\s*(?:[\d.,]*[.,])?$`)
	unitAfter   = lazyregexp.New(`(?i)^\s*(?:[%‰°$€£¥₹₽₩₺฿元円원]|(?:usd|eur|gbp|chf|euros?|dollars?|pounds?|zł|kč|kr|ft|pln|sek|nok|dkk|` +
		`min(?:s|utes?|uten?|utos?|uti|ut[ay]?)?|sec(?:s|onds?)?|sekunden?|segundos?|secondes?|hours?|hrs?|stunden?|heures?|horas?|ore|days?|tagen?|jours?|días?|dias|giorni|weeks?|months?|years?|` +
		`минут|часов|分钟?|小时|時間|秒|日|年|月|분|시간|` +
		`px|pt|kb|mb|gb|km|kg|mm|cm|ml|items?|points?|miles|users?|people|customers?|characters?|digits?|-digits?|stellig|x)(?:\W|$))`)
	partBefore = lazyregexp.New(`[\p{L}\d][.,:/_'’-]$|[+.,:/\\_=&]$|\d[ \x{a0}]$|\(\d+\)[ ]?$`)
	partAfter  = lazyregexp.New(`^[.,:/][\p{L}\d]|^[_/\\=]|^-[\p{L}\d]|^[ \x{a0}]\d|^\p{L}`)
	dateForm   = lazyregexp.New(`^(?:\d{4}-\d{1,2}-\d{1,2}|\d{1,2}-\d{1,2}-\d{2,4}|\d{1,2}-[A-Z]{3}-\d{2,4})$`)
	monthNear  = lazyregexp.New(`(?i)(?:jan|feb|mar|mär|apr|may|mai|maj|jun|jul|aug|sep|oct|okt|nov|dec|dez|ene|abr|ago|dic|gen|giu|lug|set|ott|fév|avr|août|déc|янв|фев|мар|апр|мая|июн|июл|авг|сен|окт|ноя|дек)[\p{L}]*[.,]?\s*(?:\d{1,2}(?:st|nd|rd|th)?,?\s*)?$`)
	copyright  = lazyregexp.New(`(?i)(?:©|\(c\)|copyright)\s*$`)
	afterWord  = lazyregexp.New(`^[\s"'“”„«»‘’*:：=>\]）)]*`)
)

// A line is one line of the message. words are the positions of the code words in it.
type line struct {
	text  string
	words [][]int
}

// Code returns the one-time code in a message, "" if there is none or if it is ambiguous. A code
// has 4 to 10 digits, or 5 to 10 capital letters and digits with at least one digit. There may be
// dashes between them, which do not count.
func Code(subject, text string) string {
	lines := readLines(subject, text)
	best, score, tie, tries := "", 0, false, 0
	plain := func(code string) string { return strings.ReplaceAll(code, "-", "") }
	for i, l := range lines {
		for _, span := range candidates(l.text) {
			if tries++; tries > maxTries {
				return "" // a message with a code does not have so many candidates
			}
			code := strings.ReplaceAll(l.text[span[0]:span[1]], " ", "")
			switch n := scoreCandidate(lines, i, span, code); {
			case n > score:
				best, score, tie = code, n, false
			case n > 0 && n == score && plain(code) != plain(best):
				tie = true
			}
		}
	}
	if tie {
		return ""
	}
	return best
}

// readLines splits a message into its non-empty lines and normalizes them. It replaces URLs and
// email addresses by a placeholder.
func readLines(subject, text string) (lines []line) {
	text = text[:min(len(text), maxText)]
	for raw := range strings.SplitSeq(subject+"\n"+text, "\n") {
		raw = strings.Map(func(r rune) rune {
			switch {
			case r == '\u00a0' || r == '\t' || r == '\u3000':
				return ' '
			case r == '\uff0c': // a full-width comma, after which there is no space
				return ';'
			case r == '\u2010' || r == '\u2011' || r == '\u2013' || r == '\uff0d':
				return '-'
			case unicode.Is(unicode.Cf, r) || unicode.IsControl(r):
				return -1
			}
			return r
		}, strings.ToValidUTF8(raw, ""))
		raw = strings.TrimSpace(norm.NFKC.String(raw))
		if raw == "" {
			continue
		}
		if len(lines) == maxLines {
			break
		}
		for len(raw) > maxLine && !utf8.RuneStart(raw[maxLine]) {
			raw = raw[:len(raw)-1]
		}
		raw = linkOrEmail().ReplaceAllString(raw[:min(len(raw), maxLine)], "\uffff")
		raw = otherCode().ReplaceAllString(raw, "number")
		lines = append(lines, line{raw, codeWord().FindAllStringIndex(raw, -1)})
	}
	return lines
}

// candidates returns the spans of a line that look like a code.
func candidates(text string) (spans [][]int) {
	for _, span := range spacedDigits().FindAllStringIndex(text, -1) {
		groups := strings.Fields(text[span[0]:span[1]])
		digits := len(groups) * len(groups[0])
		same := true
		for _, g := range groups {
			same = same && len(g) == len(groups[0])
		}
		if same && digits >= 4 && digits <= 10 && isWhole(text, span) {
			spans = append(spans, span)
		}
	}
	for _, span := range candidate().FindAllStringIndex(text, -1) {
		if isCode(text[span[0]:span[1]]) && isWhole(text, span) {
			spans = append(spans, span)
		}
	}
	return spans
}

// isCode reports whether a word looks like a code.
func isCode(word string) bool {
	letters, digits := 0, 0
	for i := range len(word) {
		switch c := word[i]; {
		case c >= '0' && c <= '9':
			digits++
		case c != '-':
			letters++
		}
	}
	if letters == 0 {
		return digits >= 4 && digits <= 10 && !dateForm().MatchString(word)
	}
	return digits >= 1 && letters+digits >= 5 && letters+digits <= 10 && !dateForm().MatchString(word)
}

// isWhole reports whether the span is not a part of something longer, such as a price, a phone
// number, a time or a file name.
func isWhole(text string, span []int) bool {
	before, after := text[:span[0]], text[span[1]:]
	if r, _ := utf8.DecodeLastRuneInString(before); unicode.IsDigit(r) || unicode.IsLetter(r) && r < 0x2e80 {
		return false
	}
	if r, _ := utf8.DecodeRuneInString(after); unicode.IsDigit(r) || unicode.IsLetter(r) && r < 0x2e80 {
		return false
	}
	tail := before[max(0, len(before)-24):]
	head := after[:min(24, len(after))]
	if after, ok := strings.CutPrefix(head, ". "); ok {
		head = " " + after // the end of a sentence
	}
	return !moneyBefore().MatchString(tail) && !unitAfter().MatchString(head) &&
		(!partBefore().MatchString(tail) || strings.HasSuffix(tail, ": ") || strings.HasSuffix(tail, ":") && !endsInDigit(tail[:len(tail)-1])) &&
		!partAfter().MatchString(head) && !copyright().MatchString(tail)
}

func endsInDigit(s string) bool { return s != "" && s[len(s)-1] >= '0' && s[len(s)-1] <= '9' }

// maxDistance is the maximum distance in bytes between a code and a code word in the same line.
const maxDistance = 60

// scoreCandidate returns the score of the candidate code, which is at the span in line i. 0 means
// that it is not a one-time code.
func scoreCandidate(lines []line, i int, span []int, code string) (score int) {
	l := lines[i]
	before, after := l.text[:span[0]], l.text[span[1]:]
	alone := strings.Trim(before+after, " \t*_\"'“”„«».:|[]()<>=-—") == ""
	digitsOnly := strings.Trim(code, "0123456789-") == ""

	// Code words in the same line.
	for _, w := range l.words {
		switch {
		case w[1] <= span[0] && span[0]-w[1] <= maxDistance:
			between := before[w[1]:]
			if strings.ContainsAny(strings.TrimRight(between, " "), ".!?。;；") && !strings.ContainsAny(between, ":：") {
				score = max(score, 2) // the code word is in another sentence
				continue
			}
			score = max(score, 6)
			if len(between)-len(afterWord().FindString(between)) <= 12 {
				score = max(score, 8)
			}
		case w[0] >= span[1] && w[0]-span[1] <= maxDistance:
			score = max(score, 6)
			if w[0]-span[1] <= 30 {
				score = max(score, 8)
			}
		}
	}
	if score > 0 || i == 0 || alone || strings.TrimSpace(before) == "" {
		for back := 1; back <= 3 && i-back >= 0; back++ {
			switch {
			case len(lines[i-back].words) == 0:
			case alone:
				score = max(score, 5) // if several lines are like this, their scores are equal and the code is ambiguous
			case strings.TrimSpace(before) == "" && back == 1:
				score = max(score, 4)
			}
		}
		if score == 0 && alone && i+1 < len(lines) && len(lines[i+1].words) > 0 {
			score = 4
		}
		if score > 0 && alone {
			score += 2
		}
	}
	if score == 0 {
		if !isAskedFor(lines, i, span, alone) {
			return 0
		}
		score = 1 // if several candidates are like this, their scores are equal and the code is ambiguous
	}

	// What counts against the candidate: a number of another kind, a date, a year.
	tail := before[max(0, len(before)-48):]
	if monthNear().MatchString(tail) {
		return 0
	}
	if at := otherNumber().FindStringIndex(tail); at != nil {
		begin := len(before) - len(tail) + at[0]
		of := func(w []int) bool { return w[0] <= begin && w[1] >= begin-1 } // as in "code no. 1234"
		if !slices.ContainsFunc(l.words, of) {
			return 0
		}
	}
	if digitsOnly && len(code) == 4 && (code[:2] == "19" || code[:2] == "20") && score < 8 {
		return 0
	}
	return score
}
