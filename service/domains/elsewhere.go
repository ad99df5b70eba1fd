package domains

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/idn"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Limits of sending places. A network with fewer bits than these probably has several owners.
const (
	minBitsIPv4      = 24
	minBitsIPv6      = 48
	maxSendingPlaces = 20 // of one domain
)

// A SendingPlace is another host or network that sends mail of a domain, with the selector of the
// DKIM key with which it signs.
type SendingPlace struct {
	Host     *string `json:"host" words:"ours" example:"out.example.net"` // A host name; its A and AAAA records are the addresses. Null if network is set.
	Network  *string `json:"network" words:"ours"`                        // A network; null if host is set.
	Selector string  `json:"selector" words:"ours" example:"s1"`          // The selector of the DKIM key that it signs with.
}

// A SendingPlaceIn is a SendingPlace in a request. Either host or network is set.
type SendingPlaceIn struct {
	Host     string `json:"host" max:"253" example:"out.example.net" log:"true"`        // A host name; its A and AAAA records are the addresses. Give either host or network.
	Network  string `json:"network" max:"64" log:"true"`                                // A network, at least /24 of IPv4 or /48 of IPv6. Give either network or host.
	Selector string `json:"selector" max:"253" required:"true" example:"s1" log:"true"` // The selector of the DKIM key that it signs with.
}

// parseSendingPlaces validates and normalizes sending places. It removes duplicates.
func parseSendingPlaces(list []SendingPlaceIn) ([]store.SendingPlace, error) {
	if len(list) > maxSendingPlaces {
		return nil, core.Invalid("sends_elsewhere", "too_many_items", "must have at most %d items", maxSendingPlaces)
	}
	var out []store.SendingPlace
	for _, in := range list {
		selector, ok := idn.Host(in.Selector)
		if !ok {
			return nil, core.Invalid("sends_elsewhere", "invalid", "needs the selector of a DKIM key for each place, such as s1; %q is none", in.Selector)
		}
		place := store.SendingPlace{Selector: selector}
		switch {
		case (in.Host == "") == (in.Network == ""):
			return nil, core.Invalid("sends_elsewhere", "invalid", "needs either host or network for each place")
		case in.Host != "":
			host, ok := idn.WholeHost(in.Host)
			if !ok {
				return nil, core.Invalid("sends_elsewhere", "invalid", "has %q, which is no host name; give an address as a network, such as 192.0.2.7/32", in.Host)
			}
			place.Host = host
		default:
			network, err := parseNetwork(in.Network)
			if err != nil {
				return nil, err
			}
			place.Network = network.String()
		}
		if !slices.Contains(out, place) {
			out = append(out, place)
		}
	}
	return out, nil
}

// parseNetwork parses a network in CIDR notation. It refuses networks that are too large.
func parseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if err != nil || network.Addr().Is4In6() {
		return network, core.Invalid("sends_elsewhere", "invalid", "has %q, which is no network; write it as 192.0.2.0/24 or 2001:db8::/48", text)
	}
	if widest := map[bool]int{true: minBitsIPv4, false: minBitsIPv6}[network.Addr().Is4()]; network.Bits() < widest {
		return network, core.Invalid("sends_elsewhere", "invalid", "has %s, which is too wide: a network has at least /%d for IPv4 and /%d for IPv6", text, minBitsIPv4, minBitsIPv6)
	}
	return network.Masked(), nil
}

// checkSelectors returns an error if a sending place has the selector of one of this server's own
// keys: mail with a signature by this key was sent from here.
func checkSelectors(d *store.Domain, places []store.SendingPlace) error {
	for _, place := range places {
		if slices.ContainsFunc(d.DKIM, func(k store.DKIMKey) bool { return strings.EqualFold(k.Selector, place.Selector) }) {
			return core.Invalid("sends_elsewhere", "not_allowed", "has the selector %s, which is of this server's own key; give the one by which the other server signs", place.Selector)
		}
	}
	return nil
}

// sendingPlacesOut returns sending places in the form of the API.
func sendingPlacesOut(list []store.SendingPlace) []SendingPlace {
	out := make([]SendingPlace, len(list))
	for i, p := range list {
		out[i] = SendingPlace{Host: core.OrNull(p.Host), Network: core.OrNull(p.Network), Selector: p.Selector}
	}
	return out
}
