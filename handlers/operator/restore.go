package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/transfer"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/backup"
)

// RestoreMailboxIn is the request to restore a mailbox from a backup.
type RestoreMailboxIn struct {
	Mailbox  string    `json:"mailbox"`  // address
	Into     string    `json:"into"`     // folder
	At       time.Time `json:"at"`       // the time to restore; zero: the newest
	From     string    `json:"from"`     // absolute path or URL of the backup; "": the target in the settings
	Identity string    `json:"identity"` // age secret keys; "": the backup is not encrypted
	S3       S3Access  `json:"s3"`
}

// restoreMailbox restores a mailbox from a backup into a folder of the current mailbox.
func (o *Operator) restoreMailbox(ctx context.Context, ask RestoreMailboxIn) (out transfer.MailboxRestored, err error) {
	settings := o.Settings.Backups()
	var ids []age.Identity
	if ask.Identity != "" {
		ids, err = age.ParseIdentities(strings.NewReader(ask.Identity))
		if err != nil {
			return out, fmt.Errorf("read the age identity of the backup: %w", err)
		}
	}
	from := cmp.Or(ask.From, settings.To)
	if from == "" {
		return out, errors.New("the settings have no [backup]: give the place of the backups with --from")
	}
	dir, err := os.MkdirTemp(o.Store.Dir(), "restore-")
	if err != nil {
		return out, err
	}
	defer os.RemoveAll(dir)
	if IsArchive(from) {
		_, err = backup.RestoreArchive(ctx, from, dir, ask.At, ids, o.Version)
	} else {
		at, placeErr := PlaceAt(from, ask.S3, settings.S3, o.Settings.CAFile)
		if placeErr != nil {
			return out, placeErr
		}
		if o.Schedule != nil && ask.From == "" {
			// The target may lack the newest changes, so that messages that were just deleted would
			// be missing.
			if err := o.Schedule.Target.Send(ctx, o.Store); err != nil {
				return out, err
			}
		}
		target := &backup.Target{Place: at, Identities: ids, Temp: o.Store.Dir(), Program: o.Version}
		_, err = target.Restore(ctx, dir, ask.At, o.Log)
	}
	if err != nil {
		return out, err
	}
	old, err := store.Open(dir, store.Options{Unsynced: true, Log: o.Log, Program: o.Version})
	if err != nil {
		return out, err
	}
	out, err = o.Service.Transfer.RestoreMailbox(ctx, old, ask.Mailbox, ask.Into)
	if err == nil {
		var u core.MailboxUser
		u, err = o.Service.Transfer.FindMailbox(ask.Mailbox, "")
		if err == nil {
			err = o.recordAudit("restore", u)
		}
	}
	return out, errors.Join(err, old.Close())
}
