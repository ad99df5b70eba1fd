package core

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/store"
)

// An SMTPError is an answer to an SMTP client: what refuses a recipient or a message. Where the API
// would refuse the same, the Error that it answers is behind it.
type SMTPError struct {
	Code     int    // RFC 5321 section 4.2
	Enhanced string // RFC 3463, such as "5.1.1"
	Message  string
	cause    error
}

func (e *SMTPError) Error() string { return fmt.Sprintf("%d %s %s", e.Code, e.Enhanced, e.Message) }
func (e *SMTPError) Unwrap() error { return e.cause }

// Temporary tells whether the client may try again.
func (e *SMTPError) Temporary() bool { return e.Code < 500 }

// smtpErrorf makes an SMTPError.
func SMTPErrorf(code int, enhanced, format string, args ...any) *SMTPError {
	return &SMTPError{Code: code, Enhanced: enhanced, Message: fmt.Sprintf(format, args...)}
}

// OverSMTP gives an Error the form that an SMTP client understands.
func OverSMTP(code int, enhanced string, e *Error) *SMTPError {
	return &SMTPError{Code: code, Enhanced: enhanced, Message: e.Message, cause: e}
}

// AsSMTPError gives the SMTP answer behind err: the service's own, 452 4.3.1 for a full disk, 421
// 4.3.2 for one that has failed and for a server that stops, 552 5.3.4 for a message beyond
// MaxMessage. What is not for the client's eyes is 451 4.3.0.
func AsSMTPError(err error) *SMTPError {
	var e *SMTPError
	if errors.As(OverStore(err), &e) {
		return e
	}
	return &SMTPError{Code: 451, Enhanced: "4.3.0", Message: "Internal error, try again later", cause: err}
}

// OverStore gives an error the form that an SMTP client understands: the disk's and the server's
// troubles pass.
func OverStore(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrFull):
		return &SMTPError{Code: 452, Enhanced: "4.3.1", Message: "Insufficient system storage", cause: err}
	case errors.Is(err, store.ErrFailed), errors.Is(err, store.ErrClosed), errors.Is(err, context.Canceled):
		return &SMTPError{Code: 421, Enhanced: "4.3.2", Message: "Service not available, try again later", cause: err}
	case errors.Is(err, store.ErrTooLarge):
		return &SMTPError{Code: 552, Enhanced: "5.3.4", Message: fmt.Sprintf("A message may have at most %d bytes.", MaxMessage), cause: err}
	}
	return err
}
