package handlers

import (
	"fmt"
	"strings"
	"testing"
)

// TestWarmupSettings: what an account says about warm-up mail is kept as it is meant, and refused
// where it cannot work.
func TestWarmupSettings(t *testing.T) {
	b := newSandbox(t, nil)
	const account = "/v1/account"
	b.get(account).is(200).has("warmup_headers", "[]", "warmup_folder", "<nil>", "warmup_days", "7")
	b.patch(account, `{"warmup_headers":[{"name":"X-Warm","value":" a b "},{"name":"x-warm","value":"a b"},{"name":"X-Warm"},{"name":"X-Warm","value":null}],
		"warmup_folder":"Programs/Warm-up/","warmup_days":14}`).is(200)
	b.get(account).has("warmup_headers.0.name", "X-Warm", "warmup_headers.0.value", "a b", "warmup_headers.1.value", "<nil>", "warmup_folder", "Programs/Warm-up", "warmup_days", "14")
	if n := len(b.get(account).list("warmup_headers", "name")); n != 2 {
		t.Errorf("%d header fields", n)
	}
	for body, want := range map[string]string{
		`{"warmup_headers":[{"name":"Subject","value":"x"}]}`:  "warmup_headers.0.name",
		`{"warmup_headers":[{"name":"X-A"},{"name":"X-"}]}`:    "warmup_headers.1.name",
		`{"warmup_headers":[{"name":"X-A:b"}]}`:                "warmup_headers.0.name",
		`{"warmup_headers":[{"name":"X-Ä"}]}`:                  "warmup_headers.0.name",
		`{"warmup_headers":[{"value":"x"}]}`:                   "warmup_headers.0.name",
		`{"warmup_headers":[{"name":"X-A","value":"x\ny"}]}`:   "warmup_headers.0.value",
		`{"warmup_headers":[{"name":"X-A","value":7}]}`:        "warmup_headers.value",
		`{"warmup_headers":null}`:                              "warmup_headers",
		`{"warmup_folder":"Inbox"}`:                            "warmup_folder",
		`{"warmup_folder":"junk"}`:                             "warmup_folder",
		`{"warmup_folder":"All"}`:                              "warmup_folder",
		`{"warmup_folder":""}`:                                 "warmup_folder",
		`{"warmup_folder":"a//b"}`:                             "warmup_folder",
		`{"warmup_folder":"` + strings.Repeat("x", 256) + `"}`: "warmup_folder",
		`{"warmup_days":0}`:                                    "warmup_days",
		`{"warmup_days":366}`:                                  "warmup_days",
	} {
		b.patch(account, body).fails(400, "validation_error").has("error.details.0.field", want)
	}
	var many []string
	for n := range 21 {
		many = append(many, fmt.Sprintf(`{"name":"X-%d"}`, n))
	}
	b.patch(account, `{"warmup_headers":[`+strings.Join(many, ",")+`]}`).fails(400, "too_many_items").has("error.details.0.field", "warmup_headers")
	b.patch(account, `{"warmup_folder":null,"warmup_headers":[]}`).is(200).has("warmup_folder", "<nil>", "warmup_headers", "[]", "warmup_days", "14")
}
