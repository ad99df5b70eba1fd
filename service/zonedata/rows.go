package zonedata

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// RowsPerWrite is how many rows of the owner one transaction writes.
const RowsPerWrite = 200

// CustomRecord converts a stored custom record to the form in which it is published.
func CustomRecord(r *store.CustomRecord) dnsprov.Record {
	out, err := dnsprov.FromText(r.Name, r.Type, r.Value, uint32(r.TTL))
	if err != nil { // not so for what is stored; the zone then says what is wrong with it
		return dnsprov.Record{Name: r.Name, Type: r.Type, Value: r.Value, TTL: uint32(r.TTL)}
	}
	return out
}

// LiveRecords returns the custom records of a domain's zone, the oldest first.
func LiveRecords(tx *store.Tx, d *store.Domain) []*store.CustomRecord {
	var out []*store.CustomRecord
	for _, r := range store.CustomRecordsByDomain.Asc(tx, d.ID, "") {
		if r.LiveIn(d.ZoneGeneration) {
			out = append(out, r)
		}
	}
	count := len(out)
	// A change that has not ended has removed these from the generations after the present one.
	for _, r := range store.CustomRecordsRemoved.Asc(tx, d.ID+".", store.RemovedKey(d.ID, d.ZoneGeneration+1)) {
		if r.LiveIn(d.ZoneGeneration) {
			out = append(out, r)
		}
	}
	if len(out) > count {
		slices.SortFunc(out, func(a, b *store.CustomRecord) int { return cmp.Compare(a.ID, b.ID) })
	}
	return out
}

// ManagedDomain returns a domain of the account. It returns an error if Mailstead does not manage
// the domain's DNS. It manages it at our own server and at providers by API.
func ManagedDomain(tx *store.Tx, who core.Actor, id string) (*store.Domain, error) {
	d, err := core.DomainOf(tx, who, id)
	if err == nil && d.DNSProvider != dnsprov.Builtin && !d.AtEdge() {
		return nil, UnsupportedProvider(d)
	}
	return d, err
}

// ChangeableDomain is like ManagedDomain, but returns an error if the domain is being deleted.
func ChangeableDomain(tx *store.Tx, who core.Actor, id string) (*store.Domain, error) {
	d, err := ManagedDomain(tx, who, id)
	if err == nil && d.Gone() {
		return nil, core.DomainBusy(d, "is being deleted, so it cannot be changed")
	}
	return d, err
}

// UnsupportedProvider returns the error for a domain whose DNS Mailstead does not manage.
func UnsupportedProvider(d *store.Domain) *core.Error {
	return core.Errorf("dns_provider_unsupported",
		"The DNS of %s is not managed by Mailstead (its dns_provider is %s). Change its records at that provider.", d.Name, d.DNSProvider)
}

// RelativeHost returns a name relative to the domain, as it is entered at a DNS provider. For the
// domain itself it returns "@".
func RelativeHost(name, domain string) string {
	if name == domain {
		return "@"
	}
	return strings.TrimSuffix(name, "."+domain)
}
