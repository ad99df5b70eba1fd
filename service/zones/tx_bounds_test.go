package zones_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/service/servicetest"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

// A transaction counts the records without reading them.
func TestCustomRecordsAtTheirMostWithinTheBounds(t *testing.T) {
	s, who := servicetest.NewWith(t, store.Options{MaxSteps: 2 * zones.MaxCustomRecords})
	servicetest.ServeZones(s)
	d := servicetest.PutDomainRow(t, s, who, "big.test", store.DomainComplete)
	put := func(i int) *store.CustomRecord {
		return &store.CustomRecord{ID: s.Core.Store.NewID("rec"), DomainID: d.ID, Name: fmt.Sprintf("r%d.big.test", i), Type: "TXT", Value: strings.Repeat("v", 4000), TTL: 300}
	}
	servicetest.PutMany(t, s, store.CustomRecords, zones.MaxCustomRecords-1, put)
	out, err := s.Zones.CreateCustomDNSRecord(t.Context(), who, zones.CreateCustomDNSRecordIn{DomainID: d.ID, Name: "last", Type: "TXT", Value: strings.Repeat("w", 4000)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Zones.CreateCustomDNSRecord(t.Context(), who, zones.CreateCustomDNSRecordIn{DomainID: d.ID, Name: "more", Type: "TXT", Value: "w"}); err == nil {
		t.Error("there is no limit")
	}
	if _, err := s.Zones.DeleteCustomDNSRecord(t.Context(), who, zones.CustomDNSRecordIn{DomainID: d.ID, RecordID: out.Record.ID}); err != nil {
		t.Fatal(err)
	}
	if err := s.Zones.EraseCustomRecords(t.Context(), d.ID); err != nil {
		t.Fatal(err)
	}
}
