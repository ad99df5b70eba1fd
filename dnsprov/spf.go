package dnsprov

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// MaxSPFLookups is how many terms that cost look-ups receivers follow (RFC 7208 section 4.6.4).
const MaxSPFLookups = 10

// isSPF reports whether a text is an SPF record: the version, then a space or nothing (RFC 7208
// section 4.5).
func isSPF(text string) bool {
	version, _, _ := strings.Cut(text, " ")
	return strings.EqualFold(version, "v=spf1")
}

// An spfTerm is a mechanism or a modifier (RFC 7208 section 4.6.1).
type spfTerm struct {
	qualifier byte   // + - ~ ? of a mechanism, = of a modifier
	name      string // lower-case
	arg       string // what follows the name, with its colon, slash or equals sign
	prefix    netip.Prefix
}

var (
	spfForm   = regexp.MustCompile(`^([-+~?]?)([A-Za-z][A-Za-z0-9_.-]*)([:=/].*)?$`)
	spfDomain = regexp.MustCompile(`^([!-$&-~]|%[%_-]|%\{[A-Za-z][0-9]*[Rr]?[-.+,/_=]*\})+$`)
	spfLength = regexp.MustCompile(`^(.*?)(/([12]?[0-9]|3[0-2]))?(//([1-9]?[0-9]|1[01][0-9]|12[0-8]))?$`)
)

// parseSPFTerm reads one term; ok is false for what makes receivers take the whole record for an
// error.
func parseSPFTerm(text string) (t spfTerm, ok bool) {
	parts := spfForm.FindStringSubmatch(text)
	if parts == nil {
		return t, false
	}
	t = spfTerm{qualifier: '+', name: strings.ToLower(parts[2]), arg: parts[3]}
	if parts[1] != "" {
		t.qualifier = parts[1][0]
	}
	if strings.HasPrefix(t.arg, "=") {
		t.qualifier = '='
		known := t.name == "redirect" || t.name == "exp"
		return t, parts[1] == "" && (!known || spfDomain.MatchString(t.arg[1:]))
	}
	switch t.name {
	case "all":
		return t, t.arg == ""
	case "include", "exists":
		return t, strings.HasPrefix(t.arg, ":") && spfDomain.MatchString(t.arg[1:])
	case "ptr":
		return t, t.arg == "" || strings.HasPrefix(t.arg, ":") && spfDomain.MatchString(t.arg[1:])
	case "a", "mx":
		domain := spfLength.FindStringSubmatch(t.arg)[1]
		return t, domain == "" || strings.HasPrefix(domain, ":") && spfDomain.MatchString(domain[1:])
	case "ip4", "ip6":
		t.prefix, ok = spfPrefix(t.name, strings.TrimPrefix(t.arg, ":"))
		return t, ok && strings.HasPrefix(t.arg, ":")
	}
	return t, false
}

// spfPrefix reads the network of an ip4 or ip6 mechanism (RFC 7208 section 5.6).
func spfPrefix(kind, value string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(value)
	if err != nil {
		ip, err := netip.ParseAddr(value)
		if err != nil || ip.Zone() != "" {
			return netip.Prefix{}, false
		}
		p = netip.PrefixFrom(ip, ip.BitLen())
	}
	return p.Masked(), p.Addr().Is4() == (kind == "ip4")
}

// String is the term in its shortest form.
func (t spfTerm) String() string {
	if t.qualifier == '+' || t.qualifier == '=' {
		return t.name + t.arg
	}
	return string(t.qualifier) + t.name + t.arg
}

// key is the same for terms of which only the first one counts.
func (t spfTerm) key() string {
	switch {
	case t.qualifier == '=':
		return t.name + "="
	case t.prefix.IsValid():
		return t.name + ":" + t.prefix.String()
	}
	return t.name + strings.ToLower(t.arg)
}

// costs reports whether following the term takes a look-up.
func (t spfTerm) costs() bool {
	return slices.Contains([]string{"include", "a", "mx", "ptr", "exists", "redirect"}, t.name)
}

// An spfRecord is what counts of a record: the terms up to all, and what becomes of everybody else.
type spfRecord struct {
	terms    []spfTerm // in order, without all and redirect
	all      byte      // the qualifier of all; 0 if there is none
	redirect string    // whom to ask in place of all; empty if nobody
	well     bool      // no term is malformed; those that are have been left out
}

func parseSPF(text string) spfRecord {
	r := spfRecord{well: true}
	for _, field := range strings.Fields(text)[1:] {
		t, ok := parseSPFTerm(field)
		switch {
		case !ok:
			r.well = false
		case t.name == "redirect":
			r.redirect = t.arg[1:]
		case r.all != 0 && t.qualifier != '=': // nothing after all is looked at (RFC 7208 section 5.1)
		case t.name == "all" && t.qualifier != '=':
			r.all = t.qualifier
		default:
			r.terms = append(r.terms, t)
		}
	}
	if r.all != 0 {
		r.redirect = ""
	}
	return r
}

// authorizes reports whether the SPF record there lets our host send: before anything else is said
// of them, it passes the domain's MX, which is our host, or each address that our own record w
// names. Whatever else it allows is the owner's choice.
func authorizes(there string, w Record) bool {
	r := parseSPF(there)
	var open []netip.Addr
	for _, t := range parseSPF(w.Value).terms {
		if t.prefix.IsValid() {
			open = append(open, t.prefix.Addr())
		}
	}
	if !r.well {
		return false
	}
	named := len(open) > 0
	for _, t := range r.terms {
		if named && len(open) == 0 {
			return true
		}
		if t.name == "mx" && isOwnMX(t.arg, w.Name) {
			return t.qualifier == '+'
		}
		count := len(open)
		open = slices.DeleteFunc(open, func(ip netip.Addr) bool { return t.prefix.IsValid() && t.prefix.Contains(ip) })
		if len(open) < count && t.qualifier != '+' {
			return false
		}
	}
	return r.all == '+' || named && len(open) == 0
}

// mayDeny reports whether a record refuses somebody whom only look-ups tell; that may be us.
func mayDeny(text string) bool {
	return slices.ContainsFunc(parseSPF(text).terms, func(t spfTerm) bool {
		return t.costs() && (t.qualifier == '-' || t.qualifier == '~' || t.qualifier == '?')
	})
}

// isOwnMX reports whether the argument of an mx mechanism means the domain itself.
func isOwnMX(arg, domain string) bool {
	of := spfLength.FindStringSubmatch(arg)[1]
	return of == "" || hostName(strings.TrimPrefix(of, ":")) == domain
}

// mergeSPF gives one record that passes whom the records there pass, and our host as w does: there
// may be only one (RFC 7208 section 3.2). A single record that lets our host send stays as it is.
// Else what we need comes first, so that nothing denies it, then the terms there in their order,
// each once, and at the end what the owner says of everybody else. It is empty where no record of a
// sensible length would do.
func mergeSPF(there []string, w Record) string {
	if len(there) == 1 && authorizes(there[0], w) && !mayDeny(there[0]) {
		return there[0]
	}
	ours := parseSPF(w.Value)
	m := &spfMerger{seen: map[string]bool{}}
	m.add(ours.terms)
	var owners []spfRecord
	for _, text := range there {
		r := parseSPF(text)
		if len(there) == 1 || !m.hasAll(r.terms) || r.all != ours.all || r.redirect != "" { // else it is ours
			owners = append(owners, r)
		}
	}
	for _, r := range owners {
		m.add(r.terms)
		if r.redirect != "" && len(owners) > 1 {
			m.add([]spfTerm{{qualifier: '+', name: "include", arg: ":" + r.redirect}})
		}
	}
	text := m.text(ours, rest(owners, ours))
	if len(text) > maxText {
		return ""
	}
	return text
}

// rest is how a merged record ends. Of several owner's endings the mildest is taken, so that nobody
// loses mail by it.
func rest(owners []spfRecord, ours spfRecord) string {
	if len(owners) == 1 && owners[0].redirect != "" {
		return "redirect=" + owners[0].redirect
	}
	const mildest = "+?~-"
	at := len(mildest)
	for _, r := range owners {
		if i := strings.IndexByte(mildest, r.all); r.all != 0 && i < at {
			at = i
		}
	}
	if at == len(mildest) {
		return spfTerm{qualifier: ours.all, name: "all"}.String()
	}
	return spfTerm{qualifier: mildest[at], name: "all"}.String()
}

// An spfMerger collects terms, each once.
type spfMerger struct {
	terms []spfTerm
	seen  map[string]bool
}

func (m *spfMerger) add(terms []spfTerm) {
	for _, t := range terms {
		if !m.seen[t.key()] {
			m.seen[t.key()] = true
			m.terms = append(m.terms, t)
		}
	}
}

func (m *spfMerger) hasAll(terms []spfTerm) bool {
	return !slices.ContainsFunc(terms, func(t spfTerm) bool { return !m.seen[t.key()] })
}

// text writes the merged record. Where that saves it from asking too much of receivers, our host
// stands there by its addresses alone.
func (m *spfMerger) text(ours spfRecord, end string) string {
	terms := m.terms
	byAddress := func(t spfTerm) bool { return t.prefix.IsValid() }
	if lookups(terms, end) > MaxSPFLookups && slices.ContainsFunc(ours.terms, byAddress) {
		terms = slices.DeleteFunc(slices.Clone(terms), func(t spfTerm) bool { return t.name == "mx" && t.arg == "" })
	}
	fields := []string{"v=spf1"}
	for _, t := range terms {
		fields = append(fields, t.String())
	}
	return strings.Join(append(fields, end), " ")
}

func lookups(terms []spfTerm, end string) int {
	n := strings.Count(end, "redirect=")
	for _, t := range terms {
		if t.costs() {
			n++
		}
	}
	return n
}

// SPFLookups counts the terms of a record that cost receivers look-ups, of which they follow ten;
// those behind an include come on top (RFC 7208 section 4.6.4).
func SPFLookups(text string) int {
	if !isSPF(text) {
		return 0
	}
	r := parseSPF(text)
	n := lookups(r.terms, "")
	if r.redirect != "" {
		n++
	}
	return n
}
