package codes

import (
	"net/url"
	"path"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/publicsuffix"

	"github.com/mailstead/mailstead/internal/lazyregexp"
	"github.com/mailstead/mailstead/mail/idn"
)

// MaxLinks is the maximum number of links that are returned for a message.
const MaxLinks = 20

const (
	maxURL      = 4096
	maxLinkText = 200
)

// A Link is a web link in a message. Host is in lower-case A-labels. Text is the text that the link
// shows.
type Link struct {
	URL, Host, Text string
}

var (
	webAddress       = lazyregexp.New(`(?i)https?://[^\s<>"{}|\\^` + "`" + `]+`)
	unsubscribeWords = lazyregexp.New(`(?i)unsubscri|opt[-_ ]?out|list-manage|email[-_ ]?preferences|abbestell|abmelden|austragen|désabonn|desabonn|désinscri|desinscri|darse de baja|cancelar (?:la )?su[bs]cripci|` +
		`cancelar inscri|descadastr|disiscri|annulla l['’]iscrizione|afmelden|uitschrijven|wypisz|anulować subskrypcj|отписат|отказаться от рассылки|退订|取消订阅|配信停止|購読解除|수신 ?거부|구독 ?취소|avregistrera|avmeld|afmeld|abonelikten|إلغاء الاشتراك`)
)

// findLinks returns the web links in a message in order, each once, those of the text before those
// of the HTML. It leaves out links to images and links for unsubscribing.
func findLinks(text, markup string) (out []Link) {
	at := map[string]int{} // index in out by URL; -1 for a link that is left out
	add := func(raw, shown string) {
		u, err := url.Parse(strings.TrimSpace(raw))
		if err != nil || len(raw) > maxURL || u.Opaque != "" {
			return
		}
		scheme := strings.ToLower(u.Scheme)
		host, ok := idn.Host(strings.TrimSuffix(u.Hostname(), "."))
		if !ok && u.Hostname() != "" { // the host is an IP address
			host, ok = strings.ToLower(u.Hostname()), true
		}
		if !ok || scheme != "http" && scheme != "https" {
			return
		}
		shown = strings.Join(strings.Fields(strings.ToValidUTF8(shown, "")), " ")
		if runes := []rune(shown); len(runes) > maxLinkText {
			shown = string(runes[:maxLinkText])
		}
		key := u.String()
		i, known := at[key]
		left := isImage(u.Path) || unsubscribeWords().MatchString(shown) || unsubscribeWords().MatchString(u.Path+"?"+u.RawQuery)
		switch {
		case left && known && i >= 0: // the link came from the text; only its text in the HTML says that it is for unsubscribing
			out = append(out[:i], out[i+1:]...)
			for k, n := range at {
				if n > i {
					at[k] = n - 1
				}
			}
			at[key] = -1
		case left:
			at[key] = -1
		case known && i >= 0 && out[i].Text == out[i].URL && shown != "":
			out[i].Text = shown
		case !known && len(out) < MaxLinks:
			at[key] = len(out)
			out = append(out, Link{key, host, shown})
		}
	}

	text = text[:min(len(text), 4*maxText)]
	for _, span := range webAddress().FindAllStringIndex(text, 4*MaxLinks) {
		raw := strings.TrimRight(text[span[0]:span[1]], ".,;:!?'*_>”’»…")
		for strings.HasSuffix(raw, ")") && strings.Count(raw, "(") < strings.Count(raw, ")") || strings.HasSuffix(raw, "]") && strings.Count(raw, "[") < strings.Count(raw, "]") {
			raw = strings.TrimRight(raw[:len(raw)-1], ".,;:!?")
		}
		line := text[strings.LastIndexByte(text[:span[0]], '\n')+1 : span[0]]
		if unsubscribeWords().MatchString(line) {
			at[raw] = -1
			continue
		}
		add(raw, raw)
	}

	z := html.NewTokenizer(strings.NewReader(markup))
	href, shown := "", strings.Builder{}
	for seen := 0; seen < 4*MaxLinks; {
		switch z.Next() {
		case html.ErrorToken:
			if href != "" {
				add(href, shown.String())
			}
			return out
		case html.TextToken:
			if href != "" && shown.Len() < 4*maxLinkText {
				text := z.Text()
				shown.Write(text[:min(len(text), 4*maxLinkText)])
			}
		case html.EndTagToken:
			if name, _ := z.TagName(); string(name) == "a" && href != "" {
				add(href, shown.String())
				href = ""
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			t := z.Token()
			switch t.Data {
			case "a":
				if href != "" {
					add(href, shown.String())
				}
				href = attributeOf(t, "href")
				shown.Reset()
				seen++
			case "img":
				if alt := attributeOf(t, "alt"); href != "" && shown.Len() < 4*maxLinkText {
					shown.WriteString(" " + alt[:min(len(alt), 4*maxLinkText)])
				}
			}
		}
	}
	return out
}

func attributeOf(t html.Token, name string) string {
	for _, a := range t.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// isImage reports whether the path of a URL is that of an image.
func isImage(file string) bool {
	switch strings.ToLower(path.Ext(file)) {
	case ".png", ".gif", ".jpg", ".jpeg", ".webp", ".svg", ".bmp", ".ico", ".avif":
		return true
	}
	return false
}

// SameOrganisation reports whether a host belongs to the owner of a domain: the host is the domain,
// is below it, or has the same organisational domain (RFC 7489 section 3.2).
func SameOrganisation(host, domain string) bool {
	if host == "" || domain == "" {
		return false
	}
	if host == domain || strings.HasSuffix(host, "."+domain) {
		return true
	}
	a, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return false
	}
	b, err := publicsuffix.EffectiveTLDPlusOne(domain)
	return err == nil && a == b
}
