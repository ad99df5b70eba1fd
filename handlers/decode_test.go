package handlers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/code"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/service/inbox"
	"github.com/mailstead/mailstead/service/submit"
)

// specimen has a field of every sort that requests have.
type specimen struct {
	page.Query
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
	Page   submit.HTMLText    `json:"page"`
	Yes    bool               `json:"yes"`
}

// TestTagsHoldInsideListsAndObjects: what an object in a list may have is checked as at the top.
func TestTagsHoldInsideListsAndObjects(t *testing.T) {
	type part struct {
		Type string  `json:"type" required:"true" enum:"one|two"`
		Size *int    `json:"size" min:"1" max:"9"`
		Name string  `json:"name" max:"3"`
		More []*part `json:"more" max:"2"`
	}
	type whole struct {
		One   part            `json:"one"`
		Other *part           `json:"other"`
		Maybe core.Opt[part]  `json:"maybe"`
		List  []part          `json:"list"`
		Free  map[string]part `json:"free"`
		Own   []part          `json:"own" items:"each"`
	}
	for body, want := range map[string]string{
		`{"one":{"type":"one","size":9,"name":"abc","more":[{"type":"two"}]}}`: "",
		`{"one":{}}`:                   "one.type required",
		`{"one":{"type":null}}`:        "one.type required",
		`{"other":{"type":"explode"}}`: "other.type not_allowed",
		`{"other":{"type":"one","more":[{"type":"two"},{"type":"three","size":0}]}}`: "other.more.1.type not_allowed, other.more.1.size out_of_range",
		`{"maybe":null,"list":[]}`:                                                        "",
		`{"maybe":{"type":"one","name":"abcd"}}`:                                          "maybe.name out_of_range",
		`{"list":[{"type":"one"},{"type":"x,}\\\"]"}]}`:                                   "list.1.type not_allowed",
		`{"list":[ {"type" : "one", "size" : 10 } , null]}`:                               "list.0.size out_of_range, list.1 wrong_type",
		`{"list":[{"type":"one","more":[{"type":"one"},{"type":"one"},{"type":"one"}]}]}`: "list.0.more too_many_items",
		`{"own":[{},{"type":"explode"}]}`:                                                 "",
		`{"list":[{"ty\u0070e":"explode"}]}`:                                              "list.0.type not_allowed",
	} {
		var got []string
		if e, _ := core.AsError(decode(&whole{}, requestParts{body: []byte(body)})); e != nil {
			for _, d := range e.Details {
				got = append(got, d.Field+" "+d.Code)
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

// A nested field is one in an object, a list or a map of a request, with how a body has it.
type nestedField struct {
	path string // as errors name it
	f    reflect.StructField
	body func(value string) string
}

// nestedFields lists the fields of a type below the fields of a request. It leaves out what the
// service checks item by item.
func nestedFields(t reflect.Type, path string, body func(string) string, seen []reflect.Type) (out []nestedField) {
	for {
		if o, ok := reflect.New(t).Interface().(nullable); ok {
			t = reflect.TypeOf(o.OptOf())
			continue
		}
		if t.Kind() == reflect.Slice {
			t, path = t.Elem(), path+".0"
			outer := body
			body = func(v string) string { return outer("[" + v + "]") }
			continue
		}
		if t.Kind() != reflect.Pointer {
			break
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || slices.Contains(seen, t) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		name := openapi.JSONName(f)
		if name == "" || f.Anonymous {
			continue
		}
		in := func(v string) string { return body(fmt.Sprintf(`{%q:%s}`, name, v)) }
		out = append(out, nestedField{path + "." + name, f, in})
		out = append(out, nestedFields(f.Type, path+"."+name, in, append(slices.Clip(seen), t))...)
	}
	return out
}

// wrongValues returns values that the tags of a field refuse, with the code of each error.
func wrongValues(f reflect.StructField) map[string]string {
	t := f.Type
	for {
		if o, ok := reflect.New(t).Interface().(nullable); ok {
			t = reflect.TypeOf(o.OptOf())
		} else if t.Kind() == reflect.Pointer {
			t = t.Elem()
		} else {
			break
		}
	}
	out := map[string]string{}
	most, few := numberTag(f, "max", math.Inf(1)), numberTag(f, "min", math.Inf(-1))
	switch t.Kind() {
	case reflect.String:
		if f.Tag.Get("enum") != "" {
			out[`"explode"`] = "not_allowed"
		}
		if most < 1e5 {
			out[`"`+strings.Repeat("x", int(most)+1)+`"`] = "out_of_range"
		}
		if few > 0 {
			out[`""`] = "out_of_range"
		}
	case reflect.Int, reflect.Int64, reflect.Uint32, reflect.Float64:
		if !math.IsInf(most, 1) {
			out[strconv.FormatFloat(most+1, 'f', -1, 64)] = "out_of_range"
		}
		if !math.IsInf(few, -1) {
			out[strconv.FormatFloat(few-1, 'f', -1, 64)] = "out_of_range"
		}
	case reflect.Slice:
		item := map[reflect.Kind]string{reflect.String: `"x"`, reflect.Struct: `{}`}[t.Elem().Kind()]
		if most < 1e5 && item != "" {
			out["["+strings.Repeat(item+",", int(most))+item+"]"] = "too_many_items"
		}
		if few > 0 {
			out["[]"] = "too_few_items"
		}
		if f.Tag.Get("enum") != "" {
			out[`["explode"]`] = "not_allowed"
		}
	}
	if f.Tag.Get("required") != "" {
		out["null"] = "required"
	}
	return out
}

// TestTagsHoldInEveryRequest sets every field of every request to values that its tags refuse, at
// any depth, also under a name in another case, which Go's decoder takes for the field.
func TestTagsHoldInEveryRequest(t *testing.T) {
	tried, nested, free, at := 0, 0, map[string]string{}, map[string]bool{}
	for _, o := range api.All(&service.Service{}) {
		for _, top := range openapi.Fields(o.Call.In) {
			name := openapi.JSONName(top.StructField)
			if name == "" {
				continue
			}
			body := func(v string) string { return fmt.Sprintf(`{%q:%s}`, name, v) }
			fields := []nestedField{{name, top.StructField, body}}
			if by := top.Tag.Get("items"); by != "" {
				free[o.Name+" "+name] = by
			} else {
				fields = append(fields, nestedFields(top.Type, name, body, nil)...)
			}
			for _, f := range fields {
				for value, code := range wrongValues(f.f) {
					text := f.body(value)
					if !slices.Contains(detailsOf(o.Call.In, text), f.path+" "+code) {
						t.Errorf("%s takes %.200s, which is no %s of %s: %v", o.Name, text, code, f.path, detailsOf(o.Call.In, text))
					}
					tried++
					at[o.Name+" "+f.path] = true
					if f.path == name {
						continue
					}
					nested++
					if own := openapi.JSONName(f.f); code != "required" {
						v := reflect.New(o.Call.In)
						other := strings.Replace(text, `"`+own+`":`+value, `"`+strings.ToUpper(own)+`":`+value, 1)
						if err := decode(v.Interface(), requestParts{body: []byte(other)}); err == nil && strings.Contains(fmt.Sprintf("%+v", dump(v)), "explode") {
							t.Errorf("%s fills %s from %.200s", o.Name, f.path, other)
						}
					}
				}
			}
		}
	}
	if tried < 250 || nested < 40 {
		t.Errorf("%d values were tried, %d of them inside", tried, nested)
	}
	for where, by := range free {
		if by != "each" && by != "judged" {
			t.Errorf("%s: items:%q is no way to be checked", where, by)
		}
	}
	for _, where := range []string{"create_rule actions.0.type", "update_rule conditions.0.op", "create_token policy.send", "create_group members", "create_webhook events"} {
		if !at[where] {
			t.Errorf("%s was not tried: %v", where, slices.Sorted(maps.Keys(at)))
		}
	}
}

// dump shows a value with what its pointers lead to.
func dump(v reflect.Value) string {
	text, _ := json.Marshal(v.Interface())
	return string(text)
}

// detailsOf returns the errors in a body, each as field and code.
func detailsOf(in reflect.Type, body string) (out []string) {
	if e, _ := core.AsError(decode(reflect.New(in).Interface(), requestParts{body: []byte(body)})); e != nil {
		for _, d := range e.Details {
			out = append(out, d.Field+" "+d.Code)
		}
	}
	return out
}

// TestWholeNumbers: a whole number may have a fraction or an exponent, if its value is exact.
func TestWholeNumbers(t *testing.T) {
	for body, want := range map[string]int64{
		`{"name":"a","count":5.0}`: 5, `{"name":"a","count":1e1}`: 10, `{"name":"a","count":50E-1}`: 5, `{"name":"a","count":-0.0}`: 0,
		"\xef\xbb\xbf" + `{"name":"a","count":7}`: 7,
	} {
		var in specimen
		if err := decode(&in, requestParts{body: []byte(body)}); err != nil || in.Count == nil || *in.Count != want {
			t.Errorf("%s: %v, %v", body, in.Count, err)
		}
	}
	for _, body := range []string{`{"name":"a","count":5.5}`, `{"name":"a","count":1e400}`, `{"name":"a","count":9007199254740993.0}`, `{"name":"a","count":"5.0"}`} {
		if err := decode(&specimen{}, requestParts{body: []byte(body)}); err == nil {
			t.Errorf("%s is taken", body)
		}
	}
	var refs struct {
		Ports []int `json:"ports"`
		Text  string
	}
	if err := decode(&refs, requestParts{body: []byte(`{"ports":[1.0,2e0,3]}`)}); err != nil || fmt.Sprint(refs.Ports) != "[1 2 3]" {
		t.Errorf("%v, %v", refs.Ports, err)
	}
	if got := unquoteJSON([]byte("5.0")); got != "5" {
		t.Errorf("an argument of a tool is %s", got)
	}
}

func TestDecodeNamesEveryWrongField(t *testing.T) {
	var in specimen
	err := decode(&in, requestParts{
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

// TestTimesSayTheirForm: whoever writes a time in another way learns how to write it.
func TestTimesSayTheirForm(t *testing.T) {
	var in struct {
		Since  *core.Time          `query:"since"`
		SendAt *core.Time          `json:"send_at"`
		Ends   core.Opt[core.Time] `json:"ends"`
		At     core.Time           `json:"at"`
	}
	err := decode(&in, requestParts{query: url.Values{"since": {"yesterday"}}, body: []byte(`{"send_at":"tomorrow","ends":"30.11.2026","at":7}`), strict: true})
	e, _ := core.AsError(err)
	if e == nil || len(e.Details) != 4 {
		t.Fatalf("error %v", err)
	}
	for _, d := range e.Details {
		want := "must be a time of the form 2026-11-30T12:00:00Z"
		if d.Field == "since" {
			want += ", or a day of the form 2026-11-30"
		}
		if d.Message != want {
			t.Errorf("%s: %s", d.Field, d.Message)
		}
	}
}

// TestDecodeLooksInside sends bodies with mistakes inside objects, lists and texts.
func TestDecodeLooksInside(t *testing.T) {
	deep := strings.Repeat(`{"a":[`, 2000) + strings.Repeat(`]}`, 2000)
	for body, want := range map[string]string{
		`{"name":"a","boxes":[{"uid":"1","\u0075id":"2"}]}`:                        "invalid_json",
		`{"name":"a","x":{"y":[{"b":1,"b" : 2}]}}`:                                 "invalid_json",
		`{"name":"a","x":{"b":{"b":"b:"},"c":["b","b"]},"boxes":[{},{}]}`:          "",
		`{"name":"a","x":` + deep + `}`:                                            "",
		`{"name":"a","boxes":[{"uid":"1\u0000"}]}`:                                 "boxes invalid",
		`{"name":"a","page":"\\\\\u0000"}`:                                         "page invalid",
		`{"name":"a","page":"\\u0000 \\\\u0000"}`:                                  "",
		`{"name":"a","note":"\u0000"}`:                                             "note invalid",
		`{"name":"a","tags":["","\u0000"]}`:                                        "tags.1 invalid",
		`{"name":"a","tags":[` + strings.Repeat(`"",`, maxJSONItems-1) + `""]}`:    "tags too_many_items",
		`{"name":"a","tags":[` + strings.Repeat(`"",`, maxJSONItems) + `""]}`:      "too_many_items",
		`{"name":"a","x":{"y":[[` + strings.Repeat(`0,`, maxJSONItems) + `0]]}}`:   "too_many_items",
		`{"name":"a","x":[` + strings.Repeat(`[1],`, maxJSONItems-1) + `[1,2,3]]}`: "",
	} {
		var in specimen
		got := ""
		if e, ok := core.AsError(decode(&in, requestParts{body: []byte(body)})); ok {
			got = e.Code
			if len(e.Details) > 0 {
				got = e.Details[0].Field + " " + e.Details[0].Code
			}
		}
		if got != want {
			t.Errorf("%.60s: %q, want %q", body, got, want)
		}
	}
	var in specimen
	err := decode(&in, requestParts{strict: true, body: []byte(`{"name":"a","boxes":[{"uid":"1","Mailbox":"x","mail":{"uid":1}}],"page":true}`)})
	if e, _ := core.AsError(err); e == nil || len(e.Details) != 2 || e.Details[0].Field != "boxes.Mailbox" || e.Details[1].Field != "boxes.mail" {
		t.Errorf("unknown fields inside: %v", err)
	}
}

// TestDecodeNumbersPastTheRange: above the maximum a limit is clamped, every other number is an
// error.
func TestDecodeNumbersPastTheRange(t *testing.T) {
	var in specimen
	const huge = "99999999999999999999"
	if err := decode(&in, requestParts{query: url.Values{"limit": {huge}}, body: []byte(`{"name":"a"}`)}); err != nil || *in.Limit < 1<<62 {
		t.Errorf("huge limit: %v", err)
	}
	if err := decode(&in, requestParts{query: url.Values{"limit": {"-" + huge}}, body: []byte(`{"name":"a"}`)}); err != nil || *in.Limit > 0 {
		t.Errorf("limit far below: %v", err)
	}
	err := decode(&in, requestParts{body: []byte(`{"name":"a","count":` + huge + `,"big":1e999}`)})
	if e, _ := core.AsError(err); e == nil || e.Details[0].Field != "count" {
		t.Errorf("huge count: %v", err)
	}
}

func TestDecodeFills(t *testing.T) {
	var in specimen
	err := decode(&in, requestParts{
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

// FuzzDecode: every input is a request within its limits, or gets a 400 with a message.
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
		err = decode(&in, requestParts{query: query, body: body, strict: strict})
		if err != nil {
			e, ok := core.AsError(err)
			if !ok || code.Status(e.Code) != 400 || e.Message == "" {
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

// takeAll takes all the memory for large bodies, none of which may be in use.
func takeAll(t *testing.T, b *bodyReader) (leave func()) {
	t.Helper()
	soon, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, leave, err := b.svc.Core.HoldLarge(soon, core.MaxRequest)
	if err != nil {
		t.Fatalf("a body that was answered still has its place: %v", err)
	}
	return leave
}

// TestLargeBodyWaitsForItsTurn: while large bodies fill the memory that is theirs, another one
// waits and small ones do not.
func TestLargeBodyWaitsForItsTurn(t *testing.T) {
	b := newSandbox(t, nil)
	path := "/v1/email-users/" + b.box("ann") + "/inbox/send"
	send := func(size int) *reply {
		return b.do("POST", path, fmt.Sprintf(`{"to":"x@far.test","subject":"s","text":%q}`, strings.Repeat("long ", size/5)))
	}
	leave := takeAll(t, b.server.bodies)
	came := make(chan *reply, 1)
	go func() { came <- send(2 << 20) }()
	send(1000).is(200)
	select {
	case <-came:
		t.Fatal("a large body did not wait")
	case <-time.After(100 * time.Millisecond):
	}
	leave()
	(<-came).is(200)
	send(40<<20).fails(413, "payload_too_large")
	takeAll(t, b.server.bodies)
}

// TestOddNamesInPaths asks every operation for things whose names are no names. None is found, and
// nothing falls over.
func TestOddNamesInPaths(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann")
	place := regexp.MustCompile(`\{\w+\}`)
	for _, odd := range []string{
		"\x00", "\xff\xfe", "..", "/", "//", "a/../b", "%", "%2f", "é", "😀", " ", "\r\n", "{id}", ":id", "*", "-1", "18446744073709551616",
		"eu_" + strings.Repeat("x", 9000), b.domain + "\x00", b.Owner.AccountID, "bulk", "?", "#", `"`, "<b>",
	} {
		for _, o := range b.server.ops {
			if !strings.Contains(o.Path, "{") || o.Person || o.OperatorNow { // which no token may call
				continue
			}
			if odd == b.Owner.AccountID && strings.Contains(o.Path, "{account_id}") {
				continue // it is the right name
			}
			r := b.do(o.Method, place.ReplaceAllLiteralString(o.Path, url.PathEscape(odd)), nil)
			if r.status != 400 && r.status != 404 && r.status != 405 {
				t.Errorf("%s of %.20q: %d %.200s", o.Name, odd, r.status, r.raw)
			}
		}
	}
	b.get("/v1/account").is(200).has("domains_used", "1", "email_users_used", "1", "team_users_used", "1")
}

// TestMethodsOfHTTP: HEAD and OPTIONS are none of the API's, with the headers of any answer and no
// body for HEAD.
func TestMethodsOfHTTP(t *testing.T) {
	b := newSandbox(t, nil)
	for _, method := range []string{"HEAD", "OPTIONS", "TRACE", "get", "LIST"} {
		r := b.do(method, "/v1/account", nil).is(405)
		if r.header.Get("Allow") != "GET, PATCH" || r.header.Get("X-RateLimit-Limit") == "" || (len(r.raw) == 0) != (method == "HEAD") {
			t.Errorf("%s: %v %s", method, r.header, r.raw)
		}
		b.do(method, "/v1/nothing", nil).is(404)
		b.with("").do(method, "/v1/account", nil).is(401)
	}
}

// TestBodiesOnTheWire sends bodies as careless clients and networks do. What is whole counts; what
// is not changes nothing.
func TestBodiesOnTheWire(t *testing.T) {
	b := newSandbox(t, nil)
	head := func(version string, fields ...string) string {
		return "POST /v1/suppressions HTTP/" + version + "\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + b.token +
			"\r\n" + strings.Join(fields, "\r\n") + "\r\n\r\n"
	}
	const body = `{"email":"a@far.test"}`
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d", n) }
	chunks := fmt.Sprintf("%x;x=y\r\n%s\r\n%x\r\n%s\r\n0\r\nTrailer: x\r\n\r\n", 5, body[:5], len(body)-5, body[5:])
	big := `{"email":"` + strings.Repeat("x", defaultMaxBody) + `"}`
	for name, tc := range map[string]struct {
		status int
		parts  []string
	}{
		"HTTP/1.0":              {201, []string{head("1.0", length(len(body))), body}},
		"in chunks":             {201, []string{head("1.1", "Transfer-Encoding: chunked", "Connection: close"), chunks}},
		"slowly":                {201, []string{head("1.1", length(len(body)), "Connection: close"), body[:3], body[3:9], body[9:]}},
		"Expect":                {201, []string{head("1.1", length(len(body)), "Expect: 100-continue", "Connection: close"), body}},
		"without a body":        {400, []string{head("1.1", "Connection: close")}},
		"cut short":             {400, []string{head("1.1", length(len(body)+9), "Connection: close"), body}},
		"cut between chunks":    {400, []string{head("1.1", "Transfer-Encoding: chunked", "Connection: close"), chunks[:len(chunks)-20]}},
		"no such chunk":         {400, []string{head("1.1", "Transfer-Encoding: chunked", "Connection: close"), "zz\r\n"}},
		"too large":             {413, []string{head("1.1", length(1<<40), "Connection: close")}},
		"too large and whole":   {413, []string{head("1.1", length(8*len(big)), "Connection: close"), strings.Repeat(big, 8)}},
		"too large in parts":    {413, []string{head("1.1", "Transfer-Encoding: chunked", "Connection: close"), strings.Repeat(fmt.Sprintf("%x\r\n%s\r\n", len(big), big), 8) + "0\r\n\r\n"}},
		"too large and awaited": {413, []string{head("1.1", length(1<<21), "Expect: 100-continue", "Connection: close")}},
		"too large in chunks":   {413, []string{head("1.1", "Transfer-Encoding: chunked", "Connection: close"), fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(big), big)}},
		"two lengths":           {400, []string{head("1.1", length(len(body)), length(3), "Connection: close"), body}},
		"length below zero":     {400, []string{head("1.1", length(-1), "Connection: close"), body}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := overTheWire(t, b.url, tc.parts); got != tc.status {
				t.Errorf("status %d, want %d", got, tc.status)
			}
			listed := b.get("/v1/suppressions").is(200)
			if made := listed.text("pagination.count") == "1"; made != (tc.status == 201) {
				t.Errorf("after %d there is %s", tc.status, listed.raw)
			}
			b.remove("/v1/suppressions/a@far.test")
		})
	}
}

// overTheWire writes the parts with pauses between, ends its side of the connection, and returns
// the status of the last answer that is no 100.
func overTheWire(t *testing.T, base string, parts []string) int {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, p := range parts {
		if _, err := conn.Write([]byte(p)); err != nil {
			t.Fatalf("the server closed before the request was whole: %v", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if len(parts) > 1 { // else the client waits for an answer, whatever it has promised to send
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	r := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusContinue {
			return resp.StatusCode
		}
	}
}

// hostileValues are put in the place of every field of every body, one at a time.
var hostileValues = []string{
	`null`, `true`, `-1`, `0.5`, `1e400`, `123456789012345678901234567890`, `""`, `"\u0000"`, `"\ud800"`, `"` + strings.Repeat("x", 10_000) + `"`,
	`[]`, `{}`, `[null]`, `[{}]`, `[[1]]`, `{"a":{"b":[1]}}`, strings.Repeat("[", 500) + strings.Repeat("]", 500), `"'; -- <script>"`, `"../../etc"`,
}

// hostileBodies stand in the place of a whole body.
var hostileBodies = []string{
	`{`, `[]`, `null`, `"x"`, `1`, `{}{}`, `{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `{"a":1`, `{"a"}`, `{,}`, "\x00",
	strings.Repeat(`{"a":`, 20_000) + `1` + strings.Repeat("}", 20_000),
}

// TestHostileBodies: whatever stands in a body, the answer is the operation's own or an error of
// the client's, as it is described, and an error has changed nothing.
func TestHostileBodies(t *testing.T) {
	if testing.Short() {
		t.Skip("it does one thing after the other, many times")
	}
	b := newSandbox(t, func(c *core.Config) { c.Limits.RatePerMinute, c.Limits.BurstPerMinute = 1_000_000, 1_000_000 })
	box := b.post("/v1/email-users", `{"email":"ann@boxes.test"}`).is(201).text("user_id")
	ids := map[string]string{"{domain_id}": b.domain, "{user_id}": box}
	for _, o := range b.server.ops {
		if o.Method == http.MethodGet {
			continue
		}
		path := regexp.MustCompile(`\{\w+\}`).ReplaceAllStringFunc(o.Path, func(hole string) string {
			if o.Method == http.MethodDelete || ids[hole] == "" || strings.Contains(o.Path, "/account/users") {
				return "none"
			}
			return ids[hole]
		})
		before := b.everything()
		for _, body := range hostileBodies {
			r := b.do(o.Method, path, body)
			if o.Name == "delete_inbox_message" || r.status != 404 {
				r.fails(r.status, r.text("error.code"))
			}
			if r.status < 400 || r.status >= 500 {
				t.Errorf("%s with the body %.40q: %d %s", o.Name, body, r.status, r.raw)
			}
		}
		if after := b.everything(); after != before {
			t.Errorf("%s was refused and changed something:\n%s\n%s", o.Name, before, after)
		}
		b.hostileFields(t, &o, path)
	}
}

// hostileFields sets every field of the operation's example to every hostile value.
func (b *sandbox) hostileFields(t *testing.T, o *api.Operation, path string) {
	c := theContract()
	described := c.doc.Paths.Get(o.Path).Get(strings.ToLower(o.Method))
	if described.RequestBody == nil {
		return
	}
	text, err := json.Marshal(described.RequestBody.Content.Get(jsonMedia).Example)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		before := b.everything()
		for _, value := range hostileValues {
			body := maps.Clone(fields)
			body[name] = json.RawMessage(value)
			r := b.do(o.Method, path, rawObject(body))
			if r.status < 400 {
				// It is what the operation takes, such as an empty description. Mail arrives.
				b.until("/v1/account/usage", "messages.queued", "0")
				before = b.everything()
				continue
			}
			if r.status == 500 || r.text("error.code") == "internal_error" {
				t.Errorf("%s with %s = %.40q: %d %s", o.Name, name, value, r.status, r.raw)
			}
		}
		if after := b.everything(); after != before {
			t.Errorf("%s was refused with a hostile %s and changed something", o.Name, name)
		}
	}
}

// rawObject writes an object whose values may be no JSON that Go would write.
func rawObject(fields map[string]json.RawMessage) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		parts = append(parts, fmt.Sprintf("%q:%s", name, fields[name]))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// everything returns all objects of the account, as its lists show them.
func (b *sandbox) everything() string {
	b.t.Helper()
	var all strings.Builder
	for _, path := range []string{
		"/v1/domains", "/v1/email-users", "/v1/webhooks", "/v1/email-user-templates", "/v1/account/users", "/v1/auth/tokens",
		"/v1/inbox", "/v1/messages", "/v1/suppressions", "/v1/domains/" + b.domain + "/custom-dns-records",
	} {
		all.Write(volatile.ReplaceAll(b.get(path).is(200).raw, nil))
	}
	return all.String()
}

// volatile are times that reading and work in the background change.
var volatile = regexp.MustCompile(`"(last_used_at|last_used_ip|updated_at|checked_at|next_attempt_at|attempts|last_response)":[^,}]*`)

// TestLargeRequestsAllocateLittle: how many times its size a large request allocates from its
// body to the message on disk, collected on the way or not: the body, what is decoded of it, the
// bytes of a file or a text with its line ends, and the message as it is written.
func TestLargeRequestsAllocateLittle(t *testing.T) {
	b := newSandbox(t, nil)
	send := "/v1/email-users/" + b.box("ann") + "/inbox/send"
	drafts := strings.Replace(send, "inbox/send", "drafts", 1)
	file := func(unit string) string {
		return `"text":"x","attachments":[{"filename":"f","content":"` + strings.Repeat(unit, 8<<20/len(unit)) + `"}]`
	}
	for name, tc := range map[string]struct {
		path, field string
		most        float64
	}{
		"a file":                    {send, file("AAAA"), 3.5},
		"a file in lines":           {send, file(strings.Repeat("A", 76) + `\r\n`), 4.5},
		"a text":                    {send, `"text":"` + strings.Repeat("a", 8<<20) + `"`, 6},
		"a text in lines":           {send, `"text":"` + strings.Repeat(`a line of text\n`, 8<<20/16) + `"`, 6},
		"HTML with escapes":         {send, `"html":"` + strings.Repeat(`\u003cb\u003e`, 8<<20/13) + `"`, 5},
		"a draft with a file":       {drafts, file("AAAA"), 3.5},
		"a field that there is not": {send, `"text":"x","other":"` + strings.Repeat("a", 8<<20) + `"`, 1.5},
		"a value of the wrong type": {send, `"text":"x","tags":"` + strings.Repeat("a", 8<<20) + `"`, 2.5},
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"to":"x@far.test","subject":"s",` + tc.field + `}`
			r := httptest.NewRequest("POST", tc.path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+b.token)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			status := Do(b.server, r).StatusCode
			runtime.ReadMemStats(&after)
			if times := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(body)); times > tc.most {
				t.Errorf("a body of %d bytes, answered with %d, allocates %.1f times its size, more than %.1f", len(body), status, times, tc.most)
			}
		})
	}
}

// TestDraftsWaitForMemory: a large draft takes as much as a message that is sent, and waits as that
// does; a small one does not.
func TestDraftsWaitForMemory(t *testing.T) {
	b := newSandbox(t, nil)
	drafts := "/v1/email-users/" + b.box("ann") + "/drafts"
	large := map[string]any{"to": "x@far.test", "subject": "s", "text": strings.Repeat("long ", 500_000)}
	for name, take := range map[string]func(context.Context, int64) (context.Context, func(), error){"held": b.server.svc.Core.HoldLarge, "worked on": b.server.svc.Core.WorkOnLarge} {
		made := b.post(drafts, large).is(201).text("uid")
		_, leave, err := take(t.Context(), core.MaxRequest)
		if err != nil {
			t.Fatal(err)
		}
		b.post(drafts, map[string]any{"subject": "s", "text": "short"}).is(201)
		var came atomic.Int32
		var both sync.WaitGroup
		for path, body := range map[string]any{drafts: large, drafts + "/" + made + "/send": nil} {
			both.Go(func() {
				defer came.Add(1)
				if r := b.post(path, body); r.status >= 300 {
					t.Errorf("%s: %d %.200s", path, r.status, r.raw)
				}
			})
		}
		time.Sleep(200 * time.Millisecond)
		if n := came.Load(); n > 0 {
			t.Errorf("while all memory is %s, %d of two requests with a large draft did not wait", name, n)
		}
		leave()
		both.Wait()
	}
}
