package zonefile

import (
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/miekg/dns"
)

const defaultTTL = 300 // seconds; for records of a file that says no TTL before them

// Read returns the sets of a master file (RFC 1035 section 5), in the order in which they begin.
// Names that do not end in a dot are relative to origin, which is in the form of Record.Name, or to
// the $ORIGIN before them. Read takes $ORIGIN, $TTL (RFC 2308 section 4), units of time in TTLs as
// in 1h30m, and the class IN. It refuses $INCLUDE, $GENERATE, types that it does not know by name
// or number, and files of more than MaxBytes or MaxRecords. A record that is there twice is
// returned once. Names may be outside of the zone. The values are those of dnsprov.RecordOf, and
// that of an ALIAS or ANAME, which are no DNS types, is a host name. Errors are *Error.
func Read(text []byte, origin string) ([]Set, error) {
	if len(text) > MaxBytes {
		return nil, errorAt(1, "the file has more than %d bytes", MaxBytes)
	}
	s := &scanner{text: lines(text), line: 1}
	r := &reader{origin: dns.Fqdn(origin), at: map[dnsprov.Set]int{}, seen: map[dnsprov.Record]bool{}}
	for {
		e, err := s.next()
		if err != nil {
			return nil, err
		}
		if e == nil {
			return r.finished(), nil
		}
		first := e.words[0]
		if !e.indent && !first.quoted && strings.HasPrefix(first.text, "$") {
			err = r.directive(e)
		} else {
			err = r.record(e)
		}
		if err != nil {
			return nil, err
		}
	}
}

// lines returns a text with one form of line ends, and without a byte order mark.
func lines(text []byte) string {
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(string(text), "\ufeff"))
}

// A reader collects the sets of a file.
type reader struct {
	sets []Set
	at   map[dnsprov.Set]int     // index in sets
	seen map[dnsprov.Record]bool // all records, without TTLs

	origin string // with the trailing dot
	owner  string // the name of the last record, with the trailing dot; "" before the first record
	ttl    uint32 // of records that say none; valid if hasTTL is true
	hasTTL bool
	fixed  bool // whether ttl is from $TTL; otherwise it is that of the last record that says one
	count  int  // records
}

// directive carries out $ORIGIN and $TTL.
func (r *reader) directive(e *entry) error {
	name := strings.ToUpper(e.words[0].text)
	switch name {
	case "$ORIGIN", "$TTL":
	case "$INCLUDE", "$GENERATE":
		return errorAt(e.line, "%s is not read here: put the records themselves into the file", name)
	default:
		return errorAt(e.line, "%.40q is unknown; there are $ORIGIN and $TTL", e.words[0].text)
	}
	if len(e.words) != 2 {
		return errorAt(e.line, "%s has one value", name)
	}
	if name == "$ORIGIN" {
		origin, err := r.name(e, e.words[1])
		if err != nil {
			return err
		}
		r.origin = origin
		return nil
	}
	ttl, ok := parseTTL(e.words[1])
	if !ok {
		return errorAt(e.line, "%.40q is not a TTL", e.words[1].text)
	}
	r.ttl, r.hasTTL, r.fixed = ttl, true, true
	return nil
}

// name returns an absolute name, with the trailing dot.
func (r *reader) name(e *entry, w word) (string, error) {
	name := w.text
	switch {
	case name == "@" && !w.quoted:
		return r.origin, nil
	case !dns.IsFqdn(name) && r.origin == ".":
		name += "."
	case !dns.IsFqdn(name):
		name += "." + r.origin
	}
	if _, ok := dns.IsDomainName(name); !ok || w.quoted {
		return "", errorAt(e.line, "%.80q is not a name", w.text)
	}
	return name, nil
}

// record adds a record: a name unless the line is indented, a TTL and a class in any order, a type,
// and data.
func (r *reader) record(e *entry) error {
	words := e.words
	if !e.indent {
		owner, err := r.name(e, words[0])
		if err != nil {
			return err
		}
		r.owner, words = owner, words[1:]
	}
	if r.owner == "" {
		return errorAt(e.line, "the first record has no name: a line that begins with a blank takes the name of the record before it")
	}
	ttl, hasTTL, hasClass := uint32(0), false, false
	for ; len(words) > 0 && !words[0].quoted; words = words[1:] {
		value, isTTL := parseTTL(words[0])
		isClass, isOurs := class(words[0].text)
		switch {
		case isTTL && !hasTTL:
			ttl, hasTTL = value, true
			continue
		case !isTTL && strings.Trim(words[0].text, "0123456789") == "":
			return errorAt(e.line, "%.40q is not a TTL", words[0].text)
		case isClass && !isOurs:
			return errorAt(e.line, "the class %.20q is not served; there is IN", words[0].text)
		case isClass && !hasClass:
			hasClass = true
			continue
		}
		break
	}
	if len(words) == 0 {
		return errorAt(e.line, "the record has no type")
	}
	typ, ok := typeName(words[0])
	if !ok {
		return errorAt(e.line, "%.40q is not a type of record", words[0].text)
	}
	if len(words) == 1 {
		return errorAt(e.line, "the record of type %s has no value", typ)
	}
	record, err := r.parse(e, typ, words[1:])
	if err != nil {
		return err
	}
	if typ == "SOA" && !hasTTL && !r.hasTTL { // the TTL of all records before there was $TTL (RFC 1035 section 3.3.13)
		minimum := record.Value[strings.LastIndexByte(record.Value, ' ')+1:]
		ttl, hasTTL = parseTTL(word{text: minimum})
	}
	switch {
	case hasTTL && !r.fixed:
		r.ttl, r.hasTTL = ttl, true
	case !hasTTL && r.hasTTL:
		ttl = r.ttl
	case !hasTTL:
		ttl = defaultTTL
	}
	return r.add(e, record, ttl)
}

// parse returns the record with this type and data.
func (r *reader) parse(e *entry, typ string, words []word) (dnsprov.Record, error) {
	if typ == "ALIAS" || typ == "ANAME" {
		if len(words) != 1 {
			return dnsprov.Record{}, errorAt(e.line, "a record of type %s has one host name", typ)
		}
		target, err := r.name(e, words[0])
		if err != nil {
			return dnsprov.Record{}, err
		}
		out := dnsprov.RecordOf(&dns.CNAME{Hdr: dns.RR_Header{Name: dns.CanonicalName(r.owner), Rrtype: dns.TypeCNAME}, Target: target})
		out.Type = typ
		return out, nil
	}
	var data strings.Builder
	for i, w := range words {
		if i > 0 {
			data.WriteByte(' ')
		}
		data.WriteString(w.String())
	}
	rr, err := dnsprov.ParseRR(r.owner, typ, data.String(), r.origin, 0)
	if err != nil {
		return dnsprov.Record{}, errorAt(e.line, "%s", err)
	}
	return dnsprov.RecordOf(rr), nil
}

// add adds a record to its set.
func (r *reader) add(e *entry, record dnsprov.Record, ttl uint32) error {
	r.count++
	if r.count > MaxRecords {
		return errorAt(e.line, "the file has more than %d records", MaxRecords)
	}
	key := dnsprov.Set{Name: record.Name, Type: record.Type}
	at, known := r.at[key]
	if !known {
		at = len(r.sets)
		r.at[key] = at
		r.sets = append(r.sets, Set{Name: record.Name, Type: record.Type, TTL: ttl, Line: e.line})
	}
	set := &r.sets[at]
	set.TTL = min(set.TTL, ttl)
	if !r.seen[record] {
		r.seen[record] = true
		set.Records = append(set.Records, record)
	}
	return nil
}

// finished returns the sets. Their records get the TTLs of the sets.
func (r *reader) finished() []Set {
	for _, set := range r.sets {
		for i := range set.Records {
			set.Records[i].TTL = set.TTL
		}
	}
	return r.sets
}

// parseTTL parses a TTL: a number of seconds, or numbers with units, as in 1h30m.
func parseTTL(w word) (seconds uint32, ok bool) {
	if w.quoted || w.text == "" {
		return 0, false
	}
	if n, err := strconv.ParseUint(w.text, 10, 32); err == nil {
		return uint32(n), n <= dnsprov.MaxTTL
	}
	total, rest := uint64(0), strings.ToLower(w.text)
	for rest != "" {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.ParseUint(rest[:digits], 10, 32)
		if err != nil || digits == len(rest) {
			return 0, false
		}
		unit := map[byte]uint64{'s': 1, 'm': 60, 'h': 3600, 'd': 86400, 'w': 604800}[rest[digits]]
		total += n * unit
		if unit == 0 || total > dnsprov.MaxTTL {
			return 0, false
		}
		rest = rest[digits+1:]
	}
	return uint32(total), true
}

// class reports whether a word is a class, and whether it is IN.
func class(text string) (isClass, isIN bool) {
	switch strings.ToUpper(text) {
	case "IN", "CLASS1":
		return true, true
	case "CH", "CHAOS", "HS", "HESIOD", "CS", "ANY", "NONE":
		return true, false
	}
	number, ok := strings.CutPrefix(strings.ToUpper(text), "CLASS")
	_, err := strconv.ParseUint(number, 10, 16)
	return ok && err == nil, false
}

// typeName returns a type in the form of Record.Type. ok is false if it is not known, or not the
// type of a record in a zone (RFC 6895 section 3.1).
func typeName(w word) (name string, ok bool) {
	if w.quoted {
		return "", false
	}
	name = strings.ToUpper(w.text)
	if name == "ALIAS" || name == "ANAME" {
		return name, true
	}
	number, known := dnsprov.TypeNumber(name)
	const firstMeta, lastMeta, reserved = 128, 255, 65535 // QTYPEs and Meta-TYPEs
	if !known || number == 0 || number == dns.TypeOPT || number >= firstMeta && number <= lastMeta || number == reserved {
		return "", false
	}
	return dns.Type(number).String(), true
}
