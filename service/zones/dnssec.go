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
	// A secondary keeps signatures that hold for ten days at least, and goes on for seven when it
	// cannot reach us: so it gets new ones before three are over. Domains that changed together are
	// spread over resignSpread.
	resignAfter   = 48 * time.Hour
	resignSpread  = 12 * time.Hour
	resignsAtOnce = 50 // zones in one transaction
)

// What the parent's DS records make of a signed zone (RFC 4035 section 4.3).
const (
	dnssecUnknown     = "unknown"
	dnssecUnpublished = "unpublished" // there are none: the zone counts as unsigned
	dnssecSecure      = "secure"
	dnssecBogus       = "bogus" // they name other keys only: resolvers that validate take no answer of ours
)

// DNSSEC is how a zone that we serve is signed, and what its owner's registrar has to be told for
// that to count.
type DNSSEC struct {
	// unpublished: your registrar has no DS record yet, so nobody checks the signatures. secure: it
	// has this one. bogus: it has only others, and resolvers that validate refuse the domain until
	// they are replaced. unknown: not looked at yet.
	Status string     `json:"status" enum:"unknown|unpublished|secure|bogus"`
	DS     []DSRecord `json:"ds"` // What to give your registrar.
	// The public key, for registrars that want it instead: flags, protocol, algorithm, key.
	DNSKEY string `json:"dnskey" words:"ours" example:"257 3 13 GojIhhXUN/u4v54ZQqGSnyhWJwaubCvTmeexv7bR6edbkrSqQpF64cYbcB7wNcP+e+MAnLr+Wi9xMWyQLc8NAA=="`
}

// A DSRecord is one DS record, in its fields and as a zone file has it.
type DSRecord struct {
	KeyTag     int    `json:"key_tag" example:"55648"`
	Algorithm  int    `json:"algorithm" example:"13"`  // 13: ECDSA P-256 with SHA-256.
	DigestType int    `json:"digest_type" example:"2"` // 2: SHA-256.
	Digest     string `json:"digest" words:"ours" example:"b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17"`
	// The record in zone file format.
	Value string `json:"value" words:"ours" example:"55648 13 2 b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17"`
}

// DNSSECOf shows how the zone of a domain is signed; nil if it is not.
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

// KeepDS notes what a check found at the parent of a signed zone; nil: nothing.
func KeepDS(d *store.Domain, found *[]dnsprov.DS) {
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

// LacksZoneKey tells that a domain is to be signed and has no key yet.
func LacksZoneKey(d *store.Domain) bool {
	return d.DNSSEC == nil && d.DNSProvider == dnsprov.Builtin
}

// GiveZoneKey makes the key of a zone that lacks one. It takes some microseconds.
func (s *Service) GiveZoneKey(d *store.Domain) error {
	if !LacksZoneKey(d) {
		return nil
	}
	private, public, err := builtin.GenerateKey()
	if err != nil {
		return err
	}
	d.DNSSEC = &store.DNSSECKey{Sealed: s.Keys.Seal(store.DNSSECPlace(d.ID), private), Public: public}
	return nil
}

// zoneKey is what signs a domain's zone; nil: nothing. It is opened when something is to be signed.
func (s *Service) zoneKey(d *store.Domain) *builtin.Key {
	if d.DNSSEC == nil || d.DNSProvider != dnsprov.Builtin {
		return nil
	}
	name, place, sealed := d.Name, store.DNSSECPlace(d.ID), d.DNSSEC.Sealed
	return builtin.NewKey(d.DNSSEC.Public, func() ([]byte, error) {
		private, err := s.Keys.Open(place, sealed)
		if err != nil { // a query cannot tell why it is not answered
			s.Log.Error("open the key of a zone", "domain", name, "error", err)
		}
		return private, err
	})
}

// resignKind gives signed zones a new serial from time to time, so that secondaries fetch
// signatures that hold.
func (s *Service) resignKind() jobs.Kind {
	return jobs.Kind{Name: "zones_resign", Work: s.resign, Timeout: 30 * time.Minute}
}

func (s *Service) resign(ctx context.Context, _ *store.Job) (jobs.Writes, error) {
	for after, more := "", true; more; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var due []string
		err := s.Store.View(func(tx *store.Tx) error {
			n := 0
			for key, d := range store.DomainsByName.Asc(tx, "", after) {
				after = key
				if s.resignDue(tx, d) {
					due = append(due, d.ID)
				}
				if n++; n == zonesAtATime {
					return nil
				}
			}
			more = false
			return nil
		})
		if err != nil {
			return nil, err
		}
		for ids := range slices.Chunk(due, resignsAtOnce) {
			if err := s.resignThese(ids); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

func (s *Service) resignDue(tx *store.Tx, d *store.Domain) bool {
	if d.DNSSEC == nil || d.Gone() || !s.serves(tx, d) {
		return false
	}
	h := fnv.New32a()
	h.Write([]byte(d.ID))
	after := resignAfter + time.Duration(h.Sum32())*time.Second%resignSpread
	return s.Now().Sub(d.ZoneChangedAt) >= after
}

func (s *Service) resignThese(ids []string) error {
	return s.Store.Update(func(tx *store.Tx) error {
		for _, id := range ids {
			d, err := store.Domains.Get(tx, id)
			if errors.Is(err, store.ErrNotFound) || err == nil && !s.resignDue(tx, d) {
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
