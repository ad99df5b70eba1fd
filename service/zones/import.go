package zones

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/scan"
	"github.com/mailstead/mailstead/dnsprov/zonefile"
	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/spf"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

const (
	minTTL, maxTTL    = 60, 86400
	importMemory      = 8 // memory that an import takes, as a multiple of the length of its file
	importLookupsTime = 2 * LookupTimeout
	maxExcluded       = 2000 // record sets that are noted as left out of the imports of a scan
)

// ImportZoneIn is the body of import_zone.
type ImportZoneIn struct {
	DomainID string `path:"domain_id"`
	// The text of a master file (RFC 1035 section 5) of at most 2 MiB, which may also be the body
	// itself. Give either zone_file or scan.
	ZoneFile string `json:"zone_file" example:"www 300 IN A 192.0.2.7\n"`
	// The ID of the domain's newest zone_scan job that has ended, to import what it found.
	Scan    string        `json:"scan" example:"job_01k9a2b3c4d5e6f7g8h9j0k1m2" log:"true"`
	Exclude []ZoneExclude `json:"exclude" max:"1000"` // Records that are left out.
	// Addresses of Cloudflare's proxy that are imported although they serve no website once the
	// domain's DNS is elsewhere.
	Accept  []string `json:"accept" max:"1000" example:"[\"104.16.0.1\"]" log:"true"`
	Replace bool     `json:"replace" log:"true"` // Replace records that you have added here before. Without it, they stay.
	DryRun  bool     `json:"dry_run" log:"true"` // Only return what would be imported.
}

// A ZoneExclude names records that are left out of an import.
type ZoneExclude struct {
	Name string `json:"name" required:"true" example:"www" log:"true"` // A label such as `www`, `@` for the domain itself, or a whole name.
	Type string `json:"type" example:"A" log:"true"`                   // All types by default.
}

// A ZoneImported is the result of import_zone.
type ZoneImported struct {
	Imported int             `json:"imported" example:"1"` // How many values were added or replaced.
	Records  []RecordSet     `json:"records"`              // What was added or replaced.
	Skipped  []SkippedRecord `json:"skipped"`
	Merged   []MergedRecord  `json:"merged"` // Records of Mailstead that now have what the file has.
	DryRun   bool            `json:"dry_run"`
}

// A SkippedRecord is a record that was not imported.
type SkippedRecord struct {
	Name  string `json:"name" words:"theirs" example:"@"` // Relative to the domain; `@` is the domain itself.
	Type  string `json:"type" words:"theirs" example:"SOA"`
	Value string `json:"value" words:"theirs" example:"ns1.example.net hostmaster.example.net 1 3600 600 604800 300"`
	// A code and a text: excluded, outside, nameservers, mx, dnssec, unknown_type, managed, here,
	// exists, alias, proxied, invalid_dmarc, spf_too_many_lookups, spf_not_counted, spf_too_long,
	// spf_all or cname_at_apex.
	Reason string `json:"reason" words:"theirs" example:"nameservers: Mailstead has its own SOA record and nameservers."`
}

// A MergedRecord is a record of Mailstead with the value that it has after an import.
type MergedRecord struct {
	Name  string `json:"name" words:"ours" example:"@"` // Relative to the domain; `@` is the domain itself.
	Type  string `json:"type" words:"ours" example:"TXT"`
	Value string `json:"value" words:"ours" example:"v=spf1 mx ip4:192.0.2.1 include:_spf.example.net ~all"`
}

// dnssecTypes are the types of records that belong to the signatures and keys of a zone.
var dnssecTypes = []string{"RRSIG", "NSEC", "NSEC3", "NSEC3PARAM", "DNSKEY", "CDS", "CDNSKEY", "DLV", "ZONEMD"}

// ImportZone adds the records of a master file to a zone, all of them or none. Records that cannot
// be imported are skipped. The SPF record and the DMARC policy become settings of the domain.
func (s *Service) ImportZone(ctx context.Context, who core.Actor, in ImportZoneIn) (*ZoneImported, error) {
	p, leave, err := s.planImport(ctx, who, in)
	if err != nil {
		return nil, err
	}
	defer leave()
	if in.DryRun {
		st, err := s.peekState(ctx, who, in.DomainID)
		if err != nil {
			return nil, err
		}
		e, err := p.edit(st)
		if err == nil {
			err = st.checkEdit(e)
		}
		return p.out, err
	}
	_, err = s.editZone(ctx, who, in.DomainID, p.edit)
	return p.out, err
}

// A zoneImport is one import, with what does not depend on the records that the domain has now.
type zoneImport struct {
	s        *Service
	in       ImportZoneIn
	domain   *store.Domain
	scan     *store.ZoneScan // nil: the sets come from a file
	sets     []zonefile.Set
	proxied  map[netip.Addr]bool // addresses of a proxy that a scan has found
	excluded map[[2]string]bool  // by name and type; the type "" stands for all
	accepted []netip.Addr

	spf   []string // SPF records of the file
	ours  []string // terms of the domain's SPF record without those of the owner
	mixed spf.Merged
	spfNo string // why the SPF records are not merged; ""

	alias *string // the host that the domain itself is to be an alias of, "" for none; nil: it stays

	dmarc   string // the policy of the file; "" if it has none
	dmarcNo string // why it is not taken over; ""

	out *ZoneImported
}

// planImport reads the file and makes the lookups. The caller must call leave at the end.
func (s *Service) planImport(ctx context.Context, who core.Actor, in ImportZoneIn) (p *zoneImport, leave func(), err error) {
	if (in.ZoneFile == "") == (in.Scan == "") {
		return nil, nil, core.Errorf("exactly_one_parameter", "Give either zone_file or scan.")
	}
	if len(in.ZoneFile) > zonefile.MaxBytes {
		return nil, nil, core.Invalid("zone_file", "out_of_range", "must have at most %d bytes, not %d", zonefile.MaxBytes, len(in.ZoneFile))
	}
	p = &zoneImport{s: s, in: in, excluded: map[[2]string]bool{}}
	err = s.Store.View(func(tx *store.Tx) error {
		p.domain, err = zonedata.ChangeableDomain(tx, who, in.DomainID)
		if err == nil && in.Scan != "" {
			p.scan, err = scanToImport(tx, p.domain, in.Scan)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for i, text := range in.Accept {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, nil, core.Invalid(fmt.Sprintf("accept.%d", i), "invalid", "is not an IP address")
		}
		p.accepted = append(p.accepted, ip)
	}
	size := len(in.ZoneFile)
	if p.scan != nil {
		size = scan.MaxBytes
	}
	ctx, leave, err = s.WorkOnLarge(ctx, int64(importMemory*size))
	if err != nil {
		return nil, nil, err
	}
	err = p.read()
	if err == nil {
		err = p.exclude()
	}
	if err == nil {
		err = p.look(ctx)
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	return p, leave, nil
}

// read reads the sets of the file or of the scan.
func (p *zoneImport) read() (err error) {
	if p.scan == nil {
		p.sets, err = zonefile.Read([]byte(p.in.ZoneFile), p.domain.Name)
		var bad *zonefile.Error
		if errors.As(err, &bad) {
			err = core.Errorf("zone_unreadable", "zone_file, line %d: %s", bad.Line, bad.Reason).With("zone_file", "zone_unreadable", bad.Error()).Because(bad)
		}
		return err
	}
	f, err := p.s.ReadScan(p.scan)
	if err != nil {
		return err
	}
	p.proxied = f.Result.proxied()
	p.sets, err = f.Result.sets(p.domain.Name)
	return err
}

// exclude notes what the request leaves out. It takes the names that the file has, also those that
// no custom record can have, so that these can be left out too.
func (p *zoneImport) exclude() error {
	has := map[string]bool{}
	for _, set := range p.sets {
		has[set.Name] = true
	}
	for i, x := range p.in.Exclude {
		typ := strings.ToUpper(x.Type)
		if _, known := dnsprov.TypeNumber(typ); typ != "" && !known && !isAlias(typ) {
			return core.Invalid(fmt.Sprintf("exclude.%d.type", i), "invalid", "%.20q is not a type of DNS records", x.Type)
		}
		name, err := dnsprov.CustomName(x.Name, p.domain.Name)
		if err != nil {
			name = strings.ToLower(strings.TrimSuffix(strings.TrimSpace(x.Name), "."))
			if !has[name] {
				name += "." + p.domain.Name
			}
		}
		if err != nil && !has[name] {
			return core.Invalid(fmt.Sprintf("exclude.%d.name", i), "invalid", "%s", err)
		}
		p.excluded[[2]string{name, typ}] = true
	}
	return nil
}

// scanToImport returns the scan of a domain that a job has made.
func scanToImport(tx *store.Tx, d *store.Domain, jobID string) (*store.ZoneScan, error) {
	row, err := store.ZoneScans.Find(tx, d.ID)
	if err != nil || row != nil && row.JobID == jobID {
		return row, err
	}
	if j, err := store.Jobs.Find(tx, jobID); err != nil {
		return nil, err
	} else if j != nil && j.AccountID == d.AccountID && j.Resource.ID == d.ID && j.Kind == KindScan && !j.Ended() {
		return nil, core.Invalid("scan", "not_ready", "has not ended yet; wait for the job %s", jobID)
	}
	if row == nil {
		return nil, core.Invalid("scan", "not_found", "is not the job of a scan of %s that has ended; scan its zone first", d.Name)
	}
	return nil, core.Invalid("scan", "not_found", "is not the newest scan of %s, which is %s", d.Name, row.JobID)
}

// noteExcluded notes in the scan what the request leaves out. It does nothing if there is a newer
// scan.
func (p *zoneImport) noteExcluded(tx *store.Tx) error {
	row, err := store.ZoneScans.Find(tx, p.domain.ID)
	if err != nil || row == nil || row.JobID != p.scan.JobID {
		return err
	}
	for key := range p.excluded {
		set := store.RecordSetName{Name: key[0], Type: key[1]}
		if !slices.Contains(row.Excluded, set) && len(row.Excluded) < maxExcluded {
			row.Excluded = append(row.Excluded, set)
		}
	}
	return store.ZoneScans.Put(tx, row)
}

// set returns the records of one name and type in the file.
func (p *zoneImport) set(name, typ string) []dnsprov.Record {
	for _, set := range p.sets {
		if set.Name == name && set.Type == typ {
			return set.Records
		}
	}
	return nil
}

// isExcluded reports whether the request leaves out a record set.
func (p *zoneImport) isExcluded(name, typ string) bool {
	return p.excluded[[2]string{name, ""}] || p.excluded[[2]string{name, typ}]
}

// look finds the SPF records and the DMARC policy of the file, and makes the lookups that they
// need.
func (p *zoneImport) look(ctx context.Context) error {
	name, policyName := p.domain.Name, "_dmarc."+p.domain.Name
	if !p.isExcluded(name, "TXT") {
		for _, r := range p.set(name, "TXT") {
			if r.IsSPF() {
				p.spf = append(p.spf, dnsprov.UnquoteText(r.Value))
			}
		}
	}
	policies := p.set(policyName, "TXT")
	alias := ""
	if cname := p.set(policyName, "CNAME"); len(cname) > 0 && !p.isExcluded(policyName, "CNAME") {
		alias = cname[0].Value
		policies = p.set(alias, "TXT")
	} else if p.isExcluded(policyName, "TXT") {
		policies = nil
	}
	if len(p.spf) == 0 && (alias == "" || len(policies) > 0) {
		p.choosePolicy(policies)
		return nil
	}
	request := ctx
	ctx, cancel := context.WithTimeout(lookup.Fresh(ctx), importLookupsTime)
	defer cancel()
	err := p.s.WithLookupSlot(ctx, p.domain.AccountID, p.domain.Name, func() error {
		if alias != "" && len(policies) == 0 {
			texts, err := p.s.Resolver.LookupTXT(ctx, alias+".")
			if err != nil {
				p.s.LogOf(ctx).Debug("could not look up the DMARC policy of a zone file", "name", alias, "error", err)
			}
			for _, text := range texts {
				policies = append(policies, dnsprov.Record{Value: dnsprov.QuoteText(text)})
			}
		}
		p.choosePolicy(policies)
		if len(p.spf) == 0 {
			return nil
		}
		bare := *p.domain
		bare.SPF = nil
		terms, _ := spf.Parse(p.s.spfText(&bare)).Split()
		for _, t := range terms {
			p.ours = append(p.ours, t.String())
		}
		var hosts []string
		for _, r := range p.set(name, "MX") {
			hosts = append(hosts, r.Value)
		}
		var err error
		p.mixed, err = spf.Merge(ctx, p.s.Resolver, name, p.ours, p.spf, hosts)
		switch {
		case errors.As(err, new(*spf.TooManyLookups)):
			p.spfNo = "spf_too_many_lookups: " + err.Error() + "."
		case err != nil:
			p.spfNo = "spf_not_counted: The lookups that the merged record needs could not be counted: " + err.Error() + "."
		}
		return nil
	})
	if err != nil && request.Err() == nil { // no slot became free
		busy := core.Errorf("rate_limited", "Too many DNS lookups of this account are running. Try again in a moment.")
		busy.RetryAfter = 10 * time.Second
		return busy
	}
	return err
}

// choosePolicy takes the DMARC policy from TXT records.
func (p *zoneImport) choosePolicy(records []dnsprov.Record) {
	for _, r := range records {
		text := strings.TrimSpace(dnsprov.UnquoteText(r.Value))
		if !dmarc.IsRecord(text) {
			continue
		}
		if p.dmarc != "" {
			p.dmarcNo = "invalid_dmarc: There are several DMARC policies, so receivers ignore all of them (RFC 7489 section 6.6.3)."
			return
		}
		p.dmarc = text
		if err := dmarc.Check(text); err != nil {
			p.dmarcNo = "invalid_dmarc: " + err.Error() + "."
		}
	}
}

// skip notes that records are not imported.
func (p *zoneImport) skip(reason string, records ...dnsprov.Record) {
	for _, r := range records {
		p.out.Skipped = append(p.out.Skipped, SkippedRecord{Name: zonedata.RelativeHost(r.Name, p.domain.Name), Type: r.Type, Value: valueText(r.Type, r.Text()), Reason: reason})
	}
}

// edit returns the change that an import makes, and sets the answer.
func (p *zoneImport) edit(st *zoneState) (*zoneEdit, error) {
	p.domain, p.alias = st.domain, nil
	p.out = &ZoneImported{Records: []RecordSet{}, Skipped: []SkippedRecord{}, Merged: []MergedRecord{}, DryRun: p.in.DryRun}
	e := &zoneEdit{kind: store.ZoneChangeImport, mayReplace: true, target: core.DomainTarget(st.domain), answer: func(*zoneResult) any { return p.out }}
	if p.scan != nil && len(p.excluded) > 0 {
		e.also = p.noteExcluded
	}
	byName := map[string][]*store.CustomRecord{}
	for _, r := range st.live {
		byName[r.Name] = append(byName[r.Name], r)
	}
	ended := map[string]bool{}
	var taken []dnsprov.Record
	for _, set := range p.sets {
		records := p.importable(st, set)
		if len(records) == 0 {
			continue
		}
		records, err := customSetOf(st.domain, set, records)
		if err != nil {
			return nil, err
		}
		var same, others []*store.CustomRecord // present records of the set, and others that cannot stand beside it
		for _, r := range byName[set.Name] {
			switch {
			case r.Type == set.Type:
				same = append(same, r)
			case r.Type == "CNAME" || set.Type == "CNAME":
				others = append(others, r)
			}
		}
		switch {
		case len(others) == 0 && sameValues(same, records):
			continue
		case len(same)+len(others) > 0 && !p.in.Replace:
			p.skip("exists: You have added other records of this name. Give replace to take these instead.", records...)
			continue
		}
		for _, r := range others {
			if !ended[r.ID] {
				ended[r.ID] = true
				e.end = append(e.end, r)
			}
		}
		e.replaceSet(same, records)
		taken = append(taken, records...)
	}
	p.out.Imported = len(taken)
	p.out.Records = recordSets(st.domain, taken)
	p.mergeSettings(e)
	if p.alias != nil {
		return e, p.s.setApex(st, e, store.DomainApex{Mode: store.ApexElsewhere, Chosen: true, Alias: *p.alias})
	}
	return e, nil
}

// importable returns the records of a set that can be imported, and skips the others.
func (p *zoneImport) importable(st *zoneState, set zonefile.Set) []dnsprov.Record {
	name, typ, domain := set.Name, set.Type, st.domain.Name
	isApex := name == domain
	reason := ""
	switch {
	case p.isExcluded(name, typ):
		reason = "excluded: The request leaves it out."
	case !dnsprov.IsWithin(name, domain):
		reason = "outside: The name is not in " + domain + "."
	case typ == "SOA" || typ == "NS" && isApex:
		reason = "nameservers: The zone has its own SOA record and nameservers."
	case typ == "MX" && isApex && st.domain.MXMode() == store.MXElsewhere:
		reason = "mx: Mailstead keeps the present MX records itself, until the mail comes here."
	case typ == "MX" && isApex:
		reason = "mx: The MX record of the domain leads to Mailstead."
	case slices.Contains(dnssecTypes, typ) || typ == "DS" && isApex:
		reason = "dnssec: The zone is signed with keys of its own."
	case isApex && isAlias(typ):
		reason = p.takeAlias(st, set.Records[0].Value)
		if reason == "" {
			return nil
		}
	case !slices.Contains(dnsprov.CustomTypes, typ):
		reason = "unknown_type: Mailstead has no records of this type."
	case name == "_mta-sts."+domain || name == dnsprov.STSLabel+"."+domain || name == "_smtp._tls."+domain:
		reason = "managed: Mailstead keeps these records itself."
	case name == "_dmarc."+domain:
		if p.dmarc != "" && (typ == "TXT" || typ == "CNAME") {
			return nil // see mergeSettings
		}
		reason = "managed: Mailstead keeps the DMARC policy itself."
	case typ == "CNAME" && isApex:
		reason = "cname_at_apex: The domain itself cannot be a CNAME."
	case typ == "NS":
		if what := st.coveredBy(name); what != "" {
			reason = "managed: The delegation would cover " + what + "."
		}
	}
	if reason != "" {
		p.skip(reason, set.Records...)
		return nil
	}
	var out []dnsprov.Record
	for _, r := range set.Records {
		ip, _ := netip.ParseAddr(r.Value)
		switch {
		case isApex && r.IsSPF(): // see mergeSettings
		case isApex && (typ == "A" || typ == "AAAA") && st.domain.ApexMode() == store.ApexHere:
			p.skip(p.hereReason(), r)
		case isApex && (typ == "A" || typ == "AAAA") && apexSetting(st.domain).Alias != "":
			if !p.in.Replace {
				p.skip("exists: The domain itself is an alias of "+st.domain.Apex.Alias+". Give replace to take these addresses instead.", r)
				continue
			}
			p.alias = new("")
			out = append(out, r)
		case st.isManaged(name, typ, r.Value, true):
			p.skip("managed: Mailstead keeps these records itself.", r)
		case ip.IsValid() && (isProxied(ip) || p.proxied[ip]) && !slices.Contains(p.accepted, ip):
			p.skip("proxied: It is an address of a proxy, and serves nothing once the DNS is elsewhere. Set the address of the server behind it, or list this one in accept.", r)
		default:
			out = append(out, r)
		}
	}
	return out
}

// isAlias reports whether a type stands for the addresses of another host. Several DNS servers know
// such types, and the DNS itself does not.
func isAlias(typ string) bool { return typ == "ALIAS" || typ == "ANAME" }

// hereReason says why the addresses of a domain itself are not imported.
func (p *zoneImport) hereReason() string {
	return "here: The addresses of " + p.domain.Name + ` itself lead to this host. To have your website there, call PATCH /v1/domains/` + p.domain.ID +
		` with {"apex": {"mode": "elsewhere"}} first.`
}

// takeAlias makes a host that of whose addresses the domain itself has. If it cannot, it returns
// why.
func (p *zoneImport) takeAlias(st *zoneState, host string) (reason string) {
	d := st.domain
	isAddress := func(set zonefile.Set) bool {
		return set.Name == d.Name && (set.Type == "A" || set.Type == "AAAA") && !p.isExcluded(set.Name, set.Type)
	}
	has := apexSetting(d)
	host, err := p.s.CleanAlias("alias", host, d.Name)
	switch {
	case has.Mode == store.ApexHere:
		return p.hereReason()
	case err != nil:
		return "alias: " + err.Error() + "."
	case slices.ContainsFunc(p.sets, isAddress):
		return "alias: The file has addresses of the domain itself, which are taken instead."
	case has.Alias == host:
		return ""
	case has.Alias != "" || d.Apex != nil && len(d.Apex.Addresses) > 0:
		return `exists: The domain itself has addresses already. Set the alias with PATCH /v1/domains/` + d.ID + ` and {"apex": {"mode": "elsewhere", "alias": "` + host + `"}}.`
	}
	p.alias = &host
	p.out.Merged = append(p.out.Merged, MergedRecord{"@", "ALIAS", host})
	return ""
}

// customSetOf returns records of a set of a file as the owner could have entered them.
func customSetOf(d *store.Domain, set zonefile.Set, records []dnsprov.Record) ([]dnsprov.Record, error) {
	var values []string
	for _, r := range records {
		values = append(values, valueText(r.Type, r.Text()))
	}
	name, err := dnsprov.CustomName(set.Name+".", d.Name)
	if err == nil && slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
		err = errors.New("must be UTF-8")
	}
	var out []dnsprov.Record
	if err == nil {
		out, err = dnsprov.CustomSet(d.Name, name, set.Type, min(max(set.TTL, minTTL), maxTTL), values)
	}
	if err != nil && set.Line == 0 {
		return nil, invalidRecord("scan", fmt.Errorf("the %s records of %s: %w; leave them out with exclude", set.Type, set.Name, err))
	}
	if err != nil {
		return nil, invalidRecord("zone_file", fmt.Errorf("line %d: the %s records of %s: %w", set.Line, set.Type, set.Name, err))
	}
	return out, nil
}

// sameValues reports whether present custom records have the same values as the given ones.
func sameValues(present []*store.CustomRecord, records []dnsprov.Record) bool {
	if len(present) != len(records) {
		return false
	}
	values := map[string]bool{}
	for _, r := range present {
		values[r.Value] = true
	}
	return !slices.ContainsFunc(records, func(r dnsprov.Record) bool { return !values[r.Text()] })
}

// mergeSettings adds to the change what the SPF records and the DMARC policy of the file change.
func (p *zoneImport) mergeSettings(e *zoneEdit) {
	d := p.domain
	now := sameSettings(d)
	if p.dmarc != "" {
		r := dnsprov.Record{Name: "_dmarc." + d.Name, Type: "TXT", Value: p.dmarc}
		switch {
		case d.DMARC == p.dmarc:
		case p.dmarcNo != "":
			p.skip(p.dmarcNo, r)
		case d.DMARC != "":
			p.skip("exists: The domain has another DMARC policy. Set this one with set_dmarc.", r)
		default:
			now.NewDMARC = p.dmarc
			p.out.Merged = append(p.out.Merged, MergedRecord{"_dmarc", "TXT", p.dmarc})
		}
	}
	if len(p.spf) > 0 {
		var old []dnsprov.Record
		for _, text := range p.spf {
			old = append(old, dnsprov.Record{Name: d.Name, Type: "TXT", Value: text})
		}
		merged := p.mergedSPF()
		next := *d
		next.SPF = merged
		text := p.s.spfText(&next)
		switch {
		case p.spfNo != "":
			p.skip(p.spfNo, old...)
		case sameSPF(d.SPF, merged):
		case !sameSPF(d.SPF, nil) && !p.in.Replace:
			p.skip("exists: Other terms were added to the SPF record. Give replace to take these instead, or set them with set_spf.", old...)
		case len(text) > maxSPFText:
			p.skip(fmt.Sprintf("spf_too_long: The merged record would have %d bytes; it can have at most %d.", len(text), maxSPFText), old...)
		default:
			now.NewSPF = merged
			p.out.Merged = append(p.out.Merged, MergedRecord{"@", "TXT", text})
			if end := dnsprov.LooseEnd(p.mixed.Text); end != "" {
				p.skip("spf_all: The SPF record ends in ~all now, so mail of senders that it does not name is suspicious. Add those that you use with set_spf.",
					dnsprov.Record{Name: d.Name, Type: "TXT", Value: end})
			}
		}
	}
	if now.NewDMARC != now.DMARC || !sameSPF(now.NewSPF, now.SPF) {
		e.settings = now
	}
}

// mergedSPF returns what the merged SPF record has beside our terms.
func (p *zoneImport) mergedSPF() *store.DomainSPF {
	out := &store.DomainSPF{}
	out.Extra, out.All = dnsprov.OwnersSPF(p.mixed.Text, p.ours)
	return out
}
