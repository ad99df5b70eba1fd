package api

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/dnsprov/desec/desectest"
	"github.com/mailstead/mailstead/dnsprov/hetzner/hetznertest"
	"github.com/mailstead/mailstead/dnsprov/rest/resttest"
	"github.com/mailstead/mailstead/dnsprov/route53/route53test"
	"github.com/mailstead/mailstead/e2e/rig"
)

// A fakeProvider is the API of a DNS provider that cannot mark records, with one credential.
type fakeProvider struct {
	name    string
	secrets map[string]any // the secret fields of its credential
	wrong   map[string]any // the field that a wrong credential has instead
	api     interface {
		http.Handler
		Fail(resttest.Fault)
		Heal()
	}
	addZone func(zone string)
	put     func(zone, name, typ string, values ...string) // replaces a set; name is below the zone, "" is the zone itself
	lines   func(zone string) []string                     // the zone's records as "TYPE name value", but for the SOA
}

func fakeProviders() []fakeProvider {
	h, d, r := hetznertest.New("hetzner-token"), desectest.New("desec-token"), route53test.New("AKIDEXAMPLE", "route53-secret")
	return []fakeProvider{
		{
			name: "hetzner", secrets: map[string]any{"token": "hetzner-token"}, wrong: map[string]any{"token": "wrong-secret"}, api: h,
			addZone: func(zone string) { h.AddZone(zone, "primary") },
			put:     func(zone, name, typ string, values ...string) { h.Put(zone, cmp.Or(name, "@"), typ, 300, values...) },
			lines: func(zone string) (out []string) {
				for _, s := range h.Sets(zone) {
					for _, v := range s.Records {
						out = append(out, line(s.Type, strings.TrimPrefix(s.Name+"."+zone, "@."), v.Value))
					}
				}
				return out
			},
		},
		{
			name: "desec", secrets: map[string]any{"token": "desec-token"}, wrong: map[string]any{"token": "wrong-secret"}, api: d,
			addZone: d.AddDomain,
			put:     func(zone, name, typ string, values ...string) { d.Put(zone, name, typ, 3600, values...) },
			lines: func(zone string) (out []string) {
				for _, s := range d.Sets(zone) {
					for _, v := range s.Records {
						out = append(out, line(s.Type, strings.TrimSuffix(s.Name, "."), v))
					}
				}
				return out
			},
		},
		{
			name: "route53", secrets: map[string]any{"access_key_id": "AKIDEXAMPLE", "secret_access_key": "route53-secret"}, wrong: map[string]any{"secret_access_key": "wrong-secret"}, api: r,
			addZone: func(zone string) { r.AddZone(zone, false) },
			put: func(zone, name, typ string, values ...string) {
				r.Put(zone, strings.TrimPrefix(name+"."+zone, "."), typ, 300, values...)
			},
			lines: func(zone string) (out []string) {
				for _, s := range r.Sets(zone) {
					for _, v := range s.Values {
						out = append(out, line(s.Type, strings.TrimSuffix(s.Name, "."), v.Text))
					}
				}
				return out
			},
		},
	}
}

// line describes a record. Of a key it has only the beginning.
func line(typ, name, value string) string {
	value, _, _ = strings.Cut(value, "; p=")
	return typ + " " + name + " " + value
}

// TestDNSProviders is the life of a domain at each DNS provider that cannot mark records, from the
// credential to the deletion, beside what others have there. The first changes are throttled, their
// answers are lost, or they fail.
func TestDNSProviders(t *testing.T) {
	t.Parallel()
	fakes, config := fakeProviders(), rig.GenerousLimits
	for _, f := range fakes {
		server := httptest.NewServer(f.api)
		t.Cleanup(server.Close)
		config += fmt.Sprintf("[%s]\nbase_url = %q\n", f.name, server.URL)
		if f.name == "desec" || f.name == "hetzner" {
			config = strings.TrimSuffix(config, "\"\n") + map[string]string{"desec": "/api/v1", "hetzner": "/v1"}[f.name] + "\"\n"
		}
	}
	i := rig.Start(t, config, "--resolver", rig.NewFakeResolver(t).Addr)
	for _, f := range fakes {
		t.Run(f.name, func(t *testing.T) { testDNSProvider(t, i, f) })
		t.Run(f.name+" in use", func(t *testing.T) { testProviderInUse(t, i, f) })
	}
	for _, path := range []string{"/v1/dns-credentials", "/v1/domains", "/v1/jobs", "/v1/events"} {
		text := i.GetText(path)
		for _, secret := range []string{"hetzner-token", "desec-token", "route53-secret", "wrong-secret"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %s", path, secret)
			}
		}
	}
	i.Check()
}

func testDNSProvider(t *testing.T, i *rig.Instance, f fakeProvider) {
	zone := "kept-" + f.name + ".test"
	credential := func(change map[string]any) map[string]any {
		body := map[string]any{"provider": f.name, "name": "ours"}
		for _, fields := range []map[string]any{f.secrets, change} {
			for name, value := range fields {
				body[name] = value
			}
		}
		return body
	}
	refused := func(status int, code string, body map[string]any) {
		t.Helper()
		var failed struct {
			Error struct{ Code, Message string }
		}
		i.Want(status, "POST", "/v1/dns-credentials", body, &failed)
		if failed.Error.Code != code || strings.Contains(failed.Error.Message, "secret") {
			t.Errorf("want %s: %+v", code, failed)
		}
	}
	refused(400, "credential_invalid", credential(nil)) // there are no zones
	f.addZone(zone)
	f.put(zone, "shop", "A", "192.0.2.2")
	f.put(zone, "text", "TXT", `"somebody's"`)
	before := f.lines(zone)
	refused(400, "credential_invalid", credential(f.wrong))
	f.api.Fail(resttest.Fault{Kind: resttest.Broken, Times: 100})
	refused(502, "upstream_error", credential(nil))
	f.api.Heal()

	var made struct{ ID string }
	i.Want(201, "POST", "/v1/dns-credentials", credential(nil), &made)
	for _, kind := range []string{resttest.TooMany, resttest.CutAfter, resttest.HalfDone, resttest.Broken} { // of the first changes
		f.api.Fail(resttest.Fault{Kind: kind, Method: http.MethodPost, After: time.Second})
	}
	var connected struct {
		Domains []struct {
			ID    string `json:"domain_id"`
			Error *string
		}
		EdgeMode bool `json:"edge_mode"`
	}
	i.Until("the provider answers as it should", func() bool { // some are asked for a change when a domain is connected
		connected.Domains = nil
		i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{zone, "nozone.test"}, "dns_credential_id": made.ID}, &connected)
		why := connected.Domains[0].Error
		return why == nil || !strings.HasPrefix(*why, "upstream_error: ")
	})
	if d := connected.Domains; !connected.EdgeMode || d[0].Error != nil || d[1].Error == nil || !strings.HasPrefix(*d[1].Error, "zone_not_found: ") {
		t.Fatalf("connected: %+v", connected)
	}
	id := connected.Domains[0].ID
	complete(i, id)
	i.Want(200, "POST", "/v1/domains/"+id+"/custom-dns-records", map[string]any{"name": "text", "type": "TXT", "value": "the owner's"}, nil)
	now := f.lines(zone)
	for _, want := range append(slices.Clone(before), `TXT text.`+zone+` "the owner's"`, "MX "+zone+" 10 mail.", "TXT "+zone+` "v=spf1`, "TXT ms1._domainkey."+zone, "TXT _dmarc."+zone) {
		if !slices.ContainsFunc(now, func(l string) bool { return strings.HasPrefix(l, want) }) {
			t.Errorf("%s is not in the zone:\n%s", want, strings.Join(now, "\n"))
		}
	}
	i.Want(409, "DELETE", "/v1/dns-credentials/"+made.ID, nil, nil)
	if job := erase(i, id); job.Status != "completed" {
		t.Errorf("%+v", job)
	}
	left := f.lines(zone)
	slices.Sort(left)
	slices.Sort(before)
	if !slices.Equal(left, before) {
		t.Errorf("the zone has\n%s\nnot\n%s", strings.Join(left, "\n"), strings.Join(before, "\n"))
	}
	i.Want(200, "DELETE", "/v1/dns-credentials/"+made.ID, nil, nil)
}

// testProviderInUse is a domain whose mail is elsewhere when it is connected: its records stay
// until the mail is brought, and can be put back.
func testProviderInUse(t *testing.T, i *rig.Instance, f fakeProvider) {
	zone := "used-" + f.name + ".test"
	f.addZone(zone)
	f.put(zone, "", "MX", "10 mx1.elsewhere.test.", "20 mx2.elsewhere.test.")
	f.put(zone, "", "TXT", `"v=spf1 mx include:_spf.elsewhere.test -all"`, `"somebody's"`)
	f.put(zone, "_dmarc", "TXT", `"v=DMARC1; p=none; rua=mailto:dmarc@elsewhere.test"`)
	before := f.lines(zone)
	want := func(what string, lines ...string) {
		t.Helper()
		has := slices.DeleteFunc(f.lines(zone), func(l string) bool { return strings.Contains(l, "._domainkey.") })
		slices.Sort(has)
		if slices.Sort(lines); !slices.Equal(has, lines) {
			t.Errorf("%s: the zone has\n%s\nnot\n%s", what, strings.Join(has, "\n"), strings.Join(lines, "\n"))
		}
	}
	var made struct{ ID string }
	body := map[string]any{"provider": f.name, "name": "in use"}
	for name, value := range f.secrets {
		body[name] = value
	}
	i.Want(201, "POST", "/v1/dns-credentials", body, &made)
	var connected struct {
		Domains []struct {
			ID    string `json:"domain_id"`
			Error *string
		}
	}
	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{zone}, "dns_credential_id": made.ID, "mx": "elsewhere", "replace": true}, &connected)
	if connected.Domains[0].Error != nil {
		t.Fatalf("connected: %s", *connected.Domains[0].Error)
	}
	path := "/v1/domains/" + connected.Domains[0].ID
	i.Until("the records are made", func() bool {
		var d struct{ Status string }
		i.Want(200, "GET", path, nil, &d)
		return d.Status == "pending_dns_records"
	})
	isSPF := func(l string) bool { return strings.Contains(l, "v=spf1") }
	isMX := func(l string) bool { return strings.HasPrefix(l, "MX ") }
	merged := "TXT " + zone + ` "v=spf1 mx ip4:127.0.0.1 a:mx1.elsewhere.test a:mx2.elsewhere.test include:_spf.elsewhere.test -all"`
	elsewhere := append(slices.DeleteFunc(slices.Clone(before), isSPF), merged)
	want("connected", slices.Clone(elsewhere)...)
	i.Want(200, "PATCH", path, map[string]any{"mx": map[string]any{"mode": "here"}, "replace": true}, nil)
	complete(i, connected.Domains[0].ID)
	here := slices.DeleteFunc(slices.Clone(elsewhere), isMX)
	now := f.lines(zone)
	at := slices.IndexFunc(now, isMX)
	if at < 0 {
		t.Fatalf("there is no MX record:\n%s", strings.Join(now, "\n"))
	}
	want("here", append(here, now[at])...)
	i.Want(200, "POST", path+"/zone/put-back", nil, nil)
	want("put back", slices.Clone(before)...)
	if job := erase(i, connected.Domains[0].ID); job.Status != "completed" {
		t.Errorf("%+v", job)
	}
	want("deleted", before...)
	i.Want(200, "DELETE", "/v1/dns-credentials/"+made.ID, nil, nil)
}
