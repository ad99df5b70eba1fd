// Package view makes of a message's text or HTML a document that a browser can show without harm:
// nothing in it runs, submits, loads from elsewhere or leaves its place. It does not know where
// messages are kept, who looks at them, or how the images are fetched that it names.
package view

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the style sheets
	"encoding/base64"
	"html"
	"strings"
)

// Options say how a document is made.
type Options struct {
	Title string
	Dark  bool // for messages that have no colours of their own

	// Image gives the address from which an image of the message is shown; src is as the message
	// has it, cid: or https:. "" holds the image back. It is trusted: what it gives stands in the
	// document.
	Image func(src string) string

	// More says that the message goes on where the text ends.
	More bool
}

// A Document is a whole page of HTML with one style sheet and no style attribute.
type Document struct {
	HTML      []byte
	StyleHash string // of the style sheet, as a Content-Security-Policy names it
	Remote    int    // images that lie elsewhere
	Held      int    // of these, images that the document shows a place for only
	Trackers  int    // images elsewhere that nobody is to see, which are left out
}

// The page around a document makes its frame as high as what is in it. So nothing in the document
// may be as high as its frame: base.css has the height of html and body follow what they hold,
// which no style of the message overrides, since of important rules those of the first layer win.
// Then a height in per cent refers to nothing, and units of the window's height are none that we
// take.
var (
	//go:embed base.css
	baseStyle string
	//go:embed light.css
	lightStyle string
	//go:embed dark.css
	darkStyle string
)

// notes are what the document says itself.
const (
	goesOn = `<p class="note">The message goes on. Its source has all of it.</p>`
	isVoid = `<p class="note">This message has no text.</p>`
)

// page writes a document around its body. Where the message has colours of its own it is shown on
// white, since nobody knows which of its texts would vanish on black.
func page(o Options, body []byte, class string, styles []byte, coloured bool) *Document {
	theme := lightStyle
	if o.Dark && !coloured {
		theme = darkStyle
	}
	// Layers come in this order, and what is in none comes last: the style attributes of the
	// message.
	sheet := "@layer base,message;\n@layer base{\n" + baseStyle + theme + "}\n" + string(styles)
	sum := sha256.Sum256([]byte(sheet))
	var out bytes.Buffer
	out.Grow(len(sheet) + len(body) + 1024)
	out.WriteString("<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">" +
		"<title>" + html.EscapeString(o.Title) + "</title><style>" + sheet + "</style></head>\n<body dir=\"auto\"" + class + ">") // no line end within, which plain text would show
	out.Write(body)
	if len(bytes.TrimSpace(body)) == 0 {
		out.WriteString(isVoid)
	}
	if o.More {
		out.WriteString(goesOn)
	}
	out.WriteString("</body></html>")
	return &Document{HTML: out.Bytes(), StyleHash: "sha256-" + base64.StdEncoding.EncodeToString(sum[:])}
}

// turned are the characters that turn the direction of what follows, and so make a text look like
// another. In links all of them go; elsewhere those that override what characters are.
var (
	overrides = strings.NewReplacer("\u202d", "", "\u202e", "", "\x00", "")
	turned    = strings.NewReplacer("\u202a", "", "\u202b", "", "\u202c", "", "\u202d", "", "\u202e", "", "\u2066", "", "\u2067", "", "\u2068", "", "\u2069", "",
		"\u200e", "", "\u200f", "", "\u061c", "", "\x00", "")
)
