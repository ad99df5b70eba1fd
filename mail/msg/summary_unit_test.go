package msg

import (
	"fmt"
	"strings"
	"testing"
)

// TestXFields: the fields that begin with X- are kept as they are, and a stranger's header does not
// decide how many bytes that is.
func TestXFields(t *testing.T) {
	got := xFields([]byte("From: a@b\r\nX-One: \r\n two\r\n\tthree \r\nx-ONE:\r\nX-: none\r\nXone: no\r\nX-Two: =?utf-8?q?a?=\r\n\r\nX-Body: no\r\n"))
	if want := []Header{{"X-One", "two\tthree"}, {"x-ONE", ""}, {"X-Two", "=?utf-8?q?a?="}}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := xFields([]byte("X-Long: " + strings.Repeat("a", 5000) + "\r\n\r\n")); len(got) != 1 || len(got[0].Value) != maxXField {
		t.Errorf("%d fields", len(got))
	}
	if got := xFields([]byte(strings.Repeat("X-Many: a\r\n", 1000))); len(got) != maxXFields {
		t.Errorf("%d fields of many", len(got))
	}
	size := 0
	for _, h := range xFields([]byte(strings.Repeat("X-Large: "+strings.Repeat("a", 1000)+"\r\n", 50))) {
		size += len(h.Name) + len(h.Value)
	}
	if size > maxXBytes || size < maxXBytes-2000 {
		t.Errorf("%d bytes of large ones", size)
	}
}
