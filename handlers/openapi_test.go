package handlers

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service"
	"github.com/mailstead/mailstead/service/core"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// TestDescriptionIsValid lets a foreign library judge the document: its form, its references and
// its examples.
func TestDescriptionIsValid(t *testing.T) {
	c := theContract()
	for _, problem := range c.doc.Problems {
		t.Error(problem)
	}
	doc, err := openapi3.NewLoader().LoadFromData(c.text)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
	if len(doc.Webhooks) != len(service.EventTypes()) {
		t.Errorf("%d webhooks, want one for each of %d event types", len(doc.Webhooks), len(service.EventTypes()))
	}
}

// TestDescriptionIsLinted holds what linters ask for and the library does not.
func TestDescriptionIsLinted(t *testing.T) {
	c := theContract()
	ids := map[string]bool{}
	for _, g := range c.doc.Tags {
		for _, o := range c.doc.InGroup(g.Name) {
			if ids[o.OperationID] {
				t.Errorf("operationId %s is given twice", o.OperationID)
			}
			ids[o.OperationID] = true
			if o.Summary == "" {
				t.Errorf("%s has no summary", o.OperationID)
			}
			for _, hole := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(o.Path, -1) {
				declared := func(p *openapi.Parameter) bool { return p.In == "path" && p.Name == hole[1] }
				if !slices.ContainsFunc(o.Parameters, declared) {
					t.Errorf("%s does not declare its path parameter %s", o.OperationID, hole[1])
				}
			}
		}
	}
	if want := len(c.ops) + len(service.EventTypes()); len(ids) != want {
		t.Errorf("%d operations belong to a group, want %d", len(ids), want)
	}
	defined := func(kind, name string) bool {
		switch kind {
		case "schemas":
			return c.doc.Components.Schemas.Get(name) != nil
		case "responses":
			return c.doc.Components.Responses.Get(name) != nil
		case "headers":
			return c.doc.Components.Headers.Get(name) != nil
		}
		return c.doc.Components.Parameters.Get(name) != nil
	}
	for _, ref := range regexp.MustCompile(`"\$ref":"#/components/(\w+)/([^"]+)"`).FindAllStringSubmatch(string(c.text), -1) {
		if !defined(ref[1], ref[2]) {
			t.Errorf("%s leads nowhere", ref[0])
		}
	}
}

// TestExamplesAreTaken sends every example of a request through the decoder that the handlers use.
func TestExamplesAreTaken(t *testing.T) {
	c := theContract()
	for _, o := range c.ops {
		described := c.doc.Paths.Get(o.Path).Get(strings.ToLower(o.Method))
		src := requestParts{path: func(string) string { return "x" }, query: url.Values{}, strict: true}
		for _, p := range described.Parameters {
			if p.In == "query" {
				text, _ := json.Marshal(c.doc.Example(p.Schema))
				src.query.Set(p.Name, unquoteJSON(text))
			}
		}
		if described.RequestBody != nil {
			src.body, _ = json.Marshal(described.RequestBody.Content.Get(jsonMedia).Example)
			if string(src.body) == "null" {
				t.Errorf("%s has no example of its body", o.Name)
			}
		}
		if err := decode(reflect.New(o.Call.In).Interface(), src); err != nil {
			t.Errorf("the example of %s is refused: %v: %s %v", o.Name, err, src.body, src.query)
		}
	}
}

// TestYAMLSaysTheSame reads the description in both its forms.
func TestYAMLSaysTheSame(t *testing.T) {
	c := theContract()
	text, err := c.doc.YAML()
	if err != nil {
		t.Fatal(err)
	}
	var fromYAML, fromJSON any
	if err := yaml.Unmarshal(text, &fromYAML); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(c.text, &fromJSON); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(fromYAML)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(fromJSON)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again, want) {
		t.Error("YAML differs from JSON")
	}
	if !bytes.HasPrefix(text, []byte("openapi: \"3.1.0\"\ninfo:\n  title: ")) {
		t.Errorf("it begins with %.100s", text)
	}
}

// TestDescriptionIsDeterministic makes it twice, on its way to people too.
func TestDescriptionIsDeterministic(t *testing.T) {
	s := &Server{svc: &service.Service{Core: &core.Core{}}, ops: api.All(&service.Service{})}
	first, second := *s.makeDescription(), *s.makeDescription()
	for path := range first {
		if first[path].tag != second[path].tag {
			t.Errorf("%s differs from one time to the next", path)
		}
	}
}

// TestAnswersAreChecked proves that the check of answers refuses what it should.
func TestAnswersAreChecked(t *testing.T) {
	b := newSandbox(t, nil)
	good := b.get("/v1/auth/tokens").is(200)
	for name, spoil := range map[string]func(r *reply){
		"status":     func(r *reply) { r.status = 404 },
		"header":     func(r *reply) { r.header.Del("X-RateLimit-Reset") },
		"media type": func(r *reply) { r.header.Set("Content-Type", "text/html") },
		"type":       func(r *reply) { r.json.(map[string]any)["count"] = "1" },
		"null":       func(r *reply) { r.json.(map[string]any)["data"] = nil },
		"missing":    func(r *reply) { delete(r.json.(map[string]any), "count") },
		"item": func(r *reply) {
			r.json.(map[string]any)["data"].([]any)[0].(map[string]any)["created_at"] = "yesterday"
		},
		"code": func(r *reply) {
			r.status = 403
			r.json = map[string]any{"error": map[string]any{"code": "email_user_exists", "message": "m", "request_id": "r"}}
		},
	} {
		r := &reply{t: t, status: good.status, header: good.header.Clone()}
		if err := json.Unmarshal(good.raw, &r.json); err != nil {
			t.Fatal(err)
		}
		spoil(r)
		if err := theContract().checkAnswer("GET", "/v1/auth/tokens", r); err == nil {
			t.Errorf("an answer with a wrong %s passes", name)
		}
	}
}

// TestDescriptionIsServed gets every part without a token.
func TestDescriptionIsServed(t *testing.T) {
	b := newSandbox(t, func(c *core.Config) { c.BaseURL = "https://mail.boxes.test" })
	stranger := b.with("")
	for path, media := range map[string]string{
		"/v1/openapi.json": "application/json", "/v1/openapi.yaml": "application/yaml",
	} {
		r := stranger.get(path).is(200)
		if got := r.header.Get("Content-Type"); got != media || len(r.raw) < 1000 {
			t.Errorf("%s is %d bytes of %s", path, len(r.raw), got)
		}
		if csp := r.header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; base-uri 'none';") {
			t.Errorf("%s has the policy %q", path, csp)
		}
		plain := stranger.do("GET", path, nil, "Accept-Encoding", "identity").is(200)
		if !bytes.Equal(plain.raw, r.raw) {
			t.Errorf("%s differs with and without gzip", path)
		}
		stranger.do("GET", path, nil, "If-None-Match", r.header.Get("ETag")).is(304)
		if head := stranger.do("HEAD", path, nil).is(200); len(head.raw) != 0 || head.header.Get("ETag") != plain.header.Get("ETag") {
			t.Errorf("HEAD of %s is another thing than GET", path)
		}
		stranger.do("POST", path, "{}").fails(405, "method_not_allowed")
	}
	stranger.get("/v1/openapi.json").has("openapi", "3.1.0", "servers.0.url", "https://mail.boxes.test")
	stranger.get("/v1/openapi").fails(401, "unauthorized")
}

// TestEventsAreAsDescribed lists real events; the client checks their data by the webhooks section.
func TestEventsAreAsDescribed(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("anna")
	hook := b.post("/v1/webhooks", map[string]any{"url": "https://example.com/hook", "events": []string{"*"}}).is(201).text("id")
	b.post("/v1/webhooks/"+hook+"/test", nil).is(200)
	events := b.get("/v1/events").is(200).list("data", "type")
	for _, want := range []string{"email_user.created", "test.ping"} {
		if !slices.Contains(events, want) {
			t.Errorf("there is no %s among %v", want, events)
		}
	}
	spoiled := map[string]any{"data": []any{map[string]any{"type": "test.ping", "data": map[string]any{}}}}
	if err := theContract().checkEvents(spoiled); err == nil {
		t.Error("an event without its data passes")
	}
}

// A contract is the description with its schemas ready to check answers with.
type contract struct {
	doc      *openapi.Document
	ops      []api.Operation
	text     []byte
	compiler *jsonschema.Compiler
	mu       sync.Mutex
	compiled map[string]*jsonschema.Schema
}

const contractURL = "https://mailstead.test/openapi.json"

// theContract is made once for all tests.
var theContract = sync.OnceValue(func() *contract {
	c := &contract{ops: api.All(&service.Service{}), compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	c.doc = Description()
	var err error
	c.text, err = c.doc.JSON()
	if err != nil {
		panic(err)
	}
	resource, err := jsonschema.UnmarshalJSON(bytes.NewReader(c.text))
	if err != nil {
		panic(err)
	}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource(contractURL, resource); err != nil {
		panic(err)
	}
	return c
})

// check tests a JSON value against the schema at a place in the document.
func (c *contract) check(value any, place ...string) error {
	pointer := "#"
	for _, p := range place {
		pointer += "/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(p))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.compiled[pointer]
	if s == nil {
		var err error
		s, err = c.compiler.Compile(contractURL + pointer)
		if err != nil {
			return err
		}
		c.compiled[pointer] = s
	}
	return s.Validate(value)
}

// find returns the row that a request goes to, or nil.
func (c *contract) find(method, path string) *api.Operation {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(path, "/")
	var found *api.Operation
	for i := range c.ops {
		o := &c.ops[i]
		fits := slices.EqualFunc(strings.Split(o.Path, "/"), parts, func(want, got string) bool {
			return want == got || strings.HasPrefix(want, "{") && got != ""
		})
		if fits && o.Method == method && (found == nil || strings.Count(o.Path, "{") < strings.Count(found.Path, "{")) {
			found = o
		}
	}
	return found
}

// forNow are the codes of 503 and 507 that pass when one waits.
var forNow = []string{"busy", "storage_unavailable", "storage_full"}

// checkAnswer tests a real answer of the API against its description: status, headers, media type,
// form, and that an error's code is one of those that the operation tells of.
func checkAnswer(t testing.TB, method, path string, r *reply) {
	t.Helper()
	if err := theContract().checkAnswer(method, path, r); err != nil {
		t.Errorf("%s %s answered %d %.600s\nwhich is not as described: %v", method, path, r.status, r.raw, err)
	}
}

func (c *contract) checkAnswer(method, path string, r *reply) error {
	o := c.find(method, path)
	if o == nil {
		if !strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/v1/openapi.") || r.status >= 400 {
			return nil // there is no such operation
		}
		return errors.New("it is no operation")
	}
	if r.text("error.code") == "cross_origin" {
		return nil // to browsers with a session, which are no part of the interface
	}
	place := []string{"paths", o.Path, strings.ToLower(method), "responses", fmt.Sprint(r.status)}
	described := c.doc.Paths.Get(o.Path).Get(strings.ToLower(method)).Responses.Get(fmt.Sprint(r.status))
	if described == nil {
		return fmt.Errorf("%s has no answer %d", o.Name, r.status)
	}
	code := cmp.Or(r.text("error.code"), r.text("code"))
	if r.status >= 400 && !slices.Contains(described.Codes(), code) {
		return fmt.Errorf("%s does not tell of the code %q with %d", o.Name, code, r.status)
	}
	if described.Ref != "" {
		place = []string{"components", "responses", openapi.RefName(described.Ref)}
		described = c.doc.Components.Responses.Get(openapi.RefName(described.Ref))
	}
	for _, h := range described.Headers {
		sometimes := h.Name == "Idempotent-Replayed" || h.Name == "Retry-After" && (r.status == 503 || r.status == 507) && !slices.Contains(forNow, code)
		if !sometimes && r.header.Get(h.Name) == "" {
			return fmt.Errorf("the header %s is missing", h.Name)
		}
	}
	media, _, _ := strings.Cut(r.header.Get("Content-Type"), ";")
	if described.Content.Get(media) == nil {
		if described.Content.Get("application/octet-stream") != nil {
			return nil // a file of any type
		}
		return fmt.Errorf("%s does not tell of the media type %q", o.Name, media)
	}
	if !strings.HasSuffix(media, "json") {
		return nil
	}
	if o.Name == "list_events" && r.status == 200 {
		if err := c.checkEvents(r.json); err != nil {
			return err
		}
	}
	return c.check(r.json, append(place, "content", media, "schema")...)
}

// checkEvents tests each event of a list as endpoints get it.
func (c *contract) checkEvents(list any) error {
	page, _ := list.(map[string]any)
	events, _ := page["data"].([]any)
	for _, e := range events {
		kind, _ := e.(map[string]any)["type"].(string)
		if err := c.check(e, "webhooks", kind, "post", "requestBody", "content", jsonMedia, "schema"); err != nil {
			return fmt.Errorf("event %s: %w", kind, err)
		}
	}
	return nil
}

// A described field is one property of a schema or one parameter of an operation.
type describedField struct {
	owner, name string
	query       bool
	schema      *openapi.Schema
	siblings    []string
}

// describedFields lists all there are.
func describedFields(c *contract) (out []describedField) {
	for _, s := range c.doc.Components.Schemas {
		var names []string
		for _, p := range s.Value.Properties {
			names = append(names, p.Name)
		}
		for _, p := range s.Value.Properties {
			out = append(out, describedField{s.Name, p.Name, false, p.Value, names})
		}
	}
	for _, path := range c.doc.Paths {
		for _, m := range path.Value {
			for _, p := range m.Value.Parameters {
				if p.Ref == "" && p.In != "header" {
					s := *p.Schema
					s.Description = p.Description
					out = append(out, describedField{m.Value.OperationID, p.Name, true, &s, nil})
				}
			}
		}
	}
	return out
}

// prefixes are the types of ids by the field's name, or by schema and name for those named id
// alone.
var prefixes = map[string]string{
	"account_id": "acc", "created_by": "usr", "dns_credential_id": "dnsc", "DNSCredential.id": "dnsc", "DNSCredentialDeleted.id": "dnsc", "domain_id": "dom", "event_id": "evt", "export_id": "exp", "invited_by": "usr", "job_id": "job", "scan_job_id": "job", "record_id": "rec",
	"request_id": "req", "template_id": "tpl", "token_id": "tok", "webhook_id": "wh", "user_id": "eu|usr", "user_ids": "eu",
	"Account.id": "acc", "AccountToken.id": "tok", "AccountUser.id": "usr", "CustomDNSRecord.id": "rec", "CustomDNSRecordDeleted.deleted": "rec", "DMARCReport.id": "rep",
	"Deleted.id": "tok", "Delivery.id": "dlv", "Domain.id": "dom", "EmailUser.id": "eu", "EmailUserCreated.id": "eu", "EventEnvelope.id": "evt", "JobResource.id": "dom",
	"JobResponse.id": "job", "SentMessage.id": "msg", "SentMessageDetail.id": "msg", "TLSReport.id": "rep", "TeamUser.id": "usr", "MeUser.id": "usr", "TeamUserDeleted.id": "usr",
	"TeamUserInvited.id": "usr", "TeamUserUpdated.id": "usr", "Template.id": "tpl", "Token.id": "tok", "TokenCreated.id": "tok", "Webhook.id": "wh", "WebhookCreated.id": "wh",
	"WebhookDeleted.id": "wh", "WebhookSecret.id": "wh", "AuditRow.id": "aud", "AuditActor.id": "tok", "AuditTarget.id": "dom", "RequestToken.id": "tok", "ZoneChange.id": "zch", "undo_zone_change.id": "zch",
	"approval_id": "apr", "ApprovalName.id": "tok|usr", "SentRecipient.id": "msg", "DeliveredData.id": "msg", "DelayedData.id": "msg", "MessageTemplate.id": "mtl", "Rule.id": "rule", "RuleDeleted.id": "rule", "rule_id": "rule", "Effect.rule_id": "rule", "RuleMatchedData.rule_id": "rule", "matched": "rule", "Group.id": "grp", "GroupDeleted.id": "grp", "group_id": "grp", "Credential.id": "cred", "CredentialCreated.id": "cred", "CredentialDeleted.id": "cred", "credential_id": "cred", "Token.mailboxes": "eu", "TokenCreated.mailboxes": "eu", "CreateTokenRequest.mailboxes": "eu", "MessageTemplateDeleted.id": "mtl",
	"get_message_template.id": "mtl", "update_message_template.id": "mtl", "delete_message_template.id": "mtl", "preview_message_template.id": "mtl", "update_scheduled_message.id": "msg",
	"SendEmailRequest.template_id": "mtl", "CreateDraftRequest.template_id": "mtl", "UpdateDraftRequest.template_id": "mtl", "SendBatchRequest.template_id": "mtl",
	"get_webhook.id": "wh", "update_webhook.id": "wh", "delete_webhook.id": "wh", "get_webhook_secret.id": "wh", "rotate_webhook_secret.id": "wh", "test_webhook.id": "wh",
	"list_webhook_deliveries.id": "wh", "redeliver_event.id": "wh", "get_sent_message.id": "msg", "retry_message.id": "msg", "cancel_message.id": "msg",
}

// noPrefix are ids that are of another form.
var noPrefix = []string{"Backup.id", "client_request_id", "access_key_id", "message_id", "original_message_id", "provider_message_id", "provider_message_ids", "thread_id", "report_id", "content_id", "ExportFormat.id", "email_id", "folder_id", "MailFolder.id", "FolderDeleted.id", "InboxMessage.id", "MessageDetail.id", "WaitedMessage.id"}

// TestInputsHaveTheWordsOfWhatIsShown: a field that is given and shown means the same both times,
// and no other schema has the words of errors.
func TestInputsHaveTheWordsOfWhatIsShown(t *testing.T) {
	c := theContract()
	said := map[string]string{}
	for _, f := range describedFields(c) {
		said[f.owner+"."+f.name] = f.schema.Description
	}
	for at, about := range said {
		owner, name, _ := strings.Cut(at, ".")
		shown, both := said[strings.TrimSuffix(owner, "Input")+"."+name]
		if strings.HasSuffix(owner, "Input") && both && shown != about && name != "value" { // absent and null
			t.Errorf("%s is %q, but shown it is %q", at, about, shown)
		}
		if strings.Contains(about, "in some errors") && owner != "Detail" {
			t.Errorf("%s is about errors: %q", at, about)
		}
	}
}

// TestExamplesOfTheCommandLine: the words in the help of an operation make the example body of its
// description. A field that takes a text or several has a list of one.
func TestExamplesOfTheCommandLine(t *testing.T) {
	c := theContract()
	for _, o := range c.ops {
		described := c.doc.Paths.Get(o.Path).Get(strings.ToLower(o.Method))
		if o.Alias || described.RequestBody == nil {
			continue
		}
		words := exampleWords(c.doc, &o)
		args, err := Arguments(o.Name, words, nil)
		if err != nil {
			t.Errorf("%s %q: %v", o.Name, words, err)
			continue
		}
		_, _, body, err := splitArguments(&o, args)
		if err != nil {
			t.Errorf("%s %s: %v", o.Name, args, err)
			continue
		}
		text, _ := json.Marshal(described.RequestBody.Content.Get(jsonMedia).Example)
		var got, want map[string]any
		if err := cmp.Or(json.Unmarshal(body, &got), json.Unmarshal(text, &want)); err != nil {
			t.Fatal(err)
		}
		for name, value := range want {
			if reflect.DeepEqual(got[name], []any{value}) && name == "to" {
				got[name] = value
			}
		}
		if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%s %q has the body %v, want %v", o.Name, words, got, want)
		}
	}
}

// TestExamplesGiveOneOfTwo: where an operation takes either of two fields, its example has one.
func TestExamplesGiveOneOfTwo(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/groups":                          `"members":[{"user_id":"eu_01k9a2b3c4d5e6f7g8h9j0k1m2"}]`,
		"/v1/domains/{domain_id}/zone/import": `{"zone_file":"www 300 IN A 192.0.2.7\n","dry_run":true}`,
	} {
		text, _ := json.Marshal(theContract().doc.Paths.Get(path).Get("post").RequestBody.Content.Get(jsonMedia).Example)
		if !strings.Contains(string(text), want) {
			t.Errorf("the example of %s is %s, want %s in it", path, text, want)
		}
	}
}

// TestExamplesAreReal compares every example with its schema, and that of an id with the type of
// what it names. Texts have examples of their own, not a word that stands for any.
func TestExamplesAreReal(t *testing.T) {
	c := theContract()
	for _, f := range describedFields(c) {
		at := f.owner + "." + f.name
		example := c.doc.Example(f.schema)
		if s := c.doc.Resolve(f.schema); s.Is("string") && len(s.Examples) == 0 && s.Enum == nil && s.Const == "" && s.Format != "date-time" && s.Format != "binary" && !isPathID(f) {
			t.Errorf("%s has no example", at)
		}
		if s := f.schema; s.Is("array") && s.Items.Is("string") && len(s.Examples) == 0 && s.Items.Enum == nil {
			t.Errorf("%s has no example", at)
		}
		if s := c.doc.Resolve(f.schema); mayBeText(s) && len(s.Examples) == 0 {
			t.Errorf("%s, which may be a text, has no example", at)
		}
		if err := checkExample(c.doc, f.schema, example); err != nil {
			t.Errorf("the example of %s is %v: %v", at, example, err)
		}
		isID := f.name == "id" || strings.HasSuffix(f.name, "_id") || strings.HasSuffix(f.name, "_ids") || prefixes[f.name] != "" || prefixes[at] != ""
		if !isID || slices.Contains(noPrefix, f.name) || slices.Contains(noPrefix, at) || isPathID(f) {
			continue
		}
		want := prefixes[at]
		if want == "" {
			want = prefixes[f.name]
		}
		text := fmt.Sprint(example)
		if list, ok := example.([]string); ok {
			text = list[0]
		}
		if want == "" || !regexp.MustCompile(`^(`+want+`)_[0-9a-hjkmnp-tv-z]{26}$`).MatchString(text) {
			t.Errorf("%s has the example %q, want one of the type %q", at, text, want)
		}
	}
}

// mayBeText reports whether a text is one of several forms of a value.
func mayBeText(s *openapi.Schema) bool {
	return slices.ContainsFunc(s.AnyOf, func(form *openapi.Schema) bool { return form.Is("string") || mayBeText(form) })
}

// TestNoExampleStandsForAny: a bare "text" tells nobody what is meant.
func TestNoExampleStandsForAny(t *testing.T) {
	for _, m := range regexp.MustCompile(`"(\w+)":(?:"text"|\["text"\])`).FindAllStringSubmatch(string(theContract().text), -1) {
		t.Errorf("the example of %s is %s", m[1], m[0])
	}
}

// isPathID reports whether a parameter is an id in a path, which its name says enough of.
func isPathID(f describedField) bool { return f.query && len(f.schema.Examples) == 0 }

// checkExample compares an example with its schema.
func checkExample(doc *openapi.Document, s *openapi.Schema, example any) error {
	s = doc.Resolve(s)
	if example == nil {
		if s.AllowsNull() || s.Type == nil {
			return nil
		}
		return fmt.Errorf("null is not allowed")
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, example) {
		return fmt.Errorf("it is none of %v", s.Enum)
	}
	switch v := example.(type) {
	case string:
		if s.Type != nil && !s.Is("string") {
			return fmt.Errorf("a text is not %v", s.Type)
		}
		if s.MaxLength != nil && len(v) > *s.MaxLength || s.MinLength != nil && len(v) < *s.MinLength {
			return fmt.Errorf("its length is out of bounds")
		}
	case int, float64:
		n := reflect.ValueOf(v)
		if s.Type != nil && !s.Is("integer") && !s.Is("number") {
			return fmt.Errorf("a number is not %v", s.Type)
		}
		value := 0.0
		if n.CanInt() {
			value = float64(n.Int())
		} else {
			value = n.Float()
		}
		if s.Minimum != nil && value < *s.Minimum || s.Maximum != nil && value > *s.Maximum {
			return fmt.Errorf("it is out of bounds")
		}
	}
	return nil
}

// TestDescriptionsFitTheirFields holds descriptions to the fields that they stand at.
func TestDescriptionsFitTheirFields(t *testing.T) {
	c := theContract()
	same := regexp.MustCompile("^The same as ([a-z_]+)[.]$|; the same as ([a-z_]+)[.]$")
	inList := regexp.MustCompile("How many (?:rows|names) are in `([a-z]+)`")
	kinds := map[string]map[string][]string{} // of each name and text: the types of the fields that have it
	for _, f := range describedFields(c) {
		at, about := f.owner+"."+f.name, f.schema.Description
		if m := same.FindStringSubmatch(about); m != nil && !f.query {
			if other := m[1] + m[2]; !slices.Contains(f.siblings, other) {
				t.Errorf("%s is said to be the same as %s, which is not beside it", at, other)
			}
		}
		if m := inList.FindStringSubmatch(about); m != nil && f.owner != "Pagination" && !slices.Contains(f.siblings, m[1]) {
			t.Errorf("%s counts %q, which is not beside it", at, m[1])
		}
		if (strings.HasPrefix(about, "Rows to answer") || strings.HasPrefix(about, "Names to answer")) && !f.query {
			t.Errorf("%s is no parameter, but is said to be one: %q", at, about)
		}
		if strings.HasPrefix(about, "Seconds") && !f.schema.Is("integer") && !f.schema.Is("number") {
			t.Errorf("%s is no number of seconds", at)
		}
		if strings.HasPrefix(about, "Whether") && !f.schema.Is("boolean") {
			t.Errorf("%s is neither true nor false: %q", at, about)
		}
		if strings.Contains(about, "IMAP UID") && f.name != "uid" && f.name != "message_id" {
			t.Errorf("%s is no UID: %q", at, about)
		}
		if about != "" {
			text := f.name + ": " + about
			if kinds[text] == nil {
				kinds[text] = map[string][]string{}
			}
			kind := strings.Trim(strings.ReplaceAll(fmt.Sprint(f.schema.Type), "null", ""), "[] ")
			kinds[text][kind] = append(kinds[text][kind], at)
		}
	}
	for text, k := range kinds {
		if len(k) > 1 {
			t.Errorf("one description stands at fields of different types: %s: %v", text, k)
		}
	}
}

// TestExamplesAreExact names some that were wrong.
func TestExamplesAreExact(t *testing.T) {
	c := theContract()
	text, err := json.Marshal(c.doc.Paths.Get("/v1/domains/{domain_id}").Get("get").Responses.Get("200").Content.Get(jsonMedia).Example)
	if err != nil || !strings.Contains(string(text), `"id":"dom_`) || strings.Contains(string(text), `"text"`) {
		t.Errorf("a domain is %s, %v", text, err)
	}
	if got := c.doc.Components.Schemas.Get("Used").Properties.Get("limit").Description; strings.Contains(got, "Rows") {
		t.Errorf("Used.limit is %q", got)
	}
	_ = api.All(&service.Service{})
}

// TestExamplesOfLists: what is counted is there, and a page that has more has a cursor.
func TestExamplesOfLists(t *testing.T) {
	c := theContract()
	long, short := 0, 0
	for _, path := range c.doc.Paths {
		for _, m := range path.Value {
			for _, r := range m.Value.Responses {
				content := r.Value.Content.Get(jsonMedia)
				if content == nil || r.Name >= "300" {
					continue
				}
				text, err := json.Marshal(content.Example)
				if err != nil {
					t.Fatal(err)
				}
				var list struct {
					Data       []any
					Count      *int
					Pagination *struct {
						Cursor  string
						HasMore bool `json:"has_more"`
						Count   int
						Limit   int
					}
				}
				if json.Unmarshal(text, &list) != nil || list.Data == nil {
					continue
				}
				if list.Count != nil {
					short++
					if *list.Count != len(list.Data) {
						t.Errorf("%s counts %d rows of %d", m.Value.OperationID, *list.Count, len(list.Data))
					}
				}
				if p := list.Pagination; p != nil {
					long++
					if p.Count != len(list.Data) || p.Limit < p.Count || p.HasMore != (p.Cursor != "") {
						t.Errorf("%s: %s", m.Value.OperationID, text)
					}
				}
			}
		}
	}
	if long < 10 || short < 8 {
		t.Errorf("only %d long and %d short lists were found", long, short)
	}
}

// TestSecretsOfExamplesAreReal: a signing secret is 32 bytes in base64.
func TestSecretsOfExamplesAreReal(t *testing.T) {
	found := regexp.MustCompile(`"whsec_([^"]*)"`).FindAllStringSubmatch(string(theContract().text), -1)
	for _, f := range found {
		if key, err := base64.StdEncoding.DecodeString(f[1]); err != nil || len(key) != 32 {
			t.Errorf("whsec_%s is %d bytes, %v", f[1], len(key), err)
		}
	}
	if len(found) == 0 {
		t.Error("no secret was found")
	}
}

// TestTimesThatAreKnown: the interface never has these times as null.
func TestTimesThatAreKnown(t *testing.T) {
	c := theContract()
	for _, place := range []string{"Alert.since", "ApprovalEvent.expires_at", "DNSFailure.checked_at", "DNSFailure.failing_since", "DNSStatus.checked_at", "DelayedData.next_attempt_at", "Health.checked_at", "Health.started_at", "Paused.paused_at", "Approval.expires_at", "WaitAnswer.now"} {
		owner, name, _ := strings.Cut(place, ".")
		if s := c.doc.Components.Schemas.Get(owner); s == nil || s.Properties.Get(name) == nil || s.Properties.Get(name).AllowsNull() {
			t.Errorf("%s may be null", place)
		}
	}
}

// TestEnumsCanBeNamed: programs that make constants of enums find no null among the values, and a
// name for each value that is none.
func TestEnumsCanBeNamed(t *testing.T) {
	b := newSandbox(t, nil)
	var walk func(at string, v any)
	oneOf, named := 0, 0
	walk = func(at string, v any) {
		switch v := v.(type) {
		case []any:
			for i, item := range v {
				walk(fmt.Sprintf("%s/%d", at, i), item)
			}
		case map[string]any:
			values, _ := v["enum"].([]any)
			names, _ := v["x-enum-varnames"].([]any)
			if names != nil && len(names) != len(values) {
				t.Errorf("%s: %d names of %d values", at, len(names), len(values))
			}
			seen := map[string]bool{}
			for i, value := range values {
				name := fmt.Sprint(value)
				if names != nil {
					name, named = fmt.Sprint(names[i]), named+1
				}
				if !regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`).MatchString(name) || value == nil || seen[strings.ToLower(name)] {
					t.Errorf("%s: the value %v is called %q", at, value, name)
				}
				seen[strings.ToLower(name)] = true
			}
			if v["oneOf"] != nil {
				oneOf++
			}
			for name, inner := range v {
				if name != "example" && name != "examples" {
					walk(at+"/"+name, inner)
				}
			}
		}
	}
	var doc map[string]any
	if err := json.Unmarshal([]byte(b.get("/v1/openapi.json").raw), &doc); err != nil {
		t.Fatal(err)
	}
	walk("", doc["components"])
	walk("", doc["paths"])
	if oneOf < 4 || named < 10 {
		t.Errorf("%d enums that may be null, %d names", oneOf, named)
	}
}
