package dnsprov

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// matches reports whether the values found do what w wants.
func matches(w Record, wanted []Record, values []string) bool {
	switch {
	case w.Purpose == PurposeSPF:
		return len(values) == 1 && authorizes(values[0], w)
	case w.Purpose == PurposeDMARC, w.Purpose == PurposeDKIM:
		return len(values) == 1 && hasTags(values[0], w.Value, w.Purpose)
	case w.Type == "MX":
		return preferred(w, values)
	case w.Type == "A" || w.Type == "AAAA":
		return reaches(w, wanted, values)
	}
	return slices.ContainsFunc(values, func(v string) bool {
		return Record{Type: w.Type, Value: v}.value() == w.value()
	})
}

// preferred reports whether mail goes to our host first: it is there with our priority, and nobody else's host comes
// before or beside it (RFC 5321 section 5.1).
func preferred(w Record, values []string) bool {
	ours := false
	for _, v := range values {
		pref, host, _ := strings.Cut(v, " ")
		priority, err := strconv.ParseUint(pref, 10, 16)
		if err != nil {
			return false
		}
		switch {
		case host != w.value() && uint16(priority) <= w.Priority:
			return false
		case host == w.value() && uint16(priority) == w.Priority:
			ours = true
		}
	}
	return ours
}

// reaches reports whether at least one of the addresses found is wanted at that name.
func reaches(w Record, wanted []Record, values []string) bool {
	return slices.ContainsFunc(wanted, func(o Record) bool {
		return o.Type == w.Type && o.Name == w.Name && slices.Contains(values, o.value())
	})
}

// isSPF reports whether a text is an SPF record: the version, then a space or nothing (RFC 7208 section 4.5).
func isSPF(text string) bool {
	version, _, _ := strings.Cut(text, " ")
	return strings.EqualFold(version, "v=spf1")
}

// isDMARC reports whether a text is a DMARC record (RFC 7489 section 6.3: the version comes first).
func isDMARC(text string) bool {
	version, _, _ := strings.Cut(text, ";")
	return strings.EqualFold(squeeze(version), "v=DMARC1")
}

// authorizes reports whether the SPF record there lets our host send: it passes the domain's MX, which is our host, or
// each address that our own record w names. Whatever else it allows is the owner's choice.
func authorizes(there string, w Record) bool {
	var passed []netip.Prefix
	for _, term := range strings.Fields(strings.ToLower(there))[1:] {
		term = strings.TrimPrefix(term, "+")
		if strings.TrimLeft(term, "-~?") == "all" {
			break // nothing after it is looked at (RFC 7208 section 5.1)
		}
		if term == "mx" || term == "mx:"+w.Name {
			return true
		}
		if p, ok := spfPrefix(term); ok {
			passed = append(passed, p)
		}
	}
	ours := 0
	for _, term := range strings.Fields(w.Value) {
		p, ok := spfPrefix(term)
		if !ok {
			continue
		}
		ours++
		if !slices.ContainsFunc(passed, func(there netip.Prefix) bool { return there.Contains(p.Addr()) }) {
			return false
		}
	}
	return ours > 0
}

// spfPrefix reads an ip4 or ip6 mechanism without a qualifier (RFC 7208 section 5.6).
func spfPrefix(term string) (netip.Prefix, bool) {
	kind, value, _ := strings.Cut(term, ":")
	if kind != "ip4" && kind != "ip6" {
		return netip.Prefix{}, false
	}
	p, err := netip.ParsePrefix(value)
	if err == nil {
		return p, true
	}
	ip, err := netip.ParseAddr(value)
	if err != nil {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(ip, ip.BitLen()), true
}

// hasTags reports whether every tag of ours is there with our value (RFC 6376 section 3.2). Tags that are not ours, as
// a report address, do no harm. In a DKIM record v and k may be absent (section 3.6.1).
func hasTags(there, ours, purpose string) bool {
	got, well := tags(there)
	want, _ := tags(ours)
	if purpose == PurposeDKIM {
		setDefault(got, "v", "DKIM1")
		setDefault(got, "k", "rsa")
		setDefault(want, "k", "rsa")
	}
	for name, value := range want {
		have, ok := got[name]
		if purpose == PurposeDMARC {
			ok = ok && strings.EqualFold(have, value) // p=Reject is p=reject; a DKIM key is base64
		} else {
			ok = ok && have == value
		}
		if !ok {
			return false
		}
	}
	return well
}

func setDefault(m map[string]string, name, value string) {
	if _, ok := m[name]; !ok {
		m[name] = value
	}
}

// tags splits a tag list; white space does not count. It reports whether the list is well formed.
func tags(text string) (map[string]string, bool) {
	out, well := make(map[string]string), true
	for part := range strings.SplitSeq(squeeze(text), ";") {
		if part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		_, twice := out[name]
		well = well && ok && !twice
		out[name] = value
	}
	return out, well
}

// squeeze takes all white space out of a text.
func squeeze(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text)
}
