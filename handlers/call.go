package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/service/core"
)

// A call is one request that the server is answering.
type call struct {
	w        http.ResponseWriter
	r        *http.Request     // its context holds the call, see callOf
	id       string            // the server's own, which is unique
	clientID string            // the id that the client chose; "": none
	identify func(*call) error // authenticates the request and sets who
	who      core.Actor
	via      string // how the request came, for the audit log, such as core.AuditAPI
	op       *api.Operation
	rec      *recording // shared with the call that an MCP tool makes
}

// A recording is what the request log will have of a call, besides what the call itself has.
type recording struct {
	wanted bool                       // the call is one of an operation of the API, and gets a row
	path   string                     // without the query
	fields map[string]json.RawMessage // of the body, as long as the body may be used; nil: it was not read, or has none
	body   []byte                     // what is shown of the body
	answer []byte                     // what is shown of an answer with a status from 400 to 499
	code   string                     // of the error
}

// callKey is the context key of a *call.
type callKey struct{}

func newCall(ctx context.Context, w http.ResponseWriter, r *http.Request, id string) *call {
	c := &call{w: w, id: id, rec: new(recording)}
	c.r = r.WithContext(context.WithValue(ctx, callKey{}, c))
	return c
}

// shownID returns the id that the client sees in X-Request-Id and in errors: its own if it sent
// one.
func (c *call) shownID() string { return cmp.Or(c.clientID, c.id) }

// logIDs returns the ids of the call for a line of the log.
func (c *call) logIDs() []any {
	if c.clientID == "" {
		return []any{"request_id", c.id}
	}
	return []any{"request_id", c.id, "client_request_id", c.clientID}
}

// callOf returns the call that newCall stored in ctx.
func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }
