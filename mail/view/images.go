package view

import (
	"strconv"
	"strings"

	"golang.org/x/net/html"
)

// Limits on images.
const (
	maxImages = 1000 // in one document; more images are removed
	maxPlace  = 1200 // maximum width and height of a placeholder in pixels
	pixel     = 2    // an image not larger than this in both directions is a tracking pixel
)

// An image is an img element of the message with its parsed attributes and styles.
type image struct {
	token         html.Token
	src, alt      string
	width, height int // pixels; -1 if unknown
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

// pixels parses a size in pixels. It returns -1 for any other text.
func pixels(s string) int {
	n, err := strconv.ParseFloat(strings.TrimSuffix(strings.ToLower(strings.TrimSpace(s)), "px"), 64)
	if err != nil || !(n >= 0 && n < 100_000) {
		return -1
	}
	return int(n)
}

// isTracker reports whether the image is invisible to the reader.
func (m *image) isTracker() bool {
	small := func(n int) bool { return n >= 0 && n <= pixel }
	return m.hidden || small(m.width) && small(m.height) || m.width == 0 || m.height == 0
}

// image writes an image or its placeholder.
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
		r.placeholder(&m)
		return
	}
	if r.link != nil {
		r.link.addText(m.alt)
	}
	r.output().WriteString(`<img src="` + html.EscapeString(address) + `" alt="` + html.EscapeString(shortened(m.alt)) + `"` + r.attributes(m.token, nil) + ">")
}

func hasScheme(src, scheme string) bool {
	return len(src) > len(scheme) && strings.EqualFold(src[:len(scheme)], scheme)
}

func shortened(alt string) string {
	return withoutDirection.Replace(strings.ToValidUTF8(alt[:min(len(alt), 500)], ""))
}

// placeholder writes a placeholder of the image's size, with its alternative text.
func (r *renderer) placeholder(m *image) {
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
		r.link.addText(m.alt)
	}
	alt := html.EscapeString(shortened(m.alt))
	r.output().WriteString(`<span class="` + class + `">` + alt + "</span>")
}
