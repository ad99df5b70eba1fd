package rdap

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/mailstead/mailstead/mail/idn"
)

const (
	maxDepth       = 5 // nested entities
	maxNameservers = 32
	maxStatus      = 32
	maxText        = 200 // characters of a registrar's name

	objectClass   = "domain"
	roleRegistrar = "registrar"
	ianaIDType    = "ianaregistrarid" // "IANA Registrar ID" without spaces, dashes and case
)

// A Domain is the registry's data about a domain.
type Domain struct {
	Name         string    // ASCII, lower-case, as requested
	Registrar    string    // the registrar's name, or its handle if it has no name; "": unknown
	IANAID       string    // the registrar's number at IANA, such as 1910; "": unknown
	Nameservers  []string  // ASCII, lower-case, without the trailing dot, sorted
	Status       []string  // as in RFC 8056, lower-case
	RegisteredAt time.Time // zero: unknown
	ExpiresAt    time.Time // zero: unknown
}

// A domainObject is an answer about a domain (RFC 9083 §5.3). Some servers send a single value
// instead of a list, or a number instead of a string, so its types accept both.
type domainObject struct {
	Class       text             `json:"objectClassName"`
	LDHName     text             `json:"ldhName"`
	UnicodeName text             `json:"unicodeName"`
	Status      listOrOne[text]  `json:"status"`
	Events      listOrOne[event] `json:"events"`
	Nameservers listOrOne[host]  `json:"nameservers"`
	Entities    json.RawMessage  `json:"entities"`
}

type host struct {
	LDHName     text `json:"ldhName"`
	UnicodeName text `json:"unicodeName"`
}

type event struct {
	Action text `json:"eventAction"`
	Date   text `json:"eventDate"`
}

type entity struct {
	Handle    text                `json:"handle"`
	Roles     listOrOne[text]     `json:"roles"`
	PublicIDs listOrOne[publicID] `json:"publicIds"`
	VCard     json.RawMessage     `json:"vcardArray"`
	Entities  json.RawMessage     `json:"entities"` // decoded only when needed, since entities may be nested without limit
}

type publicID struct {
	Type       text `json:"type"`
	Identifier text `json:"identifier"`
}

// readDomain parses an answer about a domain. It returns an error unless the answer is a domain
// object about name.
func readDomain(body []byte, name string) (*Domain, error) {
	var o domainObject
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, fmt.Errorf("the answer is not RDAP: %w", err)
	}
	if !strings.EqualFold(string(o.Class), objectClass) {
		return nil, fmt.Errorf("the answer describes a %.40q, not a domain", string(o.Class))
	}
	if told := hostName(o.LDHName, o.UnicodeName); told != name {
		return nil, fmt.Errorf("the answer is for %.80q, a different name", told)
	}
	d := &Domain{Name: name, Nameservers: []string{}, Status: []string{}}
	for _, ns := range o.Nameservers {
		if told := hostName(ns.LDHName, ns.UnicodeName); plausible(told) && len(d.Nameservers) < maxNameservers {
			d.Nameservers = append(d.Nameservers, told)
		}
	}
	slices.Sort(d.Nameservers)
	d.Nameservers = slices.Compact(d.Nameservers)
	for _, s := range o.Status[:min(len(o.Status), maxStatus)] {
		d.Status = append(d.Status, strings.ToLower(clean(string(s))))
	}
	for _, e := range o.Events {
		d.note(e)
	}
	if e := findRegistrar(o.Entities, maxDepth); e != nil {
		d.Registrar, d.IANAID = e.name(), e.ianaID()
	}
	return d, nil
}

func (d *Domain) note(e event) {
	at, err := parseDate(string(e.Date))
	if err != nil {
		return
	}
	switch strings.ToLower(string(e.Action)) {
	case "registration":
		d.RegisteredAt = at
	case "expiration":
		d.ExpiresAt = at
	}
}

// parseDate parses a date in RFC 3339, or in other forms that servers often use.
func parseDate(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05", time.DateTime, time.DateOnly} {
		if at, err := time.Parse(layout, s); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, errors.New("no date")
}

// findRegistrar returns the first entity with the registrar role; entities of a higher level come
// first. nil if there is none.
func findRegistrar(raw json.RawMessage, depth int) *entity {
	var all listOrOne[entity]
	if depth == 0 || len(raw) == 0 || json.Unmarshal(raw, &all) != nil {
		return nil
	}
	for i := range all {
		if slices.ContainsFunc(all[i].Roles, func(r text) bool { return strings.EqualFold(string(r), roleRegistrar) }) {
			return &all[i]
		}
	}
	for i := range all {
		if e := findRegistrar(all[i].Entities, depth-1); e != nil {
			return e
		}
	}
	return nil
}

// name returns the name of the entity: the FN of its jCard (RFC 7095 §3.3), or its handle.
func (e *entity) name() string {
	var card []json.RawMessage
	var properties listOrOne[[]json.RawMessage]
	if json.Unmarshal(e.VCard, &card) == nil && len(card) == 2 && json.Unmarshal(card[1], &properties) == nil {
		for _, p := range properties {
			if fn := formattedName(p); fn != "" {
				return fn
			}
		}
	}
	return clean(string(e.Handle))
}

// formattedName returns the value of a jCard property [name, parameters, type, value] if it is the
// FN; "" otherwise.
func formattedName(p []json.RawMessage) string {
	var name, value text
	if len(p) < 4 || json.Unmarshal(p[0], &name) != nil || !strings.EqualFold(string(name), "fn") {
		return ""
	}
	_ = json.Unmarshal(p[3], &value) // text accepts any JSON value
	return clean(string(value))
}

func (e *entity) ianaID() string {
	for _, id := range e.PublicIDs {
		kind := strings.NewReplacer(" ", "", "_", "", "-", "").Replace(strings.ToLower(string(id.Type)))
		if kind == ianaIDType {
			return clean(string(id.Identifier))
		}
	}
	return ""
}

// hostName returns a name in ASCII, lower-case, without the trailing dot; it uses the Unicode form
// if there is no other.
func hostName(ldh, unicode text) string {
	if ldh == "" {
		ldh = unicode
	}
	name := strings.ToLower(strings.TrimSuffix(string(ldh), "."))
	if plausible(name) || len(name) > 4*maxName {
		return name
	}
	ascii, err := idn.Address(name)
	if err != nil {
		return name
	}
	return ascii
}

// clean makes a stranger's text a single line of limited length.
func clean(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if runes := []rune(s); len(runes) > maxText {
		s = string(runes[:maxText])
	}
	return s
}

// A text is a JSON string, or a number in its place. Other values leave it empty.
type text string

// UnmarshalJSON never fails.
func (t *text) UnmarshalJSON(raw []byte) error {
	var s string
	var n json.Number
	if json.Unmarshal(raw, &s) == nil {
		*t = text(s)
	} else if json.Unmarshal(raw, &n) == nil {
		*t = text(n)
	}
	return nil
}

// listOrOne holds the list elements that can be decoded, or a single value in place of a list.
type listOrOne[T any] []T

// UnmarshalJSON never fails.
func (m *listOrOne[T]) UnmarshalJSON(raw []byte) error {
	*m = nil
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		items = []json.RawMessage{raw}
	}
	for _, item := range items {
		var v T
		if string(item) != "null" && json.Unmarshal(item, &v) == nil {
			*m = append(*m, v)
		}
	}
	return nil
}
