package handlers

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/mailstead/mailstead/handlers/autoconfig"
)

// Paths that several files use.
const (
	imagePath            = "/session/image/" // followed by the token of an image
	exportPath           = "/export/"        // followed by the token of an export
	unsubscribePath      = "/unsubscribe/"   // followed by the token of a recipient
	hooksPath            = "/hooks/"         // followed by the kind of a relay and its name
	mcpPath              = "/mcp"
	resourceMetadataPath = "/.well-known/oauth-protected-resource" + mcpPath // RFC 9728 section 3.1

	// challengePath is where certificate authorities fetch the responses to their challenges
	// (RFC 8555 section 8.3). It is never redirected, since whoever answers there gets
	// certificates for the host.
	challengePath = "/.well-known/acme-challenge/"
)

// A pathMux finds the handler of a path. api is the handler of /v1/, where most requests go, and
// saves the lookup for them.
type pathMux struct {
	*http.ServeMux
	api http.Handler
}

// dispatch passes a request to the handler of its path. It looks up the path as for the method
// CONNECT. For other methods ServeMux redirects paths such as "//x" and "/x/../y", which have
// handlers here.
func dispatch(mux *pathMux, w http.ResponseWriter, r *http.Request) {
	path := autoconfig.PathOf(r.URL.Path)
	if strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/v1/openapi.") {
		mux.api.ServeHTTP(w, r)
		return
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" // the request target is "*", or a URL without a path
	}
	h, pattern := mux.Handler(&http.Request{Method: http.MethodConnect, URL: &url.URL{Path: path}})
	if strings.Contains(pattern, "{") {
		parts := strings.Split(path, "/")
		for i, name := range strings.Split(pattern, "/") {
			if strings.HasPrefix(name, "{") {
				r.SetPathValue(strings.Trim(name, "{}"), parts[i])
			}
		}
	}
	h.ServeHTTP(w, r)
}
