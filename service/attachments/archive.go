package attachments

import (
	"archive/zip"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// GetMessageAttachments returns all attachments of a message as a ZIP archive. The archive is made
// while it is read, so it needs little memory, however large the message is.
func (s *Service) GetMessageAttachments(_ context.Context, who core.Actor, in inbox.MessageIn) (*core.File, error) {
	m, root, blob, err := s.inbox.OpenToRead(who, in)
	if err != nil {
		return nil, err
	}
	all := msg.Attachments(root)
	if len(all) == 0 {
		blob.Close()
		return nil, core.NotFound("attachment")
	}
	return &core.File{Name: "attachments-" + m.UID + ".zip", ContentType: "application/zip", Size: -1, Body: newArchive(blob, all, m.ReceivedAt.Time)}, nil
}

// An archive is a ZIP archive that is made while it is read.
type archive struct {
	*io.PipeReader
	blob *store.Blob
	done chan struct{} // closed when nothing reads from the blob any more
}

func newArchive(blob *store.Blob, files []msg.Attachment, modified time.Time) *archive {
	r, w := io.Pipe()
	a := &archive{r, blob, make(chan struct{})}
	go func() {
		defer close(a.done)
		w.CloseWithError(writeArchive(w, blob, files, modified)) // a nil error ends the archive
	}()
	return a
}

// Close ends the archive, even if it was not read to its end, and closes the message.
func (a *archive) Close() error {
	_ = a.PipeReader.Close() // it always returns nil
	<-a.done
	return a.blob.Close()
}

func writeArchive(w io.Writer, body io.ReaderAt, files []msg.Attachment, modified time.Time) error {
	z := zip.NewWriter(w)
	names := archiveNames(files)
	for i, f := range files {
		h := &zip.FileHeader{Name: names[i], Method: zip.Deflate, Modified: modified.UTC()}
		if isCompressed(f.ContentType) {
			h.Method = zip.Store
		}
		out, err := z.CreateHeader(h)
		if err == nil {
			_, err = io.Copy(out, msg.Open(body, f.Part))
		}
		if err != nil {
			return fmt.Errorf("write attachment %d to an archive: %w", f.Index, err)
		}
	}
	return z.Close()
}

// isCompressed reports whether files of a type are compressed already.
func isCompressed(contentType string) bool {
	top, sub, _ := strings.Cut(contentType, "/")
	return top == "image" && sub != "svg+xml" && sub != "bmp" || top == "video" || top == "audio" ||
		slices.Contains([]string{"zip", "gzip", "x-gzip", "pdf", "x-7z-compressed", "x-rar-compressed"}, sub) || strings.HasPrefix(sub, "vnd.openxmlformats")
}

// archiveNames returns a name for each file. No two names are equal, whatever the case of their
// letters, and none is that of a device of Windows. File names of attachments have no folders and
// no control characters already.
func archiveNames(files []msg.Attachment) []string {
	taken := map[string]bool{}
	next := map[string]int{} // the number for the next file with a name; without it, many equal names would take quadratic time
	out := make([]string, 0, len(files))
	for _, f := range files {
		name := f.Filename
		if isDevice(name) {
			name = "_" + name
		}
		stem, extension := name, ""
		if dot := strings.LastIndexByte(name, '.'); dot > 0 && len(name)-dot <= 16 {
			stem, extension = name[:dot], name[dot:]
		}
		key := strings.ToLower(name)
		for n := max(next[key], 2); taken[strings.ToLower(name)]; n++ {
			name = fmt.Sprintf("%s (%d)%s", stem, n, extension)
			next[key] = n + 1
		}
		taken[strings.ToLower(name)] = true
		out = append(out, name)
	}
	return out
}

// isDevice reports whether Windows opens a device in the place of a file with the name.
func isDevice(name string) bool {
	stem, _, _ := strings.Cut(strings.ToLower(name), ".")
	stem = strings.TrimRight(stem, " ")
	switch {
	case slices.Contains([]string{"con", "prn", "aux", "nul"}, stem):
		return true
	case len(stem) == 4 && (stem[:3] == "com" || stem[:3] == "lpt"):
		return stem[3] >= '0' && stem[3] <= '9'
	}
	return false
}
