package peers

import (
	"net"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
)

// serveAt answers on port 53 of an address of this machine what a nameserver answers: nameservers
// of others are asked on that port alone, and BIND does not listen on such an address.
func serveAt(t *testing.T, ip, server string) {
	t.Helper()
	packets, err := net.ListenPacket("udp", net.JoinHostPort(ip, "53"))
	if err != nil {
		t.Skipf("nameservers of others are asked on port 53, which is not free here: %v", err)
	}
	front := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		if answer, err := dns.Exchange(q, server); err == nil {
			_ = w.WriteMsg(answer)
		}
	})}
	go func() { _ = front.ActivateAndServe() }()
	t.Cleanup(func() { _ = front.Shutdown() })
}

// TestPrivateBINDProvesNothing: a BIND that takes updates of a domain, and has its records, proves
// nothing as long as no parent zone delegates the domain to it. When one does, the account whose
// key is there has the domain, and another one that claims it loses it.
func TestPrivateBINDProvesNothing(t *testing.T) {
	t.Parallel()
	addr, world := startUpdated(t, ""), rig.NewFakeResolver(t)
	const ip = "127.53.0.2"
	serveAt(t, ip, addr)
	i := rig.Start(t, rig.GenerousLimits, "--resolver", world.Addr)
	connect := func(i *rig.Instance, body map[string]any) (id string) {
		t.Helper()
		var out struct {
			Domains []struct {
				ID    string `json:"domain_id"`
				Error *string
			}
		}
		body["domains"] = []string{"kept.test"}
		i.Want(200, "POST", "/v1/domains/connect", body, &out)
		if out.Domains[0].Error != nil {
			t.Fatal(*out.Domains[0].Error)
		}
		return out.Domains[0].ID
	}
	type state struct {
		Status string
		Detail *string `json:"status_detail"`
		Error  *struct{ Code string }
	}
	stateOf := func(i *rig.Instance, id string) (s state) {
		t.Helper()
		i.Want(200, "GET", "/v1/domains/"+id, nil, &s)
		return s
	}
	rival := i.SecondAccount()
	theirs := connect(rival, map[string]any{"manual_dns": true})
	var made struct{ ID string }
	i.Want(201, "POST", "/v1/dns-credentials", map[string]any{
		"provider": "rfc2136", "name": "bind", "zones": []string{"kept.test"}, "server": addr, "key_name": "update.key.test", "secret": updateSecret,
	}, &made)
	mine := connect(i, map[string]any{"dns_credential_id": made.ID})
	i.Until("the domain is complete", func() bool { return stateOf(i, mine).Status == "complete" })
	i.Want(200, "GET", "/v1/domains/"+mine+"/dns-status?refresh=true", nil, nil)
	if s := stateOf(i, mine); s.Detail == nil || !strings.Contains(*s.Detail, "ownership is not proven") || stateOf(rival, theirs).Error != nil {
		t.Errorf("without a delegation: %+v, the other one %+v", s, stateOf(rival, theirs))
	}
	world.Set(t, "kept.test", "NS", "ns.kept.test.")
	world.Set(t, "ns.kept.test", "A", ip)
	world.Set(t, "ns.kept.test", "AAAA")
	i.Want(200, "GET", "/v1/domains/"+mine+"/dns-status?refresh=true", nil, nil)
	lost := stateOf(rival, theirs)
	if s := stateOf(i, mine); s.Detail != nil && strings.Contains(*s.Detail, "ownership") || lost.Error == nil || lost.Error.Code != "domain_claimed_elsewhere" {
		t.Errorf("with a delegation: %+v, the other one %+v", s, lost)
	}
}
