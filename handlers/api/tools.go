package api

import (
	"context"
	"fmt"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/domains"
)

// A Tool is what an assistant's tool has beside its operation.
type Tool struct {
	// None: it is no tool, because it gives or shows access, which people decide on, answers with a
	// file, or is about the whole installation or what people did.
	None bool

	Outward     bool   // it reaches strangers, spends money, or brings in what strangers wrote
	Destructive bool   // it takes something away or cannot be undone, though its method is not DELETE
	Text        string // in the place of the operation's; "": that one
	Secrets     string // how a person gets the secrets that the tool leaves out
	Hidden      string // a field that the tool does not take
	IntoTrash   bool   // it moves a message to Trash, unless it is told to delete it for good

	// Confirm says what a call would do that a person must agree to; nil if this call needs no
	// agreement. An assistant gets that answer first, and must call again with a confirmation. It
	// takes what the operation takes, and answers an *Intent.
	Confirm Caller
	Asks    string // begins the sentence that a call takes two
}

// An Intent is what a call would do, in words that follow "This would", and what it would cost.
type Intent struct {
	Would string              `json:"would"`
	Quote *domains.SetupQuote `json:"quote"`
}

func would(format string, args ...any) (*Intent, error) {
	return &Intent{Would: fmt.Sprintf(format, args...)}, nil
}

// AskFirst makes the Confirm of a row.
func AskFirst[In any](says func(context.Context, core.Actor, In) (*Intent, error)) Caller {
	return With(says)
}

// intents has a function for each operation that needs agreement. It says what the call would do,
// and changes nothing.
type intents struct{ s *service.Service }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
