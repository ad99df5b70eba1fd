package servicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// Errors of an edge provider.
var (
	ErrCredential = dnsprov.ErrCredential
	ErrNoAnswer   = errors.New("edge provider: no answer")
	ErrChanged    = dnsprov.ErrChanged
)

// EdgeWait is the error of an edge provider that limits the rate of requests.
type EdgeWait = dnsprov.Wait

// An Edge is a fake of Cloudflare's DNS in memory, and under the name hetzner of a provider that
// cannot mark records, whose records have their Key as ID. It refuses to change records that do not
// have the mark of the domain that asks. It can fail at any call; changes made before that remain.
type Edge struct {
	mu      sync.Mutex
	zones   map[string][]edgeRecord
	next    int
	Tokens  map[string]string // permissions by token: edit, read
	Lossy   bool              // the provider drops marks
	Reads   int
	Changes int                     // how many single changes were made
	Bad     []string                // forbidden changes that were attempted
	Silent  bool                    // the provider does not answer which zone a domain is in
	Takes   bool                    // changes of records of others are allowed, because the request has replace
	Meddle  func(call string) error // called before each "check", "zone", "records", "apply" and "change", and as "applied" after all changes; the provider returns its error
}

type edgeRecord struct {
	dnsprov.Record
	mark string
	key  string // of the Record
}

func newEdgeRecord(r dnsprov.Record, mark string) edgeRecord { return edgeRecord{r, mark, r.Key()} }

// EdgeToken is a token that a new Edge accepts.
const EdgeToken = "edge-token"

// NewEdge returns an edge provider with empty zones.
func NewEdge(zones ...string) *Edge {
	e := &Edge{zones: map[string][]edgeRecord{}, Tokens: map[string]string{EdgeToken: "edit"}}
	for _, z := range zones {
		e.zones[z] = nil
	}
	return e
}

// With returns a function that changes a configuration so that it uses this edge provider. It also
// calls more, if that is not nil.
func (e *Edge) With(more func(*core.Config)) func(*core.Config) {
	return func(c *core.Config) {
		c.DNS = map[string]core.OpenDNS{}
		for _, provider := range []string{store.DomainProviderCloudflare, store.DomainProviderHetzner} {
			c.DNS[provider] = func(a core.DNSAccess) (dnsprov.Provider, error) {
				if provider == store.DomainProviderHetzner {
					return &edgeSession{e, a.Secrets["token"], true}, nil
				}
				return &markingSession{edgeSession{e, a.Secrets["token"], false}}, nil
			}
		}
		if more != nil {
			more(c)
		}
	}
}

// Set changes fields of the edge provider under its lock.
func (e *Edge) Set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

// AddZone adds an empty zone.
func (e *Edge) AddZone(name string) { e.Set(func() { e.zones[name] = nil }) }

// DropZone deletes a zone.
func (e *Edge) DropZone(name string) { e.Set(func() { delete(e.zones, name) }) }

// Add adds a record that Mailstead has not made. The value of an MX begins with its priority.
func (e *Edge) Add(zone, typ, name, value string) {
	r := dnsprov.Record{Name: name, Type: typ, Value: value, TTL: 300}
	if typ == "MX" {
		pref, host, _ := strings.Cut(value, " ")
		n, _ := strconv.Atoi(pref) // always a number in tests
		r.Priority, r.Value = uint16(n), host
	}
	e.Set(func() { e.add(zone, newEdgeRecord(r, "")) })
}

func (e *Edge) add(zone string, r edgeRecord) edgeRecord {
	e.next++
	r.ID = "r" + strconv.Itoa(e.next)
	e.zones[zone] = append(e.zones[zone], r)
	return r
}

// Remove deletes all records of a type at a name, even those that Mailstead has not made.
func (e *Edge) Remove(zone, typ, name string) {
	e.Set(func() {
		e.zones[zone] = slices.DeleteFunc(e.zones[zone], func(r edgeRecord) bool { return r.Type == typ && r.Name == name })
	})
}

// Keep returns a function that brings the zones back to what they are now.
func (e *Edge) Keep() (restore func()) {
	kept := map[string][]edgeRecord{}
	e.Set(func() {
		for zone, records := range e.zones {
			kept[zone] = slices.Clone(records)
		}
	})
	return func() {
		e.Set(func() {
			for zone, records := range kept {
				e.zones[zone] = slices.Clone(records)
			}
		})
	}
}

// Ours lists the records in a zone that Mailstead has made, as "TYPE name value", sorted.
func (e *Edge) Ours(zone string) []string {
	return e.list(zone, func(r edgeRecord) bool { return r.mark != "" })
}

// Strangers lists the records in a zone that Mailstead has not made; see Ours.
func (e *Edge) Strangers(zone string) []string {
	return e.list(zone, func(r edgeRecord) bool { return r.mark == "" })
}

func (e *Edge) list(zone string, which func(edgeRecord) bool) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := []string{}
	for _, r := range e.zones[zone] {
		if !which(r) {
			continue
		}
		value := r.Value
		if r.Type == "MX" {
			value = fmt.Sprintf("%d %s", r.Priority, value)
		}
		out = append(out, fmt.Sprintf("%s %s %s", r.Type, r.Name, value))
	}
	slices.Sort(out)
	return out
}

type edgeSession struct {
	*Edge
	token   string
	byValue bool // it marks no records
}

// A markingSession is a session at Cloudflare, which knows whether it serves a zone.
type markingSession struct{ edgeSession }

// Delegated reports that every zone is served.
func (*markingSession) Delegated(context.Context, string) (bool, error) { return true, nil }

// begin calls Meddle, checks the token, and returns the zone of a domain. The caller holds the
// lock.
func (e *edgeSession) begin(call, right, domain string) (zone string, err error) {
	if err := e.meddle(call); err != nil {
		return "", err
	}
	may := e.Tokens[e.token]
	if may == "" || right == "edit" && may != "edit" {
		return "", fmt.Errorf("%s: %w", call, dnsprov.ErrCredential)
	}
	for zone = domain; zone != ""; _, zone, _ = strings.Cut(zone, ".") {
		if _, ok := e.zones[zone]; ok {
			return zone, nil
		}
	}
	return "", dnsprov.ErrZoneNotFound
}

// meddle calls Meddle without the lock, so that it may call methods of the Edge.
func (e *edgeSession) meddle(call string) error {
	if e.Meddle == nil {
		return nil
	}
	meddle := e.Meddle
	e.mu.Unlock()
	defer e.mu.Lock()
	return meddle(call)
}

// Check returns ErrCredential for an unknown token.
func (e *edgeSession) Check(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.meddle("check"); err != nil {
		return err
	}
	if e.Tokens[e.token] == "" {
		return dnsprov.ErrCredential
	}
	return nil
}

// FindZone implements dnsprov.Provider.
func (e *edgeSession) FindZone(ctx context.Context, domain string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Silent {
		e.mu.Unlock()
		<-ctx.Done()
		e.mu.Lock()
		return "", ctx.Err()
	}
	return e.begin("zone", "read", domain)
}

// Records implements dnsprov.Provider.
func (e *edgeSession) Records(_ context.Context, at dnsprov.ZoneRef) ([]dnsprov.Record, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	zone, err := e.begin("records", "read", at.Domain)
	if err != nil {
		return nil, err
	}
	e.Reads++
	var out []dnsprov.Record
	for _, r := range e.zones[zone] {
		if r.Name != at.Domain && !strings.HasSuffix(r.Name, "."+at.Domain) {
			continue
		}
		if r.mark != at.OwnerTag || e.Lossy || e.byValue {
			r.Purpose = ""
		}
		if e.byValue {
			r.ID = r.key
		}
		out = append(out, r.Record)
	}
	return out, nil
}

// Apply implements dnsprov.Provider.
func (e *edgeSession) Apply(_ context.Context, at dnsprov.ZoneRef, changes []dnsprov.Change) ([]dnsprov.Record, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	zone, err := e.begin("apply", "edit", at.Domain)
	if err != nil {
		return nil, err
	}
	var made []dnsprov.Record
	for _, c := range changes {
		if err := e.meddle("change"); err != nil {
			return made, err
		}
		r, err := e.change(zone, at, c)
		if err != nil {
			return made, err
		}
		if r != nil {
			made = append(made, *r)
		}
	}
	return made, e.meddle("applied")
}

func (e *edgeSession) change(zone string, at dnsprov.ZoneRef, c dnsprov.Change) (*dnsprov.Record, error) {
	records := e.zones[zone]
	if c.Op == dnsprov.Create {
		key := c.Want.Key()
		for _, h := range records {
			if h.key == key {
				found := e.answer(h)
				if h.mark != at.OwnerTag {
					found.Purpose = ""
				}
				return found, nil
			}
			if h.Name == c.Want.Name && (h.Type == "CNAME" || c.Want.Type == "CNAME") {
				return nil, &dnsprov.Conflict{Have: h.Record, Want: *c.Want}
			}
		}
		e.Changes++
		made := newEdgeRecord(*c.Want, at.OwnerTag)
		if c.Want.Purpose == "" {
			made.mark = ""
		}
		return e.answer(e.add(zone, made)), nil
	}
	i := slices.IndexFunc(records, func(r edgeRecord) bool { return r.ID == c.Have.ID || e.byValue && r.key == c.Have.ID })
	switch {
	case i < 0 && c.Op == dnsprov.Delete:
		return nil, nil
	case i < 0:
		return nil, errors.New("edge provider: the record does not exist")
	case records[i].mark != at.OwnerTag && !e.Takes:
		e.Bad = append(e.Bad, fmt.Sprintf("%s of %s %s", c.Op, records[i].Type, records[i].Name))
		return nil, errors.New("edge provider: the record belongs to another domain")
	}
	e.Changes++
	if c.Op == dnsprov.Delete {
		e.zones[zone] = slices.Delete(records, i, i+1)
		return nil, nil
	}
	id := records[i].ID
	records[i] = newEdgeRecord(*c.Want, at.OwnerTag)
	records[i].ID = id
	return e.answer(records[i]), nil
}

// answer returns a record as the provider answers it.
func (e *edgeSession) answer(r edgeRecord) *dnsprov.Record {
	if e.byValue {
		r.ID = r.key
	}
	return &r.Record
}
