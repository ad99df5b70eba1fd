package handlers

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/service"
)

// What relays tell of mail that they took comes to POST /hooks/{kind}/{relay}, without a token:
// each notice proves by itself where it comes from. Nobody may make us work much before that is
// known.

const (
	noticesEach = 3000 // requests from one address in a minute
	forgedEach  = 100  // refused ones
	noticesMost = 64   // requests that are read or worked on at a time
	noticesFrom = 32   // of them from one address, who may be slow to say what he has to
	noticeWait  = 20 * time.Second
)

// hooks counts who comes.
type hooks struct {
	came, forged *rates // by address

	mu   sync.Mutex
	all  int            // requests that are read or worked on
	from map[string]int // of them, by address
}

func newHooks() *hooks {
	return &hooks{came: newRates(service.Limits{}), forged: newRates(service.Limits{}), from: map[string]int{}}
}

// admit takes a place, which leave gives back, or says why there is none.
func (h *hooks) admit(addr string, now time.Time) error {
	if h.came.take(addr, now) > noticesEach || h.forged.used(addr, now) > forgedEach {
		e := service.Errorf(http.StatusTooManyRequests, "rate_limited", "Too many requests came from %s. Wait for the next minute.", addr)
		e.RetryAfter = now.Truncate(time.Minute).Add(time.Minute).Sub(now)
		return e
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == noticesMost || h.from[addr] == noticesFrom {
		e := service.Errorf(http.StatusServiceUnavailable, "rate_limited", "Too many notices are being taken. Send it again in a moment.")
		e.RetryAfter = 5 * time.Second
		return e
	}
	h.all++
	h.from[addr]++
	return nil
}

func (h *hooks) leave(addr string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all--
	if h.from[addr]--; h.from[addr] == 0 {
		delete(h.from, addr)
	}
}

// takeNotice answers one request of a relay.
func (s *Server) takeNotice(c *call) {
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
	kind, relay, ok := strings.Cut(strings.TrimPrefix(c.r.URL.Path, hooksPath), "/")
	if !ok || strings.Contains(relay, "/") {
		s.noticeFailed(c, service.NotFound("relay"))
		return
	}
	if c.r.Method != http.MethodPost {
		c.w.Header().Set("Allow", http.MethodPost)
		s.noticeFailed(c, service.Errorf(http.StatusMethodNotAllowed, "method_not_allowed", "%s is not possible here. Use POST.", c.r.Method))
		return
	}
	addr := remoteAddr(c.r)
	if err := s.hooks.admit(addr, s.now()); err != nil {
		s.noticeFailed(c, err)
		return
	}
	defer s.hooks.leave(addr)
	body, err := readNotice(c)
	if err == nil {
		err = s.svc.TakeNotices(c.r.Context(), kind, relay, feedback.Request{Header: c.r.Header, Query: c.r.URL.Query(), Body: body})
	}
	if err != nil {
		s.noticeFailed(c, err)
		return
	}
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(c.w, "ok\n") // a client that has gone needs no answer
}

func readNotice(c *call) ([]byte, error) {
	tooLarge := service.Errorf(http.StatusRequestEntityTooLarge, "payload_too_large", "A notice may have at most %d bytes.", feedback.MaxBody)
	if c.r.ContentLength > feedback.MaxBody {
		return nil, tooLarge
	}
	// What cannot be told when to end is bounded by the server's own limits.
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(noticeWait))
	body, err := io.ReadAll(&bounded{c.r.Body, feedback.MaxBody})
	switch {
	case errors.Is(err, errOver):
		return nil, tooLarge
	case err != nil:
		return nil, service.Errorf(http.StatusBadRequest, "invalid_json", "The notice did not come whole.").Because(err)
	}
	return body, nil
}

// noticeFailed answers in a line of text, which is what providers show, and counts what was forged.
func (s *Server) noticeFailed(c *call, err error) {
	e := service.Explain(err)
	addr := remoteAddr(c.r)
	if e.Status == http.StatusForbidden {
		s.hooks.forged.take(addr, s.now())
	}
	switch {
	case e.Status >= http.StatusInternalServerError:
		s.Log.Error("take a relay's notice", "request_id", c.id, "path", c.r.URL.Path, "error", err)
	case e.Status == http.StatusForbidden:
		s.Log.Warn("a relay's notice was refused", "request_id", c.id, "path", c.r.URL.Path, "from", addr, "error", errors.Unwrap(e))
	}
	if e.RetryAfter > 0 {
		c.w.Header().Set("Retry-After", strconv.Itoa(retrySeconds(e.RetryAfter)))
	}
	http.Error(c.w, e.Code+": "+e.Message, e.Status)
}
