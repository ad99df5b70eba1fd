package scan

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
)

// Limits of the records of a Result.
const (
	MaxRecords = 10_000
	MaxBytes   = 5 << 20 // of names and values
)

// A harvest is the records that were found at and below a domain, each one once. It is safe for
// concurrent use.
type harvest struct {
	domain string // canonical

	mu      sync.Mutex
	records map[dnsprov.Record]bool // with the TTL that came first
	seen    map[dnsprov.Record]bool // the same without TTLs
	bytes   int                     // of names and values
	full    bool                    // a limit was reached
}

func newHarvest(domain string) *harvest {
	return &harvest{domain: domain, records: map[dnsprov.Record]bool{}, seen: map[dnsprov.Record]bool{}}
}

// add adds records. It leaves out what is not at or below the domain, and what nameservers make
// themselves.
func (h *harvest) add(rrs ...dns.RR) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, rr := range rrs {
		if !dns.IsSubDomain(h.domain, rr.Header().Name) || dnsprov.ServerMakes(rr.Header().Rrtype) {
			continue
		}
		r := dnsprov.RecordOf(rr)
		same := r
		same.TTL = 0
		if h.seen[same] {
			continue
		}
		size := len(r.Name) + len(r.Value)
		if len(h.records) == MaxRecords || h.bytes+size > MaxBytes {
			h.full = true
			return
		}
		h.bytes += size
		h.seen[same], h.records[r] = true, true
	}
}

func (h *harvest) isFull() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.full
}

// sorted returns the records that can be seen: at a delegated name its NS and DS records, and below
// it the addresses of its nameservers (RFC 1034 section 4.2.1).
func (h *harvest) sorted() []dnsprov.Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	domain := strings.TrimSuffix(h.domain, ".")
	hosts := map[string]map[string]bool{} // the nameservers of each delegated name
	for r := range h.records {
		if r.Type == "NS" && r.Name != domain {
			if hosts[r.Name] == nil {
				hosts[r.Name] = map[string]bool{}
			}
			hosts[r.Name][r.Value] = true
		}
	}
	out := make([]dnsprov.Record, 0, len(h.records))
	for r := range h.records {
		top := "" // the highest delegated name that the record is at or below
		for name := r.Name; len(name) > len(domain); name = parentOf(name) {
			if hosts[name] != nil {
				top = name
			}
		}
		switch {
		case top == "", r.Name == top && (r.Type == "NS" || r.Type == "DS"), hosts[top][r.Name] && (r.Type == "A" || r.Type == "AAAA"):
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b dnsprov.Record) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Weight, b.Weight))
	})
	return out
}

// parentOf returns a name without its first label; the root is "." or "".
func parentOf(name string) string {
	next, end := dns.NextLabel(name, 0)
	if end {
		return ""
	}
	return name[next:]
}
