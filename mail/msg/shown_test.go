package msg

import "testing"

func TestShownNamesTurnAndHideNothing(t *testing.T) {
	for name, want := range map[string]string{
		"Ann Smith": "Ann Smith", "": "", "Zo\u00eb": "Zo\u00eb", "\u05d3\u05df": "\u05d3\u05df", "\u0639\u0644\u064a": "\u0639\u0644\u064a",
		"\u202eknaB": "knaB", "B\u200ban\u2060k": "Bank", "\u2066a\u2069 b": "a b", "\ufeff \u200e": "", "so\u00adft": "soft",
	} {
		if got := ShownName(name); got != want {
			t.Errorf("%q is shown as %q, want %q", name, got, want)
		}
		if got := ShownName([]byte(name)); string(got) != want {
			t.Errorf("%q is shown as %q, want %q", name, got, want)
		}
	}
}
