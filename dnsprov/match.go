package dnsprov

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/taglist"
)

// matches reports whether the published values serve the purpose of the wanted record w. wanted has
// all wanted records of the domain.
func matches(w Record, wanted []Record, values []string) bool {
	switch {
	case w.Accepts == AcceptsPolicy:
		return len(values) == 1 && isPolicy(values[0])
	case w.Accepts != "":
		return w.Accepts == AcceptsAny && len(values) > 0 || slices.ContainsFunc(values, isPublic)
	case w.Purpose == PurposeSPF:
		return len(values) == 1 && authorizes(values[0], w)
	case w.Type == "TXT" && (w.Purpose == PurposeDMARC || w.Purpose == PurposeDKIM || w.Purpose == PurposeMTASTS):
		return len(values) == 1 && hasTags(values[0], w.Value, w.Purpose)
	case w.Type == "TXT" && w.Purpose == PurposeTLSRPT:
		if len(values) != 1 {
			return false
		}
		got, wellFormed := parseTags(values[0]) // any report address will do (RFC 8460 section 3)
		return wellFormed && got["rua"] != ""
	case w.Type == "MX":
		return prefersOurHost(w, values)
	case w.Type == "SRV":
		return slices.ContainsFunc(values, func(v string) bool { return sameService(v, w) })
	case w.Type == "A" || w.Type == "AAAA":
		return hasWantedAddress(w, wanted, values)
	}
	return slices.ContainsFunc(values, func(v string) bool {
		return Record{Type: w.Type, Value: v}.value() == w.value()
	})
}

// prefersOurHost reports whether MX values send mail to our host first: our host is listed with the
// priority of w, and no other host has an equal or better priority (RFC 5321 section 5.1). A value
// is "priority host".
func prefersOurHost(w Record, values []string) bool {
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

// sameService reports whether the SRV value v has the host and port of w. Priority and weight may
// differ. v is "priority weight port target".
func sameService(v string, w Record) bool {
	fields := strings.Split(v, " ")
	return len(fields) == 4 && fields[2] == strconv.Itoa(int(w.Port)) && hostName(fields[3]) == w.value()
}

// hasWantedAddress reports whether at least one of the published addresses is wanted at the name of
// w.
func hasWantedAddress(w Record, wanted []Record, values []string) bool {
	return slices.ContainsFunc(wanted, func(o Record) bool {
		return o.Type == w.Type && o.Name == w.Name && slices.Contains(values, o.value())
	})
}

// isPublic reports whether a text is a public IP address.
func isPublic(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.IsGlobalUnicast() && !ip.IsPrivate()
}

// isPolicy reports whether a text is a DMARC record that receivers use.
func isPolicy(text string) bool {
	_, wellFormed := parseTags(text)
	_, err := dmarc.Parse(text)
	return wellFormed && err == nil
}

// isSTS reports whether a text is an MTA-STS record (RFC 8461 section 3.1).
func isSTS(text string) bool { return strings.HasPrefix(text, "v=STSv1;") || text == "v=STSv1" }

// isTLSRPT reports whether a text is a TLS reporting record (RFC 8460 section 3).
func isTLSRPT(text string) bool {
	return strings.HasPrefix(text, "v=TLSRPTv1;") || text == "v=TLSRPTv1"
}

// hasTags reports whether the published tag list (RFC 6376 section 3.2) has every tag of our list
// with the same value. It may have more tags. A DKIM record may omit v and k (RFC 6376 section
// 3.6.1).
func hasTags(published, ours, purpose string) bool {
	got, wellFormed := parseTags(published)
	want, _ := parseTags(ours)
	if purpose == PurposeDMARC { // the report address does not change the policy
		delete(want, "rua")
	}
	if purpose == PurposeDKIM {
		setDefault(got, "v", "DKIM1")
		setDefault(got, "k", "rsa")
		setDefault(want, "k", "rsa")
	}
	for name, value := range want {
		have, ok := got[name]
		if purpose == PurposeDMARC {
			ok = ok && strings.EqualFold(have, value) // p=Reject equals p=reject
		} else {
			ok = ok && have == value
		}
		if !ok {
			return false
		}
	}
	return wellFormed
}

// HasKey reports whether one of the published texts is a DKIM record with the key of the wanted
// record w.
func HasKey(texts []string, w Record) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return hasTags(text, w.Value, PurposeDKIM) })
}

func setDefault(m map[string]string, name, value string) {
	if _, ok := m[name]; !ok {
		m[name] = value
	}
}

// parseTags parses a tag list after removing all white space, even inside values. It also reports
// whether the list is well formed.
func parseTags(text string) (map[string]string, bool) { return taglist.Parse(removeSpace(text)) }

// removeSpace removes all white space from a text.
func removeSpace(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text)
}
