package taglist

import "testing"

func TestTagListsAreStrict(t *testing.T) {
	for list, want := range map[string]bool{
		" i=1; a=b": true, " i=1; a=b;": true, "i=1; a_2=": true, "i=1;; a=b": false, "; i=1": false, "i=1; i=1": false, "i=1; 1a=b": false,
		"i=1; _a=b": false, "i=1; a-b=c": false, "i=1; a b=c": false, "i=1; a": false, "i=1; =b": false, "i=1; a=b;;": false,
	} {
		if _, ok := ParseStrict(list); ok != want {
			t.Errorf("%q: %t", list, !want)
		}
	}
}
