package handlers

import (
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// FuzzJudge: what passes is a message that the library can read, and what does not gets an answer
// that is one itself.
func FuzzJudge(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":"a","method":"ping","params":{}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `[]`, `{}`, `null`, ``, ` `,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"method":"resources/list"}`, `{"jsonrpc":"1.0"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":3}`, `{"jsonrpc":"2.0","id":1e400,"method":"ping"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		fault := checkMessage(body)
		if fault == nil {
			var m map[string]json.RawMessage
			if err := json.Unmarshal(body, &m); err != nil {
				t.Fatalf("%q passes: %v", body, err)
			}
			if id, ok := m["id"]; ok && m["method"] != nil && (string(id) == "null" || id[0] == '{' || id[0] == '[') {
				t.Fatalf("%q passes with the id %s", body, id)
			}
			return
		}
		answer, err := json.Marshal(struct {
			Version string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id"`
			Error   *jsonrpc.Error  `json:"error"`
		}{"2.0", fault.id, fault.why})
		if err != nil || len(answer) > 1000 {
			t.Fatalf("%q is answered %q, %v", body, answer, err)
		}
	})
}
