package handlers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/mailstead/mailstead/service/core"
)

// A confirmationRequest answers the first of the two calls of a tool that needs a person's
// agreement. The second call must have the token that it contains.
type confirmationRequest struct {
	Message   string          `json:"message" words:"ours"`
	Quote     json.RawMessage `json:"quote,omitempty" words:"ours"`
	Token     string          `json:"confirmation_token" words:"ours"`
	ExpiresAt core.Time       `json:"expires_at"`
}

// confirmed reports whether a call may run now, because it needs no agreement or has a valid token
// from the first call. If the call may not run, confirmed has answered it.
func (a *mcpServer) confirmed(c *call, answer *bufferedResponse, args []byte, confirmation string) (mayRun bool) {
	s, o := a.server, c.op
	same := canonicalJSON(args)
	if confirmation != "" {
		if err := s.svc.Core.UseConfirmation(c.who, o.Name, same, confirmation); err != nil {
			s.sendError(c, err)
			return false
		}
		return true
	}
	asked := *o
	asked.Call, asked.Status = o.Tool.Confirm, http.StatusOK
	a.runOperation(c, &asked, args)
	text := bytes.TrimSpace(answer.body.Bytes())
	if answer.status != http.StatusOK {
		return false
	}
	answer.body = bytes.Buffer{}
	var in *struct {
		Would string          `json:"would"`
		Quote json.RawMessage `json:"quote"`
	}
	if err := json.Unmarshal(text, &in); err != nil {
		s.sendError(c, fmt.Errorf("decode the confirmation text of %s: %w", o.Name, err))
		return false
	}
	if in == nil {
		return true
	}
	if string(in.Quote) == "null" {
		in.Quote = nil
	}
	c.rec.wanted = false // the operation was not called
	token, until := s.svc.Core.Confirmation(c.who, o.Name, same)
	s.sendJSON(c, http.StatusOK, confirmationRequest{
		Message: "Nothing has been done yet. This would " + in.Would + ". Tell the person so; if they agree, call " + o.Name +
			" again with the same arguments and this confirmation_token.",
		Quote: in.Quote, Token: token, ExpiresAt: until,
	})
	return false
}

// canonicalJSON encodes a JSON value with sorted names and no spaces, so that equal arguments are
// equal bytes.
func canonicalJSON(args []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber() // keeps 1e400 and long numbers exact
	var v any
	if dec.Decode(&v) != nil {
		return args
	}
	out, err := json.Marshal(v)
	if err != nil {
		return args
	}
	return out
}
