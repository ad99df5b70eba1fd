package handlers

import (
	"io"
	"net/http"
)

// challengePath is where certificate authorities look for what we were to put there (RFC 8555
// section 8.3). It is never redirected: whoever answers there gets certificates for the name.
const challengePath = "/.well-known/acme-challenge/"

// proveName answers a certificate authority that looks whether a name leads here.
func (s *Server) proveName(w http.ResponseWriter, r *http.Request, token string) {
	answer, ok := s.svc.ChallengeAnswer(token)
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, answer)
}
