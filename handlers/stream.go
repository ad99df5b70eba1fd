package handlers

import (
	"net/http"
	"time"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
)

const (
	streamCheckInterval = 5 * time.Second  // time between two checks of the token
	checksPerPing       = 4                // a ping is sent after every fourth check
	streamWriteTimeout  = 10 * time.Second // for a client to receive an event
)

// streamPath is the path of the event stream, by which the dashboard learns of changes.
const streamPath = "/session/stream"

// serveStream sends the changes in the account as server-sent events (WHATWG HTML section 9.2). The
// first event is `hello`. A `change` lists the kinds and IDs of what has changed. A `reset` means
// that the client must read everything again. A `ping` comes regularly. Changes that were made
// while the client was not connected are not sent later, so the client must read everything again
// after each `hello`. The stream ends when the token becomes invalid or the server stops.
func (s *Server) serveStream(c *call) {
	feed, err := s.openFeed(c)
	if err != nil {
		s.sendError(c, err)
		return
	}
	defer feed.Close()
	out := newEventStream(c.w)
	if err := out.begin(helloEvent{s.svc.Core.Config.Version, s.Build}); err != nil {
		return
	}
	s.sendFeed(c, feed, out)
}

// A helloEvent is the data of the first event. A page compares it with its own version.
type helloEvent struct {
	Version string `json:"version"`
	Build   string `json:"build"`
}

// openFeed opens the feed of changes in the caller's account.
func (s *Server) openFeed(c *call) (*service.Feed, error) {
	select {
	case <-s.ending:
		return nil, core.Errorf("shutting_down", "The server is stopping. Try again in a moment.")
	default:
		return s.svc.Listen(c.r.Context(), c.who)
	}
}

// sendFeed sends the changes of the feed until the client leaves, its token becomes invalid, or the
// server stops.
func (s *Server) sendFeed(c *call, feed *service.Feed, out *eventStream) {
	look := time.NewTicker(streamCheckInterval)
	defer look.Stop()
	for looks := 1; ; {
		ping := false
		select {
		case <-c.r.Context().Done():
			return
		case <-s.ending:
			return
		case <-look.C:
			ping = looks%checksPerPing == 0
			looks++
		case <-feed.Wake():
		}
		if s.svc.Accounts.CheckActor(c.r.Context(), c.who) != nil {
			return // the client learns the reason from its next request
		}
		if err := out.sendChanges(feed.Take()); err != nil {
			return
		}
		if !ping {
			continue
		}
		// A ping is an event, not a comment: pages see only events, and notice by missing pings
		// that the network is dead.
		if err := out.send("ping", struct{}{}); err != nil {
			return
		}
	}
}

// EndStreams ends all event streams and all requests that wait for mail, because the server stops.
// Those that begin later end at once.
func (s *Server) EndStreams() {
	s.endOnce.Do(func() {
		close(s.ending)
		s.svc.Inbox.EndWaiting()
	})
}

// An eventStream writes server-sent events to one client.
type eventStream struct {
	w          http.ResponseWriter
	controller *http.ResponseController
}

func newEventStream(w http.ResponseWriter) *eventStream {
	return &eventStream{w, http.NewResponseController(w)}
}

// begin sends the headers and the first event.
func (e *eventStream) begin(first helloEvent) error {
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // tells proxies not to buffer
	return e.send("hello", first)
}

// sendChanges sends the changes of a feed, or `reset` if everything is true.
func (e *eventStream) sendChanges(changes []service.FeedChange, everything bool) error {
	switch {
	case everything:
		return e.send("reset", struct{}{})
	case len(changes) == 0:
		return nil
	}
	return e.send("change", changes)
}

func (e *eventStream) send(event string, data any) error {
	text, err := encodeJSON(data) // one line, with its line end
	if err != nil {
		return err
	}
	return e.write("event: " + event + "\ndata: " + string(text) + "\n")
}

// write sends text at once, with a deadline. Afterwards it removes the deadline, because over
// HTTP/2 a deadline that expires between two events ends the stream.
func (e *eventStream) write(text string) error {
	if err := e.controller.SetWriteDeadline(time.Now().Add(streamWriteTimeout)); err != nil {
		return err
	}
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	if err := e.controller.Flush(); err != nil {
		return err
	}
	return e.controller.SetWriteDeadline(time.Time{})
}
