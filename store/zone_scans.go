package store

import "github.com/mailstead/mailstead/store/engine"

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
