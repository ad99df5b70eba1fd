package cli

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"

	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/mail/maildir"
	"github.com/mailstead/mailstead/mail/mbox"
	"github.com/mailstead/mailstead/service/inbox"
)

// A maildirWriter writes a folder of a Maildir.
type maildirWriter struct{ folder maildir.Folder }

func newMaildirWriter(dir string, name []string) (folderWriter, error) {
	if len(name) == 1 && name[0] == inbox.InboxName {
		name = nil
	}
	f, err := maildir.Make(dir, name)
	return maildirWriter{f}, err
}

func (w maildirWriter) write(h operator.ExportHeader, text []byte) error {
	path := filepath.Join(w.folder.Dir, "cur", maildir.FileName(h.Date, h.UID, h.Flags))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	return os.Chtimes(path, h.Date, h.Date)
}

func (w maildirWriter) close() error { return nil }

// An mboxWriter writes an mbox file.
type mboxWriter struct {
	file *os.File
	w    *bufio.Writer
}

func newMboxWriter(dir string, name []string) (folderWriter, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, mbox.FileName(name)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &mboxWriter{f, bufio.NewWriterSize(f, 256<<10)}, nil
}

func (w *mboxWriter) write(h operator.ExportHeader, text []byte) error {
	return mbox.Write(w.w, h.Sender, h.Date, h.Flags, bytes.NewReader(text))
}

func (w *mboxWriter) close() error { return errors.Join(w.w.Flush(), w.file.Close()) }
