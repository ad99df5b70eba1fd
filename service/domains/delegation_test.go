package domains_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/scan"
	"github.com/mailstead/mailstead/service/domains"
)

// delegationText returns what a domain says of its parent zone's answer, except when that was.
func delegationText(d *domains.Domain) string {
	if d.Delegation == nil {
		return "null"
	}
	ttl := "null"
	if d.Delegation.TTL != nil {
		ttl = fmt.Sprint(*d.Delegation.TTL)
	}
	return strings.Join(d.Delegation.Nameservers, " ") + " | " + strings.Join(d.Delegation.DS, ", ") + " | " + ttl
}

// A domain shows what its parent zone answered at the last look, which may be ahead of what
// resolvers know. Looks that find the same change only the time.
func TestTheAnswerOfTheParentZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, who, old := newOldWorld(t)
		theirDS := []dnsprov.DS{{KeyTag: 2, Algorithm: 13, DigestType: 2, Digest: "bb"}, {KeyTag: 1, Algorithm: 13, DigestType: 2, Digest: "aa"}}
		tell := func(p *scan.Parent, err error) {
			old.mu.Lock()
			defer old.mu.Unlock()
			old.parent = func(string) (*scan.Parent, error) { return p, err }
		}
		want := func(id, text string) *domains.Domain {
			t.Helper()
			d := getDomain(t, b.Service, who, id)
			if got := delegationText(d); got != text {
				t.Errorf("delegation is %q, want %q", got, text)
			}
			return d
		}
		w.Tell("NS", "wait.test", "ns1.old.test.", "ns2.old.test.")
		tell(&scan.Parent{Names: []string{"ns1.old.test", "ns2.old.test"}, TTL: 48 * time.Hour, DS: &theirDS}, nil)
		id := connect(t, b.Service, who, "wait.test")
		time.Sleep(10 * time.Second) // for the scan
		const before = "ns1.old.test ns2.old.test | 1 13 2 aa, 2 13 2 bb | 172800"
		want(id, before)

		time.Sleep(time.Hour)
		first := want(id, before)
		time.Sleep(time.Hour)
		if now := want(id, before); now.Delegation.LookedAt.Sub(first.Delegation.LookedAt.Time) < 30*time.Minute || !now.UpdatedAt.Equal(first.UpdatedAt.Time) {
			t.Errorf("looked at %s and %s, updated at %s and %s", first.Delegation.LookedAt, now.Delegation.LookedAt, first.UpdatedAt, now.UpdatedAt)
		}

		tell(&scan.Parent{Names: []string{"ns1.example.test", "ns2.example.test"}, TTL: time.Hour, DS: &[]dnsprov.DS{}}, nil)
		time.Sleep(20 * time.Minute)
		const ours = "ns1.example.test ns2.example.test |  | 3600"
		if d := want(id, ours); d.Status != "pending_ns" {
			t.Errorf("a resolver does not know of the change, and the domain is %s", d.Status)
		}

		checkNS(t, b, who, "wait.test") // by a person: the time is written once a minute
		looked := want(id, ours).Delegation.LookedAt
		time.Sleep(10 * time.Second)
		checkNS(t, b, who, "wait.test")
		if again := want(id, ours).Delegation.LookedAt; !again.Equal(looked.Time) && again.Sub(looked.Time) < time.Minute {
			t.Errorf("looked at %s, and written again for %s", looked, again)
		}
		time.Sleep(2 * time.Minute)
		updated := want(id, ours).UpdatedAt
		checkNS(t, b, who, "wait.test")
		if d := want(id, ours); time.Since(d.Delegation.LookedAt.Time) > time.Second || !d.UpdatedAt.Equal(updated.Time) {
			t.Errorf("looked at %s, %s ago", d.Delegation.LookedAt, time.Since(d.Delegation.LookedAt.Time))
		}

		tell(nil, scan.ErrLookup) // a resolver tells, which knows no DS records; those of before stay
		time.Sleep(20 * time.Minute)
		want(id, "ns1.old.test ns2.old.test |  | null")

		w.Tell("NS", "wait.test", "ns1.example.test.", "ns2.example.test.")
		tell(&scan.Parent{Names: []string{"ns1.example.test", "ns2.example.test"}, TTL: time.Hour}, nil)
		time.Sleep(20 * time.Minute)
		if d := want(id, ours); d.Status != "complete" {
			t.Fatalf("it is %s", d.Status)
		}
		time.Sleep(3 * time.Hour)
		if d := want(id, ours); time.Since(d.Delegation.LookedAt.Time) > 2*time.Hour {
			t.Errorf("a complete domain was last looked at %s ago", time.Since(d.Delegation.LookedAt.Time))
		}

		many := &scan.Parent{TTL: time.Hour, DS: &[]dnsprov.DS{}}
		for i := range 100 {
			many.Names = append(many.Names, fmt.Sprintf("ns%02d.old.test", i))
			*many.DS = append(*many.DS, dnsprov.DS{KeyTag: uint16(i)})
		}
		tell(many, nil)
		time.Sleep(2 * time.Hour)
		if d := getDomain(t, b.Service, who, id); len(d.Delegation.Nameservers) != 13 || len(d.Delegation.DS) != 16 {
			t.Errorf("%d nameservers and %d DS records are kept", len(d.Delegation.Nameservers), len(d.Delegation.DS))
		}
	})
}

// Where no nameservers of others are asked, the resolver tells.
func TestTheParentZoneByTheResolver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, who := newWorld(t)
		w.Tell("NS", "wait.test", "ns.old.test.")
		id := connect(t, b.Service, who, "wait.test")
		if d := getDomain(t, b.Service, who, id); d.Delegation != nil {
			t.Errorf("it was never looked at, and has %s", delegationText(d))
		}
		time.Sleep(90 * time.Second)
		if d := getDomain(t, b.Service, who, id); delegationText(d) != "ns.old.test |  | null" {
			t.Errorf("delegation is %s", delegationText(d))
		}
		out := connectAs(t, b, who, domains.ConnectDomainsIn{Domains: []string{"far.test"}, External: true})
		if d := getDomain(t, b.Service, who, *out.DomainID); d.Delegation != nil {
			t.Errorf("an external domain has %s", delegationText(d))
		}
	})
}
