package view

import (
	"strconv"
	"strings"

	"golang.org/x/net/html"
)

// Bounds on images.
const (
	maxImages = 1000 // in one document; others are left out
	maxPlace  = 1200 // pixels of an image's place, which stands in the document without it
	pixel     = 2    // an image that is no larger either way is there to tell that the message was read
)

// An image is one of the message, as far as the message tells.
type image struct {
	token         html.Token
	src, alt      string
	width, height int // pixels; -1: unknown
	hidden        bool
	styles        []declaration
}

func readImage(t html.Token) image {
	m := image{token: t, src: strings.TrimSpace(attributeOf(t, "src")), alt: attributeOf(t, "alt"), width: -1, height: -1}
	m.styles = styleAttribute(attributeOf(t, "style"))
	m.width, m.height = pixels(attributeOf(t, "width")), pixels(attributeOf(t, "height"))
	for _, d := range m.styles {
		switch d.property {
		case "width", "max-width":
			m.width = smaller(m.width, pixels(d.value))
		case "height", "max-height":
			m.height = smaller(m.height, pixels(d.value))
		case "display":
			m.hidden = m.hidden || strings.EqualFold(d.value, "none")
		case "visibility":
			m.hidden = m.hidden || strings.EqualFold(d.value, "hidden")
		case "opacity":
			m.hidden = m.hidden || d.value == "0"
		}
	}
	return m
}

func smaller(a, b int) int {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// pixels reads a size; -1 if it is none in pixels.
func pixels(s string) int {
	n, err := strconv.ParseFloat(strings.TrimSuffix(strings.ToLower(strings.TrimSpace(s)), "px"), 64)
	if err != nil || !(n >= 0 && n < 100_000) {
		return -1
	}
	return int(n)
}

// isTracker reports whether the image is of no use to who reads the message.
func (m *image) isTracker() bool {
	small := func(n int) bool { return n >= 0 && n <= pixel }
	return m.hidden || small(m.width) && small(m.height) || m.width == 0 || m.height == 0
}

// image writes an image, or its place.
func (r *renderer) image(t html.Token) {
	if r.images++; r.images > maxImages {
		return
	}
	m := readImage(t)
	remote := hasScheme(m.src, "https:")
	if m.isTracker() {
		if remote {
			r.trackers++
		}
		return
	}
	address := ""
	if (remote || hasScheme(m.src, "cid:")) && r.o.Image != nil {
		address = r.o.Image(m.src)
	}
	if remote {
		r.remote++
	}
	if address == "" {
		if remote {
			r.held++
		}
		r.place(&m)
		return
	}
	if r.link != nil {
		r.link.see(m.alt)
	}
	r.to().WriteString(`<img src="` + html.EscapeString(address) + `" alt="` + html.EscapeString(shortened(m.alt)) + `"` + r.attributes(m.token, nil) + ">")
}

func hasScheme(src, scheme string) bool {
	return len(src) > len(scheme) && strings.EqualFold(src[:len(scheme)], scheme)
}

func shortened(alt string) string {
	return turned.Replace(strings.ToValidUTF8(alt[:min(len(alt), 500)], ""))
}

// place writes a box as large as the image would be, with its text.
func (r *renderer) place(m *image) {
	var styles []declaration
	if m.width >= 0 {
		styles = append(styles, declaration{property: "width", value: strconv.Itoa(min(m.width, maxPlace)) + "px"})
	}
	if m.height >= 0 {
		styles = append(styles, declaration{property: "height", value: strconv.Itoa(min(m.height, maxPlace)) + "px"})
	}
	class := "held"
	if name := r.style(styles); name != "" {
		class += " " + name
	}
	if r.link != nil {
		r.link.see(m.alt)
	}
	alt := html.EscapeString(shortened(m.alt))
	r.to().WriteString(`<span class="` + class + `">` + alt + "</span>")
}
