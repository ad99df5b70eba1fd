package core

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/mailstead/mailstead/store"
)

// An Error is the only kind of error that a person outside sees. Message says what to do next.
type Error struct {
	Code       string // package code has the HTTP status of each code
	Message    string
	Details    []Detail
	RetryAfter time.Duration
	cause      error
}

// A Detail names one field and what is wrong with it.
type Detail struct {
	Field   string `json:"field" words:"ours" example:"name" log:"true"` // The field; in some errors the id of the conflicting object.
	Code    string `json:"code" words:"ours" example:"required" log:"true"`
	Message string `json:"message" words:"ours" example:"is required"` // For people; the text may change.
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }
func (e *Error) Unwrap() error { return e.cause }

// ErrorCode returns the code, which a failed job stores.
func (e *Error) ErrorCode() string { return e.Code }

// Errorf returns an Error with a formatted message.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// With adds a detail.
func (e *Error) With(field, code, message string) *Error {
	e.Details = append(e.Details, Detail{field, code, message})
	return e
}

// Because sets the underlying error, which only the log shows.
func (e *Error) Because(err error) *Error {
	e.cause = err
	return e
}

// NotFound is the error for an object that does not exist or belongs to another account.
func NotFound(what string) *Error {
	return Errorf("not_found", "There is no such %s in this account. Check the id.", what)
}

// IsNotFound reports whether an error has the code of NotFound.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == "not_found"
}

// Invalid returns a 400 error about one field; code is the code of its detail. The error's own code
// is validation_error, or too_many_items if code is too_many_items.
func Invalid(field, code, format string, args ...any) *Error {
	m := strings.TrimPrefix(fmt.Sprintf(format, args...), field+" ")
	e := Errorf("validation_error", "%s: %s", field, m).With(field, code, m)
	if code == "too_many_items" {
		e.Code = code
	}
	return e
}

// AsError returns the Error in err's chain, if there is one.
func AsError(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}

const (
	CodeMailboxClosed = "mailbox_closed"
)

// Explain turns any error into an Error, which a person outside may see.
func Explain(err error) *Error {
	if e, ok := AsError(err); ok {
		return e
	}
	switch {
	case errors.Is(err, store.ErrFull):
		return retryLater("storage_full", "The server's disk is full, so nothing was changed. Its operator must free space; then try again.", err)
	case errors.Is(err, store.ErrDatabase):
		return Errorf("internal_error", "A part of the server's database is damaged. Its operator must stop the server and run mailstead check.").Because(err)
	case errors.Is(err, store.ErrFailed):
		return retryLater("storage_unavailable", "The server's disk has failed. No changes are possible until its operator has fixed it.", err)
	case errors.Is(err, store.ErrDamaged):
		return Errorf("internal_error", "This message is damaged on the server's disk. The operator can run mailstead check, and restore the message from a backup.").Because(err)
	case isDiskError(err):
		return retryLater("storage_unavailable", "The server's disk did not do what was asked. Try again in a moment.", err)
	case errors.Is(err, store.ErrClosed), errors.Is(err, context.Canceled):
		return Errorf("shutting_down", "The server is stopping. Try again in a moment.").Because(err)
	}
	return Errorf("internal_error", "Something went wrong on the server. Try again; if it happens again, report the request id.").Because(err)
}

// storageRetry is the Retry-After of errors of the disk.
const storageRetry = 30 * time.Second

func retryLater(code, message string, err error) *Error {
	e := Errorf(code, "%s", message).Because(err)
	e.RetryAfter = storageRetry
	return e
}

// isDiskError reports whether the disk is broken or read-only, or the process has too many open
// files.
func isDiskError(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// A File is an answer that is not JSON. Size is -1 if it is not known in advance.
type File struct {
	Name        string
	ContentType string
	Size        int64
	Body        io.ReadCloser
}

// An SMTPError is an SMTP reply that refuses a recipient or a message. It wraps the Error that the
// API would return in the same case.
type SMTPError struct {
	Code     int    // RFC 5321 section 4.2
	Enhanced string // RFC 3463, such as "5.1.1"
	Message  string
	cause    error
}

func (e *SMTPError) Error() string { return fmt.Sprintf("%d %s %s", e.Code, e.Enhanced, e.Message) }
func (e *SMTPError) Unwrap() error { return e.cause }

// Temporary reports whether the client may retry.
func (e *SMTPError) Temporary() bool { return e.Code < 500 }

// SMTPErrorf returns an SMTPError with a formatted message.
func SMTPErrorf(code int, enhanced, format string, args ...any) *SMTPError {
	return &SMTPError{Code: code, Enhanced: enhanced, Message: fmt.Sprintf(format, args...)}
}

// OverSMTP turns an Error into an SMTP reply.
func OverSMTP(code int, enhanced string, e *Error) *SMTPError {
	return &SMTPError{Code: code, Enhanced: enhanced, Message: e.Message, cause: e}
}

// AsSMTPError returns the SMTP reply for err: the SMTPError in its chain, 452 4.3.1 for a full
// disk, 421 4.3.2 for a failed disk and for a server that stops, 552 5.3.4 for a message larger
// than MaxMessage. Any other error is 451 4.3.0, without details.
func AsSMTPError(err error) *SMTPError {
	var e *SMTPError
	if errors.As(StoreErrorOverSMTP(err), &e) {
		return e
	}
	return &SMTPError{Code: 451, Enhanced: "4.3.0", Message: "Internal error, try again later", cause: err}
}

// StoreErrorOverSMTP turns errors of the store and of a stopping server into SMTP replies. Other
// errors are returned as they are.
func StoreErrorOverSMTP(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrFull):
		return &SMTPError{Code: 452, Enhanced: "4.3.1", Message: "Insufficient system storage", cause: err}
	case errors.Is(err, store.ErrFailed), errors.Is(err, store.ErrClosed), errors.Is(err, context.Canceled):
		return &SMTPError{Code: 421, Enhanced: "4.3.2", Message: "Service not available, try again later", cause: err}
	case errors.Is(err, store.ErrTooLarge):
		return MessageTooLarge(err)
	}
	return err
}

// MessageTooLarge is the SMTP reply 552 5.3.4 to a message larger than MaxMessage. cause is for the
// log and may be nil.
func MessageTooLarge(cause error) *SMTPError {
	return &SMTPError{Code: 552, Enhanced: "5.3.4", Message: fmt.Sprintf("A message can have at most %d bytes.", MaxMessage), cause: cause}
}

// ContentTooLarge is the error for a message that is larger than MaxContent.
func ContentTooLarge() error {
	return Errorf("payload_too_large", "A message can have at most %d MiB of text and attachments. Send a link to large files.", MaxContent>>20)
}
