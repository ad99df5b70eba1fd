package domains_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/service/zones"
)

// TestObsoleteTagsOfDMARCAreWarned: an own record with tags that have no effect since RFC 9989 is
// named among the issues of its domain, which is healthy all the same.
func TestObsoleteTagsOfDMARCAreWarned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, who := newWorld(t)
		id := connect(t, b.Service, who, "old.test")
		verify(t, b.Service, who, "old.test")
		time.Sleep(time.Second)
		for _, c := range []struct {
			value string
			tags  []string
		}{
			{"v=DMARC1; p=reject; pct=50", []string{"pct="}},
			{"v=DMARC1; p=reject; ri=3600; rf=afrf; pct=100", []string{"pct=", "rf=", "ri="}},
			{"v=DMARC1; p=reject; t=y; np=reject", nil},
		} {
			if _, err := b.Zones.SetDMARC(t.Context(), who, zones.SetDMARCIn{DomainID: id, Value: c.value}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(24 * time.Hour)
			h := getDomain(t, b.Service, who, id).DNSHealth
			if h.Status != "healthy" || len(h.Issues) != min(len(c.tags), 1) {
				t.Errorf("%s: %+v", c.value, h)
				continue
			}
			if c.tags == nil {
				continue
			}
			if i := h.Issues[0]; i.Code != "dmarc_obsolete" || i.Purpose != dnsprov.PurposeDMARC || i.Host != "_dmarc" || !strings.Contains(i.Message, "has "+strings.Join(c.tags, ", ")+", which") {
				t.Errorf("%s: %+v", c.value, i)
			}
		}
		if n := len(eventsOf(t, b.Service, who, events.EventDomainDNSFailed)); n > 0 {
			t.Errorf("%d events domain.dns_failed", n)
		}
	})
}
