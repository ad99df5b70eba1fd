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
	maxDepth       = 5   // maximum depth of nested entities
	maxNameservers = 32  // further nameservers are ignored
	maxStatus      = 32  // further status values are ignored
	maxText        = 200 // maximum length of a text in characters

	objectClass   = "domain"
	roleRegistrar = "registrar"
	ianaIDType    = "ianaregistrarid" // "IANA Registrar ID" in lower case without spaces
)

// A Domain is what the registry's RDAP server says about a domain.
type Domain struct {
	Name         string    // ASCII, lower-case, as requested
	Registrar    string    // the registrar's name, or else its handle; "" if unknown
	IANAID       string    // the registrar's ID at IANA, such as 1910; "" if unknown
	Nameservers  []string  // ASCII, lower-case, without the trailing dot, sorted
	Status       []string  // lower-case, such as "client hold" (RFC 8056)
	RegisteredAt time.Time // zero if unknown
	ExpiresAt    time.Time // zero if unknown
}

// A domainObject is the JSON object about a domain (RFC 9083 §5.3). Some servers send a single
// value instead of a list, or a number instead of a string. The types text and listOrOne accept
// both.
type domainObject struct {
	Class       text             `json:"objectClassName"`
	LDHName     text             `json:"ldhName"`
	UnicodeName text             `json:"unicodeName"`
	Status      listOrOne[text]  `json:"status"`
	Events      listOrOne[event] `json:"events"`
	Nameservers listOrOne[host]  `json:"nameservers"`
	Entities    json.RawMessage  `json:"entities"`
}

// A host is a nameserver of a domainObject.
type host struct {
	LDHName     text `json:"ldhName"`
	UnicodeName text `json:"unicodeName"`
}

// An event is an event of a domainObject, such as its registration.
type event struct {
	Action text `json:"eventAction"`
	Date   text `json:"eventDate"`
}

// An entity is a person or organization of a domainObject, such as its registrar.
type entity struct {
	Handle    text                `json:"handle"`
	Roles     listOrOne[text]     `json:"roles"`
	PublicIDs listOrOne[publicID] `json:"publicIds"`
	VCard     json.RawMessage     `json:"vcardArray"`
	Entities  json.RawMessage     `json:"entities"` // decoded by findRegistrar, which limits the depth
}

// A publicID is an identifier of an entity, such as its IANA Registrar ID.
type publicID struct {
	Type       text `json:"type"`
	Identifier text `json:"identifier"`
}

// readDomain parses an answer about the domain name. It returns an error if the answer is not a
// domain object, or about another domain.
func readDomain(body []byte, name string) (*Domain, error) {
	var o domainObject
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, fmt.Errorf("the answer is not RDAP: %w", err)
	}
	if !strings.EqualFold(string(o.Class), objectClass) {
		return nil, fmt.Errorf("the answer describes a %.40q, not a domain", string(o.Class))
	}
	if found := hostName(o.LDHName, o.UnicodeName); found != name {
		return nil, fmt.Errorf("the answer is about %.80q, another domain", found)
	}
	d := &Domain{Name: name, Nameservers: []string{}, Status: []string{}}
	for _, ns := range o.Nameservers {
		if found := hostName(ns.LDHName, ns.UnicodeName); isDomainName(found) && len(d.Nameservers) < maxNameservers {
			d.Nameservers = append(d.Nameservers, found)
		}
	}
	slices.Sort(d.Nameservers)
	d.Nameservers = slices.Compact(d.Nameservers)
	for _, s := range o.Status[:min(len(o.Status), maxStatus)] {
		d.Status = append(d.Status, strings.ToLower(cleanText(string(s))))
	}
	for _, e := range o.Events {
		d.addEvent(e)
	}
	if e := findRegistrar(o.Entities, maxDepth); e != nil {
		d.Registrar, d.IANAID = e.name(), e.ianaID()
	}
	return d, nil
}

// addEvent sets the date of registration or expiration from an event. It ignores other events.
func (d *Domain) addEvent(e event) {
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

// parseDate parses a date in the format of RFC 3339, or in another format that servers often use.
func parseDate(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05", time.DateTime, time.DateOnly} {
		if at, err := time.Parse(layout, s); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, errors.New("the date has an unknown format")
}

// findRegistrar returns the first entity with the role registrar, or nil if there is none. It looks
// at the entities in raw, and then at up to depth-1 levels of nested entities.
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

// name returns the formatted name (FN) in the jCard of the entity (RFC 7095 §3.3), or else its
// handle.
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
	return cleanText(string(e.Handle))
}

// formattedName returns the value of a jCard property if the property is FN, or "" otherwise. A
// property is [name, parameters, type, value].
func formattedName(p []json.RawMessage) string {
	var name, value text
	if len(p) < 4 || json.Unmarshal(p[0], &name) != nil || !strings.EqualFold(string(name), "fn") {
		return ""
	}
	_ = json.Unmarshal(p[3], &value) // cannot fail, because text accepts any JSON value
	return cleanText(string(value))
}

// ianaID returns the IANA Registrar ID of the entity, or "" if it has none.
func (e *entity) ianaID() string {
	for _, id := range e.PublicIDs {
		kind := strings.NewReplacer(" ", "", "_", "", "-", "").Replace(strings.ToLower(string(id.Type)))
		if kind == ianaIDType {
			return cleanText(string(id.Identifier))
		}
	}
	return ""
}

// hostName converts a name to ASCII and lower case, without the trailing dot. It uses the Unicode
// form if the ASCII form ldh is "".
func hostName(ldh, unicode text) string {
	if ldh == "" {
		ldh = unicode
	}
	name := strings.ToLower(strings.TrimSuffix(string(ldh), "."))
	if isDomainName(name) || len(name) > 4*maxName {
		return name
	}
	ascii, err := idn.Address(name)
	if err != nil {
		return name
	}
	return ascii
}

// cleanText converts a text of a server to one line of at most maxText characters.
func cleanText(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if runes := []rune(s); len(runes) > maxText {
		s = string(runes[:maxText])
	}
	return s
}

// A text is a JSON string, or a JSON number instead of it. It is "" for other values.
type text string

// UnmarshalJSON accepts any JSON value, and always returns nil.
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

// listOrOne is a JSON list, or a single value instead of a list. Items that cannot be decoded are
// left out.
type listOrOne[T any] []T

// UnmarshalJSON accepts any JSON value, and always returns nil.
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
