package handlers

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/mailboxes"
)

// mboxType is the media type of an mbox file (RFC 4155).
const mboxType = "application/mbox"

const (
	uploadIdleTimeout = time.Minute // longest time without any bytes of a file
	maxUploads        = 8           // files that are received at once
)

// answerUpload receives a file of any length, writes it to disk as it arrives, and answers with the
// job that imports the file. It ignores an Idempotency-Key: an import skips messages that were
// imported before, so a client can safely repeat it.
func (s *Server) answerUpload(c *call, path func(name string) string) {
	userID := path("user_id")
	c.who.Request = &core.Request{Action: c.op.Name, Via: c.via, ID: c.id, Fields: []string{"mbox"}}
	if err := c.op.Upload.May(c.r.Context(), c.who, userID); err != nil {
		s.sendError(c, err)
		return
	}
	select {
	case s.uploads <- struct{}{}:
		defer func() { <-s.uploads }()
	default:
		e := core.Errorf("rate_limited", "Too many files are being received. Try again in a moment.")
		e.RetryAfter = 10 * time.Second
		s.sendError(c, e)
		return
	}
	file, err := s.svc.Mailboxes.KeepUpload(c.who, mailboxes.Upload{
		UserID: userID, Length: c.r.ContentLength, From: clientReader{&steadyReader{c.r.Body, http.NewResponseController(c.w)}},
	})
	if errors.Is(err, errCutBody) {
		err = core.Errorf("invalid_json", "The file is incomplete. Send it again.").Because(err)
	}
	if err != nil {
		drainBody(c)
		s.sendError(c, err)
		return
	}
	out, err := c.op.Upload.Plan(c.r.Context(), c.who, userID, file)
	if err != nil {
		s.sendError(c, errors.Join(err, s.svc.Mailboxes.DropUpload(file)))
		return
	}
	s.sendJSON(c, c.op.Status, out)
}

// A steadyReader reads a body without a limit on the total time, as long as bytes keep arriving.
type steadyReader struct {
	body       io.Reader
	controller *http.ResponseController
}

func (r *steadyReader) Read(p []byte) (int, error) {
	until := time.Now().Add(uploadIdleTimeout)
	if err := errors.Join(r.controller.SetReadDeadline(until), r.controller.SetWriteDeadline(until.Add(uploadIdleTimeout))); err != nil {
		return 0, err
	}
	return r.body.Read(p)
}
