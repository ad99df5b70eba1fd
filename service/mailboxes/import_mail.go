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
	"strings"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/mail/mbox"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/transfer"
	"github.com/mailstead/mailstead/store"
)

// ImportMailIn is the body of import_messages. The request may have an mbox file instead.
type ImportMailIn struct {
	core.EmailUserIn
	IMAP *MailServerLogin `json:"imap" required:"true"`
}

// importMailArgs are the arguments of an import job. The source is a server or an uploaded file.
type importMailArgs struct {
	MailboxID string        `json:"mailbox_id"`
	Server    *store.Server `json:"import_server,omitempty"`
	File      string        `json:"file,omitempty"` // path below the directory of uploads

	// Totals of the earlier turns of this import.
	Imported   int64 `json:"imported,omitempty"`
	Bytes      int64 `json:"bytes,omitempty"`
	DurationMS int64 `json:"duration_ms,omitempty"`
}

const kindImport = "import_messages"

// importTurnLength is how long an import runs before it lets another import that waits run.
const importTurnLength = 5 * time.Minute

// ImportMail queues a job that imports the mail of a mailbox on another server.
func (s *Service) ImportMail(ctx context.Context, who core.Actor, in ImportMailIn) (*core.JobResponse, error) {
	server, err := s.sealServer("imap", in.UserID, in.IMAP)
	if err != nil {
		return nil, err
	}
	return s.queueImport(ctx, who, in.UserID, importMailArgs{MailboxID: in.UserID, Server: &server})
}

// MayImport returns an error if mail must not be imported into a mailbox. It is called before a
// file is uploaded.
func (s *Service) MayImport(_ context.Context, who core.Actor, userID string) error {
	return s.Store.View(func(tx *store.Tx) error {
		_, err := importTarget(tx, who, userID)
		return err
	})
}

func importTarget(tx *store.Tx, who core.Actor, userID string) (*store.Mailbox, error) {
	mb, err := core.MailboxOf(tx, who, userID)
	if err == nil && mb.External != nil {
		err = core.Invalid("user_id", "not_allowed", "is a mailbox of another server: bring its mail there")
	}
	if err == nil && mb.Gone() {
		err = core.NotFound("email user")
	}
	return mb, err
}

// ImportUpload queues a job that imports an mbox file that KeepUpload stored. The job deletes the
// file.
func (s *Service) ImportUpload(ctx context.Context, who core.Actor, userID, file string) (*core.JobResponse, error) {
	return s.queueImport(ctx, who, userID, importMailArgs{MailboxID: userID, File: file})
}

func (s *Service) queueImport(ctx context.Context, who core.Actor, userID string, args importMailArgs) (*core.JobResponse, error) {
	var out core.JobResponse
	err := s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		mb, err := importTarget(tx, who, userID)
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
	return s.WhileActive(jobs.Kind{Name: kindImport, Work: s.importMail, Max: 8, Timeout: 24 * time.Hour, PerLane: 1, Most: 4, MostEach: 2, Visible: true, Failed: s.importFailed})
}

// importMail runs one turn of an import. After an interruption it starts again and skips messages
// that were imported already.
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
	im := &transfer.Importer{
		Deliver: func(ctx context.Context, _, folder string, batch []transfer.SourceMessage) ([]transfer.ImportResult, error) {
			if len(batch) == 0 {
				return nil, nil
			}
			in := make([]transfer.ImportMessage, len(batch))
			for i, m := range batch {
				in[i] = transfer.ImportMessage{ImportHeader: m.ImportHeader, Body: bytes.NewReader(m.Text)}
			}
			return s.transfer.ImportMessages(ctx, u, folder, in)
		},
		Known: func(ctx context.Context, _, folder string, keys []string) ([]bool, error) {
			return s.transfer.KnownImports(ctx, u, folder, keys)
		},
		Report:   func(_, folder string, done, total, _ int64) { jobs.Progress(ctx, int(done), int(total), folder) },
		TurnOver: func() bool { return s.Now().Sub(began) >= importTurnLength && jobs.PlaceWanted(ctx) },
	}
	err = s.readImport(ctx, im, args, u)
	turnOver := errors.Is(err, transfer.ErrTurnOver)
	if err != nil && !turnOver {
		return nil, err
	}
	args.Imported += im.Out.Imported
	args.Bytes += im.Out.Bytes
	args.DurationMS += s.Now().Sub(began).Milliseconds()
	if turnOver {
		return func(_ *store.Tx, j *store.Job) error { return jobs.SetArgs(j, args) }, jobs.Snooze(s.Now())
	}
	im.Out.Skipped = max(im.Out.Skipped-(args.Imported-im.Out.Imported), 0) // do not count as skipped the messages that earlier turns of this import have imported
	im.Out.Imported, im.Out.Bytes, im.Out.DurationMS = args.Imported, args.Bytes, args.DurationMS
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

func (s *Service) readImport(ctx context.Context, im *transfer.Importer, args importMailArgs, u core.MailboxUser) error {
	if args.Server == nil {
		path := filepath.Join(s.uploadDir(), args.File)
		f, err := os.Open(path)
		if err != nil {
			return jobs.Permanent(core.Errorf("internal_error", "The file that was sent is gone. Send it again.").Because(err))
		}
		defer f.Close()
		now := time.Now()
		if err := errors.Join(os.Chtimes(path, now, now), im.Begin(ctx, "mbox", u.Email)); err != nil { // shows DropUploads that it is in use
			return err
		}
		err = im.ReadMbox(ctx, f, inbox.InboxName)
		if errors.Is(err, mbox.ErrNotMbox) {
			return jobs.Permanent(core.Errorf("validation_error", "The file is no mbox: it does not begin with a line \"From \".").Because(err))
		}
		return err
	}
	password, err := s.Keys.Open(store.ServerBinding(args.MailboxID, "imap"), args.Server.PasswordSealed)
	if err != nil {
		return err
	}
	at := args.Server
	if err := im.Begin(ctx, at.Username+"@"+at.Host, u.Email); err != nil {
		return err
	}
	return s.transfer.ImportFrom(ctx, im, pull.Server{Host: at.Host, Port: at.Port, Security: at.Security, Username: at.Username, Password: string(password)})
}

// importFailed deletes the file of an import that has failed permanently.
func (s *Service) importFailed(tx *store.Tx, j *store.Job, _ error) error {
	if args, err := jobs.Args[importMailArgs](j); err == nil {
		tx.After(func() { s.dropUpload(args) })
	}
	return nil
}

// uploadDir returns the directory of uploaded files that are not imported yet.
func (s *Service) uploadDir() string { return filepath.Join(s.Store.Dir(), "uploads") }

// dropUpload deletes the file of a job. If that fails, DropUploads deletes it later.
func (s *Service) dropUpload(args importMailArgs) {
	if args.File == "" {
		return
	}
	if err := os.Remove(filepath.Join(s.uploadDir(), args.File)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Log.Warn("could not delete an imported file", "file", args.File, "error", err)
	}
}

// Limits on files that wait to be imported.
const (
	uploadStep     = 16 << 20 // bytes of a file between two checks of the limits
	maxUploads     = 100      // files per account
	maxUploadBytes = 32 << 30 // bytes of all files of an account
)

// An Upload is a file to be imported into a mailbox.
type Upload struct {
	UserID string
	Length int64 // -1: not known yet
	From   io.Reader
}

// KeepUpload stores a file for an import and returns its name for ImportUpload. The file is on disk
// when it returns. The error says which limit of the mailbox, the account or the disk is reached.
// If the file is not imported, the caller deletes it with DropUpload.
func (s *Service) KeepUpload(who core.Actor, in Upload) (name string, err error) {
	dir := filepath.Join(s.uploadDir(), who.AccountID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if room, err := s.uploadSpace(who, in.UserID, ""); err != nil {
		return "", err
	} else if in.Length > room.bytes {
		return "", room.refused
	}
	f, err := os.CreateTemp(dir, in.UserID+"-*.mbox")
	if err != nil {
		return "", err
	}
	var room uploadSpace
	for written := int64(0); err == nil; {
		room, err = s.uploadSpace(who, in.UserID, filepath.Base(f.Name()))
		if err == nil {
			var n int64
			n, err = io.CopyN(f, in.From, min(uploadStep, room.bytes-written+1))
			written += n
			if written > room.bytes {
				err = room.refused
			}
		}
	}
	if err == io.EOF { //nolint:errorlint // CopyN returns io.EOF itself
		err = nil
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("store the uploaded file: %w", err), os.Remove(f.Name()))
	}
	return filepath.Join(who.AccountID, filepath.Base(f.Name())), nil
}

// An uploadSpace says how many bytes an uploaded file may have, and which error a larger file gets.
type uploadSpace struct {
	bytes   int64 // how many bytes a file may have
	refused error // the error for a larger file
}

// uploadSpace returns the space left for a file: in the mailbox's quota, in the account's limit for
// all uploaded files, and on the disk. ownName is the name of the file itself, which is not
// counted; "" before it exists.
func (s *Service) uploadSpace(who core.Actor, userID, ownName string) (room uploadSpace, err error) {
	disk, err := s.Store.Disk()
	if err == nil && disk.Full {
		err = store.ErrFull
	}
	if err != nil {
		return room, err
	}
	files, err := os.ReadDir(filepath.Join(s.uploadDir(), who.AccountID))
	if err != nil {
		return room, err
	}
	var count int
	var all, ofMailbox int64
	for _, f := range files {
		info, err := f.Info()
		if err != nil || f.Name() == ownName { // imported meanwhile, or this file
			continue
		}
		count++
		all += info.Size()
		if strings.HasPrefix(f.Name(), userID+"-") {
			ofMailbox += info.Size()
		}
	}
	if count >= maxUploads {
		e := core.Errorf("rate_limited", "%d files of this account wait to be imported. Send this one when some of them are.", count)
		e.RetryAfter = time.Minute
		return room, e
	}
	room = uploadSpace{maxUploadBytes - all, core.Errorf("payload_too_large", "The files of an account that wait to be imported can have %d GiB together, of which %d bytes are left. Send this one when others are imported, or divide it.",
		maxUploadBytes>>30, max(maxUploadBytes-all, 0))}
	err = s.Store.View(func(tx *store.Tx) error {
		mb, err := importTarget(tx, who, userID)
		if err != nil {
			return err
		}
		storage, err := tx.StorageLeft(mb.AccountID)
		if left := storage - all; left < room.bytes {
			room = uploadSpace{left, core.Errorf(core.CodeQuota, "The file is larger than what is left of the account's storage (%d bytes). Import less, or ask the operator of this server for more.", max(left, 0))}
		}
		if err != nil || mb.QuotaBytes == nil {
			return err
		}
		used, err := tx.MailboxUsage(mb.Num)
		if left := *mb.QuotaBytes - used.Bytes - ofMailbox; left < room.bytes {
			room = uploadSpace{left, core.Errorf(core.CodeQuota, "The file is larger than what is left of the mailbox's quota_bytes (%d bytes). Raise it, or import less.", max(left, 0))}
		}
		return err
	})
	return room, err
}

// DropUpload deletes a file that KeepUpload stored.
func (s *Service) DropUpload(name string) error { return os.Remove(filepath.Join(s.uploadDir(), name)) }

// keepUploadFor is how long an uploaded file without a job is kept. It is longer than an attempt of
// an import may take; each attempt sets the time of its file when it begins.
const keepUploadFor = 48 * time.Hour

// DropUploads deletes uploaded files that no job will import: the server stopped before the job was
// queued, or after the job had ended.
func (s *Service) DropUploads() error {
	err := filepath.WalkDir(s.uploadDir(), func(path string, f fs.DirEntry, err error) error {
		if err != nil || f.IsDir() {
			return err
		}
		info, err := f.Info()
		if err != nil || time.Since(info.ModTime()) < keepUploadFor {
			return nil
		}
		name, err := filepath.Rel(s.uploadDir(), path)
		if err != nil {
			return err
		}
		return s.Store.View(func(tx *store.Tx) error {
			waits, err := store.JobByKey.Find(tx, store.JobKey(kindImport, name))
			if err == nil && waits == nil {
				err = os.Remove(path)
			}
			return err
		})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
