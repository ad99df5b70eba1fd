package dnsprov

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/lookup"
	"github.com/mailstead/mailstead/mail/dmarc"
	"github.com/mailstead/mailstead/mail/spf"
)

// Values of Check.Error, which say why a record is not verified.
const (
	Missing       = "missing"         // there is no such record
	Mismatch      = "mismatch"        // the published value does not serve the purpose
	MultipleSPF   = "multiple_spf"    // there is more than one SPF record, which is an error (RFC 7208 section 4.5)
	DKIMWrongType = "dkim_wrong_type" // the selector has a CNAME instead of a TXT with our key
	LookupFailed  = "lookup_failed"   // the lookup failed, so the state of the record is unknown
)

const (
	verifyTimeout      = 10 * time.Second // for all lookups of one Verify
	maxParallelLookups = 8
)

// Check is the result of looking up one record.
type Check struct {
	Record   Record
	Verified bool
	Actual   string // the published values, joined with ", "; "" if there are none
	Error    string // Missing, Mismatch, MultipleSPF, DKIMWrongType or LookupFailed; "" if verified
	Offer    string // merged SPF record to publish instead of Record.Value; "" if there is none
}

// Verify looks up the wanted records and returns one Check for each, in the same order. The
// published records may differ from the wanted ones if they serve the same purpose (see matches).
// It runs up to 8 lookups in parallel, takes at most 10 seconds, and bypasses the lookup cache.
func Verify(ctx context.Context, r Resolver, wanted []Record) []Check {
	ctx, cancel := context.WithTimeout(lookup.Fresh(ctx), verifyTimeout)
	defer cancel()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		found = make(map[question]answer)
		slots = make(chan struct{}, maxParallelLookups)
		asked = make(map[question]bool)
	)
	for _, w := range wanted {
		q := questionOf(w)
		if asked[q] {
			continue
		}
		asked[q] = true
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			a := lookUp(ctx, r, q)
			mu.Lock()
			defer mu.Unlock()
			found[q] = a
		})
	}
	wg.Wait()
	out := make([]Check, len(wanted))
	for i, w := range wanted {
		out[i] = checkRecord(w, wanted, found[questionOf(w)])
	}
	return out
}

// anyAddress is the type of a question for addresses of both families.
const anyAddress = "address"

// question identifies one lookup. Records with the same question share the lookup.
type question struct{ name, typ, purpose string }

func questionOf(r Record) question {
	q := question{name: hostName(r.Name), typ: r.Type}
	switch {
	case r.Accepts == AcceptsPublic, r.Accepts == AcceptsAny:
		q.typ = anyAddress
	case r.Purpose == PurposeDKIM:
		q.purpose = PurposeDKIM
	}
	return q
}

// answer is the result of a lookup.
type answer struct {
	values []string // in the form of Record.Text
	alias  string   // the target of a CNAME at the name of a DKIM key; "" if there is none
	err    error
}

func lookUp(ctx context.Context, r Resolver, q question) answer {
	values, err := q.values(ctx, r)
	if err != nil && !lookup.IsNotFound(err) {
		return answer{err: err}
	}
	a := answer{values: values}
	if q.purpose == PurposeDKIM {
		alias, err := aliasOf(ctx, r, q.name)
		if err != nil && len(values) == 0 {
			return answer{err: err}
		}
		a.alias = alias
	}
	return a
}

// values looks up q and returns the values in the form of Record.Text.
func (q question) values(ctx context.Context, r Resolver) ([]string, error) {
	fqdn := q.name + "."
	var out []string
	switch q.typ {
	case "TXT":
		return r.LookupTXT(ctx, fqdn)
	case "MX":
		found, err := r.LookupMX(ctx, fqdn)
		for _, mx := range found {
			out = append(out, strconv.Itoa(int(mx.Pref))+" "+hostName(mx.Host))
		}
		return out, err
	case "NS":
		found, err := r.LookupNS(ctx, fqdn)
		for _, ns := range found {
			out = append(out, hostName(ns.Host))
		}
		return out, err
	case "A", "AAAA", anyAddress:
		network := map[string]string{"A": "ip4", "AAAA": "ip6", anyAddress: "ip"}[q.typ]
		found, err := r.LookupNetIP(ctx, network, fqdn)
		for _, ip := range found {
			out = append(out, ip.Unmap().String())
		}
		return out, err
	case "SRV":
		_, found, err := r.LookupSRV(ctx, "", "", fqdn)
		for _, srv := range found {
			out = append(out, serviceText(srv.Priority, srv.Weight, srv.Port, hostName(srv.Target)))
		}
		return out, err
	case "CNAME":
		target, err := aliasOf(ctx, r, q.name)
		if target != "" {
			out = append(out, target)
		}
		return out, err
	}
	return nil, &net.DNSError{Err: "record type without a lookup: " + q.typ, Name: q.name}
}

// serviceText returns the data of an SRV record as in a zone file, but without the trailing dot of
// the target.
func serviceText(priority, weight, port uint16, target string) string {
	if target == "" {
		target = "." // there is no such service (RFC 2782)
	}
	return fmt.Sprintf("%d %d %d %s", priority, weight, port, target)
}

// Text returns the record's data in one line: "priority host" for an MX, "priority weight port
// target" for an SRV, and else the value.
func (r Record) Text() string {
	switch r.Type {
	case "MX":
		return strconv.Itoa(int(r.Priority)) + " " + r.Value
	case "SRV":
		return serviceText(r.Priority, r.Weight, r.Port, r.Value)
	}
	return r.Value
}

// aliasOf returns the name to which the CNAME at name leads, or "" if there is no CNAME.
func aliasOf(ctx context.Context, r Resolver, name string) (string, error) {
	target, err := r.LookupCNAME(ctx, name+".")
	if err != nil && !lookup.IsNotFound(err) {
		return "", err
	}
	target = hostName(target)
	if target == name {
		return "", nil
	}
	return target, nil
}

// checkRecord compares the wanted record w with the answer to its lookup.
func checkRecord(w Record, wanted []Record, a answer) Check {
	c := Check{Record: w}
	if a.err != nil {
		c.Error = LookupFailed
		return c
	}
	if w.Value == AnyOrNone {
		c.Actual, c.Verified = strings.Join(a.values, ", "), true
		return c
	}
	values := relevantValues(w, a.values)
	c.Actual = strings.Join(values, ", ")
	if w.Purpose == PurposeSPF && len(values) > 0 {
		c.Offer = MergeSPF(values, w)
	}
	switch {
	case w.Purpose == PurposeDKIM && a.alias != "" && !matches(w, wanted, values):
		c.Actual, c.Error = a.alias, DKIMWrongType
	case len(values) == 0:
		c.Error = Missing
	case w.Purpose == PurposeSPF && len(values) > 1:
		c.Error = MultipleSPF
	case !matches(w, wanted, values):
		c.Error = Mismatch
	default:
		c.Verified = true
	}
	return c
}

// relevantValues returns the values that count for w. For SPF, DMARC, MTA-STS and TLS reports it
// leaves out TXT records of other kinds.
func relevantValues(w Record, values []string) []string {
	is := map[string]func(string) bool{PurposeSPF: spf.IsRecord, PurposeDMARC: dmarc.IsRecord, PurposeMTASTS: isSTS, PurposeTLSRPT: isTLSRPT}[w.Purpose]
	if is == nil || w.Type != "TXT" {
		return values
	}
	var out []string
	for _, v := range values {
		if is(v) {
			out = append(out, v)
		}
	}
	return out
}
