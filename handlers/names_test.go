package handlers

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

const generateNames = "/v1/email-users/generate-names"

func TestGenerateNames(t *testing.T) {
	b := newSandbox(t, nil)
	r := b.post(generateNames, nil).is(200).has("count", "10", "data.0.email", "<nil>", "data.0.available", "<nil>")
	for i := range 10 {
		item := fmt.Sprintf("data.%d.", i)
		if r.text(item+"name") != r.text(item+"first_name")+" "+r.text(item+"last_name") {
			t.Errorf("item %d of %s", i, r.raw)
		}
	}
	seeded := b.post(generateNames, `{"count":100,"seed":42,"locale":"de-AT"}`).is(200).has("count", "100")
	if again := b.post(generateNames, `{"seed":42,"locale":"DE","count":100}`); string(again.raw) != string(seeded.raw) {
		t.Error("the same seed has another answer")
	}
	if other := b.post(generateNames, `{"count":100,"seed":43,"locale":"de"}`); string(other.raw) == string(seeded.raw) {
		t.Error("another seed has the same answer")
	}
	seen := map[string]bool{}
	for _, name := range seeded.list("data", "username") {
		if seen[name] || !regexp.MustCompile(`^[a-z][a-z0-9.]{0,63}$`).MatchString(name) {
			t.Errorf("username %q is there twice, or is none", name)
		}
		seen[name] = true
	}
}

func TestGenerateNamesOfADomain(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann.lee")
	ask := `{"domain":"%s","first_name":"Ann","last_name":"Lee","styles":["first.last","f.last"],"count":2,"seed":1}`
	for _, domain := range []string{"BOXES.test", b.domain} {
		r := b.post(generateNames, fmt.Sprintf(ask, domain)).is(200).has("count", "2", "data.0.name", "Ann Lee")
		for i := range 2 {
			item := fmt.Sprintf("data.%d.", i)
			username := r.text(item + "username")
			r.has(item+"email", username+"@boxes.test", item+"available", fmt.Sprint(username != "ann.lee"))
		}
	}
	foreign := b.Account(t, "other@example.test")
	b.Domain(t, foreign.AccountID, "foreign.test", "builtin", "complete")
	for _, domain := range []string{"unheard.test", "foreign.test"} {
		b.post(generateNames, fmt.Sprintf(ask, domain)).is(200).has("data.0.available", "<nil>", "data.0.email", "ann.lee@"+domain, "data.1.email", "a.lee@"+domain)
	}
	for _, domain := range []string{"no domain", "dom_none", "a..b"} {
		b.post(generateNames, fmt.Sprintf(ask, domain)).fails(400, "invalid_domain")
	}
}

func TestGenerateNamesOfOnePerson(t *testing.T) {
	b := newSandbox(t, nil)
	r := b.post(generateNames, `{"first_name":"Zoë","last_name":"O'Neil","styles":["firstlast"],"count":100,"exclude":["ZOEONEIL"]}`).is(200).has("count", "100", "data.0.first_name", "Zoë")
	for _, name := range r.list("data", "username") {
		if !regexp.MustCompile(`^zoeoneil\d+$`).MatchString(name) {
			t.Errorf("username %q", name)
		}
	}
	r = b.post(generateNames, `{"first_name":"Zoë","styles":["first.l"],"locale":"sv"}`).is(200)
	for _, name := range r.list("data", "username") {
		if !regexp.MustCompile(`^zoe\.[a-z]\d*$`).MatchString(name) {
			t.Errorf("username %q", name)
		}
	}
	long := strings.Repeat("x", 100)
	r = b.post(generateNames, map[string]any{"first_name": long, "last_name": long, "styles": []string{"first.last"}, "count": 3}).is(200).has("count", "3")
	for _, name := range r.list("data", "username") {
		b.post("/v1/email-users", map[string]any{"username": name, "domain": "boxes.test"}).is(201)
	}
}

func TestGenerateNamesRefuses(t *testing.T) {
	b := newSandbox(t, nil)
	for body, field := range map[string]string{
		`{"count":0}`: "count", `{"count":101}`: "count", `{"count":"ten"}`: "count", `{"count":1.5}`: "count",
		`{"locale":"tlh"}`: "locale", `{"locale":7}`: "locale", `{"styles":[]}`: "styles", `{"styles":["odd"]}`: "styles",
		`{"styles":"first"}`: "styles", `{"seed":"x"}`: "seed", `{"seed":99999999999999999999}`: "seed", `{"exclude":"x"}`: "exclude",
		`{"first_name":"李"}`: "first_name", `{"last_name":"..."}`: "last_name", `{"last_name":"a\u0001"}`: "last_name",
		`{"first_name":"` + strings.Repeat("x", 101) + `"}`: "first_name",
	} {
		b.post(generateNames, body).fails(400, "validation_error").has("error.details.0.field", field)
	}
	b.post(generateNames, `{"exclude":["`+strings.Repeat(`a","`, 10_000)+`a"]}`).fails(400, "too_many_items")
	b.post(generateNames, `{"count":1}x`).fails(400, "invalid_json")
	b.with(b.Token(t, b.Owner.AccountID, "member", "read")).post(generateNames, nil).is(200)
}
