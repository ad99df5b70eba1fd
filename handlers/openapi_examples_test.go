package handlers

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/handlers/openapi"
	"github.com/mailstead/mailstead/service"
)

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
	"account_id": "acc", "created_by": "usr", "domain_id": "dom", "event_id": "evt", "export_id": "exp", "invited_by": "usr", "job_id": "job", "record_id": "rec",
	"request_id": "req", "template_id": "tpl", "token_id": "tok", "webhook_id": "wh", "user_id": "eu|usr", "user_ids": "eu",
	"Account.id": "acc", "AccountToken.id": "tok", "AccountUser.id": "usr", "CustomDNSRecord.id": "rec", "CustomDNSRecordDeleted.deleted": "rec", "DMARCReport.id": "rep",
	"Deleted.id": "tok", "Delivery.id": "dlv", "Domain.id": "dom", "EmailUser.id": "eu", "EmailUserCreated.id": "eu", "EventEnvelope.id": "evt", "JobResource.id": "dom",
	"JobResponse.id": "job", "SentMessage.id": "out", "SentMessageDetail.id": "out", "TLSReport.id": "rep", "TeamUser.id": "usr", "TeamUserDeleted.id": "usr",
	"TeamUserInvited.id": "usr", "TeamUserUpdated.id": "usr", "Template.id": "tpl", "Token.id": "tok", "TokenCreated.id": "tok", "Webhook.id": "wh", "WebhookCreated.id": "wh",
	"WebhookDeleted.id": "wh", "WebhookSecret.id": "wh",
	"get_webhook.id": "wh", "update_webhook.id": "wh", "delete_webhook.id": "wh", "get_webhook_secret.id": "wh", "rotate_webhook_secret.id": "wh", "test_webhook.id": "wh",
	"list_webhook_deliveries.id": "wh", "redeliver_event.id": "wh", "get_sent_message.id": "out", "retry_message.id": "out", "cancel_message.id": "out",
}

// noPrefix are ids that are of another form.
var noPrefix = []string{"message_id", "original_message_id", "provider_message_id", "provider_message_ids", "thread_id", "report_id", "content_id", "ExportFormat.id", "InboxMessage.id", "MessageDetail.id"}

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

// isPathID tells whether a parameter is an id in a path, which its name says enough of.
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
	_ = operations(&service.Service{})
}
