package builtin

import (
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
)

// TestPutServesAtOnce: Put replaces a zone for the next question, and an answer that was made
// before does not change.
func TestPutServesAtOnce(t *testing.T) {
	var zones Zones
	var before *dns.Msg
	for _, value := range []string{"one", "two"} {
		z, err := NewZone("example.test", []dnsprov.Record{rec("example.test", "TXT", value)}, testOptions())
		if err != nil {
			t.Fatal(err)
		}
		zones.Put(z)
		served, _ := zones.Zone("example.test")
		m, got := ask(t, served, "example.test.", dns.TypeTXT)
		if len(m.Answer) != 1 || m.Answer[0].(*dns.TXT).Txt[0] != value {
			t.Errorf("%s", got)
		}
		if before == nil {
			before = m
		}
	}
	if before.Answer[0].(*dns.TXT).Txt[0] != "one" {
		t.Errorf("the answer of before has become %v", before)
	}
}
