package msg

import "io"

// Text returns what people read of one text part, at most limit bytes before markup is taken out,
// as UTF-8 with LF line ends. Of a part that is no text it is "".
func Text(r io.ReaderAt, p *Part, limit int64) (string, error) {
	if p.Type != "text" {
		return "", nil
	}
	text, _, err := readText(r, p, limit)
	if err == nil && p.Subtype == "html" {
		text = HTMLText(text)
	}
	return text, err
}
