// Package attachments opens the files in messages: one as it is, all of them as an archive, and one
// to look at in a browser. It does not know how messages are found, nor how an answer is sent.
//
// Where things are:
//   - service.go: one file ([Service.GetMessageAttachment]).
//   - archive.go: all files of a message as a ZIP ([Service.GetMessageAttachments]).
//   - preview.go: a picture or a text to show ([Service.ViewAttachment]).
package attachments

import (
	"context"
	"io"
	"mime"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// A Service opens the files in messages.
type Service struct {
	inbox *inbox.Service
}

// New returns a Service.
func New(in *inbox.Service) *Service { return &Service{in} }

// FileIn names an attachment of a message by its index.
type FileIn struct {
	inbox.MessageIn
	Index string `path:"index"`
}

// open opens an attachment. The caller must close the blob.
func (s *Service) open(who core.Actor, in FileIn) (msg.Attachment, *store.Blob, error) {
	_, root, blob, err := s.inbox.OpenToRead(who, in.MessageIn)
	if err != nil {
		return msg.Attachment{}, nil, err
	}
	all := msg.Attachments(root)
	i, err := strconv.Atoi(in.Index)
	if err != nil || i < 0 || i >= len(all) {
		blob.Close()
		return msg.Attachment{}, nil, core.NotFound("attachment")
	}
	return all[i], blob, nil
}

// A content reads the decoded bytes of an attachment, and closes the message that has it.
type content struct {
	io.Reader
	io.Closer
}

// GetMessageAttachment returns the decoded bytes of an attachment.
func (s *Service) GetMessageAttachment(_ context.Context, who core.Actor, in FileIn) (*core.File, error) {
	a, blob, err := s.open(who, in)
	if err != nil {
		return nil, err
	}
	// Size is not set: if the transfer encoding is damaged, the decoded size is only an estimate.
	return &core.File{Name: a.Filename, ContentType: safeType(a.ContentType), Size: -1, Body: content{msg.Open(blob, a.Part), blob}}, nil
}

// safeType returns the content type with which an attachment is served: application/octet-stream
// for types that a browser might run, and otherwise the attachment's own type.
func safeType(contentType string) string {
	const octetStream = "application/octet-stream"
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return octetStream
	}
	top, sub, _ := strings.Cut(media, "/")
	switch {
	case top == "multipart", sub == "", strings.Contains(sub, "html"), strings.Contains(sub, "script"), strings.Contains(sub, "flash"):
		return octetStream
	case sub == "xml", strings.HasSuffix(sub, "+xml"), sub == "xml-dtd", strings.HasPrefix(sub, "xsl"):
		return octetStream
	}
	return media
}
