package visible

import (
	"strings"
	"sync"

	"github.com/microcosm-cc/bluemonday"
	"golang.org/x/net/html"

	"github.com/mailstead/mailstead/internal/lazyregexp"
)

var localImage = lazyregexp.New(`(?i)^cid:`)

// localPolicy is newPolicy without external images and styles. Styles could hide the target of a
// link.
var localPolicy = sync.OnceValue(func() *bluemonday.Policy { return policyWithImages(localImage()) })

// LocalHTML returns HTML that loads nothing from outside of the message: the result of SanitizeHTML
// without styles and external images. After each link, its target is shown.
func LocalHTML(s string) string {
	if s == "" {
		return ""
	}
	return showLinks(localPolicy().Sanitize(s))
}

// showLinks adds the target after each link of sanitized HTML, unless the text of the link is the
// target.
func showLinks(s string) string {
	z := html.NewTokenizer(strings.NewReader(s))
	var out, text strings.Builder
	target, shown := "", "" // target: of the open link; shown: the text to add after the link that has just ended
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
		if shown != "" && (kind != html.TextToken || !strings.HasPrefix(raw, shown)) { // unless the text is there already
			out.WriteString(shown)
		}
		shown = ""
		if kind == html.ErrorToken { // the end of s; reading a string has no other error
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
