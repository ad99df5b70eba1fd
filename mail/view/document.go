// Package view converts a message's text or HTML to a document that is safe to show in a browser:
// nothing in it runs code, submits forms, loads external content or is positioned outside of its
// place. It does not know where messages are stored, who views them, or how images are fetched.
package view

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the style sheets
	"encoding/base64"
	"html"
	"strings"
)

// Options are the options of a document.
type Options struct {
	Title string
	Dark  bool // dark colours, for messages without colours of their own

	// Image returns the URL from which to show an image. src is the URL in the message, cid: or
	// https:. If Image returns "", the image is not shown. The returned URL is trusted and written
	// to the document.
	Image func(src string) string

	// More reports that the text is truncated.
	More bool
}

// A Document is a complete HTML page with one style sheet and no style attributes.
type Document struct {
	HTML      []byte
	StyleHash string // hash of the style sheet for a Content-Security-Policy
	Remote    int    // number of external images, without trackers
	Held      int    // number of external images that are replaced by a placeholder
	Trackers  int    // number of invisible external images, which are removed
}

// The surrounding page sets the height of the frame to that of the document. So the height of the
// document must not depend on the frame. base.css makes the height of html and body follow their
// content, and no style of the message overrides that, since among important rules those of the
// first layer win. Heights in per cent then have no reference, and units of the window's height are
// not allowed.
var (
	//go:embed base.css
	baseStyle string
	//go:embed light.css
	lightStyle string
	//go:embed dark.css
	darkStyle string
)

// Notes that we add to the document.
const (
	truncatedNote = `<p class="note">The message goes on. Its source has all of it.</p>`
	emptyNote     = `<p class="note">This message has no text.</p>`
)

// page returns the document with the given body. A message with colours of its own is shown on
// white, since some of its text might be invisible on black.
func page(o Options, body []byte, class string, styles []byte, coloured bool) *Document {
	theme := lightStyle
	if o.Dark && !coloured {
		theme = darkStyle
	}
	// Later layers override earlier ones. The styles from the message's style attributes are in no
	// layer, so they override all.
	sheet := "@layer base,message;\n@layer base{\n" + baseStyle + theme + "}\n" + string(styles)
	sum := sha256.Sum256([]byte(sheet))
	var out bytes.Buffer
	out.Grow(len(sheet) + len(body) + 1024)
	out.WriteString("<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">" +
		"<title>" + html.EscapeString(o.Title) + "</title><style>" + sheet + "</style></head>\n<body dir=\"auto\"" + class + ">") // without a line break, since plain text would show it
	out.Write(body)
	if len(bytes.TrimSpace(body)) == 0 {
		out.WriteString(emptyNote)
	}
	if o.More {
		out.WriteString(truncatedNote)
	}
	out.WriteString("</body></html>")
	return &Document{HTML: out.Bytes(), StyleHash: "sha256-" + base64.StdEncoding.EncodeToString(sum[:])}
}

// Characters that change the text direction can make a text look like another. withoutDirection
// removes all of them and is used in links. withoutOverrides removes only direction overrides and
// is used elsewhere. Both remove NUL.
var (
	withoutOverrides = strings.NewReplacer("\u202d", "", "\u202e", "", "\x00", "")
	withoutDirection = strings.NewReplacer("\u202a", "", "\u202b", "", "\u202c", "", "\u202d", "", "\u202e", "", "\u2066", "", "\u2067", "", "\u2068", "", "\u2069", "",
		"\u200e", "", "\u200f", "", "\u061c", "", "\x00", "")
)
