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

// A domain that moved between DNS providers may have its records noted at two of them.
func TestNotesOfManyRecordsAreErasedWithinTheBounds(t *testing.T) {
	s, who := servicetest.NewBare(t)
	gone := servicetest.PutDomainRow(t, s, who, "gone.test", store.DomainComplete)
	stays := servicetest.PutDomainRow(t, s, who, "stays.test", store.DomainComplete)
	servicetest.PutMany(t, s, store.EdgeRecords, 2*zones.MaxCustomRecords, func(i int) *store.EdgeRecord {
		return &store.EdgeRecord{DomainID: gone.ID, Place: uint32(i % 2), RecordID: fmt.Sprintf("TXT r%d.gone.test %032x", i, i), Purpose: "custom"}
	})
	servicetest.PutMany(t, s, store.EdgeRecords, 3, func(i int) *store.EdgeRecord {
		return &store.EdgeRecord{DomainID: stays.ID, RecordID: fmt.Sprint("r", i), Purpose: "mx"}
	})
	if err := s.Zones.EraseCustomRecords(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	left := map[string]int{}
	err := s.Core.Store.View(func(tx *store.Tx) error {
		for r := range store.EdgeRecords.All(tx) {
			left[r.DomainID]++
		}
		return nil
	})
	if err != nil || len(left) != 1 || left[stays.ID] != 3 {
		t.Errorf("left are %v, %v", left, err)
	}
}
