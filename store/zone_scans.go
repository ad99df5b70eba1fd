package store

import (
	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
)

// A ZoneScan is the newest finished scan of a domain's zone at the nameservers of others. It stays
// as long as the domain.
type ZoneScan struct {
	DomainID string
	JobID    string // the job that made it
	Blob     BlobRef
	Excluded []RecordSetName `json:",omitempty"` // records of it that the owner has left out of an import
}

// A RecordSetName names the records of one name and type.
type RecordSetName struct {
	Name string // FQDN, lower-case, no trailing dot
	Type string // "": all types
}

// ZoneScans keeps the scans under the ids of their domains.
var ZoneScans = engine.NewTable("zone_scan", func(s *ZoneScan) string { return s.DomainID })

// PutZoneScan writes a scan with a Blob that Append has returned. It takes the place of the
// domain's scan of before.
func (tx *Tx) PutZoneScan(s *ZoneScan) error {
	if err := tx.DropZoneScan(s.DomainID); err != nil {
		return err
	}
	if err := mailindex.AddRef(&tx.Tx, s.Blob, append([]byte{mailrow.OwnerScan}, s.DomainID...)); err != nil {
		return err
	}
	return ZoneScans.Put(tx, s)
}

// DropZoneScan deletes the scan of a domain, if it has one.
func (tx *Tx) DropZoneScan(domainID string) error {
	s, err := ZoneScans.Find(tx, domainID)
	if s == nil || err != nil {
		return err
	}
	if err := mailindex.DropRef(&tx.Tx, s.Blob, append([]byte{mailrow.OwnerScan}, domainID...)); err != nil {
		return err
	}
	return ZoneScans.Delete(tx, domainID)
}
