package zones

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/edge"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

const defaultTTL = 300 // seconds

// interfaceTypes are the types of records that the operations on single records have. The owner
// sets records of other types as whole sets.
var interfaceTypes = []string{"TXT", "CNAME", "A", "AAAA"}

// A CustomDNSRecord is a record that the owner of a domain has added.
type CustomDNSRecord struct {
	ID        string    `json:"id" words:"ours" example:"rec_01k9a2b3c4d5e6f7g8h9j0k1m2"` // The same as record_id.
	RecordID  string    `json:"record_id" words:"ours"`
	Name      string    `json:"name" words:"ours" example:"www"`
	FQDN      string    `json:"fqdn" words:"ours" example:"www.example.com"`
	Type      string    `json:"type" enum:"TXT|CNAME|A|AAAA"`
	Value     string    `json:"value" words:"ours" example:"192.0.2.7"`
	TTL       int       `json:"ttl"` // Seconds.
	Status    string    `json:"status" enum:"active|pending|error"`
	Error     *string   `json:"error" words:"theirs" rare:"true"`
	CreatedAt core.Time `json:"created_at"`
	UpdatedAt core.Time `json:"updated_at"`
}

// ListCustomDNSRecordsIn names the domain whose records are listed.
type ListCustomDNSRecordsIn struct {
	DomainID string `path:"domain_id"`
}

// CustomDNSRecords is the answer of list_custom_dns_records, with the oldest record first.
type CustomDNSRecords struct {
	Domain        string            `json:"domain" words:"ours"`
	DNSProvider   string            `json:"dns_provider" enum:"builtin|cloudflare|rfc2136|route53|hetzner|desec|manual|external"`
	Records       []CustomDNSRecord `json:"records"`
	DMARCOverride *DMARCOverride    `json:"dmarc_override"`
}

// CustomDNSRecordAnswer is the answer of create_custom_dns_record and update_custom_dns_record.
type CustomDNSRecordAnswer struct {
	Record CustomDNSRecord `json:"record"`
}

// customRecordOut returns a record in the form of the API. Its status is pending until its domain
// is complete, and error if the last sync with the DNS provider has failed.
func customRecordOut(d *store.Domain, r *store.CustomRecord) CustomDNSRecord {
	out := CustomDNSRecord{
		ID: r.ID, RecordID: r.ID, Name: zonedata.RelativeHost(r.Name, d.Name), FQDN: r.Name, Type: r.Type, Value: r.Value, TTL: r.TTL,
		Status: r.Status, Error: core.OrNull(r.Error), CreatedAt: core.Time{Time: r.CreatedAt}, UpdatedAt: core.Time{Time: r.UpdatedAt},
	}
	switch {
	case out.Status == store.CustomRecordPending && d.EdgeError != "" && !r.UpdatedAt.After(d.EdgeErrorAt):
		out.Status, out.Error = store.CustomRecordError, &d.EdgeError
	case out.Status != "":
	case d.Status == store.DomainComplete:
		out.Status = store.CustomRecordActive
	default:
		out.Status = store.CustomRecordPending
	}
	return out
}

// ListCustomDNSRecords lists the records of the types TXT, CNAME, A and AAAA that the owner of a
// domain has added.
func (s *Service) ListCustomDNSRecords(_ context.Context, who core.Actor, in ListCustomDNSRecordsIn) (*CustomDNSRecords, error) {
	var out *CustomDNSRecords
	err := s.Store.View(func(tx *store.Tx) error {
		d, err := zonedata.ManagedDomain(tx, who, in.DomainID)
		if err != nil {
			return err
		}
		out = &CustomDNSRecords{Domain: d.Name, DNSProvider: d.DNSProvider, Records: []CustomDNSRecord{}, DMARCOverride: DMARCOverrideOf(d)}
		for _, r := range zonedata.LiveRecords(tx, d) {
			if slices.Contains(interfaceTypes, r.Type) {
				out.Records = append(out.Records, customRecordOut(d, r))
			}
		}
		return nil
	})
	return out, err
}

// CreateCustomDNSRecordIn is the body of create_custom_dns_record.
type CreateCustomDNSRecordIn struct {
	DomainID string `path:"domain_id"`
	Name     string `json:"name" required:"true" example:"www" log:"true"`
	Type     string `json:"type" required:"true" enum:"TXT|CNAME|A|AAAA" log:"true"`
	Value    string `json:"value" required:"true" example:"192.0.2.7" log:"true"`
	TTL      *int   `json:"ttl" min:"60" max:"86400" log:"true"` // Seconds.
}

// CreateCustomDNSRecord adds a record. Our own server serves it immediately. At a DNS
// provider it takes longer, so the request waits up to maxSyncWait.
func (s *Service) CreateCustomDNSRecord(ctx context.Context, who core.Actor, in CreateCustomDNSRecordIn) (*CustomDNSRecordAnswer, error) {
	return s.changeCustomRecord(ctx, who, in.DomainID, func(st *zoneState) (*zoneEdit, error) {
		r := &store.CustomRecord{DomainID: st.domain.ID, TTL: defaultTTL}
		if in.TTL != nil {
			r.TTL = *in.TTL
		}
		err := setRecord(st.domain, r, in.Name, in.Type, in.Value)
		return &zoneEdit{kind: store.ZoneChangeSet, name: r.Name, typ: r.Type, add: []*store.CustomRecord{r}}, err
	})
}

// changeCustomRecord writes the one record of the change that draft returns, and returns its state.
func (s *Service) changeCustomRecord(ctx context.Context, who core.Actor, domainID string, draft func(*zoneState) (*zoneEdit, error)) (*CustomDNSRecordAnswer, error) {
	c, err := s.editZone(ctx, who, domainID, func(st *zoneState) (*zoneEdit, error) {
		e, err := draft(st)
		if err != nil {
			return nil, err
		}
		r := slices.Concat(e.add, e.change)[0]
		e.target = recordTarget(r)
		return e, nil
	})
	if err != nil {
		return nil, err
	}
	out := &CustomDNSRecordAnswer{customRecordOut(c.domain, c.records[0])}
	if c.job == "" {
		return out, nil
	}
	err = s.Store.View(func(tx *store.Tx) error {
		d, r, err := customRecordOf(tx, who, c.domain.ID, c.records[0].ID)
		if err == nil {
			out.Record = customRecordOut(d, r)
		}
		return err
	})
	if _, gone := core.AsError(err); gone { // the record was deleted in the meantime
		return out, nil
	}
	return out, err
}

// UpdateCustomDNSRecordIn is the body of update_custom_dns_record.
type UpdateCustomDNSRecordIn struct {
	DomainID string  `path:"domain_id"`
	RecordID string  `path:"record_id"`
	Name     *string `json:"name" example:"www" log:"true"`
	Type     *string `json:"type" enum:"TXT|CNAME|A|AAAA" log:"true"`
	Value    *string `json:"value" example:"192.0.2.7" log:"true"`
	TTL      *int    `json:"ttl" min:"60" max:"86400" log:"true"` // Seconds.
}

// UpdateCustomDNSRecord changes a record. Fields that are absent in the request keep their value.
func (s *Service) UpdateCustomDNSRecord(ctx context.Context, who core.Actor, in UpdateCustomDNSRecordIn) (*CustomDNSRecordAnswer, error) {
	return s.changeCustomRecord(ctx, who, in.DomainID, func(st *zoneState) (*zoneEdit, error) {
		present := st.record(in.RecordID)
		if present == nil {
			return nil, core.NotFound("DNS record")
		}
		r := *present
		name, typ, value := r.Name+".", r.Type, r.Value
		if r.Type == "TXT" && !strings.HasPrefix(value, `"`) {
			value = dnsprov.QuoteText(value) // setRecord removes one level of quotes
		}
		for given, field := range map[*string]*string{in.Name: &name, in.Type: &typ, in.Value: &value} {
			if given != nil {
				*field = *given
			}
		}
		if in.TTL != nil {
			r.TTL = *in.TTL
		}
		err := setRecord(st.domain, &r, name, typ, value)
		e := &zoneEdit{kind: store.ZoneChangeSet, change: []*store.CustomRecord{&r}}
		if r.Name == present.Name && r.Type == present.Type {
			e.name, e.typ = r.Name, r.Type
		}
		return e, err
	})
}

// record returns a record that the operations on single records have; nil if there is none.
func (st *zoneState) record(id string) *store.CustomRecord {
	for _, r := range st.live {
		if r.ID == id && slices.Contains(interfaceTypes, r.Type) {
			return r
		}
	}
	return nil
}

// customRecordOf returns a record and its domain. It returns an error if the record cannot be
// changed.
func customRecordOf(tx *store.Tx, who core.Actor, domainID, recordID string) (*store.Domain, *store.CustomRecord, error) {
	d, err := zonedata.ChangeableDomain(tx, who, domainID)
	if err != nil {
		return nil, nil, err
	}
	r, err := store.CustomRecords.Find(tx, recordID)
	if err == nil && (r == nil || r.DomainID != d.ID || !r.LiveIn(d.ZoneGeneration)) {
		err = core.NotFound("DNS record")
	}
	return d, r, err
}

func recordTarget(r *store.CustomRecord) store.AuditTarget {
	return store.AuditTarget{Type: "dns_record", ID: r.ID, Name: r.Type + " " + r.Name}
}

// reservedRecords returns the managed records of a domain. They include DKIM records whose keys do
// not exist yet, but not the records that custom records replace.
func (s *Service) reservedRecords(spec dnsprov.Spec, provider string) []dnsprov.Record {
	if len(spec.DKIM) == 0 {
		spec.DKIM = []dnsprov.DKIMKey{{Selector: zonedata.RSASelector}, {Selector: zonedata.Ed25519Selector}}
	}
	return slices.DeleteFunc(dnsprov.Wanted(spec, provider), func(r dnsprov.Record) bool { return r.Purpose == dnsprov.PurposeCustom })
}

// CustomDNSRecordIn is a request that names one record.
type CustomDNSRecordIn struct {
	DomainID string `path:"domain_id"`
	RecordID string `path:"record_id"`
}

// CustomDNSRecordDeleted is the answer of delete_custom_dns_record.
type CustomDNSRecordDeleted struct {
	Deleted string `json:"deleted" words:"ours" example:"rec_01k9a2b3c4d5e6f7g8h9j0k1m2"`
}

// DeleteCustomDNSRecord deletes a record from the domain's zone, here or at its DNS provider.
func (s *Service) DeleteCustomDNSRecord(ctx context.Context, who core.Actor, in CustomDNSRecordIn) (*CustomDNSRecordDeleted, error) {
	_, err := s.editZone(ctx, who, in.DomainID, func(st *zoneState) (*zoneEdit, error) {
		r := st.record(in.RecordID)
		if r == nil {
			return nil, core.NotFound("DNS record")
		}
		return &zoneEdit{kind: store.ZoneChangeDelete, name: r.Name, typ: r.Type, end: []*store.CustomRecord{r}, target: recordTarget(r)}, nil
	})
	if err != nil {
		return nil, err
	}
	return &CustomDNSRecordDeleted{in.RecordID}, nil
}

// EraseCustomRecords deletes all custom records of a domain and their history, several in each
// transaction.
func (s *Service) EraseCustomRecords(ctx context.Context, domainID string) error {
	return errors.Join(
		eraseBy(ctx, s, store.CustomRecords, store.CustomRecordsByDomain, domainID),
		eraseBy(ctx, s, store.CustomRecords, store.CustomRecordsRemoved, domainID+"."),
		eraseBy(ctx, s, store.ZoneChanges, store.ZoneChangesByDomain, domainID),
		edge.EraseOwnRecords(ctx, s.Store, domainID),
	)
}

// eraseBy deletes the records that an index has under a prefix, several in each transaction.
func eraseBy[T any](ctx context.Context, s *Service, table *store.Table[T], index *store.Index[T], prefix string) error {
	for n := core.DropsAtATime; n == core.DropsAtATime; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.Store.Update(func(tx *store.Tx) error {
			var ids []string
			for _, id := range index.Keys(tx, prefix, "") {
				ids = append(ids, id)
				if len(ids) == core.DropsAtATime {
					break
				}
			}
			n = len(ids)
			return core.DeleteAll(tx, table, ids)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
