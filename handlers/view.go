package handlers

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
)

const (
	viewPath     = "/session/view/{user_id}/{uid}"
	imageTimeout = time.Minute // for a client to read an image
)

// viewPolicy is the Content-Security-Policy of a shown message: one style sheet, images from here,
// links that open new windows, and no scripts. In a tab of its own it has no origin. In a frame,
// which only our pages can have around it, it keeps ours, so that they can measure its height.
func viewPolicy(styleHash string, framed bool) string {
	origin := ""
	if framed {
		origin = "allow-same-origin "
	}
	return "default-src 'none'; style-src '" + styleHash + "'; img-src 'self'; sandbox " + origin + "allow-popups allow-popups-to-escape-sandbox; " +
		"frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
}

// viewMessage shows a message as a document for a frame. Header fields count its images: those on
// other servers (X-Images-Remote), those of them that are not loaded (X-Images-Held), and those
// that were removed because nobody would see them (X-Images-Trackers).
func (s *Server) viewMessage(c *call) {
	h := c.w.Header()
	h.Set("Referrer-Policy", "no-referrer")
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		s.fail(c, core.Invalid("query", "invalid", "the part of the address behind ? is not properly encoded"))
		return
	}
	var in inbox.ViewIn
	if err := decode(&in, source{path: c.r.PathValue, query: query, header: c.r.Header}); err != nil {
		s.fail(c, err)
		return
	}
	d, err := s.svc.ViewMessage(c.r.Context(), c.who, in)
	if err != nil {
		s.fail(c, err)
		return
	}
	h.Set("X-Images-Remote", strconv.Itoa(d.Remote))
	h.Set("X-Images-Held", strconv.Itoa(d.Held))
	h.Set("X-Images-Trackers", strconv.Itoa(d.Trackers))
	h.Set("Content-Security-Policy", viewPolicy(d.StyleHash, c.r.Header.Get("Sec-Fetch-Dest") == "iframe"))
	h.Add("Vary", "Sec-Fetch-Dest")
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(d.HTML)))
	_, _ = c.w.Write(d.HTML) // a client that has gone needs no answer
}

// sendImage sends an image of such a document. Its link has a token, since a document in a tab of
// its own has no origin and sends no cookie.
func (s *Server) sendImage(c *call) {
	token, addr, ok := s.beginLink(c, imagePath)
	if !ok {
		return
	}
	image, err := s.svc.OpenImage(c.r.Context(), token)
	if err != nil {
		s.countBadLink(addr, err)
		s.fail(c, err)
		return
	}
	c.w.Header().Set("Cache-Control", "private, max-age="+strconv.Itoa(int(image.MaxAge.Seconds())))
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(imageTimeout)) // otherwise the server's own deadline holds
	s.sendBody(c, http.StatusOK, &image.File, "inline")
}
