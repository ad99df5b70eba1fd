// Package api has the operations of the HTTP API, one row each. A row has everything about an
// operation: its route, who may call it, the service method, its text in the reference, and the
// differences of its tool for assistants. It does not know how requests are decoded, counted,
// logged and answered.
package api

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
)

// An Operation is one row of the table. The server takes the route, the checks, the request type,
// the description and the tool from it.
type Operation struct {
	Name   string // operationId, MCP tool, `mailstead call`
	Action string // name in the audit log; "": Name
	Route
	Status int  // after success
	Alias  bool // another route of the operation in the row before
	May
	Call Caller

	Body   int64     // maximum bytes of the request body; 0: 1 MiB
	Upload *Uploader // accepts a file instead of a JSON body; nil: files are not accepted
	CSV    bool      // accepts a CSV file instead of a JSON body, as the body's field csv
	Waits  bool      // waits for an event, so long that the token may expire during the call
	// Refuses unknown body fields, because the operation spends money or sends mail.
	Strict bool

	// The text in the reference.
	Group   string // one of openapi.groups
	Summary string
	Text    string
	Errors  []string // error codes besides those that follow from the row
	Show    string   // fields of the example body; "": the required ones
	Media   string   // media type of a response that is a file

	Tool Tool
}

// A Route is a method and a path, with {name} for each parameter.
type Route struct{ Method, Path string }

func GET(path string) Route    { return Route{"GET", path} }
func POST(path string) Route   { return Route{"POST", path} }
func PUT(path string) Route    { return Route{"PUT", path} }
func PATCH(path string) Route  { return Route{"PATCH", path} }
func DELETE(path string) Route { return Route{"DELETE", path} }

// The permissions of tokens.
const (
	Read  = "read"
	Write = "write"
	Admin = "admin"
)

// The roles for which operations are.
var (
	Everyone = []string{"owner", "admin", "member"}
	Managers = []string{"owner", "admin"}
	Owners   = []string{"owner"}

	// Lists that include the person of a mailbox, who sees only that mailbox.
	People      = []string{"owner", "admin", "member", "mailbox"}
	Holders     = []string{"owner", "admin", "mailbox"}
	MailboxOnly = []string{"mailbox"}
)

// May says who may call an operation. Scope and Roles are the coarse permission: what the token and
// the role of the caller must allow, whatever object the call is about. Permit checks it once,
// before the body is read. The service checks the rest, because it has the object: whether this
// caller may do it to this object (for example a token of another user, the owner of the account,
// or a field that costs money).
type May struct {
	Scope string
	Roles []string
	// The person of a mailbox may call it in a session, but not with a token of the mailbox.
	Own bool
	// It is about the whole account, so callers that see only some mailboxes may not call it.
	Whole bool

	// The permissions of tokens whose holder may be a program that obeys the text it reads, see
	// core.Actor.Bound.
	Bound       BoundUse // whether a bound token may call it
	BoundFields string   // the body fields that a bound token may set; "": all, but none in a PATCH
	// The query parameter, as name=value, without which a tainted token is refused.
	WhileTainted string
	Taints       bool // the response may contain text of strangers from any message
	// A token limited to mailboxes may call it, although the people of the mailboxes may not.
	Limited bool
	Person  bool // only team users who are signed in to the dashboard may call it, no tokens
}

// A BoundUse says whether a bound token may call an operation; the zero value means never. Bound
// tokens may read without secrets, mark, move, draft, send and wait.
type BoundUse int

const (
	Clean  BoundUse = iota + 1 // until the token is tainted
	Always                     // even if the token is tainted
)

// OpenToBound reports whether a bound token may call the operation.
func (m *May) OpenToBound() bool { return m.Bound == Clean || m.Bound == Always }

// Taintable reports whether a bound token loses the operation, or a form of it, once it is tainted.
func (m *May) Taintable() bool { return m.Bound == Clean || m.WhileTainted != "" }

// Restricted reports whether some roles may not call the operation although their token has its
// scope.
func (m *May) Restricted() bool { return m.Own || !slices.Equal(m.Roles, People) }

// Permit checks the coarse permission of a row, see May. Nothing else checks it.
func (o *Operation) Permit(who core.Actor) error {
	wrongRole := func() error {
		return core.Errorf("forbidden_role", "The role %q may not use %s. Ask the account's owner or an admin.", who.Role, o.Name)
	}
	// The person of a mailbox is refused whatever the session may do.
	if who.Role == core.RoleMailbox && !slices.Contains(o.Roles, who.Role) {
		return wrongRole()
	}
	if who.TokenOf && !o.Limited && !slices.Contains(o.Roles, core.RoleMailbox) {
		return core.Errorf("forbidden_role", "This token is limited to some mailboxes, and may do only what the people of those may. %s is not among it.", o.Name)
	}
	if who.Bound && !o.OpenToBound() {
		return core.Errorf("forbidden_role", "This token is bound: it may read, mark, move, draft, send and wait. %s is for a person, or for a token without mailboxes and policy.", o.Name)
	}
	if !who.Can(o.Scope) {
		return core.Errorf("insufficient_scope",
			"This token lacks the %q permission that %s needs. Use a token that has it.", o.Scope, o.Name)
	}
	if o.Own && who.Role == core.RoleMailbox && who.TokenKind != core.SessionKind {
		return core.Errorf("forbidden_role", "This token reads and sends mail of a mailbox. %s is for its person, who signs in.", o.Name)
	}
	if !slices.Contains(o.Roles, who.Role) {
		return wrongRole()
	}
	if o.Person && !who.IsPerson() {
		return core.Errorf("person_required", "Only a person may use %s: an owner or admin of the account, signed in to the dashboard with a password of their own choice.", o.Name)
	}
	if o.Whole && !who.SeesAll() {
		return core.Errorf("forbidden_role", "You can see some mailboxes alone, and %s is about the whole account. Ask the account's owner or an admin.", o.Name)
	}
	return nil
}

// The maximum sizes in bytes of requests that may be larger than others.
const (
	LargestSend     = core.MaxRequest // of a request that sends a message
	LargestList     = 16 << 20        // of a request with a long list
	LargestTemplate = 4 << 20         // of a request with a message template
)

// An Uploader receives a file in two steps: May reports, before the file is read, whether the
// caller may send it; Plan takes over the received file and returns the job for it.
type Uploader struct {
	May  func(ctx context.Context, who core.Actor, userID string) error
	Plan func(ctx context.Context, who core.Actor, userID, file string) (*core.JobResponse, error)
}

// codes splits a text into error codes.
func codes(text string) []string { return strings.Fields(text) }

// A Caller calls a service method without static types.
type Caller struct {
	In  reflect.Type
	Out reflect.Type
	Do  func(ctx context.Context, who core.Actor, decode func(in any) error) (any, error)
}

// With returns a Caller for a method with a request.
func With[In, Out any](method func(context.Context, core.Actor, In) (Out, error)) Caller {
	return callerOf(method)
}

// noInput is the request type of an operation without a request.
type noInput struct{}

// Plain returns a Caller for a method without a request.
func Plain[Out any](method func(context.Context, core.Actor) (Out, error)) Caller {
	return callerOf(method)
}

// callerOf returns a Caller for a method of the type of With or Plain. It calls the method by
// reflection, because generic code for each method would make the program much larger.
func callerOf(method any) Caller {
	call := reflect.ValueOf(method)
	c := Caller{In: reflect.TypeFor[noInput](), Out: call.Type().Out(0)}
	takes := call.Type().NumIn() == 3
	if takes {
		c.In = call.Type().In(2)
	}
	c.Do = func(ctx context.Context, who core.Actor, decode func(any) error) (any, error) {
		in := reflect.New(c.In)
		if err := decode(in.Interface()); err != nil {
			return nil, err
		}
		args := []reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(who), in.Elem()}
		if !takes {
			args = args[:2]
		}
		out := call.Call(args)
		err, _ := out[1].Interface().(error)
		return out[0].Interface(), err
	}
	return c
}
