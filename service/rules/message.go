package rules

import (
	"fmt"
	"io"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/visible"
)

// maxBody is how many bytes of a message's text conditions look at.
const maxBody = 64 << 10

var errEnd = io.EOF

// A Message is what rules look at: texts are decoded and unfolded.
type Message struct {
	Size      int64
	SpamScore *float64 // nil: nobody has said

	r       io.ReaderAt
	root    *msg.Part
	headers []msg.Header
	read    bool // headers are
	body    *string
	err     error
}

// NewMessage reads a message for rules, as far as they ask for it.
func NewMessage(r io.ReaderAt, root *msg.Part, size int64) *Message {
	return &Message{Size: size, r: r, root: root}
}

// Err is why something could not be read.
func (m *Message) Err() error { return m.err }

// texts gives the texts of a field; header is the name of one.
func (m *Message) texts(field, header string) []string {
	e := m.root.Envelope
	if e == nil {
		e = &msg.Envelope{}
	}
	switch field {
	case "from":
		return peopleTexts(e.From)
	case "to":
		return peopleTexts(e.To)
	case "cc":
		return peopleTexts(e.Cc)
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
			b, err := msg.ReadRawBody(m.r, m.root, maxBody)
			if err != nil && m.err == nil {
				m.err = fmt.Errorf("read message: %w", err)
			}
			text := b.Text
			if text == "" && b.HTML != "" {
				text = visible.HTMLText(b.HTML)
			}
			text = text[:min(len(text), maxBody)]
			m.body = &text
		}
		if *m.body == "" {
			return nil
		}
		return []string{*m.body}
	}
	return nil
}

func (m *Message) header(name string) (out []string) {
	if !m.read {
		m.read = true
		headers, err := msg.Headers(m.r, m.root)
		if err != nil && m.err == nil {
			m.err = fmt.Errorf("read message: %w", err)
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

// peopleTexts are the addresses and the display names of a list, each by itself.
func peopleTexts(list []msg.Address) (out []string) {
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
