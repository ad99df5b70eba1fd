package core

import (
	"errors"
	"fmt"
	"time"
)

// An Error is the only kind that a person outside sees. Message says what to do next.
type Error struct {
	Code       string // handlers has a table of the HTTP status of each
	Message    string
	Details    []Detail
	RetryAfter time.Duration
	cause      error
}

// A Detail names one field and what is wrong with it.
type Detail struct {
	Field   string `json:"field" words:"ours"`
	Code    string `json:"code" words:"ours"`
	Message string `json:"message" words:"ours"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }
func (e *Error) Unwrap() error { return e.cause }

// ErrorCode lets a failed job carry the code.
func (e *Error) ErrorCode() string { return e.Code }

// Errorf makes an Error.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// With adds a detail.
func (e *Error) With(field, code, message string) *Error {
	e.Details = append(e.Details, Detail{field, code, message})
	return e
}

// Because keeps the error behind this one for the log.
func (e *Error) Because(err error) *Error {
	e.cause = err
	return e
}

// NotFound is the answer for what does not exist, and for what belongs to somebody else.
func NotFound(what string) *Error {
	return Errorf("not_found", "There is no such %s in this account. Check the id.", what)
}

// Invalid is a 400 about one field: validation_error, or too_many_items where that is what is
// wrong.
func Invalid(field, code, format string, args ...any) *Error {
	m := fmt.Sprintf(format, args...)
	e := Errorf("validation_error", "%s: %s", field, m).With(field, code, m)
	if code == "too_many_items" {
		e.Code = code
	}
	return e
}

// AsError gives the Error behind err, if there is one.
func AsError(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}

const (
	CodeMailboxClosed = "mailbox_closed"
)
