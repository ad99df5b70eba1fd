package rules

import (
	"fmt"
	"io"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/visible"
)

// maxBodyBytes is how many bytes of a message's text are searched.
const maxBodyBytes = 64 << 10

// A Message is a message for which rules are evaluated. Its texts are decoded and unfolded.
type Message struct {
	Size      int64
	SpamScore *float64 // nil: not known

	r       io.ReaderAt
	root    *msg.Part
	headers []msg.Header
	read    bool    // headers has been read
	body    *string // nil: not read yet
	err     error
}

// NewMessage returns a Message. It reads parts of the message only when a rule needs them.
func NewMessage(r io.ReaderAt, root *msg.Part, size int64) *Message {
	return &Message{Size: size, r: r, root: root}
}

// Err returns the first error that occurred while the message was read.
func (m *Message) Err() error { return m.err }

// texts returns the texts that a condition on a field compares. If field is "header", header is the
// name of the header field.
func (m *Message) texts(field, header string) []string {
	e := m.root.Envelope
	if e == nil {
		e = &msg.Envelope{}
	}
	switch field {
	case "from":
		return addressTexts(e.From)
	case "to":
		return addressTexts(e.To)
	case "cc":
		return addressTexts(e.Cc)
	case "subject":
		if len(m.header("Subject")) == 0 {
			return nil
		}
		return []string{e.Subject}
	case "header":
		return m.header(header)
	case "list_id":
		var out []string
		for _, value := range m.header("List-Id") {
			if i := strings.LastIndexByte(value, '<'); i >= 0 {
				value, _, _ = strings.Cut(value[i+1:], ">")
			}
			out = append(out, strings.TrimSpace(value))
		}
		return out
	case "body":
		if m.body == nil {
			b, err := msg.ReadRawBody(m.r, m.root, maxBodyBytes)
			if err != nil && m.err == nil {
				m.err = fmt.Errorf("evaluate rules: read the body of the message: %w", err)
			}
			text := b.Text
			if text == "" && b.HTML != "" {
				text = visible.HTMLText(b.HTML)
			}
			text = text[:min(len(text), maxBodyBytes)]
			m.body = &text
		}
		if *m.body == "" {
			return nil
		}
		return []string{*m.body}
	}
	return nil
}

// header returns the values of all header fields with a name.
func (m *Message) header(name string) (out []string) {
	if !m.read {
		m.read = true
		headers, err := msg.Headers(m.r, m.root)
		if err != nil && m.err == nil {
			m.err = fmt.Errorf("evaluate rules: read the header of the message: %w", err)
		}
		m.headers = headers
	}
	for _, h := range m.headers {
		if strings.EqualFold(h.Name, name) {
			out = append(out, h.Value)
		}
	}
	return out
}

// addressTexts returns the addresses and the display names in a list, each as a separate text.
func addressTexts(list []msg.Address) (out []string) {
	for _, a := range list {
		if a.IsGroupMarker() {
			continue
		}
		out = append(out, a.Email())
		if a.Name != "" {
			out = append(out, a.Name)
		}
	}
	return out
}
