package visible

import (
	"strings"
	"sync"

	"github.com/microcosm-cc/bluemonday"
	"golang.org/x/net/html"

	"github.com/mailstead/mailstead/internal/lazyregexp"
)

var localImage = lazyregexp.New(`(?i)^cid:`)

// localPolicy is newPolicy without images of elsewhere. It has no styles: what they hide could be
// the address of a link.
var localPolicy = sync.OnceValue(func() *bluemonday.Policy { return policyWithImages(localImage()) })

// LocalHTML returns HTML that refers to nothing outside its message: what SanitizeHTML lets through
// but styles and images of other hosts. Links stay, and each one shows where it leads.
func LocalHTML(s string) string {
	if s == "" {
		return ""
	}
	return showLinks(localPolicy().Sanitize(s))
}

// showLinks writes after each link of sanitised HTML where it leads, unless that is what people
// read there.
func showLinks(s string) string {
	z := html.NewTokenizer(strings.NewReader(s))
	var out, text strings.Builder
	target, shown := "", "" // of the link that is open, and what is to follow the one that has ended
	end := func() {
		read := strings.Join(strings.Fields(text.String()), "")
		if target != "" && read != target && "mailto:"+read != target {
			shown = " &lt;" + html.EscapeString(target) + "&gt;"
		}
		target = ""
		text.Reset()
	}
	for {
		kind := z.Next()
		raw := string(z.Raw())
		if shown != "" && (kind != html.TextToken || !strings.HasPrefix(raw, shown)) { // it may stand there already
			out.WriteString(shown)
		}
		shown = ""
		if kind == html.ErrorToken { // the end: what a tokenizer reads of a string has no other
			end()
			out.WriteString(shown)
			return out.String()
		}
		token := z.Token()
		switch {
		case kind == html.TextToken && target != "":
			text.WriteString(token.Data)
		case kind == html.EndTagToken && token.Data == "a":
			end()
		case kind == html.StartTagToken && token.Data == "a":
			end()
			out.WriteString(shown)
			shown = ""
			for _, a := range token.Attr {
				if a.Key == "href" {
					target = a.Val
				}
			}
		}
		out.WriteString(raw)
	}
}
