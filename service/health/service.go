// Package health tells the operator whether the installation is well: the store, the disk, the
// queue, the backups. It does not know how anything is mended, only whom to tell what to do.
//
// Where things stand:
//   - service.go: what get_health answers, and the run that looks again from time to time.
//   - checks.go: the table of checks, and those of the installation itself.
//   - surroundings.go: checks of the host, the DNS and the network around it.
//   - alerts.go: how the operator is notified of what is not ok.
package health

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/backup"
)

// lookEvery is how long after one look at everything the next one is.
const lookEvery = 10 * time.Minute

// A Service looks at the installation.
type Service struct {
	*core.Core
	// Backups are those that the settings ask for; nil: they ask for none. It is set before use.
	Backups *backup.Schedule
	// Certificates are those of the listeners. It is set before use.
	Certificates Certificates
	// Host is where the program runs; nil: what is outside of it is not looked at. It is set before
	// use.
	Host *Host

	events  *events.Service
	started time.Time
	clock   clock

	looking sync.Mutex // held by one look at everything

	mu    sync.Mutex
	found map[string][]Check // by code, at the last look at everything
	at    time.Time          // of that look
}

// New puts the room together.
func New(c *core.Core, e *events.Service) *Service {
	s := &Service{Core: c, events: e, started: c.Now(), clock: clock{start: time.Now()}}
	s.addMetrics(&c.Metrics.Registry)
	return s
}

// Statuses of a check, and of all together.
const (
	OK      = "ok"
	Warning = "warning"
	Error   = "error"
	Skipped = "skipped"
)

// Health is how the installation is.
type Health struct {
	Status    string         `json:"status" enum:"ok|warning|error"` // The worst of the checks.
	Hostname  string         `json:"hostname" words:"ours"`
	CheckedAt core.Time      `json:"checked_at"` // When everything was looked at last; what is cheap is looked at anew for each request.
	Checks    []Check        `json:"checks"`
	Version   string         `json:"version" words:"ours"`
	Role      string         `json:"role" enum:"single|primary|standby"` // What this server is among those that share its mail.
	StartedAt core.Time      `json:"started_at"`                         // When the server was started.
	Store     StoreHealth    `json:"store"`
	Queue     QueueHealth    `json:"queue"`
	Backup    BackupHealth   `json:"backup"`
	Objects   *ObjectsHealth `json:"objects" rare:"true"` // The bucket that keeps messages; null if there is none.
	Standby   *StandbyHealth `json:"standby" rare:"true"` // How far the standby is; null if there is none.
}

// A Check is what was found about one thing.
type Check struct {
	Code    string `json:"code" words:"ours" example:"backup"` // What was looked at. More codes may be added.
	Status  string `json:"status" enum:"ok|warning|error|skipped"`
	Subject string `json:"subject" words:"ours" example:"s3://backups/mail"`             // The thing that was looked at.
	Message string `json:"message" words:"ours" example:"The last backup is 21m0s old."` // For people; the text may change.
	// What to do; null where nothing is wrong.
	Mend *string `json:"mend" words:"ours" example:"See that s3://backups/mail can be reached and has room; the server tries again by itself." rare:"true"`
}

// StoreHealth is how the store is.
type StoreHealth struct {
	Bytes     int64 `json:"bytes" example:"734003200"`
	FreeBytes int64 `json:"free_bytes" example:"53687091200"`
	Messages  int64 `json:"messages" example:"18230"`
	ReadOnly  bool  `json:"read_only" example:"false"` // Whether the store takes no more writes.
}

// QueueHealth is what waits to be sent.
type QueueHealth struct {
	Depth         int    `json:"depth" example:"12"`           // Messages that wait to be sent, one for each recipient.
	OldestSeconds *int64 `json:"oldest_seconds" example:"340"` // How long the oldest of them has waited; null if none does.
}

// BackupHealth is how the backups are that the settings ask for.
type BackupHealth struct {
	Target        *string   `json:"target" words:"ours" example:"s3://backups/mail"` // Where backups go; null if the settings ask for none.
	LastSuccessAt core.Time `json:"last_success_at"`                                 // When the last backup was made.
	AgeSeconds    *int64    `json:"age_seconds" example:"1260"`                      // Since the last backup; null if none was made.
	Verified      *bool     `json:"verified" example:"true"`                         // Whether the last backup was read back.
	// Why the last try failed; null if it did not.
	Error *string `json:"error" words:"theirs" example:"put db/1: no space left on device" rare:"true"`
}

// ObjectsHealth is how the bucket is that keeps messages.
type ObjectsHealth struct {
	Reachable  bool  `json:"reachable" example:"true"`
	Pending    int64 `json:"pending" example:"0"`
	CacheBytes int64 `json:"cache_bytes" example:"1073741824"`
}

// StandbyHealth is how far a standby is.
type StandbyHealth struct {
	Number     int64 `json:"number" example:"48211"`
	LagSeconds int64 `json:"lag_seconds" example:"1"`
}

// GetHealth shows how the installation is, to its operator.
func (s *Service) GetHealth(ctx context.Context, who core.Actor) (*Health, error) {
	if err := s.mustOperate(who); err != nil {
		return nil, err
	}
	out := &Health{Hostname: s.Hostname(), Version: s.Config.Version, Role: "single", StartedAt: core.Time{Time: s.started}}
	out.Checks, out.CheckedAt.Time = s.look(ctx)
	out.Status = worst(out.Checks)
	out.Store.ReadOnly = s.Store.Failed() != nil
	disk, err := s.Store.Disk()
	if err != nil {
		return nil, err
	}
	held, err := s.Store.Holdings()
	if err != nil {
		return nil, err
	}
	out.Store.Bytes, out.Store.Messages, out.Store.FreeBytes = held.Bytes, held.Messages, disk.Free
	out.Queue, err = s.queueHealth()
	if err != nil {
		return nil, err
	}
	out.Backup, err = s.backupHealth()
	return out, err
}

// NotReady names why the server takes no mail and no changes, in the words of /readyz; none: it
// does.
func (s *Service) NotReady() (reasons []string) {
	if disk, err := s.Store.Disk(); err == nil && disk.Full {
		reasons = append(reasons, "storage_full")
	}
	if s.Store.Failed() != nil {
		reasons = append(reasons, "store_failed")
	}
	return reasons
}

// mustOperate refuses everybody but the operator: who owns the first account, or asks over the
// local socket.
func (s *Service) mustOperate(who core.Actor) error {
	if who.TokenID == core.LocalToken {
		return nil
	}
	return s.Store.View(func(tx *store.Tx) error {
		operates, err := core.Operates(tx, who.AccountID, who.Role)
		if err == nil && !operates {
			err = core.Errorf("forbidden_role", "Only the owner of the installation's first account may see this.")
		}
		return err
	})
}

// queueHealth counts the messages that wait, one for each recipient.
func (s *Service) queueHealth() (q QueueHealth, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		var oldest time.Time
		for _, id := range store.OutgoingsWaiting.Keys(tx, "", "") {
			q.Depth++
			if at, ok := store.IDTime(id); ok && (oldest.IsZero() || at.Before(oldest)) {
				oldest = at
			}
		}
		if q.Depth > 0 {
			q.OldestSeconds = secondsSince(tx.Now(), oldest)
		}
		return nil
	})
	return q, err
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
	if failed := state.Err(); failed != nil {
		text := failed.Error()
		b.Error = &text
	}
	return b, err
}

func secondsSince(now, at time.Time) *int64 {
	n := max(0, int64(now.Sub(at)/time.Second))
	return &n
}

// worst is the status of all checks together.
func worst(checks []Check) string {
	status := OK
	for _, c := range checks {
		if c.Status == Error || c.Status == Warning && status == OK {
			status = c.Status
		}
	}
	return status
}

// look gives what the last look at everything found, with what is looked at again each time, and
// when that last look was.
func (s *Service) look(ctx context.Context) ([]Check, time.Time) {
	s.mu.Lock()
	first := s.found == nil
	s.mu.Unlock()
	if first {
		s.lookAtAll(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Check
	for _, one := range s.checks() {
		list := s.found[one.code]
		if one.live {
			list = one.look(ctx)
		}
		out = append(out, list...)
	}
	return out, s.at
}

// lookAtAll makes every check, all at the same time, and tells the log what has become worse or
// better since the last time.
func (s *Service) lookAtAll(ctx context.Context) {
	s.looking.Lock()
	defer s.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	table := s.checks()
	lists := make([][]Check, len(table))
	var all sync.WaitGroup
	for i, one := range table {
		all.Go(func() { lists[i] = one.look(ctx) })
	}
	all.Wait()
	if ctx.Err() == context.Canceled {
		return // what was cut short found nothing out
	}
	found := map[string][]Check{}
	for i, one := range table {
		found[one.code] = lists[i]
	}
	s.mu.Lock()
	before := s.found
	s.found, s.at = found, s.Now()
	s.mu.Unlock()
	for _, one := range table {
		list := found[one.code]
		was, is := worst(before[one.code]), worst(list)
		if was == is {
			continue
		}
		for _, c := range list {
			switch {
			case is == OK && before != nil:
				s.Log.Info("a check of this installation is ok again", "code", c.Code, "subject", c.Subject)
			case c.Status == is && is != OK:
				s.Log.Warn("a check of this installation is not ok", "code", c.Code, "status", c.Status, "subject", c.Subject, "message", c.Message, "mend", *c.Mend)
			}
		}
	}
}

// A Report is what the operator is told who asks for every check to be made now.
type Report struct {
	Status    string    `json:"status"` // ok, warning, error: the worst of the checks
	Hostname  string    `json:"hostname"`
	CheckedAt core.Time `json:"checked_at"`
	Checks    []Check   `json:"checks"`
}

// Doctor makes every check now. It takes up to 20 seconds.
func (s *Service) Doctor(ctx context.Context, _ struct{}) (*Report, error) {
	s.lookAtAll(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &Report{Hostname: s.Hostname()}
	r.Checks, r.CheckedAt.Time = s.look(ctx)
	r.Status = worst(r.Checks)
	return r, nil
}

// lookAndTell looks at everything, and tells the operator what has turned bad, or is ok again.
func (s *Service) lookAndTell(ctx context.Context) {
	s.lookAtAll(ctx)
	s.mu.Lock()
	found := s.found
	s.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if err := s.tell(found); err != nil {
		s.Log.Error("tell the operator of what is not ok", "error", err)
	}
}

// Run looks at everything from time to time, until ctx ends, and tells the operator what is bad.
func (s *Service) Run(ctx context.Context) {
	again, stop := s.Store.Clock().Every(lookEvery)
	defer stop()
	for {
		s.lookAndTell(ctx)
		select {
		case <-ctx.Done():
			return
		case <-again:
		}
	}
}
