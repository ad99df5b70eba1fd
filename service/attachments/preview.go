package attachments

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/mail/charset"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/images"
	"github.com/mailstead/mailstead/service/inbox"
)

// MaxText is how many bytes of a text a preview shows.
const MaxText = 1 << 20

// ViewIn names an attachment to show in a browser, and as what.
type ViewIn struct {
	UserID string `path:"user_id"`
	UID    string `path:"uid"`
	Index  string `path:"index"`
	Folder string `query:"folder"`
	As     string `query:"as" enum:"image|text"`
}

// ViewAttachment returns an attachment as something that a browser can show without running
// anything: a raster image, whose type is detected from its bytes, or the first MaxText bytes of a
// text as plain text in UTF-8, also of HTML and SVG. Other files are image_unavailable or
// no_preview.
func (s *Service) ViewAttachment(_ context.Context, who core.Actor, in ViewIn) (*core.File, error) {
	a, blob, err := s.open(who, FileIn{MessageIn: inbox.MessageIn{UserID: in.UserID, MessageID: in.UID, Folder: in.Folder}, Index: in.Index})
	if err != nil {
		return nil, err
	}
	body := content{msg.Open(blob, a.Part), blob}
	if in.As == "image" {
		whole, kind, err := images.Detect(body)
		if err != nil {
			return nil, err
		}
		return &core.File{Name: a.Filename, ContentType: kind, Size: -1, Body: whole}, nil
	}
	defer body.Close()
	raw, err := io.ReadAll(io.LimitReader(body, MaxText))
	if err != nil {
		return nil, fmt.Errorf("read attachment %s of message %s: %w", in.Index, in.UID, err)
	}
	text, ok := decodeText(raw, a.Part.Params["charset"])
	if !ok {
		return nil, core.Errorf("no_preview", "The file is not a text. Download it to open it.")
	}
	return &core.File{Name: a.Filename, ContentType: "text/plain; charset=utf-8", Size: int64(len(text)), Body: io.NopCloser(strings.NewReader(text))}, nil
}

// decodeText converts the beginning of a file to UTF-8. label is the charset that the message
// declares for it, "" if it declares none. ok is false if the file is not a text.
func decodeText(raw []byte, label string) (text string, ok bool) {
	if bytes.HasPrefix(raw, []byte("\xff\xfe")) || bytes.HasPrefix(raw, []byte("\xfe\xff")) {
		label = "utf-16"
	}
	if label == "" || strings.EqualFold(label, "us-ascii") {
		label = "utf-8"
	}
	text = string(charset.Convert(raw, label, MaxText, MaxText))
	if len(raw) == MaxText { // the last character may be cut
		last := len(text) - 1
		for last > 0 && last > len(text)-utf8.UTFMax && !utf8.RuneStart(text[last]) {
			last--
		}
		if last >= 0 && !utf8.FullRuneInString(text[last:]) {
			text = text[:last]
		}
	}
	if !utf8.ValidString(text) {
		text = charset.Guess(raw)
	}
	text = strings.TrimPrefix(text, "\ufeff")
	return text, !strings.ContainsRune(text, 0)
}
