package store

import (
	"fmt"
	"testing"
)

// TestScanKeepsItsFile: the file of a scan is found when compaction has moved it, and goes when a
// newer scan takes its place.
func TestScanKeepsItsFile(t *testing.T) {
	s := compactStore(t, Options{})
	all := fill(t, s, 40)
	scan := func(domain string) (z *ZoneScan) {
		t.Helper()
		view(t, s, func(tx *Tx) (err error) { z, err = ZoneScans.Get(tx, domain); return err })
		return z
	}
	update(t, s, func(tx *Tx) error {
		for n := 0; n < len(all); n += 2 {
			domain := fmt.Sprint("dom_", n/4) // each gets two, of which the second stays
			if err := tx.PutZoneScan(&ZoneScan{DomainID: domain, JobID: fmt.Sprint("job_", n), Blob: all[n].Blob}); err != nil {
				return err
			}
		}
		return nil
	})
	deleteTest(t, s, all...)
	compact(t, s)
	if scan("dom_0").Blob == all[2].Blob {
		t.Error("it was not moved")
	}
	for n := 2; n < len(all); n += 4 {
		z := scan(fmt.Sprint("dom_", n/4))
		if got := readTest(t, s, z.Blob); got[:4] != fmt.Sprintf("%04d", n) || z.JobID != fmt.Sprint("job_", n) {
			t.Errorf("scan %d has %.4q of %s", n, got, z.JobID)
		}
		update(t, s, func(tx *Tx) error { return tx.DropZoneScan(z.DomainID) })
	}
	update(t, s, func(tx *Tx) error { return tx.DropZoneScan("dom_none") })
	compact(t, s)
	if n := len(s.seg.List()); n > 1 {
		t.Errorf("%d segments are left", n)
	}
}
