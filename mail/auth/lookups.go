package auth

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/mailstead/mailstead/mail/idn"
)

// maxAnswers is the maximum number of records used from one DNS answer.
const maxAnswers = 100

// lookups is a Resolver for one message. It queries absolute names only and limits the time of each
// look-up. It returns each error as a plain *net.DNSError, since the SPF library compares types
// without unwrapping, and would take the end of a context for a permanent error.
type lookups struct {
	ctx           context.Context
	resolver      Resolver
	lookupTimeout time.Duration
	answered      func() // called after each answer, also a negative one; may be nil
}

func (l *lookups) LookupTXT(ctx context.Context, name string) ([]string, error) {
	return lookUp(ctx, l, name, l.resolver.LookupTXT)
}

func (l *lookups) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	return lookUp(ctx, l, name, l.resolver.LookupMX)
}

func (l *lookups) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	return lookUp(ctx, l, host, l.resolver.LookupIPAddr)
}

func (l *lookups) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	return ask(ctx, l, addr, l.resolver.LookupAddr)
}

// lookUp looks up a host name, converted to ASCII. A name that is invalid in DNS counts as not
// found.
func lookUp[T any](ctx context.Context, l *lookups, name string, f func(context.Context, string) ([]T, error)) ([]T, error) {
	ascii, ok := idn.Host(name)
	if !ok {
		return nil, &net.DNSError{Err: "not a DNS name", Name: name, IsNotFound: true}
	}
	return ask(ctx, l, ascii+".", f)
}

// ask passes a name to f within the time limits, and returns at most maxAnswers answers.
func ask[T any](ctx context.Context, l *lookups, name string, f func(context.Context, string) ([]T, error)) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, l.lookupTimeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, &net.DNSError{Err: err.Error(), Name: name, IsTimeout: true, IsTemporary: true}
	}
	answers, err := f(ctx, name)
	if l.answered != nil && (err == nil || isNotFound(err)) {
		l.answered()
	}
	if err != nil && len(answers) == 0 {
		return nil, plainDNSError(name, err)
	}
	return answers[:min(len(answers), maxAnswers)], nil
}

// plainDNSError converts an error to a plain *net.DNSError. The result is temporary unless err says
// that the name was not found (RFC 7208 section 2.6.6, RFC 6376 section 6.1.2).
func plainDNSError(name string, err error) *net.DNSError {
	if isNotFound(err) {
		return &net.DNSError{Err: "no such record", Name: name, IsNotFound: true}
	}
	return &net.DNSError{Err: err.Error(), Name: name, IsTemporary: true}
}

func isNotFound(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}

// Resolver is the DNS access that a Verifier needs; *net.Resolver implements it. Names are passed
// in absolute form, with a final dot, so that the search list of the host does not apply.
// LookupAddr is passed an address. A method must return once its context has ended. A *net.DNSError
// with IsNotFound means that the name or the type does not exist. Every other error counts as
// temporary.
type Resolver interface {
	LookupTXT(ctx context.Context, name string) ([]string, error)
	LookupMX(ctx context.Context, name string) ([]*net.MX, error)
	LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error)
	LookupAddr(ctx context.Context, addr string) ([]string, error)
}
