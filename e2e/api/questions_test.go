package api

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestQuestionsOfTheWorld: the questions for a zone are counted, over UDP and TCP. The lookups by
// which the program sets the domain up and checks it ask the same server, and are not counted.
func TestQuestionsOfTheWorld(t *testing.T) {
	t.Parallel()
	i := rig.Start(t, "")
	id := i.AddDomain("asked.test")
	type counts struct {
		Since       *time.Time
		Total       int
		LastAskedAt *time.Time `json:"last_asked_at"`
		Hours       []struct{ Count int }
	}
	check := func(step string, total int) (q counts) {
		t.Helper()
		i.Want(200, "GET", "/v1/domains/"+id+"/dns-status?refresh=true", nil, nil)
		i.Want(200, "GET", "/v1/domains/"+id+"/zone/questions", nil, &q)
		sum := 0
		for _, h := range q.Hours {
			sum += h.Count
		}
		if q.Total != total || sum != total || len(q.Hours) != 24 || q.Since == nil || (q.LastAskedAt == nil) != (total == 0) {
			t.Errorf("%s: %+v, want %d questions", step, q, total)
		}
		return q
	}
	check("complete", 0)
	ask := func(network, name string, typ uint16) {
		t.Helper()
		if _, _, err := (&dns.Client{Net: network}).Exchange(new(dns.Msg).SetQuestion(name, typ), i.Ready.DNS); err != nil {
			t.Fatal(err)
		}
	}
	ask("udp", "asked.test.", dns.TypeMX)
	ask("tcp", "Asked.TEST.", dns.TypeNS)
	ask("udp", "nothing.asked.test.", dns.TypeA)
	since := check("asked", 3).Since
	i.Want(200, "PUT", "/v1/domains/"+id+"/zone/x/A", map[string]any{"values": []string{"192.0.2.1"}}, nil)
	ask("udp", "x.asked.test.", dns.TypeA)
	if now := check("changed", 4).Since; !now.Equal(*since) {
		t.Errorf("a change of the zone moved since from %s to %s", since, now)
	}
	var d struct {
		Delegation *struct {
			Nameservers []string
			LookedAt    *time.Time `json:"looked_at"`
		}
	}
	i.Want(200, "GET", "/v1/domains/"+id, nil, &d)
	if d.Delegation == nil || len(d.Delegation.Nameservers) == 0 || d.Delegation.LookedAt == nil {
		t.Errorf("delegation is %+v", d.Delegation)
	}
	i.Stop()
	i.Start()
	check("after a restart", 0)
}
