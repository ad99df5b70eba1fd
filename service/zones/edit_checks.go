package zones

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

const (
	// maxBytesAtName is how many bytes the custom records at one name may have. A DNS answer has at
	// most 64 KiB, which must also suffice for the managed records.
	maxBytesAtName = 33 << 10
	bytesPerRecord = 16 // bytes that a record has in an answer beside its data
)

// checkEdit returns an error if the zone could not be served with a change: if it conflicts with
// managed records, if records conflict with each other, or if there are too many. Records that do
// not change, and have no name in common with those that do, are not checked again.
func (st *zoneState) checkEdit(e *zoneEdit) error {
	d, after := st.domain, st.after(e)
	grows := len(after) > len(st.live)
	if grows && len(after) > maxCustomRecords {
		return core.Errorf("too_many_items", "%s would have %d records of your own; the limit is %d. Delete some first.", d.Name, len(after), maxCustomRecords)
	}
	if all := len(after) + st.others; grows && all > maxAccountRecords {
		return core.Errorf("too_many_items", "The domains of the account would have %d records of your own; the limit is %d. Delete some first.", all, maxAccountRecords)
	}
	changed := map[string]bool{}
	for _, r := range e.end {
		changed[r.Name] = true
	}
	for _, r := range e.change {
		changed[r.Name] = true
	}
	for _, r := range slices.Concat(e.add, e.change) {
		changed[r.Name] = true
		if what := st.coveredBy(r.Name); r.Type == "NS" && r.Name != d.Name && what != "" {
			return core.Errorf("managed_record_collision", "NS records at %s would cover %s.", r.Name, what).
				With("name", "managed_record_collision", "covers "+what)
		}
		if st.isManaged(r.Name, r.Type, r.Value, e.mayReplace) {
			return managedCollision(d, r.Name, r.Type)
		}
	}
	byName := map[string][]*store.CustomRecord{}
	for _, r := range after {
		byName[r.Name] = append(byName[r.Name], r)
	}
	for name, rows := range byName {
		if changed[name] {
			if err := st.checkName(name, rows); err != nil {
				return err
			}
		}
		for _, above, _ := strings.Cut(name, "."); len(above) > len(d.Name); _, above, _ = strings.Cut(above, ".") {
			if changed[name] || changed[above] {
				if err := checkBelow(rows, above, byName[above]); err != nil {
					return err
				}
			}
		}
	}
	return st.checkServable(after)
}

// checkServable returns an error if our own server could not serve the zone with these custom
// records.
func (st *zoneState) checkServable(records []*store.CustomRecord) error {
	zone := *st.source
	zone.Spec.Custom = nil
	for _, r := range records {
		zone.Spec.Custom = append(zone.Spec.Custom, zonedata.CustomRecord(r))
	}
	if _, err := zone.Zone(); err != nil {
		return invalidRecord("value", err)
	}
	return nil
}

// after returns the custom records that there are after a change.
func (st *zoneState) after(e *zoneEdit) []*store.CustomRecord {
	changed := map[string]*store.CustomRecord{}
	for _, r := range e.end {
		changed[r.ID] = nil
	}
	for _, r := range e.change {
		changed[r.ID] = r
	}
	out := make([]*store.CustomRecord, 0, len(st.live)+len(e.add))
	for _, r := range st.live {
		now, differs := changed[r.ID]
		switch {
		case !differs:
			out = append(out, r)
		case now != nil:
			out = append(out, now)
		}
	}
	return append(out, e.add...)
}

// isManaged reports whether Mailstead manages a record set itself, or whether a value conflicts
// with a managed record. mayReplace is as in zoneEdit.
func (st *zoneState) isManaged(name, typ, value string, mayReplace bool) bool {
	if name == st.domain.Name && (typ == "NS" || typ == "MX") {
		return true
	}
	if mayReplace {
		return dnsprov.CollidesWithManaged(st.fixed, name, typ, value)
	}
	return dnsprov.CollidesWithManaged(st.reserved, name, typ, value)
}

// managedCollision returns the error for a record where Mailstead has a record itself.
func managedCollision(d *store.Domain, name, typ string) *core.Error {
	e := core.Errorf("managed_record_collision", "Mailstead manages the %s records of %s itself. Use another name.", typ, name)
	switch {
	case name == "_dmarc."+d.Name:
		e.Message = "Mailstead manages the records of " + name + " itself. Change the policy with PUT /v1/domains/" + d.ID + "/dmarc."
	case name == d.Name && (typ == "A" || typ == "AAAA"):
		e.Message = "The " + typ + " records of " + name + " lead to this host. To have your website there, call PATCH /v1/domains/" + d.ID + ` with {"apex": {"mode": "elsewhere", "addresses": [...]}}.`
		if d.ApexMode() == store.ApexElsewhere {
			e.Message = "The addresses of " + name + " are those of " + d.Apex.Alias + ". To set them yourself, call PATCH /v1/domains/" + d.ID + ` with {"apex": {"mode": "elsewhere", "addresses": [...]}}.`
		}
	case name == d.Name && typ == "TXT":
		e.Message = "Mailstead manages the SPF record of " + name + " itself. Add your terms with PUT /v1/domains/" + d.ID + "/spf."
	}
	return e.With("name", "managed_record_collision", "belongs to a managed record")
}

// checkName checks the custom records that one name has after a change.
func (st *zoneState) checkName(name string, rows []*store.CustomRecord) error {
	types, seen, size := map[string]bool{}, map[[2]string]string{}, 0
	for _, r := range rows {
		key := [2]string{r.Type, r.Value}
		if other, twice := seen[key]; twice {
			id := other
			if id == "" {
				id = r.ID
			}
			return core.Errorf("duplicate_record", "This record exists already: %s.", id).With("value", "duplicate_record", "the record "+id+" exists already")
		}
		types[r.Type], seen[key] = true, r.ID
		size += max(len(r.Value), zonedata.CustomRecord(r).DataSize()) + bytesPerRecord // the addresses of an HTTPS record are longer on the wire
	}
	switch {
	case types["CNAME"] && name == st.domain.Name:
		return cnameAtApex(name)
	case types["CNAME"] && len(rows) > 1:
		return invalidRecord("name", fmt.Errorf("%s has a record already, and a CNAME must be alone at its name (RFC 1034)", name))
	case size > maxBytesAtName:
		return invalidRecord("value", fmt.Errorf("is too long: the records of %s can have at most %d bytes together, so that they fit into a DNS answer", name, maxBytesAtName))
	case types["DS"] && !types["NS"]:
		return invalidRecord("type", fmt.Errorf("%s has DS records without NS records, and only a name that is delegated can have them", name))
	case !types["NS"]:
		return nil
	}
	for typ := range types {
		if typ != "NS" && typ != "DS" {
			return invalidRecord("name", fmt.Errorf("%s is delegated by its NS records, so it can have no %s records here", name, typ))
		}
	}
	return nil
}

// coveredBy says what a delegation of a name would cover: managed records, or another connected
// domain. It returns "" if there is no such thing.
func (st *zoneState) coveredBy(name string) string {
	for _, r := range st.reserved {
		if dnsprov.IsWithin(r.Name, name) {
			return "the " + r.Type + " records of " + r.Name + ", which Mailstead manages"
		}
	}
	for _, sub := range st.below {
		if dnsprov.IsWithin(sub, name) {
			return sub + ", which is connected here"
		}
	}
	return ""
}

// checkBelow checks the custom records of a name below another one, which may be delegated: then
// only addresses of its own nameservers are allowed.
func checkBelow(rows []*store.CustomRecord, above string, atAbove []*store.CustomRecord) error {
	delegated := slices.ContainsFunc(atAbove, func(r *store.CustomRecord) bool { return r.Type == "NS" })
	if !delegated {
		return nil
	}
	name := rows[0].Name
	isHost := slices.ContainsFunc(atAbove, func(r *store.CustomRecord) bool { return r.Type == "NS" && r.Value == name })
	for _, r := range rows {
		if !isHost || r.Type != "A" && r.Type != "AAAA" {
			return invalidRecord("name", fmt.Errorf("%s is delegated by its NS records, so %s can only have addresses of its nameservers, not %s records", above, name, r.Type))
		}
	}
	return nil
}

func cnameAtApex(domain string) *core.Error {
	return core.Errorf("cname_at_apex", "%s itself cannot be a CNAME, since it has other records (RFC 1034). Use A and AAAA records, or a redirect.", domain).
		With("name", "cname_at_apex", "is the domain itself")
}

// invalidRecord returns the error for a record whose field cannot be so.
func invalidRecord(field string, err error) *core.Error {
	return core.Errorf("invalid_record", "%s: %s", field, err).With(field, "invalid_record", err.Error()).Because(err)
}

// setRecord validates name, type and value and sets them in the record.
func setRecord(d *store.Domain, r *store.CustomRecord, name, typ, value string) (err error) {
	r.Name, err = dnsprov.CustomName(name, d.Name)
	if err != nil {
		return invalidRecord("name", err)
	}
	if typ == "CNAME" && r.Name == d.Name {
		return cnameAtApex(d.Name)
	}
	records, err := dnsprov.CustomSet(d.Name, r.Name, typ, uint32(r.TTL), []string{value})
	if err != nil {
		return invalidRecord("value", err)
	}
	r.Type, r.Value = typ, records[0].Text()
	return nil
}

// customName converts the name in a request to the form of dnsprov.Record.Name.
func customName(given string, d *store.Domain) (string, error) {
	name, err := dnsprov.CustomName(given, d.Name)
	if err != nil {
		return "", invalidRecord("name", err)
	}
	return name, nil
}

// customType validates the type in a path.
func customType(given string) (string, error) {
	typ := strings.ToUpper(given)
	if !slices.Contains(dnsprov.CustomTypes, typ) {
		return "", invalidRecord("type", errors.New("must be one of "+strings.Join(dnsprov.CustomTypes, ", ")))
	}
	return typ, nil
}
