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

// A Server serves the HTTP API. Make it with New; its exported fields are set before use.
type Server struct {
	Log *slog.Logger
	Web http.Handler // the dashboard; nil: its paths answer 404

	Build string // version of the dashboard's script, which pages compare with their own

	Proxies *Proxies // trusted proxies in front of this server; nil: none

	Metrics MetricsReaders

	svc    *service.Service
	now    func() time.Time
	public *pathMux // handlers for requests from the network
	ops    []api.Operation
	fixed  *httprouter.Router // operations whose path has no parameter
	wild   *httprouter.Router // with one parameter
	deep   *httprouter.Router // with more parameters

	rates     *rates     // by account
	badTokens *badTokens // by address
	// Requests to the dashboard without a session, by address.
	anonymousRate   *rates
	autoconfigRate  *rates                 // requests for mail settings, by address
	oauthRate       *rates                 // requests of OAuth clients, by network
	registrations   *limit.Counter[string] // of OAuth clients per hour, by network
	hooks           *hooks
	idempotencyKeys limit.KeyedMutex[string] // of running requests
	bodies          *bodies
	uploads         chan struct{} // one value for each upload that is being received

	autoconfig  *autoconfig.Server
	description func() *description // of the API; made at its first use
	assistants  *assistants         // at /mcp

	ending  chan struct{} // closed when streams must end
	endOnce sync.Once
}

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
