package scans

import (
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/zones"
	"github.com/mailstead/mailstead/store"
)

const defaultDSTTL = 24 * time.Hour // of DS records whose TTL is not known; that of most registries

// NoteDS sets the DNSSEC status of a domain by the DS records that the parent zone has, and notes
// until when resolvers may have one of another key; found is nil if the look-up has failed. ttl is
// that of the records, 0 if it is not known. The caller writes the domain.
func (s *Service) NoteDS(tx *store.Tx, d *store.Domain, found *[]dnsprov.DS, ttl time.Duration) {
	if found == nil || d.DNSSEC == nil {
		return
	}
	before := d.DNSSEC.Status
	zones.UpdateDSStatus(d, found)
	if before != store.DNSSECBogus && d.DNSSEC.Status != store.DNSSECBogus {
		return
	}
	if d.ForeignDS == nil {
		d.ForeignDS = &store.ForeignDS{TTL: defaultDSTTL}
	}
	if ttl > 0 {
		d.ForeignDS.TTL = ttl
	}
	d.ForeignDS.Until = tx.Now().Add(d.ForeignDS.TTL)
}
