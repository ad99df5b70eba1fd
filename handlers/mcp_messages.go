package handlers

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// methods are those of a server that has tools only. The library knows more, and would answer them
// as if there were resources and prompts.
var methods = map[string]bool{
	"initialize": true, "ping": true, "server/discover": true, "tools/call": true, "tools/list": true,
}

// maxMessageID is the most bytes of an id that our own answers repeat.
const maxMessageID = 200

// A valuePart is the beginning of a JSON value: enough to know its type, or a short value.
type valuePart string

func (p *valuePart) UnmarshalJSON(data []byte) error {
	*p = valuePart(data[:min(len(data), maxMessageID+1)])
	return nil
}

// is tells whether the value begins with one of the characters.
func (p valuePart) is(begin string) bool { return p != "" && strings.IndexByte(begin, p[0]) >= 0 }

// A messageFault is an error in a message. The library would answer it in plain text.
type messageFault struct {
	status int
	id     json.RawMessage
	why    *jsonrpc.Error
}

// checkMessage checks the form of a message (JSON-RPC 2.0 sections 4 and 5.1) and its method; nil
// if the library may have it.
func checkMessage(body []byte) *messageFault {
	const letters, digits = `"`, "-0123456789"
	wrong := func(id valuePart, code int64, text string) *messageFault {
		f := &messageFault{http.StatusBadRequest, json.RawMessage("null"), &jsonrpc.Error{Code: code, Message: text}}
		if id.is(letters+digits) && len(id) <= maxMessageID {
			f.id = json.RawMessage(id)
		}
		return f
	}
	if !json.Valid(body) {
		return wrong("", jsonrpc.CodeParseError, "The message is not JSON.")
	}
	var m map[string]valuePart
	switch start := bytes.TrimLeft(body, " \t\r\n"); {
	case start[0] == '[':
		return wrong("", jsonrpc.CodeInvalidRequest, "Send one message at a time: batches are no longer part of the protocol.")
	case json.Unmarshal(body, &m) != nil || m == nil:
		return wrong("", jsonrpc.CodeInvalidRequest, "The message must be a JSON object.")
	}
	id, hasID := m["id"]
	method, asks := m["method"]
	_, result := m["result"]
	_, failure := m["error"]
	switch {
	case m["jsonrpc"] != `"2.0"`:
		return wrong(id, jsonrpc.CodeInvalidRequest, `"jsonrpc" must be "2.0".`)
	case hasID && !id.is(letters+digits):
		return wrong(id, jsonrpc.CodeInvalidRequest, `"id" must be a text or a number.`)
	case !asks && !(hasID && result != failure):
		return wrong(id, jsonrpc.CodeInvalidRequest, `The message has no "method".`)
	case asks && !method.is(letters):
		return wrong(id, jsonrpc.CodeInvalidRequest, `"method" must be a text.`)
	case m["params"] != "" && !m["params"].is("{["):
		return wrong(id, jsonrpc.CodeInvalidRequest, `"params" must be an object.`)
	case !asks || !hasID: // an answer or a notification, which nobody answers
		return nil
	}
	var name string
	if json.Unmarshal([]byte(method), &name) == nil && methods[name] {
		return nil
	}
	f := wrong(id, jsonrpc.CodeMethodNotFound, "There is no such method here. There are tools: see tools/list.")
	f.status = http.StatusOK
	return f
}

// send answers with the error in the form of JSON-RPC.
func (f *messageFault) send(s *Server, c *call) {
	s.send(c, f.status, jsonMedia, struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *jsonrpc.Error  `json:"error"`
	}{"2.0", f.id, f.why})
}
