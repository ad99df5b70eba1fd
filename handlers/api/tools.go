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
	// The operation is not a tool for assistants, for one of these reasons: it grants or shows
	// access, which only people decide on; it returns a file; or it is about the whole installation
	// or the audit log.
	NoTool bool

	Outward bool // reaches strangers, spends money, or returns text of strangers
	// The tool deletes something or cannot be undone. Operations with the method DELETE need not
	// say so.
	Destructive bool
	Text        string // replaces the operation's text; "": the same text
	Secrets     string // a sentence that says how a person gets the secrets that the tool omits
	Hidden      string // name of a field that the tool does not have
	IntoTrash   bool   // moves messages to Trash, unless the argument permanent is true

	// Confirm returns an *Intent: what the call would do, for a person to agree to. It returns nil
	// if the call needs no agreement. An assistant gets the Intent first, and must repeat the call
	// with the confirmation token. The request type is that of the operation.
	Confirm Caller
	Asks    string // the beginning of the sentence "… takes two calls"
}

// An Intent is what a call would do and what that would cost. Would is a text after "This would".
type Intent struct {
	Would string              `json:"would"`
	Quote *domains.SetupQuote `json:"quote"`
}

// newIntent returns an Intent whose Would is the text.
func newIntent(format string, args ...any) (*Intent, error) {
	return &Intent{Would: fmt.Sprintf(format, args...)}, nil
}

// AskFirst returns the Caller for Tool.Confirm.
func AskFirst[In any](says func(context.Context, core.Actor, In) (*Intent, error)) Caller {
	return With(says)
}

// intents has a method for each operation that may need agreement. The method returns what the call
// would do, and changes nothing.
type intents struct{ s *service.Service }

// plural returns a number with the singular or plural of a noun.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
