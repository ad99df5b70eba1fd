package handlers

import (
	"context"
	"net/http"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/service/core"
)

// A call is the state of one request in the server.
type call struct {
	w        http.ResponseWriter
	r        *http.Request // its context holds the call, see callOf
	id       string
	identify func(*call) error // authenticates the request and sets who
	who      core.Actor
	via      string // how the request came (API, dashboard, …), for the audit log
	op       *api.Operation
}

type callKey struct{}

func newCall(ctx context.Context, w http.ResponseWriter, r *http.Request, id string) *call {
	c := &call{w: w, id: id}
	c.r = r.WithContext(context.WithValue(ctx, callKey{}, c))
	return c
}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }
