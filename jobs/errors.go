package jobs

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/store"
)

type permanent struct{ error }

func (e permanent) Unwrap() error { return e.error }

// Permanent is what Work returns when no other attempt would do better: the job is given up at
// once.
func Permanent(err error) error { return permanent{err} }

type retryAt struct {
	error
	at time.Time
}

func (e retryAt) Unwrap() error { return e.error }

// RetryAt is what Work returns to be tried again at t instead of after the kind's Backoff. The
// attempt counts.
func RetryAt(t time.Time, err error) error { return retryAt{err, t} }

type snooze struct{ until time.Time }

func (e snooze) Error() string { return "waits until " + e.until.UTC().Format(time.RFC3339) }

// Snooze is what Work returns when it is too early: the job is due again at t, and the attempt does
// not count.
func Snooze(t time.Time) error { return snooze{t} }

var (
	// errStopped is the cause of the end of a ctx when the queue stops.
	errStopped = errors.New("the queue stops")
	// errCancelled is the cause of the end of a ctx when the job was cancelled.
	errCancelled = errors.New("the job was cancelled")
	// errLapsed is the error of an attempt whose claim was over before Work returned.
	errLapsed = errors.New("the attempt took longer than it may")
	// errCrashed is the error of an attempt that the process did not survive.
	errCrashed = errors.New("the process ended during the attempt")
	// errLost says that a claim is no longer the newest one of its job.
	errLost = errors.New("the claim was lost")
)

// panicked is the error of an attempt that panicked. The stack goes to the log, not to the job.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// refused is an error of Writes or Failed, which undid the transaction that they were part of.
type refused struct {
	error
	failed bool // it was Failed
}

func (r refused) Unwrap() error { return r.error }

// recordError keeps err in the job: the code and message of an error that carries a code, else its
// text.
func recordError(j *store.Job, err error) {
	var coded interface {
		error
		ErrorCode() string
	}
	j.ErrCode, j.Err = "", cut(err.Error())
	if errors.As(err, &coded) {
		j.ErrCode = coded.ErrorCode()
		j.Err = cut(strings.TrimPrefix(coded.Error(), j.ErrCode+": "))
	}
}

// cut shortens text to what a job keeps.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	n := maxText
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// Backoff is the wait of kinds that have none of their own: 5 s, doubling up to an hour, each ±10
// %.
func Backoff(attempt int, r float64) time.Duration {
	d := time.Hour
	if n := max(attempt, 1) - 1; n < 10 {
		d = min(d, 5*time.Second<<n)
	}
	return Jitter(d, r)
}

// Jitter is d, up to a tenth less or more as r goes from 0 to 1.
func Jitter(d time.Duration, r float64) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*r))
}

// Awaiting is how long to wait for the next look after so long a wait: a fourth of it, from a
// minute to an hour.
func Awaiting(waited time.Duration, r float64) time.Duration {
	return Jitter(min(max(waited/4, time.Minute), time.Hour), r)
}
