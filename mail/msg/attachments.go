package msg

import (
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/mail/visible"
)

// Attachment describes a part that is not displayed as the text of the message.
type Attachment struct {
	Index       int    // position in the result of Attachments, from 0; identifies the attachment in the API
	Filename    string // safe as a file name, never empty
	ContentType string // type/subtype, lower case
	Size        int64  // bytes after decoding; exact if the encoding of the body is valid
	ContentID   string // Content-ID without brackets, "" if none; cid: links in the HTML refer to it
	Part        *Part
}

// Attachments lists the attachments of a message in order. Every leaf and every attached message is
// one, except the displayed text and HTML, other renderings of that text, signatures, and the
// machine-readable parts of a report. It does not look into attached messages.
func Attachments(root *Part) []Attachment {
	var out []Attachment
	walkContent(root, nil, nil, func(p, parent *Part, in *branch) {
		if kind, of := kindsOf(p, parent); !isAttachment(kind, of) || isReadable(kind) && in.bodyWithFilename() == p {
			return
		}
		subject := ""
		if p.IsMessage() {
			subject = p.Children[0].Envelope.Subject
		}
		out = append(out, newAttachment(len(out), p.filename(), subject, p.MediaType(), p.ID, p.DecodedSize))
		out[len(out)-1].Part = p
	})
	return out
}

func newAttachment(index int, filename, subject, mediaType, id string, size int64) Attachment {
	return Attachment{
		Index:       index,
		Filename:    safeFilename(filename, subject, mediaType, index+1),
		ContentType: mediaType,
		Size:        size,
		ContentID:   strings.Trim(id, "<> "),
	}
}

// walkContent calls visit for every part that is not a multipart, with the branch that contains the
// part. It does not enter attached messages.
func walkContent(p, parent *Part, in *branch, visit func(p, parent *Part, in *branch)) {
	if p.IsMultipart() && (parent == nil || parent.Subtype == "alternative") {
		in = &branch{top: p}
	}
	if !p.IsMultipart() {
		visit(p, parent, in)
		return
	}
	for _, c := range p.Children {
		walkContent(c, p, in, visit)
	}
}

// A branch is a multipart that is the whole message or one of several alternatives.
type branch struct {
	top          *Part
	searched     bool
	withFilename *Part
}

// bodyWithFilename returns the first text part of the branch that has a file name, if it belongs to
// the body (RFC 8621 section 4.1.4). It does if the branch begins with it, or if all texts of the
// branch have file names. Otherwise the result is nil.
func (b *branch) bodyWithFilename() *Part {
	switch {
	case b == nil:
		return nil
	case b.searched:
		return b.withFilename
	}
	b.searched = true
	var search filenameSearch[*Part]
	walkContent(b.top, &Part{}, nil, func(p, parent *Part, _ *branch) {
		kind, of := kindsOf(p, parent)
		examinePart(&search, p, kind, of)
	})
	b.withFilename = search.result()
	return b.withFilename
}

// A filenameSearch holds the state while bodyWithFilename examines the parts of a branch.
type filenameSearch[P any] struct {
	first      P // the first text part with a file name
	hasFirst   bool
	leads      bool // first is the first part of the branch
	hasUnnamed bool // the branch has a text part without a file name
	begun      bool // a part was examined
}

// examinePart updates the search s with the next part of the branch.
func examinePart[P any, S string | []byte](s *filenameSearch[P], part P, kind partKind[S], parent *partKind[S]) {
	switch {
	case isBodyText(kind, parent):
		s.hasUnnamed = true
	case !s.hasFirst && isReadable(kind):
		s.first, s.hasFirst, s.leads = part, true, !s.begun
	}
	s.begun = true
}

// result returns the part that was found, the zero value if there is none.
func (s *filenameSearch[P]) result() P {
	if s.hasUnnamed && !s.leads {
		var none P
		return none
	}
	return s.first
}

// A partKind holds the properties that decide whether a part is an attachment.
type partKind[S string | []byte] struct{ Type, Subtype, Disposition, Filename S }

func (p *Part) kind() partKind[string] {
	return partKind[string]{p.Type, p.Subtype, p.Disposition, p.filename()}
}

func kindsOf(p, parent *Part) (kind partKind[string], parentKind *partKind[string]) {
	if parent == nil {
		return p.kind(), nil
	}
	of := parent.kind()
	return p.kind(), &of
}

// isAttachment reports whether a part is an attachment. parent is nil for the root of the message.
func isAttachment[S string | []byte](p partKind[S], parent *partKind[S]) bool {
	if string(p.Disposition) == "attachment" {
		return true
	}
	if isBodyText(p, parent) {
		return false
	}
	if parent == nil {
		return true
	}
	switch string(parent.Subtype) {
	case "report":
		return string(p.Type) != "message" && (string(p.Type) != "text" || string(p.Subtype) != "rfc822-headers")
	case "signed":
		return !strings.HasSuffix(string(p.Subtype), "-signature")
	case "alternative":
		return string(p.Type) != "text" || len(p.Filename) > 0
	}
	return true
}

// isBodyText reports whether the part is displayed as the text of the message or as a section of
// it.
func isBodyText[S string | []byte](p partKind[S], parent *partKind[S]) bool {
	return isReadable(p) && (parent == nil || string(parent.Subtype) == "alternative" || len(p.Filename) == 0)
}

// isReadable reports whether a part is plain text or HTML that could be the message's text.
func isReadable[S string | []byte](p partKind[S]) bool {
	return string(p.Type) == "text" && (string(p.Subtype) == "plain" || string(p.Subtype) == "html") && string(p.Disposition) != "attachment"
}

// safeFilename returns a safe file name for an attachment: the last path element of name, which the
// sender chose, without unsafe characters. If nothing is left, the result is made of subject, the
// subject of an attached message, or else of number.
func safeFilename(name, subject, mediaType string, number int) string {
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		name = name[i+1:]
	}
	name = strings.Trim(shortenFilename(strings.Map(safeFileRune, name), 200), " .")
	if name != "" {
		return name
	}
	if subject != "" {
		subject = strings.NewReplacer("/", "_", `\`, "_").Replace(cut(subject, 80))
		subject = strings.Trim(strings.Map(safeFileRune, subject), " .")
		if subject != "" {
			return subject + ".eml"
		}
	}
	return fmt.Sprintf("attachment-%d%s", number, extensionByType[mediaType])
}

// shortenFilename shortens a file name but keeps its extension.
func shortenFilename(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 || len(name)-dot > 16 {
		return cut(name, limit)
	}
	return cut(name[:dot], limit-(len(name)-dot)) + name[dot:]
}

// safeFileRune drops control and invisible characters, such as those that reverse the reading
// direction to hide an extension, and replaces characters that file systems refuse.
func safeFileRune(r rune) rune {
	switch {
	case visible.IsControl(r) || visible.IsInvisible(r):
		return -1
	case strings.ContainsRune(`:*?"<>|`, r):
		return '_'
	}
	return r
}

var extensionByType = map[string]string{
	"application/pdf": ".pdf", "application/zip": ".zip", "application/json": ".json",
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg",
	"text/plain": ".txt", "text/html": ".html", "text/calendar": ".ics", "text/csv": ".csv", "text/vcard": ".vcf",
	"message/rfc822": ".eml", "message/global": ".eml", "audio/mpeg": ".mp3", "video/mp4": ".mp4",
}
