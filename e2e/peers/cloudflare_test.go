package peers

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/dnsprov/cloudflare/cloudflaretest"
	"github.com/mailstead/mailstead/e2e/rig"
	"github.com/miekg/dns"
)

// startCloudflare runs a fake of Cloudflare's API with the records of a zone file but its SOA and
// its own NS records. It returns the fake and what the program needs to speak to it.
func startCloudflare(t *testing.T, zone, text string) (api *cloudflaretest.Server, config string) {
	t.Helper()
	api = cloudflaretest.New()
	api.AddToken("edge-token", cloudflaretest.Token{Rights: cloudflaretest.DNS})
	api.AddZone(zone, "")
	for p := dns.NewZoneParser(strings.NewReader(text), "", ""); ; {
		rr, ok := p.Next()
		if !ok {
			if p.Err() != nil {
				t.Fatal(p.Err())
			}
			break
		}
		h := rr.Header()
		r := cloudflaretest.Record{
			Type: dns.TypeToString[h.Rrtype], Name: strings.TrimSuffix(h.Name, "."), TTL: int(h.Ttl),
			Content: strings.TrimSuffix(strings.TrimPrefix(rr.String(), h.String()), "."),
		}
		switch rr := rr.(type) {
		case *dns.SOA:
			continue
		case *dns.NS:
			if r.Name == zone {
				continue
			}
		case *dns.MX:
			r.Priority, r.Content = &rr.Preference, strings.TrimSuffix(rr.Mx, ".")
		case *dns.SRV:
			r.Priority, r.Content = &rr.Priority, fmt.Sprintf("%d %d %s", rr.Weight, rr.Port, strings.TrimSuffix(rr.Target, "."))
			r.Data = map[string]any{"priority": rr.Priority, "weight": rr.Weight, "port": rr.Port, "target": strings.TrimSuffix(rr.Target, ".")}
		case *dns.CAA:
			r.Data = map[string]any{"flags": rr.Flag, "tag": rr.Tag, "value": rr.Value}
		}
		api.Put(zone, r)
	}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	return api, rig.GenerousLimits + fmt.Sprintf("[cloudflare]\nbase_url = %q\n", server.URL+"/client/v4")
}

// servedBy returns the answers of a BIND that has the records which are at Cloudflare now.
func servedBy(t *testing.T, api *cloudflaretest.Server, zone string, names []string) map[question][]string {
	t.Helper()
	text := "$ORIGIN " + zone + ".\n@ 300 SOA ada.ns.cloudflare.test. dns.cloudflare.test. 1 3600 600 86400 60\n@ 300 NS ada.ns.cloudflare.test.\n"
	for _, r := range api.Records(zone) {
		content := r.Content
		if r.Priority != nil {
			content = fmt.Sprint(*r.Priority, " ", content)
		}
		if slices.Contains([]string{"CNAME", "NS", "MX", "SRV"}, r.Type) {
			content = strings.TrimSuffix(content, ".") + "."
		}
		text += fmt.Sprintf("%s. %d %s %s\n", r.Name, max(r.TTL, 60), r.Type, content)
	}
	conf := fmt.Sprintf("zone %q { type primary; file \"%[1]s.zone\"; };\n", zone)
	return answersOf(t, startBIND(t, conf, map[string]string{zone: text}), names)
}

// TestRecordsAtCloudflare: a domain in use whose DNS is at Cloudflare keeps all records of others,
// and the answers for all of their names and types, but for those that its owner has replaced.
// Those can be put back, and after the deletion the answers are as before.
func TestRecordsAtCloudflare(t *testing.T) {
	t.Parallel()
	const zone = "cloud-shop.test"
	text := fmt.Sprintf(zoneInUse, zone) + unusualRecords
	api, config := startCloudflare(t, zone, text)
	i := rig.Start(t, config, "--resolver", worldOfTheZone(t, zone, nil).Addr)
	names := namesOf(t, zone, text)
	before := servedBy(t, api, zone, names)

	var connected struct {
		Domains []struct {
			ID    string `json:"domain_id"`
			Error string
		}
	}
	connect := map[string]any{"domains": []string{zone}, "edge_api_token": "edge-token"}
	conflict := func() string {
		t.Helper()
		connected.Domains = nil
		i.Want(200, "POST", "/v1/domains/connect", connect, &connected)
		return connected.Domains[0].Error
	}
	whole := fmt.Sprint(api.Records(zone))
	if why := conflict(); !strings.HasPrefix(why, "zone_conflict: ") || !strings.Contains(why, "MX "+zone) {
		t.Errorf("connected without replace: %q", why)
	}
	connect["replace"] = true
	if now := fmt.Sprint(api.Records(zone)); now != whole {
		t.Errorf("a conflict has changed the records from\n%s to\n%s", whole, now)
	}
	records := api.Records(zone)
	if why := conflict(); why != "" {
		t.Fatalf("connected with replace: %s", why)
	}
	domain := "/v1/domains/" + connected.Domains[0].ID
	var d struct {
		Status   string
		Apex     struct{ Mode string }
		Replaced []struct{ Name, Type, Value string }
	}
	i.Until("the domain is complete", func() bool {
		i.Want(200, "GET", domain, nil, &d)
		return d.Status == "complete"
	})
	replaced := map[string]bool{}
	for _, r := range d.Replaced {
		replaced[r.Name+" "+r.Type] = true
	}
	if len(d.Replaced) != 3 || !replaced["@ MX"] || !replaced["@ TXT"] || d.Apex.Mode != "elsewhere" {
		t.Errorf("the domain is %+v", d)
	}
	wantForeign := func(when string) {
		t.Helper()
		now := api.Records(zone)
		for _, r := range records {
			isReplaced := r.Name == zone && (r.Type == "MX" || strings.HasPrefix(r.Content, `"v=spf1`))
			same := func(o cloudflaretest.Record) bool { return o.ID == r.ID && fmt.Sprint(o) == fmt.Sprint(r) }
			if !isReplaced && !slices.ContainsFunc(now, same) {
				t.Errorf("%s: %s %s %s is gone or changed", when, r.Type, r.Name, r.Content)
			}
		}
	}
	mayDiffer := func(name, typ string) bool { return name == zone+"." && replaced["@ "+typ] }
	nothing := func(string, string) bool { return false }
	wantForeign("complete")
	after := servedBy(t, api, zone, names)
	if asked := compareAnswers(t, before, after, mayDiffer); asked < 30*len(askedTypes) {
		t.Errorf("%d questions were asked", asked)
	}
	was, _ := textsOf(before, zone)
	is, spf := textsOf(after, zone)
	if !slices.Equal(was, is) || len(spf) != 1 || !strings.HasSuffix(spf[0], ` a:mx1.elsewhere.test a:mx2.elsewhere.test include:_spf.office.test include:_spf.news.test include:_spf.crm.test include:_spf.desk.test ip4:192.0.2.0/24 -all"`) {
		t.Errorf("the texts were %q and are %q; the SPF record is %q", was, is, spf)
	}
	if mx := after[question{zone + ".", dns.TypeMX}]; len(mx) != 2 || strings.Contains(mx[1], "elsewhere.test") {
		t.Errorf("the MX records are %q", mx)
	}

	i.Want(200, "POST", domain+"/zone/put-back", nil, nil)
	wantForeign("put back")
	compareAnswers(t, before, servedBy(t, api, zone, names), nothing)
	i.Want(202, "DELETE", domain, nil, nil)
	i.Until("the domain is gone", func() bool { return i.Do("GET", domain, nil, nil) == 404 })
	wantForeign("deleted")
	if n := len(api.Records(zone)); n != len(records) {
		t.Errorf("%d records are left, want %d", n, len(records))
	}
	compareAnswers(t, before, servedBy(t, api, zone, names), nothing)
}
