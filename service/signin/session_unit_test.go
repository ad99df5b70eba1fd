package signin

import (
	"strings"
	"testing"
	"unicode/utf8"

	fido "github.com/go-webauthn/webauthn/protocol"
)

func FuzzPasskeyAnswer(f *testing.F) {
	f.Add([]byte(`{"id":"AA","rawId":"AA","type":"public-key","response":{"clientDataJSON":"e30","authenticatorData":"AA","signature":"AA","userHandle":"AA"}}`))
	f.Add([]byte(`{"id":"AA","rawId":"AA","type":"public-key","response":{"clientDataJSON":"e30","attestationObject":"oA"}}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		// Reading an accepted answer must not panic because a part of it is missing.
		if a, err := fido.ParseCredentialRequestResponseBytes(body); err == nil {
			_ = a.Response.CollectedClientData.Challenge
		}
		if c, err := fido.ParseCredentialCreationResponseBytes(body); err == nil {
			_ = c.Response.CollectedClientData.Challenge
		}
	})
}

func FuzzUserAgent(f *testing.F) {
	f.Add("Mozilla/5.0 (X11; Linux x86_64)")
	f.Add("a\x00\xff\u202e" + strings.Repeat("é", 400))
	f.Fuzz(func(t *testing.T, text string) {
		got := cleanUserAgent(text)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > 300 || strings.ContainsAny(got, "\x00\r\n\x7f") {
			t.Errorf("%q became %q", text, got)
		}
	})
}
