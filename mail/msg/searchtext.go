package msg

import (
	"fmt"
	"io"
	"unicode/utf8"
)

const (
	searchText = 64 << 10  // bytes of a message's text that it is found by
	searchHTML = 512 << 10 // of HTML that are read for it
	stubText   = 200       // characters; plain text that is shorter may only say that there is HTML
)

// SearchTexts returns the texts that a message is found by: the subject, each person with name and
// address, the names of attachments, and what people read, without markup, at most 64 KiB of that.
func SearchTexts(r io.ReaderAt, root *Part) ([]string, error) {
	var out []string
	if e := root.Envelope; e != nil {
		out = append(out, e.Subject)
		for _, list := range [][]Address{e.From, e.Sender, e.ReplyTo, e.To, e.Cc, e.Bcc} {
			for _, a := range people(list) {
				out = append(out, a.Name+" "+a.Email())
			}
		}
	}
	for _, a := range Attachments(root) {
		if a.Part.filename() != "" {
			out = append(out, a.Filename)
		}
	}
	left := searchText
	for _, piece := range bodyPieces(root) {
		texts, err := pieceTexts(r, piece, left)
		if err != nil {
			return nil, err
		}
		for _, text := range texts {
			left -= len(text)
			out = append(out, text)
		}
		if left <= 0 {
			break
		}
	}
	return out, nil
}

// pieceTexts returns the plain text, or that of the HTML, or both where the first says little.
func pieceTexts(r io.ReaderAt, p bodyPiece, limit int) (out []string, err error) {
	if p.text != nil {
		text, _, err := readText(r, p.text, int64(limit))
		if err != nil {
			return nil, fmt.Errorf("text of message: %w", err)
		}
		out = append(out, text)
		if p.html == nil || utf8.RuneCountInString(text) > stubText {
			return out, nil
		}
	}
	if p.html == nil {
		return out, nil
	}
	text, _, err := readText(r, p.html, searchHTML)
	if err != nil {
		return nil, fmt.Errorf("text of message: %w", err)
	}
	return append(out, cut(htmlWords(text, limit), limit)), nil
}
