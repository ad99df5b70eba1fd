package service

import (
	"errors"
	"fmt"
)

// An SMTPError is an answer to an SMTP client: what refuses a recipient or a message. Where the API would refuse the same,
// the Error that it answers is behind it.
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
func smtpErrorf(code int, enhanced, format string, args ...any) *SMTPError {
	return &SMTPError{Code: code, Enhanced: enhanced, Message: fmt.Sprintf(format, args...)}
}

// overSMTP gives an Error the form that an SMTP client understands.
func overSMTP(code int, enhanced string, e *Error) *SMTPError {
	return &SMTPError{Code: code, Enhanced: enhanced, Message: e.Message, cause: e}
}

// AsSMTPError gives the SMTP answer behind err. What is not for the client's eyes is 451 4.3.0.
func AsSMTPError(err error) *SMTPError {
	var e *SMTPError
	if errors.As(err, &e) {
		return e
	}
	return &SMTPError{Code: 451, Enhanced: "4.3.0", Message: "Something went wrong on our side. Try again later.", cause: err}
}
