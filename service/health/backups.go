package health

import (
	"context"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// BackupHealth is the state of the backups that the settings ask for.
type BackupHealth struct {
	Target        *string   `json:"target" words:"ours" example:"s3://backups/mail"` // Where backups go; null if the settings ask for none.
	LastSuccessAt core.Time `json:"last_success_at"`                                 // When the last backup was made.
	AgeSeconds    *int64    `json:"age_seconds" example:"1260"`                      // Since the last backup; null if none was made.
	Verified      *bool     `json:"verified" example:"true"`                         // Whether the last backup was read back.
	// Why the last attempt failed; null if it did not.
	Error             *string   `json:"error" words:"theirs" example:"put db/1: no space left on device" rare:"true"`
	FirstRestorableAt core.Time `json:"first_restorable_at"` // The first time that can be restored.
}

func (s *Service) backupHealth() (b BackupHealth, err error) {
	if s.Backups == nil {
		return b, nil
	}
	state, err := s.Backups.State()
	b.Target = &state.Target
	if !state.LastAt.IsZero() {
		b.LastSuccessAt.Time, b.AgeSeconds, b.Verified = state.LastAt, secondsSince(s.Now(), state.LastAt), &state.Verified
	}
	b.FirstRestorableAt.Time = state.FirstAt
	if failed := state.Err(); failed != nil {
		text := failed.Error()
		b.Error = &text
	}
	return b, err
}

func (s *Service) checkBackup(ctx context.Context) (out []Check) {
	const code = "backup"
	if s.Backups == nil {
		if s.Config.Sandbox {
			return []Check{{Code: code, Status: Skipped, Subject: "[backup]", Message: "The settings ask for no backups."}}
		}
		return badResult(code, Warning, "[backup]", "The settings ask for no backups, so all mail is lost with the disk of this host.",
			"Set `to` in [backup] of mailstead.toml to a directory on another disk or to an s3:// address, and restart the server.")
	}
	if s.Host != nil && !s.Host.Running { // no schedule runs in this process, so the target was not read yet
		s.Backups.LoadState(ctx)
	}
	state, err := s.Backups.State()
	if err != nil {
		return badResult(code, Error, "[backup]", fmt.Sprintf("The entries that are kept cannot be read: %v.", err), "Stop the server and run "+s.commandLine("check")+".")
	}
	why := ""
	if failed := state.Err(); failed != nil {
		why = fmt.Sprintf(" The last try failed: %v.", failed)
	}
	age := s.Now().Sub(state.LastAt).Round(time.Second)
	mend := "See that " + state.Target + " can be reached and has room; the server tries again by itself."
	switch {
	case state.Late && state.LastAt.IsZero():
		out = badResult(code, Error, state.Target, fmt.Sprintf("No backup was made in two intervals of %s.%s", state.Every, why), mend)
	case state.Late:
		out = badResult(code, Error, state.Target, fmt.Sprintf("The last backup is %s old, which is more than two intervals of %s.%s", age, state.Every, why), mend)
	case state.LastAt.IsZero():
		out = badResult(code, Warning, state.Target, "No backup was made yet."+why, mend)
	case why != "":
		out = badResult(code, Warning, state.Target, fmt.Sprintf("The last backup is %s old.%s", age, why), mend)
	}
	if state.Full {
		out = append(out, badResult(code, Warning, state.Target, "More than 1 GiB of changes waited for the backup, so they were dropped: the next backup is a full one, and times since the last one cannot be restored.", mend)...)
	}
	if out == nil {
		return okResult(code, state.Target, "The last backup is %s old.", age)
	}
	return out
}

// lastDrill returns the outcome of the last drill; nil if there was none.
func (s *Service) lastDrill() (d *store.BackupDrill, err error) {
	err = s.Store.View(func(tx *store.Tx) (err error) {
		d, err = store.BackupDrills.Find(tx, store.BackupDrillID)
		return err
	})
	return d, err
}

// checkDrill reports what the last drill found.
func (s *Service) checkDrill(context.Context) []Check {
	const code = "backup_drill"
	if s.Backups == nil {
		return []Check{{Code: code, Status: Skipped, Subject: "[backup]", Message: "The settings ask for no backups."}}
	}
	target := s.Backups.Target.Place.String()
	d, err := s.lastDrill()
	if err != nil {
		return s.storeErrorResult(code, target, err)
	}
	if d == nil {
		return []Check{{Code: code, Status: Skipped, Subject: target,
			Message: "No backup was restored for a trial yet; the key drill in [backup] has the server do it from time to time."}}
	}
	ended, again := d.EndedAt.UTC().Format(time.RFC3339), s.commandLine("call", "drill_backup")
	switch backup := d.BackupAt.UTC().Format(time.RFC3339); {
	case d.Failed != "":
		return badResult(code, Error, target, fmt.Sprintf("The drill of %s could not restore the newest backup: %s", ended, d.Failed),
			"Mend that, and try again: "+again+".")
	case d.Problems > 0:
		problems := "1 problem"
		if d.Problems > 1 {
			problems = fmt.Sprint(d.Problems, " problems")
		}
		return badResult(code, Error, target, fmt.Sprintf("The drill of %s found %s in the backup of %s.", ended, problems, backup),
			s.commandLine("call", "get_job", fmt.Sprintf(`{"job_id":%q}`, d.JobID))+" lists them. If this host's own store is sound ("+s.commandLine("doctor")+
				"), make a full backup with "+s.commandLine("backup", "--full", "--to", target)+", and try again: "+again+".")
	case !d.Decrypted:
		return okResult(code, target, "The drill of %s found every object of the backup of %s as it was stored. It is encrypted, so nothing more was tried.", ended, backup)
	default:
		return okResult(code, target, "The drill of %s restored the backup of %s with %d messages, and found nothing wrong.", ended, backup, d.Messages)
	}
}
