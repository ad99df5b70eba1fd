// Package api has the table of the operations of the HTTP API. The row of an operation has its
// route, who may call it, the service method, its text in the reference, and how its tool for AI
// assistants differs. The package does not know how requests are decoded, counted, logged and
// answered.
package api

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
)

// An Operation is one row of the table. Package handlers takes from it the route, the checks, the
// request type, the description and the tool.
type Operation struct {
	Name   string // its name as operationId, as MCP tool and for `mailstead call`
	Action string // its name in the audit log; "": the same as Name
	Route
	Status int  // HTTP status of a success
	Alias  bool // another route of the operation in the previous row
	May
	Call Caller

	Body   int64     // maximum bytes of the request body; 0: 1 MiB
	Upload *Uploader // if not nil, a file is accepted instead of a JSON body
	File   *TextBody // if not nil, a text file is accepted instead of a JSON body
	Waits  bool      // may wait so long for an event that the token can expire during the call
	// Unknown body fields are errors, because the operation spends money or sends mail.
	Strict bool
	// The answer may have a secret of ours, such as a password or a link that signs in, so it is
	// not compressed.
	ShowsSecret bool

	// These fields are the text in the reference.
	Group   string   // the heading; one of openapi.operationGroups
	Summary string   // one line
	Text    string   // more about it; may be ""
	Errors  []string // error codes in addition to those that follow from other fields
	Show    string   // names of the fields in the example body; "": the required fields
	Media   string   // media type of a response that is a file

	Tool Tool
}

// A Route is a method and a path. The path has {name} for each parameter.
type Route struct{ Method, Path string }

func GET(path string) Route    { return Route{"GET", path} }
func POST(path string) Route   { return Route{"POST", path} }
func PUT(path string) Route    { return Route{"PUT", path} }
func PATCH(path string) Route  { return Route{"PATCH", path} }
func DELETE(path string) Route { return Route{"DELETE", path} }

// The scopes of tokens.
const (
	Read  = "read"
	Write = "write"
	Admin = "admin"
)

// Lists of the roles that may call an operation.
var (
	Everyone = []string{"owner", "admin", "member"}
	Managers = []string{"owner", "admin"}

	// These lists include the user of a single mailbox, who sees only that mailbox.
	People      = []string{"owner", "admin", "member", "mailbox"}
	Holders     = []string{"owner", "admin", "mailbox"}
	MailboxOnly = []string{"mailbox"}
)

// May says who may call an operation. Scope and Roles are the first check: what the token and the
// role of the caller must allow, whatever object the call is about. Permit makes that check once,
// before the body is read. The service makes the other checks, for which it needs the object:
// whether this caller may do it to this object. Examples are a token of another user, the owner of
// the account, or a field that costs money.
type May struct {
	Scope string
	Roles []string
	// The user of a mailbox may call the operation only in a session, not with a token of the
	// mailbox.
	Own bool
	// The operation is about the whole account, so callers that see only some mailboxes may not
	// call it.
	WholeAccount bool

	// The rules for bound tokens, which belong to programs that may obey texts that they read, see
	// core.Actor.Bound.
	Bound       BoundUse // whether a bound token may call the operation
	BoundFields string   // body fields that a bound token may set; "": all, or none in a PATCH
	// A tainted token must send this query parameter, given as name=value.
	QueryWhenTainted string
	Taints           bool // the response may have text of strangers from any message
	// A token that is limited to mailboxes may call the operation, although the users of these
	// mailboxes may not.
	OpenToLimitedTokens bool
	Person              bool // only for team users in a dashboard session, not for tokens
	// Only the operator may call the operation, see core.IsOperator. OperatorNow: also only over
	// the socket of the data directory, or in a dashboard session that began within
	// core.SignInFresh.
	Operator, OperatorNow bool

	// The operation makes, shows or changes access: tokens, credentials, passwords, second factors,
	// the team, secrets, exports, approvals, taint. A session that began with the operator's link
	// must not call it. AccessFields has the body fields that such a session must not set in an
	// operation that it may call.
	Access       bool
	AccessFields string
}

// A BoundUse says when a bound token may call an operation. The zero value means never. Bound
// tokens may read (but no secrets), mark, move, draft, send and wait.
type BoundUse int

const (
	Clean  BoundUse = iota + 1 // until the token is tainted
	Always                     // even if the token is tainted
)

// OpenToBound reports whether a bound token may call the operation.
func (m *May) OpenToBound() bool { return m.Bound == Clean || m.Bound == Always }

// Taintable reports whether a taint forbids the operation, or some calls of it, to a bound token.
func (m *May) Taintable() bool { return m.Bound == Clean || m.QueryWhenTainted != "" }

// Restricted reports whether some roles may not call the operation even with its scope.
func (m *May) Restricted() bool { return m.Own || !slices.Equal(m.Roles, People) }

// CheckLinked returns an error if the actor's session began with the operator's link to sign in,
// and must not call the operation. The error names the operation.
func (m *May) CheckLinked(who core.Actor, name string) error {
	if m.Access && who.LinkedBy != "" {
		return core.ErrLinked(name)
	}
	return nil
}

// CheckLinkedFields returns an error if such a session gives body fields that it must not set.
func (m *May) CheckLinkedFields(who core.Actor, fields []string) error {
	for _, field := range fields {
		if who.LinkedBy != "" && slices.Contains(strings.Fields(m.AccessFields), field) {
			return core.ErrLinked("The field " + field)
		}
	}
	return nil
}

// Permit makes the first check of the caller, which nothing else makes (see May). It returns an
// error if the caller may not call the operation.
func (o *Operation) Permit(who core.Actor) error {
	wrongRole := func() error {
		return core.Errorf("forbidden_role", "The role %q may not use %s. Ask the account's owner or an admin.", who.Role, o.Name)
	}
	if err := o.CheckLinked(who, o.Name); err != nil {
		return err
	}
	// For the user of a mailbox, the role is checked first, so that the error is about the role.
	if who.Role == core.RoleMailbox && !slices.Contains(o.Roles, who.Role) {
		return wrongRole()
	}
	if who.MailboxToken && !o.OpenToLimitedTokens && !slices.Contains(o.Roles, core.RoleMailbox) {
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
	if (o.Operator || o.OperatorNow) && !who.Operator {
		return core.Errorf("forbidden_role", "%s is for the operator of this installation: the owner of its first account, and admins whom the owner allows it.", o.Name)
	}
	if o.OperatorNow && who.TokenID != core.LocalToken {
		if !who.IsPerson() {
			return core.Errorf("person_required", "Only a person may use %s: an operator who is signed in to the dashboard with a password of their own choice.", o.Name)
		}
		if !who.SignedInNow {
			return core.Errorf("sign_in_again", "You signed in more than 15 minutes ago. Sign in again, since %s concerns the whole installation.", o.Name)
		}
	}
	if o.WholeAccount && !who.SeesAll() {
		return core.Errorf("forbidden_role", "You can see some mailboxes alone, and %s is about the whole account. Ask the account's owner or an admin.", o.Name)
	}
	return nil
}

// Maximum sizes in bytes of requests that may be larger than the default.
const (
	LargestSend     = core.MaxRequest // of a request that sends a message
	LargestList     = 16 << 20        // of a request with a long list
	LargestTemplate = 4 << 20         // of a request with a message template
	LargestZone     = 3 << 20         // of a request with a zone file
)

// An Uploader receives a file in two steps. May runs before the file is read, and returns an error
// if the caller may not send it. Plan takes the received file and returns the job that processes
// it.
type Uploader struct {
	May  func(ctx context.Context, who core.Actor, userID string) error
	Plan func(ctx context.Context, who core.Actor, userID, file string) (*core.JobResponse, error)
}

// A TextBody says which text file an operation accepts as its body, and which field of the JSON
// body it becomes.
type TextBody struct{ Media, Field string }

// errorCodes splits a text with spaces into error codes.
func errorCodes(text string) []string { return strings.Fields(text) }

// A Caller calls a service method whose types are known only at run time.
type Caller struct {
	In  reflect.Type // of the request
	Out reflect.Type // of the response
	Do  func(ctx context.Context, who core.Actor, decode func(in any) error) (any, error)
}

// With returns a Caller of a method that has a request.
func With[In, Out any](method func(context.Context, core.Actor, In) (Out, error)) Caller {
	return callerOf(method)
}

// noInput is the request type of an operation without a request.
type noInput struct{}

// Plain returns a Caller of a method that has no request.
func Plain[Out any](method func(context.Context, core.Actor) (Out, error)) Caller {
	return callerOf(method)
}

// callerOf returns a Caller of a method with the signature of With or Plain. It uses reflection,
// because generic code for each method would make the program much larger.
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
