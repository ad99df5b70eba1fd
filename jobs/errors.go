package jobs

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/store"
)

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent wraps an error for Work to return if another attempt cannot succeed. The job then fails
// at once.
func Permanent(err error) error { return permanentError{err} }

type retryAtError struct {
	error
	at time.Time
}

func (e retryAtError) Unwrap() error { return e.error }

// RetryAt wraps an error for Work to return: the job is retried at t, instead of after the kind's
// Backoff. The attempt counts.
func RetryAt(t time.Time, err error) error { return retryAtError{err, t} }

type snoozeError struct{ until time.Time }

func (e snoozeError) Error() string { return "waits until " + e.until.UTC().Format(time.RFC3339) }

// Snooze returns an error for Work to return: Work runs again at t. The attempt does not count.
func Snooze(t time.Time) error { return snoozeError{t} }

var (
	// errStopped is the cancellation cause of Work's ctx when the queue stops.
	errStopped = errors.New("the queue stops")
	// errCancelled is the cancellation cause of Work's ctx when the job was cancelled.
	errCancelled = errors.New("the job was cancelled")
	// errLapsed is the error of an attempt if its claim ended before Work returned.
	errLapsed = errors.New("the attempt exceeded its time limit")
	// errCrashed is the error of an attempt during which the process ended.
	errCrashed = errors.New("the process ended during the attempt")
	// errLost means that the job was claimed again, or is gone. The result of this claim is
	// dropped.
	errLost = errors.New("the claim of the job was lost")
)

// panicError is the error of an attempt that panicked. The stack goes to the log, not to the job.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// A callbackError is an error of Writes, Parked or Failed. Their transaction was rolled back.
type callbackError struct {
	error
	failed bool // the error is from Failed or Parked
}

func (r callbackError) Unwrap() error { return r.error }

// recordError stores err in the job: the code and message of an error that has a code, otherwise
// its text.
func recordError(j *store.Job, err error) {
	var coded interface {
		error
		ErrorCode() string
	}
	j.ErrCode, j.Err = "", truncate(err.Error())
	if errors.As(err, &coded) {
		j.ErrCode = coded.ErrorCode()
		j.Err = truncate(strings.TrimPrefix(coded.Error(), j.ErrCode+": "))
	}
}

// truncate shortens text to at most maxText bytes. It cuts between two characters.
func truncate(text string) string {
	if len(text) <= maxText {
		return text
	}
	n := maxText
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// Backoff is the default wait after a failed attempt: 5 s, doubled with each attempt up to an hour,
// ±10 %.
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

// PollDelay returns how long to wait before the next check of something that has been pending for
// the duration waited. The delay is a fourth of waited, at least a minute and at most an hour, with
// jitter.
func PollDelay(waited time.Duration, r float64) time.Duration {
	return Jitter(min(max(waited/4, time.Minute), time.Hour), r)
}
