package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/mail/maildir"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/transfer"
)

func runImportMaildir(ctx context.Context, e *env, o importOptions) error {
	return importEach(ctx, e, o, func(im *transfer.Importer, from string) error {
		if _, err := os.Stat(from); err == nil && !isDir(from) {
			return config.Mistake(fmt.Errorf("%s is a file: name the directory of a Maildir; `mailstead import mbox` reads mbox files", from))
		}
		folders, err := maildir.Folders(from)
		if err != nil {
			return err
		}
		for _, f := range folders {
			list, err := maildir.Messages(f)
			if err != nil {
				return err
			}
			im.Expect(int64(len(list)))
			folder := transfer.ImportFolder(f.Name)
			for _, m := range list {
				text, err := readMaildirMessage(f, m)
				// Two Maildirs may use the same file name for different messages.
				key := fmt.Sprintf("maildir %s %x", m.Name, sha256.Sum256(text))
				one := transfer.SourceMessage{ImportHeader: transfer.ImportHeader{Key: key, Flags: m.Flags, Date: m.Date}, Source: m.Path, Text: text, Err: err}
				if err := im.Add(ctx, folder, one); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// readMaildirMessage reads a message and converts its line endings to CRLF. It returns
// transfer.ErrImportTooLarge for a file that is too large.
func readMaildirMessage(f maildir.Folder, m maildir.Message) ([]byte, error) {
	if m.Size > core.MaxMessage {
		return nil, transfer.ErrImportTooLarge
	}
	file, err := maildir.Open(f, m)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, core.MaxMessage+1))
	return withCRLF(text), err
}

// withCRLF converts bare LF line endings to CRLF.
func withCRLF(text []byte) []byte {
	bare := bytes.Count(text, []byte("\n")) - bytes.Count(text, []byte("\r\n"))
	if bare == 0 {
		return text
	}
	out := make([]byte, 0, len(text)+bare)
	for i, c := range text {
		if c == '\n' && (i == 0 || text[i-1] != '\r') {
			out = append(out, '\r')
		}
		out = append(out, c)
	}
	return out
}
