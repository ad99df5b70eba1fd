package msg

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
var localPolicy = sync.OnceValue(func() *bluemonday.Policy {
	p := policyWithImages(localImage())
	p.AllowURLSchemes("http", "https", "mailto", "cid")
	return p
})

// LocalHTML returns HTML that refers to nothing outside its message: what SanitizeHTML lets through
// but styles and images of other hosts. Links stay, and each one shows where it leads.
func LocalHTML(s string) string {
	if s == "" {
		return ""
	}
	z := html.NewTokenizer(strings.NewReader(localPolicy().Sanitize(s)))
	var out, text strings.Builder
	target := ""
	end := func() { // of a link
		shown := strings.Join(strings.Fields(text.String()), "")
		if target != "" && shown != target && "mailto:"+shown != target {
			out.WriteString(" &lt;" + escapeHTML(target) + "&gt;")
		}
		target = ""
		text.Reset()
	}
	for {
		kind := z.Next()
		if kind == html.ErrorToken { // the end: what a tokenizer reads of a string has no other
			end()
			return out.String()
		}
		raw := string(z.Raw())
		token := z.Token()
		switch {
		case kind == html.TextToken && target != "":
			text.WriteString(token.Data)
		case kind == html.EndTagToken && token.Data == "a":
			out.WriteString(raw)
			end()
			continue
		case kind == html.StartTagToken && token.Data == "a":
			end()
			for _, a := range token.Attr {
				if a.Key == "href" {
					target = a.Val
				}
			}
		}
		out.WriteString(raw)
	}
}
