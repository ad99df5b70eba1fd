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

// maxLinkText is how much of a link's text is looked at.
const maxLinkText = 2048

// linkAttributes go with every link: it opens a page that knows nothing of where it was opened.
const linkAttributes = ` target="_blank" rel="noopener noreferrer nofollow"`

// A link is one that has begun, and is written when it ends, since only then is known what people
// read there. One that leads nowhere is no link.
type link struct {
	token   html.Token
	seen    strings.Builder
	content bytes.Buffer
}

// see notes what people read in the link.
func (l *link) see(s string) {
	if room := maxLinkText - l.seen.Len(); room > 0 {
		l.seen.WriteString(s[:min(room, len(s))])
	}
}

func (r *renderer) startLink(t html.Token) {
	if r.link != nil { // in a table within a link, where its end tag means this one
		return
	}
	r.link = &link{token: t}
	r.open = append(r.open, "a")
}

func (r *renderer) endLink() {
	l := r.link
	r.link = nil
	var class []string
	target, host := linkTarget(attributeOf(l.token, "href"))
	if host != "" && misleads(l.seen.String(), target, host) {
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

// targetAttributes are those of a link to a page, or to an address that can be written to.
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

// linkTarget reads what a link leads to; "" if it is neither a page nor an address. host is the
// page's host in the letters that the DNS knows, so that nobody takes one name for another.
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

// hostForm finds what people read as a host: after http:// or www., or a name that stands alone.
var hostForm = lazyregexp.New(`(?i)(?:^|[^\p{L}\p{N}@.-])(https?://|www\.)?((?:[\p{L}\p{N}_-]+\.)+\p{L}+)`)

// stops are the full stops of other scripts, which browsers read as dots in a host (IDNA, UTS 46).
var stops = strings.NewReplacer("\u3002", ".", "\uff61", ".")

// misleads reports whether a link's text names a host that belongs to others than the one it leads
// to. A target with a user name is made to be read wrong.
func misleads(text, target, host string) bool {
	if u, err := url.Parse(target); err != nil || u.User != nil {
		return true
	}
	for _, m := range hostForm().FindAllStringSubmatch(stops.Replace(norm.NFKC.String(turned.Replace(text))), 8) {
		shown, err := idna.ToASCII(strings.ToLower(m[2]))
		if err != nil {
			return true
		}
		if _, listed := publicsuffix.PublicSuffix(shown); m[1] == "" && !listed {
			continue // "Node.js" is no host
		}
		if ownerOf(shown) != ownerOf(host) {
			return true
		}
	}
	return false
}

// ownerOf is the part of a host's name that somebody registered.
func ownerOf(host string) string {
	if owner, err := publicsuffix.EffectiveTLDPlusOne(strings.TrimSuffix(host, ".")); err == nil {
		return owner
	}
	return host
}
