package dnsprov

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/mailstead/mailstead/mail/taglist"
)

// matches reports whether the values found do what w wants.
func matches(w Record, wanted []Record, values []string) bool {
	switch {
	case w.Purpose == PurposeSPF:
		return len(values) == 1 && authorizes(values[0], w)
	case w.Type == "TXT" && (w.Purpose == PurposeDMARC || w.Purpose == PurposeDKIM || w.Purpose == PurposeMTASTS):
		return len(values) == 1 && hasTags(values[0], w.Value, w.Purpose)
	case w.Type == "TXT" && w.Purpose == PurposeTLSRPT:
		if len(values) != 1 {
			return false
		}
		got, wellFormed := tags(values[0]) // reports may go to whoever the owner likes (RFC 8460 section 3)
		return wellFormed && got["rua"] != ""
	case w.Type == "MX":
		return preferred(w, values)
	case w.Type == "SRV":
		return slices.ContainsFunc(values, func(v string) bool { return sameService(v, w) })
	case w.Type == "A" || w.Type == "AAAA":
		return reaches(w, wanted, values)
	}
	return slices.ContainsFunc(values, func(v string) bool {
		return Record{Type: w.Type, Value: v}.value() == w.value()
	})
}

// preferred reports whether mail goes to our host first: it is there with our priority, and nobody
// else's host comes before or beside it (RFC 5321 section 5.1).
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

// sameService reports whether an SRV leads clients to our host and port. Which of several is taken
// first is the owner's choice. v is "priority weight port target".
func sameService(v string, w Record) bool {
	fields := strings.Split(v, " ")
	return len(fields) == 4 && fields[2] == strconv.Itoa(int(w.Port)) && hostName(fields[3]) == w.value()
}

// reaches reports whether at least one of the addresses found is wanted at that name.
func reaches(w Record, wanted []Record, values []string) bool {
	return slices.ContainsFunc(wanted, func(o Record) bool {
		return o.Type == w.Type && o.Name == w.Name && slices.Contains(values, o.value())
	})
}

// isSTS reports whether a text is an MTA-STS record; receivers leave out all others (RFC 8461
// section 3.1).
func isSTS(text string) bool { return strings.HasPrefix(text, "v=STSv1;") || text == "v=STSv1" }

// isTLSRPT reports whether a text is one about TLS reports (RFC 8460 section 3).
func isTLSRPT(text string) bool {
	return strings.HasPrefix(text, "v=TLSRPTv1;") || text == "v=TLSRPTv1"
}

// hasTags reports whether every tag of ours is there with our value (RFC 6376 section 3.2). Tags
// that are not ours, as a report address, do no harm. In a DKIM record v and k may be absent
// (section 3.6.1).
func hasTags(there, ours, purpose string) bool {
	got, well := tags(there)
	want, _ := tags(ours)
	if purpose == PurposeDMARC { // who gets reports does not change the policy
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

// tags splits a tag list; white space does not count, not even inside of values. It reports whether
// the list is well formed.
func tags(text string) (map[string]string, bool) { return taglist.Parse(squeeze(text)) }

// squeeze takes all white space out of a text.
func squeeze(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text)
}
