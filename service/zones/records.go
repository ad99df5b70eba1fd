package zones

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/zonefile"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

// Values of RecordSet.Source.
const (
	sourceManaged = "managed"
	sourceCustom  = "custom"
	sourceForeign = "foreign"
)

// ZoneFileType is the media type of a master file (RFC 4027).
const ZoneFileType = "text/dns"

// A RecordSet is the records of one name and type that have the same source.
type RecordSet struct {
	Name string `json:"name" words:"ours" example:"www"` // Relative to the domain; `@` is the domain itself.
	Type string `json:"type" words:"ours" example:"A"`
	TTL  int    `json:"ttl"` // Seconds.
	// As in a zone file, with names in full and without the last dot, and texts in quotes.
	Values []string `json:"values" words:"ours" example:"[\"192.0.2.7\"]"`
	// managed: Mailstead keeps the records itself. custom: you have added them. foreign: they are
	// in the zone at the DNS provider, and Mailstead leaves them alone.
	Source string `json:"source" enum:"managed|custom|foreign"`
}

// GetZoneIn is the query of get_zone.
type GetZoneIn struct {
	DomainID string `path:"domain_id"`
	Live     bool   `query:"live"` // At a DNS provider that is reached by its API: list also the records of others there.
	Accept   string `header:"Accept"`
}

// A Zone is the records of a domain's zone.
type Zone struct {
	Domain      string      `json:"domain" words:"ours"`
	DNSProvider string      `json:"dns_provider" enum:"builtin|cloudflare|rfc2136|route53|hetzner|desec|manual|external"`
	Records     []RecordSet `json:"records"`
	Count       int         `json:"count"` // How many record sets there are.
}

// A ZoneOut is the records of a zone, or the zone as a master file.
type ZoneOut struct {
	Zone *Zone
	File *core.File
}

// MarshalJSON writes the records.
func (o ZoneOut) MarshalJSON() ([]byte, error) { return json.Marshal(o.Zone) }

// Forms lists the types that the answer may have.
func (ZoneOut) Forms() []any { return []any{Zone{}, (*core.File)(nil)} }

// Inline returns the file; nil for JSON.
func (o ZoneOut) Inline() *core.File { return o.File }

// GetZone returns all records of a domain's zone that Mailstead keeps, or that the owner is to
// enter.
func (s *Service) GetZone(ctx context.Context, who core.Actor, in GetZoneIn) (*ZoneOut, error) {
	var (
		d   *store.Domain
		src *zoneSource
	)
	err := s.Store.View(func(tx *store.Tx) (err error) {
		d, err = core.DomainOf(tx, who, in.DomainID)
		if err != nil {
			return err
		}
		if d.DNSProvider == store.DomainProviderExternal {
			return zonedata.UnsupportedProvider(d)
		}
		src = s.zoneSource(tx, d)
		return nil
	})
	if err != nil {
		return nil, err
	}
	records := dnsprov.Wanted(src.Spec, d.DNSProvider)
	if d.DNSProvider == store.DomainProviderManual {
		for i, r := range records {
			records[i].Value = ValueToEnter(d, r)
		}
	}
	if d.AtEdge() && d.ForeignDMARC != "" { // it is not ours
		records = slices.DeleteFunc(records, func(r dnsprov.Record) bool { return r.Purpose == dnsprov.PurposeDMARC && r.Value == d.ForeignDMARC })
	}
	if in.Live && d.AtEdge() {
		foreign, err := s.edge.ForeignRecords(ctx, d, records)
		if err != nil {
			return nil, err
		}
		records = append(records, foreign...)
	}
	if wantsZoneFile(in.Accept) {
		f, err := s.zoneFile(ctx, d, src, records)
		return &ZoneOut{File: f}, err
	}
	sets := recordSets(d, records)
	return &ZoneOut{Zone: &Zone{Domain: d.Name, DNSProvider: d.DNSProvider, Records: sets, Count: len(sets)}}, nil
}

// wantsZoneFile reports whether the Accept field of a request asks for a master file.
func wantsZoneFile(accept string) bool {
	ranges := core.MediaRanges(accept)
	return slices.Contains(ranges, ZoneFileType) && !slices.Contains(ranges, "application/json")
}

// recordSets returns records as sets, in the order in which the sets begin. All sets of one name
// and type have the same TTL, which is the smallest (RFC 2181 section 5.2).
func recordSets(d *store.Domain, records []dnsprov.Record) []RecordSet {
	type setKey struct{ name, typ string }
	type listKey struct {
		setKey
		source string
	}
	ttls, at, out := map[setKey]uint32{}, map[listKey]int{}, []RecordSet{}
	for _, r := range records {
		key := setKey{r.Name, r.Type}
		if ttl, known := ttls[key]; !known || r.TTL < ttl {
			ttls[key] = r.TTL
		}
	}
	for _, r := range records {
		source := sourceManaged
		switch r.Purpose {
		case dnsprov.PurposeCustom:
			source = sourceCustom
		case "":
			source = sourceForeign
		}
		key := listKey{setKey{r.Name, r.Type}, source}
		i, begun := at[key]
		if !begun {
			i = len(out)
			at[key] = i
			out = append(out, RecordSet{Name: zonedata.RelativeHost(r.Name, d.Name), Type: r.Type, TTL: int(ttls[key.setKey]), Source: source})
		}
		out[i].Values = append(out[i].Values, valueText(r.Type, r.Text()))
	}
	return out
}

// valueText returns the data of a record as the API shows it: as dnsprov.Record.Text, with quotes
// around a text.
func valueText(typ, text string) string {
	if typ != "TXT" {
		return text
	}
	return dnsprov.QuoteText(dnsprov.UnquoteText(text))
}

// ValueToEnter returns the value that the owner must enter for a record. If the domain has an SPF
// record that allows other senders, the value allows them, too.
func ValueToEnter(d *store.Domain, r dnsprov.Record) string {
	for _, c := range d.Checks {
		if c.Offer != "" && c.Purpose == r.Purpose && c.Type == r.Type && c.Host == r.Name && c.Expected == r.Text() {
			return c.Offer
		}
	}
	return r.Value
}

// zoneFile returns records as a master file. At other providers than builtin, the SOA and NS
// records are those that the DNS has now. If it has none, the file gets an SOA of no server, so
// that it can still be read. Records of others that no master file can have are left out.
func (s *Service) zoneFile(ctx context.Context, d *store.Domain, src *zoneSource, records []dnsprov.Record) (*core.File, error) {
	records = slices.DeleteFunc(records, func(r dnsprov.Record) bool {
		_, err := r.RR()
		return err != nil && r.Purpose == ""
	})
	var soa zonefile.SOA
	if d.DNSProvider == dnsprov.Builtin {
		zone, err := src.Zone()
		if err != nil {
			return nil, err
		}
		soa = zone.SOA()
	} else {
		ctx, cancel := context.WithTimeout(ctx, LookupTimeout)
		defer cancel()
		var servers []dnsprov.Record
		err := s.WithLookupSlot(ctx, d.AccountID, d.Name, func() error {
			found, err := s.Resolver.LookupNS(lookup.Fresh(ctx), d.Name+".")
			for _, ns := range found {
				host := strings.ToLower(strings.TrimSuffix(ns.Host, "."))
				servers = append(servers, dnsprov.Record{Name: d.Name, Type: "NS", Value: host, TTL: dnsprov.ManagedTTL})
			}
			return err
		})
		if err != nil {
			s.LogOf(ctx).Debug("could not look up the nameservers for a zone file", "domain", d.Name, "error", err)
		}
		if len(servers) == 0 {
			servers = []dnsprov.Record{{Name: d.Name, Type: "NS", Value: "ns.invalid", TTL: dnsprov.ManagedTTL}}
		}
		isNS := func(r dnsprov.Record) bool { return r.Name == d.Name && r.Type == "NS" }
		records = append(servers, slices.DeleteFunc(records, isNS)...)
		soa = zonefile.SOA{Primary: servers[0].Value, Serial: uint32(d.ZoneChangedAt.Unix())}
	}
	var text bytes.Buffer
	if err := zonefile.Write(&text, d.Name, soa, records); err != nil {
		return nil, err
	}
	return &core.File{
		Name: d.Name + ".zone", ContentType: ZoneFileType + "; charset=us-ascii", Size: int64(text.Len()), Body: io.NopCloser(&text),
	}, nil
}

// SetZoneRecordsIn is the body of set_zone_records.
type SetZoneRecordsIn struct {
	DomainID string `path:"domain_id"`
	Name     string `path:"name"` // A label such as `www`, `@` for the domain itself, or a whole name.
	Type     string `path:"type"`
	TTL      *int   `json:"ttl" min:"60" max:"86400" log:"true"` // Seconds; 300 by default.
	// As in a zone file. Names are written in full, with or without the last dot, and `@` is the
	// domain. A text may have quotes.
	Values []string `json:"values" required:"true" min:"1" max:"50" example:"[\"192.0.2.7\"]" log:"true"`
}

// SetZoneRecords sets the owner's records of one name and type: those that are not given are
// removed. A value that stays keeps its record_id.
func (s *Service) SetZoneRecords(ctx context.Context, who core.Actor, in SetZoneRecordsIn) (*RecordSet, error) {
	var out RecordSet
	_, err := s.editZone(ctx, who, in.DomainID, func(st *zoneState) (*zoneEdit, error) {
		d := st.domain
		name, err := customName(in.Name, d)
		if err != nil {
			return nil, err
		}
		typ, err := customType(in.Type)
		if err != nil {
			return nil, err
		}
		if typ == "CNAME" && name == d.Name {
			return nil, cnameAtApex(d.Name)
		}
		ttl := defaultTTL
		if in.TTL != nil {
			ttl = *in.TTL
		}
		records, err := dnsprov.CustomSet(d.Name, name, typ, uint32(ttl), in.Values)
		if err != nil {
			field := "values"
			var bad *dnsprov.ValueError
			if errors.As(err, &bad) {
				field = fmt.Sprintf("values.%d", bad.Index)
			}
			return nil, invalidRecord(field, err)
		}
		e := &zoneEdit{kind: store.ZoneChangeSet, name: name, typ: typ, mayReplace: true, target: setTarget(name, typ)}
		e.replaceSet(st.set(name, typ), records)
		out = recordSets(d, records)[0]
		out.TTL = int(st.sharedTTL(records[0]))
		return e, nil
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// sharedTTL returns the TTL with which a record is served: the smallest of its set, which managed
// records may share.
func (st *zoneState) sharedTTL(r dnsprov.Record) uint32 {
	ttl := r.TTL
	for _, m := range st.reserved {
		if m.Name == r.Name && m.Type == r.Type {
			ttl = min(ttl, m.TTL)
		}
	}
	return ttl
}

// DeleteZoneRecordsIn names a record set.
type DeleteZoneRecordsIn struct {
	DomainID string `path:"domain_id"`
	Name     string `path:"name"` // A label such as `www`, `@` for the domain itself, or a whole name.
	Type     string `path:"type"`
}

// ZoneRecordsDeleted is the answer of delete_zone_records.
type ZoneRecordsDeleted struct {
	Message string `json:"message" words:"ours" example:"The A records of www.example.com are deleted."`
	Name    string `json:"name" words:"ours" example:"www"`
	Type    string `json:"type" words:"ours" example:"A"`
}

// DeleteZoneRecords deletes the owner's records of one name and type.
func (s *Service) DeleteZoneRecords(ctx context.Context, who core.Actor, in DeleteZoneRecordsIn) (*ZoneRecordsDeleted, error) {
	var out *ZoneRecordsDeleted
	_, err := s.editZone(ctx, who, in.DomainID, func(st *zoneState) (*zoneEdit, error) {
		name, typ, rows, err := st.namedSet(in)
		if err != nil {
			return nil, err
		}
		out = &ZoneRecordsDeleted{Message: "The " + typ + " records of " + name + " are deleted.", Name: zonedata.RelativeHost(name, st.domain.Name), Type: typ}
		return &zoneEdit{kind: store.ZoneChangeDelete, name: name, typ: typ, end: rows, target: setTarget(name, typ)}, nil
	})
	return out, err
}

// ZoneRecordsToDelete returns what DeleteZoneRecords would delete.
func (s *Service) ZoneRecordsToDelete(ctx context.Context, who core.Actor, in DeleteZoneRecordsIn) (*RecordSet, error) {
	st, err := s.peekState(ctx, who, in.DomainID)
	if err != nil {
		return nil, err
	}
	_, _, rows, err := st.namedSet(in)
	if err != nil {
		return nil, err
	}
	var records []dnsprov.Record
	for _, r := range rows {
		out := zonedata.CustomRecord(r)
		out.Purpose = dnsprov.PurposeCustom
		records = append(records, out)
	}
	return &recordSets(st.domain, records)[0], nil
}

// peekState returns the state of a zone for a request that changes nothing.
func (s *Service) peekState(ctx context.Context, who core.Actor, domainID string) (*zoneState, error) {
	unlock, err := s.zoneLocks.Lock(ctx, who.AccountID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return s.readState(ctx, who, domainID)
}

// namedSet returns the record set that a request names. It returns an error if the owner has no
// such records.
func (st *zoneState) namedSet(in DeleteZoneRecordsIn) (name, typ string, rows []*store.CustomRecord, err error) {
	name, err = customName(in.Name, st.domain)
	if err != nil {
		return "", "", nil, err
	}
	typ = strings.ToUpper(in.Type)
	rows = st.set(name, typ)
	isManaged := func(r dnsprov.Record) bool { return r.Name == name && r.Type == typ }
	switch {
	case len(rows) > 0:
	case slices.ContainsFunc(st.reserved, isManaged):
		err = managedCollision(st.domain, name, typ)
	default:
		err = core.NotFound("record set")
	}
	return name, typ, rows, err
}

// set returns the present custom records of one name and type.
func (st *zoneState) set(name, typ string) []*store.CustomRecord {
	var out []*store.CustomRecord
	for _, r := range st.live {
		if r.Name == name && r.Type == typ {
			out = append(out, r)
		}
	}
	return out
}

// replaceSet adds to a change that the records of one set become others. A value that stays keeps
// its row.
func (e *zoneEdit) replaceSet(present []*store.CustomRecord, wanted []dnsprov.Record) {
	ttls := make(map[string]int, len(wanted))
	for _, r := range wanted {
		ttls[r.Text()] = int(r.TTL)
	}
	there := map[string]bool{}
	for _, r := range present {
		ttl, stays := ttls[r.Value]
		there[r.Value] = true
		switch {
		case !stays:
			e.end = append(e.end, r)
		case r.TTL != ttl:
			changed := *r
			changed.TTL = ttl
			e.change = append(e.change, &changed)
		}
	}
	for _, r := range wanted {
		if text := r.Text(); !there[text] {
			e.add = append(e.add, &store.CustomRecord{Name: r.Name, Type: r.Type, Value: text, TTL: int(r.TTL)})
		}
	}
}

// setTarget returns a record set as the target of an audit row, without the ID.
func setTarget(name, typ string) store.AuditTarget {
	return store.AuditTarget{Type: "dns_record", Name: typ + " " + name}
}
