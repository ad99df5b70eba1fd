package health

import (
	"crypto/tls"
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/metrics"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/recordid"
)

// countCacheFactor limits the cost of counting the queue: a count that took one second is cached
// for countCacheFactor seconds.
const countCacheFactor = 20

// webhookLane is the prefix of keys of JobsByLane for deliveries to webhook endpoints.
const webhookLane = "lwh_"

// rowsAtATime is how many rows one transaction reads.
const rowsAtATime = 5000

// queueCounts has how many messages and jobs wait in the queue.
type queueCounts struct {
	messages map[string]int // waiting messages, by state
	oldest   time.Time      // since when the oldest message has waited
	jobs     map[string]int // by state
	webhooks int            // waiting deliveries
}

// queueCounter caches counts for a while, since several clients may read the metrics.
type queueCounter struct {
	mu         sync.Mutex
	last       queueCounts
	validUntil time.Time
}

// get returns cached counts, or new ones if these are too old.
func (c *queueCounter) get(count func() (queueCounts, error)) (queueCounts, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := time.Now()
	if began.Before(c.validUntil) {
		return c.last, nil
	}
	fresh, err := count()
	if err == nil {
		took := time.Since(began)
		c.last, c.validUntil = fresh, began.Add(took+max(countCacheFactor*took, time.Second/2))
	}
	return fresh, err
}

// countQueue counts waiting messages and jobs, in transactions of limited length.
func (s *Service) countQueue() (c queueCounts, err error) {
	c.messages = map[string]int{store.OutgoingQueued: 0, store.OutgoingDeferred: 0, store.OutgoingScheduled: 0, store.OutgoingHeld: 0}
	c.jobs = map[string]int{store.JobQueued: 0, store.JobRunning: 0}
	pages := func(page func(tx *store.Tx, after string) (last string, more bool, err error)) {
		for after, more := "", true; more && err == nil; {
			err = s.Store.View(func(tx *store.Tx) (err error) {
				after, more, err = page(tx, after)
				return err
			})
		}
	}
	pages(func(tx *store.Tx, after string) (string, bool, error) {
		n := 0
		for key, id := range store.OutgoingsWaiting.Keys(tx, "", after) {
			row, err := store.Outgoings.Find(tx, id)
			if err != nil {
				return "", false, err
			}
			if row != nil {
				c.messages[row.Status]++
			}
			if at, ok := recordid.Time(id); ok && (c.oldest.IsZero() || at.Before(c.oldest)) {
				c.oldest = at
			}
			after, n = key, n+1
			if n == rowsAtATime {
				return after, true, nil
			}
		}
		return "", false, nil
	})
	pages(func(tx *store.Tx, after string) (string, bool, error) {
		n := 0
		for key, row := range store.OutgoingsParked.Asc(tx, "", after) {
			c.messages[row.Status]++
			after, n = key, n+1
			if n == rowsAtATime {
				return after, true, nil
			}
		}
		return "", false, nil
	})
	pages(func(tx *store.Tx, after string) (string, bool, error) {
		n := 0
		for key := range store.JobsByLane.Keys(tx, "", after) {
			switch {
			case strings.HasPrefix(key, store.RunningLane+"\x00"):
				c.jobs[store.JobRunning]++
			case strings.HasPrefix(key, webhookLane):
				c.webhooks++
				c.jobs[store.JobQueued]++
			default:
				c.jobs[store.JobQueued]++
			}
			after, n = key, n+1
			if n == rowsAtATime {
				return after, true, nil
			}
		}
		return "", false, nil
	})
	return c, err
}

// Certificates has the certificates that the listeners use.
type Certificates struct {
	Host  func() *tls.Certificate // returns this host's certificate; nil: this server has no TLS
	Other func() time.Time        // returns the earliest expiry of all other certificates; the zero time if there is none
}

// addMetrics registers the metrics that are measured on request.
func (s *Service) addMetrics(r *metrics.Registry) {
	one := func(name, help string, value func() (float64, bool)) {
		r.Gauge("mailstead_"+name, help, nil, func(emit func(float64, ...string)) {
			if v, ok := value(); ok {
				emit(v)
			}
		})
	}
	queue := new(queueCounter)
	counted := func(use func(queueCounts)) {
		if c, err := queue.get(s.countQueue); err == nil {
			use(c)
		}
	}
	byState := func(emit func(float64, ...string), n map[string]int) {
		for _, state := range slices.Sorted(maps.Keys(n)) {
			emit(float64(n[state]), state)
		}
	}
	r.Gauge("mailstead_build_info", "The version that runs; the value is 1.", []string{"version"}, func(emit func(float64, ...string)) { emit(1, s.Config.Version) })
	one("ready", "1 if mail and changes are taken, else 0.", func() (float64, bool) {
		if len(s.NotReady()) > 0 {
			return 0, true
		}
		return 1, true
	})
	r.Gauge("mailstead_queue_messages", "Messages that wait to be delivered, one for each recipient.", []string{"state"}, func(emit func(float64, ...string)) {
		counted(func(c queueCounts) { byState(emit, c.messages) })
	})
	one("queue_oldest_seconds", "How long the oldest message has waited.", func() (v float64, ok bool) {
		counted(func(c queueCounts) {
			ok = true
			if !c.oldest.IsZero() {
				v = max(0, s.Now().Sub(c.oldest).Seconds())
			}
		})
		return v, ok
	})
	r.Gauge("mailstead_jobs", "Jobs that wait or run.", []string{"state"}, func(emit func(float64, ...string)) {
		counted(func(c queueCounts) { byState(emit, c.jobs) })
	})
	one("webhooks_pending", "Deliveries to webhook endpoints that wait.", func() (v float64, ok bool) {
		counted(func(c queueCounts) { v, ok = float64(c.webhooks), true })
		return v, ok
	})
	r.Gauge("mailstead_certificate_expiry_timestamp_seconds", "When the certificate ends, in Unix time: this host's, and the first of all others.", []string{"name"},
		func(emit func(float64, ...string)) {
			if leaf := s.Certificates.hostLeaf(); leaf != nil {
				emit(float64(leaf.NotAfter.Unix()), s.Hostname())
			}
			if s.Certificates.Other != nil {
				if at := s.Certificates.Other(); !at.IsZero() {
					emit(float64(at.Unix()), "other")
				}
			}
		})
	s.addStoreMetrics(r, one)
	r.AddProcess(s.started)
}

// hostLeaf returns this host's certificate; nil if it has none.
func (c *Certificates) hostLeaf() *x509.Certificate {
	if c.Host == nil {
		return nil
	}
	cert := c.Host()
	if cert == nil || len(cert.Certificate) == 0 {
		return nil
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return nil
	}
	return leaf
}

// addStoreMetrics registers the metrics of the store, its backups and its copies.
func (s *Service) addStoreMetrics(r *metrics.Registry, one func(name, help string, value func() (float64, bool))) {
	r.Gauge("mailstead_store_bytes", "Bytes of the store's files.", []string{"part"}, func(emit func(float64, ...string)) {
		if held, err := s.Store.Holdings(); err == nil {
			emit(float64(held.Database), "database")
			emit(float64(held.Bytes-held.Database), "segments")
		}
	})
	one("store_free_bytes", "Bytes that are free on the disk of the store.", func() (float64, bool) {
		disk, err := s.Store.Disk()
		return float64(disk.Free), err == nil
	})
	one("store_messages", "Messages in all mailboxes.", func() (float64, bool) {
		held, err := s.Store.Holdings()
		return float64(held.Messages), err == nil
	})
	one("backup_last_success_timestamp_seconds", "When the last backup was made, in Unix time; 0: none was.", func() (float64, bool) {
		if s.Backups == nil {
			return 0, true
		}
		state, err := s.Backups.State()
		if err != nil || state.LastAt.IsZero() {
			return 0, err == nil
		}
		return float64(state.LastAt.UnixMilli()) / 1000, true
	})
	r.CounterFunc("mailstead_backup_failures_total", "Backups that failed since the start.", nil, func(emit func(float64, ...string)) {
		if s.Backups == nil {
			emit(0)
		} else if state, err := s.Backups.State(); err == nil {
			emit(float64(state.Failures))
		}
	})
	one("backup_drill_last_success_timestamp_seconds", "When the last drill ended that found nothing wrong, in Unix time; 0: none did.", func() (float64, bool) {
		d, err := s.lastDrill()
		if err != nil || d == nil || d.FaultlessAt.IsZero() {
			return 0, err == nil
		}
		return float64(d.FaultlessAt.UnixMilli()) / 1000, true
	})
	one("backup_drill_failed", "1: the last drill found damage, or could not be carried out.", func() (float64, bool) {
		d, err := s.lastDrill()
		if err != nil || d == nil || d.OK() {
			return 0, err == nil
		}
		return 1, true
	})
	// Buckets for messages and standbys do not exist yet.
	one("objects_pending", "Message files that wait to be copied to the bucket.", func() (float64, bool) { return 0, true })
	one("objects_cache_bytes", "Bytes of message files of the bucket that are kept here.", func() (float64, bool) { return 0, true })
	one("standby_lag_seconds", "How far the standby is behind.", func() (float64, bool) { return 0, true })
}
