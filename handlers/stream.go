package handlers

import (
	"net/http"
	"time"

	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
)

const (
	streamCheck        = 5 * time.Second  // between checks of the listener's token while nothing happens
	checksPerPing      = 4                // a ping goes out at every so many checks
	streamWriteTimeout = 10 * time.Second // for a client to read what is written
)

// streamPath is where the dashboard listens.
const streamPath = "/session/stream"

// stream tells the caller what changes in the account, as server-sent events (WHATWG HTML section
// 9.2): first `hello`, then `change` with a list of kinds and ids, or `reset` when everything is to
// be read again, and `ping` now and then. It ends with the token, and when the server stops. Events
// of the time in which nobody listened are not told later: after another `hello` everything is to
// be read again.
func (s *Server) stream(c *call) {
	feed, err := s.listen(c)
	if err != nil {
		s.fail(c, err)
		return
	}
	defer feed.Close()
	out := newEvents(c.w)
	if err := out.begin(hello{s.svc.Core.Config.Version, s.Build}); err != nil {
		return
	}
	s.follow(c, feed, out)
}

// hello is the first event. By it a page knows whether it is of the server's version.
type hello struct {
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

// follow sends what the feed has until somebody ends it.
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
			return // the next request gets the reason
		}
		if err := out.sendChanges(feed.Take()); err != nil {
			return
		}
		if !ping {
			continue
		}
		if err := out.send("ping", struct{}{}); err != nil { // an event, so that pages notice a dead network
			return
		}
	}
}

// EndStreams ends every stream and every request that waits for mail, and every later one at its
// start, because the server stops.
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

// begin sends the head and the first event.
func (e *eventStream) begin(first hello) error {
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // tells proxies not to buffer
	return e.send("hello", first)
}

// sendChanges sends what a feed gave.
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
	text, err := encode(data) // one line, and its end
	if err != nil {
		return err
	}
	return e.write("event: " + event + "\ndata: " + string(text) + "\n")
}

// write sends text at once, within a bounded time. Between writes there is no deadline: over HTTP/2
// one that passes ends the stream.
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
