package domains

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/mail/spf"
	"github.com/mailstead/mailstead/store"
)

// checkMessage says what to do about a record that is not verified.
func checkMessage(c store.DNSCheck) string {
	text := checkAdvice(c)
	if c.Purpose != dnsprov.PurposeSPF || c.Error == dnsprov.LookupFailed {
		return text
	}
	if n := spf.Lookups(expected(c)); n > spf.MaxLookups {
		text += fmt.Sprintf(" It then takes %d look-ups, of which receivers make %d at most (RFC 7208 section 4.6.4): leave out senders that are not used any more.", n, spf.MaxLookups)
	}
	return text
}

func checkAdvice(c store.DNSCheck) string {
	switch c.Error {
	case dnsprov.Missing:
		return fmt.Sprintf("There is no %s record at %s. Add it with the expected value.", c.Purpose, c.Host)
	case dnsprov.MultipleSPF:
		return fmt.Sprintf("%s has more than one SPF record, so receivers heed none of them. Replace them all by the expected one, which says what they say together.", c.Host)
	case dnsprov.DKIMWrongType:
		return fmt.Sprintf("%s is a CNAME to somewhere else. Replace it by a TXT record with the expected value.", c.Host)
	case dnsprov.LookupFailed:
		return fmt.Sprintf("The %s record at %s could not be looked up yet. It is tried again.", c.Purpose, c.Host)
	}
	if c.Purpose == dnsprov.PurposeMX {
		return mxAdvice(c)
	}
	if c.Offer != "" {
		return fmt.Sprintf("The SPF record at %s does not let this host send. Replace it by the expected one, which keeps the senders that are there.", c.Host)
	}
	return fmt.Sprintf("The %s record at %s is not as expected. Change it to the expected value.", c.Purpose, c.Host)
}

// mxAdvice names the hosts that take a domain's mail before ours, beside it or in its place, or the
// priority that is wrong.
func mxAdvice(c store.DNSCheck) string {
	_, our, _ := strings.Cut(c.Expected, " ")
	var before, after []string
	ours := false
	for mx := range strings.SplitSeq(c.Actual, ", ") {
		priority, host, _ := strings.Cut(mx, " ")
		n, err := strconv.Atoi(priority)
		switch {
		case host == our:
			ours = true
		case host == "":
			return fmt.Sprintf("%s has a null MX, which says that it takes no mail at all (RFC 7505). Replace it by %s.", c.Host, c.Expected)
		case err == nil && n <= int(c.Priority):
			before = append(before, mx)
		default:
			after = append(after, mx)
		}
	}
	switch {
	case ours && len(before) > 0:
		return fmt.Sprintf("Mail for %s goes to others too: %s. Remove that, or give it a number over %d.", c.Host, strings.Join(before, ", "), c.Priority)
	case ours:
		return fmt.Sprintf("The MX record at %s has another priority than %d: there is %s. Change it to %s.", c.Host, c.Priority, c.Actual, c.Expected)
	case len(before) > 0:
		return fmt.Sprintf("Mail for %s goes to others: %s. Replace that by %s.", c.Host, strings.Join(before, ", "), c.Expected)
	}
	return fmt.Sprintf("Mail for %s goes to others: %s. Add %s.", c.Host, strings.Join(after, ", "), c.Expected)
}
