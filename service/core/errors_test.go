package core

import "testing"

// TestInvalidNamesItsFieldOnce: a text that begins with the name of the field does not repeat it.
func TestInvalidNamesItsFieldOnce(t *testing.T) {
	for text, want := range map[string]string{"url must begin with https://": "url: must begin with https://", "is required": "url: is required"} {
		e := Invalid("url", "invalid", "%s", text)
		if e.Message != want || "url: "+e.Details[0].Message != want {
			t.Errorf("%s, %+v", e.Message, e.Details)
		}
	}
}
