package zones

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/scan"
	"github.com/mailstead/mailstead/dnsprov/zonefile"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

const maxScanFile = 8 * scan.MaxBytes

// Values of OwnSet.Action.
const (
	scanKeep    = "keep"
	scanReplace = "replace"
	scanMerge   = "merge"
)

// A ScanResult is the result of a zone_scan job: what the present nameservers of a domain have.
type ScanResult struct {
	Nameservers []string     `json:"nameservers" words:"theirs" example:"[\"ns1.example.net\",\"ns2.example.net\"]"`
	Method      string       `json:"method" enum:"axfr|nsec|questions|none"` // How the zone was read. none: nobody serves it, or no server answers.
	Complete    bool         `json:"complete"`                               // Whether no record can be missing.
	Wildcard    bool         `json:"wildcard"`                               // Whether there is a wildcard right below the domain.
	Records     []ScannedSet `json:"records"`
	Ours        []OwnSet     `json:"ours"` // The records that Mailstead keeps itself, beside those that are there now.
	DS          []string     `json:"ds" words:"theirs" example:"[\"12345 8 2 b4c8c1fe2e7477127b27115656ad6256f424625bf5c1e2770ce6d6e37df61d17\"]"`
	MX          []ScannedMX  `json:"mx"` // The hosts that take the mail of the domain now.
	TTL         ScanTTL      `json:"ttl"`
	Proxied     []ScannedIP  `json:"proxied"`             // Addresses of a proxy, which serve no website once the domain's DNS is elsewhere.
	MTASTS      *ScannedSTS  `json:"mta_sts" rare:"true"` // The domain's MTA-STS policy (RFC 8461); null if it has none.
}

// A ScannedSet is the records of one name and type.
type ScannedSet struct {
	Name string `json:"name" words:"theirs" example:"www"` // Relative to the domain; `@` is the domain itself.
	Type string `json:"type" words:"theirs" example:"A"`
	TTL  int    `json:"ttl"` // Seconds.
	// As in a zone file, with names in full and without the last dot, and texts in quotes.
	Values []string `json:"values" words:"theirs" example:"[\"192.0.2.7\"]"`
}

// An OwnSet is records of one name and type that Mailstead keeps.
type OwnSet struct {
	Name   string   `json:"name" words:"ours" example:"@"` // Relative to the domain; `@` is the domain itself.
	Type   string   `json:"type" words:"ours" example:"MX"`
	Theirs []string `json:"theirs" words:"theirs" example:"[\"10 mx.example.net\"]"` // The values now; empty if there are none.
	Ours   []string `json:"ours" words:"ours" example:"[\"10 mail.example.com\"]"`   // The values of Mailstead; empty for a DKIM key that is not made yet.
	// keep: what is there stays, or is the same. replace: Mailstead's values take its place.
	// merge: both become one record.
	Action string `json:"action" enum:"keep|replace|merge"`
}

// A ScannedMX is a host that takes mail.
type ScannedMX struct {
	Priority int    `json:"priority" example:"10"`
	Host     string `json:"host" words:"theirs" example:"mx.example.net"`
}

// A ScanTTL says how long resolvers go on to use what they know, in seconds; null: not known.
type ScanTTL struct {
	NS             *int `json:"ns"`              // The nameservers.
	DS             *int `json:"ds"`              // The DS records.
	LongestChanged *int `json:"longest_changed"` // The longest one of records that change.
}

// A ScannedIP is an address record.
type ScannedIP struct {
	Name  string `json:"name" words:"theirs" example:"www"` // Relative to the domain; `@` is the domain itself.
	Type  string `json:"type" enum:"A|AAAA"`
	Value string `json:"value" words:"theirs" example:"104.16.0.1"`
}

// A ScannedSTS is an MTA-STS policy.
type ScannedSTS struct {
	Mode   string `json:"mode" enum:"enforce|testing|none"`
	MaxAge int    `json:"max_age"` // Seconds.
}

// A ScanFile is what is stored of a scan.
type ScanFile struct {
	Result      ScanResult
	STSAllowsUs bool // the policy in MTASTS names the mail host of this server
	Partial     bool // less was asked than usual, since the servers left questions without an answer
}

// ScanFacts is what a scan has found beside the records.
type ScanFacts struct {
	Changing    map[netip.Addr]bool // addresses that two questions in a row did not both give
	STS         *ScannedSTS
	STSAllowsUs bool
}

// ScanFileOf makes what is stored of a scan of a domain.
func (s *Service) ScanFileOf(tx *store.Tx, d *store.Domain, found *scan.Result, facts ScanFacts) *ScanFile {
	r := ScanResult{
		Nameservers: append([]string{}, found.Nameservers...), Method: string(found.Method), Complete: found.Complete, Wildcard: found.Wildcard,
		Records: []ScannedSet{}, Ours: []OwnSet{}, DS: []string{}, MX: []ScannedMX{}, Proxied: []ScannedIP{}, MTASTS: facts.STS,
	}
	for _, ds := range found.DS {
		r.DS = append(r.DS, ds.String())
	}
	records, size := found.Records, 0
	for i, one := range records {
		size += len(one.Name) + len(scannedText(one))
		if i == scan.MaxRecords || size > scan.MaxBytes {
			records, r.Complete = records[:i], false
			break
		}
	}
	at := map[dnsprov.Set]int{}
	for _, one := range records {
		set := dnsprov.Set{Name: one.Name, Type: one.Type}
		i, begun := at[set]
		if !begun {
			i = len(r.Records)
			at[set] = i
			r.Records = append(r.Records, ScannedSet{Name: zonedata.RelativeHost(one.Name, d.Name), Type: one.Type, TTL: int(one.TTL)})
		}
		r.Records[i].TTL = min(r.Records[i].TTL, int(one.TTL)) // RFC 2181 section 5.2
		r.Records[i].Values = append(r.Records[i].Values, scannedText(one))
	}
	for _, one := range records {
		name := zonedata.RelativeHost(one.Name, d.Name)
		ip, _ := netip.ParseAddr(one.Value)
		switch {
		case one.Type == "MX" && name == "@":
			r.MX = append(r.MX, ScannedMX{int(one.Priority), one.Value})
		case (one.Type == "A" || one.Type == "AAAA") && (isProxied(ip) || facts.Changing[ip]):
			r.Proxied = append(r.Proxied, ScannedIP{name, one.Type, one.Value})
		}
	}
	slices.SortStableFunc(r.MX, func(a, b ScannedMX) int { return cmp.Compare(a.Priority, b.Priority) })
	longest := 0
	r.Ours, longest = s.ownSets(tx, d, records)
	seconds := func(n int) *int {
		if n <= 0 {
			return nil
		}
		return &n
	}
	r.TTL = ScanTTL{seconds(int(found.NSTTL / time.Second)), seconds(int(found.DSTTL / time.Second)), seconds(longest)}
	return &ScanFile{Result: r, STSAllowsUs: facts.STSAllowsUs, Partial: found.Partial}
}

// scannedText returns the data of a record as a scan shows it: as valueText, but with escapes if it
// is not UTF-8.
func scannedText(r dnsprov.Record) string {
	if r.Type != "TXT" || utf8.ValidString(dnsprov.UnquoteText(r.Value)) {
		return valueText(r.Type, r.Text())
	}
	return `"` + dnsprov.EscapeText(dnsprov.UnquoteText(r.Value)) + `"`
}

// ownSets compares the records that Mailstead keeps for a domain with those that were found.
// longest is the longest TTL, in seconds, of those that it replaces or merges.
func (s *Service) ownSets(tx *store.Tx, d *store.Domain, found []dnsprov.Record) (out []OwnSet, longest int) {
	theirs := map[dnsprov.Set][]dnsprov.Record{}
	for _, r := range found {
		set := dnsprov.Set{Name: r.Name, Type: r.Type}
		theirs[set] = append(theirs[set], r)
	}
	out = []OwnSet{}
	at := map[dnsprov.Set]int{}
	for _, r := range s.reservedRecords(s.zoneSpec(tx, d, nil), d.DNSProvider) {
		if r.Purpose == dnsprov.PurposeNS || r.Purpose == dnsprov.PurposeACME {
			continue
		}
		set := dnsprov.Set{Name: r.Name, Type: r.Type}
		i, begun := at[set]
		if !begun {
			i = len(out)
			at[set] = i
			own := OwnSet{Name: zonedata.RelativeHost(r.Name, d.Name), Type: r.Type, Theirs: []string{}, Ours: []string{}, Action: scanReplace}
			there := append(slices.Clone(theirs[set]), theirs[dnsprov.Set{Name: r.Name, Type: "CNAME"}]...)
			if r.Purpose == dnsprov.PurposeSPF {
				there = slices.DeleteFunc(there, func(r dnsprov.Record) bool { return !r.IsSPF() })
			}
			switch {
			case len(there) == 0:
			case r.Purpose == dnsprov.PurposeSPF:
				own.Action = scanMerge
			case r.Purpose == dnsprov.PurposeDMARC, r.Purpose == dnsprov.PurposeAutoconfig, r.Type == "MX" && d.AtEdge() && !d.Replace:
				own.Action = scanKeep
			}
			for _, old := range there {
				own.Theirs = append(own.Theirs, scannedText(old))
				if own.Action != scanKeep {
					longest = max(longest, int(old.TTL))
				}
			}
			out = append(out, own)
		}
		if r.Purpose != dnsprov.PurposeDKIM || r.Value != "" {
			out[i].Ours = append(out[i].Ours, valueText(r.Type, r.Text()))
		}
	}
	for i := range out {
		if len(out[i].Ours) > 0 && slices.Equal(slices.Sorted(slices.Values(out[i].Theirs)), slices.Sorted(slices.Values(out[i].Ours))) {
			out[i].Action = scanKeep
		}
	}
	return out, longest
}

// WriteScan stores a scan. The caller refers to it by a store.ZoneScan, or releases it.
func (s *Service) WriteScan(f *ScanFile) (store.BlobRef, error) {
	spool := s.Store.NewSpool(maxScanFile)
	defer spool.Close()
	z := gzip.NewWriter(spool)
	if err := errors.Join(json.NewEncoder(z).Encode(f), z.Close()); err != nil {
		return store.BlobRef{}, err
	}
	return s.Store.Append([]byte("{}"), spool)
}

// ReadScan reads the file of a scan.
func (s *Service) ReadScan(row *store.ZoneScan) (*ScanFile, error) {
	blob, err := s.Store.OpenBlob(row.Blob)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	z, err := gzip.NewReader(io.NewSectionReader(blob, 0, blob.Size()))
	if err != nil {
		return nil, fmt.Errorf("read the scan of domain %s: %w", row.DomainID, err)
	}
	f := &ScanFile{}
	if err := json.NewDecoder(io.LimitReader(z, maxScanFile)).Decode(f); err != nil {
		return nil, fmt.Errorf("read the scan of domain %s: %w", row.DomainID, err)
	}
	return f, nil
}

// sets returns the records of a scan in the form of those of a zone file.
func (r *ScanResult) sets(domain string) ([]zonefile.Set, error) {
	out := make([]zonefile.Set, 0, len(r.Records))
	for _, set := range r.Records {
		name := domain
		if set.Name != "@" {
			name = set.Name + "." + domain
		}
		z := zonefile.Set{Name: name, Type: set.Type, TTL: uint32(set.TTL)}
		for _, text := range set.Values {
			one, err := dnsprov.FromText(name, set.Type, text, z.TTL)
			if err != nil {
				return nil, err
			}
			z.Records = append(z.Records, one)
		}
		out = append(out, z)
	}
	return out, nil
}

// values returns the values of one record set.
func (r *ScanResult) values(name, typ string) []string {
	for _, set := range r.Records {
		if set.Name == name && set.Type == typ {
			return set.Values
		}
	}
	return nil
}

// proxied returns the addresses of a scan that are those of a proxy.
func (r *ScanResult) proxied() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, one := range r.Proxied {
		if ip, err := netip.ParseAddr(one.Value); err == nil {
			out[ip] = true
		}
	}
	return out
}

// Summary is a short text about a scan of a domain, for people.
func (f *ScanFile) Summary(domain string) string {
	r, values := &f.Result, 0
	for _, set := range r.Records {
		values += len(set.Values)
	}
	text := fmt.Sprintf("%d records were found.", values)
	switch {
	case len(r.Nameservers) == 0:
		return "No nameserver serves " + domain + "."
	case r.Method == string(scan.MethodNone):
		return "None of the nameservers of " + domain + " answers: " + strings.Join(r.Nameservers, ", ") + "."
	case f.Partial:
		text += " The nameservers left questions without an answer, so scan the zone again."
	case !r.Complete:
		text += " There can be others, since the nameservers do not list the zone."
	}
	return text
}
