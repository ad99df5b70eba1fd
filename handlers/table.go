package handlers

import (
	"context"
	"reflect"
	"slices"

	"github.com/mailstead/mailstead/service/core"
)

// An op is one row of the table of operations. Its route, its checks and the form of its body come
// from it.
type op struct {
	name   string // operationId, MCP tool, `mailstead call`
	method string
	path   string // with {name} for what varies
	status int    // of success
	scope  string // read write purchase admin
	roles  []string
	call   caller
	body   int64 // most bytes of the request body; 1 MiB if 0
	alias  bool  // another way to the operation of the row before
	strict bool  // an unknown body field is an error, since the operation spends money or sends mail

	// confirm says what a call would do that a person must agree to; nil if this call needs no
	// agreement. An assistant gets that answer first, and must call again with a confirmation. It
	// takes what call takes, and answers an *intent.
	confirm caller
}

var (
	everyone = []string{"owner", "admin", "member"}
	managers = []string{"owner", "admin"}
)

// A caller is a service method with its types hidden.
type caller struct {
	in  reflect.Type
	out reflect.Type
	do  func(ctx context.Context, who core.Actor, decode func(in any) error) (any, error)
}

// with makes a caller of a method that takes a request.
func with[In, Out any](method func(context.Context, core.Actor, In) (Out, error)) caller {
	return caller{
		in:  reflect.TypeFor[In](),
		out: reflect.TypeFor[Out](),
		do: func(ctx context.Context, who core.Actor, decode func(any) error) (any, error) {
			var in In
			if err := decode(&in); err != nil {
				return nil, err
			}
			return method(ctx, who, in)
		},
	}
}

// noInput is the request of an operation that takes none.
type noInput struct{}

// plain makes a caller of a method without a request.
func plain[Out any](method func(context.Context, core.Actor) (Out, error)) caller {
	return with(func(ctx context.Context, who core.Actor, _ noInput) (Out, error) { return method(ctx, who) })
}

// permit is the one place where the coarse permission of a row is asked for, see operations.
func (o *op) permit(who core.Actor) error {
	if !who.Can(o.scope) {
		return core.Errorf("insufficient_scope",
			"This token lacks the %q permission that %s needs. Use a token that has it.", o.scope, o.name)
	}
	if !slices.Contains(o.roles, who.Role) {
		return core.Errorf("forbidden_role",
			"The role %q may not use %s. Ask the account's owner or an admin.", who.Role, o.name)
	}
	return nil
}
