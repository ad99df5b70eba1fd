package mta

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
)

func TestReturnPathsByRelay(t *testing.T) {
	for kind, verp := range map[string]bool{"custom": true, "ses": false, "postmark": false, "mailgun": false, "sendgrid": false} {
		for _, set := range []string{"", "verp", "sender"} {
			r, err := newRelay(core.Relay{Name: "r", Kind: kind, ReturnPath: set})
			if err != nil || r.verp != (set == "verp" || set == "" && verp) {
				t.Errorf("%s %q: %+v, %v", kind, set, r, err)
			}
		}
	}
	if _, err := newRelay(core.Relay{Name: "r", Kind: "ses", ReturnPath: "x"}); err == nil {
		t.Error("an unknown return_path was taken")
	}
}

// FuzzRowLocal takes nothing for ours but what we made.
func FuzzRowLocal(f *testing.F) {
	keys, err := core.NewKeys(make([]byte, 32))
	if err != nil {
		f.Fatal(err)
	}
	s := &Service{Core: &core.Core{Keys: keys}}
	const id = "msg_01k9a2b3c4d5e6f7g8h9j0k1m2"
	f.Add(s.rowLocal(bounceAddress, id, "example.test"))
	f.Add("b-01k9a2b3c4d5e6f7g8h9j0k1m2-aaaaaaaaaaaaaaaa")
	f.Fuzz(func(t *testing.T, local string) {
		kind, got := s.readRowLocal(local, "example.test")
		if got != "" && s.rowLocal(kind, got, "example.test") != strings.ToLower(local) {
			t.Errorf("%q gives %s %s", local, kind, got)
		}
		if tag := s.readTag(local); tag != "" && s.rowLocal(tagAddress, tag, "")[2:] != local {
			t.Errorf("%q gives %s", local, tag)
		}
	})
}
