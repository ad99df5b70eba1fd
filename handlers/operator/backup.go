package operator

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/mailstead/mailstead/config"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store/backup"
	"github.com/mailstead/mailstead/store/keyfile"
	"github.com/mailstead/mailstead/store/objects"
)

// S3Access is how a command reaches S3 buckets. It has the key itself, because a running server may
// not be able to read the key file, and does not have the environment of the command.
type S3Access struct {
	Endpoint  string `json:"endpoint"`
	Region    string `json:"region"`
	Key       string `json:"key"`
	Secret    string `json:"secret"`
	PathStyle *bool  `json:"path_style"`
}

// PlaceAt returns the place of backups (see objects.Place) at an address, which is a path or the
// URL of a bucket. Access data in a override those in the settings.
func PlaceAt(address string, a S3Access, settings config.S3, caFile string) (objects.Place, error) {
	roots, err := config.RootCAs(caFile)
	if err != nil {
		return nil, err
	}
	return objects.At(address, objects.S3{
		Endpoint: cmp.Or(a.Endpoint, settings.Endpoint), Region: cmp.Or(a.Region, settings.Region), PathStyle: cmp.Or(a.PathStyle, settings.PathStyle),
		Key: a.Key, Secret: a.Secret, AccessKeyFile: settings.AccessKeyFile, RootCAs: roots,
	})
}

// IsArchive reports whether a backup at the address is a single file, not a directory or bucket.
func IsArchive(address string) bool {
	if objects.IsRemote(address) || strings.HasSuffix(address, "/") {
		return false
	}
	info, err := os.Stat(address)
	return err != nil || !info.IsDir()
}

// BackupIn is the operator's request for a backup.
type BackupIn struct {
	To         string   `json:"to"` // an absolute path, or the URL of a bucket
	Full       bool     `json:"full"`
	NoVerify   bool     `json:"no_verify"`
	Recipients []string `json:"recipients"` // age public keys; empty: those in the settings
	S3         S3Access `json:"s3"`
}

// BackupFiles are the names of the files in the data directory that a backup has in addition to the
// store. The next master key comes before the current one: if a key rotation renames it during the
// backup, one of the two files still has it.
var BackupFiles = []string{keyfile.NextName, keyfile.Name, "mailstead.toml"}

// backupSource returns what is backed up: the store and BackupFiles.
func (o *Operator) backupSource() backup.Source {
	return backup.Source{Store: o.Store, Files: BackupFiles, Program: o.Version, Log: o.Log}
}

// NewSchedule returns the scheduled backups that the settings ask for, nil if there are none.
func (o *Operator) NewSchedule() (*backup.Schedule, error) {
	b := o.Settings.Backups()
	if b.To == "" {
		return nil, nil
	}
	to, err := PlaceAt(b.To, S3Access{}, b.S3, o.Settings.CAFile)
	if err != nil {
		return nil, config.Mistake(fmt.Errorf("[backup] to in the settings: %w", err))
	}
	return &backup.Schedule{
		Target: &backup.Target{Place: to, Recipients: b.Recipients, Temp: o.Store.Dir(), Program: o.Version}, Source: o.backupSource(),
		Every: b.Every, FullEvery: b.FullEvery, Keep: b.Keep, Sync: b.Sync,
	}, nil
}

// backUp makes the backup that the operator requested.
func (o *Operator) backUp(ctx context.Context, ask BackupIn) (*backup.Result, error) {
	settings := o.Settings.Backups()
	recipients := settings.Recipients
	if len(ask.Recipients) > 0 {
		recipients = nil
	}
	for _, text := range ask.Recipients {
		r, err := config.AgeRecipient(text)
		if err != nil {
			return nil, err
		}
		recipients = append(recipients, r)
	}
	// The audit row is written before the backup, which contains it. If the store accepts no
	// writes, the backup is made without it.
	if err := o.recordAudit("backup", core.MailboxUser{}); err != nil {
		o.Log.Warn("record a backup in the audit log", "error", err)
	}
	if IsArchive(ask.To) {
		return backup.WriteArchive(ctx, ask.To, o.backupSource(), recipients, !ask.NoVerify)
	}
	if o.Schedule != nil && len(ask.Recipients) == 0 && strings.TrimRight(ask.To, "/") == strings.TrimRight(settings.To, "/") {
		return o.Schedule.Backup(ctx, ask.Full, !ask.NoVerify)
	}
	to, err := PlaceAt(ask.To, ask.S3, settings.S3, o.Settings.CAFile)
	if err != nil {
		return nil, err
	}
	o.backingUp.Lock()
	defer o.backingUp.Unlock()
	target := &backup.Target{Place: to, Recipients: recipients, Temp: o.Store.Dir(), Guest: o.Schedule != nil, Program: o.Version}
	return target.Run(ctx, o.backupSource(), ask.Full, !ask.NoVerify)
}
