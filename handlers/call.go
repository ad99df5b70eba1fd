package handlers

import (
	"context"
	"net/http"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/service/core"
)

// A call is one request that the server is answering.
type call struct {
	w        http.ResponseWriter
	r        *http.Request // its context holds the call, see callOf
	id       string
	identify func(*call) error // authenticates the request and sets who
	who      core.Actor
	via      string // how the request came, for the audit log, such as core.AuditAPI
	op       *api.Operation
}

// callKey is the context key of a *call.
type callKey struct{}

func newCall(ctx context.Context, w http.ResponseWriter, r *http.Request, id string) *call {
	c := &call{w: w, id: id}
	c.r = r.WithContext(context.WithValue(ctx, callKey{}, c))
	return c
}

// callOf returns the call that newCall stored in ctx.
func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }
