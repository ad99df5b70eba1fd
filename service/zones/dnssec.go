package zones

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/builtin"
	"github.com/mailstead/mailstead/jobs"
	"github.com/mailstead/mailstead/store"
)

const (
	// resignAfter is how often a zone gets new signatures. Signatures in a zone transfer are valid
	// for at least ten days. A secondary that cannot reach this server serves its copy for seven
	// days more. So its copy must never be older than three days. resignSpread spreads the zones in
	// time.
	resignAfter     = 48 * time.Hour
	resignSpread    = 12 * time.Hour
	resignsPerWrite = 50 // zones that one write transaction publishes
)

// States of a signed zone, by the DS records at the parent (RFC 4035 section 4.3).
const (
	dnssecUnknown     = "unknown"
	dnssecUnpublished = "unpublished" // there is no DS record, so resolvers treat the zone as unsigned
	dnssecSecure      = "secure"      // there is a DS record of our key
	dnssecBogus       = "bogus"       // there are only DS records of other keys, so validating resolvers refuse our answers
)

// DNSSEC describes how a zone is signed that Mailstead serves. It has the DS record that must be
// entered at the domain's registrar.
type DNSSEC struct {
	// unpublished: your registrar has no DS record yet, so nobody checks the signatures. secure: it
	// has this one. bogus: it has only others, and resolvers that validate refuse the domain until
	// they are replaced. unknown: not checked yet.
	Status string     `json:"status" enum:"unknown|unpublished|secure|bogus"`
	DS     []DSRecord `json:"ds"` // What to give your registrar.
	// The public key, for registrars that want it instead: flags, protocol, algorithm, key.
	DNSKEY string `json:"dnskey" words:"ours" example:"257 3 13 GojIhhXUN/u4v54ZQqGSnyhWJwaubCvTmeexv7bR6edbkrSqQpF64cYbcB7wNcP+e+MAnLr+Wi9xMWyQLc8NAA=="`
}

// A DSRecord has the fields of one DS record and its text in a zone file.
type DSRecord struct {
	KeyTag     int    `json:"key_tag" example:"55648"`
	Algorithm  int    `json:"algorithm" example:"13"`  // 13: ECDSA P-256 with SHA-256.
	DigestType int    `json:"digest_type" example:"2"` // 2: SHA-256.
	Digest     string `json:"digest" words:"ours" example:"b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17"`
	// The record in zone file format.
	Value string `json:"value" words:"ours" example:"55648 13 2 b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17"`
}

// DNSSECOf describes how the zone of a domain is signed; nil if it is not signed.
func DNSSECOf(d *store.Domain) *DNSSEC {
	if d.DNSSEC == nil || d.DNSProvider != dnsprov.Builtin {
		return nil
	}
	public := builtin.PublicKey(d.DNSSEC.Public)
	ds := public.DS(d.Name)
	out := &DNSSEC{Status: d.DNSSEC.Status, DNSKEY: public.String(), DS: []DSRecord{{
		KeyTag: int(ds.KeyTag), Algorithm: int(ds.Algorithm), DigestType: int(ds.DigestType), Digest: ds.Digest, Value: ds.String(),
	}}}
	if out.Status == "" {
		out.Status = dnssecUnknown
	}
	return out
}

// UpdateDSStatus sets the DNSSEC status of a domain by the DS records that the parent zone has. If
// found is nil, the lookup has failed, and the status does not change.
func UpdateDSStatus(d *store.Domain, found *[]dnsprov.DS) {
	if found == nil || d.DNSSEC == nil {
		return
	}
	switch {
	case len(*found) == 0:
		d.DNSSEC.Status = dnssecUnpublished
	case slices.Contains(*found, builtin.PublicKey(d.DNSSEC.Public).DS(d.Name)):
		d.DNSSEC.Status = dnssecSecure
	default:
		d.DNSSEC.Status = dnssecBogus
	}
}

// LacksZoneKey reports whether the zone of a domain must be signed but has no key yet.
func LacksZoneKey(d *store.Domain) bool {
	return d.DNSSEC == nil && d.DNSProvider == dnsprov.Builtin
}

// GenerateZoneKey generates the key of a domain's zone, unless there is one. It takes some
// microseconds.
func (s *Service) GenerateZoneKey(d *store.Domain) error {
	if !LacksZoneKey(d) {
		return nil
	}
	private, public, err := builtin.GenerateKey()
	if err != nil {
		return err
	}
	d.DNSSEC = &store.DNSSECKey{Sealed: s.Keys.Seal(store.DNSSECBinding(d.ID), private), Public: public}
	return nil
}

// zoneKey returns the key of a domain's zone; nil if the zone is not signed. The sealed private key
// is opened when the first signature is made.
func (s *Service) zoneKey(d *store.Domain) *builtin.Key {
	if d.DNSSEC == nil || d.DNSProvider != dnsprov.Builtin {
		return nil
	}
	name, binding, sealed := d.Name, store.DNSSECBinding(d.ID), d.DNSSEC.Sealed
	return builtin.NewKey(d.DNSSEC.Public, func() ([]byte, error) {
		private, err := s.Keys.Open(binding, sealed)
		if err != nil { // logged here, because the answer to a DNS query cannot contain the reason
			s.Log.Error("could not open the key of a zone", "domain", name, "error", err)
		}
		return private, err
	})
}

// renewSignaturesKind returns the kind of job that publishes signed zones with a new serial, so
// that secondaries fetch new signatures.
func (s *Service) renewSignaturesKind() jobs.Kind {
	return jobs.Kind{Name: "zones_resign", Work: s.renewSignatures, Timeout: 30 * time.Minute}
}

// renewSignatures works on a zones_resign job: it publishes all zones that need new signatures.
func (s *Service) renewSignatures(ctx context.Context, _ *store.Job) (jobs.Writes, error) {
	for after, more := "", true; more; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var due []string
		err := s.Store.View(func(tx *store.Tx) error {
			n := 0
			for key, d := range store.DomainsByName.Asc(tx, "", after) {
				after = key
				if s.needsNewSignatures(tx, d) {
					due = append(due, d.ID)
				}
				if n++; n == zonesPerView {
					return nil
				}
			}
			more = false
			return nil
		})
		if err != nil {
			return nil, err
		}
		for ids := range slices.Chunk(due, resignsPerWrite) {
			if err := s.renewSignaturesOf(ids); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// needsNewSignatures reports whether a domain's zone needs new signatures.
func (s *Service) needsNewSignatures(tx *store.Tx, d *store.Domain) bool {
	if d.DNSSEC == nil || d.Gone() || !s.serves(tx, d) {
		return false
	}
	h := fnv.New32a()
	h.Write([]byte(d.ID))
	after := resignAfter + time.Duration(h.Sum32())*time.Second%resignSpread
	return s.Now().Sub(d.ZoneChangedAt) >= after
}

// renewSignaturesOf publishes the zones of domains, given by their IDs, that still need new
// signatures.
func (s *Service) renewSignaturesOf(ids []string) error {
	return s.Store.Update(func(tx *store.Tx) error {
		for _, id := range ids {
			d, err := store.Domains.Get(tx, id)
			if errors.Is(err, store.ErrNotFound) || err == nil && !s.needsNewSignatures(tx, d) {
				continue
			}
			if err != nil {
				return err
			}
			if err := s.Publish(tx, d); err != nil {
				return err
			}
		}
		return nil
	})
}
