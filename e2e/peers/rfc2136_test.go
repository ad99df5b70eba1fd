package peers

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
)

const updateSecret = "YSBzZWNyZXQgZm9yIHVwZGF0ZXMgb2YgcmVjb3Jkcyw="

// updatedConf has a zone that takes updates with a key. Its gap is the secret.
const updatedConf = `key "update.key.test" { algorithm hmac-sha256; secret "%s"; };
zone "kept.test" { type primary; file "kept.test.zone"; allow-update { key update.key.test; }; allow-transfer { key update.key.test; }; };
`

// updatedZone has records of somebody else, one of them in a set that gets one of ours.
const updatedZone = `$ORIGIN kept.test.
$TTL 300
@ SOA ns.elsewhere.test. hostmaster.elsewhere.test. 1 3600 600 86400 60
@ NS ns.elsewhere.test.
@ TXT "somebody's"
www A 192.0.2.1
`

// startUpdated runs BIND with the zone kept.test until the test ends, and returns its address. The
// zone has updatedZone and more records.
func startUpdated(t *testing.T, more string) (addr string) {
	t.Helper()
	return startBIND(t, fmt.Sprintf(updatedConf, updateSecret), map[string]string{"kept.test": updatedZone + more})
}

// zoneRecords copies the zone from BIND, and returns its records but the SOA, as "name type value"
// in order. Of keys it returns only the beginning.
func zoneRecords(t *testing.T, addr string) (out []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m := new(dns.Msg).SetAxfr("kept.test.")
	m.SetTsig("update.key.test.", dns.HmacSHA256, 300, time.Now().Unix())
	transfer := &dns.Transfer{Conn: &dns.Conn{Conn: conn}, TsigSecret: map[string]string{"update.key.test.": updateSecret}}
	envelopes, err := transfer.In(m, addr)
	if err != nil {
		t.Fatal(err)
	}
	for e := range envelopes {
		if e.Error != nil {
			t.Fatal(e.Error)
		}
		for _, rr := range e.RR {
			if rr.Header().Rrtype == dns.TypeSOA {
				continue
			}
			text := rr.Header().Name + " " + dns.TypeToString[rr.Header().Rrtype] + " " + strings.TrimPrefix(rr.String(), rr.Header().String())
			if strings.Contains(text, "._domainkey.") {
				text, _, _ = strings.Cut(text, "; p=")
			}
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

// A domain whose DNS is at a BIND keeps it: our records come by updates with a key, and go with the
// domain, and those of others stay as they are.
func TestRecordsAtBIND(t *testing.T) {
	t.Parallel()
	addr := startUpdated(t, "")
	before := zoneRecords(t, addr)
	i := rig.Start(t, "")
	credential := func(secret string) map[string]any {
		return map[string]any{"provider": "rfc2136", "name": "bind", "zones": []string{"kept.test"}, "server": addr, "key_name": "update.key.test", "secret": secret}
	}
	var failed struct {
		Error struct{ Code, Message string }
	}
	i.Want(400, "POST", "/v1/dns-credentials", credential("bm90IHRoZSBzZWNyZXQ="), &failed)
	if failed.Error.Code != "credential_invalid" || strings.Contains(failed.Error.Message, "bm90") {
		t.Errorf("a wrong secret: %+v", failed)
	}
	for server, why := range map[string]string{"169.254.1.1": "its address is not public", "ns.nowhere.test": "has no address"} {
		body := credential(updateSecret)
		body["server"] = server
		i.Want(400, "POST", "/v1/dns-credentials", body, &failed)
		if failed.Error.Code != "credential_invalid" || !strings.Contains(failed.Error.Message, why) {
			t.Errorf("the server %s: %+v", server, failed)
		}
	}
	var made struct{ ID string }
	i.Want(201, "POST", "/v1/dns-credentials", credential(updateSecret), &made)
	var plan struct {
		Changes          []struct{ Action, Name, Type string }
		ForeignConflicts []any `json:"foreign_conflicts"`
	}
	i.Want(200, "POST", "/v1/dns-plan", map[string]any{"domain": "kept.test", "dns_credential_id": made.ID}, &plan)
	if len(plan.Changes) == 0 || len(plan.ForeignConflicts) != 0 {
		t.Errorf("the plan is %+v", plan)
	}
	if now := zoneRecords(t, addr); !slices.Equal(now, before) {
		t.Errorf("a plan has changed the zone to\n%s", strings.Join(now, "\n"))
	}
	var connected struct {
		Domains []struct {
			ID    string `json:"domain_id"`
			Error *string
		}
		EdgeMode bool `json:"edge_mode"`
	}
	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"kept.test"}, "dns_credential_id": made.ID}, &connected)
	if !connected.EdgeMode || connected.Domains[0].Error != nil {
		t.Fatalf("connected: %+v", connected)
	}
	id := connected.Domains[0].ID
	status := func() (status string) {
		var d struct {
			Status       string
			StatusDetail *string `json:"status_detail"`
			Error        any
		}
		i.Want(200, "GET", "/v1/domains/"+id, nil, &d)
		if d.Status == "error" {
			t.Fatalf("%+v", d)
		}
		return d.Status
	}
	i.Until("the domain is complete", func() bool { return status() == "complete" })
	i.Want(200, "POST", "/v1/domains/"+id+"/custom-dns-records", map[string]any{"name": "@", "type": "TXT", "value": "the owner's"}, nil)
	now := zoneRecords(t, addr)
	for _, want := range append(slices.Clone(before), `kept.test. TXT "the owner's"`, "ms1._domainkey.kept.test. TXT \"v=DKIM1; k=rsa", `_dmarc.kept.test. TXT "v=DMARC1`) {
		if !slices.ContainsFunc(now, func(r string) bool { return strings.HasPrefix(r, want) }) {
			t.Errorf("%s is not in the zone:\n%s", want, strings.Join(now, "\n"))
		}
	}
	if !slices.ContainsFunc(now, func(r string) bool { return strings.HasPrefix(r, "kept.test. MX 10 ") }) {
		t.Errorf("there is no MX:\n%s", strings.Join(now, "\n"))
	}
	i.Want(409, "DELETE", "/v1/dns-credentials/"+made.ID, nil, nil)
	i.Want(202, "DELETE", "/v1/domains/"+id, nil, nil)
	i.Until("the domain is gone", func() bool { return i.Do("GET", "/v1/domains/"+id, nil, nil) == 404 })
	if now := zoneRecords(t, addr); !slices.Equal(now, before) {
		t.Errorf("the zone has\n%s\nnot\n%s", strings.Join(now, "\n"), strings.Join(before, "\n"))
	}
	i.Want(200, "DELETE", "/v1/dns-credentials/"+made.ID, nil, nil)
}

// mailZone is the mail of kept.test at somebody else.
const mailZone = `@ MX 10 mx1.elsewhere.test.
@ MX 20 mx2.elsewhere.test.
@ TXT "v=spf1 mx include:_spf.elsewhere.test -all"
_dmarc TXT "v=DMARC1; p=none; rua=mailto:dmarc@elsewhere.test"
`

// A domain in use is connected at a BIND as docs/domains.md says: the mail stays elsewhere until it
// is brought, the policy stays, and the way back puts everything back.
func TestMailComesToADomainAtBIND(t *testing.T) {
	t.Parallel()
	addr := startUpdated(t, mailZone)
	before := zoneRecords(t, addr)
	i := rig.Start(t, "")
	var made struct{ ID string }
	i.Want(201, "POST", "/v1/dns-credentials", map[string]any{
		"provider": "rfc2136", "name": "BIND", "zones": []string{"kept.test"}, "server": addr, "key_name": "update.key.test", "algorithm": "hmac-sha256", "secret": updateSecret,
	}, &made)
	var plan struct {
		Changes          []struct{ Action, Name, Type string }
		ForeignConflicts []any `json:"foreign_conflicts"`
	}
	i.Want(200, "POST", "/v1/dns-plan", map[string]any{"domain": "kept.test", "dns_credential_id": made.ID, "mx": "elsewhere"}, &plan)
	if len(plan.ForeignConflicts) != 0 || len(plan.Changes) == 0 {
		t.Errorf("the plan is %+v", plan)
	}
	var connected struct {
		Domains []struct {
			ID    string `json:"domain_id"`
			Error *string
		}
	}
	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{"kept.test"}, "dns_credential_id": made.ID, "mx": "elsewhere"}, &connected)
	if connected.Domains[0].Error != nil {
		t.Fatalf("connected: %s", *connected.Domains[0].Error)
	}
	path := "/v1/domains/" + connected.Domains[0].ID
	type domain struct {
		Status        string
		StatusDetail  *string `json:"status_detail"`
		Error         any
		DMARCOverride *struct{ Value string } `json:"dmarc_override"`
		DNSHealth     struct {
			Issues []struct{ Code, Purpose, Message string }
		} `json:"dns_health"`
		MX       struct{ Hosts []string }
		Replaced []struct{ Type, Value string }
	}
	see := func() (d domain) {
		i.Want(200, "GET", path, nil, &d)
		if d.Status == "error" {
			t.Fatalf("%+v", d)
		}
		return d
	}
	zone := func(what string, want ...string) {
		t.Helper()
		now := slices.DeleteFunc(zoneRecords(t, addr), func(r string) bool { return strings.Contains(r, "._domainkey.") || strings.Contains(r, " SRV ") })
		if slices.Sort(want); !slices.Equal(now, want) {
			t.Errorf("%s: the zone has\n%s\nnot\n%s", what, strings.Join(now, "\n"), strings.Join(want, "\n"))
		}
	}
	i.Until("the records are made", func() bool { return see().Status == "pending_dns_records" })
	zone("connected", slices.Clone(before)...)
	d := see()
	if d.DMARCOverride == nil || d.DMARCOverride.Value != "v=DMARC1; p=none; rua=mailto:dmarc@elsewhere.test" || !slices.Equal(d.MX.Hosts, []string{"mx1.elsewhere.test", "mx2.elsewhere.test"}) {
		t.Errorf("connected: %+v", d)
	}
	i.Want(200, "PATCH", path, map[string]any{"mx": map[string]any{"mode": "here", "expected_addresses": []string{"ann@kept.test"}}, "replace": true}, nil)
	i.Until("the mail comes here", func() bool { return see().Status == "complete" })
	isMail := func(r string) bool { return strings.Contains(r, " MX ") || strings.Contains(r, "v=spf1") }
	here := slices.DeleteFunc(slices.Clone(before), isMail)
	now := zoneRecords(t, addr)
	at := slices.IndexFunc(now, func(r string) bool { return strings.Contains(r, " MX ") })
	if at < 0 || !strings.HasPrefix(now[at], "kept.test. MX 10 ") {
		t.Fatalf("no MX of ours:\n%s", strings.Join(now, "\n"))
	}
	spf := now[slices.IndexFunc(now, func(r string) bool { return strings.Contains(r, "v=spf1") })]
	if !strings.HasPrefix(spf, `kept.test. TXT "v=spf1 mx `) || !strings.HasSuffix(spf, `a:mx1.elsewhere.test a:mx2.elsewhere.test include:_spf.elsewhere.test -all"`) {
		t.Errorf("the SPF record is %s", spf)
	}
	zone("here", slices.Concat(here, []string{now[at], spf})...)
	if d := see(); len(d.Replaced) != 3 {
		t.Errorf("replaced: %+v", d.Replaced)
	}
	i.Want(409, "PUT", path+"/dmarc", map[string]any{"value": "v=DMARC1; p=reject"}, nil)
	i.Want(200, "PUT", path+"/dmarc", map[string]any{"value": "v=DMARC1; p=reject", "replace": true}, nil)
	isPolicy := func(r string) bool { return strings.HasPrefix(r, "_dmarc.") }
	zone("with another policy", append(slices.DeleteFunc(slices.Clone(here), isPolicy), now[at], spf, `_dmarc.kept.test. TXT "v=DMARC1; p=reject"`)...)
	i.Want(200, "POST", path+"/zone/put-back", nil, nil)
	zone("put back", slices.Clone(before)...)
	d = see()
	if len(d.Replaced) != 0 || len(d.DNSHealth.Issues) == 0 || d.DNSHealth.Issues[0].Code != "zone_conflict" || !strings.Contains(d.DNSHealth.Issues[0].Message, "mx1.elsewhere.test") {
		t.Errorf("put back: %+v", d)
	}
	i.Want(200, "PATCH", path, map[string]any{"mx": map[string]any{"mode": "here"}, "replace": true}, nil)
	i.Until("the mail comes here again", func() bool { return len(see().Replaced) == 3 && len(see().MX.Hosts) == 1 })
	zone("here again", slices.Concat(here, []string{now[at], spf})...)
	i.Want(200, "POST", path+"/zone/put-back", nil, nil)
	i.Want(202, "DELETE", path, nil, nil)
	i.Until("the domain is gone", func() bool { return i.Do("GET", path, nil, nil) == 404 })
	if now := zoneRecords(t, addr); !slices.Equal(now, before) {
		t.Errorf("the zone has\n%s\nnot\n%s", strings.Join(now, "\n"), strings.Join(before, "\n"))
	}
}
