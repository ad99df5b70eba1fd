package handlers

import (
	"net/http"
	"time"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
)

const (
	streamCheck        = 5 * time.Second  // interval of the checks of the token
	checksPerPing      = 4                // a ping is sent at every fourth check
	streamWriteTimeout = 10 * time.Second // for a client to accept an event
)

// streamPath is the path of the dashboard's event stream.
const streamPath = "/session/stream"

// stream sends the changes in the account as server-sent events (WHATWG HTML section 9.2): first
// `hello`, then `change` with a list of kinds and IDs, `reset` when the client must read everything
// again, and a regular `ping`. It ends when the token becomes invalid or the server stops. Changes
// while the client was not connected are not sent later: after each `hello` it must read everything
// again.
func (s *Server) stream(c *call) {
	feed, err := s.listen(c)
	if err != nil {
		s.fail(c, err)
		return
	}
	defer feed.Close()
	out := newEvents(c.w)
	if err := out.begin(helloEvent{s.svc.Core.Config.Version, s.Build}); err != nil {
		return
	}
	s.follow(c, feed, out)
}

// helloEvent is the first event. A page compares it with its own version.
type helloEvent struct {
	Version string `json:"version"`
	Build   string `json:"build"`
}

func (s *Server) listen(c *call) (*service.Feed, error) {
	select {
	case <-s.ending:
		return nil, core.Errorf("shutting_down", "The server is stopping. Try again in a moment.")
	default:
		return s.svc.Listen(c.r.Context(), c.who)
	}
}

// follow sends the changes of the feed until the client leaves or the stream must end.
func (s *Server) follow(c *call, feed *service.Feed, out *eventStream) {
	look := time.NewTicker(streamCheck)
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
			return // the client's next request gets the reason
		}
		if err := out.sendChanges(feed.Take()); err != nil {
			return
		}
		if !ping {
			continue
		}
		// An event, not a comment, so that pages notice a dead network.
		if err := out.send("ping", struct{}{}); err != nil {
			return
		}
	}
}

// EndStreams ends every stream and every request that waits for mail, because the server stops.
// Later ones end at once.
func (s *Server) EndStreams() {
	s.endOnce.Do(func() {
		close(s.ending)
		s.svc.Inbox.EndWaiting()
	})
}

// An eventStream writes server-sent events to one client.
type eventStream struct {
	w    http.ResponseWriter
	conn *http.ResponseController
}

func newEvents(w http.ResponseWriter) *eventStream {
	return &eventStream{w, http.NewResponseController(w)}
}

// begin sends the headers and the first event.
func (e *eventStream) begin(first helloEvent) error {
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // tells proxies not to buffer
	return e.send("hello", first)
}

// sendChanges sends the changes from a feed, or `reset` if everything is set.
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
	text, err := encode(data) // one line, with its line end
	if err != nil {
		return err
	}
	return e.write("event: " + event + "\ndata: " + string(text) + "\n")
}

// write sends text at once, with a deadline. Between writes there is no deadline, because over
// HTTP/2 an expired one ends the stream.
func (e *eventStream) write(text string) error {
	if err := e.conn.SetWriteDeadline(time.Now().Add(streamWriteTimeout)); err != nil {
		return err
	}
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	if err := e.conn.Flush(); err != nil {
		return err
	}
	return e.conn.SetWriteDeadline(time.Time{})
}
