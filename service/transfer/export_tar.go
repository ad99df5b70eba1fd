package transfer

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strings"

	"github.com/mailstead/mailstead/mail/maildir"
	"github.com/mailstead/mailstead/mail/mbox"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
)

// Formats of exported mail.
const (
	ExportMaildir = "maildir"
	ExportMbox    = "mbox"
)

// exportPageBytes is how many bytes of messages an export reads into memory at a time.
const exportPageBytes = 4 << 20

// MailTar returns all mail of a mailbox as a tar archive. The archive has a directory with the
// mailbox's address as its name, which contains a Maildir, or one mbox file for each folder.
// Messages that cannot be read are left out and listed in errors.txt. The archive is written while
// the caller reads it. The caller must close it.
func (s *Service) MailTar(ctx context.Context, u core.MailboxUser, format string) io.ReadCloser {
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		x := &tarExport{s: s, u: u, dir: strings.ReplaceAll(u.Email, "/", "_"), out: tar.NewWriter(w)}
		w.CloseWithError(x.write(ctx, format))
	}()
	return &tarReader{r, cancel}
}

// A tarReader reads the archive that a goroutine writes.
type tarReader struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close stops the goroutine that writes the archive.
func (r *tarReader) Close() error {
	r.cancel()
	return r.PipeReader.Close()
}

// A tarExport writes the mail of a mailbox into a tar archive.
type tarExport struct {
	s          *Service
	u          core.MailboxUser
	dir        string
	out        *tar.Writer
	unreadable bytes.Buffer // a line for each message that cannot be read
}

// write writes the whole archive.
func (x *tarExport) write(ctx context.Context, format string) error {
	folders, err := x.s.ExportFolders(ctx, x.u)
	if err != nil {
		return err
	}
	for _, f := range folders {
		write := x.writeMaildir
		if format == ExportMbox {
			write = x.writeMbox
		}
		if err := write(ctx, f); err != nil {
			return err
		}
	}
	if x.unreadable.Len() > 0 {
		h := &tar.Header{Name: path.Join(x.dir, "errors.txt"), Mode: 0o600, Size: int64(x.unreadable.Len()), ModTime: x.s.Now()}
		if _, err := x.writeFile(h, &x.unreadable); err != nil {
			return err
		}
	}
	return x.out.Close()
}

// writeFile writes one file into the archive.
func (x *tarExport) writeFile(h *tar.Header, body io.Reader) (written int64, err error) {
	if err := x.out.WriteHeader(h); err != nil {
		return 0, err
	}
	return io.Copy(x.out, body)
}

// eachMessage calls see for each message of a folder that can be read, and notes the others in
// unreadable.
func (x *tarExport) eachMessage(ctx context.Context, f ExportFolder, see func(ExportMessage) error) error {
	for from, more := uint32(1), true; more; {
		list, behind, err := x.s.ExportMessages(ctx, x.u, f.ID, from, exportPageBytes)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		for _, m := range list {
			if m.Err != nil {
				fmt.Fprintf(&x.unreadable, "%s UID %d: %v\n", strings.Join(f.Name, "/"), m.UID, m.Err)
				continue
			}
			if err := see(m); err != nil {
				return err
			}
		}
		more = behind && list[len(list)-1].UID < math.MaxUint32
		if more {
			from = list[len(list)-1].UID + 1
		}
	}
	return nil
}

// writeMaildir writes a folder as a Maildir.
func (x *tarExport) writeMaildir(ctx context.Context, f ExportFolder) error {
	levels := f.Name
	if len(levels) == 1 && levels[0] == inbox.InboxName {
		levels = nil
	}
	dir := path.Join(x.dir, maildir.DirName(levels))
	for _, sub := range []string{"cur", "new", "tmp"} {
		if err := x.out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/" + sub + "/", Mode: 0o700, ModTime: x.s.Now()}); err != nil {
			return err
		}
	}
	if levels != nil {
		if err := x.out.WriteHeader(&tar.Header{Name: dir + "/maildirfolder", Mode: 0o600, ModTime: x.s.Now()}); err != nil {
			return err
		}
	}
	return x.eachMessage(ctx, f, func(m ExportMessage) error {
		h := &tar.Header{Name: dir + "/cur/" + maildir.FileName(m.Date, m.UID, m.Flags), Mode: 0o600, Size: int64(len(m.Text)), ModTime: m.Date}
		_, err := x.writeFile(h, bytes.NewReader(m.Text))
		return err
	})
}

// writeMbox writes a folder as an mbox file. It writes the file to disk first, because the archive
// needs its size in advance.
func (x *tarExport) writeMbox(ctx context.Context, f ExportFolder) error {
	spool := x.s.Store.NewSpool(math.MaxInt64 / 2)
	defer spool.Close()
	to := bufio.NewWriterSize(spool, 256<<10)
	err := x.eachMessage(ctx, f, func(m ExportMessage) error { return mbox.Write(to, m.Sender, m.Date, m.Flags, bytes.NewReader(m.Text)) })
	if err = errors.Join(err, to.Flush()); err != nil {
		return err
	}
	h := &tar.Header{Name: path.Join(x.dir, mbox.FileName(f.Name)), Mode: 0o600, Size: spool.Size(), ModTime: x.s.Now()}
	_, err = x.writeFile(h, io.NewSectionReader(spool, 0, spool.Size()))
	return err
}
