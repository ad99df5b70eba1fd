package openapi

import (
	"reflect"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/service/core/code"
	"github.com/mailstead/mailstead/service/inbox"
)

func TestCodesAreInTheOrderOfStatuses(t *testing.T) {
	for i, c := range code.Documented {
		if i > 0 && c.Status < code.Documented[i-1].Status {
			t.Errorf("%s is not", c.Code)
		}
	}
}

// TestWordsOfNothingAreFound describes an API whose one operation nobody has written about.
// TestWordsAreGivenOnce: of two rows with one name the first would count for nothing.
func TestWordsAreGivenOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range glossaryRows {
		if seen[w.name] {
			t.Errorf("%s is explained twice", w.name)
		}
		seen[w.name] = true
	}
}

func TestWordsOfNothingAreFound(t *testing.T) {
	doc := Describe(API{
		Operations: []api.Operation{{Name: "get_weather", Route: api.GET("/v1/weather"), Status: 200, Errors: []string{"raining"}, Call: api.Caller{In: reflect.TypeFor[struct{}](), Out: reflect.TypeFor[*inbox.Told]()}}},
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
	for _, want := range []string{"operation get_weather has no text", "get_weather tells of the code raining, which is none", "the glossary tells of Domain.id, which is nowhere"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not among the problems:\n%s", want, all)
		}
	}
}
