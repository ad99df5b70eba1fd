// Package api has the operations of the HTTP API, one row each, with everything that the world
// learns of an operation: its route, who may call it, what does it, what the reference says, and
// what an assistant's tool has beside that. It does not know how a request is decoded, counted,
// logged and answered.
package api

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/service/core"
)

// An Operation is one row of the table. Its route, its checks, the form of its body, its
// description and its tool come from it.
type Operation struct {
	Name   string // operationId, MCP tool, `mailstead call`
	Action string // in the audit log; "": Name
	Route
	Status int  // of success
	Alias  bool // another way to the operation of the row before
	May
	Call Caller

	Body   int64     // most bytes of the request body; 1 MiB if 0
	Upload *Uploader // takes a file in the place of a JSON body; nil: nothing does
	CSV    bool      // takes a CSV file in the place of a JSON body: it is the body's field csv
	Waits  bool      // for what comes after the call, and so long that the token may have ended meanwhile
	Strict bool      // an unknown body field is an error, since the operation spends money or sends mail

	// What the reference says.
	Group   string // one of openapi's groups
	Summary string
	Text    string
	Errors  []string // codes besides those that follow from the row
	Show    string   // fields of the example body; the required ones if ""
	Media   string   // of an answer that is a file

	Tool Tool
}

// A Route is a method with a path, which has {name} for what varies.
type Route struct{ Method, Path string }

func GET(path string) Route    { return Route{"GET", path} }
func POST(path string) Route   { return Route{"POST", path} }
func PUT(path string) Route    { return Route{"PUT", path} }
func PATCH(path string) Route  { return Route{"PATCH", path} }
func DELETE(path string) Route { return Route{"DELETE", path} }

// The permissions of tokens that operations need.
const (
	Read  = "read"
	Write = "write"
	Admin = "admin"
)

// The roles that operations are for.
var (
	Everyone = []string{"owner", "admin", "member"}
	Managers = []string{"owner", "admin"}
	Owners   = []string{"owner"}

	// With the person of a mailbox, who sees it alone.
	People      = []string{"owner", "admin", "member", "mailbox"}
	Holders     = []string{"owner", "admin", "mailbox"}
	MailboxOnly = []string{"mailbox"}
)

// May says who may call an operation. Scope and Roles are the coarse permission: what the token and
// the role of the caller must allow, whatever the call is about. Permit checks it once, before the
// body is read. Whether this caller may do it to this very object (a token of somebody else, the
// owner of the account, a field that costs money) is the second question. The service answers that
// one, since it has the object.
type May struct {
	Scope string
	Roles []string
	Own   bool // the person of a mailbox does it, and no token of the mailbox
	Whole bool // it is about the whole account, so nobody may who sees some mailboxes alone

	// What a token may do whose holder may be a program that obeys what it reads; see
	// core.Actor.Bound.
	Bound        BoundUse // by a bound token
	BoundFields  string   // the body fields that it may give; "": all, but none of a PATCH
	WhileTainted string   // what the query must have, once the token is tainted
	Taints       bool     // the answer may repeat what strangers wrote, of any message
	Limited      bool     // a token that is limited to mailboxes may call it, though their people may not
	Person       bool     // it is for whoever is signed in to the dashboard as a team user, and for no token
}

// A BoundUse says whether a bound token may call an operation: it may not, unless its row says so.
// It reads without secrets, marks, moves, drafts, sends and waits.
type BoundUse int

const (
	Clean  BoundUse = iota + 1 // until the token is tainted
	Always                     // also then
)

// OpenToBound reports whether a bound token may call the operation.
func (m *May) OpenToBound() bool { return m.Bound == Clean || m.Bound == Always }

// Taintable reports whether a bound token may no longer call the operation once it is tainted.
func (m *May) Taintable() bool { return m.Bound == Clean || m.WhileTainted != "" }

// Restricted reports whether some who have the permission may still not call the operation.
func (m *May) Restricted() bool { return m.Own || !slices.Equal(m.Roles, People) }

// Permit is the one place where the coarse permission of a row is asked for, see May.
func (o *Operation) Permit(who core.Actor) error {
	wrongRole := func() error {
		return core.Errorf("forbidden_role", "The role %q may not use %s. Ask the account's owner or an admin.", who.Role, o.Name)
	}
	if who.Role == core.RoleMailbox && !slices.Contains(o.Roles, who.Role) { // whatever its session may do
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

// The most bytes of requests that may be larger than others.
const (
	LargestSend     = core.MaxRequest // sends a message
	LargestList     = 16 << 20        // brings a long list
	LargestTemplate = 4 << 20         // has the texts of a template
)

// An Uploader plans what is to be done with a file. It has two steps: May reports whether it would
// be taken from who asks, before it is read; Plan takes it over.
type Uploader struct {
	May  func(ctx context.Context, who core.Actor, userID string) error
	Plan func(ctx context.Context, who core.Actor, userID, file string) (*core.JobResponse, error)
}

// codes are the error codes in a text.
func codes(text string) []string { return strings.Fields(text) }

// A Caller is a service method with its types hidden.
type Caller struct {
	In  reflect.Type
	Out reflect.Type
	Do  func(ctx context.Context, who core.Actor, decode func(in any) error) (any, error)
}

// With makes a caller of a method that takes a request.
func With[In, Out any](method func(context.Context, core.Actor, In) (Out, error)) Caller {
	return callerOf(method)
}

// noInput is the request of an operation that takes none.
type noInput struct{}

// Plain makes a caller of a method without a request.
func Plain[Out any](method func(context.Context, core.Actor) (Out, error)) Caller {
	return callerOf(method)
}

// callerOf makes a caller of a method as With and Plain demand it. It calls by reflection, since
// code for the types of each method would be as large as some rooms.
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
