package auth

import (
	"slices"
	"strings"
	"testing"
)

// TestVerifyHeaderNeedsNoBody: the header alone shows that it was signed, and nothing that was
// changed in it passes.
func TestVerifyHeaderNeedsNoBody(t *testing.T) {
	keys := newTestKeys(t)
	dns := keys.dns(t)
	record := func(domain, selector string) (string, bool) {
		txts, err := dns.LookupTXT(t.Context(), selector+"._domainkey."+domain+".")
		if err != nil || len(txts) == 0 {
			return "", false
		}
		return txts[0], true
	}
	message := messages()["plain"]
	fields, err := Sign(strings.NewReader(message), SignOptions{Keys: bothKeys(keys)})
	if err != nil {
		t.Fatal(err)
	}
	header, _, _ := strings.Cut(string(fields)+message, "\r\n\r\n")
	for name, text := range map[string]string{
		"header alone":    header + "\r\n",
		"another body":    header + "\r\n\r\nAnother\r\n",
		"bare line ends":  strings.ReplaceAll(header, "\r\n", "\n") + "\n",
		"fields on top":   "Received: somewhere\r\nReturn-Path: <x@y.example>\r\n" + header + "\r\n",
		"nobody else's":   header + "\r\nX-Other: yes\r\n",
		"as it was given": string(fields) + message,
	} {
		got := VerifyHeader([]byte(text), record)
		if len(got) != 2 || got[0].Domain != "x.com" || got[0].Selector != "rsa" || !slices.Contains(got[0].Names, "message-id") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, text := range map[string]string{
		"another id":      strings.Replace(header, "<1@x.com>", "<2@x.com>", 1),
		"a second id":     header + "\r\nMessage-ID: <2@x.com>",
		"another author":  strings.Replace(header, "user@x.com", "other@x.com", 1),
		"another domain":  strings.ReplaceAll(header, "d=x.com", "d=y.com"),
		"no signature":    strings.ReplaceAll(header, "DKIM-Signature", "X-Signature"),
		"an empty header": "",
	} {
		if got := VerifyHeader([]byte(text+"\r\n"), record); len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := VerifyHeader([]byte(header+"\r\n"), func(string, string) (string, bool) { return "", false }); len(got) != 0 {
		t.Errorf("without keys: %+v", got)
	}
}

// FuzzVerifyHeader reads any header; nothing verifies with a key that nobody has used.
func FuzzVerifyHeader(f *testing.F) {
	f.Add("DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=x.com; s=rsa; h=From:From; bh=x; b=eA==\r\nFrom: a@x.com\r\n")
	f.Add("DKIM-Signature: a=ed25519-sha256; d=x.com; s=s; h=from; b=\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := VerifyHeader([]byte(text), func(string, string) (string, bool) {
			return "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=", true
		})
		if len(got) != 0 {
			t.Errorf("%+v", got)
		}
	})
}
