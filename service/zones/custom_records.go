package zones

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

const (
	defaultTTL       = 300      // seconds
	maxCustomRecords = 300      // custom records of one domain
	maxTextsAtName   = 32 << 10 // bytes of TXT values at one name; a DNS answer has at most 64 KiB, which must also suffice for the managed records
)

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
	DNSProvider   string            `json:"dns_provider" enum:"builtin|cloudflare|manual|external"`
	Records       []CustomDNSRecord `json:"records"`
	DMARCOverride *DMARCOverride    `json:"dmarc_override"`
}

// CustomDNSRecordAnswer is the answer of create_custom_dns_record and update_custom_dns_record.
type CustomDNSRecordAnswer struct {
	Record CustomDNSRecord `json:"record"`
}

// customRecordOut returns a record in the form of the API. Its status is pending until its domain
// is complete.
func customRecordOut(d *store.Domain, r *store.CustomRecord) CustomDNSRecord {
	out := CustomDNSRecord{
		ID: r.ID, RecordID: r.ID, Name: RelativeHost(r.Name, d.Name), FQDN: r.Name, Type: r.Type, Value: r.Value, TTL: r.TTL,
		Status: r.Status, Error: core.OrNull(r.Error), CreatedAt: core.Time{Time: r.CreatedAt}, UpdatedAt: core.Time{Time: r.UpdatedAt},
	}
	switch {
	case out.Status != "":
	case d.Status == store.DomainComplete:
		out.Status = store.CustomRecordActive
	default:
		out.Status = store.CustomRecordPending
	}
	return out
}

// managedDomain returns a domain of the account. It returns an error if Mailstead does not manage
// the domain's DNS. It manages the DNS for the providers builtin and Cloudflare.
func managedDomain(tx *store.Tx, who core.Actor, id string) (*store.Domain, error) {
	d, err := core.DomainOf(tx, who, id)
	if err == nil && d.DNSProvider != dnsprov.Builtin && d.DNSProvider != store.DomainProviderCloudflare {
		return nil, core.Errorf("dns_provider_unsupported",
			"The DNS of %s is not managed by Mailstead (its dns_provider is %s). Change its records at that provider.", d.Name, d.DNSProvider)
	}
	return d, err
}

// changeableDomain is like managedDomain, but returns an error if the domain is being deleted.
func changeableDomain(tx *store.Tx, who core.Actor, id string) (*store.Domain, error) {
	d, err := managedDomain(tx, who, id)
	if err == nil && d.Gone() {
		return nil, core.DomainBusy(d, "is being deleted, so it cannot be changed")
	}
	return d, err
}

// ListCustomDNSRecords lists the records that the owner of a domain has added.
func (s *Service) ListCustomDNSRecords(_ context.Context, who core.Actor, in ListCustomDNSRecordsIn) (*CustomDNSRecords, error) {
	var out *CustomDNSRecords
	err := s.Store.View(func(tx *store.Tx) error {
		d, err := managedDomain(tx, who, in.DomainID)
		if err != nil {
			return err
		}
		out = &CustomDNSRecords{Domain: d.Name, DNSProvider: d.DNSProvider, Records: []CustomDNSRecord{}, DMARCOverride: DMARCOverrideOf(d)}
		for _, r := range store.CustomRecordsByDomain.Asc(tx, d.ID, "") {
			out.Records = append(out.Records, customRecordOut(d, r))
		}
		return nil
	})
	return out, err
}

// CreateCustomDNSRecordIn is the body of create_custom_dns_record.
type CreateCustomDNSRecordIn struct {
	DomainID string `path:"domain_id"`
	Name     string `json:"name" required:"true" example:"www"`
	Type     string `json:"type" required:"true" enum:"TXT|CNAME|A|AAAA"`
	Value    string `json:"value" required:"true" example:"192.0.2.7"`
	TTL      *int   `json:"ttl" min:"60" max:"86400"` // Seconds.
}

// CreateCustomDNSRecord adds a record. Our own server serves it immediately. At Cloudflare it takes
// longer, so the request waits up to maxSyncWait.
func (s *Service) CreateCustomDNSRecord(ctx context.Context, who core.Actor, in CreateCustomDNSRecordIn) (*CustomDNSRecordAnswer, error) {
	return s.changeCustomRecord(ctx, who, func(tx *store.Tx) (*store.Domain, *store.CustomRecord, error) {
		d, err := changeableDomain(tx, who, in.DomainID)
		if err != nil {
			return nil, nil, err
		}
		if store.CustomRecordsByDomain.Count(tx, d.ID, maxCustomRecords) == maxCustomRecords {
			return nil, nil, core.Errorf("invalid_record", "%s has %d custom records, which is the limit. Delete one first.", d.Name, maxCustomRecords)
		}
		r := &store.CustomRecord{ID: tx.NewID("rec"), DomainID: d.ID, TTL: defaultTTL, CreatedAt: tx.Now()}
		if in.TTL != nil {
			r.TTL = *in.TTL
		}
		return d, r, setRecord(d, r, in.Name, in.Type, in.Value)
	})
}

// A recordChange is a custom record that a transaction has written, with its domain.
type recordChange struct {
	domain *store.Domain
	record *store.CustomRecord
	job    string // ID of the job that writes it at Cloudflare; "": none
}

// changeCustomRecord writes the record that draft returns and returns its state. The check of a
// record is slow for a domain with many records. So it is made before the write transaction, and
// repeated there only if the zone has changed.
func (s *Service) changeCustomRecord(ctx context.Context, who core.Actor, draft func(*store.Tx) (*store.Domain, *store.CustomRecord, error)) (*CustomDNSRecordAnswer, error) {
	var checked time.Time
	err := s.Store.View(func(tx *store.Tx) error {
		d, r, err := draft(tx)
		if err != nil {
			return err
		}
		checked = d.ZoneChangedAt
		return s.checkCustomRecord(tx, d, r)
	})
	if err != nil {
		return nil, err
	}
	var c *recordChange
	err = s.Store.Update(func(tx *store.Tx) error {
		d, r, err := draft(tx)
		if err == nil && !d.ZoneChangedAt.Equal(checked) {
			err = s.checkCustomRecord(tx, d, r)
		}
		if err != nil {
			return err
		}
		c, err = s.putCustomRecord(tx, d, r)
		if err != nil {
			return err
		}
		return core.Audit(tx, who, recordTarget(r))
	})
	if err != nil {
		return nil, err
	}
	out := &CustomDNSRecordAnswer{customRecordOut(c.domain, c.record)}
	if c.job == "" {
		return out, nil
	}
	s.awaitCloudflare(ctx, c.job)
	err = s.Store.View(func(tx *store.Tx) error {
		d, r, err := customRecordOf(tx, who, c.domain.ID, c.record.ID)
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
	Name     *string `json:"name" example:"www"`
	Type     *string `json:"type" enum:"TXT|CNAME|A|AAAA"`
	Value    *string `json:"value" example:"192.0.2.7"`
	TTL      *int    `json:"ttl" min:"60" max:"86400"` // Seconds.
}

// UpdateCustomDNSRecord changes a record. Fields that are absent in the request keep their value.
func (s *Service) UpdateCustomDNSRecord(ctx context.Context, who core.Actor, in UpdateCustomDNSRecordIn) (*CustomDNSRecordAnswer, error) {
	return s.changeCustomRecord(ctx, who, func(tx *store.Tx) (*store.Domain, *store.CustomRecord, error) {
		d, r, err := customRecordOf(tx, who, in.DomainID, in.RecordID)
		if err != nil {
			return nil, nil, err
		}
		name, typ, value := r.Name+".", r.Type, r.Value
		if r.Type == "TXT" {
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
		return d, r, setRecord(d, r, name, typ, value)
	})
}

// customRecordOf returns a record and its domain. It returns an error if the record cannot be
// changed.
func customRecordOf(tx *store.Tx, who core.Actor, domainID, recordID string) (*store.Domain, *store.CustomRecord, error) {
	d, err := changeableDomain(tx, who, domainID)
	if err != nil {
		return nil, nil, err
	}
	r, err := store.CustomRecords.Get(tx, recordID)
	if errors.Is(err, store.ErrNotFound) || err == nil && r.DomainID != d.ID {
		return nil, nil, core.NotFound("DNS record")
	}
	return d, r, err
}

// setRecord validates name, type and value and sets them in the record.
func setRecord(d *store.Domain, r *store.CustomRecord, name, typ, value string) (err error) {
	r.Name, err = dnsprov.CustomName(name, d.Name)
	if err != nil {
		return invalidRecord("name", err)
	}
	if typ == "CNAME" && r.Name == d.Name {
		return core.Errorf("cname_at_apex", "%s itself cannot be a CNAME, since it has other records (RFC 1034). Use A and AAAA records, or a redirect.", d.Name).
			With("name", "cname_at_apex", "is the domain itself")
	}
	r.Type = typ
	r.Value, err = dnsprov.CustomValue(typ, value, d.Name)
	if err != nil {
		return invalidRecord("value", err)
	}
	return nil
}

// putCustomRecord writes a record and publishes it.
func (s *Service) putCustomRecord(tx *store.Tx, d *store.Domain, r *store.CustomRecord) (*recordChange, error) {
	r.UpdatedAt = tx.Now()
	if d.DNSProvider == store.DomainProviderCloudflare {
		r.Status, r.Error = store.CustomRecordPending, ""
	}
	if err := store.CustomRecords.Put(tx, r); err != nil {
		return nil, err
	}
	job, err := s.putZoneWithJob(tx, d)
	return &recordChange{d, r, job}, err
}

func recordTarget(r *store.CustomRecord) store.AuditTarget {
	return store.AuditTarget{Type: "dns_record", ID: r.ID, Name: r.Type + " " + r.Name}
}

func invalidRecord(field string, err error) *core.Error {
	return core.Errorf("invalid_record", "%s: %s", field, err).With(field, "invalid_record", err.Error()).Because(err)
}

// checkCustomRecord returns an error if a record conflicts with other records, or if the zone would
// not be valid with it. It reads all records of the domain.
func (s *Service) checkCustomRecord(tx *store.Tx, d *store.Domain, r *store.CustomRecord) error {
	if dnsprov.CollidesWithManaged(s.reservedRecords(tx, d), r.Name, r.Type, r.Value) {
		e := core.Errorf("managed_record_collision", "Mailstead manages the %s records of %s itself. Use another name.", r.Type, r.Name)
		if r.Name == "_dmarc."+d.Name {
			e.Message = "Mailstead manages the records of " + r.Name + " itself. Change the policy with PUT /v1/domains/" + d.ID + "/dmarc."
		}
		return e.With("name", "managed_record_collision", "belongs to a managed record")
	}
	if r.Type == "CNAME" && r.Value == r.Name {
		return invalidRecord("value", errors.New("points to the record itself"))
	}
	texts := len(r.Value)
	zone := s.zoneSource(tx, d)
	zone.Spec.Custom = []dnsprov.Record{customRecord(r)}
	for _, o := range store.CustomRecordsByDomain.Asc(tx, d.ID, "") {
		if o.ID == r.ID {
			continue
		}
		zone.Spec.Custom = append(zone.Spec.Custom, customRecord(o))
		switch {
		case o.Name != r.Name:
			continue
		case o.Type == r.Type && o.Value == r.Value:
			return core.Errorf("duplicate_record", "This record exists already: %s.", o.ID).With("value", "duplicate_record", "the record "+o.ID+" exists already")
		case o.Type == "CNAME" || r.Type == "CNAME":
			return invalidRecord("name", errors.New("has a record already, and a CNAME must be alone at its name (RFC 1034)"))
		case o.Type == "TXT":
			texts += len(o.Value)
		}
	}
	if r.Type == "TXT" && texts > maxTextsAtName {
		return invalidRecord("value", fmt.Errorf("is too long: your texts at one name can have at most %d bytes together, so that they fit into a DNS answer", maxTextsAtName))
	}
	if _, err := zone.Zone(); err != nil {
		return invalidRecord("value", err)
	}
	return nil
}

// reservedRecords returns the managed records of a domain. They include DKIM records whose keys do
// not exist yet, but not the records that custom records replace.
func (s *Service) reservedRecords(tx *store.Tx, d *store.Domain) []dnsprov.Record {
	spec := s.zoneSpec(tx, d)
	if len(spec.DKIM) == 0 {
		spec.DKIM = []dnsprov.DKIMKey{{Selector: RSASelector}, {Selector: Ed25519Selector}}
	}
	return dnsprov.Wanted(spec, d.DNSProvider)
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

// DeleteCustomDNSRecord deletes a record from the domain's zone, here or at Cloudflare.
func (s *Service) DeleteCustomDNSRecord(ctx context.Context, who core.Actor, in CustomDNSRecordIn) (*CustomDNSRecordDeleted, error) {
	job := ""
	err := s.Store.Update(func(tx *store.Tx) error {
		d, r, err := customRecordOf(tx, who, in.DomainID, in.RecordID)
		if err != nil {
			return err
		}
		if err := errors.Join(store.CustomRecords.Delete(tx, r.ID), core.Audit(tx, who, recordTarget(r))); err != nil {
			return err
		}
		job, err = s.putZoneWithJob(tx, d)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.awaitCloudflare(ctx, job)
	return &CustomDNSRecordDeleted{in.RecordID}, nil
}

// RelativeHost returns a name relative to the domain, as it is entered at a DNS provider. For the
// domain itself it returns "@".
func RelativeHost(name, domain string) string {
	if name == domain {
		return "@"
	}
	return strings.TrimSuffix(name, "."+domain)
}

// EraseCustomRecords deletes all custom records of a domain, several in each transaction.
func (s *Service) EraseCustomRecords(ctx context.Context, domainID string) error {
	for n := core.DropsAtATime; n == core.DropsAtATime; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.Store.Update(func(tx *store.Tx) error {
			var ids []string
			for _, id := range store.CustomRecordsByDomain.Keys(tx, domainID, "") {
				ids = append(ids, id)
				if len(ids) == core.DropsAtATime {
					break
				}
			}
			n = len(ids)
			return core.DeleteAll(tx, store.CustomRecords, ids)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
