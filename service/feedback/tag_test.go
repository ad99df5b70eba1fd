package feedback

import (
	"testing"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/recipients"
)

// FuzzTag: only tags that we made are accepted.
func FuzzTag(f *testing.F) {
	keys, err := core.NewKeys(make([]byte, 32))
	if err != nil {
		f.Fatal(err)
	}
	c := &core.Core{Keys: keys}
	s := &Service{Core: c, recipients: recipients.New(c)}
	f.Add(s.recipients.RowLocal(recipients.RelayTag, "msg_01k9a2b3c4d5e6f7g8h9j0k1m2", "")[2:])
	f.Add("01k9a2b3c4d5e6f7g8h9j0k1m2-aaaaaaaaaaaaaaaa")
	f.Fuzz(func(t *testing.T, tag string) {
		if id := s.readTag(tag); id != "" && s.recipients.RowLocal(recipients.RelayTag, id, "")[2:] != tag {
			t.Errorf("%q gives %s", tag, id)
		}
	})
}
