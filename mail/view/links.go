package view

import (
	"bytes"
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/internal/lazyregexp"
)

// maxLinkText is how many bytes of the text of a link are checked.
const maxLinkText = 2048

// linkAttributes are set on every link. They keep the opened page from reaching, and from learning,
// the page that has the link.
const linkAttributes = ` target="_blank" rel="noopener noreferrer nofollow"`

// A link is a link that is still open. It is written at its end, since its whole text is needed to
// check it. A link without a valid target is written as a span.
type link struct {
	token   html.Token
	seen    strings.Builder
	content bytes.Buffer
}

// addText records text that is shown in the link.
func (l *link) addText(s string) {
	if room := maxLinkText - l.seen.Len(); room > 0 {
		l.seen.WriteString(s[:min(room, len(s))])
	}
}

// startLink begins a link.
func (r *renderer) startLink(t html.Token) {
	if r.link != nil { // nested in a table within a link: the next end tag ends the outer link
		return
	}
	r.link = &link{token: t}
	r.open = append(r.open, "a")
}

// endLink ends the open link and writes it.
func (r *renderer) endLink() {
	l := r.link
	r.link = nil
	var class []string
	target, host := linkTarget(attributeOf(l.token, "href"))
	if host != "" && isDeceptive(l.seen.String(), target, host) {
		class = []string{"odd"}
	}
	name, attributes := "a", targetAttributes(target, host)+r.attributes(l.token, class)
	if target == "" {
		name = "span"
	}
	r.out.WriteString("<" + name + attributes + ">")
	r.out.Write(l.content.Bytes())
	r.out.WriteString("</" + name + ">")
}

func attributeOf(t html.Token, name string) string {
	for _, a := range t.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// targetAttributes returns the attributes of a link to a web page or an email address.
func targetAttributes(target, host string) string {
	if target == "" {
		return ""
	}
	out := ` href="` + html.EscapeString(target) + `"` + linkAttributes
	if host != "" {
		out += ` title="` + html.EscapeString(host) + `"`
	}
	return out
}

// linkTarget returns the target of a link, "" if it is neither a web page nor an email address.
// host is the host of the page in ASCII (IDNA), so that a name with similar letters of another
// script does not pass for it.
func linkTarget(href string) (target, host string) {
	u, err := url.Parse(strings.TrimSpace(href))
	if err != nil || len(href) > 8192 {
		return "", ""
	}
	switch strings.ToLower(u.Scheme) {
	case "mailto":
		return u.String(), ""
	case "http", "https":
		if u.Opaque != "" || u.Hostname() == "" {
			return "", ""
		}
		host, err = idna.ToASCII(strings.ToLower(u.Hostname()))
		if err != nil {
			return "", ""
		}
		return u.String(), host
	}
	return "", ""
}

// hostPattern matches text that people read as a host name: after http:// or www., or by itself.
var hostPattern = lazyregexp.New(`(?i)(?:^|[^\p{L}\p{N}@.-])(https?://|www\.)?((?:[\p{L}\p{N}_-]+\.)+\p{L}+)`)

// idnDots replaces the full stops of other scripts by ".", as browsers do in a host (IDNA, UTS 46).
var idnDots = strings.NewReplacer("\u3002", ".", "\uff61", ".")

// isDeceptive reports whether a link is deceptive: its text names a host of another owner than the
// target's host, or the target has a user name, which looks like a host.
func isDeceptive(text, target, host string) bool {
	if u, err := url.Parse(target); err != nil || u.User != nil {
		return true
	}
	for _, m := range hostPattern().FindAllStringSubmatch(idnDots.Replace(norm.NFKC.String(withoutDirection.Replace(text))), 8) {
		shown, err := idna.ToASCII(strings.ToLower(m[2]))
		if err != nil {
			return true
		}
		if _, listed := publicsuffix.PublicSuffix(shown); m[1] == "" && !listed {
			continue // a name such as "Node.js" is not a host
		}
		if registrableDomain(shown) != registrableDomain(host) {
			return true
		}
	}
	return false
}

// registrableDomain returns the registrable domain of a host, which is the public suffix and one
// more label. It returns host itself if there is none.
func registrableDomain(host string) string {
	if owner, err := publicsuffix.EffectiveTLDPlusOne(strings.TrimSuffix(host, ".")); err == nil {
		return owner
	}
	return host
}
