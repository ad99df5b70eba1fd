package agents

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/store"
)

func TestVerified(t *testing.T) {
	const ours, theirs, sub = "example.test", "far.test", "mail.far.test"
	policies := map[string]*store.Policy{
		"none":        {Taint: true},
		"an address":  {Taint: true, TrustedSenders: []string{"boss@far.test"}},
		"a domain":    {Taint: true, TrustedSenders: []string{"@far.test"}},
		"both":        {Taint: true, TrustedSenders: []string{"boss@far.test", "@mail.far.test"}},
		"an own one":  {Taint: true, TrustedSenders: []string{"ann@example.test"}},
		"a recipient": {Taint: true, AllowedRecipients: []string{"@far.test", "boss@far.test"}},
	}
	for _, c := range []struct {
		words Source
		by    string // the policies by which they are verified; "all"
	}{
		{Source{}, ""},
		{Source{Origin: OriginOwn}, "all"},
		{Source{Origin: OriginOwn, Author: "boss@far.test"}, "all"},
		{Source{Origin: "other", Author: "ann@example.test", Verified: ours}, ""},

		// Nobody knows who wrote DSNs, automatic answers, forwards, and appended messages.
		{Source{Author: "ann@example.test", Verified: ours}, ""},
		{Source{Author: "boss@far.test", Verified: theirs}, ""},

		{Source{Origin: OriginAuthor, Author: "ann@example.test"}, ""},
		{Source{Origin: OriginAuthor, Author: "ann@example.test", Verified: ours}, "an own one"},
		{Source{Origin: OriginElsewhere, Author: "ann@example.test", Verified: ours}, "all"},
		{Source{Origin: OriginElsewhere, Author: "ann@example.test"}, ""},
		{Source{Origin: OriginElsewhere, Author: "boss@far.test", Verified: theirs}, "an address, a domain, both"},
		{Source{Origin: OriginElsewhere, Author: "maid@else.test", Verified: "else.test"}, ""},
		{Source{Origin: OriginAuthor, Author: "x@mail.example.test", Verified: "mail.example.test"}, ""},
		{Source{Origin: OriginAuthor, Author: "boss@far.test"}, ""},
		{Source{Origin: OriginAuthor, Author: "boss@far.test", Verified: theirs}, "an address, a domain, both"},
		{Source{Origin: OriginAuthor, Author: "boss+tag@far.test", Verified: theirs}, "a domain"},
		{Source{Origin: OriginAuthor, Author: "maid@far.test", Verified: theirs}, "a domain"},
		{Source{Origin: OriginAuthor, Author: "boss@mail.far.test", Verified: sub}, "both"},
		{Source{Origin: OriginAuthor, Author: "", Verified: theirs}, ""},

		// The named author is not of the domain that was proven.
		{Source{Origin: OriginAuthor, Author: "boss@far.test", Verified: "evil.test"}, ""},
		{Source{Origin: OriginAuthor, Author: "boss@far.test", Verified: sub}, ""},
		{Source{Origin: OriginAuthor, Author: "boss@mail.far.test", Verified: theirs}, ""},
	} {
		for name, p := range policies {
			got, err := Verified(p, &c.words, func(domain string) (bool, error) { return domain == ours, nil })
			want := c.by == "all" || slices.Contains(strings.Split(c.by, ", "), name)
			if err != nil || got != want {
				t.Errorf("%+v by the policy with %s: %v %v, want %v", c.words, name, got, err, want)
			}
		}
	}
	failed := errors.New("disk")
	if _, err := Verified(policies["none"], &Source{Origin: OriginElsewhere, Verified: ours}, func(string) (bool, error) { return true, failed }); !errors.Is(err, failed) {
		t.Errorf("an error is lost: %v", err)
	}
}
