// Package view converts the text or HTML of a message to a document that is safe to show in a
// browser: nothing in it runs code, submits forms, loads external content, or covers anything
// outside of the document. It does not know where messages are stored, who views them, or how
// images are fetched.
package view

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the style sheets
	"encoding/base64"
	"html"
	"strings"
)

// Options say how to show a message.
type Options struct {
	Title string
	Dark  bool // dark colours, for messages without colours of their own

	// Image returns the URL from which an image is loaded. src is the URL in the message, which
	// begins with cid: or https:. The image is not shown if Image returns "". The returned URL is
	// written to the document unchecked.
	Image func(src string) string

	// More says that the text was truncated.
	More bool
}

// A Document is a complete HTML page with one style sheet and no style attributes.
type Document struct {
	HTML      []byte
	StyleHash string // hash of the style sheet, for a Content-Security-Policy
	Remote    int    // number of external images, not counting trackers
	Held      int    // number of external images in whose place a placeholder is shown
	Trackers  int    // number of invisible external images, which are removed
}

// The style sheets of the document. The page around the document makes its frame as high as the
// document, so the height of the document must not depend on the frame. Therefore base.css makes
// the height of html and body follow their content. No style of the message can override that,
// since the first layer wins among important rules. Heights in per cent then refer to nothing, and
// units of the window's height are not allowed.
var (
	//go:embed base.css
	baseStyle string
	//go:embed light.css
	lightStyle string
	//go:embed dark.css
	darkStyle string
)

// Notes that are added to the document.
const (
	truncatedNote = `<p class="note">The message goes on. Its source has all of it.</p>`
	emptyNote     = `<p class="note">This message has no text.</p>`
)

// newDocument returns the document with the given body. A message with colours of its own is shown
// on white even if o.Dark is set, since some of its text might be invisible on black.
func newDocument(o Options, body []byte, class string, styles []byte, coloured bool) *Document {
	theme := lightStyle
	if o.Dark && !coloured {
		theme = darkStyle
	}
	// Later layers override earlier ones. Rules for the message's style attributes are in no layer,
	// so they override both.
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

// Characters that change the text direction can make one text look like another. withoutDirection
// removes all of them, for the text of links. withoutOverrides removes only those that override the
// direction, for other text. Both remove NUL.
var (
	withoutOverrides = strings.NewReplacer("\u202d", "", "\u202e", "", "\x00", "")
	withoutDirection = strings.NewReplacer("\u202a", "", "\u202b", "", "\u202c", "", "\u202d", "", "\u202e", "", "\u2066", "", "\u2067", "", "\u2068", "", "\u2069", "",
		"\u200e", "", "\u200f", "", "\u061c", "", "\x00", "")
)
