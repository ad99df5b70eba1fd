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
	LookupFailed  = "lookup_failed"   // nothing is known: no answer, or one that says "try later"
)

const (
	verifyTimeout = 10 * time.Second
	verifyAtOnce  = 8
)

// Check is the outcome of looking up one record.
type Check struct {
	Record   Record
	Verified bool
	Actual   string // what is there, several values joined with ", "; empty if there is nothing
	Error    string // one of the constants above; empty if verified
	Offer    string // what to publish in place of Record.Value, since others' senders have to stay; empty: nothing else
}

// Verify looks wanted records up, eight at a time and ten seconds at most in all, and returns one
// check for each, in order. What is there may say more than what is wanted as long as mail works:
// see the match functions. It asks past what a client of look-ups keeps.
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

// question is one look-up; records that share it are looked up once.
type question struct{ name, typ, purpose string }

func questionOf(r Record) question {
	q := question{name: hostName(r.Name), typ: r.Type}
	if r.Purpose == PurposeDKIM {
		q.purpose = PurposeDKIM
	}
	return q
}

// answer is what a look-up found. An MX value is "priority host".
type answer struct {
	values []string
	alias  string // the CNAME target in place of a DKIM key
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

// values looks q up and returns what it found in the form of Record.Value.
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

// serviceText is an SRV as zone files have it, but for the last dot of the target.
func serviceText(priority, weight, port uint16, target string) string {
	if target == "" {
		target = "." // there is no such service (RFC 2782)
	}
	return fmt.Sprintf("%d %d %d %s", priority, weight, port, target)
}

// Text is what a record says in one line, as zone files have it: an MX and an SRV with their
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

// canonical returns what name is an alias of, or "".
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

// check compares one record with what was found for it.
func check(w Record, wanted []Record, a answer) Check {
	c := Check{Record: w}
	if a.err != nil {
		c.Error = LookupFailed
		return c
	}
	values := relevant(w, a.values)
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

// relevant leaves out the texts at a name that are not of the record's kind.
func relevant(w Record, values []string) []string {
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
