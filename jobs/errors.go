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

// Permanent wraps an error that Work returns if another attempt cannot succeed. The job fails at
// once.
func Permanent(err error) error { return permanent{err} }

type retryAt struct {
	error
	at time.Time
}

func (e retryAt) Unwrap() error { return e.error }

// RetryAt wraps an error that Work returns to be retried at t instead of after the kind's Backoff.
// The attempt counts.
func RetryAt(t time.Time, err error) error { return retryAt{err, t} }

type snooze struct{ until time.Time }

func (e snooze) Error() string { return "waits until " + e.until.UTC().Format(time.RFC3339) }

// Snooze returns an error that Work returns to run again at t. The attempt does not count.
func Snooze(t time.Time) error { return snooze{t} }

var (
	// errStopped is the cause of ctx when the queue stops.
	errStopped = errors.New("the queue stops")
	// errCancelled is the cause of ctx when the job was cancelled.
	errCancelled = errors.New("the job was cancelled")
	// errLapsed is the error of an attempt if its claim ended before Work returned.
	errLapsed = errors.New("the attempt exceeded its time limit")
	// errCrashed is the error of an attempt during which the process ended.
	errCrashed = errors.New("the process ended during the attempt")
	// errLost means that the job was claimed again, or is gone, so the result of this claim is
	// dropped.
	errLost = errors.New("the claim was lost")
)

// panicked is the error of an attempt that panicked. The stack goes to the log, not to the job.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// refused is an error of Writes, Parked or Failed, which rolled back their transaction.
type refused struct {
	error
	failed bool // the error is from Failed or Parked
}

func (r refused) Unwrap() error { return r.error }

// recordError stores err in the job: the code and message of an error that has a code, otherwise
// its text.
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

// cut shortens text to maxText bytes.
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

// Backoff is the default backoff of kinds: 5 s, doubled up to an hour, each ±10 %.
func Backoff(attempt int, r float64) time.Duration {
	d := time.Hour
	if n := max(attempt, 1) - 1; n < 10 {
		d = min(d, 5*time.Second<<n)
	}
	return Jitter(d, r)
}

// Jitter returns d changed by -10 % to +10 % as r goes from 0 to 1.
func Jitter(d time.Duration, r float64) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*r))
}

// Awaiting returns the interval until the next check of something that has been pending for waited:
// a fourth of it, at least a minute and at most an hour, with jitter.
func Awaiting(waited time.Duration, r float64) time.Duration {
	return Jitter(min(max(waited/4, time.Minute), time.Hour), r)
}
