package view

import (
	"strconv"
	"strings"

	"golang.org/x/net/html"
)

// Limits on images.
const (
	maxImages      = 1000 // images in one document; more are removed
	maxPlaceholder = 1200 // maximum width and height of a placeholder, in pixels
	maxTrackerSide = 2    // an image is a tracking pixel if neither side is longer than this
)

// An image is an img element of the message, with its attributes and styles parsed.
type image struct {
	token         html.Token
	src, alt      string
	width, height int // pixels; -1 if not given
	hidden        bool
	styles        []declaration
}

func readImage(t html.Token) image {
	m := image{token: t, src: strings.TrimSpace(attributeOf(t, "src")), alt: attributeOf(t, "alt"), width: -1, height: -1}
	m.styles = parseStyleAttribute(attributeOf(t, "style"))
	m.width, m.height = parsePixels(attributeOf(t, "width")), parsePixels(attributeOf(t, "height"))
	for _, d := range m.styles {
		switch d.property {
		case "width", "max-width":
			m.width = smallerKnown(m.width, parsePixels(d.value))
		case "height", "max-height":
			m.height = smallerKnown(m.height, parsePixels(d.value))
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

// smallerKnown returns the smaller of two sizes. A negative size is unknown and does not count.
func smallerKnown(a, b int) int {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// parsePixels parses a size in pixels. It returns -1 for other text.
func parsePixels(s string) int {
	n, err := strconv.ParseFloat(strings.TrimSuffix(strings.ToLower(strings.TrimSpace(s)), "px"), 64)
	if err != nil || !(n >= 0 && n < 100_000) {
		return -1
	}
	return int(n)
}

// isTracker reports whether a reader cannot see the image.
func (m *image) isTracker() bool {
	small := func(n int) bool { return n >= 0 && n <= maxTrackerSide }
	return m.hidden || small(m.width) && small(m.height) || m.width == 0 || m.height == 0
}

// writeImage writes an image, or a placeholder for it.
func (r *renderer) writeImage(t html.Token) {
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
		r.writePlaceholder(&m)
		return
	}
	if r.link != nil {
		r.link.addText(m.alt)
	}
	r.output().WriteString(`<img src="` + html.EscapeString(address) + `" alt="` + html.EscapeString(shortenedAlt(m.alt)) + `"` + r.attributes(m.token, nil) + ">")
}

func hasScheme(src, scheme string) bool {
	return len(src) > len(scheme) && strings.EqualFold(src[:len(scheme)], scheme)
}

func shortenedAlt(alt string) string {
	return withoutDirection.Replace(strings.ToValidUTF8(alt[:min(len(alt), 500)], ""))
}

// writePlaceholder writes a placeholder with the size and the alternative text of the image.
func (r *renderer) writePlaceholder(m *image) {
	var styles []declaration
	if m.width >= 0 {
		styles = append(styles, declaration{property: "width", value: strconv.Itoa(min(m.width, maxPlaceholder)) + "px"})
	}
	if m.height >= 0 {
		styles = append(styles, declaration{property: "height", value: strconv.Itoa(min(m.height, maxPlaceholder)) + "px"})
	}
	class := "held"
	if name := r.styleClass(styles); name != "" {
		class += " " + name
	}
	if r.link != nil {
		r.link.addText(m.alt)
	}
	alt := html.EscapeString(shortenedAlt(m.alt))
	r.output().WriteString(`<span class="` + class + `">` + alt + "</span>")
}
