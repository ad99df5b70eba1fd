package recipients

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/core"
)

// FuzzRowLocal: only local parts that this server made are accepted.
func FuzzRowLocal(f *testing.F) {
	keys, err := core.NewKeys(make([]byte, 32))
	if err != nil {
		f.Fatal(err)
	}
	s := &Service{Core: &core.Core{Keys: keys}}
	const id = "msg_01k9a2b3c4d5e6f7g8h9j0k1m2"
	f.Add(s.RowLocal(BounceAddress, id, "example.test"))
	f.Add("b-01k9a2b3c4d5e6f7g8h9j0k1m2-aaaaaaaaaaaaaaaa")
	f.Fuzz(func(t *testing.T, local string) {
		kind, got := s.ReadRowLocal(local, "example.test")
		if got != "" && s.RowLocal(kind, got, "example.test") != strings.ToLower(local) {
			t.Errorf("%q gives %s %s", local, kind, got)
		}
	})
}
