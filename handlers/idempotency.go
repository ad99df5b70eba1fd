package handlers

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/once"
)

// answerOnce answers a request that has an Idempotency-Key. The first request with a key runs the
// operation. Later ones get the stored response of the first.
func (s *Server) answerOnce(c *call, path func(name string) string, key string, body []byte) {
	if len(key) > 255 {
		s.sendError(c, core.Invalid("Idempotency-Key", "out_of_range", "must have at most 255 characters"))
		return
	}
	id := once.ID(c.who, c.r.Method, c.r.URL.Path, key)
	unlock, ok := s.idempotencyKeys.TryLock(id)
	if !ok {
		s.sendError(c, core.Errorf("idempotency_in_progress", "The first request with this Idempotency-Key is still running. Try again in a moment."))
		return
	}
	defer unlock()
	req := once.New(id, body, func(out any) (once.Answer, error) { return encodeAnswer(c.op, out) })
	kept, err := once.Replay(s.svc.Core, req)
	if err != nil {
		s.sendError(c, err)
		return
	}
	if kept != nil {
		s.recordReplay(c, kept)
		kept.SetHeaders(c.w.Header())
		c.w.Header().Set("Content-Length", strconv.Itoa(len(kept.Body)))
		c.w.Header().Set("Idempotent-Replayed", "true")
		c.w.WriteHeader(kept.Status)
		_, _ = c.w.Write(kept.Body)
		return
	}
	client, answer := c.w, newBufferedResponse(c.w.Header())
	answer.limit, answer.overflow = once.MaxStoredBody, func() http.ResponseWriter {
		s.storeAnswer(c, req, answer, true)
		client.WriteHeader(answer.status)
		return client
	}
	c.w, c.r = answer, c.r.WithContext(req.Context(c.r.Context()))
	s.answer(c, path, body)
	if answer.target == nil {
		s.storeAnswer(c, req, answer, false)
		client.WriteHeader(answer.status)
		_, _ = client.Write(answer.body.Bytes())
	}
}

// recordReplay notes the error of a replayed answer for the request log.
func (s *Server) recordReplay(c *call, kept *once.Answer) {
	var e errorBody
	if kept.Status < http.StatusBadRequest || json.Unmarshal(kept.Body, &e) != nil {
		return
	}
	if e.Error.Code == "" { // the answer has the form of RFC 9457
		_ = json.Unmarshal(kept.Body, &e.Error) // valid, as has just been seen
	}
	c.recordError(kept.Status, &e.Error)
}

// encodeAnswer encodes an operation's result as the response to store for its Idempotency-Key.
func encodeAnswer(o *api.Operation, out any) (once.Answer, error) {
	body, err := encodeJSON(out)
	return once.Answer{Status: o.Status, ContentType: jsonMedia, Location: jobLocation(o.Status, out), Body: body}, err
}

// storeAnswer stores a response for later requests with the same Idempotency-Key. It is called
// before the client gets the response. If the response is too large, it stores only that there was
// one. Responses with status 401, 429, or 500 and above are not stored.
func (s *Server) storeAnswer(c *call, req *once.Request, answer *bufferedResponse, tooLarge bool) {
	if answer.status == http.StatusUnauthorized || answer.status == http.StatusTooManyRequests || answer.status >= 500 {
		return
	}
	err := once.KeepIfUnstored(s.svc.Core, req, once.Answer{
		Status: answer.status, Body: answer.body.Bytes(), Omitted: tooLarge,
		ContentType: answer.header.Get("Content-Type"), Location: answer.header.Get("Location"),
	})
	if err != nil {
		s.Log.Error("store the response for its Idempotency-Key", "request_id", c.id, "error", err)
	}
}
