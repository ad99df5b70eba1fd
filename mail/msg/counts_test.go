package msg

import (
	"fmt"
	"strings"
	"testing"
)

// TestRecipientsAreCountedPastTheBound: a message tells of more recipients than are kept of it.
func TestRecipientsAreCountedPastTheBound(t *testing.T) {
	list := func(n int) string {
		var all []string
		for k := range n {
			all = append(all, fmt.Sprintf("\"Name, %d\" <a%d@x.test>", k, k))
		}
		return strings.Join(all, ",\r\n ")
	}
	for _, c := range []struct {
		header string
		to, cc int
	}{
		{"To: " + list(3) + "\r\nCc: b@x.test\r\n", 3, 1},
		{"To: " + list(1500) + "\r\ncc: " + list(700) + "\r\n", 1500, 700},
		{"Cc: " + list(1200) + "\r\nTo: some: " + list(400) + ";, c@x.test\r\n", 401, 1200},
		{"To: " + list(600) + "\r\nTo: " + list(1200) + "\r\n", 1200, 0},
		{"To: " + list(MaxAddresses-1) + "\r\n", MaxAddresses - 1, 0},
	} {
		text := "From: a@far.test\r\n" + c.header + "Subject: s\r\n\r\nx\r\n"
		r := strings.NewReader(text)
		root, err := Scan(r)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := Summarize(r, root)
		if err != nil || sum.ToCount != c.to || sum.CcCount != c.cc || len(sum.To)+len(sum.Cc) > MaxAddresses {
			t.Errorf("%.40q: %d and %d, want %d and %d; %v", c.header, sum.ToCount, sum.CcCount, c.to, c.cc, err)
		}
	}
}
