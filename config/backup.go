package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"filippo.io/age"
)

// S3 is the table [s3]: how to reach the S3 server of s3:// addresses. Another table, such as
// [backup], can override single keys.
type S3 struct {
	Endpoint      string `toml:"endpoint" text:"URL of the S3 server; without it AWS's of the region"`
	Region        string `toml:"region" text:"region of the S3 server"`
	AccessKeyFile string `toml:"access_key_file" text:"file with the access key: two lines"`
	PathStyle     *bool  `toml:"path_style" text:"whether the bucket is in the path of URLs"`
}

func (s *S3) check() error {
	u, err := url.Parse(s.Endpoint)
	if s.Endpoint != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "") {
		return fmt.Errorf("[s3] endpoint: %q is not the address of a server; write https://HOST or https://HOST:PORT", s.Endpoint)
	}
	return nil
}

// WithDefaults returns s with its unset fields taken from defaults.
func (s S3) WithDefaults(defaults S3) S3 {
	return S3{
		cmp.Or(s.Endpoint, defaults.Endpoint), cmp.Or(s.Region, defaults.Region), cmp.Or(s.AccessKeyFile, defaults.AccessKeyFile),
		cmp.Or(s.PathStyle, defaults.PathStyle),
	}
}

// backupSettings is the table [backup].
type backupSettings struct {
	To         string         `toml:"to" text:"where backups go: a directory, or s3://BUCKET/PREFIX"`
	Every      duration       `toml:"every" change:"store" text:"time between two backups"`
	FullEvery  duration       `toml:"full_every" change:"store" text:"time between two full backups"`
	Keep       duration       `toml:"keep" text:"how far back a restore is possible"`
	Drill      duration       `toml:"drill" change:"store" text:"time between two trial restores of the newest backup"`
	Sync       bool           `toml:"sync" text:"whether nothing is acknowledged before the backup has it"`
	Recipients []ageRecipient `toml:"age_recipients" text:"age public keys that backups are encrypted for"`
	S3
}

// Backup says where and when to make backups.
type Backup struct {
	To                     string        // directory or s3:// address; "" if there are no backups
	Every, FullEvery, Keep time.Duration // intervals of backups and of full backups; how long to keep them
	Drill                  time.Duration // interval of drills, which restore the newest backup for a trial; 0: there are none
	Sync                   bool          // whether writes wait until the target has stored them
	Recipients             []age.Recipient
	S3                     S3
}

// Backups returns the settings of backups.
func (s *Settings) Backups() Backup {
	b := s.Backup
	var recipients []age.Recipient
	for _, r := range b.Recipients {
		recipients = append(recipients, r.key)
	}
	return Backup{
		To: b.To, Every: b.Every.d, FullEvery: b.FullEvery.d, Keep: b.Keep.d,
		Drill: b.Drill.d, Sync: b.Sync, Recipients: recipients, S3: b.S3.WithDefaults(s.S3),
	}
}

func (b *backupSettings) check() error {
	if err := b.S3.check(); err != nil {
		return err
	}
	if b.Drill.d != 0 && b.Drill.d < time.Hour {
		return fmt.Errorf("[backup] drill: %s is too short; write at least 1h", b.Drill.d)
	}
	if b.To == "" {
		if b.Sync {
			return errors.New("[backup] sync needs a target: set the key to")
		}
		return nil
	}
	if strings.Contains(b.To, "://") && !strings.HasPrefix(b.To, "s3://") {
		return fmt.Errorf("[backup] to: %q is not a target; write s3://BUCKET/PREFIX or the path of a directory", b.To)
	}
	if b.Every.d < time.Minute {
		return fmt.Errorf("[backup] every: %s is too short; write at least 1m", b.Every.d)
	}
	return nil
}

// An ageRecipient is an age public key.
type ageRecipient struct{ key age.Recipient }

// UnmarshalText parses the public key.
func (r *ageRecipient) UnmarshalText(text []byte) (err error) {
	r.key, err = AgeRecipient(string(text))
	return err
}

// AgeRecipient parses one age public key.
func AgeRecipient(text string) (age.Recipient, error) {
	list, err := age.ParseRecipients(strings.NewReader(text))
	if err != nil || len(list) != 1 {
		return nil, fmt.Errorf("%q is not an age public key; write age1…, as `age-keygen` prints it", text)
	}
	return list[0], nil
}
