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

// What is wrong with a record that is not verified.
const (
	Missing       = "missing"
	Mismatch      = "mismatch"
	MultipleSPF   = "multiple_spf"    // more than one v=spf1, which receivers treat as an error (RFC 7208 section 4.5)
	DKIMWrongType = "dkim_wrong_type" // the selector is a CNAME, not the TXT with our key
	LookupFailed  = "lookup_failed"   // the result is unknown: no answer, or a temporary error
)

const (
	verifyTimeout = 10 * time.Second
	verifyAtOnce  = 8
)

// Check is the result of looking up one record.
type Check struct {
	Record   Record
	Verified bool
	Actual   string // the published values, joined with ", "; empty if there are none
	Error    string // one of the constants above; empty if verified
	Offer    string // the value to publish instead of Record.Value, so that the owner's other senders still pass; empty: Record.Value
}

// Verify looks up the wanted records, eight at a time and for at most ten seconds in total, and
// returns one check for each, in order. The published records may say more than the wanted ones as
// long as mail works: see the match functions. It bypasses the lookup cache.
func Verify(ctx context.Context, r Resolver, wanted []Record) []Check {
	ctx, cancel := context.WithTimeout(lookup.Fresh(ctx), verifyTimeout)
	defer cancel()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		found = make(map[question]answer)
		slots = make(chan struct{}, verifyAtOnce)
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
			a := ask(ctx, r, q)
			mu.Lock()
			defer mu.Unlock()
			found[q] = a
		})
	}
	wg.Wait()
	out := make([]Check, len(wanted))
	for i, w := range wanted {
		out[i] = check(w, wanted, found[questionOf(w)])
	}
	return out
}

// question is one lookup; records with the same question are looked up once.
type question struct{ name, typ, purpose string }

func questionOf(r Record) question {
	q := question{name: hostName(r.Name), typ: r.Type}
	if r.Purpose == PurposeDKIM {
		q.purpose = PurposeDKIM
	}
	return q
}

// answer is the result of a lookup. An MX value is "priority host".
type answer struct {
	values []string
	alias  string // the target of a CNAME that is in place of a DKIM key
	err    error
}

func ask(ctx context.Context, r Resolver, q question) answer {
	values, err := q.values(ctx, r)
	if err != nil && !notFound(err) {
		return answer{err: err}
	}
	a := answer{values: values}
	if q.purpose == PurposeDKIM {
		alias, err := canonical(ctx, r, q.name)
		if err != nil && len(values) == 0 {
			return answer{err: err}
		}
		a.alias = alias
	}
	return a
}

// values looks up q and returns the values in the form of Record.Value.
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
	case "A", "AAAA":
		network := map[string]string{"A": "ip4", "AAAA": "ip6"}[q.typ]
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
		target, err := canonical(ctx, r, q.name)
		if target != "" {
			out = append(out, target)
		}
		return out, err
	}
	return nil, &net.DNSError{Err: "no look-up for type " + q.typ, Name: q.name}
}

// serviceText returns an SRV as in a zone file, without the trailing dot of the target.
func serviceText(priority, weight, port uint16, target string) string {
	if target == "" {
		target = "." // there is no such service (RFC 2782)
	}
	return fmt.Sprintf("%d %d %d %s", priority, weight, port, target)
}

// Text returns the record's data in one line, as in a zone file: an MX and an SRV include their
// numbers.
func (r Record) Text() string {
	switch r.Type {
	case "MX":
		return strconv.Itoa(int(r.Priority)) + " " + r.Value
	case "SRV":
		return serviceText(r.Priority, r.Weight, r.Port, r.Value)
	}
	return r.Value
}

// canonical returns the name that name is an alias of, or "".
func canonical(ctx context.Context, r Resolver, name string) (string, error) {
	target, err := r.LookupCNAME(ctx, name+".")
	if err != nil && !notFound(err) {
		return "", err
	}
	target = hostName(target)
	if target == name {
		return "", nil
	}
	return target, nil
}

// check compares a record with the answer to its lookup.
func check(w Record, wanted []Record, a answer) Check {
	c := Check{Record: w}
	if a.err != nil {
		c.Error = LookupFailed
		return c
	}
	values := relevantValues(w, a.values)
	c.Actual = strings.Join(values, ", ")
	if w.Purpose == PurposeSPF && len(values) > 0 {
		c.Offer = mergeSPF(values, w)
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

// relevantValues returns the values without TXT records of another kind.
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
