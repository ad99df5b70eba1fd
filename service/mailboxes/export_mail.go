package mailboxes

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/transfer"
	"github.com/mailstead/mailstead/store"
)

// ExportMailIn is the body of export_messages.
type ExportMailIn struct {
	core.EmailUserIn
	Format string `json:"format" required:"true" enum:"maildir|mbox" log:"true"`
}

// MailExported is the result of the job: the link to a tar file of the mail. The link works once.
type MailExported struct {
	URL       string    `json:"url"`
	ExpiresAt core.Time `json:"expires_at"`
}

// exportMailArgs are the arguments of the job that creates the link.
type exportMailArgs struct {
	MailboxID string `json:"mailbox_id"`
	Format    string `json:"format"`
	UserID    string `json:"user_id"` // the user who asked for it
}

// ExportMail queues a job that creates a link to all mail of a mailbox: a tar file with a Maildir
// or with mbox files.
func (s *Service) ExportMail(ctx context.Context, who core.Actor, in ExportMailIn) (*core.JobResponse, error) {
	var out core.JobResponse
	err := s.Store.Update(func(tx *store.Tx) error {
		tx.For(ctx)
		mb, err := core.MailboxOf(tx, who, in.UserID)
		if err != nil {
			return err
		}
		if mb.External != nil {
			return core.Invalid("user_id", "not_allowed", "is a mailbox of another server: export its mail there")
		}
		j, err := s.Queue.Add(tx, jobs.New{
			AccountID: who.AccountID, Kind: KindExport, Key: mb.ID + " " + in.Format, Args: exportMailArgs{mb.ID, in.Format, who.UserID},
			Resource: store.JobResource{Type: "email_user", ID: mb.ID, Name: mb.Email}, CreatedBy: who.UserID,
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

// KindExport is the kind of the job that exports the mail of a mailbox. Its result has the link to
// the file.
const KindExport = "export_messages"

func (s *Service) exportMailKind() jobs.Kind {
	return jobs.Kind{Name: KindExport, Work: s.exportMail, Max: 5, Timeout: time.Minute, Visible: true}
}

func (s *Service) exportMail(_ context.Context, j *store.Job) (jobs.Writes, error) {
	args, err := jobs.Args[exportMailArgs](j)
	if err != nil {
		return nil, jobs.Permanent(err)
	}
	token := core.RandomText(43, core.Base62)
	return func(tx *store.Tx, j *store.Job) error {
		mb, err := store.Mailboxes.Find(tx, args.MailboxID)
		if err != nil || mb == nil || mb.Gone() {
			return err // deleted meanwhile, together with its job
		}
		e := &store.Export{
			ID: tx.NewID("exp"), AccountID: mb.AccountID, CreatedBy: args.UserID, Format: args.Format, Link: core.TokenHash(token),
			Mailboxes: binary.BigEndian.AppendUint32(nil, mb.Num), CreatedAt: tx.Now(), ExpiresAt: tx.Now().Add(LinkTTL),
		}
		j.Result, err = json.Marshal(MailExported{s.Config.BaseURL + "/export/" + token, core.Time{Time: e.ExpiresAt}})
		if err != nil {
			return err
		}
		return store.Exports.Put(tx, e)
	}, nil
}

// mailFile returns the tar file of a link.
func (s *Service) mailFile(ctx context.Context, e *store.Export) (*core.File, error) {
	var u core.MailboxUser
	err := s.Store.View(func(tx *store.Tx) error {
		mb, err := store.MailboxByNum.Read(tx, store.NumKey(binary.BigEndian.Uint32(e.Mailboxes)))
		if err == nil {
			u = core.MailboxUser{AccountID: mb.AccountID, AccountNum: mb.AccountNum, MailboxID: mb.ID, Mailbox: mb.Num, Email: mb.Email}
		}
		return err
	})
	if core.IsGone(err) || err == nil && u.AccountID != e.AccountID {
		return nil, errNoExport()
	}
	if err != nil {
		return nil, err
	}
	return &core.File{Name: u.Email + "-" + e.Format + ".tar", ContentType: "application/x-tar", Size: -1, Body: s.transfer.MailTar(ctx, u, e.Format)}, nil
}

func isMailFormat(format string) bool {
	return format == transfer.ExportMaildir || format == transfer.ExportMbox
}
