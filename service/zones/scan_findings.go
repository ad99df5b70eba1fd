package zones

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/scan"
	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/spf"
	"github.com/mailstead/mailstead/service/zonedata"
	"github.com/mailstead/mailstead/store"
)

// KindScan is the kind of job that scans the zone of a domain at the nameservers of others.
const KindScan = "zone_scan"

// ScanFindings is what would break if a domain were delegated to us as its zone is now, apart from
// its DS records.
type ScanFindings struct {
	NotImported RecordNames // record sets of the scan that are neither in the zone here nor left out
	Values      int         // how many values they have
	Proxied     RecordNames // as NotImported: those with addresses of a proxy
	// CAA is the authority that issues certificates to this server, if the CAA records of the owner
	// do not permit it; else "".
	CAA         string
	STS         *ScannedSTS // an enforced MTA-STS policy that does not name this server; nil: there is none
	MX          []string    // hosts of others that take its mail, the most preferred first; at most maxNamed
	OtherSPF    bool        // NotImported has an SPF record
	MilderDMARC bool        // NotImported has a DMARC policy that is milder than p=reject
	NoSenders   bool        // the scan has found neither an SPF record nor a DMARC policy
}

// A RecordName is the name and type of records.
type RecordName struct{ Name, Type string }

func (n RecordName) String() string { return n.Type + " " + n.Name }

// RecordNames are the names of many record sets. A scan can have thousands, and findings are kept
// in memory, so that only the first ones are part of it.
type RecordNames struct {
	First []RecordName // at most maxNamed
	Count int
}

const maxNamed = 5 // record sets or hosts that a text names

func (n *RecordNames) add(name RecordName) {
	if len(n.First) < maxNamed {
		n.First = append(n.First, name)
	}
	n.Count++
}

// String names the first ones, and says how many others there are.
func (n RecordNames) String() string {
	var out []string
	for _, name := range n.First {
		out = append(out, name.String())
	}
	text := strings.Join(out, ", ")
	if more := n.Count - len(n.First); more > 0 {
		text += fmt.Sprintf(" and %d others", more)
	}
	return text
}

// ScanFindings compares the zone of a domain with its scan; f is nil if there is none. Of a domain
// whose DNS is elsewhere, only the fields CAA, STS, MX and NoSenders are set. It takes as long as
// an import without lookups.
func (s *Service) ScanFindings(tx *store.Tx, d *store.Domain, row *store.ZoneScan, f *ScanFile) (*ScanFindings, error) {
	st := s.stateOf(tx, d)
	out := &ScanFindings{}
	var caa []string
	for _, r := range st.live {
		if r.Name == d.Name && r.Type == "CAA" {
			caa = append(caa, r.Value)
		}
	}
	if d.DNSProvider != dnsprov.Builtin && f != nil {
		caa = append(caa, f.Result.values("@", "CAA")...)
	}
	if authority := s.certificateAuthority(); authority != "" && excludesAuthority(caa, authority) {
		out.CAA = authority
	}
	if f == nil {
		return out, nil
	}
	if sts := f.Result.MTASTS; sts != nil && sts.Mode == "enforce" && !f.STSAllowsUs {
		out.STS = sts
	}
	for _, mx := range f.Result.MX {
		if mx.Host != "" && mx.Host != "." && mx.Host != s.Config.Hostname && len(out.MX) < maxNamed { // RFC 7505: no mail is accepted
			out.MX = append(out.MX, mx.Host)
		}
	}
	isSPF := func(text string) bool { return spf.IsRecord(dnsprov.UnquoteText(text)) }
	out.NoSenders = f.Result.Method != string(scan.MethodNone) && !slices.ContainsFunc(f.Result.values("@", "TXT"), isSPF) &&
		len(f.Result.values("_dmarc", "TXT"))+len(f.Result.values("_dmarc", "CNAME")) == 0
	if d.DNSProvider != dnsprov.Builtin {
		return out, nil
	}
	p := &zoneImport{s: s, domain: d, proxied: f.Result.proxied(), excluded: map[[2]string]bool{}, out: &ZoneImported{}}
	for _, set := range row.Excluded {
		p.excluded[[2]string{set.Name, set.Type}] = true
	}
	var err error
	p.sets, err = f.Result.sets(d.Name)
	if err != nil {
		return nil, err
	}
	types := map[string]map[string]bool{} // of the custom records, by name
	for _, r := range st.live {
		if types[r.Name] == nil {
			types[r.Name] = map[string]bool{}
		}
		types[r.Name][r.Type] = true
	}
	hasText := false // whether NotImported has the TXT records of the domain itself
	for _, set := range p.sets {
		name := RecordName{zonedata.RelativeHost(set.Name, d.Name), set.Type}
		p.out.Skipped = nil
		records := p.importable(st, set)
		own := types[set.Name]
		if own[set.Type] || own["CNAME"] || set.Type == "CNAME" && len(own) > 0 {
			continue
		}
		if len(records) > 0 {
			out.add(name, len(records))
			hasText = hasText || set.Name == d.Name && set.Type == "TXT"
		}
		if slices.ContainsFunc(p.out.Skipped, func(r SkippedRecord) bool { return strings.HasPrefix(r.Reason, "proxied:") }) {
			out.Proxied.add(name)
		}
	}
	s.addSettings(p, out, hasText)
	return out, nil
}

func (f *ScanFindings) add(name RecordName, values int) {
	f.NotImported.add(name)
	f.Values += values
}

// addSettings adds the SPF record and the DMARC policy of a scan to its findings, if an import
// would take them over. hasText says that the findings name the TXT records of the domain already.
func (s *Service) addSettings(p *zoneImport, out *ScanFindings, hasText bool) {
	d := p.domain
	if d.SPF == nil && !p.isExcluded(d.Name, "TXT") {
		ours := strings.Fields(s.spfText(d))
		for _, r := range p.set(d.Name, "TXT") {
			isOther := func(term string) bool { return !slices.Contains(ours, term) }
			if !r.IsSPF() || !slices.ContainsFunc(strings.Fields(dnsprov.UnquoteText(r.Value)), isOther) {
				continue
			}
			out.OtherSPF = true
			out.Values++
			if !hasText {
				hasText = true
				out.NotImported.add(RecordName{"@", "TXT"})
			}
		}
	}
	if policyName := "_dmarc." + d.Name; d.DMARC == "" && !p.isExcluded(policyName, "TXT") {
		p.dmarc, p.dmarcNo = "", ""
		p.choosePolicy(p.set(policyName, "TXT"))
		if p.dmarc != "" && p.dmarcNo == "" {
			out.add(RecordName{"_dmarc", "TXT"}, 1)
			policy, err := dmarc.Parse(p.dmarc)
			out.MilderDMARC = err == nil && policy.Policy != dmarc.PolicyReject
		}
	}
}

// certificateAuthority returns the name by which CAA records permit the authority that issues
// certificates to this server; "" if there is none, or if the name is not known.
func (s *Service) certificateAuthority() string {
	const letsEncrypt = "letsencrypt.org"
	if s.Config.Sandbox {
		return letsEncrypt
	}
	if s.Config.ACME == nil {
		return ""
	}
	directory, err := url.Parse(s.Config.ACME.Directory)
	if err != nil {
		return ""
	}
	for host, authority := range map[string]string{
		"letsencrypt.org": letsEncrypt, "zerossl.com": "sectigo.com", "buypass.com": "buypass.com", "pki.goog": "pki.goog",
	} {
		if strings.HasSuffix(directory.Hostname(), "."+host) {
			return authority
		}
	}
	return ""
}

// excludesAuthority reports whether the CAA records of a domain keep an authority from issuing a
// certificate for it (RFC 8659 section 4.2).
func excludesAuthority(values []string, authority string) bool {
	restricts := false
	for _, value := range values {
		fields := strings.SplitN(value, " ", 3)
		if len(fields) != 3 || !strings.EqualFold(fields[1], "issue") {
			continue
		}
		issuer, _, _ := strings.Cut(strings.Trim(fields[2], `"`), ";")
		if strings.EqualFold(strings.TrimSpace(issuer), authority) {
			return false
		}
		restricts = true
	}
	return restricts
}
