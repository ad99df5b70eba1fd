package handlers

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/autoconfig"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
)

// A Server answers the HTTP API. Make it with New; its exported fields are set before use.
type Server struct {
	Log *slog.Logger
	Web http.Handler // the dashboard; nil answers 404

	Build string // of the dashboard's script: pages compare it with theirs

	Proxies *Proxies // in front of this server; nil: none

	Metrics MetricsReaders

	svc    *service.Service
	now    func() time.Time
	public *pathMux // of the network
	ops    []api.Operation
	fixed  *httprouter.Router // of operations whose path has no parameter
	wild   *httprouter.Router // with one
	deep   *httprouter.Router // with more

	rates           *rates                 // of accounts
	badTokens       *badTokens             // by address
	anonymousRate   *rates                 // of those who are not signed in to the dashboard, by address
	autoconfigRate  *rates                 // of those who look for mail settings, by address
	oauthRate       *rates                 // of clients' programs, by network
	registrations   *limit.Counter[string] // of clients in an hour, by network
	hooks           *hooks
	idempotencyKeys limit.KeyedMutex[string] // of requests that run
	bodies          *bodies
	uploads         chan struct{} // one for each file that is being taken

	autoconfig  *autoconfig.Server
	description func() *description // of the API, made at its first use
	assistants  *assistants         // at /mcp

	ending  chan struct{} // closed when streams are to end
	endOnce sync.Once
}

// A call is one request on its way through the server.
type call struct {
	w        http.ResponseWriter
	r        *http.Request // its context leads back to the call, see callOf
	id       string
	identify func(*call) error // finds out who asks, and sets who
	who      core.Actor
	via      string // how it came, for the audit log
	op       *api.Operation
}

type callKey struct{}

func newCall(ctx context.Context, w http.ResponseWriter, r *http.Request, id string) *call {
	c := &call{w: w, id: id}
	c.r = r.WithContext(context.WithValue(ctx, callKey{}, c))
	return c
}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }
