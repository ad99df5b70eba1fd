package handlers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestWellKnownCases asks for what is not there with a dashboard that answers any path of its own,
// and for what clients of MCP ask in odd ways.
func TestWellKnownCases(t *testing.T) {
	text, err := os.ReadFile("testdata/cases/41-well-known.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Get, Post, Expect string
		Call              map[string]json.RawMessage `json:"tools/call"`
	}
	if err := json.Unmarshal(text, &rows); err != nil || len(rows) != 7 {
		t.Fatal(len(rows), err)
	}
	b := newSandbox(t, nil)
	b.server.Web = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "dashboard %s", r.URL.Path) })
	b.with("").get("/settings").is(200)
	both := []string{"Accept", "application/json, text/event-stream"}
	for _, row := range rows {
		switch {
		case row.Get != "":
			r := b.with("").get(row.Get)
			if want, err := strconv.Atoi(row.Expect); err != nil || r.status != want || r.text("error.code") != "not_found" {
				t.Errorf("%s: %d %.200s, want %s", row.Get, r.status, r.raw, row.Expect)
			}
		case row.Call != nil: // 5.0 is an integer
			want, _, _ := strings.Cut(row.Expect, " is an integer")
			if string(row.Call["limit"]) != want {
				t.Fatalf("%+v", row)
			}
			arguments, err := json.Marshal(row.Call)
			if err != nil {
				t.Fatal(err)
			}
			b.box("ann")
			for range 6 {
				b.Put(t, "ann@boxes.test", "Subject: x\n\nx\n", mail{})
			}
			call := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_inbox","arguments":%s}}`, arguments)
			b.do("POST", mcpPath, call, both...).is(200).has("result.structuredContent.pagination.count", "5", "result.structuredContent.pagination.limit", "5")
		case row.Expect == "as /mcp, or 308":
			r := b.do("POST", row.Post, listTools, both...)
			if same := b.do("POST", mcpPath, listTools, both...).is(200); r.status != http.StatusPermanentRedirect && string(r.raw) != string(same.raw) {
				t.Errorf("%s: %d %.200s", row.Post, r.status, r.raw)
			}
		default:
			path, accept, _ := strings.Cut(row.Post, " with Accept: ")
			accept, only := strings.CutSuffix(accept, " alone")
			r := b.do("POST", path, listTools, "Accept", accept)
			if want, err := strconv.Atoi(row.Expect); !only || err != nil || r.status != want {
				t.Errorf("%s: %d, want %s", row.Post, r.status, row.Expect)
			}
		}
	}
}

// TestPathsOfProgramsAreNoPages asks for the API and for documents where there are none.
func TestPathsOfProgramsAreNoPages(t *testing.T) {
	b := newSandbox(t, nil)
	b.server.Web = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "dashboard %s", r.URL.Path) })
	for path, want := range map[string]int{
		"/v2/account": 404, "/v2": 404, "//v1/account": 404, "/api/v1/account": 404, "//.well-known/x": 404, "/settings/.well-known/oauth-protected-resource": 404,
		"/settings": 200, "/v": 200, "/vacation": 200, "/settings/v1": 200, "/.well-knowns": 200,
	} {
		if r := b.with("").get(path); r.status != want || want == 404 && r.text("error.code") != "not_found" {
			t.Errorf("%s: %d %.100s, want %d", path, r.status, r.raw, want)
		}
	}
}
