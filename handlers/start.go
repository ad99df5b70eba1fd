package handlers

import (
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/autoconfig"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
)

// New returns the HTTP server of a service.
func New(svc *service.Service) *Server {
	s := &Server{Log: slog.Default(), svc: svc, ops: api.All(svc), now: svc.Core.Now, ending: make(chan struct{})}
	s.rates = newRequestCounts()
	s.badTokens = newBadTokens()
	s.autoconfigRate, s.anonymousRate = newRequestCounts(), newRequestCounts()
	s.oauthRate, s.registrations = newRequestCounts(), limit.NewCounter[string](time.Hour)
	s.notices = newNoticeLimiter()
	s.bodies, s.uploads = &bodyReader{svc}, make(chan struct{}, maxUploads)
	s.autoconfig = &autoconfig.Server{Service: svc, Now: func() time.Time { return s.now() }}
	s.description = sync.OnceValue(s.makeDescription)
	s.library = sync.OnceValue(s.makeLibrary)
	s.loggable = sync.OnceValue(func() map[reflect.Type]*loggable { return loggableRequests(s.ops) })
	s.mcp = newMCPServer(s).serve
	s.fillRouters()
	s.public = s.publicPaths()
	return s
}

// ServeHTTP answers requests from the network.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, leave, ok := s.admitFromProxy(w, r)
	if !ok {
		return
	}
	defer leave()
	dispatch(s.public, w, r)
}

// admitFromProxy stores the client of a request that came through a proxy in the request's context.
// If the client has too many requests at once, it answers the request and ok is false.
func (s *Server) admitFromProxy(w http.ResponseWriter, r *http.Request) (out *http.Request, leave func(), ok bool) {
	out, leave, ok = s.Proxies.admit(r)
	if !ok {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many requests from this address at once: wait until some are answered", http.StatusServiceUnavailable)
	}
	return out, leave, ok
}

// Local returns the handler for the local socket. Its client is the operator, who acts as the owner
// of an account: the one that the header X-Mailstead-Account names, or else the first.
func (s *Server) Local() http.Handler {
	mux := s.newPathMux(func(c *call) error {
		who, err := s.svc.Accounts.Operator(c.r.Context(), c.r.Header.Get("X-Mailstead-Account"))
		c.who, c.via = who, core.AuditCommands
		return err
	}, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { dispatch(mux, w, r) })
}
