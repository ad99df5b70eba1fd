// Package handlers serves HTTP: it turns requests into calls of the service by one table of
// operations, and the service's results into responses. It knows no rules of the product and no
// store.
//
// Where things are:
//   - server.go: [Server]; start.go: [New], and the handlers of the listeners. routes.go: what
//     answers at which path (the paths themselves are in paths.go).
//   - requests.go: what surrounds the answer to every request. authentication.go: who sent it;
//     proxies.go: from which address; origins.go: from which page, and by which name it reached us.
//   - operations.go: the operations of the API. bodies.go and decode.go read a request,
//     idempotency.go and uploads.go have rules for some, respond.go answers and refuses.
//   - session.go: the dashboard's session; pages.go: pages without it; oauth.go: sign-in for /mcp.
//   - mcp.go and mcp_*.go: the operations as tools of assistants.
package handlers

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/julienschmidt/httprouter"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/autoconfig"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/service"
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
	mcp         func(*call)         // answers at /mcp

	ending  chan struct{} // closed when streams must end
	endOnce sync.Once
}
