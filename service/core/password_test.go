package core

import (
	"strings"
	"testing"
)

// TestCheckPassword: a password has an allowed length and is not a common one.
func TestCheckPassword(t *testing.T) {
	for password, want := range map[string]string{
		"seven77": "out_of_range", "": "out_of_range", strings.Repeat("x", 129): "out_of_range", "\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc\u00e4": "out_of_range",
		"line\nbreak": "invalid", "tab\there": "invalid",
		"password1": "too_common", "PassWord1": "too_common", "12345678": "too_common", "iloveyou1": "too_common",
		"correct horse": "", "\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc\u00e4\u00f6": "", strings.Repeat("x", 128): "", "password1 ": "", "12345678\u00e4": "",
	} {
		err := CheckPassword("password", password, LeastPassword)
		e, _ := AsError(err)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", password, err)
		case want != "" && (e == nil || e.Details[0].Code != want || e.Details[0].Field != "password"):
			t.Errorf("%q: %v, want %s", password, err, want)
		}
	}
	if ShortPassword("seven77") == "" || ShortPassword("eight888") != "" {
		t.Error("seven characters need a warning, eight do not")
	}
}
