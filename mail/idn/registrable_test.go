package idn

import (
	"strings"
	"testing"
)

func TestRegistrable(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 54)+".", 4) // 220 characters with the last dot
	for _, tc := range []struct{ in, ascii, unicode string }{
		{"example.com", "example.com", "example.com"},
		{" Example.COM. ", "example.com", "example.com"},
		{"bücher.example", "xn--bcher-kva.example", "bücher.example"},
		{"BÜCHER.example", "xn--bcher-kva.example", "bücher.example"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example", "bücher.example"},
		{"bu\u0308cher。example", "xn--bcher-kva.example", "bücher.example"},
		{"faß.de", "xn--fa-hia.de", "faß.de"},
		{"例え.テスト", "xn--r8jz45g.xn--zckzah", "例え.テスト"},
		{"shop.example.co.uk", "shop.example.co.uk", "shop.example.co.uk"},
		{"somebody.github.io", "somebody.github.io", "somebody.github.io"},
		{"alpha.test", "alpha.test", "alpha.test"},
		{"1and1.example", "1and1.example", "1and1.example"},
		{long + "a", "", ""},
		{long[1:] + "a", long[1:] + "a", long[1:] + "a"},
	} {
		ascii, unicode, err := Registrable(tc.in)
		if tc.ascii == "" {
			if err == nil {
				t.Errorf("%q was taken", tc.in)
			}
			continue
		}
		if err != nil || ascii != tc.ascii || unicode != tc.unicode {
			t.Errorf("%q = %q, %q, %v", tc.in, ascii, unicode, err)
		}
	}
}

func TestRegistrableSaysWhatToDo(t *testing.T) {
	for in, advice := range map[string]string{
		"":                                  "give a name",
		".":                                 "give a name",
		"localhost":                         "whole name",
		"com":                               "whole name",
		"co.uk":                             "public suffix",
		"CO.UK.":                            "public suffix",
		"公司.cn":                             "public suffix",
		"*.example.com":                     "wildcard",
		"192.0.2.1":                         "IP address",
		"１９２.0.2.1":                         "ends in a number",
		"[2001:db8::1]":                     "IP address",
		"2001:db8::1":                       "IP address",
		"example.123":                       "ends in a number",
		"https://example.com":               "address of a page",
		"example.com/path":                  "address of a page",
		"me@example.com":                    "email address",
		"a..com":                            "",
		".example.com":                      "",
		"exam ple.com":                      "letters, digits and hyphens",
		"under_score.com":                   "letters, digits and hyphens",
		"-dash.com":                         "letters, digits and hyphens",
		"dash-.com":                         "letters, digits and hyphens",
		"ab--cd.com":                        "letters, digits and hyphens",
		"xn--.com":                          "",
		"xn--a.com":                         "",
		"xn--example-.com":                  "",
		"XN--Bcher-KVA9999999.com":          "",
		"exa\x00mple.com":                   "letters",
		"\xff.com":                          "UTF-8",
		strings.Repeat("a", 64) + ".com":    "63 characters",
		strings.Repeat("a.", 126) + "a.com": "too long",
		strings.Repeat("ä.", 9000) + "com":  "too long",
	} {
		ascii, _, err := Registrable(in)
		if err == nil {
			t.Errorf("%.80q was taken as %q", in, ascii)
			continue
		}
		if !strings.Contains(err.Error(), advice) || len(err.Error()) > 400 {
			t.Errorf("%.80q: %v, want advice with %q", in, err, advice)
		}
	}
}

func FuzzRegistrable(f *testing.F) {
	for _, s := range []string{"example.com", "bücher.example", "xn--bcher-kva.example", "co.uk", "１２７.0.0.1", "a。b", "xn--.x", "*.a.b", "ﬀ.test", "\u200d.test"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ascii, unicode, err := Registrable(s)
		if err != nil {
			return
		}
		if strings.Trim(ascii, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" || len(ascii) > maxRegistrable || !strings.Contains(ascii, ".") {
			t.Fatalf("%q gave %q", s, ascii)
		}
		for _, form := range []string{ascii, unicode, strings.ToUpper(ascii) + "."} {
			a, u, err := Registrable(form)
			if err != nil || a != ascii || u != unicode {
				t.Fatalf("%q gave %q and %q, but %q gives %q, %q, %v", s, ascii, unicode, form, a, u, err)
			}
		}
	})
}
