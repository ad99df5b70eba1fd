package handlers

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/mailstead/mailstead/handlers/autoconfig"
)

// Paths that other files use.
const (
	imagePath       = "/session/image/" // followed by the token of an image
	exportPath      = "/export/"        // followed by the token of an export
	unsubscribePath = "/unsubscribe/"   // followed by the token of a recipient
	hooksPath       = "/hooks/"         // followed by the kind of a relay and its name
	mcpPath         = "/mcp"
	resourcePath    = "/.well-known/oauth-protected-resource" + mcpPath // RFC 9728 section 3.1

	// Certificate authorities fetch the responses to their challenges here (RFC 8555 section 8.3).
	// The path is never redirected: whoever answers here gets certificates for the name.
	challengePath = "/.well-known/acme-challenge/"
)

// A pathMux is the mux of a listener, and the handler of /v1, which most requests go to without a
// lookup.
type pathMux struct {
	*http.ServeMux
	api http.Handler
}

// dispatch passes a request to the handler of its path. It looks the path up as if the method were
// CONNECT, because ServeMux redirects other methods from paths such as "//x" and "/x/../y", which
// have handlers here.
func dispatch(mux *pathMux, w http.ResponseWriter, r *http.Request) {
	path := autoconfig.PathOf(r.URL.Path)
	if strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/v1/openapi.") {
		mux.api.ServeHTTP(w, r)
		return
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" // of "*", or of a URL without a path
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
