// Package handlers serves HTTP. It turns requests into calls of the service, by one table of
// operations, and the service's results into responses. It knows no rules of the product and no
// store.
//
// Where things are:
//   - server.go: [Server]; start.go: [New], and the handlers of the listeners. routes.go: what
//     answers at which path (the paths themselves are in paths.go).
//   - requests.go: tracing, metrics and recovery for every request, and its row in the request log;
//     loggable.go: what that shows of a body. authentication.go: who sent a request; proxies.go:
//     from which address; origins.go: from which page, and to which host name.
//   - operations.go: the operations of the API. bodies.go and decode.go read a request,
//     idempotency.go and uploads.go answer special ones, respond.go sends responses and errors,
//     compress.go compresses them.
//   - session.go: the dashboard's sessions; pages.go: pages that need none, and shown messages;
//     oauth.go: sign-in of clients of /mcp.
//   - description.go: the OpenAPI documents and the documentation.
//   - mcp.go and mcp_*.go: the operations as tools of assistants.
package handlers

import (
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/autoconfig"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/service"
)

// A Server serves the HTTP API and the dashboard. Make it with New, and set its exported fields
// before use.
type Server struct {
	Log *slog.Logger
	Web http.Handler // the dashboard; nil: its paths answer 404

	Build string // version of the dashboard's script, which open pages compare with their own

	Proxies *Proxies // trusted proxies in front of this server; nil: none

	Metrics MetricsReaders

	svc        *service.Service
	now        func() time.Time
	public     *pathMux // handlers for requests from the network
	ops        []api.Operation
	noParam    *httprouter.Router // operations whose path has no parameter
	oneParam   *httprouter.Router // operations whose path has one parameter
	manyParams *httprouter.Router // operations whose path has more parameters

	rates           *requestCounts         // requests to the API, by account
	badTokens       *badTokens             // invalid tokens, by address
	anonymousRate   *requestCounts         // requests to the dashboard without a session
	autoconfigRate  *requestCounts         // requests for configuration documents, by address
	oauthRate       *requestCounts         // requests of OAuth clients, by network
	registrations   *limit.Counter[string] // OAuth clients that registered in this hour, by network
	notices         *noticeLimiter
	idempotencyKeys limit.KeyedMutex[string] // held while a request with the key runs
	bodies          *bodyReader
	uploads         chan struct{} // holds one value for each upload that is being received

	autoconfig  *autoconfig.Server
	description func() *apiDocuments              // the OpenAPI documents, made at first use
	library     func() *library                   // the documentation, made at first use
	loggable    func() map[reflect.Type]*loggable // what the request log shows of bodies, by request type; made at first use
	mcp         func(*call)                       // answers requests to /mcp

	ending  chan struct{} // closed when event streams must end
	endOnce sync.Once
}
