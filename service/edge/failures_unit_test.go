package edge

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/store"
)

// Several records that a provider refuses are told together, the first ones with the reason.
func TestRefusedRecordsAreTold(t *testing.T) {
	var all dnsprov.Refusals
	for n := range 7 {
		want := dnsprov.Record{Name: fmt.Sprintf("r%d.edge.test", n), Type: "TXT", Value: strings.Repeat("x", 500)}
		all.Add(&dnsprov.Refused{Want: want, Err: errors.New(strings.Repeat("why ", 500))})
	}
	a := Access{Provider: store.DomainProviderHetzner, CredentialID: "dnsc_x"}
	e := a.failure("edge.test", a.fault(all.Err()))
	if e.Code != "upstream_error" || !strings.HasPrefix(e.Message, "Hetzner rejected the record TXT r0.edge.test") ||
		!strings.Contains(e.Message, "TXT r4.edge.test") || !strings.Contains(e.Message, "and 2 more") || len(e.Message) > 2500 {
		t.Errorf("%s: %d bytes, %s", e.Code, len(e.Message), e.Message)
	}
}

// The texts about zones and credentials name the provider that is meant, and what to do there.
func TestFailuresNameTheProvider(t *testing.T) {
	zone := fmt.Errorf("hetzner: %w: the project of the token has no zone that edge.test is in", dnsprov.ErrZoneNotFound)
	refused := fmt.Errorf("desec: GET /domains/: %w: status 401: Invalid token.", dnsprov.ErrCredential)
	for _, tc := range []struct {
		access     Access
		err        error
		code, want string
	}{
		{Access{Provider: store.DomainProviderHetzner, CredentialID: "dnsc_x"}, zone, "zone_not_found",
			"There is no zone for edge.test at Hetzner that the DNS credential dnsc_x may change: the project of the token has no zone that edge.test is in. Add the domain there, or give the credential the permission."},
		{Access{Provider: store.DomainProviderDeSEC, CredentialID: "dnsc_x"}, refused, "credential_invalid",
			"The DNS credential dnsc_x is not accepted for edge.test, or may not change its records: status 401: Invalid token. Change it with PATCH /v1/dns-credentials/dnsc_x."},
		{Access{Provider: store.DomainProviderCloudflare}, zone, "zone_not_found",
			"Cloudflare has no zone for edge.test that the API token can see. Add the domain there, or give a token with the permissions Zone → Zone → Read and Zone → DNS → Edit for its zone."},
		{Access{Provider: store.DomainProviderCloudflare}, refused, "edge_token_invalid",
			"Cloudflare does not accept the API token for edge.test, or the token lacks a permission. It needs Zone → Zone → Read and Zone → DNS → Edit for that zone. Create such a token there, and give it as edge_api_token."},
	} {
		if e := tc.access.failure("edge.test", tc.access.fault(tc.err)); e.Code != tc.code || e.Message != tc.want {
			t.Errorf("%s %s", e.Code, e.Message)
		}
	}
}
