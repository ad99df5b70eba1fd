package api

import (
	"context"
	"fmt"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
)

// A Tool says how the tool for assistants differs from its operation.
type Tool struct {
	// None: the operation is not a tool. It grants or shows access, which people decide on; it
	// returns a file; or it is about the whole installation or the audit log.
	None bool

	Outward bool // it reaches strangers, spends money, or returns text of strangers
	// It deletes something or cannot be undone, although its method is not DELETE.
	Destructive bool
	Text        string // replaces the operation's text; "": the same text
	Secrets     string // how a person gets the secrets that the tool omits
	Hidden      string // a field that the tool does not have
	IntoTrash   bool   // it moves a message to Trash, unless `permanent` is set

	// Confirm returns, as an *Intent, what a call would do that a person must agree to; nil if this
	// call needs no agreement. An assistant first gets that answer, and must call again with its
	// confirmation token. The request type is that of the operation.
	Confirm Caller
	Asks    string // the beginning of the sentence "… takes two calls"
}

// An Intent is what a call would do, as text after "This would", and what it would cost.
type Intent struct {
	Would string              `json:"would"`
	Quote *domains.SetupQuote `json:"quote"`
}

func would(format string, args ...any) (*Intent, error) {
	return &Intent{Would: fmt.Sprintf(format, args...)}, nil
}

// AskFirst returns the Confirm of a row.
func AskFirst[In any](says func(context.Context, core.Actor, In) (*Intent, error)) Caller {
	return With(says)
}

// intents has a method for each operation that needs agreement. It returns what the call would do,
// and changes nothing.
type intents struct{ s *service.Service }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
