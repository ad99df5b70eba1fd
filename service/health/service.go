// Package health checks whether the installation works, for its operator: the store, the disk, the
// queue, the backups. It does not repair anything; it only says what to do.
//
// Where things are:
//   - service.go: the answer of get_health, and the regular runs of the checks.
//   - checks.go: the table of checks, and those of the installation itself.
//   - surroundings.go: checks of the host, the DNS and the network around it.
//   - alerts.go: how the operator is notified of what is not ok.
//   - backups.go: the state of backups, and the checks of them.
package health

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/backup"
	"github.com/mailstead/mailstead/store/recordid"
)

// checkEvery is the time between two runs of all checks.
const checkEvery = 10 * time.Minute

// A Service runs the checks and keeps their last results.
type Service struct {
	*core.Core
	// Backups is the schedule of backups; nil: the settings ask for none. It is set before use.
	Backups *backup.Schedule
	// Certificates are those of the listeners. It is set before use.
	Certificates Certificates
	// Host is the host that the program runs on; nil: checks of anything outside of this process
	// are skipped. It is set before use.
	Host *Host

	events  *events.Service
	started time.Time
	clock   clock

	running sync.Mutex // held while all checks run

	mu    sync.Mutex
	found map[string][]Check // results of the last run of all checks, by code
	at    time.Time          // when that run ended
}

// New returns the room and registers its metrics.
func New(c *core.Core, e *events.Service) *Service {
	s := &Service{Core: c, events: e, started: c.Now(), clock: clock{start: time.Now()}}
	s.addMetrics(&c.Metrics.Registry)
	return s
}

// Statuses of a check, and of all checks together.
const (
	OK      = "ok"
	Warning = "warning"
	Error   = "error"
	Skipped = "skipped"
)

// Health is the state of the installation.
type Health struct {
	Status    string         `json:"status" enum:"ok|warning|error"` // The worst of the checks.
	Hostname  string         `json:"hostname" words:"ours"`
	CheckedAt core.Time      `json:"checked_at"` // When all checks ran last; cheap ones run again for each request.
	Checks    []Check        `json:"checks"`
	Version   string         `json:"version" words:"ours"`
	Role      string         `json:"role" enum:"single|primary|standby"` // The role of this server among those that share its mail.
	StartedAt core.Time      `json:"started_at"`                         // When the server was started.
	Store     StoreHealth    `json:"store"`
	Queue     QueueHealth    `json:"queue"`
	Backup    BackupHealth   `json:"backup"`
	Objects   *ObjectsHealth `json:"objects" rare:"true"` // The bucket that keeps messages; null if there is none.
	Standby   *StandbyHealth `json:"standby" rare:"true"` // The state of the standby; null if there is none.
	// The certificate for this host's name; null if this server speaks no TLS itself.
	Certificate *CertificateHealth `json:"certificate"`
}

// A Check is the result for one thing that was checked.
type Check struct {
	Code    string `json:"code" words:"ours" example:"backup"` // What was checked. More codes may be added.
	Status  string `json:"status" enum:"ok|warning|error|skipped"`
	Subject string `json:"subject" words:"ours" example:"s3://backups/mail"`             // The thing that was checked.
	Message string `json:"message" words:"ours" example:"The last backup is 21m0s old."` // For people; the text may change.
	// What to do; null if nothing is wrong.
	Mend *string `json:"mend" words:"ours" example:"See that s3://backups/mail can be reached and has room; the server tries again by itself." rare:"true"`
}

// StoreHealth is the state of the store.
type StoreHealth struct {
	Bytes     int64 `json:"bytes" example:"734003200"`
	FreeBytes int64 `json:"free_bytes" example:"53687091200"`
	Messages  int64 `json:"messages" example:"18230"`
	ReadOnly  bool  `json:"read_only" example:"false"` // Whether the store takes no more writes.
}

// QueueHealth counts the messages that wait to be sent.
type QueueHealth struct {
	Depth         int    `json:"depth" example:"12"`           // Messages that wait to be sent, one for each recipient.
	OldestSeconds *int64 `json:"oldest_seconds" example:"340"` // How long the oldest of them has waited; null if none does.
}

// ObjectsHealth is the state of the bucket that keeps messages.
type ObjectsHealth struct {
	Reachable  bool  `json:"reachable" example:"true"`
	Pending    int64 `json:"pending" example:"0"`
	CacheBytes int64 `json:"cache_bytes" example:"1073741824"`
}

// StandbyHealth is the state of a standby.
type StandbyHealth struct {
	Number     int64 `json:"number" example:"48211"`
	LagSeconds int64 `json:"lag_seconds" example:"1"`
}

// CertificateHealth describes the certificate that this host shows to clients.
type CertificateHealth struct {
	Names     []string  `json:"names" words:"ours" example:"[\"mail.example.com\"]"` // The names that it is for.
	ExpiresAt core.Time `json:"expires_at"`
}

// GetHealth returns the state of the installation.
func (s *Service) GetHealth(ctx context.Context, _ core.Actor) (*Health, error) {
	out := &Health{Hostname: s.Hostname(), Version: s.Config.Version, Role: "single", StartedAt: core.Time{Time: s.started}}
	out.Checks, out.CheckedAt.Time = s.latestResults(ctx)
	out.Status = WorstStatus(out.Checks)
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
	if leaf := s.Certificates.hostLeaf(); leaf != nil {
		out.Certificate = &CertificateHealth{append([]string{}, leaf.DNSNames...), core.Time{Time: leaf.NotAfter}}
	}
	out.Backup, err = s.backupHealth()
	return out, err
}

// CheckHealthIn is the body of check_health.
type CheckHealthIn struct {
	Code string `json:"code" example:"backup"` // Runs only this check, a code of get_health; all checks if left out.
}

// CheckHealth runs all checks now, or one of them, and returns the state of the installation. It
// takes up to 20 seconds. It notifies nobody.
func (s *Service) CheckHealth(ctx context.Context, who core.Actor, in CheckHealthIn) (*Health, error) {
	if in.Code != "" {
		var codes []string
		for _, one := range s.checks() {
			codes = append(codes, one.code)
		}
		if !slices.Contains(codes, in.Code) {
			return nil, core.Invalid("code", "not_found", "there is no check %.40q; the checks are %s", in.Code, strings.Join(codes, ", "))
		}
	}
	s.runChecks(ctx, in.Code)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.GetHealth(ctx, who)
}

// NotReady returns why the server takes no mail and no changes, as codes of /readyz. The list is
// empty if it is ready.
func (s *Service) NotReady() (reasons []string) {
	if disk, err := s.Store.Disk(); err == nil && disk.Full {
		reasons = append(reasons, "storage_full")
	}
	if s.Store.Failed() != nil {
		reasons = append(reasons, "store_failed")
	}
	return reasons
}

// queueHealth counts the waiting messages, one for each recipient.
func (s *Service) queueHealth() (q QueueHealth, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		var oldest time.Time
		for _, id := range store.OutgoingsWaiting.Keys(tx, "", "") {
			q.Depth++
			if at, ok := recordid.Time(id); ok && (oldest.IsZero() || at.Before(oldest)) {
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

func secondsSince(now, at time.Time) *int64 {
	n := max(0, int64(now.Sub(at)/time.Second))
	return &n
}

// WorstStatus returns the status of all checks together.
func WorstStatus(checks []Check) string {
	status := OK
	for _, c := range checks {
		if c.Status == Error || c.Status == Warning && status == OK {
			status = c.Status
		}
	}
	return status
}

// latestResults returns the results of the last run of all checks, with live checks run again, and
// the time of that run.
func (s *Service) latestResults(ctx context.Context) (checks []Check, ranAt time.Time) {
	s.mu.Lock()
	first := s.found == nil
	s.mu.Unlock()
	if first {
		s.runChecks(ctx, "")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Check
	for _, one := range s.checks() {
		list := s.found[one.code]
		if one.live {
			list = one.run(ctx)
		}
		out = append(out, list...)
	}
	return out, s.at
}

// runChecks runs all checks at the same time, or only the one with the given code, and logs which
// have become worse or better since the last run.
func (s *Service) runChecks(ctx context.Context, only string) {
	s.running.Lock()
	defer s.running.Unlock()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	s.mu.Lock()
	before := s.found
	s.mu.Unlock()
	table, found := s.checks(), map[string][]Check{}
	if before == nil {
		only = "" // nothing is known of the others
	}
	if only != "" {
		table = slices.DeleteFunc(table, func(one check) bool { return one.code != only })
		maps.Copy(found, before)
	}
	lists := make([][]Check, len(table))
	var all sync.WaitGroup
	for i, one := range table {
		all.Go(func() { lists[i] = one.run(ctx) })
	}
	all.Wait()
	if ctx.Err() == context.Canceled {
		return // checks that were cancelled have no result
	}
	for i, one := range table {
		found[one.code] = lists[i]
	}
	s.mu.Lock()
	s.found = found
	if only == "" {
		s.at = s.Now()
	}
	s.mu.Unlock()
	for _, one := range table {
		list := found[one.code]
		was, is := WorstStatus(before[one.code]), WorstStatus(list)
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

// A Report is the result of all checks, for the operator.
type Report struct {
	Status    string    `json:"status"` // ok, warning, error: the worst of the checks
	Hostname  string    `json:"hostname"`
	CheckedAt core.Time `json:"checked_at"`
	Checks    []Check   `json:"checks"`
}

// Doctor runs all checks now. It takes up to 20 seconds.
func (s *Service) Doctor(ctx context.Context, _ struct{}) (*Report, error) {
	s.runChecks(ctx, "")
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &Report{Hostname: s.Hostname()}
	r.Checks, r.CheckedAt.Time = s.latestResults(ctx)
	r.Status = WorstStatus(r.Checks)
	return r, nil
}

// runAndNotify runs all checks, and notifies the operator of bad checks and of those that are ok
// again.
func (s *Service) runAndNotify(ctx context.Context) {
	s.runChecks(ctx, "")
	s.mu.Lock()
	found := s.found
	s.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	if err := s.notifyOperator(found); err != nil {
		s.Log.Error("could not notify the operator of bad checks", "error", err)
	}
}

// Run runs all checks from time to time, until ctx ends, and notifies the operator.
func (s *Service) Run(ctx context.Context) {
	again, stop := s.Store.Clock().Every(checkEvery)
	defer stop()
	for {
		s.runAndNotify(ctx)
		select {
		case <-ctx.Done():
			return
		case <-again:
		}
	}
}
