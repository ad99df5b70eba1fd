package markup

import (
	"html"
	"strings"
	"testing"

	xhtml "golang.org/x/net/html"
)

func TestFormatEscapes(t *testing.T) {
	bold := Format("<b>%s</b>", `<i>"&'`)
	if want := HTML("<b>&lt;i&gt;&#34;&amp;&#39;</b>"); bold != want {
		t.Errorf("got %s, want %s", bold, want)
	}
	if got, want := Format(`<p id="%[2]s">%[1]s %[2]s</p>`, bold, 7), HTML(`<p id="7">`+string(bold)+` 7</p>`); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	type text string
	for _, arg := range []any{text("<"), []string{"<"}, struct{ s string }{"<"}, &[]string{"<"}} {
		if got := Format("%s", arg); strings.Contains(string(got), "<") {
			t.Errorf("%T is not escaped: %s", arg, got)
		}
	}
}

// FuzzFormat: no text of others makes a tag or an attribute.
func FuzzFormat(f *testing.F) {
	for _, s := range []string{"", "plain", `"><script>alert(1)</script>`, "' onload='x", "&lt;", "%s%d%!", "<!--", "\x00\xff", "`x` =>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Format(`<p title="%s">%s</p>`, s, s)
		z := xhtml.NewTokenizer(strings.NewReader(string(got)))
		if z.Next() != xhtml.StartTagToken {
			t.Fatalf("%q does not begin with a tag", got)
		}
		if tag := z.Token(); tag.Data != "p" || len(tag.Attr) != 1 {
			t.Fatalf("%q became %v", got, tag)
		}
		for z.Next() == xhtml.TextToken {
			z.Raw()
		}
		if end := z.Token(); end.Type != xhtml.EndTagToken || end.Data != "p" || z.Next() != xhtml.ErrorToken {
			t.Fatalf("%q has the tag %v in it", got, end)
		}
		if text := strings.TrimSuffix(strings.SplitAfterN(string(got), ">", 2)[1], "</p>"); html.UnescapeString(text) != s {
			t.Fatalf("%q shows another text than %q", got, s)
		}
	})
}
