package handlers

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/mailstead/mailstead/service"
)

const (
	viewPath   = "/session/view/{user_id}/{uid}"
	imageWrite = time.Minute // for how long a client may take an image
)

// viewPolicy is what a document of a message may do: nothing but have one style sheet, show images
// that lead here, and open links in windows of their own. It has no scripts anywhere. In a tab it
// has no origin either, so that it is nobody, even here; in a frame, which only our own pages can
// be around, it keeps ours, so that the page around it can see how high it is.
func viewPolicy(styleHash string, framed bool) string {
	origin := ""
	if framed {
		origin = "allow-same-origin "
	}
	return "default-src 'none'; style-src '" + styleHash + "'; img-src 'self'; sandbox " + origin + "allow-popups allow-popups-to-escape-sandbox; " +
		"frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
}

// viewMessage shows a message as a document for a frame, whose height the page around it sets.
// Header fields say how many images lie elsewhere (X-Images-Remote), how many of these the document
// only keeps a place for (X-Images-Held), and how many that nobody would see are left out
// (X-Images-Trackers).
func (s *Server) viewMessage(c *call) {
	h := c.w.Header()
	h.Set("Referrer-Policy", "no-referrer")
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		s.fail(c, service.Invalid("query", "invalid", "the part of the address behind ? is not properly encoded"))
		return
	}
	path := map[string]string{"user_id": c.r.PathValue("user_id"), "uid": c.r.PathValue("uid")}
	var in service.ViewIn
	if err := decode(&in, source{path: path, query: query, header: c.r.Header}); err != nil {
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

// sendImage answers the images of such documents. Their links need no cookie, which a frame without
// an origin does not send.
func (s *Server) sendImage(c *call) {
	token, addr, ok := s.takeLink(c, imagePath)
	if !ok {
		return
	}
	image, err := s.svc.OpenImage(c.r.Context(), token)
	if err != nil {
		s.countDead(addr, err)
		s.fail(c, err)
		return
	}
	c.w.Header().Set("Cache-Control", "private, max-age="+strconv.Itoa(int(image.MaxAge.Seconds())))
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(imageWrite)) // where there is none, the server's own holds
	s.sendBody(c, http.StatusOK, &image.File, "inline")
}
