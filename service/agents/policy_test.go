package agents

import (
	"reflect"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/mail/msg"
)

// FuzzPolicy: an accepted policy has only normalized names, and survives the conversion to the API
// and back.
func FuzzPolicy(f *testing.F) {
	f.Add("reply_only", "Ann@Example.com", "@EXAMPLE.com", 60)
	f.Add("allow", "@bücher.example", "", 0)
	f.Add("", "@", "a@[192.0.2.1]", 1)
	f.Fuzz(func(t *testing.T, send, one, two string, seconds int) {
		in := Policy{SendPolicy: SendPolicy{send, []string{one, two, one}}, TrustedSenders: []string{two}, Taint: true, TaintSeconds: &seconds}
		kept, err := in.StoredForm("policy")
		if err != nil {
			return
		}
		for _, name := range append(kept.AllowedRecipients, kept.TrustedSenders...) {
			domain, all := strings.CutPrefix(name, "@")
			same, err := msg.NormalizeEmail(name)
			if all {
				same, err = msg.NormalizeDomain(domain)
				same = "@" + same
			}
			if err != nil || same != name {
				t.Errorf("%q is kept, which is %q, %v", name, same, err)
			}
		}
		out := PolicyOut(&kept)
		again, err := out.StoredForm("policy")
		if err != nil || !reflect.DeepEqual(kept, again) {
			t.Errorf("%+v comes out as %+v, %v", kept, again, err)
		}
	})
}
