package edge

import (
	"context"
	"maps"
	"slices"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

// ownRecords are the records that we have made at a DNS provider: the purpose of each by its ID.
type ownRecords map[string]string

// ownRecordsOf returns the records that we have made for a domain, by EdgeRecord.Place.
func ownRecordsOf(tx *store.Tx, domainID string) map[uint32]ownRecords {
	out := map[uint32]ownRecords{}
	for r := range store.EdgeRecordsOf(tx, domainID) {
		if out[r.Place] == nil {
			out[r.Place] = ownRecords{}
		}
		out[r.Place][r.RecordID] = r.Purpose
	}
	return out
}

// writeOwnRecords notes that the records at a place are those of now instead of those of before,
// zonedata.RowsPerWrite in each transaction. It ends with an error of check, which each transaction
// calls first.
func writeOwnRecords(st *store.Store, domainID string, place uint32, before, now ownRecords, check func(*store.Tx) error) error {
	var ids []string
	for id, purpose := range now {
		if before[id] != purpose {
			ids = append(ids, id)
		}
	}
	for id := range before {
		if _, stays := now[id]; !stays {
			ids = append(ids, id)
		}
	}
	for part := range slices.Chunk(ids, zonedata.RowsPerWrite) {
		err := st.Update(func(tx *store.Tx) error {
			if err := check(tx); err != nil {
				return err
			}
			for _, id := range part {
				purpose, ours := now[id]
				var err error
				if ours {
					err = store.EdgeRecords.Put(tx, &store.EdgeRecord{DomainID: domainID, Place: place, RecordID: id, Purpose: purpose})
				} else {
					err = store.EdgeRecords.Delete(tx, store.EdgeRecordKey(domainID, place, id))
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// EraseOwnRecords forgets all records of a domain at DNS providers.
func EraseOwnRecords(ctx context.Context, st *store.Store, domainID string) error {
	for n := core.DropsAtATime; n == core.DropsAtATime; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := st.Update(func(tx *store.Tx) error {
			var ids []string
			for r := range store.EdgeRecordsOf(tx, domainID) {
				ids = append(ids, store.EdgeRecordKey(domainID, r.Place, r.RecordID))
				if len(ids) == core.DropsAtATime {
					break
				}
			}
			n = len(ids)
			return core.DeleteAll(tx, store.EdgeRecords, ids)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// newPlace returns a new EdgeRecord.Place of a domain. The caller writes the domain.
func newPlace(d *store.Domain) uint32 {
	d.EdgePlaces++
	return d.EdgePlaces
}

// with returns these records and more.
func (o ownRecords) with(more ownRecords) ownRecords {
	out := maps.Clone(o)
	if out == nil {
		out = ownRecords{}
	}
	maps.Copy(out, more)
	return out
}
