package msg

import (
	"bytes"
	"strings"
	"testing"
	"testing/iotest"
)

var stripPrefixes = []string{"x-smtpapi", "X-PM-"}

func TestStripFields(t *testing.T) {
	long := strings.Repeat("a", 40<<10)
	full := "A: " + strings.Repeat("a", 16<<10-3) + "\r\n" // whose line end begins another buffer
	for in, want := range map[string]string{
		"A: 1\r\nX-SMTPAPI: {}\r\nB: 2\r\n\r\nX-PM-Tag: body\r\n":               "A: 1\r\nB: 2\r\n\r\nX-PM-Tag: body\r\n",
		"x-smtpapi \t: {\r\n \"to\": []\r\n\t}\r\nB: 2\r\n\r\n":                 "B: 2\r\n\r\n",
		"X-Pm-Tag\r\n : folded name\r\nB: 2\r\n\r\n":                            "B: 2\r\n\r\n",
		"X-PM-KeepID: " + long + "\r\n " + long + "\r\nB: " + long + "\r\n\r\n": "B: " + long + "\r\n\r\n",
		"B: " + long + "X-PM-Tag: no field\r\n\r\n":                             "B: " + long + "X-PM-Tag: no field\r\n\r\n",
		"B: 1\r\n X-PM-Tag: folded\r\n":                                         "B: 1\r\n X-PM-Tag: folded\r\n",
		"X-SMTPAPI: no end":                                                     "",
		"X-PMS: 1\nX-SMTPAPI: 2\nC: 3\n\nX-PM-":                                 "X-PMS: 1\nC: 3\n\nX-PM-",
		"\r\nX-PM-Tag: body":                                                    "\r\nX-PM-Tag: body",
		full + "X-PM-Tag: 1\r\n\r\n":                                            full + "\r\n",
		"":                                                                      "",
	} {
		var out bytes.Buffer
		found, err := StripFields(&out, iotest.OneByteReader(strings.NewReader(in)), stripPrefixes)
		if err != nil || out.String() != want || found != (in != want) {
			t.Errorf("%.60q: %.80q, %v, %v", in, out.String(), found, err)
		}
		if has, err := HasFields(strings.NewReader(in), stripPrefixes); has != found || err != nil {
			t.Errorf("%.60q: %v, %v", in, has, err)
		}
	}
}

// FuzzStripFields compares with the reader that all else goes by: no field with the prefix is left,
// every other stays.
func FuzzStripFields(f *testing.F) {
	f.Add([]byte("A: 1\r\nX-SMTPAPI: {}\r\n b\r\nB: 2\r\n\r\nX-PM-Tag: body\r\n"))
	f.Add([]byte("X-PM-a : 1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var in, out bytes.Buffer
		lines := NormalizeLines(&in)
		_, _ = lines.Write(data)
		_ = lines.Close()
		if _, err := StripFields(&out, bytes.NewReader(in.Bytes()), stripPrefixes); err != nil {
			t.Fatal(err)
		}
		var want []string
		for f := range fields(in.Bytes()) {
			if !HasFieldPrefix(string(f.name), stripPrefixes) {
				want = append(want, string(f.whole))
			}
		}
		var got []string
		for f := range fields(out.Bytes()) {
			got = append(got, string(f.whole))
		}
		if strings.Join(got, "") != strings.Join(want, "") {
			t.Errorf("%q\nbecomes\n%q", in.Bytes(), out.Bytes())
		}
		if has, _ := HasFields(bytes.NewReader(out.Bytes()), stripPrefixes); has {
			t.Errorf("%q is left", out.Bytes())
		}
	})
}
