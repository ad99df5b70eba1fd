package handlers

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/mail/feedback"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/code"
)

// Limits of POST /hooks/{kind}/{relay}. A relay sends mail on for this server, and reports there
// in a notice what became of the mail. The request has no token, since the notice itself proves who
// sent it. These limits bound the work until that proof is checked.

const (
	noticesPerMinute    = 3000             // requests from one address
	refusedPerMinute    = 100              // requests from one address that were refused
	maxNotices          = 64               // notices that are processed at once
	maxNoticesOfAddress = 32               // notices of one address that are processed at once
	noticeTimeout       = 20 * time.Second // to read a notice
)

// A noticeLimiter counts the requests of relays by address, and limits how many notices are
// processed at once.
type noticeLimiter struct {
	requests, refused *requestCounts
	runningNotices    *limit.Semaphore[string]
}

func newNoticeLimiter() *noticeLimiter {
	return &noticeLimiter{
		requests: newRequestCounts(), refused: newRequestCounts(),
		runningNotices: limit.NewSemaphore[string](maxNotices, maxNoticesOfAddress),
	}
}

// acquireSlot takes a slot for a notice of addr. The caller must call release. The error says why
// there is no slot.
func (h *noticeLimiter) acquireSlot(addr string, now time.Time) (release func(), err error) {
	if h.requests.add(addr, now) > noticesPerMinute || h.refused.requestsThisMinute(addr, now) > refusedPerMinute {
		return nil, rateLimited(now, "Too many requests came from %s. Wait for the next minute.", addr)
	}
	release, ok := h.runningNotices.TryAcquire(addr)
	if !ok {
		e := core.Errorf("busy", "Too many notices are being processed. Send it again in a moment.")
		e.RetryAfter = 5 * time.Second
		return nil, e
	}
	return release, nil
}

// receiveNotice answers a relay that sends a notice.
func (s *Server) receiveNotice(c *call) {
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
	kind, relay, ok := strings.Cut(strings.TrimPrefix(c.r.URL.Path, hooksPath), "/")
	if !ok || strings.Contains(relay, "/") {
		s.sendNoticeError(c, core.NotFound("relay"))
		return
	}
	if c.r.Method != http.MethodPost {
		c.w.Header().Set("Allow", http.MethodPost)
		s.sendNoticeError(c, core.Errorf("method_not_allowed", "%s is not allowed here. Use POST.", c.r.Method))
		return
	}
	addr := remoteAddr(c.r)
	release, err := s.notices.acquireSlot(addr, s.now())
	if err != nil {
		s.sendNoticeError(c, err)
		return
	}
	defer release()
	body, err := readNotice(c)
	if err == nil {
		err = s.svc.Feedback.TakeNotices(c.r.Context(), kind, relay, feedback.Request{Header: c.r.Header, Query: c.r.URL.Query(), Body: body})
	}
	if err != nil {
		s.sendNoticeError(c, err)
		return
	}
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(c.w, "ok\n") // a client that has left needs no answer
}

// readNotice reads a notice of at most feedback.MaxBody bytes.
func readNotice(c *call) ([]byte, error) {
	tooLarge := core.Errorf("payload_too_large", "A notice can have at most %d bytes.", feedback.MaxBody)
	if c.r.ContentLength > feedback.MaxBody {
		return nil, tooLarge
	}
	// If the connection supports no deadline, the time limits of the HTTP server apply.
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(noticeTimeout))
	body, err := io.ReadAll(&limitedReader{c.r.Body, feedback.MaxBody})
	switch {
	case errors.Is(err, errTooLarge):
		return nil, tooLarge
	case err != nil:
		return nil, core.Errorf("invalid_json", "The notice is incomplete.").Because(err)
	}
	return body, nil
}

// sendNoticeError answers with the error as a line of text, because relays show the response to
// their users. It counts refused requests.
func (s *Server) sendNoticeError(c *call, err error) {
	e := core.Explain(err)
	status := code.Status(e.Code)
	addr := remoteAddr(c.r)
	if status == http.StatusForbidden {
		s.notices.refused.add(addr, s.now())
	}
	switch {
	case status >= http.StatusInternalServerError:
		s.Log.Error("process a relay's notice", "request_id", c.id, "path", c.r.URL.Path, "error", err)
	case status == http.StatusForbidden:
		s.Log.Warn("a relay's notice was refused", "request_id", c.id, "path", c.r.URL.Path, "from", addr, "error", errors.Unwrap(e))
	}
	if e.RetryAfter > 0 {
		c.w.Header().Set("Retry-After", strconv.Itoa(retrySeconds(e.RetryAfter)))
	}
	http.Error(c.w, e.Code+": "+e.Message, status)
}
