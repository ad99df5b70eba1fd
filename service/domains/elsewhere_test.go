package domains

import (
	"testing"

	"github.com/mailstead/mailstead/store"
)

func TestSendingPlacesAreNarrowAndNotOurs(t *testing.T) {
	for _, c := range []struct {
		in   SendingPlaceIn
		want store.SendingPlace // zero: the place is refused
	}{
		{SendingPlaceIn{Host: "Out.Example.net.", Selector: "S1"}, store.SendingPlace{Host: "out.example.net", Selector: "s1"}},
		{SendingPlaceIn{Network: "192.0.2.7/24", Selector: "s1"}, store.SendingPlace{Network: "192.0.2.0/24", Selector: "s1"}},
		{SendingPlaceIn{Network: "2001:db8::/48", Selector: "s1"}, store.SendingPlace{Network: "2001:db8::/48", Selector: "s1"}},
		{in: SendingPlaceIn{Network: "192.0.2.0/23", Selector: "s1"}},
		{in: SendingPlaceIn{Network: "2001:db8::/47", Selector: "s1"}},
		{in: SendingPlaceIn{Network: "::ffff:192.0.2.0/120", Selector: "s1"}},
		{in: SendingPlaceIn{Network: "192.0.2.7", Selector: "s1"}},
		{in: SendingPlaceIn{Host: "192.0.2.7", Selector: "s1"}},
		{in: SendingPlaceIn{Host: "localhost", Selector: "s1"}},
		{in: SendingPlaceIn{Host: "out.example.net"}},
		{in: SendingPlaceIn{Host: "out.example.net", Network: "192.0.2.0/24", Selector: "s1"}},
		{in: SendingPlaceIn{Selector: "s1"}},
	} {
		got, err := parseSendingPlaces([]SendingPlaceIn{c.in})
		if refused := c.want == (store.SendingPlace{}); (err != nil) != refused || !refused && (len(got) != 1 || got[0] != c.want) {
			t.Errorf("%+v: %+v, %v", c.in, got, err)
		}
	}
	if _, err := parseSendingPlaces(make([]SendingPlaceIn, maxSendingPlaces+1)); err == nil {
		t.Error("more places than the most are taken")
	}
	d := &store.Domain{DKIM: []store.DKIMKey{{Selector: "ours"}}}
	if checkSelectors(d, []store.SendingPlace{{Host: "a.test", Selector: "ours"}}) == nil || checkSelectors(d, []store.SendingPlace{{Host: "a.test", Selector: "s1"}}) != nil {
		t.Error("the selector of our own key is taken, or another one refused")
	}
}
