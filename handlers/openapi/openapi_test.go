package openapi

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/service/core/code"
	"github.com/mailstead/mailstead/service/external"
	"github.com/mailstead/mailstead/service/inbox"
)

func TestCodesAreInTheOrderOfStatuses(t *testing.T) {
	for i, c := range code.Documented {
		if i > 0 && c.Status < code.Documented[i-1].Status {
			t.Errorf("%s is not", c.Code)
		}
	}
}

// TestExamplesAreSorted: they are looked up by halves, and of two with one name one would count for
// nothing.
func TestExamplesAreSorted(t *testing.T) {
	for i := range exampleTable[1:] {
		if exampleTable[i].name >= exampleTable[i+1].name {
			t.Errorf("%s stands before %s", exampleTable[i].name, exampleTable[i+1].name)
		}
	}
}

// TestFieldsHaveTheTextOfTheirOwnStruct: what a struct embeds is explained where it is declared.
func TestFieldsHaveTheTextOfTheirOwnStruct(t *testing.T) {
	var got []string
	for _, f := range Fields(reflect.TypeFor[inbox.InboxPage]()) {
		got = append(got, f.qualifiedName())
	}
	if want := []string{"service/core/page.Page.Data", "service/core/page.Page.Pagination", "service/inbox.InboxPage.SyncedAt"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := fieldTexts()["service/core/page.Pagination.Cursor"], "Opaque: where the next page begins."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestExamplesAreOfTheirFieldsKind reads the examples of tags.
func TestExamplesAreOfTheirFieldsKind(t *testing.T) {
	type owner struct {
		Text   string                     `json:"text" example:"17"`
		Count  int                        `json:"count" example:"17"`
		Share  float64                    `json:"share" example:"0.5"`
		On     bool                       `json:"on" example:"true"`
		One    []string                   `json:"one" example:"a, b"`
		Two    []string                   `json:"two" example:"[\"a\",\"b\"]"`
		Object map[string]string          `json:"object" example:"{\"a\":\"b\"}"`
		Either *external.InboxesRefreshed `json:"either" example:"17"`
		Wrong  int                        `json:"wrong" example:"0.5"`
		Chosen string                     `json:"chosen" enum:"a|b" example:"c"`
		URL    string                     `json:"where" example:"https://example.com/" format:"uri"`
	}
	d := &describer{used: map[typeUse]string{}, doc: &Document{}}
	s := d.doc.Resolve(d.schemaOf(reflect.TypeFor[owner](), false))
	for name, want := range map[string]any{
		"text": "17", "count": 17, "share": 0.5, "on": true, "one": []string{"a, b"}, "two": []string{"a", "b"}, "object": map[string]any{"a": "b"}, "where": "https://example.com/",
	} {
		if got := s.Properties.Get(name).Examples; !reflect.DeepEqual(got, []any{want}) {
			t.Errorf("%s has the examples %#v, want %#v", name, got, want)
		}
	}
	if got := s.Properties.Get("where").Format; got != "uri" {
		t.Errorf("the format is %q", got)
	}
	var problems []string
	for _, name := range []string{"Either", "Wrong", "Chosen"} {
		problems = append(problems, "the example of handlers/openapi.owner."+name+" is of another kind than the field")
	}
	if !slices.Equal(d.doc.Problems, problems) {
		t.Errorf("the problems are %q, want %q", d.doc.Problems, problems)
	}
}

// TestWordsOfNothingAreFound describes an API whose one operation nobody has written about.
func TestWordsOfNothingAreFound(t *testing.T) {
	doc := Describe(API{
		Operations: []api.Operation{{Name: "get_weather", Route: api.GET("/v1/weather"), Status: 200, Errors: []string{"raining"}, Call: api.Caller{In: reflect.TypeFor[struct{}](), Out: reflect.TypeFor[*external.InboxesRefreshed]()}}},
		Errors: func(int, string, string, string) (own, rfc9457 any) {
			type problem struct {
				Code string `json:"code"`
			}
			type problemBody struct{ problem }
			type errorBody struct {
				Error problem `json:"error"`
			}
			return errorBody{}, problemBody{}
		},
	})
	all := strings.Join(doc.Problems, "\n")
	for _, want := range []string{"operation get_weather has no text", "get_weather lists the error code raining, which is not documented"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not among the problems:\n%s", want, all)
		}
	}
}
