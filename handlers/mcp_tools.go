package handlers

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service/core"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// toolsOf returns the operations that are tools of assistants, by name.
func toolsOf(ops []api.Operation) map[string]*api.Operation {
	tools := map[string]*api.Operation{}
	for i := range ops {
		if o := &ops[i]; !o.Alias && !o.Tool.NoTool {
			tools[o.Name] = o
		}
	}
	return tools
}

// describeTools returns the descriptions of tools for tools/list, made from the same operations and
// types as the OpenAPI document.
func describeTools(tools map[string]*api.Operation) []*mcp.Tool {
	var described []api.Operation
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		described = append(described, *tools[name])
	}
	var out []*mcp.Tool
	for i, in := range openapi.Arguments(described) {
		o := tools[described[i].Name]
		text := cmp.Or(o.Tool.Text, o.Text)
		if o.Tool.IntoTrash {
			in.Add("permanent", &openapi.Schema{Type: "boolean", Description: "Delete it for good, instead of moving it to Trash."}, false)
		}
		if o.Tool.Confirm.Do != nil {
			text += " " + o.Tool.Asks + " takes two calls: the first only describes what would happen and gives a confirmation_token; the second carries it, with the same arguments, once the person has agreed."
			in.Add("confirmation_token", &openapi.Schema{Type: "string", Description: "The token from the first call, once the person has agreed."}, false)
		}
		t := &mcp.Tool{
			Name: o.Name, Title: o.Summary, Description: strings.TrimSpace(o.Summary + ". " + text),
			InputSchema: in, Annotations: annotationsOf(o),
		}
		if in.Properties == nil {
			t.InputSchema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		out = append(out, t)
	}
	return out
}

// annotationsOf returns the annotations of a tool. A client may decide by them what to ask its user
// about.
func annotationsOf(o *api.Operation) *mcp.ToolAnnotations {
	reads := o.Scope == "read"
	return &mcp.ToolAnnotations{
		Title: o.Summary, ReadOnlyHint: reads,
		IdempotentHint:  reads || o.Method != http.MethodPost,
		DestructiveHint: new(!reads && (o.Method == http.MethodDelete || o.Tool.Destructive)),
		OpenWorldHint:   new(o.Tool.Outward),
	}
}

// prepareArguments turns the arguments of a tool into those of its operation, and returns the
// confirmation token apart from them.
func prepareArguments(o *api.Operation, raw []byte) (args []byte, confirmation string, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		raw = []byte("{}")
	}
	fields, err := splitObject(raw)
	if err != nil {
		return nil, "", core.Errorf("invalid_json", "The arguments are not one JSON object: %s.", err)
	}
	delete(fields, o.Tool.Hidden)
	if o.Tool.IntoTrash {
		switch unquoteJSON(fields["permanent"]) {
		case "", "null", "false":
			fields["to"] = json.RawMessage(`"trash"`)
		case "true":
		default:
			return nil, "", core.Invalid("permanent", "wrong_type", "must be true or false")
		}
		delete(fields, "permanent")
	}
	if o.Tool.Confirm.Do != nil {
		confirmation = unquoteJSON(fields["confirmation_token"])
		delete(fields, "confirmation_token")
	}
	args, err = json.Marshal(fields)
	return args, confirmation, err
}

// knownMethods are the MCP methods of a server that has only tools. The library would answer others
// too, as if there were resources and prompts.
var knownMethods = map[string]bool{
	"initialize": true, "ping": true, "server/discover": true, "tools/call": true, "tools/list": true,
}

// maxMessageIDBytes is the maximum length in bytes of a message ID that an error repeats.
const maxMessageIDBytes = 200

// A valuePrefix is the first bytes of a JSON value: enough to know its type, and all of a short
// value.
type valuePrefix string

func (p *valuePrefix) UnmarshalJSON(data []byte) error {
	*p = valuePrefix(data[:min(len(data), maxMessageIDBytes+1)])
	return nil
}

// beginsWithAny reports whether the value begins with one of the characters.
func (p valuePrefix) beginsWithAny(begin string) bool {
	return p != "" && strings.IndexByte(begin, p[0]) >= 0
}

// A messageFault is the answer to an invalid message, in JSON-RPC form. The library would answer in
// plain text.
type messageFault struct {
	status int             // of HTTP
	id     json.RawMessage // of the message, null if it is unknown
	why    *jsonrpc.Error
}

// checkMessage checks the form of a message (JSON-RPC 2.0 sections 4 and 5.1) and its method. It
// returns nil for a message that the library can handle.
func checkMessage(body []byte) *messageFault {
	const letters, digits = `"`, "-0123456789"
	wrong := func(id valuePrefix, code int64, text string) *messageFault {
		f := &messageFault{http.StatusBadRequest, json.RawMessage("null"), &jsonrpc.Error{Code: code, Message: text}}
		if id.beginsWithAny(letters+digits) && len(id) <= maxMessageIDBytes {
			f.id = json.RawMessage(id)
		}
		return f
	}
	if !json.Valid(body) {
		return wrong("", jsonrpc.CodeParseError, "The message is not JSON.")
	}
	var m map[string]valuePrefix
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
	case hasID && !id.beginsWithAny(letters+digits):
		return wrong(id, jsonrpc.CodeInvalidRequest, `"id" must be a text or a number.`)
	case !asks && !(hasID && result != failure):
		return wrong(id, jsonrpc.CodeInvalidRequest, `The message has no "method".`)
	case asks && !method.beginsWithAny(letters):
		return wrong(id, jsonrpc.CodeInvalidRequest, `"method" must be a text.`)
	case m["params"] != "" && !m["params"].beginsWithAny("{["):
		return wrong(id, jsonrpc.CodeInvalidRequest, `"params" must be an object.`)
	case !asks || !hasID: // a response or a notification gets no response
		return nil
	}
	var name string
	if json.Unmarshal([]byte(method), &name) == nil && knownMethods[name] {
		return nil
	}
	f := wrong(id, jsonrpc.CodeMethodNotFound, "There is no such method here. There are tools: see tools/list.")
	f.status = http.StatusOK
	return f
}

// send answers the request with the fault.
func (f *messageFault) send(s *Server, c *call) {
	s.send(c, f.status, jsonMedia, struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *jsonrpc.Error  `json:"error"`
	}{"2.0", f.id, f.why})
}
