package dnsprov

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/miekg/dns"
)

// CustomTypes lists the types of the records that a domain's owner may add.
var CustomTypes = []string{"A", "AAAA", "CNAME", "TXT", "MX", "NS", "SRV", "CAA", "TLSA", "SSHFP", "HTTPS", "SVCB", "DS"}

// CustomSet returns the records of one set, with normalized values, from the values that the
// domain's owner enters. The name must be in the form of Record.Name, and the type one of
// CustomTypes. Values are in the notation of zone files, with these differences: host names are
// whole names, with or without the last dot, and "@" is the domain; a text has quotes or not. A
// value that is given twice makes one record. CustomSet does not look at other sets. Its errors are
// shown to the owner.
func CustomSet(domain, name, typ string, ttl uint32, values []string) ([]Record, error) {
	wildcard := strings.HasPrefix(name, "*.")
	switch {
	case !slices.Contains(CustomTypes, typ):
		return nil, fmt.Errorf("there are no records of type %.20s here; use one of %s", typ, strings.Join(CustomTypes, ", "))
	case len(values) == 0:
		return nil, errors.New("has no values")
	case ttl > MaxTTL:
		return nil, fmt.Errorf("has a TTL of more than %d seconds", MaxTTL)
	case typ == "DS" && name == domain:
		return nil, errors.New("the DS records of the domain itself belong in the zone above it: enter them at the registrar")
	case wildcard && (typ == "NS" || typ == "DS"):
		return nil, errors.New("a wildcard cannot be delegated (RFC 4592 section 4.2)")
	}
	out := make([]Record, 0, len(values))
	seen := map[Record]bool{}
	for i, given := range values {
		r := Record{Name: name, Type: typ, TTL: ttl, Purpose: PurposeCustom}
		if err := r.setCustomValue(strings.TrimSpace(given), domain); err != nil {
			return nil, &ValueError{i, err}
		}
		if !seen[r] {
			seen[r] = true
			out = append(out, r)
		}
	}
	nowhere := func(r Record) bool { return r.Value == "." }
	switch {
	case typ == "CNAME" && len(out) > 1:
		return nil, errors.New("a name has at most one CNAME (RFC 1034 section 3.6.2)")
	case typ == "CNAME" && out[0].Value == name:
		return nil, errors.New("points to the record itself")
	case typ == "MX" && len(out) > 1 && slices.ContainsFunc(out, nowhere):
		return nil, errors.New("an MX with the host . says that the name takes no mail, so it must be the only one (RFC 7505 section 3)")
	}
	return out, nil
}

// A ValueError says which value of a set is wrong, and what is wrong with it.
type ValueError struct {
	Index int // among the values as they were given
	Err   error
}

// Error returns what is wrong.
func (e *ValueError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *ValueError) Unwrap() error { return e.Err }

// setCustomValue sets the data of a custom record from the value that the owner enters.
func (r *Record) setCustomValue(value, domain string) (err error) {
	fields := strings.Fields(value)
	switch r.Type {
	case "A", "AAAA":
		r.Value, err = addressValue(r.Type, value)
	case "TXT":
		r.Value, err = textValue(value)
		if strings.HasPrefix(r.Value, `"`) { // as RecordOf writes it
			r.Value = QuoteText(r.Value)
		}
	case "CNAME", "NS":
		r.Value, err = targetName(value, domain)
	case "MX":
		var numbers []uint64
		numbers, err = numberFields(fields, 2, "a priority and a host, as in 10 mail.example.com", 16)
		if err != nil {
			return err
		}
		r.Priority, r.Value = uint16(numbers[0]), fields[1]
		if r.Value == "." && r.Priority == 0 { // the name takes no mail (RFC 7505)
			return nil
		}
		r.Value, err = targetName(r.Value, domain)
	case "SRV":
		var numbers []uint64
		numbers, err = numberFields(fields, 4, "a priority, a weight, a port and a host, as in 0 1 443 www.example.com", 16, 16, 16)
		if err != nil {
			return err
		}
		r.Priority, r.Weight, r.Port, r.Value = uint16(numbers[0]), uint16(numbers[1]), uint16(numbers[2]), fields[3]
		if r.Value == "." { // there is no such service (RFC 2782)
			return nil
		}
		r.Value, err = targetName(r.Value, domain)
	case "CAA":
		r.Value, err = authorityValue(value)
	case "TLSA": // RFC 6698 section 2.1.3
		r.Value, err = digestValue(fields, "a usage, a selector, a matching type and hex digits", map[uint64]int{1: 32, 2: 64}, 8, 8, 8)
	case "SSHFP": // RFC 4255 section 3.1.2, RFC 6594
		r.Value, err = digestValue(fields, "an algorithm, a fingerprint type and hex digits", map[uint64]int{1: 20, 2: 32}, 8, 8)
	case "DS": // RFC 4034 section 5.1.3, RFC 4509, RFC 5933, RFC 6605
		r.Value, err = digestValue(fields, "a key tag, an algorithm, a digest type and hex digits", map[uint64]int{1: 20, 2: 32, 3: 32, 4: 48}, 16, 8, 8)
	case "HTTPS", "SVCB":
		return r.setServiceBinding(value, domain)
	}
	return err
}

// numberFields parses the first fields of a value, which are numbers of these sizes in bits. The
// value must have count fields; what says which.
func numberFields(fields []string, count int, what string, bits ...int) ([]uint64, error) {
	out := make([]uint64, len(bits))
	none := fmt.Errorf("%.80q is not %s", strings.Join(fields, " "), what)
	if len(fields) != count {
		return nil, none
	}
	for i, size := range bits {
		n, err := strconv.ParseUint(fields[i], 10, size)
		if err != nil {
			return nil, none
		}
		out[i] = n
	}
	return out, nil
}

// digestValue returns the value of a record that has numbers of these sizes in bits and then hex
// digits, which may have spaces between them. sizes has the lengths of the digests in bytes, by the
// last of the numbers.
func digestValue(fields []string, what string, sizes map[uint64]int, bits ...int) (string, error) {
	if len(fields) > len(bits) {
		fields = append(slices.Clone(fields[:len(bits)]), strings.Join(fields[len(bits):], ""))
	}
	numbers, err := numberFields(fields, len(bits)+1, what, bits...)
	if err != nil {
		return "", err
	}
	digits := strings.ToLower(fields[len(bits)])
	data, err := hex.DecodeString(digits)
	size, known := sizes[numbers[len(numbers)-1]]
	switch {
	case err != nil || len(digits) > maxText:
		return "", fmt.Errorf("%.80q are not hex digits", digits)
	case known && len(data) != size:
		return "", fmt.Errorf("has %d hex digits; a digest of this type has %d", len(digits), 2*size)
	}
	var b strings.Builder
	for _, n := range numbers {
		fmt.Fprintf(&b, "%d ", n)
	}
	return b.String() + digits, nil
}

// authorityValue returns the value of a CAA record: flags, tag and quoted value (RFC 8659 section
// 4.1.1).
func authorityValue(given string) (string, error) {
	number, rest := cutWord(given)
	tag, quoted := cutWord(rest)
	tag = strings.ToLower(tag)
	value := unquote(quoted)
	flags, err := strconv.ParseUint(number, 10, 8)
	notWord := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }
	notPlain := func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }
	switch {
	case err != nil || tag == "" || len(tag) > 15 || strings.ContainsFunc(tag, notWord) || quoted == "":
		return "", fmt.Errorf(`%.80q is not flags, a tag and a value, as in 0 issue "letsencrypt.org"`, given)
	case strings.ContainsFunc(value, notPlain) || len(value) > maxText:
		return "", errors.New("a CAA record has a value of printable ASCII without quotes and backslashes")
	}
	return fmt.Sprintf(`%d %s "%s"`, flags, tag, value), nil
}

// cutWord splits a text after its first word.
func cutWord(s string) (word, rest string) {
	at := strings.IndexAny(s, " \t")
	if at < 0 {
		return s, ""
	}
	return s[:at], strings.Trim(s[at:], " \t")
}

// setServiceBinding sets the data of an HTTPS or SVCB record: a priority, a target and parameters
// (RFC 9460 section 2.1).
func (r *Record) setServiceBinding(given, domain string) error {
	none := fmt.Errorf(`%.80q is not a priority, a target and parameters, as in 1 . alpn="h2,h3"`, given)
	priority, rest := cutWord(given)
	target, params := cutWord(rest)
	if target != "." { // a dot is the name of the record itself
		var err error
		target, err = targetName(target, domain)
		if err != nil {
			return err
		}
	}
	if len(given) > maxText || hasSyntax(params) {
		return none
	}
	written := Record{Name: r.Name, Type: r.Type, Value: priority + " " + target + " " + params}
	rr, err := written.RR()
	if err != nil {
		return none
	}
	binding, ok := rr.(*dns.SVCB)
	if !ok {
		binding = &rr.(*dns.HTTPS).SVCB
	}
	if err := checkParams(binding); err != nil {
		return err
	}
	r.Value = RecordOf(rr).Value
	again, err := r.RR()
	if err != nil || RecordOf(again).Value != r.Value {
		return none
	}
	return nil
}

// hasSyntax reports whether a text has characters outside of quotes that a zone file would not take
// for data.
func hasSyntax(text string) bool {
	quoted, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ';' || c == '(' || c == ')'), unicode.IsControl(c):
			return true
		}
	}
	return quoted || escaped
}

// checkParams returns an error if the parameters of an HTTPS or SVCB record contradict each other
// (RFC 9460 sections 7.1.1 and 8).
func checkParams(rr *dns.SVCB) error {
	has := map[dns.SVCBKey]bool{}
	for _, p := range rr.Value {
		has[p.Key()] = true
	}
	for _, p := range rr.Value {
		key := p.Key()
		switch {
		case key == dns.SVCB_NO_DEFAULT_ALPN && !has[dns.SVCB_ALPN]:
			return errors.New("the parameter no-default-alpn needs alpn")
		case key != dns.SVCB_NO_DEFAULT_ALPN && key <= dns.SVCB_DOHPATH && p.String() == "":
			return fmt.Errorf("the parameter %s needs a value", key)
		}
		mandatory, ok := p.(*dns.SVCBMandatory)
		if !ok {
			continue
		}
		for _, needed := range mandatory.Code {
			if needed == dns.SVCB_MANDATORY || !has[needed] {
				return fmt.Errorf("the parameter mandatory names %s, which is not among the other parameters", needed)
			}
		}
	}
	return nil
}
