package mailboxes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/mbox"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/store"
)

// ImportMailIn is the body of import_messages; an mbox file stands in its place.
type ImportMailIn struct {
	core.EmailUserIn
	IMAP *MailServerLogin `json:"imap" required:"true"`
}

// importMailArgs is the job that imports: from a server, or from a file that was uploaded.
type importMailArgs struct {
	MailboxID string        `json:"mailbox_id"`
	Server    *store.Server `json:"import_server,omitempty"`
	File      string        `json:"file,omitempty"` // its name in the directory of uploads
}

const kindImport = "import_messages"

// ImportMail has a job import the mail of a mailbox on another server.
func (s *Service) ImportMail(ctx context.Context, who core.Actor, in ImportMailIn) (*core.JobResponse, error) {
	server, err := s.sealServer("imap", in.UserID, in.IMAP)
	if err != nil {
		return nil, err
	}
	return s.planImport(ctx, who, in.UserID, importMailArgs{MailboxID: in.UserID, Server: &server})
}

// MayImport tells whether mail may be imported into a mailbox, before a file is taken for it.
func (s *Service) MayImport(_ context.Context, who core.Actor, userID string) error {
	return s.Store.View(func(tx *store.Tx) error {
		_, err := importInto(tx, who, userID)
		return err
	})
}

func importInto(tx *store.Tx, who core.Actor, userID string) (*store.Mailbox, error) {
	mb, err := core.MailboxOf(tx, who, userID)
	if err == nil && mb.External != nil {
		err = core.Invalid("user_id", "not_allowed", "is a mailbox of another server: bring its mail there")
	}
	if err == nil && mb.Gone() {
		err = core.NotFound("email user")
	}
	return mb, err
}

// ImportUpload has a job import an mbox file, which KeepUpload kept. The job deletes it.
func (s *Service) ImportUpload(ctx context.Context, who core.Actor, userID, file string) (*core.JobResponse, error) {
	return s.planImport(ctx, who, userID, importMailArgs{MailboxID: userID, File: filepath.Base(file)})
}

func (s *Service) planImport(ctx context.Context, who core.Actor, userID string, args importMailArgs) (*core.JobResponse, error) {
	var out core.JobResponse
	err := s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		mb, err := importInto(tx, who, userID)
		if err != nil {
			return err
		}
		j, err := s.Queue.Add(tx, jobs.New{
			AccountID: who.AccountID, Kind: kindImport, Key: args.File, Lane: "import " + mb.ID, Args: args, CreatedBy: who.UserID,
			Resource: store.JobResource{Type: "email_user", ID: mb.ID, Name: mb.Email},
		})
		if err != nil {
			return err
		}
		out = core.JobOut(j)
		return core.Audit(tx, who, core.MailboxTarget(mb))
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

func (s *Service) importMailKind() jobs.Kind {
	return s.WhileActive(jobs.Kind{Name: kindImport, Work: s.importMail, Max: 8, Timeout: 24 * time.Hour, Lanes: 1, Most: 4, MostEach: 2, Visible: true, Failed: s.importFailed})
}

// importMail does one import. One that was interrupted begins again, and leaves out what has come.
func (s *Service) importMail(ctx context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[importMailArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	var u core.MailboxUser
	err = s.Store.View(func(tx *store.Tx) error {
		mb, err := store.Mailboxes.Read(tx, args.MailboxID)
		if err == nil {
			u = core.MailboxUser{AccountID: mb.AccountID, AccountNum: mb.AccountNum, MailboxID: mb.ID, Mailbox: mb.Num, Email: mb.Email}
		}
		return err
	})
	if core.IsGone(err) {
		s.dropUpload(args)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	began := s.Now()
	im := &inbox.Importer{
		Deliver: func(ctx context.Context, _, folder string, batch []inbox.SourceMessage) ([]inbox.ImportResult, error) {
			if len(batch) == 0 {
				return nil, nil
			}
			in := make([]inbox.ImportMessage, len(batch))
			for i, m := range batch {
				in[i] = inbox.ImportMessage{ImportHeader: m.ImportHeader, Body: bytes.NewReader(m.Text)}
			}
			return s.inbox.ImportMessages(ctx, u, folder, in)
		},
		Known: func(ctx context.Context, _, folder string, keys []string) ([]bool, error) {
			return s.inbox.KnownImports(ctx, u, folder, keys)
		},
		Report: func(_, folder string, done, total, _ int64) { jobs.Progress(ctx, int(done), int(total), folder) },
	}
	if err := s.readImport(ctx, im, args, u); err != nil {
		return nil, err
	}
	im.Out.DurationMS = s.Now().Sub(began).Milliseconds()
	result, err := json.Marshal(im.Out)
	if err != nil {
		return nil, err
	}
	return func(tx *store.Tx, j *store.Job) error {
		j.Result = result
		tx.After(func() { s.dropUpload(args) })
		return nil
	}, nil
}

func (s *Service) readImport(ctx context.Context, im *inbox.Importer, args importMailArgs, u core.MailboxUser) error {
	if args.Server == nil {
		path := filepath.Join(s.uploads(), args.File)
		f, err := os.Open(path)
		if err != nil {
			return jobs.Permanent(core.Errorf("internal_error", "The file that was sent is gone. Send it again.").Because(err))
		}
		defer f.Close()
		now := time.Now()
		if err := errors.Join(os.Chtimes(path, now, now), im.Begin(ctx, "mbox", u.Email)); err != nil { // in use: see DropUploads
			return err
		}
		err = im.ReadMbox(ctx, f, inbox.InboxName)
		if errors.Is(err, mbox.ErrNotMbox) {
			return jobs.Permanent(core.Errorf("validation_error", "The file is no mbox: it does not begin with a line \"From \".").Because(err))
		}
		return err
	}
	password, err := s.Keys.Open(store.ServerPlace(args.MailboxID, "imap"), args.Server.PasswordSealed)
	if err != nil {
		return err
	}
	at := args.Server
	if err := im.Begin(ctx, at.Username+"@"+at.Host, u.Email); err != nil {
		return err
	}
	return s.inbox.ImportFrom(ctx, im, pull.Server{Host: at.Host, Port: at.Port, Security: at.Security, Username: at.Username, Password: string(password)})
}

// importFailed deletes the file of an import that is given up.
func (s *Service) importFailed(tx *store.Tx, j *store.Job, _ error) error {
	if args, err := jobs.Args[importMailArgs](j); err == nil {
		tx.After(func() { s.dropUpload(args) })
	}
	return nil
}

// uploads is the directory of files that were uploaded and are not imported yet.
func (s *Service) uploads() string { return filepath.Join(s.Store.Dir(), "uploads") }

// dropUpload deletes the file of a job. One that stays is deleted by DropUploads.
func (s *Service) dropUpload(args importMailArgs) {
	if args.File == "" {
		return
	}
	if err := os.Remove(filepath.Join(s.uploads(), args.File)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Log.Warn("a file that was imported stays", "file", args.File, "error", err)
	}
}

// uploadLook is how many bytes of an upload are taken between two looks at the disk.
const uploadLook = 16 << 20

// KeepUpload keeps a file of any length that is to be imported, on disk when it returns, as long as
// the disk has room, and gives its path. Whoever does not import it deletes it.
func (s *Service) KeepUpload(from io.Reader) (path string, err error) {
	if err := os.MkdirAll(s.uploads(), 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(s.uploads(), "import-*.mbox")
	if err != nil {
		return "", err
	}
	for err == nil {
		var disk store.Disk
		if disk, err = s.Store.Disk(); err == nil && disk.Full {
			err = store.ErrFull
		}
		if err == nil {
			_, err = io.CopyN(f, from, uploadLook)
		}
	}
	if err == io.EOF { //nolint:errorlint // CopyN gives this one itself
		err = nil
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("keep the file: %w", err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// uploadKept is how long a file of an upload stays that no job waits for: longer than an attempt,
// which begins with a fresh time of the file.
const uploadKept = 48 * time.Hour

// DropUploads deletes files of uploads that no job is to import: the server was stopped before
// there was one, or after it had ended.
func (s *Service) DropUploads() error {
	files, err := os.ReadDir(s.uploads())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range files {
		info, statErr := f.Info()
		if statErr != nil || time.Since(info.ModTime()) < uploadKept {
			continue
		}
		viewErr := s.Store.View(func(tx *store.Tx) error {
			waits, err := store.JobByKey.Find(tx, store.JobKey(kindImport, f.Name()))
			if err == nil && waits == nil {
				err = os.Remove(filepath.Join(s.uploads(), f.Name()))
			}
			return err
		})
		err = errors.Join(err, viewErr)
	}
	return err
}
