package handlers

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/mta"
)

// specimen has a field of every sort that requests have.
type specimen struct {
	core.PageIn
	ID     string             `path:"id"`
	Flag   *bool              `query:"flag"`
	Since  *core.Time         `query:"since"`
	Word   string             `query:"word" max:"5" enum:"a|b|"`
	Name   string             `json:"name" required:"true" min:"1" max:"10" alias:"title"`
	Count  *int64             `json:"count" min:"0" max:"100"`
	Ratio  float64            `json:"ratio" max:"1"`
	Note   core.Opt[string]   `json:"note" max:"10"`
	Number core.Opt[int]      `json:"number" min:"1"`
	Tags   []string           `json:"tags" min:"1" max:"3"`
	Boxes  []inbox.MessageRef `json:"boxes" max:"3"`
	Page   mta.HTMLText       `json:"page"`
	Yes    bool               `json:"yes"`
}

func TestDecodeNamesEveryWrongField(t *testing.T) {
	var in specimen
	err := decode(&in, source{
		query:  url.Values{"limit": {"x"}, "filter[flag]": {"maybe"}, "since": {"then"}, "word": {"c"}},
		body:   []byte(`{"title":"","count":101,"ratio":2,"note":7,"number":0,"tags":["a","b","c","d"],"boxes":[{"uid":1}],"yes":"no","extra":1,"more":2}`),
		strict: true,
	})
	e, _ := core.AsError(err)
	if e == nil || e.Code != "validation_error" {
		t.Fatalf("error %v", err)
	}
	var got []string
	for _, d := range e.Details {
		got = append(got, d.Field+" "+d.Code)
	}
	want := "limit wrong_type, flag wrong_type, since invalid, word not_allowed, name out_of_range, count out_of_range, ratio out_of_range, " +
		"note wrong_type, number out_of_range, tags too_many_items, boxes.uid wrong_type, yes wrong_type, extra unknown_field, more unknown_field"
	if strings.Join(got, ", ") != want {
		t.Errorf("details %s\nwant    %s", strings.Join(got, ", "), want)
	}
}

// TestDecodeLooksInside has what is wrong lie in the objects, lists and other texts of a body.
func TestDecodeLooksInside(t *testing.T) {
	deep := strings.Repeat(`{"a":[`, 2000) + strings.Repeat(`]}`, 2000)
	for body, want := range map[string]string{
		`{"name":"a","boxes":[{"uid":"1","\u0075id":"2"}]}`:                    "invalid_json",
		`{"name":"a","x":{"y":[{"b":1,"b" : 2}]}}`:                             "invalid_json",
		`{"name":"a","x":{"b":{"b":"b:"},"c":["b","b"]},"boxes":[{},{}]}`:      "",
		`{"name":"a","x":` + deep + `}`:                                        "",
		`{"name":"a","boxes":[{"uid":"1\u0000"}]}`:                             "boxes invalid",
		`{"name":"a","page":"\\\\\u0000"}`:                                     "page invalid",
		`{"name":"a","page":"\\u0000 \\\\u0000"}`:                              "",
		`{"name":"a","note":"\u0000"}`:                                         "note invalid",
		`{"name":"a","tags":["","\u0000"]}`:                                    "tags.1 invalid",
		`{"name":"a","tags":[` + strings.Repeat(`"",`, maxItems-1) + `""]}`:    "tags too_many_items",
		`{"name":"a","tags":[` + strings.Repeat(`"",`, maxItems) + `""]}`:      "too_many_items",
		`{"name":"a","x":{"y":[[` + strings.Repeat(`0,`, maxItems) + `0]]}}`:   "too_many_items",
		`{"name":"a","x":[` + strings.Repeat(`[1],`, maxItems-1) + `[1,2,3]]}`: "",
	} {
		var in specimen
		got := ""
		if e, ok := core.AsError(decode(&in, source{body: []byte(body)})); ok {
			if got = e.Code; len(e.Details) > 0 {
				got = e.Details[0].Field + " " + e.Details[0].Code
			}
		}
		if got != want {
			t.Errorf("%.60s: %q, want %q", body, got, want)
		}
	}
	var in specimen
	err := decode(&in, source{strict: true, body: []byte(`{"name":"a","boxes":[{"uid":"1","Mailbox":"x","mail":{"uid":1}}],"page":true}`)})
	if e, _ := core.AsError(err); e == nil || len(e.Details) != 2 || e.Details[0].Field != "boxes.Mailbox" || e.Details[1].Field != "boxes.mail" {
		t.Errorf("unknown fields inside: %v", err)
	}
}

// TestDecodeNumbersPastTheRange: above the maximum a limit is clamped, every other number is an
// error.
func TestDecodeNumbersPastTheRange(t *testing.T) {
	var in specimen
	const huge = "99999999999999999999"
	if err := decode(&in, source{query: url.Values{"limit": {huge}}, body: []byte(`{"name":"a"}`)}); err != nil || *in.Limit < 1<<62 {
		t.Errorf("huge limit: %v", err)
	}
	if err := decode(&in, source{query: url.Values{"limit": {"-" + huge}}, body: []byte(`{"name":"a"}`)}); err != nil || *in.Limit > 0 {
		t.Errorf("limit far below: %v", err)
	}
	err := decode(&in, source{body: []byte(`{"name":"a","count":` + huge + `,"big":1e999}`)})
	if e, _ := core.AsError(err); e == nil || e.Details[0].Field != "count" {
		t.Errorf("huge count: %v", err)
	}
}

func TestDecodeFills(t *testing.T) {
	var in specimen
	err := decode(&in, source{
		path:  func(string) string { return "x" },
		query: url.Values{"filter[limit]": {"3"}, "flag": {"false"}, "since": {"2026-11-01"}, "word": {"a"}},
		body:  []byte(`{"name":"Ann","count":5,"note":null,"number":2,"tags":["t"],"boxes":null,"unknown":1}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	if in.ID != "x" || *in.Limit != 3 || *in.Flag || in.Since.Day() != 1 || in.Word != "a" || in.Name != "Ann" || *in.Count != 5 ||
		!in.Note.Set || !in.Note.Null || in.Number.Value != 2 || len(in.Tags) != 1 || in.Boxes != nil {
		t.Errorf("decoded %+v", in)
	}
}

// FuzzDecode: whatever comes, it is a request within its bounds or a 400 with a message.
func FuzzDecode(f *testing.F) {
	f.Add("limit=3&flag=true", []byte(`{"name":"a","count":1,"note":null,"tags":["x"],"boxes":[{"uid":"1","mailbox":"a@b"}]}`), true)
	f.Add("filter[since]=2026-11-01T00:00:00Z", []byte(`{"title":"a","number":1e3,"ratio":-0.5}`), false)
	f.Add("since=x;y", []byte(`{"name":"a","name":"b"}`), false)
	f.Add("word=%00", []byte(`[1]`), true)
	f.Add("", []byte(`{"boxes":[{"uid":"\\\u0000","uid":[",",{"a" :[{}]}]}],"page":"{[\""}`), true)
	f.Fuzz(func(t *testing.T, rawQuery string, body []byte, strict bool) {
		query, err := url.ParseQuery(rawQuery)
		if err != nil {
			return
		}
		var in specimen
		err = decode(&in, source{query: query, body: body, strict: strict})
		if err != nil {
			e, ok := core.AsError(err)
			if !ok || openapi.Status(e.Code) != 400 || e.Message == "" {
				t.Fatalf("error %#v", err)
			}
			if _, err := json.Marshal(e.Details); err != nil {
				t.Fatalf("details: %v", err)
			}
			return
		}
		n := utf8.RuneCountInString(in.Name)
		if n < 1 || n > 10 || in.Count != nil && (*in.Count < 0 || *in.Count > 100) || in.Ratio > 1 || len(in.Tags) > 3 || strings.Contains(in.Name, "\x00") {
			t.Fatalf("out of bounds: %+v from %q", in, body)
		}
	})
}
