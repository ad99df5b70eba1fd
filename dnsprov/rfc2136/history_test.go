package rfc2136_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/providertest"
)

// TestHistories runs random histories in which we change what we want, while strangers change the
// same sets with plain updates and some answers to us are lost. In the end the zone has what the
// strangers have put there and not removed, with its TTLs, what we wanted last, and nothing else.
// make soak-dns-updates runs 200 histories for each server.
func TestHistories(t *testing.T) {
	t.Parallel()
	histories := 10
	if n, err := strconv.Atoi(os.Getenv("MAILSTEAD_HISTORIES")); err == nil {
		histories = n
	}
	first, err := strconv.ParseUint(cmp.Or(os.Getenv("MAILSTEAD_SEED"), "1"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, k, histories)
			for seed := first; seed < first+uint64(histories); seed++ {
				if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { oneHistory(t, p, seed) }) {
					return
				}
			}
		})
	}
}

const (
	wishes    = 15 // how often we want something else
	strangers = 2
)

// A history is one zone with us and strangers.
type history struct {
	*testing.T
	p       *peer
	zone    string
	names   []string
	rnd     *rand.Rand // ours
	breaker *breaker
	us      dnsprov.Provider
	at      dnsprov.ZoneRef
	changed int // attempts that began anew
}

// theirTTL is the TTL that strangers give a set. Each set has only one, since nobody can see that a
// TTL alone has changed in between.
func theirTTL(name, typ string) int { return 61 + 7*len(name) + 11*len(typ) }

func oneHistory(t *testing.T, p *peer, seed uint64) {
	zone := p.newZone(t, seed%2 == 0)
	b := &breaker{}
	h := &history{
		T: t, p: p, zone: zone, names: []string{zone, "a." + zone, "www." + zone, "x.a." + zone}, rnd: rand.New(rand.NewPCG(seed, 21)), breaker: b,
		us: providertest.Remember(p.client(t, b.dial, zone)), at: dnsprov.ZoneRef{Domain: zone, OwnerTag: "m"},
	}
	for _, name := range h.names {
		for _, typ := range []string{"TXT", "MX", "CAA", "A", "CNAME"} {
			h.at.Ask = append(h.at.Ask, dnsprov.Set{Name: name, Type: typ})
		}
	}
	var before []dns.RR // strangers have these from the start, and we may want the same
	for _, w := range h.wish() {
		if h.rnd.IntN(3) == 0 && w.Type != "CNAME" {
			w.TTL = uint32(theirTTL(w.Name, w.Type))
			rr, err := w.RR()
			if err != nil {
				t.Fatal(err)
			}
			before = append(before, rr)
		}
	}
	p.change(t, zone, before, nil)

	var wg sync.WaitGroup
	stop := make(chan struct{})
	theirs := make([]map[string]bool, strangers) // lines
	for n := range strangers {
		theirs[n] = map[string]bool{}
		wg.Go(func() { h.stranger(n, rand.New(rand.NewPCG(seed, uint64(100+n))), theirs[n], stop) })
	}
	var wanted []dnsprov.Record
	for range wishes {
		wanted = h.wish()
		for range 1 + h.rnd.IntN(3) {
			if h.rnd.IntN(4) == 0 {
				h.breaker.arm(h.rnd.IntN(messagesToLose * waysToLose))
			}
			if _, _, err := h.bring(wanted); err == nil {
				break
			}
		}
	}
	close(stop)
	wg.Wait()
	h.breaker.arm(1 << 20) // nothing is lost any more

	var fits []dnsprov.Record
	for tries, done := 0, false; !done; tries++ {
		changes, now, err := h.bring(wanted)
		fits, done = now, err == nil && changes == 0
		if tries == 10 {
			t.Fatalf("it comes to no end: %d changes, %v", changes, err)
		}
	}
	want := map[string]bool{}
	for _, line := range lines(before) {
		want[line] = true
	}
	for _, m := range theirs {
		maps.Copy(want, m)
	}
	shared := func(w dnsprov.Record) bool {
		for line := range want {
			if f := strings.Fields(line); f[0] == w.Name+"." && f[3] == w.Type {
				return true
			}
		}
		return false
	}
	var ours []dns.RR
	for _, w := range fits {
		ttl := w.TTL
		for _, o := range fits {
			if o.Name == w.Name && o.Type == w.Type {
				ttl = min(ttl, o.TTL)
			}
		}
		if shared(w) {
			ttl = uint32(theirTTL(w.Name, w.Type))
		}
		rr, err := w.RR()
		if err != nil {
			t.Fatal(err)
		}
		rr.Header().Ttl = ttl
		ours = append(ours, rr)
	}
	n := len(want)
	for _, line := range lines(ours) {
		want[line] = true
	}
	if got, want := lines(p.all(t, zone)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, want) {
		t.Errorf("the zone has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	t.Logf("%d of theirs, %d wanted of ours of which %d fit; %d times it began anew", n, len(wanted), len(fits), h.changed)
}

// wish draws the records that we want.
func (h *history) wish() []dnsprov.Record {
	var out []dnsprov.Record
	own := func(name, typ, value string) {
		r := dnsprov.Record{Name: name, Type: typ, Value: value, TTL: uint32(300 * (1 + h.rnd.IntN(3))), Purpose: dnsprov.PurposeCustom}
		if typ == "MX" {
			r.Priority = 10
		}
		if !slices.ContainsFunc(out, r.Same) {
			out = append(out, r)
		}
	}
	for _, name := range h.names {
		if name != h.zone && h.rnd.IntN(5) == 0 {
			own(name, "CNAME", fmt.Sprintf("ours%d.test", h.rnd.IntN(3)))
			continue
		}
		for _, f := range [][2]string{{"TXT", "ours %d"}, {"MX", "ours%d.test"}, {"CAA", `0 issue "ours%d.test"`}, {"A", "192.0.2.%d"}} {
			for range h.rnd.IntN(3) {
				own(name, f[0], fmt.Sprintf(f[1], h.rnd.IntN(5)))
			}
		}
	}
	return out
}

// bring reads, plans and applies once, without what cannot be beside the strangers' records. It
// returns the number of changes, and what it has wanted.
func (h *history) bring(want []dnsprov.Record) (changes int, fits []dnsprov.Record, err error) {
	have, err := h.us.Records(h.Context(), h.at)
	if err != nil {
		return 0, nil, err
	}
	for {
		fits, err = dnsprov.Compatible(have, want)
		if err == nil {
			break
		}
		all, ok := err.(interface{ Unwrap() []error })
		if !ok {
			h.Error(err)
			return 0, nil, err
		}
		for _, err := range all.Unwrap() {
			var conflict *dnsprov.Conflict
			if !errors.As(err, &conflict) {
				h.Error(err)
				return 0, nil, err
			}
			want = slices.DeleteFunc(slices.Clone(want), func(w dnsprov.Record) bool { return w == conflict.Want })
		}
	}
	plan := dnsprov.Plan(have, fits)
	_, err = h.us.Apply(h.Context(), h.at, plan)
	if errors.Is(err, dnsprov.ErrChanged) {
		h.changed++
	}
	return len(plan), fits, err
}

// stranger adds and removes values of its own until the end, and notes in mine what is there: a
// server ignores what cannot be beside a CNAME.
func (h *history) stranger(n int, rnd *rand.Rand, mine map[string]bool, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rnd.IntN(4)) * time.Millisecond):
		}
		name := h.names[rnd.IntN(len(h.names))]
		forms := [][2]string{
			{"TXT", fmt.Sprintf(`"theirs %d" "%d"`, n, rnd.IntN(4))}, {"TXT", fmt.Sprintf(`"\"ours %d\"" "%d"`, rnd.IntN(5), n)}, {"MX", fmt.Sprintf("10 theirs%d-%d.test.", n, rnd.IntN(4))},
			{"CAA", fmt.Sprintf(`128 issue "theirs%d-%d.test"`, n, rnd.IntN(4))}, {"A", fmt.Sprintf("198.51.100.%d", 10*n+rnd.IntN(4))},
		}
		if n == 0 && name != h.zone { // one alone has aliases, since they would replace each other
			forms = append(forms, [2]string{"CNAME", fmt.Sprintf("theirs%d.test.", rnd.IntN(2))})
		}
		f := forms[rnd.IntN(len(forms))]
		rr, err := dns.NewRR(fmt.Sprintf("%s. %d IN %s %s", name, theirTTL(name, f[0]), f[0], f[1]))
		if err != nil {
			h.Error(err)
			return
		}
		line := lines([]dns.RR{rr})[0]
		if mine[line] {
			err = h.p.tryChange(h.zone, nil, []dns.RR{rr})
		} else {
			err = h.p.tryChange(h.zone, []dns.RR{rr}, nil)
		}
		if err != nil {
			h.Errorf("a stranger: %v", err)
			return
		}
		in, err := h.p.ask(new(dns.Msg).SetQuestion(name+".", rr.Header().Rrtype))
		if err != nil {
			h.Errorf("a stranger: %v", err)
			return
		}
		there := slices.Contains(lines(in.Answer), line)
		switch {
		case mine[line] && there:
			h.Errorf("a stranger removes %s, and it is there", line)
		case mine[line]:
			delete(mine, line)
		case there:
			mine[line] = true
			if f[0] == "CNAME" { // it has replaced the other one
				maps.DeleteFunc(mine, func(o string, _ bool) bool {
					return o != line && strings.HasPrefix(o, name+". ") && strings.Contains(o, " IN CNAME ")
				})
			}
		}
	}
}
